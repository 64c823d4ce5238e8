"""Shows reports, recorded runs and explanations as text, and the progress of a run on a terminal or in the log."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TextIO, cast

from connector.outcomes import list_problem_kinds
from connector.progress import Progress
from connector.texts import escape_to_one_line
from pipelines.report.advice import split_step

if TYPE_CHECKING:
    from connector.runs.explanations import ExplainedEntry, Explanation
    from pipelines.report.console import PlainConsole

_LOG_INTERVAL_S = 30.0
_MAX_SAMPLE_LENGTH = 40  # characters of a sample value
_MAX_SHOWN_BAD_ROWS = 3  # rows that need attention, which the text of a report shows
_COLUMN_MARGIN = 3  # characters that a table column needs beside its text: two spaces and a border

logger = logging.getLogger(__name__)

STYLE_BY_STATUS = {"ok": "green", "partial": "yellow", "running": "cyan"}
"""The colour of each status. A status that is not here is red."""

_ALWAYS_SHOWN_ROWS = ("read", "created", "written", "sent")
_PLANNED_ROW_LABELS = {"created": "would create", "sent": "would send"}
_FILE_LABELS = {
    "rejects_file": "Rows to look at",
    "drift_file": "Differs from the service",
    "differences_file": "Differences one by one",
}
_SCOPE_LABELS = {"source": "Source", "destination": "Destination", "base": "Base", "account": "Account"}


class _TerminalStream:
    """The stream of a terminal. After the terminal was closed, for example by the end of an SSH session, the stream
    discards all texts, so that the run can still end cleanly."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write a text, unless the terminal was closed."""
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        """Send written texts to the terminal, unless the terminal was closed."""
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        """Return another attribute of the stream, such as its encoding."""
        return getattr(self._stream, name)


@contextmanager
def show_progress(*, is_on_terminal: bool) -> Iterator[Progress]:
    """Show progress while the context lasts. On a terminal, one line of stderr shows the progress and disappears at the
    end. Without a terminal, the log gets a line every 30 s, so that an unattended run shows its progress."""
    progress = Progress()
    if not is_on_terminal:
        end_event = Event()

        def log_progress() -> None:
            while not end_event.wait(_LOG_INTERVAL_S):
                logger.info("progress: %(text)s", {"text": progress.describe()})

        Thread(target=log_progress, daemon=True).start()
        try:
            yield progress
        finally:
            end_event.set()
        return
    from rich.live import Live  # imported here, because only a run on a terminal needs this module
    from rich.spinner import Spinner
    from rich.text import Text

    from pipelines.report.console import PlainConsole

    console = PlainConsole(file=cast("TextIO", _TerminalStream(sys.stderr)))
    spinner = Spinner("line" if console.options.ascii_only else "dots")

    def render() -> Spinner:
        spinner.update(text=Text(progress.describe()))
        return spinner

    with Live(get_renderable=render, console=console, refresh_per_second=8, transient=True):
        yield progress


