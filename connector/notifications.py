"""Sends the alerts of runs to the webhooks of their jobs.

A failed alert does not change the run. The next run of the job sends the alert again, if the state folder can be used.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from connector.clock import Clock
from connector.control import Stop
from connector.errors import ConfigurationError, ConnectorError, RunAborted, find_exit_code
from connector.jobs.mail_models import NotificationSettings, Webhook
from connector.jobs.models import Job
from connector.jobs.reader import read_job_alert_keys
from connector.runs.alerts import (
    Alert,
    AlertRecord,
    build_alert_record_path,
    decide_alert,
    read_alert_record,
    write_alert,
    write_alert_record,
)
from connector.runs.report import Report, RunScope, build_run_record, describe_fault, end_report, start_report
from connector.runs.run_log import ERROR_STATUS_BY_EXIT_CODE, record_failed_start
from connector.service.webhook import build_headers, post_webhook
from connector.settings import read_state_location

_MAX_ATTEMPTS = 3
_RETRY_WAIT_S = 2.0


async def send_alert(
    notification_settings: NotificationSettings | None, report: Report, state_dir: Path | None, stop: Stop
) -> list[str]:
    """Send the alert for this report if the job asks for an alert. Also send undelivered alerts of earlier runs.

    `state_dir` is None if the state folder cannot be used. Then alerts of earlier runs are not known. A signal ends the
    sending. Return messages about alerts that were not delivered.
    """
    if notification_settings is None or report.is_planned:
        return []
    try:
        return await stop.wait_until_stopped(_record_and_send(notification_settings, report, state_dir, stop.clock))
    except RunAborted:
        return [f"A signal interrupted the job's alert. {_describe_next_attempt(state_dir)}"]
    except Exception as error:  # noqa: BLE001 - a failed alert changes nothing of the run
        return [f"The job's alert could not be sent: {describe_fault(error)}"]


async def report_failed_start(
    command: str, job: Job | Path, error: ConnectorError, environ: Mapping[str, str], stop: Stop
) -> tuple[str, list[str]]:
    """Record that a run of the job ended with `error` before the run had a report. Then send the alert if the job asks
    for one. If the error may be in the job file, `job` is the absolute path of this file.

    The command `connector status` shows the record. Return the id of the run, and messages about a failed alert.
    """
    job_name, notification_settings = (
        (job.name, job.notify) if isinstance(job, Job) else read_job_alert_keys(job, environ)
    )
    ended_at = stop.clock.now()
    report = start_report(command, job_name, ended_at)
    report.run_id = error.run_id or report.run_id  # the id of the recorded run, if the run was recorded
    end_report(report, ERROR_STATUS_BY_EXIT_CODE[find_exit_code(error)], ended_at, str(error))
    path = job.path if isinstance(job, Job) else job
    if path is not None:
        report.scope = RunScope(settings={"job_file": str(path)})
    state_dir = None
    with suppress(ConfigurationError):  # the state folder may be the cause of `error`
        state_dir = read_state_location(environ).state_dir
    if error.run_id is None and state_dir is not None:
        record_failed_start(state_dir, build_run_record(report))
    return report.run_id, await send_alert(notification_settings, report, state_dir, stop)


async def _record_and_send(
    notification_settings: NotificationSettings, report: Report, state_dir: Path | None, clock: Clock
) -> list[str]:
    report_values = report.as_json()
    path = None if state_dir is None else build_alert_record_path(state_dir, report_values)
    alert_record = AlertRecord() if path is None else read_alert_record(path)
    reason, last_run = decide_alert(
        notification_settings.on, alert_record.last_run, report_values, clock.now().timestamp()
    )
    alerts = list(alert_record.undelivered)
    if reason is not None:
        alerts.append(write_alert(reason, last_run, report_values))
    if path is not None:
        # The alerts are recorded before they are sent. If this run is killed, the next run sends them.
        write_alert_record(path, last_run, alerts)
    while alerts and (problem_text := await _post_alert(notification_settings.webhook, alerts[0], clock)) is None:
        alerts.pop(0)
        if path is not None:
            write_alert_record(path, last_run, alerts)
    if not alerts:
        return []
    return [f"The job's alert failed {_MAX_ATTEMPTS} times: {problem_text}. {_describe_next_attempt(state_dir)}"]


def _describe_next_attempt(state_dir: Path | None) -> str:
    if state_dir is None:
        return "No later run sends the alert again, because the state folder cannot be used."
    return "The next run of the job sends the alert again."


async def _post_alert(webhook: Webhook, alert: Alert, clock: Clock) -> str | None:
    """Post an alert. If a post fails, try again, at most `_MAX_ATTEMPTS` times in all. Return None if the alert was
    delivered, or the reason of the last failure."""
    problem_text = None
    for attempt in range(_MAX_ATTEMPTS):
        if attempt:
            await clock.sleep(_RETRY_WAIT_S)
        body, timestamp = alert.body.encode(), int(clock.now().timestamp())
        headers = build_headers(alert.message_id, timestamp, body, webhook.secret)
        problem_text = await post_webhook(webhook.url, body, headers)
        if problem_text is None:
            break
    return problem_text
