"""The question before an import on a terminal: what would be created, and five rows as they would be sent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from connector.plurals import count
from pipelines.report.text import show_report, show_value

if TYPE_CHECKING:
    from rich.console import Console

    from connector.report import Report
    from pipelines.cli.output import Output

_LONGEST = 40  # characters of a cell


def is_asking(output: Output, *, is_confirmed: bool) -> bool:
    """Return whether a person is there to be asked: standard input and output are a terminal."""
    streams = (sys.stdin, sys.stdout)
    is_terminal = all(stream is not None and stream.isatty() for stream in streams)
    return is_terminal and not (is_confirmed or output.is_json or output.is_quiet)


def confirm(report: Report, output: Output) -> bool:
    """Show the plan of an import, and return whether the person wants the subscribers created. Without any to create
    nothing is asked."""
    created, activity = report.rows["created"], report.activity or {}

    def draw(console: Console) -> None:
        show_report(report.as_json(), console)
        for message in report.messages:
            console.print(f"- {message}", soft_wrap=True, markup=False, highlight=False)
        if report.samples:
            _show_samples(report, console)

    output.show(draw)
    if not created:
        return True
    base = report.scope.base.replace("id ", "base ", 1) if report.scope.base.startswith("id ") else report.scope.base
    question = (
        f"Create {count(created, 'subscriber')} in {base} ({activity.get('active', 0):,} active, "
        f"{activity.get('inactive', 0):,} inactive)? This cannot be undone."
    )
    return click.confirm(question, default=False)


def _show_samples(report: Report, console: Console) -> None:
    """Show a line for each field, and a column for each sample: a terminal has room for few columns."""
    from rich.table import Table
    from rich.text import Text

    names = dict.fromkeys(name for sample in report.samples for name in sample if not name.startswith("base_"))
    table = Table("field", *(f"row {number}" for number in range(1, len(report.samples) + 1)))
    for name in names:
        table.add_row(name, *(Text(_write(sample.get(name)), overflow="fold") for sample in report.samples))
    console.print(f"The first {count(len(report.samples), 'subscriber')} as they would be sent:", highlight=False)
    console.print(table)


def _write(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return show_value(text, _LONGEST)
