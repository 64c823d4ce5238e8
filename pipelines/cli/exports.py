"""`connector export` and `reconcile`: the commands that read the list."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from connector.choices import CSV_DELIMITERS, CSV_DIALECTS, EXPORT_FORMATS
from connector.errors import ConfigurationError
from pipelines.cli.options import (
    SHARE,
    allow_truncated_option,
    ignore_total_count_option,
    is_job,
    refuse_empty,
    time_limit_option,
    wait_option,
)
from pipelines.cli.output import Output, finish, run_and_notify, run_flow, run_options

if TYPE_CHECKING:
    from connector.export.flow import ExportPlan


def _split_names(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    named = refuse_empty(context, parameter, value)
    return None if named is None else tuple(name.strip() for name in named.split(","))


_OF_A_JOB = (
    "table", "schema", "mode", "guard_formulas", "columns", "group_readable", "file_format", "subscriber_id", "base_id",
    "client_user_id", "email", "is_active", "first_name", "last_name", "gender", "csv_dialect", "delimiter",
    "run_columns",
)  # fmt: skip
"""Options that have a key in a job's export section, which has the last word."""

_OF_A_FILE = ("guard_formulas", "columns", "group_readable", "file_format", "csv_dialect", "delimiter", "run_columns")
"""Options that `parse_destination` takes by these names."""


@click.command("export")
@click.argument("target", metavar="DEST|JOB", type=click.Path())
@click.option("--table", help="The table in a database.  [default: subscribers]")
@click.option("--schema", help="The table's schema, where the database has any.")
@click.option(
    "--mode",
    type=click.Choice(["replace", "upsert", "append", "history"]),
    default="replace",
    help="What becomes of rows that are there: replaced; brought up to date, with subscribers that have gone marked; "
    "kept beside a new snapshot; or kept as versions.  [default: replace]",
)
@click.option(
    "--max-shrink",
    type=SHARE,
    help="How much smaller the list may be than at the last certified export.  [default: 50%]",
)
@click.option("--allow-incomplete", is_flag=True, help="Write the list even if it cannot be certified as complete.")
@ignore_total_count_option
@allow_truncated_option
@click.option(
    "--guard-formulas/--no-guard-formulas",
    default=False,
    help="In CSV, put an apostrophe before what a spreadsheet runs.",
)
@click.option(
    "--csv-dialect",
    type=click.Choice(CSV_DIALECTS),
    default="standard",
    help="How CSV is written. `excel`: with a byte order mark, so that Excel reads UTF-8, and tags as a|b.  "
    "[default: standard]",
)
@click.option(
    "--delimiter",
    type=click.Choice(CSV_DELIMITERS),
    help="The separator of cells in CSV; in countries with decimal commas Excel expects ;.  [default: ,]",
)
@click.option(
    "--run-columns/--no-run-columns",
    default=True,
    help="Write _run_id and _exported_at to a file. A table always has them.  [default: --run-columns]",
)
@click.option(
    "--columns",
    metavar="NAME,...",
    callback=_split_names,
    help="Only these fields, beside the id and the run's columns.",
)
@click.option("--overwrite", is_flag=True, help="Take over a table or a file that no export made.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(EXPORT_FORMATS),
    help="What a file holds whose name does not say it; to standard output, csv when not given.",
)
@click.option("--group-readable", is_flag=True, help="Let the group of a file read it, too.")
@click.option("--id", "subscriber_id", type=click.IntRange(min=1), help="Only the subscriber with this id.")
@click.option("--base-id", type=click.IntRange(min=1), help="Only subscribers of this base.")
@click.option("--client-user-id", callback=refuse_empty, help="Only with this key of your own system.")
@click.option("--email", callback=refuse_empty, help="Only with this address.")
@click.option("--active/--inactive", "is_active", default=None, help="Only active, or only inactive ones.")
@click.option("--first-name", callback=refuse_empty, help="Only with this first name.")
@click.option("--last-name", callback=refuse_empty, help="Only with this last name.")
@click.option("--gender", type=click.Choice(["male", "female", "unspecified"]), help="Only of this gender.")
@time_limit_option
@run_options
def export_command(
    target: str,
    mode: str,
    max_shrink: float | None,
    allow_incomplete: bool,
    ignore_total_count: bool | None,
    allow_truncated: bool | None,
    overwrite: bool,
    gender: str | None,
    time_limit_s: float | None,
    output: Output,
    **options: Any,
) -> None:
    """Copy the list to DEST, or as the job file JOB describes.

    DEST is a file (.xlsx, .parquet, .csv, .csv.gz, .jsonl, .jsonl.gz), an object in a store with such a name
    (s3://bucket/people.parquet), - for standard output, or a database URL.
    """
    from connector.export.flow import ExportPlan, run_export
    from connector.jobs.settings import read_settings
    from connector.service.wire import ListQuery
    from connector.warehouse.destination import MAX_SHRINK, parse_destination

    table, schema = options.pop("table"), options.pop("schema")
    accepted: dict[str, Any] = {
        "allow_incomplete": allow_incomplete,
        "ignore_total_count": bool(ignore_total_count),
        "allow_truncated": bool(allow_truncated),
    }
    if is_job(Path(target)):
        source_of = click.get_current_context().get_parameter_source
        if any(source_of(name) is ParameterSource.COMMANDLINE for name in _OF_A_JOB):
            raise ConfigurationError("a job brings its own table, mode and filters: leave out those options")
        from connector.jobs.export_planner import plan_export_job  # an export by options does not wait for pydantic
        from connector.jobs.reader import load_job

        job = load_job(Path(target), os.environ)
        settings = read_settings(os.environ, job, time_limit_s=time_limit_s)
        plan = plan_export_job(job, settings, **accepted, max_shrink=max_shrink, overwrite=overwrite)
        _refuse_clash(plan, output)
        finish(run_and_notify(partial(run_export, plan), job, settings, output), output)
    file = {name: options.pop(name) for name in _OF_A_FILE}
    query = ListQuery(id=options.pop("subscriber_id"), gender="" if gender == "unspecified" else gender, **options)
    settings = read_settings(os.environ, None, time_limit_s=time_limit_s)
    destination = parse_destination(
        target, table=table or "subscribers", schema=schema, mode=mode, overwrite=overwrite, **file
    )
    if (table or schema) and not destination.is_database:
        raise ConfigurationError(f"{destination} is a file: --table and --schema are for databases")
    shrink = MAX_SHRINK if max_shrink is None else max_shrink
    plan = ExportPlan(destination.path.name, query, destination, settings, **accepted, max_shrink=shrink)
    _refuse_clash(plan, output)
    output = replace(output, is_data_on_stdout=destination.is_standard_output)
    finish(run_flow(partial(run_export, plan), output, time_limit_s), output)


