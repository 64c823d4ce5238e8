"""`connector export DEST|JOB`: the list of subscribers into a file or a warehouse."""

import os
from pathlib import Path

import click

from connector.errors import ConfigurationError
from connector.protocol.requests import ListQuery
from pipelines.commands.options import Output, finish, output_options, refuse_empty, run_flow
from pipelines.exporting import ExportPlan, plan_export, plan_export_job, run_export
from pipelines.jobs import load_job
from pipelines.settings import SettingOptions, read_settings


@click.command("export")
@click.argument("target", metavar="DEST|JOB")
@click.option("--table", help="The table in a database.  [default: subscribers]")
@click.option("--schema", help="The table's schema, where the database has any.")
@click.option("--mode", type=click.Choice(["replace"]), default="replace", help="What becomes of rows that are there.")
@click.option("--allow-incomplete", is_flag=True, help="Write the list even if it cannot be certified as complete.")
@click.option("--id", "subscriber_id", type=click.IntRange(min=1), help="Only the subscriber with this id.")
@click.option("--base-id", type=click.IntRange(min=1), help="Only subscribers of this base.")
@click.option("--client-user-id", callback=refuse_empty, help="Only with this key of your own system.")
@click.option("--email", callback=refuse_empty, help="Only with this address.")
@click.option("--active/--inactive", "is_active", default=None, help="Only active, or only inactive ones.")
@click.option("--first-name", callback=refuse_empty, help="Only with this first name.")
@click.option("--last-name", callback=refuse_empty, help="Only with this last name.")
@click.option("--gender", type=click.Choice(["male", "female", "unspecified"]), help="Only of this gender.")
@output_options
def export_command(
    target: str,
    table: str | None,
    schema: str | None,
    mode: str,
    allow_incomplete: bool,
    subscriber_id: int | None,
    gender: str | None,
    output: Output,
    **filters: str | int | None,
) -> None:
    """Copy the list to DEST (.parquet, .csv, .jsonl, or a database URL), or as the job file JOB says."""
    if Path(target).suffix in (".yaml", ".yml"):
        if table or schema or gender or subscriber_id or any(value is not None for value in filters.values()):
            raise ConfigurationError("a job brings its own table, schema and filters: leave out those options")
        plan = _plan_job(Path(target), allow_incomplete)
    else:
        query = ListQuery(id=subscriber_id, gender="" if gender == "unspecified" else gender, **filters)  # type: ignore[arg-type] # click gives each its type
        settings = read_settings(os.environ, None, SettingOptions())
        plan = plan_export(target, query, settings, table=table, schema=schema, is_incomplete_allowed=allow_incomplete)
    finish(run_flow(lambda stop, progress: run_export(plan, stop, progress), output), output)


def _plan_job(path: Path, allow_incomplete: bool) -> ExportPlan:
    job = load_job(path, os.environ)
    settings = read_settings(os.environ, job, SettingOptions())
    return plan_export_job(job, settings, is_incomplete_allowed=allow_incomplete)
