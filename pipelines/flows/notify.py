"""Sends the report of a run where the job says. A failure here gives a message, and changes nothing of the run."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from connector.clock import Clock, system_clock
from connector.control import Stop, until_stopped
from connector.errors import ConnectorError
from connector.mail.draft import Draft, compose_draft, read_attachment
from connector.mail.message import Attachment
from connector.mail.single import run_send
from connector.progress import Progress
from connector.report import Report, describe_fault, end_report, start_report
from connector.service.transport import post_webhook
from connector.settings import Settings
from pipelines.jobs.mail_models import MOST_ATTACHED, Notify, NotifyEmail, Webhook
from pipelines.jobs.models import Job
from pipelines.report.notice import write_plain, write_title
from pipelines.report.page import write_notice

_TRIES = 3
_WAIT_S = 2.0


async def send_notices_unless_stopped(job: Job, report: Report, settings: Settings, stop: Stop) -> list[str]:
    """Send the notifications that the run calls for, unless its process is to stop; return messages on those that
    failed."""
    ending = await until_stopped(_send_notices(job.notify, report, settings, system_clock()), stop)
    if isinstance(ending, asyncio.CancelledError):
        return ["a signal came while the job's notifications were being sent: they may not have been"]
    if isinstance(ending, Exception):
        return [f"the job's notifications could not be sent: {describe_fault(ending)}"]
    if isinstance(ending, BaseException):
        raise ending
    return ending


async def _send_notices(notify: Notify | None, report: Report, settings: Settings, clock: Clock) -> list[str]:
    if notify is None or report.is_planned or (notify.when == "problem" and report.status == "ok"):
        return []
    problems = list[str]()
    if notify.email is not None:
        problems += await _send_email(notify.email, report, settings, clock)
    if notify.webhook is not None:
        problems += await _post(notify.webhook, report, clock)
    return problems


def report_refused(command: str, job: Job, error: ConnectorError, *, is_planned: bool) -> Report:
    """Return what a notice says of a run that ended before it had a report."""
    now = system_clock().now()
    report = start_report(command, job.name, now)
    report.is_planned = is_planned
    return end_report(report, "aborted", now, str(error)).close()


def with_messages(report: Report, messages: Sequence[str]) -> Report:
    """Return the report with these messages after its own."""
    return replace(report, messages=[*report.messages, *messages])


async def _send_email(email: NotifyEmail, report: Report, settings: Settings, clock: Clock) -> list[str]:
    problems = list[str]()
    said = report.as_json()
    attachments: tuple[Attachment, ...] = ()
    try:
        if email.attach_rejects and report.rejects_file is not None:
            attachments = (read_attachment(Path(report.rejects_file), most_bytes=MOST_ATTACHED),)
    except ConnectorError as error:
        problems.append(f"the rejects file is not attached to the notification: {error}")
    draft = Draft(
        sender=email.from_,
        to=email.to,
        subject=write_title(said),
        html=write_notice(said),
        plain_text=write_plain(said),
        attachments=attachments,
    )
    try:
        sent = await run_send(compose_draft(draft, clock.now()), settings, Stop(), Progress(), clock)
    except ConnectorError as error:
        return [*problems, f"the notification by email could not be sent: {error}"]
    if sent.status != "ok":
        problems.append(f"the notification by email: {'; '.join(sent.messages)}")
    return problems


async def _post(webhook: Webhook, report: Report, clock: Clock) -> list[str]:
    body = json.dumps(report.as_json()).encode()
    problem = await post_webhook(webhook.url, body, webhook.secret, int(clock.now().timestamp()))
    for _ in range(_TRIES - 1):
        if problem is None:
            return []
        await clock.sleep(_WAIT_S)
        problem = await post_webhook(webhook.url, body, webhook.secret, int(clock.now().timestamp()))
    return [f"the notification by webhook failed {_TRIES} times: {problem}"] if problem is not None else []
