"""Sends the emails of a campaign, each at most once (architecture 4.6).

The ledger records each email before its request leaves. If the answer is not certain, the email is never sent again.
One transaction records the outcomes of sent emails and the next emails that will leave. So if the process is killed,
the outcomes of a few emails are lost, and these emails stay unknown.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import Any, TypeVar, assert_never

from connector.control import Stop
from connector.errors import ConfigurationError
from connector.ledger.emails import Campaign, EmailLog
from connector.limiter import RequestLimiter
from connector.mail.message import Message, encode_email
from connector.outcomes import MailOutcome
from connector.pace.pace import Pace
from connector.rows import Row
from connector.sender import FetchItems, GiveUpReason, Sender
from connector.service.answers import build_refusal_kind
from connector.service.client import Client
from connector.service.retry import Retrier
from connector.service.wire import (
    TOO_MANY_REQUESTS,
    UNAUTHORISED_STATUSES,
    AmbiguousResult,
    EmailAccepted,
    NotSent,
    Refused,
    is_rate_limit,
)
from connector.states import EmailState

# Emails of earlier runs


@dataclass(frozen=True, slots=True)
class CampaignHistory:
    """The ledger's records of a campaign: the number of sent emails by run id, the start of the latest run, and the
    time at which a run has reopened the campaign. Times are in ISO 8601 and UTC. A missing time is ""."""

    sent_count_by_run: Mapping[str, int] = field(default_factory=dict)
    last_started_at: str = ""
    reopened_at: str = ""


def record_campaign_start(
    email_log: EmailLog,
    campaign: Campaign,
    started_at: datetime,
    reports: Iterable[Mapping[str, Any]],
    *,
    is_reopening: bool,
) -> None:
    """Record the start of this run. Raises ConfigurationError if the ledger lacks emails that an earlier run has
    reported as sent. With `is_reopening`, this run and later runs ignore the reports of earlier runs."""
    with email_log.transaction():
        if is_reopening:
            email_log.record_start(campaign, "open", started_at.isoformat())
        refuse_older_ledger(email_log.name, campaign.account, campaign.name, reports, read_history(email_log, campaign))
        email_log.record_start(campaign, "run", started_at.isoformat())


def read_history(email_log: EmailLog, campaign: Campaign) -> CampaignHistory:
    """Return the ledger's records of the campaign. Call this function inside a transaction of the log."""
    return CampaignHistory(
        email_log.count_sent_emails(campaign),
        email_log.read_last_start(campaign, "run"),
        email_log.read_last_start(campaign, "open"),
    )


def refuse_older_ledger(
    ledger: str, account: str, campaign: str, reports: Iterable[Mapping[str, Any]], history: CampaignHistory
) -> None:
    """Raise ConfigurationError if a report shows that a run sent emails of the campaign that the ledger lacks."""
    for report in reports:
        is_of_campaign = (report.get("account"), _read_value(report, "settings", "campaign")) == (account, campaign)
        if is_of_campaign and report["command"] == "mail" and _has_unrecorded_emails(report, history):
            raise ConfigurationError(
                f"the ledger {ledger} lacks emails that the run {report['run_id']} has sent in the campaign "
                f"{campaign}: an older copy of the ledger is in use. Nothing was sent. Put the newest ledger back. If "
                "the newest ledger is lost, remove the recipients of this run from the source, and run with --reopen"
            )


def _has_unrecorded_emails(report: Mapping[str, Any], history: CampaignHistory) -> bool:
    run_id, started_at = str(report["run_id"]), str(report["started_at"])
    if started_at < history.reopened_at:
        return False
    is_run_known = run_id in history.sent_count_by_run
    if report["status"] == "killed":
        # The report of a killed run has no counts, but the ledger has its start, recorded before any email left.
        return not is_run_known and started_at > history.last_started_at
    sent_count, failed_count = _read_count(report, "rows", "sent"), _read_count(report, "requests", "send", "failed")
    return sent_count > history.sent_count_by_run.get(run_id, 0) or (failed_count > 0 and not is_run_known)


def _read_count(report: Mapping[str, Any], *keys: str) -> int:
    count_value = _read_value(report, *keys)
    return count_value if isinstance(count_value, int) else 0


def _read_value(report: Mapping[str, Any], *keys: str) -> object:
    nested_value: object = report
    for key in keys:
        nested_value = nested_value.get(key) if isinstance(nested_value, Mapping) else None
    return nested_value


