"""`connector sync JOB…`: what cron runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.commands.notified import run_and_notify
from pipelines.commands.options import (
    Duration,
    Output,
    cursor_options,
    dry_run_option,
    end,
    finish,
    output_options,
    refuse_both,
    show,
)

if TYPE_CHECKING:
    from pipelines.jobs import Job
    from pipelines.loads.loading import LoadPlan
    from pipelines.runs.report import Report


@click.command("sync")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", type=click.Path(path_type=Path))
@cursor_options
@click.option("--limit", type=click.IntRange(min=1), help="Load only the first N rows of each source.")
@click.option("--wait", "wait_s", type=Duration(), default=0.0, help="Wait so long for another run to end.")
@dry_run_option
@output_options
def sync_command(
    jobs: tuple[Path, ...],
    is_full: bool,
    since: str | None,
    limit: int | None,
    wait_s: float,
    is_dry: bool,
    output: Output,
) -> None:
    """Load what the sources of these job files give, one after another.

    Of a source with a cursor only what is new since the last run that came to its end. --full and --since read again;
    people who are there already are not created again.
    """
    from pipelines.jobs import SettingOptions, load_job, read_settings
    from pipelines.loads.planning import plan_sync

    refuse_both(is_full, since)

    def plan_job(job: Job) -> LoadPlan:
        settings = read_settings(os.environ, job, SettingOptions(), is_writing=not is_dry)
        plan = plan_sync(job, settings, limit=limit, wait_s=wait_s, is_full=is_full, since=since)
        return replace(plan, is_planned=is_dry)

    loaded = [load_job(path, os.environ) for path in jobs]
    plans = _plan_all(loaded, plan_job)
    reports: list[Report] = []
    is_shown = True
    for job, plan in zip(loaded, plans, strict=True):
        reports.append(_run(job, plan, output))
        if len(plans) == 1:
            finish(reports[0], output)
        is_shown = show(reports[-1], output) and is_shown
        if reports[-1].status == "stopped":
            break
    _finish_all(reports, output, is_shown)


def _plan_all(jobs: list[Job], plan_job: Callable[[Job], LoadPlan]) -> list[LoadPlan]:
    """The plan of each, so that what is wrong with the last is said before the first begins."""
    plans: list[LoadPlan] = []
    with ExitStack() as opened:
        for job in jobs:
            plans.append(plan_job(job))
            opened.callback(plans[-1].source.close)
        opened.pop_all()  # each run closes its own
    return plans


def _run(job: Job, plan: LoadPlan, output: Output) -> Report:
    from pipelines.loads.loading import run_load

    return run_and_notify(lambda stop, progress: run_load(plan, stop, progress), job, plan.settings, output)


def _finish_all(reports: list[Report], output: Output, is_shown: bool) -> None:
    from pipelines.runs.report import pick_worst

    worst = pick_worst([report.exit_code for report in reports])
    together = {
        "status": next(report.status for report in reports if report.exit_code == worst),
        "runs": [report.as_json() for report in reports],
    }
    end(together, worst, output, is_shown=is_shown)
