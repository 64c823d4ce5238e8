"""`connector import`, `sync`, `plan`, `validate` and `retry`: the commands that load, plan and check rows."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from connector.choices import EFFECT_BY_HELD_DECISION, HELD_DECISIONS, HeldDecision
from connector.errors import ConfigurationError
from connector.fields import BaseRef
from connector.shards import MAX_SHARDS, SINGLE_SHARD
from connector.texts import count, make_visible
from pipelines.cli.help import Command, option
from pipelines.cli.logs import write_stderr
from pipelines.cli.options import (
    OUTPUT_GROUP,
    PATH,
    RUN_GROUP,
    SENDING_GROUP,
    SHARD,
    SourcePath,
    allow_truncated_option,
    base_filter_options,
    cursor_options,
    dry_run_option,
    file_options,
    ignore_total_count_option,
    is_job,
    job_option,
    limit_option,
    receipts_option,
    refuse_full_with_since,
    sending_options,
    time_limit_option,
    wait_option,
)
from pipelines.cli.output import (
    Output,
    end_command,
    finish_run,
    get_clock,
    handle_job_start_errors,
    output_options,
    run_and_notify,
    run_flow,
    run_options,
    show_run_report,
    write_stdout,
)

if TYPE_CHECKING:
    from rich.table import Table

    from connector.imports.plan import LoadPlan
    from connector.jobs.models import Job
    from connector.runs.report import Report
    from connector.shards import Shard
    from pipelines.flows.validate import ValidationFinding


@click.command("import", cls=Command)
@click.argument("file", type=SourcePath())
@file_options
@sending_options
@option(
    "--look",
    type=click.Choice(["auto", "none"]),
    group=SENDING_GROUP,
    default_text="auto",
    help="How to find out which subscribers exist. `auto`: look up many subscribers together, by the list or by "
    "filters; `none`: use only the ledger, the connector's record of earlier runs. With `none`, a "
    "subscriber that only the service has is created a second time.",
)
@allow_truncated_option
@ignore_total_count_option
@receipts_option
@wait_option
@time_limit_option
@dry_run_option
@option(
    "--yes",
    "is_confirmed",
    is_flag=True,
    group=RUN_GROUP,
    help="Create the subscribers without asking. An import asks only on a terminal.",
)
@run_options
def import_command(
    file: Path | str,
    row_options: Mapping[str, Any],
    receipts: str | None,
    wait_s: float,
    time_limit_s: float | None,
    is_dry_run: bool,
    is_confirmed: bool,
    output: Output,
    **load_options: Any,
) -> None:
    """Create the subscribers of a file.

    FILE is a CSV, Excel, Parquet or JSON file, compressed or not; an object such as s3://bucket/people.csv.gz; a
    pattern such as 'inbox/*.csv'; or - for standard input. No job file is needed: the column
    headers show which column fills which field.

    Subscribers that exist already are not created again, so you can run the same import twice. On a terminal, the
    command shows a preview, and asks before it creates subscribers.

    With --job, the job file sets the base, the mapping and the rules, and the options for these values are refused.
    Options of the groups File, Sending and Service's list, and --receipts, replace the values of the job file.
    """
    from connector.imports.flow import run_load
    from connector.settings import read_state_location
    from connector.spooled_rows import SpooledRows

    must_confirm = not (is_dry_run or is_confirmed) and output.can_ask()
    plan = plan_file(
        file,
        row_options,
        load_options,
        receipts=receipts,
        wait_s=wait_s,
        time_limit_s=time_limit_s,
        plans_only=is_dry_run or must_confirm,
    )
    # The preview and the load read the same rows from the disk. So the load creates exactly the rows of the preview.
    with SpooledRows(plan.rows.source, plan.rows.rules.identity_field) as source_rows:

        def run(*, plans_only: bool) -> Report:
            read_state_location(os.environ, writes_state=not plans_only)  # a plan creates no state folder
            load_plan, limit_s = replace(plan, is_planned=plans_only), plan.settings.time_limit_s
            return run_flow(lambda stop, progress: run_load(load_plan, stop, progress, source_rows), output, limit_s)

        if must_confirm and plan.rows.has_is_active_rule:
            planned_report = run(plans_only=True)
            if planned_report.status not in ("ok", "partial"):
                finish_run(planned_report, output)
            # If a column of consents is not mapped, the command does not ask, because the import below refuses the
            # file.
            if not source_rows.consent_columns and not _confirm_load(planned_report, output):
                _print_note("Nothing was sent.\n", output)
                if output.is_json:
                    finish_run(planned_report, output)
                return
        finish_run(run(plans_only=is_dry_run), output)


def _print_note(text: str, output: Output) -> None:
    """Write a text for the person at the terminal: to stderr if stdout carries JSON."""
    (write_stderr if output.is_json else write_stdout)(text)


def _confirm_load(report: Report, output: Output) -> bool:
    """Show the plan of an import, and return whether the person wants the subscribers created. If the plan creates no
    subscriber, ask nothing and return True. With JSON on standard output, the plan and the question are on stderr."""
    from pipelines.report.text import show_preview

    replace(output, is_data_on_stdout=output.is_json).write_drawing(
        lambda console: show_preview(report.as_json(), console)
    )
    created_count, activity, base = report.rows["created"], report.activity or {}, report.scope.base
    if not created_count:
        return True
    question = (
        f"Create {count(created_count, 'subscriber')} in {'base ' if base.startswith('id ') else ''}{base} "
        f"({activity.get('active', 0):,} active, {activity.get('inactive', 0):,} inactive)? This cannot be undone."
    )
    _print_note(make_visible(question), output)
    termios.tcflush(sys.stdin, termios.TCIFLUSH)  # drop input that was typed before the question appeared
    # The prompt is empty, because click would write the question in UTF-8 to a terminal in ASCII.
    return click.confirm("", default=False, err=output.is_json)


def plan_file(
    file: Path | str,
    row_options: Mapping[str, Any],
    load_options: Mapping[str, Any],
    *,
    receipts: str | None = None,
    wait_s: float = 0.0,
    time_limit_s: float | None = None,
    plans_only: bool,
) -> LoadPlan:
    """Return the import of a file. `row_options` are the values of `file_options`, and `load_options` are the values of
    `sending_options`.

    Raises ConfigurationError and SourceError.
    """
    from connector.jobs.arguments import format_options
    from connector.jobs.load_planner import RunRequest, plan_import
    from connector.jobs.reader import load_job, read_settings

    if is_job(file):
        explanation = load_job(file, os.environ).explain_command()
        raise ConfigurationError(f"{file} is a job file, and this command needs a file with rows. {explanation}")

    job = build_file_job(file, {**row_options, **load_options, "receipts": receipts})
    settings = read_settings(os.environ, job, time_limit_s=time_limit_s, writes_state=not plans_only)
    request = RunRequest(row_limit=row_options["limit"], wait_s=wait_s)
    if row_options["job_path"] is not None:
        return plan_import(job, settings, request, has_job_file=True)
    return plan_import(job, settings, request, options=format_options(job))


def build_file_job(file: Path | str, arguments: Mapping[str, Any], *, needs_base: bool = True) -> Job:
    """Return the job of a file: the job file of `--job` with this file as its source, or a job made of the options.

    Raises ConfigurationError and SourceError.
    """
    from connector.jobs.arguments import build_rows_job, choose_import_name, format_option
    from connector.jobs.reader import load_job

    job = None if arguments["job_path"] is None else load_job(arguments["job_path"], os.environ)
    return build_rows_job(
        file, choose_import_name(file), arguments, job=job, format_argument=format_option, needs_base=needs_base
    )


def load_job_argument(job_path: Path, row_options: Mapping[str, Any]) -> Job:
    """Return the job in the job file that is the argument of the command. Raises ConfigurationError."""
    from connector.jobs.arguments import refuse_job_overrides
    from connector.jobs.reader import load_job

    refuse_job_overrides(row_options, allowed_names=())
    return load_job(job_path, os.environ)


@click.command("sync", cls=Command)
@click.argument("path", metavar="JOB", type=click.Path(path_type=Path))
@cursor_options
@limit_option
@option(
    "--shard",
    type=SHARD,
    metavar="I/N",
    group="Shards",
    default_text="the whole source",
    help="Load only the rows of shard I of N, for example 2/4. Other runs can load the other shards at the same time.",
)
@option(
    "--engine",
    type=click.Choice(["dask"]),
    group="Shards",
    default_text="none; one process loads all rows",
    help="Divide the rows into shards, and load all shards as tasks of this engine.",
)
@option(
    "--workers",
    "worker_count",
    type=click.IntRange(1, MAX_SHARDS),
    metavar="N",
    group="Shards",
    default_text="number of CPUs",
    help="With --engine: number of worker processes on this machine. Each process loads one shard.",
)
@option(
    "--scheduler",
    "scheduler_address",
    metavar="ADDRESS",
    group="Shards",
    default_text="workers on this machine",
    help="With --engine: address of a running scheduler, for example tcp://10.0.0.5:8786.",
)
@receipts_option
@wait_option
@time_limit_option
@dry_run_option
@run_options
def sync_command(
    path: Path,
    is_full: bool,
    since: str | None,
    row_limit: int | None,
    shard: Shard | None,
    engine: str | None,
    worker_count: int | None,
    scheduler_address: str | None,
    receipts: str | None,
    wait_s: float,
    time_limit_s: float | None,
    is_dry_run: bool,
    output: Output,
) -> None:
    """Create the new subscribers of a job's source.

    Subscribers that exist already are not created again. If the source has a cursor, the command reads only rows that
    are newer than the last finished run.

    To sync several jobs, use a loop of the shell:

    \b
      for job in jobs/*.yaml; do connector sync "$job"; done
    """
    from connector.imports.flow import run_load
    from connector.jobs.arguments import format_option, override_receipts
    from connector.jobs.load_planner import RunRequest, plan_sync
    from connector.jobs.reader import load_job, read_settings

    refuse_full_with_since(is_full, since)
    if engine is None and (worker_count, scheduler_address) != (None, None):
        raise ConfigurationError("--workers and --scheduler need --engine dask. Add --engine dask, or leave out both")
    if scheduler_address is not None and worker_count is not None:
        raise ConfigurationError("--scheduler uses running workers, and --workers starts workers. Use one of the two")
    if shard is not None and engine is not None:
        raise ConfigurationError("--engine runs all shards, and --shard runs one shard. Use one of the two")
    if engine is not None and receipts is not None:  # each worker reads the destination from the job file
        raise ConfigurationError("--receipts is for one process. With --engine, set receipts.to in the job")
    if is_dry_run and (shard is not None or engine is not None):
        raise ConfigurationError("--dry-run is for the whole source: leave out --shard and --engine")

    request = RunRequest(row_limit, wait_s, is_full, since, shard or SINGLE_SHARD)

    with handle_job_start_errors(path, is_recorded=not is_dry_run):
        job = override_receipts(load_job(path, os.environ), receipts, format_argument=format_option)
        settings = read_settings(os.environ, job, time_limit_s=time_limit_s, writes_state=not is_dry_run)
        plan = replace(plan_sync(job, settings, request), is_planned=is_dry_run)
        if engine is None:
            report = run_and_notify(lambda stop, progress: run_load(plan, stop, progress), job, settings, output)
        else:
            from pipelines.flows.engine import EngineOptions, ShardedSync, digest_job, run_sharded

            plan.rows.source.close()
            # A container may have fewer processors than the machine.
            processor_count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            options = EngineOptions(scheduler_address, worker_count or processor_count)
            sharded_sync = ShardedSync(path.absolute(), digest_job(path), request)
            report = run_and_notify(
                lambda stop, progress: run_sharded(sharded_sync, options, stop, progress), job, settings, output
            )
    finish_run(report, output)


@click.command("plan", cls=Command)
@click.argument("job_or_file", metavar="JOB|FILE", type=SourcePath())
@file_options
@cursor_options
@option(
    "--rows",
    "rows_path",
    type=PATH,
    metavar="FILE",
    group=OUTPUT_GROUP,
    default_text="no file",
    help="Write a line for each row to this new CSV file, with the outcome of the row and the values to send.",
)
@output_options
def plan_command(
    job_or_file: Path | str,
    row_options: Mapping[str, Any],
    is_full: bool,
    since: str | None,
    rows_path: Path | None,
    output: Output,
) -> None:
    """Show the outcome that each row of a sync or import would have.

    The argument is a job file, as for `connector sync`, or a file, as for `connector import`. The command reads
    the service's list and creates nothing. You can make a plan while another run is active. The service may still
    reject a row that the plan would create.
    """
    from connector.imports.flow import run_load
    from connector.jobs.load_planner import RunRequest, plan_sync
    from connector.jobs.reader import read_settings
    from connector.runs.planned_rows import check_rows_path

    refuse_full_with_since(is_full, since)
    check_rows_path(rows_path, output.report_path)
    if not is_job(job_or_file):
        if is_full or since is not None:
            raise ConfigurationError(
                "--full and --since are for a job with a cursor, and a file has no cursor. Leave out both options"
            )
        plan = plan_file(job_or_file, row_options, {}, plans_only=True)
    elif row_options["job_path"] is not None:
        raise ConfigurationError(
            f"--job: {job_or_file} is a job file. Name the data file to load with the mapping of --job"
        )
    else:
        job = load_job_argument(job_or_file, row_options)
        settings = read_settings(os.environ, job, writes_state=False)
        plan = plan_sync(job, settings, RunRequest(row_limit=row_options["limit"], is_full=is_full, since=since))
    plan = replace(plan, command="plan", is_planned=True, rows_path=rows_path)
    finish_run(run_flow(lambda stop, progress: run_load(plan, stop, progress), output), output)


_EXAMPLE_LENGTH = 60  # characters of an example in the table; the JSON shows up to 200


@click.command("validate", cls=Command)
@click.argument("job_or_file", metavar="JOB|FILE", type=SourcePath())
@partial(file_options, needs_base=False)
@option(
    "--rejects",
    "rejects_path",
    type=PATH,
    metavar="FILE",
    group=OUTPUT_GROUP,
    default_text="no file",
    help="Write the invalid rows with their errors to this new file: as a workbook if the name ends in .xlsx, "
    "otherwise as CSV.",
)
@output_options
def validate_command(
    job_or_file: Path | str, row_options: Mapping[str, Any], rejects_path: Path | None, output: Output
) -> None:
    """Check every row of a source or file without the service.

    The argument is a job file, as for `connector sync`, or a file, as for `connector import`. The report counts
    the invalid rows by error and shows examples. The command sends nothing, and needs no token and no ledger.
    """
    from connector.jobs.load_planner import plan_validation
    from pipelines.flows.validate import run_validation

    if rejects_path is not None and (rejects_path.exists() or not rejects_path.absolute().parent.is_dir()):
        raise ConfigurationError(f"--rejects {rejects_path}: name a new file in a folder that exists")
    uses_source_of_job = is_job(job_or_file) and row_options["job_path"] is None
    job = (
        load_job_argument(Path(job_or_file), row_options)
        if uses_source_of_job
        else build_file_job(job_or_file, row_options, needs_base=False)
    )
    plan = plan_validation(job, row_options["limit"], uses_source_of_job=uses_source_of_job)
    validation = run_validation(plan, rejects_path, get_clock())
    is_output_complete = show_run_report(validation.report, output)
    if validation.findings and not output.is_json:
        findings = validation.list_findings()
        is_output_complete = (
            output.write_drawing(lambda console: console.print(_build_table(findings))) and is_output_complete
        )
    end_command(validation.as_json(), validation.report.exit_code, output, is_output_complete=is_output_complete)


def _build_table(findings: list[ValidationFinding]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from pipelines.report.text import format_cell

    table = Table("field", "what is wrong", "such as")
    table.add_column("rows", justify="right")
    for finding in findings:
        examples = [
            f"row {example['row']}: {format_cell(example['value'], _EXAMPLE_LENGTH)}" for example in finding.examples
        ]
        table.add_row(
            finding.field or "the whole row", Text(finding.message), Text("\n".join(examples)), f"{finding.rows:,}"
        )
    return table


@click.command("retry", cls=Command)
@click.argument("run_id", metavar="[RUN]", required=False)
@option(
    "--rejected",
    "retries_rejected",
    is_flag=True,
    group="What to retry",
    help="Also look up the subscribers of rejected creates. If a subscriber is absent, send the create again.",
)
@option(
    "--held",
    "held_decision",
    type=click.Choice(HELD_DECISIONS),
    group="What to retry",
    default_text="leave them held",
    help="What to do with held creates. "
    + "; ".join(f"`{decision}`: {effect}" for decision, effect in EFFECT_BY_HELD_DECISION.items())
    + ".",
)
@base_filter_options
@job_option("Use the account, suppression list and `load` section of this job file.", "none")
@sending_options
@wait_option
@time_limit_option
@run_options
def retry_command(
    run_id: str | None,
    retries_rejected: bool,
    held_decision: HeldDecision | None,
    job_path: Path | None,
    base_id: int | None,
    base_name: str | None,
    wait_s: float,
    time_limit_s: float | None,
    output: Output,
    **load_options: Any,
) -> None:
    """Finish creates that got no answer in earlier runs.

    The command looks up the subscriber of each unanswered create in the service. If the subscriber exists, the create
    is confirmed. If the subscriber is proved absent, the create is sent again. The command does not read the source.
    With RUN, a run id from `connector status`, the command retries only creates whose latest attempt was in this run.

    With --job, the `load` section of the job file replaces the defaults of the group Sending. An option of this group
    replaces the value of the job file.
    """
    from connector.jobs.arguments import build_import_job, format_option, override_load
    from connector.jobs.reader import load_job, read_settings
    from connector.load.retry import RetrySelection
    from pipelines.flows.retries import plan_retry, run_retry

    if held_decision == "resend":
        if load_options["on_unknown"] == "hold":
            raise ConfigurationError(
                "--held resend sends held creates again, but --on-unknown hold holds them again. Use one of the two"
            )
        load_options["on_unknown"] = "resend"
    if job_path is None:
        job = build_import_job(None, "retry", {}, format_argument=format_option, needs_base=False)
    else:
        job = load_job(job_path, os.environ)
    job = override_load(job, load_options, format_argument=format_option)
    plan = plan_retry(
        RetrySelection(run_id, retries_rejected, held_decision),
        job,
        read_settings(os.environ, job, time_limit_s=time_limit_s),
        base=BaseRef(base_id, base_name),
        wait_s=wait_s,
        has_job_file=job_path is not None,
    )
    limit_s = plan.settings.time_limit_s
    finish_run(run_flow(lambda stop, progress: run_retry(plan, stop, progress), output, limit_s), output)