def show_report(report: Mapping[str, Any], console: PlainConsole, *, title: str | None = None) -> None:
    """Print the outcomes of a run from the JSON of its report, and the paths of its files."""
    from rich.markup import escape  # imported here, because a report in JSON does not need this module
    from rich.table import Table

    heading = title or f"{report['command']} {report['job']}".rstrip()  # a retry without --job has no job name
    heading += " (planned: nothing was sent)" if report.get("planned") else ""
    console.write_text(heading, "bold")
    table = Table(show_header=False)
    table.add_column("what")
    table.add_column("how many", justify="right")
    for name, count_text in list_rows(report):
        table.add_row(name, count_text)
        # A validation reports `valid` instead of `created`, because it does not know which subscribers exist.
        counted_outcome = "created" if "created" in report["rows"] else "valid"
        is_counted = name in (counted_outcome, _PLANNED_ROW_LABELS.get(counted_outcome))
        if is_counted and report["rows"][counted_outcome] and (activity := report.get("activity")):
            for kind, kind_count in activity.items():
                table.add_row(f"  {kind}", f"{kind_count:,}")
    if opt_outs := report.get("opt_outs"):
        new_count = ((report.get("problems") or {}).get("kinds", {}).get("opted_out") or {}).get("new", 0)
        table.add_row("opted out, still active", f"{opt_outs:,}" + (f" ({new_count:,} new)" if new_count else ""))
    for name, create_count in (report.get("settled") or {}).items():
        if create_count:
            table.add_row(f"settled: {name}", f"{create_count:,}")
    if certificate := report.get("certificate"):
        table.add_row("certificate", f"{certificate['verdict']} ({certificate['reason']})")
    for name in ("request_id", "message_id"):
        if value := (report.get("email") or {}).get(name):
            table.add_row(name.replace("_", " "), escape(str(value)))
    status = report["status"]
    table.add_row("status", f"[{STYLE_BY_STATUS.get(status, 'red')}]{status}[/]")
    console.print(table)
    if "differences" in report:
        _show_differences(report, console)
    for row_text in list_bad_rows(report):
        console.write_text(row_text, indent=2)
    for name, path in list_files(report):
        console.write_text(f"{name}: {path}")
    if samples := report.get("samples"):
        _show_samples(samples, console)


def show_steps(steps: Iterable[str], console: PlainConsole) -> None:
    """Print the next steps."""
    for step in steps:
        _show_step(f"Next: {step}", console)


def _show_step(step: str, console: PlainConsole, indent: int = 0) -> None:
    """Print a step. If the step has a command, the command has its own line, so that a person can copy the command."""
    sentence, command = split_step(step)
    console.write_text(sentence, indent=indent)
    if command:
        console.print(f"{' ' * indent}  {command}", soft_wrap=True, markup=False, highlight=False)


def show_preview(report: Mapping[str, Any], console: PlainConsole) -> None:
    """Print the plan of an import: its messages and outcomes, and some subscribers as they would be sent."""
    for message in report["messages"]:
        console.write_text(f"- {message}", indent=2)
    show_report(report, console)


