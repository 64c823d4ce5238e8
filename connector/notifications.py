"""The notification of a run: a POST of the report to the job's webhook. A failed POST changes nothing of the run."""

import json

from connector.clock import Clock, system_clock
from connector.control import Stop
from connector.errors import ConnectorError, RunAborted
from connector.jobs.mail_models import Notify
from connector.jobs.models import Job
from connector.report import Report, describe_fault, end_report, start_report
from connector.service.transport import post_webhook

_TRIES = 3
_WAIT_S = 2.0


async def notify_unless_stopped(job: Job, report: Report, stop: Stop) -> list[str]:
    """Send the notification that the job asks for, unless the process is about to stop; return messages about a
    failure."""
    try:
        return await stop.until_stopped(_notify(job.notify, report, stop.clock))
    except RunAborted:
        return ["A signal interrupted the job's notification. The webhook may not have received the report."]
    except Exception as error:  # noqa: BLE001 - a failed notification changes nothing of the run
        return [f"The job's notification could not be sent: {describe_fault(error)}"]


def report_refused(command: str, job: Job, error: ConnectorError, *, is_planned: bool) -> Report:
    """Return the report of a run that ended with `error` before it had a report."""
    now = system_clock().now()
    report = start_report(command, job.name, now)
    report.is_planned = is_planned
    return end_report(report, "aborted", now, str(error))


async def _notify(notify: Notify | None, report: Report, clock: Clock) -> list[str]:
    if notify is None or report.is_planned or (notify.when == "problem" and report.status == "ok"):
        return []
    webhook, body, problem = notify.webhook, json.dumps(report.as_json()).encode(), None
    for attempt in range(_TRIES):
        if attempt:
            await clock.sleep(_WAIT_S)
        problem = await post_webhook(webhook.url, body, webhook.secret, int(clock.now().timestamp()))
        if problem is None:
            return []
    return [f"the notification by webhook failed {_TRIES} times: {problem}"]
