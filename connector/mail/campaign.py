"""Sends the emails of a campaign, each at most once: on record before it leaves, and never again after any answer that
is not certain (architecture 4.6).

Until the service has accepted one, they leave one at a time: a refusal of the first would hit every row. From then on
they leave at the pace, while the next are being recorded. What became of each is recorded with the next of them; a
process that is killed leaves those unknown that it had recorded as leaving.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from connector.clock import Clock
from connector.ledger import Campaign, EmailLog
from connector.mail.message import Message, encode_email
from connector.outcomes import MailOutcome
from connector.pace import Pace
from connector.service import (
    LONGEST_PAUSE_S,
    TOO_MANY_REQUESTS,
    Accepted,
    Ambiguous,
    Client,
    NotSent,
    Refused,
    Retrier,
    refusal_kind,
    says_limit,
)
from connector.states import EmailState

_UNKNOWN_FIRST = 3  # of the first, none of which the service accepted
_UNKNOWN_IN_ROW = 5
_REFUSED_IN_ROW = 20
_REDIRECTS = range(300, 400)


class Ending:
    """Decides by every answer whether the run is to end; `reason` says why, or is None while it may go on.
    `has_accepted`: the service has accepted an email; until then they leave one at a time."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.has_accepted = False
        self._unknown_in_row = 0
        self._refused_in_row = Counter[str]()

    def end(self, reason: str) -> None:
        """The run is to end for this reason, unless it has one."""
        self.reason = self.reason or reason

    def note_accepted(self) -> None:
        """The service took on an email."""
        self.has_accepted, self._unknown_in_row = True, 0
        self._refused_in_row.clear()

    def note_refused(self, status: int, words: str) -> None:
        """It refused one, which is not sent again."""
        said = f"{status}: {words}"
        if status == TOO_MANY_REQUESTS:
            self.end(
                f"the service refused an email for its rate ({said}), and the job does not say that it may be sent "
                "again: lower load.max_rate, or set mail.retry_limited, and run again with --rejected"
            )
        elif not self.has_accepted:
            self.end(
                f"the service refused the first email ({said}), and may refuse every other alike. Nothing else was "
                "sent: correct what it says, and run again; with --rejected this one is sent, too"
            )
        else:
            kind = refusal_kind(status, words)
            self._refused_in_row[kind] += 1
            if self._refused_in_row[kind] >= _REFUSED_IN_ROW:
                self.end(f"the service refused {_REFUSED_IN_ROW} emails in a row alike ({kind}): correct what it says")

    def note_unknown(self, status: int | None, words: str, *, is_limit: bool = False) -> None:
        """Its answer to one says nothing certain; `status` is None when there was none. `is_limit`: it says that emails
        come too fast, which a service that accepts some does not say of the others."""
        if is_limit and self.has_accepted:
            return
        self._unknown_in_row += 1
        if status in _REDIRECTS:
            self.end(f"the service redirects ({status}), which is never followed: correct service.base_url ({words})")
        elif self._unknown_in_row >= (_UNKNOWN_IN_ROW if self.has_accepted else _UNKNOWN_FIRST):
            said = f"status {status}, {words}" if status is not None else words
            self.end(
                f"{self._unknown_in_row} emails in a row had no certain answer (last: {said}): run again when the "
                "service works; those will not be sent again"
            )

    def note_unreachable(self, words: str) -> None:
        """One could not be sent at all."""
        self.end(f"the service cannot be reached: {words}. Run it again; no recipient is sent an email twice")


MOST_AT_ONCE = 64
"""Emails that one commit records as leaving, at most; fewer at a slow pace, so that a kill leaves few unknown."""

_AHEAD_S = 0.1
_SHORT_WAIT_S = 0.2  # whether the run is to stop is seen after it

T = TypeVar("T")
A = TypeVar("A", bound="Addressee")


@dataclass(frozen=True, slots=True)
class Addressee:
    """The recipient of one email of a campaign: the address and its digest."""

    recipient: bytes
    address: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Letter(Addressee):
    """One email of a campaign."""

    message: Message


@dataclass(frozen=True, slots=True)
class SendVerdict:
    """What became of a letter; `status` and `words` are the service's, or of an earlier run's answer."""

    outcome: MailOutcome
    status: int | None = None
    words: str = field(default="", repr=False)


@dataclass(slots=True)
class _Noted:
    """What became of letters, to be recorded with the next commit."""

    accepted: list[tuple[bytes, int, str, float]] = field(default_factory=list)
    refused: list[tuple[bytes, int, str]] = field(default_factory=list)
    not_sent: list[bytes] = field(default_factory=list)
    lost: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MailPolicy:
    """`retries_limited`: whether an email that was refused for its rate (429) is sent again; `allows_rejected`: whether
    recipients whom the service refused in an earlier run are sent theirs, too."""

    retries_limited: bool = False
    allows_rejected: bool = False