def _refuse_clash(plan: ExportPlan, output: Output) -> None:
    """Raise ConfigurationError if the export and its report would go to one place."""
    destination = plan.destination
    if destination.object_url is None:
        output.refuse_to_overwrite(destination.path, "what is exported")
    if destination.is_standard_output and output.is_json:
        raise ConfigurationError(
            "--output json and - both write to standard output: leave one out, or write the report by --report PATH"
        )


@click.command("reconcile")
@click.argument("path", metavar="JOB", type=click.Path(path_type=Path))
@click.option("--to", type=click.Path(path_type=Path), help="Write a line for each difference to this CSV.")
@ignore_total_count_option
@allow_truncated_option
@click.option("--forget-missing", is_flag=True, help="Forget entries whose subscribers the service has lost.")
@click.option("--yes", "is_sure", is_flag=True, help="Forget even if the service has lost all of a base.")
@wait_option
@time_limit_option
@run_options
def reconcile_command(
    path: Path,
    to: Path | None,
    ignore_total_count: bool | None,
    allow_truncated: bool | None,
    forget_missing: bool,
    is_sure: bool,
    wait_s: float,
    time_limit_s: float | None,
    output: Output,
) -> None:
    """Compare all that the source of JOB says with what the ledger knows and what the service lists.

    Lists the subscribers that are missing in the service, extra there, duplicated or drifted, and those that have
    vanished from it. Nothing but list requests is sent. The ledger is only read and not locked, unless --forget-missing
    is given: then the entries of vanished subscribers are deleted, once a second listing agrees, and the next sync
    creates those that the source has.
    """
    from connector.jobs.reader import load_job
    from connector.jobs.settings import read_settings
    from pipelines.flows.reconciles import plan_reconcile, run_reconcile
    from pipelines.report.differences import check_difference_path

    if is_sure and not forget_missing:
        raise ConfigurationError("--yes is about --forget-missing: give both, or neither")
    check_difference_path(to, output.report_path)
    job = load_job(path, os.environ)
    settings = read_settings(os.environ, job, time_limit_s=time_limit_s, is_writing=forget_missing)
    plan = replace(
        plan_reconcile(job, settings, wait_s=wait_s),
        to=to,
        is_total_count_ignored=bool(ignore_total_count) or job.load.ignore_total_count,
        allow_truncated=bool(allow_truncated) or job.load.allow_truncated,
        is_forgetting=forget_missing,
        is_sure=is_sure,
    )
    finish(run_and_notify(lambda stop, progress: run_reconcile(plan, stop, progress), job, settings, output), output)
