"""Sends the emails of a campaign, each at most once (architecture 4.6).

An email is recorded as leaving before its request. After an answer that is not certain, the email is never sent again.
The outcome of an email is recorded in the commit of the next emails, so a killed process leaves a few emails unknown.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import Any, TypeVar

from connector.control import Stop
from connector.errors import ConfigurationError
from connector.ledger.emails import Campaign, EmailLog
from connector.limiter import RequestLimiter
from connector.mail.message import Message, encode_email
from connector.outcomes import MailOutcome
from connector.pace.pace import Pace
from connector.rows import Row
from connector.sender import FetchItems, GiveUpReason, Sender
from connector.service.answers import refusal_kind
from connector.service.client import Client
from connector.service.retry import Retrier
from connector.service.wire import TOO_MANY_REQUESTS, UNAUTHORISED, Accepted, Ambiguous, NotSent, Refused, says_limit
from connector.states import EmailState

# Emails of earlier runs


@dataclass(frozen=True, slots=True)
class History:
    """The ledger's records of a campaign: the number of sent emails by run id, the start of the latest run, and the
    time at which a run reopened the campaign (ISO 8601 in UTC, "": never)."""

    sent_by_run: Mapping[str, int] = field(default_factory=dict)
    last_began_at: str = ""
    reopened_at: str = ""


def check_history(
    log: EmailLog, campaign: Campaign, began_at: datetime, reports: Iterable[Mapping[str, Any]], *, is_reopening: bool
) -> None:
    """Record the start of this run. Raises ConfigurationError if the ledger lacks emails that an earlier run has
    reported as sent. `is_reopening` accepts those reports from now on."""
    with log.transaction():
        if is_reopening:
            log.mark_reopened(campaign, began_at.isoformat())
        refuse_older_ledger(log.name, campaign.account, campaign.name, reports, read_history(log, campaign))
        log.mark_begin(campaign, began_at.isoformat())


def read_history(log: EmailLog, campaign: Campaign) -> History:
    """Return the ledger's records of the campaign. Call this function inside a transaction of the log."""
    return History(log.count_sent(campaign), log.find_begin(campaign), log.find_reopen(campaign))


def refuse_older_ledger(
    ledger: str, account: str, campaign: str, reports: Iterable[Mapping[str, Any]], history: History
) -> None:
    """Raise ConfigurationError if a report counts more sent emails of the campaign than the ledger."""
    for report in reports:
        is_of_campaign = (report.get("account"), _read(report, "settings", "campaign")) == (account, campaign)
        if is_of_campaign and report["command"] == "mail" and _is_lost(report, history):
            raise ConfigurationError(
                f"the ledger {ledger} lacks emails that the run {report['run_id']} has sent in the campaign "
                f"{campaign}: an older copy of the ledger is in use. Nothing was sent. Put the newest ledger back. If "
                "it is lost, remove the recipients of that run from the source, and run with --reopen"
            )


def _is_lost(report: Mapping[str, Any], history: History) -> bool:
    run_id, began_at = str(report["run_id"]), str(report["started_at"])
    if began_at < history.reopened_at:
        return False
    is_known = run_id in history.sent_by_run
    if report["status"] == "killed":  # its report has no counts; the ledger recorded the run before it sent anything
        return not is_known and began_at > history.last_began_at
    sent, failed = _read_count(report, "rows", "sent"), _read_count(report, "requests", "send", "failed")
    return sent > history.sent_by_run.get(run_id, 0) or (failed > 0 and not is_known)


def _read_count(report: Mapping[str, Any], *keys: str) -> int:
    value = _read(report, *keys)
    return value if isinstance(value, int) else 0


def _read(report: Mapping[str, Any], *keys: str) -> object:
    value: object = report
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


_UNKNOWN_FIRST = 3  # unknown emails in a row that end a run before the service has accepted an email
_UNKNOWN_IN_ROW = 5  # the same limit after the service has accepted an email
_REFUSED_IN_ROW = 20
_REDIRECTS = range(300, 400)


MOST_AT_ONCE = 64
"""Largest number of emails that one commit records as leaving."""

_AHEAD_S = 0.1  # seconds of sending at the present rate that one commit may cover

EmailAnswer = Accepted | Refused | Ambiguous | NotSent

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Addressee:
    """The recipient of one email: the row of the source, the digest of the address, and the address."""

    row: Row = field(repr=False)
    recipient: bytes
    address: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Letter(Addressee):
    """One email of a campaign: the recipient and the message."""

    message: Message


@dataclass(frozen=True, slots=True)
class SendVerdict:
    """The outcome of an email; `status` and `words` are from the service's answer in this run or an earlier one."""

    outcome: MailOutcome
    status: int | None = None
    words: str = field(default="", repr=False)


