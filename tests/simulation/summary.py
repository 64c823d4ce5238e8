"""Prints the coverage of the simulation at the end of a test run. The tests record the figures as properties."""

import json
from collections import defaultdict
from typing import Any

from _pytest.terminal import TerminalReporter


def print_summary(terminal: TerminalReporter) -> None:
    """Print the table of phases and settings, and the points at which processes died. Print nothing without figures."""
    reports = terminal.getreports("passed") + terminal.getreports("failed")
    recorded_properties = [
        (name, json.loads(str(value))) for report in reports for name, value in report.user_properties if name in _PRINT
    ]
    for property_name, print_values in _PRINT.items():
        values = [value for name, value in recorded_properties if name == property_name]
        if values:
            print_values(terminal, values)


def _print_coverage(terminal: TerminalReporter, values: list[Any]) -> None:
    for seed_total, rows in values:
        terminal.section(f"phases and settings that the simulation reached in {seed_total} seeds")
        terminal.write_line(f"{'':14}{'':44}{'seeds':>8}{'hits':>8}")
        for group, name, seed_count, hit_count in rows:
            terminal.write_line(f"{group:14}{name:44}{seed_count:8}{hit_count:8}")


def _print_deaths(terminal: TerminalReporter, values: list[Any]) -> None:
    terminal.section("number of points at which a process died")
    deaths: dict[str, list[str]] = defaultdict(list)
    for name, ending_name, number in values:
        deaths[name].append(f"{number} {ending_name}")
    for name, points in sorted(deaths.items()):
        terminal.write_line(f"{name:44}{', '.join(points)}")


_PRINT = {"simulated": _print_coverage, "died": _print_deaths}