# Limits that end a run. An email that the service accepts sets all counts to 0.
_MAX_UNKNOWN_EMAILS_BEFORE_FIRST_SENT = 3  # for a run that has sent no email
_MAX_CONSECUTIVE_UNKNOWN_EMAILS = 5
_MAX_REFUSALS_FOR_ONE_REASON = 20
_REDIRECT_STATUSES = range(300, 400)


MAX_EMAILS_PER_COMMIT = 64
"""The maximum number of emails that one commit records before these emails are sent."""

_COMMIT_SPAN_S = 0.1  # seconds: a commit records at most as many emails as leave in this time at the current rate

EmailAnswer = EmailAccepted | Refused | AmbiguousResult | NotSent

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Addressee:
    """The recipient of one email: the row of the source, the digest of the address, and the address."""

    row: Row = field(repr=False)
    recipient_digest: bytes
    address: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class CampaignEmail(Addressee):
    """One email of a campaign: the recipient and the message."""

    message: Message


@dataclass(frozen=True, slots=True)
class SendResult:
    """The outcome of an email. `status` and `message` are from the service's answer, in this run or an earlier run.
    Without an answer, `message` is the reason."""

    outcome: MailOutcome
    status: int | None = None
    message: str = field(default="", repr=False)


@dataclass(slots=True)
class _UnrecordedOutcomes:
    """Outcomes that the next commit will record, as arguments for the ledger."""

    accepted_emails: list[tuple[bytes, int, str, float]] = field(default_factory=list)
    refused_emails: list[tuple[bytes, int, str]] = field(default_factory=list)
    digests_of_unsent_emails: list[bytes] = field(default_factory=list)
    digests_of_unknown_emails: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MailPolicy:
    """The rules of a campaign. With `resends_after_429`, an email that was refused with 429 is sent again. With
    `sends_rejected_again`, emails that the service refused in an earlier run are sent again.

    `max_rate` (requests per second) and `max_concurrency` (requests in flight) are upper limits.
    """

    resends_after_429: bool = False
    sends_rejected_again: bool = False
    max_rate: float = inf
    max_concurrency: int = 64