@dataclass(slots=True)
class _UnrecordedOutcomes:
    """Outcomes of emails that the next commit will record."""

    accepted: list[tuple[bytes, int, str, float]] = field(default_factory=list)
    refused: list[tuple[bytes, int, str]] = field(default_factory=list)
    not_sent: list[bytes] = field(default_factory=list)
    lost: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MailPolicy:
    """The rules of a campaign. `retries_limited`: send an email again that was refused with 429. `allows_rejected`:
    send emails again that the service refused in an earlier run.

    `max_rate` (requests per second) and `max_concurrency` (requests in flight) are upper limits.
    """

    retries_limited: bool = False
    allows_rejected: bool = False
    max_rate: float = inf
    max_concurrency: int = 64


class CampaignSender:
    """Sends the emails of a campaign: a `Delivery` with its `Sender`.

    `on_verdict` is called once for each email: in `look_up` if an earlier run has its outcome, else after its answer.
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
        self.is_proved = False  # whether the service has accepted an email; until then one email leaves at a time
        self.is_token_refused = False  # whether the service refused the token at the first email
        self.sent_again = 0  # number of emails that were sent again after a 429
        self.unreported = 0  # number of emails that are recorded as leaving and have no outcome yet
        self._control, self._log, self._campaign, self._run_id = control, log, campaign, run_id
        self._client, self._on_verdict, self._policy = client, on_verdict, policy
        self._pace = pace
        limiter = RequestLimiter(control, client, self._pace, "send")
        self._sender: Sender[Letter, EmailAnswer, EmailAnswer] = Sender(
            control, limiter, retrier, self, policy.max_concurrency
        )
        self._unrecorded = _UnrecordedOutcomes()
        self._allowed = set[
            bytes
        ]()  # recipients that an earlier run recorded as rejected, and that get their email now
        self._limited = set[bytes]()  # recipients whose emails were refused with 429 and must be sent again
        self._unknown_in_row = 0
        self._refused_in_row = Counter[str]()

    def look_up(self, addressees: Sequence[Addressee]) -> list[Addressee]:
        """Report the outcomes that the ledger has, and return the recipients who may get their email. Raises
        LedgerError."""
        recipients = [addressee.recipient for addressee in addressees]
        entries = self._commit(lambda log: log.find(self._campaign, recipients))
        sendable = []
        for addressee in addressees:
            entry = entries.get(addressee.recipient)
            if entry is None:
                sendable.append(addressee)
            elif entry.state is EmailState.SENT:
                self._on_verdict(addressee, SendVerdict(MailOutcome.ALREADY_SENT))
            elif entry.state is not EmailState.REFUSED:
                words = "an earlier run sent it, and no certain answer came"
                self._on_verdict(addressee, SendVerdict(MailOutcome.UNKNOWN, entry.status, words))
            elif self._policy.allows_rejected:
                self._allowed.add(addressee.recipient)
                sendable.append(addressee)
            else:
                self._on_verdict(addressee, SendVerdict(MailOutcome.REJECTED, entry.status, entry.words or ""))
        return sendable

    async def send(self, take: FetchItems[Letter]) -> None:
        """Send the emails that `take` returns, to recipients that `look_up` returned, and record all outcomes."""
        try:
            await self._sender.send(take)
        finally:
            await self.record()

    @property
    def most_at_once(self) -> int:
        """Largest number of emails of the next commit: few at a slow pace, so that a kill leaves few unknown."""
        return max(1, min(MOST_AT_ONCE, int(self._pace.rate.rate * _AHEAD_S)))

    def find_deadline(self, _letter: Letter) -> float:
        """Return infinity: an email may be sent at any time."""
        return inf

    async def intend(self, letters: Sequence[Letter]) -> None:
        """Record the emails as leaving. Release emails that an earlier run recorded as rejected in the same
        transaction."""
        recipients = [letter.recipient for letter in letters]
        allowed, now = self._allowed.intersection(recipients), self._control.clock.now().timestamp()

        def mark(log: EmailLog) -> None:
            log.mark_allowed(self._campaign, [recipient for recipient in recipients if recipient in allowed])
            intents = [(letter.recipient, letter.address) for letter in letters]
            log.mark_intended(self._campaign, self._run_id, intents, at=now)

        self._commit(mark)
        self.unreported += len(letters)
        self._allowed -= allowed
        await asyncio.sleep(0)  # let other tasks read their answers; after the commit, which must not be cancelled

    def attempt(self, letter: Letter) -> Awaitable[EmailAnswer]:
        """Send one email (service-api.md 4.1)."""
        if letter.recipient in self._limited:
            self._limited.remove(letter.recipient)
            self.sent_again += 1
        return self._client.send_email(encode_email(letter.message))

    async def classify(self, letter: Letter, answer: EmailAnswer) -> EmailAnswer | None:
        """Return the answer if it is final. Return None to send the email again: if it never left, or if it was refused
        with 429 and the job sets `mail.retry_limited`."""
        if isinstance(answer, Refused) and answer.status == TOO_MANY_REQUESTS and self._policy.retries_limited:
            self._limited.add(letter.recipient)
            return None
        return None if isinstance(answer, NotSent) and (self.is_proved or self._client.is_quiet) else answer

    def finish(self, letter: Letter, answer: EmailAnswer) -> None:
        """Keep the outcome for the next commit, report it, and end the run if other emails would fail as well."""
        recipient = letter.recipient
        match answer:
            case Accepted(request_id, message_id):
                self.is_proved, self._unknown_in_row = True, 0
                self._refused_in_row.clear()
                accepted_at = self._control.clock.now().timestamp()
                self._unrecorded.accepted.append((recipient, request_id, message_id, accepted_at))
                self._report(letter, SendVerdict(MailOutcome.SENT))
            case Refused(status, words):
                self._unrecorded.refused.append((recipient, status, words))
                self._report(letter, SendVerdict(MailOutcome.REJECTED, status, words))
                self._watch_refused(status, words)
            case NotSent(words):
                self._unrecorded.not_sent.append(recipient)
                self._report(letter, SendVerdict(MailOutcome.UNSENT, None, words))
                self._control.end(
                    f"the service cannot be reached: {words}. Run again; no recipient gets the email twice"
                )
            case Ambiguous(status, words, retry_after_s):
                self._unrecorded.lost.append(recipient)
                self._report(letter, SendVerdict(MailOutcome.UNKNOWN, status, words))
                if not (self.is_proved and says_limit(status, retry_after_s)):  # at a limit, slower emails are accepted
                    self._watch_unknown(status, words)

    def give_up(self, letter: Letter, reason: GiveUpReason) -> None:
        """Keep and report the outcome of an email without an answer."""
        if reason is GiveUpReason.CUT_OFF:
            self._unrecorded.lost.append(letter.recipient)
            words = "the run was ended before an answer came"
            self._report(letter, SendVerdict(MailOutcome.UNKNOWN, None, words))
        else:
            self._unrecorded.not_sent.append(letter.recipient)
            self._report(letter, SendVerdict(MailOutcome.UNSENT))

    async def record(self) -> None:
        """Commit the outcomes that are not recorded yet."""
        self._commit(lambda _log: None)

    def _report(self, letter: Letter, verdict: SendVerdict) -> None:
        self.unreported -= 1
        self._on_verdict(letter, verdict)

    def _watch_refused(self, status: int, words: str) -> None:
        answer = f"{status}: {words}"
        if status == TOO_MANY_REQUESTS:
            self._control.end(
                f"the service refused an email with 429, too many requests ({answer}), and mail.retry_limited is not "
                "set. Lower load.max_rate, or set mail.retry_limited, and run again with --rejected"
            )
        elif not self.is_proved:
            self.is_token_refused = status in UNAUTHORISED
            step = "Check the token" if self.is_token_refused else "Correct the cause"
            self._control.end(
                f"the service refused the first email ({answer}), and may refuse all others. Nothing else was sent. "
                f"{step}, and run again with --rejected to send this email, too"
            )
        else:
            kind = refusal_kind(status, words)
            self._refused_in_row[kind] += 1
            if self._refused_in_row[kind] >= _REFUSED_IN_ROW:
                self._control.end(
                    f"the service refused {_REFUSED_IN_ROW} emails in a row for one reason ({kind}): correct the cause"
                )

    def _watch_unknown(self, status: int | None, words: str) -> None:
        self._unknown_in_row += 1
        if status in _REDIRECTS:
            self._control.end(
                f"the service redirects ({status}), and redirects are not followed: correct service.base_url ({words})"
            )
        elif self._unknown_in_row >= (_UNKNOWN_IN_ROW if self.is_proved else _UNKNOWN_FIRST):
            last_answer = f"status {status}, {words}" if status is not None else words
            self._control.end(
                f"{self._unknown_in_row} emails in a row got no certain answer (last: {last_answer}). Run again when "
                "the service works; these emails will not be sent again"
            )

    def _commit(self, step: Callable[[EmailLog], T]) -> T:
        """Record all kept outcomes and run the step in one transaction, and return the step's result. The commit blocks
        the loop: it takes less time than a switch to a thread."""
        unrecorded = self._unrecorded
        with self._log.transaction():
            self._log.mark_accepted(self._campaign, unrecorded.accepted)
            self._log.mark_refused(self._campaign, unrecorded.refused)
            self._log.mark_not_sent(self._campaign, unrecorded.not_sent)
            self._log.mark_lost(self._campaign, unrecorded.lost)
            result = step(self._log)
        self._unrecorded = _UnrecordedOutcomes()  # after the commit: if it fails, the next commit repeats it
        return result
