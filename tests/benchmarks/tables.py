"""The output of a benchmark: a table for people, a table of the promises, and one line of JSON."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

_WORD_BY_IS_PROMISE_KEPT = {True: "yes", False: "no", None: "not measured"}


@dataclass(frozen=True, slots=True)
class PromisedFigure:
    """A figure that the project promises. `is_promise_kept` is None if the figure was not measured."""

    label: str
    promised_text: str
    measured_text: str
    measured_value: float
    is_promise_kept: bool | None


def promise_at_least(label: str, bound: float, measured_value: float, number_format: str) -> PromisedFigure:
    """Return the promise that the measured value is at least `bound`. `number_format` formats the bound and the value.
    A value that was not measured is NaN."""
    return _build_promised_figure(
        label, ">=", bound, measured_value, number_format, is_promise_kept=measured_value >= bound
    )


def promise_at_most(label: str, bound: float, measured_value: float, number_format: str) -> PromisedFigure:
    """Return the promise that the measured value is at most `bound`. `number_format` formats the bound and the value. A
    value that was not measured is NaN."""
    return _build_promised_figure(
        label, "<=", bound, measured_value, number_format, is_promise_kept=measured_value <= bound
    )


def format_number(number_format: str, value: float) -> str:
    """Return the number in this format, or a dash for NaN."""
    return "-" if math.isnan(value) else number_format.format(value)


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table. The first column is aligned to the left, all other columns to the right."""
    lines = [tuple(header), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first_cell, *other_cells in lines:
        cells = (cell.rjust(width) for cell, width in zip(other_cells, widths[1:], strict=True))
        print("  ".join([first_cell.ljust(widths[0]), *cells]).rstrip())


def print_promises(promises: Iterable[PromisedFigure]) -> None:
    """Print a table of the promises after a blank line."""
    print()
    rows = (
        (promise.label, promise.promised_text, promise.measured_text, _WORD_BY_IS_PROMISE_KEPT[promise.is_promise_kept])
        for promise in promises
    )
    print_table(("promise", "promised", "measured", "kept"), rows)


def print_json(
    benchmark_name: str,
    machine_description: Mapping[str, object],
    promises: Iterable[PromisedFigure],
    **json_values: object,
) -> None:
    """Print the values, the promises and the machine as one line of JSON. NaN becomes null."""
    json_object = {
        "benchmark": benchmark_name,
        **json_values,
        "promises": [asdict(promise) for promise in promises],
        **machine_description,
    }
    print(json.dumps(_replace_nan(json_object), allow_nan=False))


def _build_promised_figure(
    label: str, operator: str, bound: float, measured_value: float, number_format: str, *, is_promise_kept: bool | None
) -> PromisedFigure:
    if math.isnan(measured_value):
        is_promise_kept = None
    return PromisedFigure(
        label,
        f"{operator} {number_format.format(bound)}",
        format_number(number_format, measured_value),
        measured_value,
        is_promise_kept,
    )


def _replace_nan(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _replace_nan(cell) for name, cell in value.items()}
    return [_replace_nan(item) for item in value] if isinstance(value, list | tuple) else value
