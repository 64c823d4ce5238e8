"""Options that several commands take, and what becomes of the report that a command ends with."""

import json
import os
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
import uvloop
from rich.console import Console

from pipelines.jobs import parse_duration
from pipelines.progress import Progress, show_progress
from pipelines.report import Report
from pipelines.showing import show_report
from pipelines.stopping import Stop, stop_on_signals

Command = Callable[..., Any]


class Duration(click.ParamType[float]):
    """`500ms`, `30s`, `10m`, `2h`; seconds as a float."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse, or fail as click does."""
        try:
            return value if isinstance(value, float) else parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@dataclass(frozen=True, slots=True)
class Output:
    """How a command speaks: `is_json` puts one JSON object on stdout and nothing else."""

    is_json: bool
    is_quiet: bool
    report_path: Path | None

    @property
    def console(self) -> Console:
        """Where people read: stderr."""
        return Console(stderr=True, quiet=self.is_quiet)


def output_options(command: Command) -> Command:
    """`--output`, `--report` and `--quiet`, given to the command as `output`."""

    @click.option(
        "--output", "form", type=click.Choice(["text", "json"]), default="text", help="How to show the report."
    )
    @click.option("--report", "report_path", type=click.Path(path_type=Path), help="Write the report (JSON) here, too.")
    @click.option("--quiet", is_flag=True, help="Say nothing if all is well.")
    @wraps(command)
    def wrapped(*args: Any, form: str, report_path: Path | None, quiet: bool, **kwargs: Any) -> Any:
        return command(*args, output=Output(form == "json", quiet, report_path), **kwargs)

    return wrapped


def run_flow(flow: Callable[[Stop, Progress], Coroutine[Any, Any, Report]], output: Output) -> Report:
    """Run one flow to its end, with progress shown and signals heard."""

    async def run() -> Report:
        with stop_on_signals() as stop, show_progress(output.console, is_quiet=output.is_quiet) as progress:
            return await flow(stop, progress)

    return uvloop.run(run())


def finish(report: Report, output: Output) -> None:
    """Show the report and end the process with its exit code."""
    show(report, output)
    write_report(report.as_json(), output)
    if output.is_json:
        print_json(report.as_json())
    sys.exit(report.exit_code)


def show(report: Report, output: Output) -> None:
    """Messages to stderr, the table to stdout unless that is for JSON; with `--quiet` only if something is wrong."""
    if output.is_quiet and report.status == "ok":
        return
    for message in report.messages:
        click.echo(message, err=True)
    if not output.is_json:
        show_report(report, Console())


def write_report(report: dict[str, Any], output: Output) -> None:
    """Write the report where `--report` says, readable by its owner alone."""
    if output.report_path is None:
        return
    descriptor = os.open(output.report_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(report, file, ensure_ascii=False, indent=2)
        file.write("\n")


def print_json(report: dict[str, Any]) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(report, ensure_ascii=False, indent=2))
