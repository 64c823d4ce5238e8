"""The notification of a run: a POST of the report to the job's webhook. A failed POST changes nothing of the run."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from connector.clock import Clock, system_clock
from connector.control import Stop
from connector.errors import ConfigurationError, ConnectorError, RunAborted
from connector.jobs.mail_models import Notify
from connector.jobs.models import Job
from connector.jobs.reader import read_job_head
from connector.report import Report, describe_fault, record_error, report_error
from connector.service.transport import post_webhook
from connector.settings import read_state

_TRIES = 3
_WAIT_S = 2.0


async def notify_unless_stopped(notify: Notify | None, report: Report, stop: Stop) -> list[str]:
    """Send the notification that the job asks for, unless the process is about to stop; return messages about a
    failure."""
    try:
        return await stop.until_stopped(_notify(notify, report, stop.clock))
    except RunAborted:
        return ["A signal interrupted the job's notification. The webhook may not have received the report."]
    except Exception as error:  # noqa: BLE001 - a failed notification changes nothing of the run
        return [f"The job's notification could not be sent: {describe_fault(error)}"]


async def end_failed_start(
    command: str, job: Job | Path, error: ConnectorError, environ: Mapping[str, str], stop: Stop
) -> tuple[str, list[str]]:
    """Record for `status` that a run of the job ended with `error` before it had a report, and send the notification
    that the job asks for. `job` is a file's path if the job may be what is wrong.

    Return the id of the run, and messages about a failed notification.
    """
    name, notify = (job.name, job.notify) if isinstance(job, Job) else read_job_head(job, environ)
    report = report_error(command, name, error, system_clock().now())
    if error.run_id is None:
        with suppress(ConfigurationError):  # a state folder that cannot be used is the error, or else a second one
            record_error(report, read_state(environ).state_dir)
    return report.run_id, await notify_unless_stopped(notify, report, stop)


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