def _show_samples(samples: Sequence[Mapping[str, object]], console: PlainConsole) -> None:
    """Show a line for each field, and a column for each sample. Columns that do not fit on the terminal are
    shown in another table below."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    names = list(dict.fromkeys(name for sample in samples for name in sample if not name.startswith("base_")))
    columns = [[_format_value(sample.get(name)) for name in names] for sample in samples]
    column_indices_of_tables, table_width = list[list[int]](), 0
    for index, column in enumerate(columns):
        width = max(map(cell_len, column)) + _COLUMN_MARGIN
        if not column_indices_of_tables or table_width + width > console.width:
            column_indices_of_tables.append([])
            table_width = max(map(len, names)) + _COLUMN_MARGIN + 1
        column_indices_of_tables[-1].append(index)
        table_width += width
    title = "The subscriber as it" if len(samples) == 1 else f"The first {len(samples)} subscribers as they"
    console.print(f"{title} would be sent:", highlight=False)
    for column_indices in column_indices_of_tables:
        table = Table("field", *(str(index + 1) for index in column_indices))
        for row_index, name in enumerate(names):
            table.add_row(name, *(Text(columns[index][row_index], overflow="fold") for index in column_indices))
        console.print(table)


def _format_value(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return format_cell(text, _MAX_SAMPLE_LENGTH)


def show_run(run: Mapping[str, Any], console: PlainConsole) -> None:
    """Print one recorded run: its report, the facts about it, and its messages."""
    show_report(run, console)
    for name, value in list_facts(run):
        console.write_text(f"{name}: {value}")
    for message in run.get("messages") or ():
        console.write_text(f"- {message}", indent=2)


def show_runs(runs: Sequence[Mapping[str, Any]], console: PlainConsole) -> None:
    """Print each recorded run: a line, a line with its row counts, and its message if the run did not finish."""
    from rich.text import Text

    for run in runs:
        started_at = datetime.fromisoformat(run["started_at"])
        line = Text(f"{run['run_id']}  {started_at:%Y-%m-%d %H:%M:%S} UTC  {_format_duration(run):>9}  ")
        line.append(f"{run['status']:8}", STYLE_BY_STATUS.get(run["status"], "red"))
        console.print(line.append(f"  {run['command']} {run['job']}".rstrip()), soft_wrap=True, highlight=False)
        rows_text = ", ".join(_join_row(name, count_text) for name, count_text in list_rows(run))
        if rows_text and (any(run["rows"].values()) or not run.get("messages")):
            console.write_text(f"    {rows_text}", indent=4)
        if run["status"] in ("usage", "aborted", "locked") and run.get("messages"):
            console.write_text(f"    {run['messages'][0]}", indent=4)


def _join_row(name: str, count_text: str) -> str:
    """Return `2 invalid (1 new)` for the name `invalid` and the count `2 (1 new)`."""
    total_text, opening_bracket, new_count_text = count_text.partition(" (")
    return f"{total_text} {name}{opening_bracket}{new_count_text}"


def show_explanation(explanation: Explanation, console: PlainConsole) -> None:
    """Print what the ledger and past runs know about one subscriber: a paragraph for each base."""
    for message in explanation.messages:
        console.write_text(message)
    for entry in explanation.entries:
        base_text = entry.base_name if entry.base_id is None else f"{entry.base_name or 'base'} (id {entry.base_id})"
        console.write_text(f"{base_text}: {entry.state}", "bold")
        for name, value in _list_entry_facts(entry):
            _show_step(f"  {name:<12}{value}", console, indent=14)
    for problem in explanation.problems:
        base_text = f" for the base {problem.base}" if problem.base else ""
        field_text = f" ({problem.field})" if problem.field else ""
        seen_period_text = f"from {problem.first_seen[:10]} to {problem.last_seen[:10]}"
        kind_text = problem.kind.replace("_", " ")
        problem_text = f"{kind_text}{field_text} in the job {problem.job}{base_text}, {seen_period_text}"
        _show_step(f"{problem_text}. To see the last run, run: connector status {problem.run_id}", console)


def _list_entry_facts(entry: ExplainedEntry) -> Iterator[tuple[str, str]]:
    yield "account", entry.account
    yield "identity", entry.identity_field
    if entry.subscriber_id is not None:
        yield "Id", str(entry.subscriber_id)
    yield "meaning", entry.meaning
    if entry.message is not None:
        yield "message", f"{entry.http_status}: {entry.message}" if entry.http_status else entry.message
    if (run := entry.run) is not None:
        started_at = datetime.fromisoformat(run.started_at)
        status_text = f", {run.status}" if run.status else ""
        run_name = f"{run.command} {run.job}".rstrip()  # a retry without --job has no job name
        yield "last run", f"{run.run_id} ({run_name}), {started_at:%Y-%m-%d %H:%M:%S} UTC{status_text}"
        if run.rejects_file is not None and entry.state != "confirmed":
            yield "rejects", run.rejects_file
    if entry.altered_fields:
        yield "altered", f"The service stored other values than were sent: {', '.join(entry.altered_fields)}."
    yield "next", entry.next_step or "Nothing to do."


def list_rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each outcome of a run with its row count. Leave out outcomes without rows, except the outcomes in
    `_ALWAYS_SHOWN_ROWS`."""
    rows, counts_by_problem_kind = report.get("rows") or {}, (report.get("problems") or {}).get("kinds", {})
    for outcome, row_count in rows.items():
        problem_kinds = [kind for kind in list_problem_kinds(outcome) if kind in counts_by_problem_kind]
        new_count = sum(counts_by_problem_kind[kind]["new"] for kind in problem_kinds)
        if row_count or outcome in _ALWAYS_SHOWN_ROWS:
            label = _PLANNED_ROW_LABELS.get(outcome, outcome) if report.get("planned") else outcome
            new_text = f" ({new_count:,} new)" if new_count and report["command"] == "sync" else ""
            yield label, f"{row_count:,}{new_text}"
        if outcome == "read" and report.get("planned") and "created" in rows:
            yield "valid", f"{row_count - rows['invalid'] - rows['duplicate'] - rows['suppressed']:,}"


