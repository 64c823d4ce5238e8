"""The emails of a campaign as the sending engine sends them, each at most once: on record before it leaves, and never
again after any answer that is not certain (architecture 4.6).

What became of each is recorded with the next of them; a process that is killed leaves those unknown that it had
recorded as leaving.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar

from connector.control import Stop
from connector.ledger.emails import Campaign, EmailLog
from connector.limiter import RequestLimiter
from connector.mail.message import Message, encode_email
from connector.outcomes import MailOutcome
from connector.pace.pace import Pace
from connector.rows import Row
from connector.sender import FetchItems, Sender, Unanswered
from connector.service.answers import refusal_kind
from connector.service.client import Client
from connector.service.retry import Retrier
from connector.service.wire import TOO_MANY_REQUESTS, UNAUTHORISED, Accepted, Ambiguous, NotSent, Refused, says_limit
from connector.states import EmailState

_UNKNOWN_FIRST = 3  # of the first, none of which the service accepted
_UNKNOWN_IN_ROW = 5
_REFUSED_IN_ROW = 20
_REDIRECTS = range(300, 400)


MOST_AT_ONCE = 64
"""Emails that one commit records as leaving, at most; fewer at a slow pace, so that a kill leaves few unknown."""

_AHEAD_S = 0.1

EmailAnswer = Accepted | Refused | Ambiguous | NotSent

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Addressee:
    """The recipient of one email of a campaign: the row of the source, its address and the address's digest."""

    row: Row = field(repr=False)
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
    recipients that the service refused in an earlier run are sent theirs, too.

    `max_rate` (requests/s) and `max_concurrency` (requests under way) are ceilings.
    """

    retries_limited: bool = False
    allows_rejected: bool = False
    max_rate: float = inf
    max_concurrency: int = 64


class CampaignSender:
    """Sends the emails of a campaign: a `Delivery` with its `Sender`.

    `on_verdict` is called once for each recipient who was looked up and was on record, and for each letter taken.
    """

    def __init__(
        self,
        control: Stop,
        log: EmailLog,
        campaign: Campaign,
        run_id: str,
        client: Client,
        retrier: Retrier,
        on_verdict: Callable[[Addressee, SendVerdict], None],
        pace: Pace,
        policy: MailPolicy = MailPolicy(),
    ) -> None:
        self.is_proved = False  # the service has accepted an email; until then they leave one at a time
        self.is_token_refused = False  # at the first email
        self.sent_again = 0  # times that an email was refused for its rate, and sent again
        self.unreported = 0  # letters on record as leaving that have no verdict yet
        self._control, self._log, self._campaign, self._run_id = control, log, campaign, run_id
        self._client, self._on_verdict, self._policy = client, on_verdict, policy
        self._pace = pace
        limiter = RequestLimiter(control, client, self._pace, "send")
        self._sender: Sender[Letter, EmailAnswer, EmailAnswer] = Sender(
            control, limiter, retrier, self, policy.max_concurrency
        )
        self._noted = _Noted()
        self._allowed = set[bytes]()
        self._limited = set[bytes]()  # recipients whose emails were refused for their rate, and are to be sent again
        self._unknown_in_row = 0
        self._refused_in_row = Counter[str]()

    def look_up(self, addressees: Sequence[Addressee]) -> list[Addressee]:
        """Report recipients that are on record; return those that may be sent their email. Raises LedgerError."""
        entries = self._commit(lambda log: log.find(self._campaign, [each.recipient for each in addressees]))
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

    async def send(self, take: FetchItems[Letter]) -> None:
        """Send what `take` gives of those that `look_up` returned; at its end all that left is recorded."""
        try:
            await self._sender.send(take)
        finally:
            await self.record()

    @property
    def most_at_once(self) -> int:
        """Few at a slow pace, so that a kill leaves few unknown."""
        return max(1, min(MOST_AT_ONCE, int(self._pace.rate.rate * _AHEAD_S)))

    def find_deadline(self, _letter: Letter) -> float:
        """Return infinity: an email may be sent at any time."""
        return inf

    async def intend(self, letters: Sequence[Letter]) -> None:
        """Return when they are on record as leaving: what was refused before is allowed in the same transaction."""
        recipients = [each.recipient for each in letters]
        allowed, at = self._allowed.intersection(recipients), self._control.clock.now().timestamp()

        def mark(log: EmailLog) -> None:
            log.mark_allowed(self._campaign, [each for each in recipients if each in allowed])
            intents = [(each.recipient, each.address) for each in letters]
            log.mark_intended(self._campaign, self._run_id, intents, at=at)

        self._commit(mark)
        self.unreported += len(letters)
        self._allowed -= allowed
        await asyncio.sleep(0)  # what was answered meanwhile is seen to; after the commit, so that it is not cut off

    def attempt(self, letter: Letter) -> Awaitable[EmailAnswer]:
        """Send one email (service-api.md 4.1)."""
        if letter.recipient in self._limited:
            self._limited.remove(letter.recipient)
            self.sent_again += 1
        return self._client.send_email(encode_email(letter.message))

    async def classify(self, letter: Letter, answer: EmailAnswer) -> EmailAnswer | None:
        """Return the answer; None: the email may be sent again, since it never left or, if the job says that it had no
        effect, was refused for its rate."""
        if isinstance(answer, Refused) and answer.status == TOO_MANY_REQUESTS and self._policy.retries_limited:
            self._limited.add(letter.recipient)
            return None
        return None if isinstance(answer, NotSent) and (self.is_proved or self._client.is_quiet) else answer

    def finish(self, letter: Letter, answer: EmailAnswer) -> None:
        """Note it for the next commit, report it, and end the run if the others would fare no better."""
        recipient = letter.recipient
        match answer:
            case Accepted(request_id, message_id):
                self.is_proved, self._unknown_in_row = True, 0
                self._refused_in_row.clear()
                at = self._control.clock.now().timestamp()
                self._noted.accepted.append((recipient, request_id, message_id, at))
                self._report(letter, SendVerdict(MailOutcome.SENT))
            case Refused(status, words):
                self._noted.refused.append((recipient, status, words))
                self._report(letter, SendVerdict(MailOutcome.REJECTED, status, words))
                self._watch_refused(status, words)
            case NotSent(words):
                self._noted.not_sent.append(recipient)
                self._report(letter, SendVerdict(MailOutcome.UNSENT, None, words))
                self._control.end(
                    f"the service cannot be reached: {words}. Run it again; no recipient is sent an email twice"
                )
            case Ambiguous(status, words, retry_after_s):
                self._noted.lost.append(recipient)
                self._report(letter, SendVerdict(MailOutcome.UNKNOWN, status, words))
                if not (self.is_proved and says_limit(status, retry_after_s)):  # else others are accepted, more slowly
                    self._watch_unknown(status, words)

    def give_up(self, letter: Letter, why: Unanswered) -> None:
        """Note the verdict on an email without an answer."""
        if why is Unanswered.CUT_OFF:
            self._noted.lost.append(letter.recipient)
            words = "the run was ended before an answer came"
            self._report(letter, SendVerdict(MailOutcome.UNKNOWN, None, words))
        else:
            self._noted.not_sent.append(letter.recipient)
            self._report(letter, SendVerdict(MailOutcome.UNSENT))

    async def record(self) -> None:
        """Make durable what was noted."""
        self._commit(lambda _log: None)

    def _report(self, letter: Letter, verdict: SendVerdict) -> None:
        self.unreported -= 1
        self._on_verdict(letter, verdict)

    def _watch_refused(self, status: int, words: str) -> None:
        said = f"{status}: {words}"
        if status == TOO_MANY_REQUESTS:
            self._control.end(
                f"the service refused an email for its rate ({said}), and the job does not say that it may be sent "
                "again: lower load.max_rate, or set mail.retry_limited, and run again with --rejected"
            )
        elif not self.is_proved:
            self.is_token_refused = status in UNAUTHORISED
            step = "check the token" if self.is_token_refused else "correct what it says"
            self._control.end(
                f"the service refused the first email ({said}), and may refuse every other alike. Nothing else was "
                f"sent: {step}, and run again; with --rejected this one is sent, too"
            )
        else:
            kind = refusal_kind(status, words)
            self._refused_in_row[kind] += 1
            if self._refused_in_row[kind] >= _REFUSED_IN_ROW:
                self._control.end(
                    f"the service refused {_REFUSED_IN_ROW} emails in a row alike ({kind}): correct what it says"
                )

    def _watch_unknown(self, status: int | None, words: str) -> None:
        self._unknown_in_row += 1
        if status in _REDIRECTS:
            self._control.end(
                f"the service redirects ({status}), which is never followed: correct service.base_url ({words})"
            )
        elif self._unknown_in_row >= (_UNKNOWN_IN_ROW if self.is_proved else _UNKNOWN_FIRST):
            said = f"status {status}, {words}" if status is not None else words
            self._control.end(
                f"{self._unknown_in_row} emails in a row had no certain answer (last: {said}): run again when the "
                "service works; those will not be sent again"
            )

    def _commit(self, step: Callable[[EmailLog], T]) -> T:
        """One step in one transaction, after all that was noted. Not in a thread: a commit takes less than what two
        threads lose to each other."""
        noted = self._noted
        with self._log.transaction():
            self._log.mark_accepted(self._campaign, noted.accepted)
            self._log.mark_refused(self._campaign, noted.refused)
            self._log.mark_not_sent(self._campaign, noted.not_sent)
            self._log.mark_lost(self._campaign, noted.lost)
            done = step(self._log)
        self._noted = _Noted()  # not before: if the database failed for a moment, the last commit tries once more
        return done
