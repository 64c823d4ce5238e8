"""`connector import FILE`: a one-off import of a file, or of what comes through a pipe."""

import os
from pathlib import Path

import click

from connector.errors import ConfigurationError
from connector.extract import FORMATS
from connector.validation import Rules
from connector.validation.rules import IDENTITIES, ZIP_POLICIES
from pipelines.commands.options import Duration, Output, finish, output_options, run_flow
from pipelines.jobs import Load, check_format, load_job, override_load
from pipelines.jobs.conversion import build_policy
from pipelines.loading import run_load
from pipelines.planning import FileOptions, Reading, plan_import, plan_import_by_job
from pipelines.settings import SettingOptions, read_settings


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--base-id", type=click.IntRange(min=1), help="The base to import into, by its id.")
@click.option("--base-name", help="The base to import into, by its name.")
@click.option("--map", "mapped", multiple=True, metavar="FIELD=COLUMN", help="Map a column to a field. Repeatable.")
@click.option("--identity", type=click.Choice(IDENTITIES), help="What makes two rows the same subscriber.")
@click.option("--active/--inactive", "is_active", default=None, help="Import everybody as active, or as inactive.")
@click.option("--zip", "zip_policy", type=click.Choice(ZIP_POLICIES), help="What becomes of a zip that is no number.")
@click.option("--job", "job_path", type=click.Path(path_type=Path), help="Use this job's mapping, base and rules.")
@click.option("--format", "file_format", type=click.Choice(["auto", *FORMATS]), help="What the file holds.")
@click.option("--sheet", metavar="SHEET", help="A workbook's sheet, by name or number; the first when not given.")
@click.option("--encoding", help="How the file's text is encoded, such as cp1252.")
@click.option("--delimiter", help="What stands between two cells: one character, or tab.")
@click.option("--limit", type=click.IntRange(min=1), help="Import only the first N rows.")
@click.option("--on-unknown", type=click.Choice(["resend", "hold"]), help="What becomes of an unknown proved absent.")
@click.option("--look", type=click.Choice(["auto", "none"]), help="none: create without looking who is there.")
@click.option("--quiet-period", metavar="DURATION", help="Wait before absence can be proved, such as 30s.")
@click.option("--max-concurrency", type=click.IntRange(1, 1000), help="Creates in flight at once, at most.")
@click.option("--max-rate", type=click.FloatRange(0, 100_000, min_open=True), help="Creates a second, at most.")
@click.option("--wait", "wait_s", type=Duration(), default=0.0, help="Wait so long for another run to end.")
@output_options
def import_command(
    file: Path,
    base_id: int | None,
    base_name: str | None,
    mapped: tuple[str, ...],
    identity: str | None,
    is_active: bool | None,
    zip_policy: str | None,
    job_path: Path | None,
    file_format: str | None,
    sheet: str | None,
    encoding: str | None,
    delimiter: str | None,
    limit: int | None,
    on_unknown: str | None,
    look: str | None,
    quiet_period: str | None,
    max_concurrency: int | None,
    max_rate: float | None,
    wait_s: float,
    output: Output,
) -> None:
    """Import the subscribers of FILE: CSV, Excel, Parquet or JSON Lines, packed or not; - is standard input."""
    given = {
        "on_unknown": on_unknown,
        "look": look,
        "quiet_period": quiet_period,
        "max_concurrency": max_concurrency,
        "max_rate": max_rate,
    }
    said = {"format": file_format, "sheet": sheet, "encoding": encoding, "delimiter": delimiter}
    reading = Reading(check_format(said), limit)
    output.refuse_to_overwrite(file, "the file to be imported")
    options = FileOptions(base_id, base_name, parse_mapped(mapped), is_active)
    if job_path is not None:
        refuse_beside_job(options, identity, zip_policy)
        job = load_job(job_path, os.environ)
        job = job.model_copy(update={"load": override_load(job.load, given)})
        settings = read_settings(os.environ, job, SettingOptions())
        plan = plan_import_by_job(file, job, settings, reading=reading, wait_s=wait_s)
    else:
        rules = Rules(identity=identity or "email", zip=zip_policy or "omit")
        policy = build_policy(override_load(Load(), given), rules)
        settings = read_settings(os.environ, None, SettingOptions())
        plan = plan_import(file, options, rules, policy, settings, reading=reading, wait_s=wait_s)
    finish(run_flow(lambda stop, progress: run_load(plan, stop, progress), output), output)


def parse_mapped(mapped: tuple[str, ...]) -> dict[str, str]:
    """What `--map FIELD=COLUMN` says, by field. Raises ConfigurationError."""
    parsed: dict[str, str] = {}
    for each in mapped:
        field, separator, column = each.partition("=")
        if not separator or not field.strip():
            raise ConfigurationError(
                f"--map {each}: write --map FIELD=COLUMN, such as --map email='E-mail address', or FIELD= for none"
            )
        if field.strip() in parsed:
            raise ConfigurationError(f"--map {each}: {field.strip()} is mapped twice")
        parsed[field.strip()] = column
    return parsed


def refuse_beside_job(options: FileOptions, identity: str | None, zip_policy: str | None) -> None:
    """Raise ConfigurationError for options that say what the job says already."""
    if options != FileOptions() or identity is not None or zip_policy is not None:
        raise ConfigurationError("--job brings its own base, mapping, identity and zip: leave out those options")
