"""`connector plan JOB|FILE`: what a sync or an import would do, row by row and in sum."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from connector.errors import ConfigurationError
from pipelines.commands.file_options import FileGiven, file_options, is_job
from pipelines.commands.imports import plan_file
from pipelines.commands.options import Output, cursor_options, finish, output_options, refuse_both, run_flow

if TYPE_CHECKING:
    from pipelines.loads.loading import LoadPlan


@click.command("plan")
@click.argument("target", metavar="JOB|FILE", type=click.Path(path_type=Path))
@file_options
@cursor_options
@click.option("--rows", "rows_path", type=click.Path(path_type=Path), help="Write a line for each row to this new CSV.")
@output_options
def plan_command(
    target: Path, given: FileGiven, is_full: bool, since: str | None, rows_path: Path | None, output: Output
) -> None:
    """Say what a sync of JOB, or an import of FILE, would do with each row.

    Only the service's list is read. Nothing is sent or written, the ledger is not locked, and no cursor moves: a plan
    can be made while a run goes on, of what that has done by then. Who would be created, the service may still reject.
    """
    from pipelines.loads.loading import run_load
    from pipelines.rows.planned_rows import check_rows_path

    refuse_both(is_full, since)
    check_rows_path(rows_path, output.report_path)
    plan = _plan_job(target, given, is_full, since) if is_job(target) else _plan_file(target, given, is_full, since)
    plan = replace(plan, command="plan", is_planned=True, rows_path=rows_path, are_rows_reported=output.is_json)
    finish(run_flow(lambda stop, progress: run_load(plan, stop, progress), output), output)


def _plan_job(target: Path, given: FileGiven, is_full: bool, since: str | None) -> LoadPlan:
    from pipelines.jobs import SettingOptions, read_settings
    from pipelines.loads.planning import plan_sync

    if given.job_path is not None:
        raise ConfigurationError(
            f"--job: {target} is a job itself; name the file that is to be read by a job's mapping"
        )
    job = given.load_target(target)
    settings = read_settings(os.environ, job, SettingOptions(), is_writing=False)
    return plan_sync(job, settings, limit=given.reading.limit, wait_s=0.0, is_full=is_full, since=since)


def _plan_file(target: Path, given: FileGiven, is_full: bool, since: str | None) -> LoadPlan:
    if is_full or since is not None:
        raise ConfigurationError("--full and --since are of a job's cursor, and a file has none: leave them out")
    return plan_file(target, given, {}, is_planned=True)
