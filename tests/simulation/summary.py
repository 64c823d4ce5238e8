"""Prints the coverage of the simulation at the end of a test run. The figures are in the reports of the tests."""

import json
from collections import defaultdict
from typing import Any

from _pytest.terminal import TerminalReporter


def print_summary(terminal: TerminalReporter) -> None:
    """The table of phases and settings, and the points at which a process died; nothing where none was met."""
    reports = terminal.getreports("passed") + terminal.getreports("failed")
    told = [
        (name, json.loads(str(value))) for report in reports for name, value in report.user_properties if name in _PRINT
    ]
    for wanted, show in _PRINT.items():
        values = [value for name, value in told if name == wanted]
        if values:
            show(terminal, values)


def _print_coverage(terminal: TerminalReporter, values: list[Any]) -> None:
    for seeds, rows in values:
        terminal.section(f"the simulation met, in {seeds} seeds")
        terminal.write_line(f"{'':14}{'':44}{'seeds':>8}{'hits':>8}")
        for group, name, met, hits in rows:
            terminal.write_line(f"{group:14}{name:44}{met:8}{hits:8}")


def _print_deaths(terminal: TerminalReporter, values: list[Any]) -> None:
    terminal.section("the process died at each of so many points")
    deaths: dict[str, list[str]] = defaultdict(list)
    for name, way, number in values:
        deaths[name].append(f"{number} {way}")
    for name, points in sorted(deaths.items()):
        terminal.write_line(f"{name:44}{', '.join(points)}")


_PRINT = {"simulated": _print_coverage, "died": _print_deaths}
