"""`connector validate JOB|FILE`: what an import would reject, said before anything is sent."""

import os
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from connector.clock import system_clock
from connector.errors import ConfigurationError
from connector.extract import FORMATS
from connector.validation import Rules
from connector.validation.rules import IDENTITIES, ZIP_POLICIES
from pipelines.commands.imports import parse_mapped, refuse_beside_job
from pipelines.commands.options import Output, end, output_options
from pipelines.jobs import check_format, load_job
from pipelines.planning import FileOptions, Reading, plan_validation, plan_validation_by_job
from pipelines.showing import show_report, show_value
from pipelines.validating import Finding, ValidationPlan, Verdict, run_validation

_SHOWN = 60  # characters of an example in a table; the JSON has more


@click.command("validate")
@click.argument("target", metavar="JOB|FILE", type=click.Path(path_type=Path))
@click.option("--base-id", type=click.IntRange(min=1), help="As for an import; the base is not asked.")
@click.option("--base-name", help="As for an import; the base is not asked.")
@click.option("--map", "mapped", multiple=True, metavar="FIELD=COLUMN", help="Map a column to a field. Repeatable.")
@click.option("--identity", type=click.Choice(IDENTITIES), help="What makes two rows the same subscriber.")
@click.option("--active/--inactive", "is_active", default=None, help="As if everybody were active, or inactive.")
@click.option("--zip", "zip_policy", type=click.Choice(ZIP_POLICIES), help="What becomes of a zip that is no number.")
@click.option("--job", "job_path", type=click.Path(path_type=Path), help="Use this job's mapping and rules for FILE.")
@click.option("--format", "file_format", type=click.Choice(["auto", *FORMATS]), help="What the file holds.")
@click.option("--sheet", metavar="SHEET", help="A workbook's sheet, by name or number; the first when not given.")
@click.option("--encoding", help="How the file's text is encoded, such as cp1252.")
@click.option("--delimiter", help="What stands between two cells: one character, or tab.")
@click.option("--limit", type=click.IntRange(min=1), help="Validate only the first N rows.")
@click.option("--rejects", type=click.Path(path_type=Path), help="Write the rejects file of an import here.")
@output_options
def validate_command(
    target: Path,
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
    rejects: Path | None,
    output: Output,
) -> None:
    """Extract, map and validate the rows of a job's source or of a file, and say what is wrong with which.

    Nothing is sent, no token is needed, and the ledger is not asked: who is there already is not looked at.
    """
    said = {"format": file_format, "sheet": sheet, "encoding": encoding, "delimiter": delimiter}
    reading = Reading(check_format(said), limit)
    output.refuse_to_overwrite(target, "what is to be validated")
    _check_rejects(rejects)
    options = FileOptions(base_id, base_name, parse_mapped(mapped), is_active)
    is_job = target.suffix in (".yaml", ".yml")
    if is_job or job_path is not None:
        refuse_beside_job(options, identity, zip_policy)
        plan = _plan_by_job(target, job_path, reading)
    else:
        plan = plan_validation(target, options, Rules(identity=identity or "email", zip=zip_policy or "omit"), reading)
    verdict = run_validation(plan, rejects, system_clock())
    _show(verdict, output)
    end(verdict.as_json(), verdict.report.exit_code, output)


def _plan_by_job(target: Path, job_path: Path | None, reading: Reading) -> ValidationPlan:
    if job_path is not None:
        return plan_validation_by_job(target, load_job(job_path, os.environ), reading)
    if reading.file.model_fields_set - {"path"}:
        raise ConfigurationError("a job says itself how its file is written: leave out --format and the like")
    return plan_validation_by_job(None, load_job(target, os.environ), reading)


def _check_rejects(path: Path | None) -> None:
    if path is not None and (path.exists() or not path.absolute().parent.is_dir()):
        raise ConfigurationError(f"--rejects {path}: name a new file, in a folder that exists")


def _show(verdict: Verdict, output: Output) -> None:
    """Messages to stderr, tables to stdout unless that is for JSON; with `--quiet` only if something is wrong."""
    if output.is_quiet and verdict.report.status == "ok":
        return
    for message in verdict.report.messages:
        click.echo(message, err=True)
    if not output.is_json:
        console = Console()
        show_report(verdict.report, console)
        if verdict.findings:
            console.print(_build_table(verdict.list_findings()))


def _build_table(findings: list[Finding]) -> Table:
    table = Table("field", "what is wrong", "such as")
    table.add_column("rows", justify="right")
    for each in findings:
        examples = "\n".join(f"row {example.row}: {show_value(example.value, _SHOWN)}" for example in each.examples)
        table.add_row(each.field or "the whole row", Text(each.message), Text(examples), f"{each.rows:,}")
    return table
