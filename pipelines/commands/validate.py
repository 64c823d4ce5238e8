"""`connector validate JOB|FILE`: what an import would reject, said before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from connector.errors import ConfigurationError
from pipelines.commands.file_options import FileGiven, file_options, is_job
from pipelines.commands.options import Output, end, output_options, show

if TYPE_CHECKING:
    from rich.table import Table

    from pipelines.loads.validating import Finding, ValidationPlan, Verdict

_SHOWN = 60  # characters of an example in a table; the JSON has more


@click.command("validate")
@click.argument("target", metavar="JOB|FILE", type=click.Path(path_type=Path))
@file_options
@click.option("--rejects", type=click.Path(path_type=Path), help="Write the rejects file of an import here.")
@output_options
def validate_command(
    target: Path,
    given: FileGiven,
    rejects: Path | None,
    output: Output,
) -> None:
    """Extract, map and validate the rows of a job's source or of a file, and say what is wrong with which.

    Nothing is sent, no token is needed, and the ledger is not asked: who is there already is not looked at.
    """
    from connector.clock import system_clock
    from pipelines.loads.validating import run_validation

    _check_rejects(rejects)
    plan = _plan(target, given)
    verdict = run_validation(plan, rejects, system_clock())
    is_shown = _show(verdict, output)
    end(verdict.as_json(), verdict.report.exit_code, output, is_shown=is_shown)


def _plan(target: Path, given: FileGiven) -> ValidationPlan:
    from pipelines.loads.planning import plan_validation, plan_validation_by_job

    job = given.load_job()
    if job is not None:
        return plan_validation_by_job(target, job, given.reading)
    if is_job(target):
        return plan_validation_by_job(None, given.load_target(target), given.reading)
    return plan_validation(target, given.options, given.rules, given.reading)


def _check_rejects(path: Path | None) -> None:
    if path is not None and (path.exists() or not path.absolute().parent.is_dir()):
        raise ConfigurationError(f"--rejects {path}: name a new file, in a folder that exists")


def _show(verdict: Verdict, output: Output) -> bool:
    """As `show`, with a table of what is wrong."""
    is_shown = show(verdict.report, output)
    if not verdict.findings or output.is_json:
        return is_shown
    return output.show(lambda console: console.print(_build_table(verdict.list_findings()))) and is_shown


def _build_table(findings: list[Finding]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from pipelines.runs.showing import show_value

    table = Table("field", "what is wrong", "such as")
    table.add_column("rows", justify="right")
    for each in findings:
        examples = "\n".join(f"row {example.row}: {show_value(example.value, _SHOWN)}" for example in each.examples)
        table.add_row(each.field or "the whole row", Text(each.message), Text(examples), f"{each.rows:,}")
    return table
