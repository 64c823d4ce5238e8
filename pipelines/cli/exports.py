"""`connector export` and `reconcile`: the commands that read the list."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from connector.choices import CSV_DELIMITERS, CSV_DIALECTS, EXPORT_FORMATS, GENDERS, format_choices
from connector.errors import ConfigurationError
from pipelines.cli.help import Command, option
from pipelines.cli.options import (
    PATH,
    SHARE,
    allow_truncated_option,
    ignore_total_count_option,
    is_job,
    refuse_empty_text,
    time_limit_option,
)
from pipelines.cli.output import Output, finish_run, handle_job_start_errors, run_and_notify, run_flow, run_options

if TYPE_CHECKING:
    from connector.export import ExportPlan


def _split_names(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    names_text = refuse_empty_text(context, parameter, value)
    return None if names_text is None else tuple(name.strip() for name in names_text.split(","))


_destination_option = partial(option, group="Destination")
_file_option = partial(option, group="File")
_filter_option = partial(option, group="Filters", default_text="all")
_text_filter_option = partial(_filter_option, callback=refuse_empty_text)

_FILE_OPTIONS = (
    "guard_formulas", "columns", "group_readable", "file_format", "csv_dialect", "delimiter", "run_columns",
    "partition_by",
)  # fmt: skip
"""Options that the command passes to `parse_destination` as arguments with the same names."""

_JOB_OPTIONS = (
    *_FILE_OPTIONS, "table", "schema", "mode", "subscriber_id", "base_id", "client_user_id", "email", "is_active",
    "first_name", "last_name", "gender",
)  # fmt: skip
"""Options that have a key in the export section of a job. If the argument is a job file, the command refuses these
options."""


@click.command("export", cls=Command)
@click.argument("target", metavar="DEST|JOB", type=click.Path())
@_destination_option(
    "--mode",
    type=click.Choice(["replace", "upsert", "append", "history"]),
    metavar="MODE",
    default="replace",
    default_text="replace",
    help="What to do with the rows of the destination. `replace`: overwrite all rows; `upsert`: update rows by id, "
    "and mark subscribers that left the list; `append`: add the new rows to the old rows; `history`: keep each "
    "version of a row.",
)
@_destination_option(
    "--table",
    metavar="NAME",
    callback=refuse_empty_text,
    default_text="subscribers",
    help="Name of the table, if DEST is a database.",
)
@_destination_option(
    "--schema",
    metavar="NAME",
    callback=refuse_empty_text,
    default_text="the database's default",
    help="Schema of the table, if the database has schemas.",
)
@_destination_option(
    "--partition-by",
    metavar="NAME,...",
    callback=_split_names,
    default_text="no folders",
    help="Fields whose values divide a Delta table into folders, for example base_id.",
)
@_destination_option("--overwrite", is_flag=True, help="Overwrite a table or file that the connector did not create.")
@_destination_option(
    "--max-shrink",
    type=SHARE,
    metavar="PERCENT",
    default_text="50%",
    help="Maximum share of subscribers that the list may have lost since the last complete export. If the list has "
    "lost more, the export is refused.",
)
@option(
    "--columns",
    metavar="NAME,...",
    callback=_split_names,
    group="Columns",
    default_text="all",
    help="Export only these fields, for example email,is_active. The id is always exported.",
)
@option(
    "--run-columns/--no-run-columns",
    default=True,
    group="Columns",
    default_text="add them",
    help="If DEST is a file, add the columns `_run_id` and `_exported_at`. A table always has both columns.",
)
@_file_option(
    "--format",
    "file_format",
    type=click.Choice(EXPORT_FORMATS),
    metavar="FORMAT",
    default_text="from the file's name; csv for -",
    help=f"Format of the file: {format_choices(EXPORT_FORMATS)}.",
)
@_file_option(
    "--csv-dialect",
    type=click.Choice(CSV_DIALECTS),
    metavar="DIALECT",
    default="standard",
    default_text="standard",
    help="How to write CSV. `standard`: plain UTF-8; `excel`: for Excel, with a byte order mark and with tags as a|b.",
)
@_file_option(
    "--delimiter",
    type=click.Choice(CSV_DELIMITERS),
    metavar="CHAR",
    default_text=",",
    help="Character between two cells of a CSV file: , ; | or tab. Excel expects ; in countries with decimal commas.",
)
@_file_option(
    "--guard-formulas/--no-guard-formulas",
    default=False,
    default_text="no apostrophe",
    help="Put an apostrophe before each CSV cell that a spreadsheet would run as a formula.",
)
@_file_option(
    "--group-readable",
    is_flag=True,
    help="Allow the group of the file to read the file (mode 0640). Otherwise only the owner can read the file.",
)
@_filter_option(
    "--id", "subscriber_id", type=click.IntRange(min=1), metavar="ID", help="Export only the subscriber with this id."
)
@_filter_option(
    "--base-id", type=click.IntRange(min=1), metavar="ID", help="Export only subscribers of the base with this id."
)
@_text_filter_option(
    "--client-user-id",
    metavar="ID",
    help="Export only subscribers with this client_user_id, the key in your own system.",
)
@_text_filter_option("--email", metavar="ADDRESS", help="Export only subscribers with this email address.")
@option(
    "--active/--inactive",
    "is_active",
    default=None,
    group="Filters",
    default_text="both",
    help="Export only active subscribers, or only inactive subscribers.",
)
@_text_filter_option("--first-name", metavar="NAME", help="Export only subscribers with this first name.")
@_text_filter_option("--last-name", metavar="NAME", help="Export only subscribers with this last name.")
@_filter_option(
    "--gender",
    type=click.Choice(GENDERS),
    metavar="GENDER",
    help=f"Export only subscribers of this gender: {format_choices(GENDERS)}.",
)
@option(
    "--allow-incomplete",
    is_flag=True,
    group="Service's list",
    help="Write the list even if the connector cannot prove that the list is complete. In mode `replace`, the "
    "destination must be new or empty.",
)
@ignore_total_count_option
@allow_truncated_option
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
    """Copy the service's list to a file, a database or a Delta table.

    DEST is a file (.xlsx, .parquet, .csv, .csv.gz, .jsonl or .jsonl.gz), an object such as s3://bucket/people.parquet,
    a database URL, a Delta table such as delta://lake/subscribers, or - for standard output. A JOB file (.yaml) sets
    the values of the groups Destination, Columns, File and Filters in its export section.
    """
    from connector.service.wire import ListQuery
    from connector.settings import read_settings
    from connector.warehouse.destination import DEFAULT_MAX_SHRINK, parse_destination

    table, schema = options.pop("table"), options.pop("schema")
    list_options: dict[str, Any] = {
        "allow_incomplete": allow_incomplete,
        "ignore_total_count": bool(ignore_total_count),
        "allow_truncated": bool(allow_truncated),
    }
    if is_job(Path(target)):
        find_parameter_source = click.get_current_context().get_parameter_source
        if any(find_parameter_source(name) is ParameterSource.COMMANDLINE for name in _JOB_OPTIONS):
            raise ConfigurationError(
                "the job file sets the destination, columns, file format and filters. Leave out "
                "the options of these groups"
            )
        from connector.export import run_export

        # imported here, because an export without a job file does not need pydantic
        from connector.jobs.export_planner import plan_export_job
        from connector.jobs.reader import load_job, read_settings as read_settings_of_job

        with handle_job_start_errors(Path(target)):
            job = load_job(Path(target), os.environ)
            settings = read_settings_of_job(os.environ, job, time_limit_s=time_limit_s)
            plan = plan_export_job(job, settings, **list_options, max_shrink=max_shrink, overwrite=overwrite)
            _refuse_shared_target(plan, output)
            report = run_and_notify(partial(run_export, plan), job, settings, output)
        finish_run(report, output)
    file_options = {name: options.pop(name) for name in _FILE_OPTIONS}
    file_options["partition_by"] = file_options["partition_by"] or ()
    query = ListQuery(id=options.pop("subscriber_id"), gender="" if gender == "unspecified" else gender, **options)
    settings = read_settings(os.environ, time_limit_s=time_limit_s)
    destination = parse_destination(
        target, table=table or "subscribers", schema=schema, mode=mode, overwrite=overwrite, **file_options
    )
    from connector.export import ExportPlan, run_export  # imported late, because a refused destination needs no pyarrow

    max_shrink_or_default = DEFAULT_MAX_SHRINK if max_shrink is None else max_shrink
    plan = ExportPlan(
        destination.path.name, query, destination, settings, **list_options, max_shrink=max_shrink_or_default
    )
    _refuse_shared_target(plan, output)
    output = replace(output, is_data_on_stdout=destination.is_standard_output)
    finish_run(run_flow(partial(run_export, plan), output, time_limit_s), output)


def _refuse_shared_target(plan: ExportPlan, output: Output) -> None:
    """Raise ConfigurationError if the export and its report would be written to the same file or both to stdout."""
    destination = plan.destination
    if destination.object_url is None:
        output.refuse_to_overwrite(destination.path, "the destination of the export")
    if destination.is_standard_output and output.is_json:
        raise ConfigurationError(
            "--output json and - both write to standard output. Leave out one of the two, or write the report with "
            "--report PATH"
        )


@click.command("reconcile", cls=Command)
@click.argument("job_path", metavar="JOB", type=click.Path(path_type=Path))
@option(
    "--to",
    "differences_path",
    type=PATH,
    metavar="FILE",
    group="Differences",
    default_text="no file",
    help="Write a line for each difference to this CSV file.",
)
@ignore_total_count_option
@allow_truncated_option
@time_limit_option
@run_options
def reconcile_command(
    job_path: Path,
    differences_path: Path | None,
    ignore_total_count: bool | None,
    allow_truncated: bool | None,
    time_limit_s: float | None,
    output: Output,
) -> None:
    """Compare a job's source with the ledger and the service.

    The report counts these differences:

    \b
      missing     in the source, not in the service
      extra       in the service, not in the source
      duplicated  in the service more than once
      drifted     in both, with different values
      vanished    confirmed by an earlier run, no longer in the service

    The command changes neither the service nor the ledger. While the ledger has a vanished subscriber, no sync creates
    the subscriber again. To create the subscriber again, run `connector forget IDENTITY`, and then a sync that reads a
    row of the subscriber. If the subscriber must stay erased, remove the rows of the subscriber from the source
    before you run `connector forget IDENTITY`.
    """
    from connector.jobs.load_planner import RunRequest, plan_sync
    from connector.jobs.reader import load_job, read_settings
    from pipelines.flows.reconciles import ReconcilePlan, run_reconcile
    from pipelines.report.differences import check_difference_path

    check_difference_path(differences_path, output.report_path)
    with handle_job_start_errors(job_path):
        job = load_job(job_path, os.environ)
        settings = read_settings(os.environ, job, time_limit_s=time_limit_s, writes_state=False)
        plan = ReconcilePlan(
            plan_sync(job, settings, RunRequest(is_full=True)),
            differences_path,
            is_total_count_ignored=bool(ignore_total_count) or job.load.ignore_total_count,
            allow_truncated=bool(allow_truncated) or job.load.allow_truncated,
        )
        report = run_and_notify(lambda stop, progress: run_reconcile(plan, stop, progress), job, settings, output)
    finish_run(report, output)