class CampaignSender:
    """Sends the emails of a campaign. The class implements `connector.sender.Delivery` for emails.

    `on_result` is called once for each email. `look_up` calls `on_result` if an earlier run has recorded the outcome.
    Otherwise `on_result` is called after the answer.
    """

    def __init__(
        self,
        stop: Stop,
        email_log: EmailLog,
        campaign: Campaign,
        run_id: str,
        client: Client,
        retrier: Retrier,
        on_result: Callable[[Addressee, SendResult], None],
        pace: Pace,
        policy: MailPolicy = MailPolicy(),
    ) -> None:
        # Whether the service has accepted an email. Until then, only one email is in flight.
        self.has_accepted_item = False
        self.is_token_refused = False  # whether the service refused the token at the first email
        self.resent_count = 0  # number of emails that were sent again after a 429
        self.unreported_count = 0  # number of emails with the recorded state `sending` and no outcome
        self._stop, self._email_log, self._campaign, self._run_id = stop, email_log, campaign, run_id
        self._client, self._on_result, self._policy, self._pace = client, on_result, policy, pace
        limiter = RequestLimiter(stop, client, pace, "send")
        self._sender: Sender[CampaignEmail, EmailAnswer, EmailAnswer] = Sender(
            stop, limiter, retrier, self, policy.max_concurrency
        )
        self._unrecorded_outcomes = _UnrecordedOutcomes()
        # Recipients whose emails an earlier run recorded as rejected, and who get the email now.
        self._allowed_digests = set[bytes]()
        self._limited_digests = set[bytes]()  # recipients whose emails were refused with 429 and must be sent again
        self._unknown_count = 0
        self._refused_counts = Counter[str]()

    def look_up(self, addressees: Sequence[Addressee]) -> list[Addressee]:
        """Report the outcomes that the ledger already has. Return the recipients who may get the email. Raises
        LedgerError."""
        recipient_digests = [addressee.recipient_digest for addressee in addressees]
        entry_by_digest = self._commit_to_log(lambda log: log.find_emails(self._campaign, recipient_digests))
        sendable_addressees = []
        for addressee in addressees:
            entry = entry_by_digest.get(addressee.recipient_digest)
            if entry is None:
                sendable_addressees.append(addressee)
                continue
            match entry.state:
                case EmailState.SENT:
                    self._on_result(addressee, SendResult(MailOutcome.ALREADY_SENT))
                case EmailState.SENDING | EmailState.UNKNOWN:
                    reason = "an earlier run sent the email, and no certain answer came"
                    self._on_result(addressee, SendResult(MailOutcome.UNKNOWN, entry.status, reason))
                case EmailState.REFUSED if self._policy.sends_rejected_again:
                    self._allowed_digests.add(addressee.recipient_digest)
                    sendable_addressees.append(addressee)
                case EmailState.REFUSED:
                    self._on_result(addressee, SendResult(MailOutcome.REJECTED, entry.status, entry.message or ""))
                case EmailState.NONE:
                    raise ValueError("the ledger stores no email in the state NONE")
                case _:
                    assert_never(entry.state)
        return sendable_addressees

    async def send(self, fetch_items: FetchItems[CampaignEmail]) -> None:
        """Send the emails that `fetch_items` returns, and record all outcomes. Their recipients must be results of
        `look_up`."""
        try:
            await self._sender.send(fetch_items)
        finally:
            await self.commit_results()

    @property
    def max_intents_per_commit(self) -> int:
        """The maximum number of emails in the next commit. At a slow pace the number is small, so that few emails stay
        unknown if the process is killed."""
        return max(1, min(MAX_EMAILS_PER_COMMIT, int(self._pace.rate.rate * _COMMIT_SPAN_S)))

    def find_deadline(self, _email: CampaignEmail) -> float:
        """Return an infinite deadline, because an email may be sent at any time."""
        return inf

    async def commit_intents(self, emails: Sequence[CampaignEmail]) -> None:
        """Record that the emails are being sent. If an earlier run recorded an email as rejected, the same transaction
        deletes the old record first."""
        recipient_digests = [email.recipient_digest for email in emails]
        allowed_digests = [digest for digest in recipient_digests if digest in self._allowed_digests]
        intended_at = self._stop.clock.now().timestamp()

        def record_intents(email_log: EmailLog) -> None:
            email_log.allow_another_attempt(self._campaign, allowed_digests)
            intents = [(email.recipient_digest, email.address) for email in emails]
            email_log.mark_intended(self._campaign, self._run_id, intents, intended_at=intended_at)

        self._commit_to_log(record_intents)
        self.unreported_count += len(emails)
        self._allowed_digests.difference_update(allowed_digests)
        # Let other tasks read their answers. The pause is after the commit, because the commit must not be cancelled.
        await asyncio.sleep(0)

    def attempt(self, email: CampaignEmail) -> Awaitable[EmailAnswer]:
        """Send one email (service-api.md 4.1)."""
        if email.recipient_digest in self._limited_digests:
            self._limited_digests.remove(email.recipient_digest)
            self.resent_count += 1
        return self._client.send_email(encode_email(email.message))

    async def classify(self, email: CampaignEmail, answer: EmailAnswer) -> EmailAnswer | None:
        """Return the answer if the answer is final. Return None if the email must be sent again, in two cases. The
        service refused the email with 429, and the job sets `mail.retry_limited`. Or the email never left, and the
        service has accepted another email before or has asked for a pause."""
        if isinstance(answer, Refused) and answer.status == TOO_MANY_REQUESTS and self._policy.resends_after_429:
            self._limited_digests.add(email.recipient_digest)
            return None
        return None if isinstance(answer, NotSent) and (self.has_accepted_item or self._client.is_paused) else answer

    def finish(self, email: CampaignEmail, answer: EmailAnswer) -> None:
        """Report the outcome, and keep the outcome in memory until the next commit. End the run if other emails would
        also fail."""
        recipient_digest, outcomes = email.recipient_digest, self._unrecorded_outcomes
        match answer:
            case EmailAccepted(request_id, message_id):
                self.has_accepted_item, self._unknown_count = True, 0
                self._refused_counts.clear()
                accepted_at = self._stop.clock.now().timestamp()
                outcomes.accepted_emails.append((recipient_digest, request_id, message_id, accepted_at))
                self._report_email(email, SendResult(MailOutcome.SENT))
            case Refused(status, answer_message):
                outcomes.refused_emails.append((recipient_digest, status, answer_message))
                self._report_email(email, SendResult(MailOutcome.REJECTED, status, answer_message))
                self._stop_on_refusals(status, answer_message)
            case NotSent(answer_message):
                outcomes.digests_of_unsent_emails.append(recipient_digest)
                self._report_email(email, SendResult(MailOutcome.UNSENT, None, answer_message))
                self._stop.request_stop(
                    f"the service cannot be reached: {answer_message}. Run again; no recipient gets the email twice"
                )
            case AmbiguousResult(status, answer_message, retry_after_s):
                outcomes.digests_of_unknown_emails.append(recipient_digest)
                self._report_email(email, SendResult(MailOutcome.UNKNOWN, status, answer_message))
                # After the first accepted email, a rate limit of the service only lowers the rate of the run.
                if not (self.has_accepted_item and is_rate_limit(status, retry_after_s)):
                    self._stop_on_unknown_emails(status, answer_message)

    def give_up(self, email: CampaignEmail, reason: GiveUpReason) -> None:
        """Report the outcome of an email without an answer, and keep the outcome in memory until the next commit."""
        if reason is GiveUpReason.INTERRUPTED:
            self._unrecorded_outcomes.digests_of_unknown_emails.append(email.recipient_digest)
            message = "the run was ended before an answer came"
            self._report_email(email, SendResult(MailOutcome.UNKNOWN, None, message))
        else:
            self._unrecorded_outcomes.digests_of_unsent_emails.append(email.recipient_digest)
            self._report_email(email, SendResult(MailOutcome.UNSENT))

    async def commit_results(self) -> None:
        """Commit all outcomes that are not recorded."""
        self._commit_to_log(lambda _log: None)

    def _report_email(self, email: CampaignEmail, result: SendResult) -> None:
        self.unreported_count -= 1
        self._on_result(email, result)

    def _stop_on_refusals(self, status: int, answer_message: str) -> None:
        answer = f"{status}: {answer_message}"
        if status == TOO_MANY_REQUESTS:
            self._stop.request_stop(
                f"the service refused an email with 429, too many requests ({answer}), and mail.retry_limited is not "
                "set. Lower load.max_rate, or set mail.retry_limited, and run again with --rejected"
            )
        elif not self.has_accepted_item:
            self.is_token_refused = status in UNAUTHORISED_STATUSES
            next_step = "Check the token" if self.is_token_refused else "Correct the cause"
            self._stop.request_stop(
                f"the service refused the first email ({answer}), and may refuse all other emails. No other email was "
                f"sent. {next_step}, and run again with --rejected to send this email, too"
            )
        else:
            kind = build_refusal_kind(status, answer_message)
            self._refused_counts[kind] += 1
            if self._refused_counts[kind] >= _MAX_REFUSALS_FOR_ONE_REASON:
                self._stop.request_stop(
                    f"the service refused {_MAX_REFUSALS_FOR_ONE_REASON} emails for one reason ({kind}) and accepted "
                    "none in between. Correct the cause, and run again with --rejected to send these emails, too"
                )

    def _stop_on_unknown_emails(self, status: int | None, answer_message: str) -> None:
        self._unknown_count += 1
        if status in _REDIRECT_STATUSES:
            self._stop.request_stop(
                f"the service redirects ({status}), and redirects are not followed: "
                f"correct service.base_url ({answer_message})"
            )
        elif self._unknown_count >= (
            _MAX_CONSECUTIVE_UNKNOWN_EMAILS if self.has_accepted_item else _MAX_UNKNOWN_EMAILS_BEFORE_FIRST_SENT
        ):
            last_answer = f"status {status}, {answer_message}" if status is not None else answer_message
            self._stop.request_stop(
                f"{self._unknown_count} emails got no certain answer, and the service accepted no email in between "
                f"(last: {last_answer}). Run again when the service works; these emails will not be sent again"
            )

    def _commit_to_log(self, write_to_log: Callable[[EmailLog], T]) -> T:
        """Record all stored outcomes and call `write_to_log` in one transaction. Return the result of `write_to_log`.
        The commit blocks the event loop, because a commit takes less time than a switch to a thread.
        """
        outcomes = self._unrecorded_outcomes
        with self._email_log.transaction():
            self._email_log.mark_accepted(self._campaign, outcomes.accepted_emails)
            self._email_log.mark_refused(self._campaign, outcomes.refused_emails)
            self._email_log.mark_not_sent(self._campaign, outcomes.digests_of_unsent_emails)
            self._email_log.mark_lost(self._campaign, outcomes.digests_of_unknown_emails)
            result = write_to_log(self._email_log)
        # If the commit fails, this line is not reached, and the next commit writes the outcomes again.
        self._unrecorded_outcomes = _UnrecordedOutcomes()
        return result
