"""The output of a command: its report on standard output and in files, and the alerts of a job."""

from __future__ import annotations

import gc
import io
import json
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

import click

from connector.atomic_file import TargetKind, read_target_kind, refuse_foreign_file, replace_content
from connector.errors import ConfigurationError, ConnectorError, RunAborted
from connector.texts import escape_json
from pipelines.cli.logs import catch_warnings, is_logging, is_utf8, log_runs, show_message, start_logging, write_stderr
from pipelines.cli.options import CommandFunction, add_output_options, metrics_option
from pipelines.report.page import build_page, is_report

if TYPE_CHECKING:
    from connector.clock import Clock
    from connector.control import Stop
    from connector.jobs.models import Job
    from connector.progress import Progress
    from connector.runs.report import Report
    from connector.settings import Settings
    from pipelines.report.console import PlainConsole

    Flow = Callable[[Stop, Progress], Coroutine[Any, Any, Report]]


# Metrics


_METRICS_FILE_MODE = 0o644  # Prometheus reads the file as another user, and the file has only counts and job names
_METRICS_BEGINNING = b"# HELP connector_"
_LABEL_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

_HELP_BY_METRIC = {
    "start_timestamp_seconds": "Start of the last run, in Unix seconds.",
    "end_timestamp_seconds": "End of the last run, in Unix seconds.",
    "duration_seconds": "Duration of the last run.",
    "status": "Whether the last run ended with this status.",
    "rows_read": "Rows that the last run read. In an export: listed subscribers.",
    "rows": "Rows of the last run by their outcome.",
    "opt_outs": "Subscribers that the last run found inactive in the source and active in the service.",
    "requests": 'Requests of the last run by operation and result. The value with result="sent" counts all requests.',
}


def check_metrics_path(path: Path) -> None:
    """Raise ConfigurationError unless the path is a new file, an empty file or a file of earlier metrics."""
    if path.suffix != ".prom":
        raise ConfigurationError(
            f"--metrics {path}: name a file that ends in .prom, because Prometheus reads no other files"
        )
    refuse_foreign_file("--metrics", path, lambda beginning: beginning.startswith(_METRICS_BEGINNING))


def write_metrics(report: Mapping[str, Any], path: Path) -> None:
    """Write the metrics of a report. The report of a plan does not change the file. Raises OSError and
    ConfigurationError."""
    check_metrics_path(path)
    if report.get("planned"):
        return
    samples = list(_list_samples(report))
    lines: list[str] = []
    for metric, help_text in _HELP_BY_METRIC.items():
        metric_name = f"connector_last_run_{metric}"
        lines += [f"# HELP {metric_name} {help_text}", f"# TYPE {metric_name} gauge"]
        for sample_metric, labels, value in samples:
            if sample_metric == metric:
                label_text = ",".join(f'{label}="{text.translate(_LABEL_ESCAPES)}"' for label, text in labels.items())
                lines.append(f"{metric_name}{{{label_text}}} {value:.15g}")
    replace_content(path, "\n".join([*lines, ""]).encode("utf-8", "backslashreplace"), mode=_METRICS_FILE_MODE)


def _list_samples(report: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str], float]]:
    from connector.runs.report import Status

    labels = {"command": report["command"], "job": report["job"]}
    started_at, finished_at = (datetime.fromisoformat(report[key]).timestamp() for key in ("started_at", "finished_at"))
    yield "start_timestamp_seconds", labels, started_at
    yield "end_timestamp_seconds", labels, finished_at
    yield "duration_seconds", labels, round(finished_at - started_at, 6)
    for status in get_args(Status):
        yield "status", {**labels, "status": status}, status == report["status"]
    for outcome, count in report["rows"].items():
        if outcome == "read":
            yield "rows_read", labels, count
        else:
            yield "rows", {**labels, "outcome": outcome}, count
    yield "opt_outs", labels, report["opt_outs"]
    for operation, counts in report["requests"].items():
        for result, count in counts.items():
            yield "requests", {**labels, "operation": operation, "result": result}, count


def get_clock() -> Clock:
    """Return the clock that the command line was run with."""
    from connector.clock import Clock, system_clock

    return click.get_current_context().find_object(Clock) or system_clock()


def write_stdout(text: str, *, is_file_content: bool = False) -> None:
    """Write text to standard output. The content of a file is written in UTF-8, unless standard output is a terminal.
    Raises RunAborted if standard output cannot be written to."""
    if sys.stdout is None:
        raise RunAborted("standard output is closed")
    if is_file_content and isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        sys.stdout.reconfigure(encoding="utf-8")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Otherwise Python fails again when it exits and flushes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise RunAborted(f"standard output cannot be written to: {error.strerror}") from None


