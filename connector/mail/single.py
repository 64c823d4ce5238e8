"""Sends one email at most once. The run is recorded in the log of runs before the email leaves."""

import asyncio

from connector.clock import Clock
from connector.control import Stop, ignore_cancellation
from connector.errors import RUN_STOPPED_MESSAGE, ConfigurationError
from connector.mail.message import Message, encode_email
from connector.outcomes import MailOutcome
from connector.progress import Progress
from connector.runs.report import Report, RunScope, Status, count_mail_rows, end_report, record_report, start_report
from connector.service.client import open_client
from connector.service.retry import Retrier
from connector.service.wire import UNAUTHORISED_STATUSES, AmbiguousResult, EmailAccepted, NotSent, Refused
from connector.settings import Settings, build_service

_ANSWER_IF_GIVEN_UP = AmbiguousResult(None, "a second signal ended the run before an answer came")


async def run_send(message: Message, settings: Settings, stop: Stop, progress: Progress) -> Report:
    """Send one email, and report its outcome."""
    clock = stop.clock
    scope = RunScope(destination=settings.service.base_url, account=settings.account)
    report = start_report("send", "", clock.now(), scope)
    progress.set_describe_function(lambda: "sending")
    with record_report(report, settings.state_dir, settings.retention_s, clock.now) as is_run_recorded:
        if not is_run_recorded:
            reason = f"the run cannot be recorded in {settings.state_dir}, so the email was not sent"
            report.email = {"state": "unsent", "message": reason}
            _end_report(
                report, MailOutcome.UNSENT, "aborted", clock, f"{reason}. Make the folder writable, and run again"
            )
        elif stop.is_stopping:
            report.email = {"state": "unsent", "message": RUN_STOPPED_MESSAGE}
            _end_report(report, MailOutcome.UNSENT, "stopped", clock)
            report.signal = stop.signal
        else:
            await _send_message(message, settings, report, stop)
    return report


async def send_without_record(message: Message, settings: Settings, job: str, stop: Stop) -> Report:
    """Send one email, and report its outcome. The email and the run are not recorded."""
    scope = RunScope(destination=settings.service.base_url, account=settings.account)
    report = start_report("mail", job, stop.clock.now(), scope)
    await _send_message(message, settings, report, stop)
    return report


async def _send_message(message: Message, settings: Settings, report: Report, stop: Stop) -> None:
    """Send the email, and add its outcome to the report. Raises ConfigurationError if the service refused the token."""
    clock = stop.clock
    answer: EmailAccepted | Refused | AmbiguousResult | NotSent
    async with open_client(build_service(settings, 1)) as client:
        try:
            retrier = Retrier(clock=clock)
            answer = await retrier.send(lambda: client.send_email(encode_email(message)), client.counts["send"])
        except asyncio.CancelledError:
            if stop.signal is None:
                raise
            ignore_cancellation()
            answer = _ANSWER_IF_GIVEN_UP
        report.copy_request_counts(client)
    match answer:
        case EmailAccepted(request_id, message_id):
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
            if status in UNAUTHORISED_STATUSES:
                raise ConfigurationError(f"{report.messages[0]}. Check the token")
        case AmbiguousResult(status, answer_message):
            report.email = {"state": "unknown", "http_status": status, "message": answer_message}
            answer_text = f"status {status}, {answer_message}" if status is not None else answer_message
            _end_report(
                report,
                MailOutcome.UNKNOWN,
                "partial",
                clock,
                f"no certain answer came ({answer_text}). The service may have sent this email already. Check the "
                "recipient's mailbox, or ask the service's support, before you send the email again",
            )
            if answer is _ANSWER_IF_GIVEN_UP:
                report.status, report.signal = "stopped", stop.signal
        case NotSent(answer_message):
            report.email = {"state": "unsent", "message": answer_message}
            _end_report(
                report, MailOutcome.UNSENT, "aborted", clock, f"the email was not sent: {answer_message}. Run again"
            )


def _end_report(report: Report, outcome: MailOutcome, status: Status, clock: Clock, reason: str | None = None) -> None:
    report.rows = count_mail_rows(1, {outcome: 1})
    end_report(report, status, clock.now(), reason)
