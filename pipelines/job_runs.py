"""Runs a job from Python, as `connector sync`, `export` or `mail` runs it."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from connector.control import Stop
from connector.errors import ConfigurationError, ConnectorError
from connector.export.flow import run_export
from connector.imports.flow import run_load
from connector.jobs.export_planner import plan_export_job
from connector.jobs.load_planner import RunRequest, plan_sync
from connector.jobs.mail_planner import plan_mail
from connector.jobs.models import Job
from connector.jobs.reader import load_job
from connector.jobs.settings import read_settings
from connector.library.threads import make_token, override_environ, run_flow
from connector.mail.flow import run_mail
from connector.notifications import notify_unless_stopped, report_refused
from connector.progress import Progress
from connector.report import Report
from connector.service.settings import Token
from connector.settings import Settings

_Flow = Callable[[Stop, Progress], Coroutine[Any, Any, Report]]


def run_job(
    job: str | PathLike[str] | Job,
    *,
    full: bool = False,
    since: str | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    wait_s: float = 0.0,
    time_limit_s: float | None = None,
    base_url: str | None = None,
    token: str | Token | None = None,
    state_dir: str | PathLike[str] | None = None,
    ledger: str | None = None,
) -> Report:
    """Run a job, a file's path or a `Job`, and return the report: a job that loads as `connector sync` runs it, one
    that exports as `connector export`, one that mails as `connector mail`. The job's notification is sent.

    `full` and `since` are of a source with a cursor, `limit` (rows) and `wait_s` of jobs that have a source, `dry_run`
    of one that loads: it says what would be done. `wait_s` and `time_limit_s` are seconds. What is None of `base_url`,
    `token`, `state_dir` and `ledger` comes from the environment, else from the job, as for the commands. Relative paths
    start from the job file's folder, those of a `Job` from the current one.

    A run that has begun returns its report, whatever became of it; `report.raise_for_status()` raises for one that was
    aborted, locked or stopped. Raises ConfigurationError and SourceError before anything is sent. KeyboardInterrupt
    ends the run in order and is raised when all under way is recorded.

    >>> from pipelines.job_runs import run_job
    >>> report = run_job("crm.yaml")
    >>> report.command, report.status, report.rows["read"]
    ('sync', 'partial', 3)
    >>> run_job("crm.yaml", dry_run=True).is_planned
    True
    """
    loaded = job if isinstance(job, Job) else load_job(Path(job), os.environ)
    given = {"full": full, "since": since is not None, "dry_run": dry_run}
    given |= {"limit": limit is not None, "wait_s": wait_s > 0} if loaded.is_export else {}
    if (loaded.is_export or loaded.mail is not None) and any(given.values()):
        named, does = ", ".join(name for name in given if given[name]), "exports" if loaded.is_export else "mails"
        raise ConfigurationError(f"the job {loaded.name} {does}: leave out {named}")
    if full and since is not None:
        raise ConfigurationError("full reads everything, and since a part: give one of them")
    if limit is not None and limit < 1:
        raise ConfigurationError(f"limit must be at least 1 row, not {limit}")
    environ = override_environ(base_url, state_dir, ledger)
    settings = read_settings(
        environ, loaded, token=make_token(token), time_limit_s=time_limit_s, is_writing=not dry_run
    )
    if loaded.is_export:
        export = plan_export_job(loaded, settings)
        return _run("export", loaded, settings, lambda stop, progress: run_export(export, stop, progress))
    if loaded.mail is not None:
        mail = plan_mail(loaded, settings, limit=limit, wait_s=wait_s)
        return _run("mail", loaded, settings, lambda stop, progress: run_mail(mail, stop, progress))
    sync = plan_sync(loaded, settings, RunRequest(limit, wait_s, full, since))
    sync = replace(sync, is_planned=dry_run)
    return _run("sync", loaded, settings, lambda stop, progress: run_load(sync, stop, progress), is_planned=dry_run)


def _run(command: str, job: Job, settings: Settings, flow: _Flow, *, is_planned: bool = False) -> Report:
    """Run the flow, and send the job's notification, also if the run was refused."""

    async def work(stop: Stop, progress: Progress) -> Report:
        try:
            report = await flow(stop, progress)
        except ConnectorError as error:
            refused = report_refused(command, job, error, is_planned=is_planned)
            for message in await notify_unless_stopped(job, refused, Stop()):
                error.add_note(message)
            raise
        report.messages += await notify_unless_stopped(job, report, Stop())
        return report

    return run_flow(work, settings.time_limit_s)
