"""A quote that was never closed takes in the rows below it, up to the next quote or the end. Where these are plainly
rows, its record ends with its line after all, and they are read. The next quote may be one that was never closed
either: its line is then a record of its own.

Plainly: every quote in them stands around a cell, and most of the first of them are as wide as the header. In a cell of
several lines that is whole but for a quote within, the closing quote would stand where none should.
"""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from connector.extract.csv.records import Records, find_records

_LINE_END = re.compile(rb"\r\n|\n|\r")
_ROWS_LOOKED_AT = 20  # below a quote that was not closed; of the lines of a text hardly any looks like a row
_MOST_ARE_ROWS = 0.8  # some may be ragged for reasons of their own


def end_runaways(block: bytes, records: Records, delimiter: str, width: int, quote: str) -> Records:
    """Give the records of a block with each that plainly took in others cut into its first line and those."""
    suspects = set(np.searchsorted(records.nexts, records.strays, side="right").tolist())
    suspects |= {len(records) - 1} if records.is_unclosed else set()
    for place in sorted(suspects, reverse=True):  # the last first, so that the places before it stay what they are
        start, end = int(records.starts[place]), int(records.nexts[place])
        text = block[start:end]
        line = find_runaway(text, delimiter, width, quote, is_last=True)
        is_second_open = not line and bool(line := _find_second(text, delimiter, width, quote))
        if line:
            records = _cut(block, records, place, start + line, delimiter, quote, is_second_open=is_second_open)
    return records


def find_runaway(text: bytes, delimiter: str, width: int, quote: str, *, is_last: bool) -> int:
    """How long the first line of a text is, its end included, if what is below it are plainly rows; else 0."""
    found = _LINE_END.search(text)
    if found is None or width < 2:
        return 0
    below = text[found.end() :]
    records = find_records(below, delimiter, is_last=is_last, quote=quote)
    if not len(records) or not records.is_orderly or records.is_unclosed:
        return 0
    rows = [below[start:stop] for start, stop in zip(records.starts, records.stops, strict=True)]
    return found.end() if _are_rows(rows, delimiter, width, quote) else 0


def _find_second(text: bytes, delimiter: str, width: int, quote: str) -> int:
    """The same where the rows below end with a line whose quote is not closed either, and which is as wide as they."""
    found = _LINE_END.search(text)
    if found is None or width < 2:
        return 0
    below = text[found.end() :]
    records = find_records(below, delimiter, is_last=True, quote=quote)
    if not records.is_orderly or not records.is_unclosed:
        return 0
    *rows, last = (below[start:stop] for start, stop in zip(records.starts, records.stops, strict=True))
    is_a_line = _LINE_END.search(last.rstrip(b"\r\n")) is None and last.count(delimiter.encode()) == width - 1
    return found.end() if is_a_line and (not rows or _are_rows(rows, delimiter, width, quote)) else 0


def _are_rows(records: Sequence[bytes], delimiter: str, width: int, quote: str) -> bool:
    """Whether most of the first of them are as wide as the header."""
    first = records[:_ROWS_LOOKED_AT]
    widths = [_count_cells(record, delimiter, quote) for record in first if record.strip()]
    return widths.count(width) > _MOST_ARE_ROWS * len(widths)


def _count_cells(record: bytes, delimiter: str, quote: str) -> int:
    text = io.StringIO(record.decode("utf-8", "replace"), newline="")
    return len(next(csv.reader(text, delimiter=delimiter, quotechar=quote), []))


def _cut(
    block: bytes, records: Records, place: int, at: int, delimiter: str, quote: str, *, is_second_open: bool
) -> Records:
    below = find_records(block[at : int(records.nexts[place])], delimiter, is_last=True, quote=quote)
    if is_second_open:
        below.stops[-1] = records.stops[place] - at  # and not where the next record begins
    line = block[int(records.starts[place]) : at]
    stop = at - len(line) + len(line.rstrip(b"\r\n"))
    strays = records.strays[(records.strays < records.starts[place]) | (records.strays >= records.nexts[place])]
    return replace(
        records,
        starts=np.concatenate([records.starts[: place + 1], below.starts + at, records.starts[place + 1 :]]),
        stops=np.concatenate([records.stops[:place], [stop], below.stops + at, records.stops[place + 1 :]]),
        nexts=np.concatenate([records.nexts[:place], [at], below.nexts + at, records.nexts[place + 1 :]]),
        strays=strays,
        is_unclosed=records.is_unclosed and place != len(records) - 1,
        broken=(
            place,
            *([place + len(below)] if is_second_open else []),
            *(later + len(below) for later in records.broken),
        ),
    )
