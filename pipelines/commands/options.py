"""Options that several commands take, and what becomes of the report that a command ends with."""

import gc
import json
import os
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import click
import uvloop
from rich.console import Console

from connector.errors import ConfigurationError
from pipelines.durations import parse_duration
from pipelines.runs.progress import Progress, show_progress
from pipelines.runs.report import Report
from pipelines.runs.report_page import write_page
from pipelines.runs.showing import show_report
from pipelines.runs.stopping import Stop, stop_on_signals
from pipelines.shares import parse_share

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


class Share(click.ParamType[float]):
    """`5%`, `0.5%`; a share of one as a float."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse, or fail as click does."""
        try:
            return value if isinstance(value, float) else parse_share(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@dataclass(frozen=True, slots=True)
class Output:
    """How a command speaks: `is_json` puts one JSON object on stdout and nothing else."""

    is_json: bool
    is_quiet: bool
    report_path: Path | None

    def refuse_to_overwrite(self, file: Path, what: str) -> None:
        """Raise ConfigurationError if the report would take the place of this file; `what` it is, for people."""
        if self.report_path is not None and self.report_path.resolve() == file.resolve():
            raise ConfigurationError(f"--report {self.report_path}: that is {what}; name another file")

    @property
    def console(self) -> Console:
        """Where people read: stderr."""
        return Console(stderr=True, quiet=self.is_quiet)


def output_options(command: Command) -> Command:
    """`--output`, `--report` and `--quiet`, given to the command as `output`."""

    @click.option(
        "--output", "form", type=click.Choice(["text", "json"]), default="text", help="How to show the report."
    )
    @click.option(
        "--report",
        "report_path",
        type=click.Path(path_type=Path),
        help="Write the report here, too: a page if it ends in .html, else JSON.",
    )
    @click.option("--quiet", is_flag=True, help="Say nothing if all is well.")
    @wraps(command)
    def wrapped(*args: Any, form: str, report_path: Path | None, quiet: bool, **kwargs: Any) -> Any:
        _check_report_path(report_path)
        return command(*args, output=Output(form == "json", quiet, report_path), **kwargs)

    return wrapped


def cursor_options(command: Command) -> Command:
    """`--full` and `--since`, given to the command as `is_full` and `since`."""
    since = click.option("--since", metavar="VALUE", help="Read from this value of the cursor on.")
    full = click.option("--full", "is_full", is_flag=True, help="Read everything, from the cursor's start on.")
    return full(since(command))


def refuse_both(is_full: bool, since: str | None) -> None:
    """Raise ConfigurationError when both of the cursor's options were given."""
    if is_full and since is not None:
        raise ConfigurationError("--full reads everything, and --since a part: give one of them")


def dry_run_option(command: Command) -> Command:
    """`--dry-run`, given to the command as `is_dry`."""
    return click.option("--dry-run", "is_dry", is_flag=True, help="Only say what would be done, as plan does.")(command)


def run_flow(flow: Callable[[Stop, Progress], Coroutine[Any, Any, Report]], output: Output) -> Report:
    """Run one flow to its end, with progress shown and signals heard."""

    async def run() -> Report:
        with stop_on_signals() as stop, show_progress(output.console, is_quiet=output.is_quiet) as progress:
            return await flow(stop, progress)

    _spare_collecting()
    try:
        return uvloop.run(run())
    finally:
        gc.unfreeze()  # else DuckDB's package tells of all that is still there when the process ends


def _spare_collecting() -> None:
    """Have Python look for garbage in circles less often: it cost 50 µs a create, of 360, measured.

    What is loaded by now is never garbage; what a run makes is nearly all freed by its counts.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def finish(report: Report, output: Output) -> NoReturn:
    """Show the report and end the process with its exit code."""
    show(report, output)
    end(report.as_json(), report.exit_code, output)


def end(report: dict[str, Any], exit_code: int, output: Output) -> NoReturn:
    """Hand over the JSON of one run or several and end the process; what cannot be handed over is told."""
    try:
        if output.is_json:
            click.echo(_write_json(report))
        if output.report_path is not None:
            _write_report(report, output.report_path)
    except OSError as error:
        click.echo(f"connector: the report could not be written: {error.strerror}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python fails again when it flushes
        exit_code = exit_code or 1
    sys.exit(exit_code)


def show(report: Report, output: Output) -> None:
    """Messages to stderr, the table to stdout unless that is for JSON; with `--quiet` only if something is wrong."""
    if output.is_quiet and report.status == "ok":
        return
    for message in report.messages:
        click.echo(message, err=True)
    if not output.is_json:
        show_report(report, Console())


def refuse_empty(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """For options whose empty value is a variable that was not set, and never meant."""
    if value is not None and not value.strip():
        raise click.BadParameter("must not be empty", param=parameter)
    return value


def _check_report_path(path: Path | None) -> None:
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise ConfigurationError(f"--report {path}: name a file in a folder that exists")
    if path is not None and _is_database(path):
        raise ConfigurationError(f"--report {path}: that is a database, a ledger perhaps; name another file")


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False  # it is not there; or cannot be read, and then not be taken for a report either


def _write_report(report: dict[str, Any], path: Path) -> None:
    """Beside the file first, then in its place, readable by its owner alone; a page if its name ends so."""
    is_page = path.suffix.lower() in (".html", ".htm")
    text = write_page(report).encode("utf-8", "backslashreplace").decode() if is_page else _write_json(report) + "\n"
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)


def _write_json(report: dict[str, Any]) -> str:
    """JSON whose every character can be written: a broken one in a file's name becomes an escape, as JSON has it."""
    text = json.dumps(report, ensure_ascii=False, indent=2)
    return text.encode("utf-8", "backslashreplace").decode()
