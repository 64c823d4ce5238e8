"""`connector import FILE`: a one-off import of a file, or of what comes through a pipe."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.commands.file_options import FileGiven, file_options
from pipelines.commands.options import Duration, Output, dry_run_option, finish, output_options, run_flow

if TYPE_CHECKING:
    from pipelines.loads.loading import LoadPlan


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@file_options
@click.option("--on-unknown", type=click.Choice(["resend", "hold"]), help="What becomes of an unknown proved absent.")
@click.option("--look", type=click.Choice(["auto", "none"]), help="none: create without looking who is there.")
@click.option(
    "--accept-cut-off-possible", is_flag=True, default=None, help="Take a list that the service may cut off unseen."
)
@click.option("--quiet-period", metavar="DURATION", help="Wait before absence can be proved, such as 30s.")
@click.option("--max-concurrency", type=click.IntRange(1, 1000), help="Creates in flight at once, at most.")
@click.option("--max-rate", type=click.FloatRange(0, 100_000, min_open=True), help="Creates a second, at most.")
@click.option("--wait", "wait_s", type=Duration(), default=0.0, help="Wait so long for another run to end.")
@dry_run_option
@output_options
def import_command(
    file: Path,
    given: FileGiven,
    on_unknown: str | None,
    look: str | None,
    accept_cut_off_possible: bool | None,
    quiet_period: str | None,
    max_concurrency: int | None,
    max_rate: float | None,
    wait_s: float,
    is_dry: bool,
    output: Output,
) -> None:
    """Import the subscribers of FILE: CSV, Excel, Parquet or JSON Lines, packed or not; - is standard input."""
    from pipelines.loads.loading import run_load

    load = {
        "on_unknown": on_unknown,
        "look": look,
        "accept_cut_off_possible": accept_cut_off_possible,
        "quiet_period": quiet_period,
        "max_concurrency": max_concurrency,
        "max_rate": max_rate,
    }
    plan = replace(plan_file(file, given, load, wait_s=wait_s, is_planned=is_dry), is_planned=is_dry)
    finish(run_flow(lambda stop, progress: run_load(plan, stop, progress), output), output)


def plan_file(
    file: Path, given: FileGiven, load: Mapping[str, object], *, wait_s: float = 0.0, is_planned: bool = False
) -> LoadPlan:
    """The import of a file by what was given, and by the keys of a job's load section that were.

    Raises ConfigurationError and SourceError.
    """
    from pipelines.jobs import Load, SettingOptions, build_policy, override_load, read_settings
    from pipelines.loads.planning import plan_import, plan_import_by_job

    job = given.load_job()
    settings = read_settings(os.environ, job, SettingOptions(), is_writing=not is_planned)
    if job is None:
        policy = build_policy(override_load(Load(), load), given.rules)
        return plan_import(file, given.options, given.rules, policy, settings, reading=given.reading, wait_s=wait_s)
    job = job.model_copy(update={"load": override_load(job.load, load)})
    return plan_import_by_job(file, job, settings, reading=given.reading, wait_s=wait_s)