def format_json(report: Mapping[str, Any], *, ensure_ascii: bool = False) -> str:
    """Return the report as JSON. A hidden or broken character, for example of a file name, becomes an escape of
    JSON."""
    return escape_json(json.dumps(report, ensure_ascii=ensure_ascii, indent=2))


def write_json_stdout(report: Mapping[str, Any]) -> None:
    """Write the report as JSON to standard output: in ASCII, if the stream is not in UTF-8. Raises RunAborted."""
    write_stdout(format_json(report, ensure_ascii=not is_utf8(sys.stdout)) + "\n")


@dataclass(frozen=True, slots=True)
class Output:
    """The output options of a command. With `is_json`, standard output has one JSON object and nothing else."""

    is_json: bool
    is_quiet: bool
    report_path: Path | None
    is_data_on_stdout: bool = False
    metrics_path: Path | None = None

    def refuse_to_overwrite(self, file: Path, file_description: str) -> None:
        """Raise ConfigurationError if the report would overwrite this file. The error contains `file_description`."""
        if self.report_path is not None and self.report_path.resolve() == file.resolve():
            raise ConfigurationError(f"--report {self.report_path}: this path is {file_description}. Name another file")

    def can_ask(self) -> bool:
        """Return whether the command can ask a person: standard input and the stream of the question are terminals."""
        streams = (sys.stdin, sys.stderr if self.is_json else sys.stdout)
        return all(stream is not None and stream.isatty() for stream in streams)

    def write_drawing(self, draw: Callable[[PlainConsole], None]) -> bool:
        """Write the output of `draw` to stdout, or to stderr if stdout carries data. Return whether this succeeded."""
        from pipelines.report.console import PlainConsole

        stream, buffer = sys.stderr if self.is_data_on_stdout else sys.stdout, io.StringIO()
        is_terminal = stream is not None and stream.isatty()
        draw(PlainConsole(file=buffer, force_terminal=is_terminal or None, has_unicode=is_utf8(stream)))
        if self.is_data_on_stdout:
            write_stderr(buffer.getvalue())
            return True
        return _try_to_write(lambda: write_stdout(buffer.getvalue()))


def output_options(command: CommandFunction) -> CommandFunction:
    """Add the options of `add_output_options`. The command gets `--output`, `--report` and `--quiet` in one argument,
    `output`."""

    @add_output_options
    @wraps(command)
    def wrapped_command(
        *args: Any,
        output_format: str,
        is_json: bool,
        report_path: Path | None,
        is_quiet: bool,
        verbosity: int,
        log_format: str,
        **kwargs: Any,
    ) -> Any:
        catch_warnings()
        if verbosity or log_format != "text":
            start_logging(verbosity, log_format)
        check_page_path(report_path)
        return command(*args, output=Output(is_json or output_format == "json", is_quiet, report_path), **kwargs)

    return wrapped_command


def run_options(command: CommandFunction) -> CommandFunction:
    """Add the options of `output_options`, and `--metrics`, to a command that carries out a run."""

    @output_options
    @metrics_option
    @wraps(command)
    def wrapped_command(*args: Any, metrics_path: Path | None, output: Output, **kwargs: Any) -> Any:
        if metrics_path is not None:
            check_metrics_path(metrics_path)
        return command(*args, output=replace(output, metrics_path=metrics_path), **kwargs)

    return wrapped_command


def run_flow(flow: Flow, output: Output, time_limit_s: float | None = None) -> Report:
    """Run one flow to its end, and return its report. Signals and the time limit stop the flow cleanly.

    A terminal shows the progress on one line. If there is no terminal, or with `-v`, the log shows the progress.
    """
    import uvloop

    from connector.control import stop_on_signals
    from pipelines.report.text import show_progress

    is_on_terminal = sys.stderr is not None and sys.stderr.isatty() and not output.is_quiet and not is_logging()

    async def run() -> Report:
        with stop_on_signals(get_clock()) as stop, show_progress(is_on_terminal=is_on_terminal) as progress:
            if time_limit_s is not None:
                stop.stop_after(time_limit_s)
            return await flow(stop, progress)

    gc.freeze()  # the modules that are loaded now are never garbage
    # Reference counting frees nearly all objects of a run. Searching the objects for garbage took 50 of the 360 µs of
    # a create.
    gc.set_threshold(50_000, 20, 20)
    with nullcontext() if output.is_quiet or is_on_terminal else log_runs():
        return uvloop.run(run())


