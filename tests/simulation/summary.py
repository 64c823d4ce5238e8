"""Prints the coverage of the simulation at the end of a test run. The tests record the figures as properties."""

import json
from collections import defaultdict
from typing import Any

from _pytest.terminal import TerminalReporter


def print_summary(terminal: TerminalReporter) -> None:
    """Print the table of faults and settings, and the numbers of kill points. Print nothing if no test recorded
    figures."""
    reports = terminal.getreports("passed") + terminal.getreports("failed")
    recorded_properties = [
        (name, json.loads(str(value)))
        for report in reports
        for name, value in report.user_properties
        if name in _PRINT_FUNCTION_BY_TEST_PROPERTY
    ]
    for property_name, print_values in _PRINT_FUNCTION_BY_TEST_PROPERTY.items():
        recorded_values = [value for name, value in recorded_properties if name == property_name]
        if recorded_values:
            print_values(terminal, recorded_values)


def _print_coverage(terminal: TerminalReporter, recorded_values: list[Any]) -> None:
    for total_seed_count, rows in recorded_values:
        terminal.section(f"faults, settings and ends of runs that the simulation reached in {total_seed_count} seeds")
        terminal.write_line(f"{'':14}{'':44}{'seeds':>8}{'events':>8}")
        for group, name, seed_count, event_count in rows:
            terminal.write_line(f"{group:14}{name:44}{seed_count:8}{event_count:8}")


def _print_kill_points(terminal: TerminalReporter, recorded_values: list[Any]) -> None:
    terminal.section("number of points at which a process was killed")
    texts_by_scenario: dict[str, list[str]] = defaultdict(list)
    for name, kill_kind, point_count in recorded_values:
        texts_by_scenario[name].append(f"{point_count} {kill_kind}")
    for name, scenario_texts in sorted(texts_by_scenario.items()):
        terminal.write_line(f"{name:52} {', '.join(scenario_texts)}")


_PRINT_FUNCTION_BY_TEST_PROPERTY = {"coverage": _print_coverage, "kill_points": _print_kill_points}