def list_bad_rows(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the first rows that need attention, from the examples in the report's `causes`: row numbers and reasons,
    without values. The entries of a retry have no row numbers."""
    reasons_by_row: dict[tuple[str, int, str], list[str]] = {}
    for cause in () if report["command"] == "retry" else report.get("causes") or ():
        for example in cause["examples"]:
            if example["row"]:
                row = example["file"], example["row"], cause["outcome"]
                reasons_by_row.setdefault(row, []).append(cause["message"])
    has_several_files = len({file for file, _, _ in reasons_by_row}) > 1
    for (file, number, outcome), reasons in sorted(reasons_by_row.items())[:_MAX_SHOWN_BAD_ROWS]:
        file_text = f" of {file}" if has_several_files else ""
        yield escape_to_one_line(f"Row {number:,}{file_text} ({outcome}): {'; '.join(reasons)}")


def list_files(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a label and the path of each file that a run wrote for a person."""
    for name, label in _FILE_LABELS.items():
        if report.get(name):
            yield label, str(report[name])


def list_facts(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the label and the value of each fact: source, destination, base, account, times and requests."""
    for name, label in _SCOPE_LABELS.items():
        if report.get(name):
            yield label, report[name]
    if report.get("started_at"):
        yield "Started", f"{datetime.fromisoformat(report['started_at']):%Y-%m-%d %H:%M:%S} UTC"
        yield "Duration", _format_duration(report)
    if report.get("run_id"):
        yield "Run", report["run_id"]
    request_texts = []  # for example `6,000 create (12 limited, 3 failed)`
    for name, counts in (report.get("requests") or {}).items():
        results_text = ", ".join(
            f"{request_count:,} {result}"
            for result, request_count in counts.items()
            if request_count and result != "sent"
        )
        if counts["sent"]:
            request_texts.append(f"{counts['sent']:,} {name}{f' ({results_text})' if results_text else ''}")
    if request_texts:
        yield "Requests", "; ".join(request_texts)


def _format_duration(report: Mapping[str, Any]) -> str:
    duration_s = measure_duration(report)
    return format_seconds(duration_s) if duration_s is not None else "-"


def measure_duration(report: Mapping[str, Any]) -> float | None:
    """Return the duration of a run in seconds, or None if the end of the run is not recorded."""
    if not report.get("finished_at"):
        return None
    started_at, ended_at = (datetime.fromisoformat(report[key]) for key in ("started_at", "finished_at"))
    return (ended_at - started_at).total_seconds()


def format_seconds(seconds: float) -> str:
    """Return a duration as text: `3.2 s`, `4 min 10 s`, `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"
    minutes, remaining_s = divmod(round(seconds), 60)
    return f"{minutes} min {remaining_s} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _show_differences(report: Mapping[str, Any], console: PlainConsole) -> None:
    """Print the number of each kind of difference, with examples: subscriber ids, or row numbers for missing
    subscribers."""
    from rich.table import Table

    table = Table("difference")
    table.add_column("how many", justify="right")
    table.add_column("such as", overflow="fold")
    for kind, difference_count in report["differences"].items():
        numbers_text = ", ".join(map(str, report["examples"][kind]))
        examples_text = f"{'rows' if kind == 'missing' else 'ids'} {numbers_text}" if numbers_text else ""
        table.add_row(kind, "not known" if difference_count is None else f"{difference_count:,}", examples_text)
        if kind == "missing":
            for state, state_count in report["missing_by_ledger"].items():
                table.add_row(f"  ledger: {state}", f"{state_count:,}", "")
        if kind == "drifted":
            for name, drifted_count in report["fields"].items():
                table.add_row(f"  {name}", f"{drifted_count:,}", "")
    console.print(table)


def format_cell(value: str, max_length: int) -> str:
    """Return the first `max_length` characters of a cell for one line of a terminal. Unprintable characters become
    escapes."""
    visible_text = "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in value[:max_length]
    )
    return f"{visible_text}…" if len(value) > max_length else visible_text or "(empty)"
