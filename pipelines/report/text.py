"""A report as a table, and the progress of a run: on one line of stderr where that is a terminal, else in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from connector.progress import Progress
from connector.report import Report

if TYPE_CHECKING:
    from rich.console import Console

_LOGGED_EVERY_S = 30.0

logger = logging.getLogger(__name__)

_STATUS_STYLE = {"ok": "green", "partial": "yellow", "aborted": "red", "stopped": "red", "locked": "red"}


@contextmanager
def show_progress(*, is_on_terminal: bool) -> Iterator[Progress]:
    """Show progress while the context lasts: on a terminal in one line of stderr that leaves no trace, else in a line
    of the log every 30 s, so that an unattended run says what it is doing."""
    progress = Progress()
    if not is_on_terminal:
        with _log_progress(progress):
            yield progress
        return
    from rich.console import Console  # a run without a terminal does not pay for it
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    spinner = Spinner("dots")

    def render() -> Spinner:
        spinner.update(text=Text(progress.describe()))
        return spinner

    with Live(get_renderable=render, console=Console(stderr=True), refresh_per_second=8, transient=True):
        yield progress


@contextmanager
def _log_progress(progress: Progress) -> Iterator[None]:
    ended = Event()

    def log() -> None:
        while not ended.wait(_LOGGED_EVERY_S):
            logger.info("progress: %(text)s", {"text": progress.describe()})

    thread = Thread(target=log, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


def show_report(report: Report, console: Console, *, title: str | None = None) -> None:
    """Print the outcomes of a run, and where to look further."""
    from rich.markup import escape  # a run whose report is JSON does not pay for it
    from rich.table import Table

    head = title or f"{report.command} {report.job}".rstrip()  # a retry may follow no job
    head += " (planned: nothing was sent or written)" if report.is_planned else ""
    console.print(head, style="bold", soft_wrap=True, markup=False, highlight=False)
    table = Table(show_header=False)
    table.add_column("what")
    table.add_column("how many", justify="right")
    for name, number in report.rows.items():
        if number or name in ("read", "created", "written", "sent"):
            table.add_row(name, f"{number:,}")
    for name, number in report.settled.items():
        if number:
            table.add_row(f"settled: {name}", f"{number:,}")
    if report.certificate is not None:
        table.add_row("certificate", f"{report.certificate['verdict']} ({report.certificate['reason']})")
    for name in ("request_id", "message_id"):
        if report.email is not None and report.email.get(name):
            table.add_row(name.replace("_", " "), escape(str(report.email[name])))
    style = _STATUS_STYLE[report.status]
    table.add_row("status", f"[{style}]{report.status}[/]")
    console.print(table)
    if report.reconciled is not None:
        _show_differences(report.reconciled, console)
    if report.rejects_file is not None:
        console.print("rows to look at:", report.rejects_file, soft_wrap=True, markup=False, highlight=False)
    if report.drift_file is not None:
        console.print("differs from the service:", report.drift_file, soft_wrap=True, markup=False, highlight=False)


def _show_differences(reconciled: Mapping[str, Any], console: Console) -> None:
    """What differs, with a few by their ids; of the missing, who have none, by their rows."""
    from rich.table import Table

    table = Table("difference")
    table.add_column("how many", justify="right")
    table.add_column("such as", overflow="fold")
    for kind, number in reconciled["differences"].items():
        examples = ", ".join(map(str, reconciled["examples"][kind]))
        such_as = f"{'rows' if kind == 'missing' else 'ids'} {examples}" if examples else ""
        table.add_row(kind, "not known" if number is None else f"{number:,}", such_as)
        if kind == "missing":
            for state, of_state in reconciled["missing_by_ledger"].items():
                table.add_row(f"  ledger: {state}", f"{of_state:,}", "")
        if kind == "drifted":
            for name, of_field in reconciled["fields"].items():
                table.add_row(f"  {name}", f"{of_field:,}", "")
    console.print(table)
    if reconciled["differences_file"] is not None:
        path = reconciled["differences_file"]
        console.print("one by one:", path, soft_wrap=True, markup=False, highlight=False)


def show_value(value: str, longest: int) -> str:
    """Return a cell in one line, fit for a terminal: what is not printable becomes an escape."""
    plain = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in value[:longest])
    return f"{plain}…" if len(value) > longest else plain or "(empty)"
