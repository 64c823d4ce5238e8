"""Sends one email. The email is recorded before it leaves, and is never sent again."""

import asyncio

from connector.clock import Clock
from connector.control import Stop, stay_alive
from connector.errors import ConfigurationError, LedgerError
from connector.ledger.emails import EmailLog
from connector.ledger.opening import open_emails
from connector.mail.message import Message, encode_email
from connector.outcomes import MailOutcome
from connector.progress import Progress
from connector.runs.report import (
    Report,
    RunScope,
    Status,
    count_mail_rows,
    end_report,
    record_report,
    start_report,
)
from connector.service.client import open_client
from connector.service.retry import Retrier
from connector.service.wire import UNAUTHORISED, Accepted, Ambiguous, NotSent, Refused
from connector.settings import Settings, build_service

_MAY_BE_SENT_MESSAGE = (
    "The service may have sent this email already. Check the recipient's mailbox, or ask the service's support, before "
    "you send it again"
)

_ANSWER_IF_GIVEN_UP = Ambiguous(None, "a second signal ended the run before an answer came")


async def run_send(message: Message, settings: Settings, stop: Stop, progress: Progress) -> Report:
    """Send one email, and report its outcome."""
    clock = stop.clock
    scope = RunScope(destination=settings.service.base_url, account=settings.account)
    report = start_report("send", "", clock.now(), scope)
    progress.follow(lambda: "sending")
    try:
        with (
            record_report(report, settings.state_dir, settings.retention_s, clock.now),
            open_emails(settings.ledger_url) as log,
        ):
            await _send(message, settings, log, report, stop)
    except LedgerError as error:
        if report.finished_at is None:
            end_report(report, "aborted", clock.now(), str(error))
        else:
            report.messages.insert(0, f"{error}. The outcome of the email is shown below, and is not recorded")
            report.status = "aborted"
    return report


async def _send(message: Message, settings: Settings, log: EmailLog, report: Report, stop: Stop) -> None:
    clock = stop.clock
    addresses = ", ".join(recipient.email for recipient in (*message.to, *message.cc, *message.bcc))
    if stop.is_stopping:
        _end_report(report, MailOutcome.UNSENT, "stopped", clock)
        report.signal = stop.signal
        return
    with log.transaction():
        key = log.mark_single_intended(settings.account, report.run_id, addresses, at=clock.now().timestamp())
    answer = await _deliver(message, settings, report, stop)
    with log.transaction():
        match answer:
            case Accepted(request_id, message_id):
                log.mark_single_accepted(key, request_id, message_id, at=clock.now().timestamp())
            case Refused(status, answer_message):
                log.mark_single_refused(key, status, answer_message)
            case NotSent():
                log.mark_single_not_sent(key)
            case Ambiguous():
                log.mark_single_lost(key)
    _refuse_token(answer, report)


async def send_unrecorded(message: Message, settings: Settings, job: str, stop: Stop) -> Report:
    """Send one email, and report its outcome. Neither the email nor the run is recorded."""
    scope = RunScope(destination=settings.service.base_url, account=settings.account)
    report = start_report("mail", job, stop.clock.now(), scope)
    _refuse_token(await _deliver(message, settings, report, stop), report)
    return report


async def _deliver(
    message: Message, settings: Settings, report: Report, stop: Stop
) -> Accepted | Refused | Ambiguous | NotSent:
    """Send the email, add its outcome to the report, and return the answer."""
    clock = stop.clock
    answer: Accepted | Refused | Ambiguous | NotSent
    async with open_client(build_service(settings, 1)) as client:
        try:
            answer = await Retrier().send(lambda: client.send_email(encode_email(message)), client.counts["send"])
        except asyncio.CancelledError:
            if stop.signal is None:
                raise
            stay_alive()
            answer = _ANSWER_IF_GIVEN_UP
        report.copy_request_counts(client)
    _report_answer(report, answer, clock)
    if answer is _ANSWER_IF_GIVEN_UP:
        report.status, report.signal = "stopped", stop.signal
    return answer


def _refuse_token(answer: Accepted | Refused | Ambiguous | NotSent, report: Report) -> None:
    """Raise ConfigurationError if the service refused the token."""
    if isinstance(answer, Refused) and answer.status in UNAUTHORISED:
        raise ConfigurationError(f"{report.messages[0]}. Check the token")


def _report_answer(report: Report, answer: Accepted | Refused | Ambiguous | NotSent, clock: Clock) -> None:
    match answer:
        case Accepted(request_id, message_id):
            report.email = {"state": "sent", "request_id": request_id, "message_id": message_id}
            _end_report(report, MailOutcome.SENT, "ok", clock)
        case Refused(status, answer_message):
            report.email = {"state": "rejected", "http_status": status, "message": answer_message}
            _end_report(
                report,
                MailOutcome.REJECTED,
                "partial",
                clock,
                f"the service refused the email ({status}): {answer_message}",
            )
        case Ambiguous(status, answer_message):
            report.email = {"state": "unknown", "http_status": status, "message": answer_message}
            reply = f"status {status}, {answer_message}" if status is not None else answer_message
            _end_report(
                report,
                MailOutcome.UNKNOWN,
                "partial",
                clock,
                f"no certain answer came ({reply}). {_MAY_BE_SENT_MESSAGE}",
            )
        case NotSent(answer_message):
            report.email = {"state": "unsent", "message": answer_message}
            _end_report(
                report, MailOutcome.UNSENT, "aborted", clock, f"the email was not sent: {answer_message}. Run again"
            )


def _end_report(report: Report, outcome: MailOutcome, status: Status, clock: Clock, reason: str | None = None) -> None:
    report.rows = count_mail_rows(1, {outcome: 1})
    end_report(report, status, clock.now(), reason)