class CampaignSender:
    """Use it as a context: at its end all that left has been answered and recorded.

    `on_verdict` is called once for each recipient who was looked up and was on record, and for each letter.
    """

    def __init__(
        self,
        log: EmailLog,
        campaign: Campaign,
        run_id: str,
        client: Client,
        retrier: Retrier,
        pace: Pace,
        clock: Clock,
        stopping: asyncio.Event,
        on_verdict: Callable[[Addressee, SendVerdict], None],
        policy: MailPolicy = MailPolicy(),
    ) -> None:
        self.sent_again = 0  # times that an email was refused for its rate, and is sent again
        self._log, self._campaign, self._run_id = log, campaign, run_id
        self._client, self._retrier, self._pace = client, retrier, pace
        self._clock, self._stopping, self._on_verdict, self._policy = clock, stopping, on_verdict, policy
        self._noted = _Noted()
        self._again = deque[Letter]()
        self._allowed = set[bytes]()
        self._unbegun: dict[bytes, Letter] = {}  # a group that fails cancels tasks that have not begun: they never do
        self._under_way = 0
        self._left = asyncio.Event()
        self._group = asyncio.TaskGroup()
        self._ending = Ending()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            try:
                await self._send_all(())
            except BaseException as late:  # noqa: BLE001 - the group raises it, when all that left has ended
                kind, error, trace = type(late), late, late.__traceback__
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            self._noted.not_sent += self._unbegun
            for letter in (*self._unbegun.values(), *self._again):
                self._on_verdict(letter, SendVerdict(MailOutcome.UNSENT))
            self._commit(lambda _log: None)

    @property
    def reason(self) -> str | None:
        """Why it ended early, if it did."""
        return self._ending.reason

    @property
    def rate(self) -> float:
        """Emails a second that may leave now."""
        return self._pace.rate.rate

    @property
    def is_going_on(self) -> bool:
        """Whether neither a signal nor a reason has ended it."""
        return self.reason is None and not self._stopping.is_set()

    async def look_up(self, addressees: Sequence[A]) -> list[A]:
        """Tell of those who are on record, and return those who may be sent their email."""
        entries = await self._ask(lambda log: log.find(self._campaign, [each.recipient for each in addressees]))
        fresh = []
        for each in addressees:
            entry = entries.get(each.recipient)
            if entry is None:
                fresh.append(each)
            elif entry.state is EmailState.SENT:
                self._on_verdict(each, SendVerdict(MailOutcome.ALREADY_SENT))
            elif entry.state is not EmailState.REFUSED:
                words = "an earlier run sent it, and no certain answer came"
                self._on_verdict(each, SendVerdict(MailOutcome.UNKNOWN, entry.status, words))
            elif self._policy.allows_rejected:
                self._allowed.add(each.recipient)
                fresh.append(each)
            else:
                self._on_verdict(each, SendVerdict(MailOutcome.REJECTED, entry.status, entry.words or ""))
        return fresh

    async def mail(self, letters: Sequence[Letter]) -> None:
        """Send these, whom `look_up` returned; returns when all have left or will not."""
        await self._send_all(letters)

    async def _send_all(self, letters: Sequence[Letter]) -> None:
        waiting = deque(letters)
        while self.is_going_on and (waiting or self._again or (not letters and self._under_way)):
            if not waiting and not self._again:  # the last ones: what the service is too busy for comes back
                await self._wait_for_answer()
                continue
            number = 1 if not self._ending.has_accepted else self._count_ahead()
            queue = self._again or waiting
            await self._send_group([queue.popleft() for _ in range(min(number, len(queue)))])
        for letter in waiting:
            self._on_verdict(letter, SendVerdict(MailOutcome.UNSENT))

    def _count_ahead(self) -> int:
        return max(1, min(MOST_AT_ONCE, int(self._pace.rate.rate * _AHEAD_S)))

    async def _send_group(self, letters: Sequence[Letter]) -> None:
        await self._ask(lambda log: self._mark_intended(log, letters))
        waiting = deque(letters)
        try:
            while waiting and await self._enter():
                letter = waiting.popleft()
                self._unbegun[letter.recipient] = letter
                task = self._group.create_task(self._send(letter))
                if not self._ending.has_accepted:
                    await asyncio.wait((task,))
        finally:  # also of a run that is cancelled: these are known never to have left
            for letter in waiting:
                self._noted.not_sent.append(letter.recipient)
                self._on_verdict(letter, SendVerdict(MailOutcome.UNSENT))

    def _mark_intended(self, log: EmailLog, letters: Sequence[Letter]) -> None:
        """Whom the service refused before is allowed in the same transaction: not before theirs is about to leave."""
        recipients = [each.recipient for each in letters]
        log.mark_allowed(self._campaign, [each for each in recipients if each in self._allowed])
        self._allowed.difference_update(recipients)
        intents = [(each.recipient, each.address) for each in letters]
        log.mark_intended(self._campaign, self._run_id, intents, at=self._clock.now().timestamp())

    async def _enter(self) -> bool:
        """Wait until one more may leave; False when the run is to end."""
        while self.is_going_on:
            if self._under_way >= self._pace.concurrency.allowed:
                await self._wait_for_answer()
                continue
            now = self._clock.monotonic()
            quiet_s = self._client.quiet_until - now
            if quiet_s > LONGEST_PAUSE_S:
                self._ending.end(f"the service asks to be left alone for {quiet_s:,.0f} s: run again after that")
                return False
            wait_s = quiet_s if quiet_s > 0 else self._pace.rate.admit(now)
            if wait_s <= 0:
                self._under_way += 1
                return True
            await self._clock.sleep(min(wait_s, _SHORT_WAIT_S))
        return False

    async def _wait_for_answer(self) -> None:
        self._left.clear()
        if self._under_way:
            await self._left.wait()

    async def _send(self, letter: Letter) -> None:
        del self._unbegun[letter.recipient]
        sent_at = self._clock.monotonic()
        try:
            answer = await self._retrier.send(
                partial(self._client.send_email, encode_email(letter.message)), self._client.counts["send"]
            )
        except BaseException:
            self._noted.lost.append(letter.recipient)
            self._on_verdict(letter, SendVerdict(MailOutcome.UNKNOWN, None, "the run was ended before an answer came"))
            raise
        finally:
            self._under_way -= 1
            self._left.set()
        self._note_pace(answer, sent_at)
        self._note(letter, answer)

    def _note_pace(self, answer: Accepted | Refused | Ambiguous | NotSent, sent_at: float) -> None:
        now = self._clock.monotonic()
        if isinstance(answer, Refused | Ambiguous) and says_limit(answer.status, answer.retry_after_s):
            self._pace.rate.note_refused(sent_at, now, answer.retry_after_s)
            self._pace.patience.note_refused(now)
            if self._pace.patience.is_over(now):
                self._ending.end("the service kept refusing emails for their rate: run again when it is less busy")
        elif isinstance(answer, Accepted | Refused):
            self._pace.rate.note_served(sent_at, now)
        if isinstance(answer, Accepted):
            self._pace.patience.note_taken()
            self._pace.concurrency.note(sent_at, now, self._under_way)

    def _note(self, letter: Letter, answer: Accepted | Refused | Ambiguous | NotSent) -> None:
        match answer:
            case Accepted(request_id, message_id):
                self._ending.note_accepted()
                at = self._clock.now().timestamp()
                self._noted.accepted.append((letter.recipient, request_id, message_id, at))
                self._on_verdict(letter, SendVerdict(MailOutcome.SENT))
            case Refused(status) if status == TOO_MANY_REQUESTS and self._policy.retries_limited:
                self.sent_again += 1
                self._noted.not_sent.append(letter.recipient)
                self._again.append(letter)
            case Refused(status, words):
                self._noted.refused.append((letter.recipient, status, words))
                self._on_verdict(letter, SendVerdict(MailOutcome.REJECTED, status, words))
                self._ending.note_refused(status, words)
            case NotSent(words):
                self._noted.not_sent.append(letter.recipient)
                self._on_verdict(letter, SendVerdict(MailOutcome.UNSENT, None, words))
                self._ending.note_unreachable(words)
            case Ambiguous(status, words, retry_after_s):
                self._noted.lost.append(letter.recipient)
                self._on_verdict(letter, SendVerdict(MailOutcome.UNKNOWN, status, words))
                self._ending.note_unknown(status, words, is_limit=says_limit(status, retry_after_s))

    async def _ask(self, step: Callable[[EmailLog], T]) -> T:
        """One step in one transaction, after all that was noted. Not in a thread: a commit takes less than what two
        threads lose to each other."""
        await asyncio.sleep(0)
        return self._commit(step)

    def _commit(self, step: Callable[[EmailLog], T]) -> T:
        noted = self._noted
        with self._log.transaction():
            self._log.mark_accepted(self._campaign, noted.accepted)
            self._log.mark_refused(self._campaign, noted.refused)
            self._log.mark_not_sent(self._campaign, noted.not_sent)
            self._log.mark_lost(self._campaign, noted.lost)
            done = step(self._log)
        self._noted = _Noted()  # not before: if the database failed for a moment, the last commit tries once more
        return done