def finish_run(report: Report, output: Output) -> NoReturn:
    """Show the report and end the process with its exit code."""
    is_output_complete = show_run_report(report, output)
    end_command(report.as_json(), report.exit_code, output, is_output_complete=is_output_complete)


def end_command(
    report: Mapping[str, Any], exit_code: int, output: Output, *, is_output_complete: bool = True
) -> NoReturn:
    """Write the JSON of a report, and end the process. `is_output_complete` is false if an earlier output of the
    command could not be written.

    If any output cannot be written, the exit code is 3, unless the run has an exit code above 1.
    """
    if output.is_json:
        is_output_complete = _try_to_write(lambda: write_json_stdout(report))
    if output.report_path is not None:
        path = output.report_path

        def write_report() -> None:
            check_page_path(path)  # another program may have written the file during the run
            is_page = path.suffix.lower() in (".html", ".htm")
            write_page_file(build_page(report) if is_page else format_json(report) + "\n", path)

        is_output_complete = _try_to_write(write_report) and is_output_complete
    if (metrics_path := output.metrics_path) is not None:
        is_output_complete = _try_to_write(lambda: write_metrics(report, metrics_path)) and is_output_complete
    is_recorded = "run_id" in report and not report.get("planned")
    if is_recorded and not is_output_complete:
        show_message(
            f"connector: the run ended with the status {report['status']}. To see its report, run: connector status "
            f"{report['run_id']}"
        )
    sys.exit(3 if exit_code in (0, 1) and not is_output_complete else exit_code)


def show_run_report(report: Report, output: Output) -> bool:
    """Write the messages of a report to stderr, and its table to stdout unless stdout carries data. With `--quiet`,
    write only a report that is not ok. Return whether writing succeeded.
    """
    if output.is_quiet and report.status == "ok":
        return True
    for message in report.messages:
        show_message(message)
    if output.is_json:
        return True
    from pipelines.report.advice import advise_on_run
    from pipelines.report.text import show_report, show_steps

    def draw(console: PlainConsole) -> None:
        show_report(report.as_json(), console)
        show_steps(advise_on_run(report.as_json()), console)

    return output.write_drawing(draw)


def _try_to_write(write: Callable[[], None]) -> bool:
    """Call `write`, and return whether the call succeeded. Show the reason of a failure on standard error."""
    try:
        write()
    except (OSError, ConnectorError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        show_message(f"connector: the report could not be written: {reason}")
        return False
    return True


def check_page_path(path: Path | None, option: str = "--report") -> None:
    """Raise ConfigurationError unless a report may be written to the path: a new or empty file, a device, or an earlier
    report."""
    if path is not None:
        refuse_foreign_file(option, path, is_report, may_be_device=True)


def write_page_file(text: str, path: Path) -> None:
    """Write a report to a file that only its owner can read. Raises OSError."""
    encoded_text = text.encode("utf-8", "backslashreplace")
    if read_target_kind(path) is TargetKind.DEVICE:
        path.write_bytes(encoded_text)
    else:
        replace_content(path, encoded_text)


def run_and_notify(flow: Flow, job: Job, settings: Settings, output: Output) -> Report:
    """Run the flow of a job, and send the job's alert. Call this function inside of `handle_job_start_errors`."""
    import uvloop

    from connector.control import stop_on_signals
    from connector.notifications import send_alert

    async def notify(report: Report) -> list[str]:
        with stop_on_signals(get_clock()) as stop:  # a signal stops only the alert, and the report is still shown
            return await send_alert(job.notify, report, settings.state_dir, stop)

    report = run_flow(flow, output, settings.time_limit_s)
    alert_messages = uvloop.run(notify(report))
    report.messages += alert_messages
    if output.is_quiet and report.status == "ok":  # the report and its messages are not shown
        for message in alert_messages:
            show_message(message)
    return report


@contextmanager
def handle_job_start_errors(path: Path, *, is_recorded: bool = True) -> Iterator[None]:
    """If an error ends the context, record for `status` that the job of this file did not run, and send the alert of
    the job. A run that is not recorded (a dry run, a preview or a test email) sends no alert either."""
    try:
        yield
    except ConnectorError as error:
        if not is_recorded:
            raise
        import uvloop

        from connector.control import stop_on_signals
        from connector.notifications import report_failed_start

        command, job_file, start_error = click.get_current_context().info_name or "", path.absolute(), error

        async def record_failed_start() -> tuple[str, list[str]]:
            with stop_on_signals(get_clock()) as stop:
                return await report_failed_start(command, job_file, start_error, os.environ, stop)

        error.run_id, messages = uvloop.run(record_failed_start())
        for message in messages:
            show_message(message)
        raise
