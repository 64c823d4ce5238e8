"""How a benchmark says what it found: a table for people, what was promised, and one line of JSON."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

_ANSWERS = {True: "yes", False: "no", None: "not measured"}


@dataclass(frozen=True, slots=True)
class Promise:
    """A figure that the project promises, what was measured, and whether it was kept: None if it was not measured."""

    what: str
    promised: str
    measured: str
    value: float
    is_kept: bool | None


def at_least(what: str, bound: float, measured: float, form: str) -> Promise:
    """A promise of `bound` or more; `form` writes either number. What is NaN was not measured."""
    return _compare(what, ">=", bound, measured, form, is_kept=measured >= bound)


def at_most(what: str, bound: float, measured: float, form: str) -> Promise:
    """A promise of `bound` or less."""
    return _compare(what, "<=", bound, measured, form, is_kept=measured <= bound)


def write_number(form: str, number: float) -> str:
    """The number in that form, or a dash for NaN."""
    return "-" if math.isnan(number) else form.format(number)


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """The first column to the left, the others to the right, each as wide as it needs to be."""
    lines = [tuple(header), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *others in lines:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        print("  ".join([first.ljust(widths[0]), *cells]).rstrip())


def print_promises(promises: Iterable[Promise]) -> None:
    """A table of them, after a blank line."""
    print()
    rows = ((promise.what, promise.promised, promise.measured, _ANSWERS[promise.is_kept]) for promise in promises)
    print_table(("promise", "promised", "measured", "kept"), rows)


def print_json(benchmark: str, machine: Mapping[str, object], promises: Iterable[Promise], **values: object) -> None:
    """The same, and what it was measured on, as one line; a number that is none is null."""
    record = {"benchmark": benchmark, **values, "promises": [asdict(promise) for promise in promises], **machine}
    print(json.dumps(_clean(record), allow_nan=False))


def _compare(what: str, sign: str, bound: float, measured: float, form: str, *, is_kept: bool) -> Promise:
    is_promise_kept = None if math.isnan(measured) else is_kept
    return Promise(what, f"{sign} {form.format(bound)}", write_number(form, measured), measured, is_promise_kept)


def _clean(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _clean(cell) for name, cell in value.items()}
    return [_clean(part) for part in value] if isinstance(value, list | tuple) else value
