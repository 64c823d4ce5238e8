"""Where the records of a block of CSV begin and end, in whole columns of positions at once; quotes that never close.

It obeys the rules of pyarrow's parser: a quote counts only where a field begins, a doubled one is a quote, and a
record ends at LF, CR LF or CR outside quotes. One rule is its own: spaces before an opening quote, as in `a, "b"`, are
no part of the cell.

A quote that was never closed takes in the rows below it, up to the next quote or the end. Where these are plainly
rows, its record ends with its line after all, and they are read (`end_runaways`). Plainly: every quote in them stands
around a cell, and most of the first of them are as wide as the header.
"""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]

_LF, _CR, _SPACE = 0x0A, 0x0D, 0x20
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a block, blank lines included: byte positions where each begins, where its text ends, and
    where the next begins. `strays`: closing quotes after which their cell goes on, as in `"Jo"x`. `indents`: spaces
    before an opening quote. `ambiguous`: first quotes of pairs inside an unquoted cell that enclose a delimiter, as in
    `Ann"Lee, Jr"`. `is_orderly`: quotes stand around cells only, and within them doubled. `is_unclosed`: a
    quote in the last record is still open where the file ends. `broken`: indices of records that were cut at the end of
    the line on which a quote of theirs was opened (`end_runaways`)."""

    starts: Positions
    stops: Positions
    nexts: Positions
    strays: Positions
    indents: Positions
    ambiguous: Positions
    is_orderly: bool
    is_unclosed: bool
    broken: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.starts)


def find_records(block: bytes, delimiter: str, *, is_last: bool, quote: str = '"') -> Records:
    """Find the records that end in `block`, which begins where a record does; all of it if it `is_last`."""
    octets = np.frombuffer(block, dtype=np.uint8)
    stops, nexts = _find_line_ends(block, octets, is_last=is_last)
    quoted = _find_quoted(octets, ord(delimiter), ord(quote))
    if len(quoted.opened):
        field = np.searchsorted(quoted.opened, stops) - 1
        is_outside = (field < 0) | (stops > quoted.closed[field])
        stops, nexts = stops[is_outside], nexts[is_outside]
    if is_last and len(block) > (nexts[-1] if len(nexts) else 0):
        stops, nexts = np.append(stops, len(block)), np.append(nexts, len(block))
    starts = np.concatenate([np.zeros(min(1, len(nexts)), dtype=np.int64), nexts[:-1]])
    is_unclosed = is_last and bool(len(quoted.closed)) and bool(quoted.closed[-1] == _NEVER)
    end = nexts[-1] if len(nexts) else 0
    strays, indents = quoted.strays[quoted.strays < end], quoted.indents[quoted.indents < end]
    ambiguous = _find_ambiguous(block, quoted, nexts, delimiter)
    return Records(starts, stops, nexts, strays, indents, ambiguous, quoted.is_orderly, is_unclosed)


def find_blank(block: bytes, records: Records, delimiter: str) -> npt.NDArray[np.bool_]:
    """Tell which records are lines with nothing on them, or with blanks alone; a delimiter is no blank."""
    is_blank: npt.NDArray[np.bool_] = records.stops == records.starts
    blanks = bytes(octet for octet in b" \t" if octet != ord(delimiter))
    octets = np.frombuffer(block, dtype=np.uint8)
    is_edge = np.zeros(256, dtype=bool)
    is_edge[list(blanks)] = True
    # Hardly any record both begins and ends with a blank: only those are looked at whole.
    filled = np.flatnonzero(~is_blank)
    edged = filled[is_edge[octets[records.starts[filled]]] & is_edge[octets[records.stops[filled] - 1]]]
    for index in edged.tolist():
        is_blank[index] = not block[records.starts[index] : records.stops[index]].strip(blanks)
    return is_blank


def _find_line_ends(block: bytes, octets: npt.NDArray[np.uint8], *, is_last: bool) -> tuple[Positions, Positions]:
    """Where lines end and where the next ones begin, quotes disregarded."""
    feeds = np.flatnonzero(octets == _LF)
    if b"\r" not in block:
        return feeds, feeds + 1
    returns = np.flatnonzero(octets == _CR)
    if len(returns) and returns[-1] == len(block) - 1 and not is_last:
        returns = returns[:-1]  # its LF may be the first byte of the next block
    following = octets[np.minimum(returns + 1, len(block) - 1)]
    pairs = returns[following == _LF]
    alone = returns[following != _LF]
    bare_feeds = np.setdiff1d(feeds, pairs + 1, assume_unique=True)
    stops = np.concatenate([pairs, alone, bare_feeds])
    nexts = np.concatenate([pairs + 2, alone + 1, bare_feeds + 1])
    order = np.argsort(stops, kind="stable")
    return stops[order], nexts[order]


def _find_ambiguous(block: bytes, quoted: "_Quoted", nexts: Positions, delimiter: str) -> Positions:
    """The quotes inside unquoted cells that open, if taken as quotes, a stretch with a delimiter in it.

    They are taken by pairs within a record; one that has no partner (`12" screen`) is a sign and no quote.
    """
    inner = quoted.inner[quoted.inner < (nexts[-1] if len(nexts) else 0)]
    if len(inner) < 2:
        return inner[:0]
    index = np.searchsorted(nexts, inner, side="right")
    is_first = np.append(True, index[1:] != index[:-1])
    rank = np.arange(len(inner)) - np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    opens = np.flatnonzero((rank[:-1] % 2 == 0) & (index[:-1] == index[1:]))
    sign = delimiter.encode()
    found = [
        start
        for start, end in zip(inner[opens].tolist(), inner[opens + 1].tolist(), strict=True)
        if block.find(sign, start, end) >= 0
    ]
    return np.array(found, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class _Quoted:
    """Where quoted stretches open and close (_NEVER for one that does not), which closings end no cell, the spaces
    before opening quotes, the quotes inside unquoted cells (of doubled ones the first), and whether all quotes stand
    where they should."""

    opened: Positions
    closed: Positions
    strays: Positions
    indents: Positions
    inner: Positions
    is_orderly: bool


def _find_quoted(octets: npt.NDArray[np.uint8], delimiter: int, quote: int) -> _Quoted:
    quotes = np.flatnonzero(octets == quote)
    if not len(quotes):
        return _Quoted(quotes, quotes, quotes, quotes, quotes, is_orderly=True)
    is_border = np.zeros(256, dtype=bool)
    is_border[[delimiter, _LF, _CR]] = True
    begins_field = is_border[octets[np.maximum(quotes - 1, 0)]] | (quotes == 0)
    ends_field = is_border[octets[np.minimum(quotes + 1, len(octets) - 1)]] | (quotes == len(octets) - 1)
    is_doubled = np.append(np.diff(quotes) == 1, False)  # the next quote follows at once
    follows_one = np.append(False, is_doubled[:-1])
    # In orderly CSV quotes open and close by turns (a doubled one closes and opens), and whole columns tell it.
    if np.all((begins_field | follows_one)[0::2]) and np.all((ends_field | is_doubled)[1::2]):
        closed = np.append(quotes[1::2], [_NEVER] * (len(quotes) % 2))
        return _Quoted(quotes[0::2], closed, quotes[:0], quotes[:0], quotes[:0], is_orderly=True)
    indents = _count_indents(octets, quotes, is_border) if delimiter != _SPACE else np.zeros_like(quotes)
    opened, closed = _walk_quotes(quotes, begins_field | (indents > 0), is_doubled)
    strays = np.intersect1d(closed, quotes[~ends_field], assume_unique=True)
    listed = _list_indents(opened, indents[np.searchsorted(quotes, opened)])
    stretch = np.searchsorted(opened, quotes, side="right") - 1
    is_inner = ~follows_one & ((stretch < 0) | (quotes > closed[stretch]) if len(closed) else True)
    return _Quoted(opened, closed, strays, listed, quotes[is_inner], is_orderly=False)


def _count_indents(
    octets: npt.NDArray[np.uint8], quotes: Positions, is_border: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return how many spaces stand between a quote and the border of its cell; 0 if anything else does."""
    counts = np.zeros_like(quotes)
    left = np.flatnonzero((quotes > 0) & (octets[np.maximum(quotes - 1, 0)] == _SPACE))
    while len(left):
        counts[left] += 1
        left = left[(quotes[left] > counts[left]) & (octets[np.maximum(quotes[left] - counts[left] - 1, 0)] == _SPACE)]
    before = quotes - counts - 1
    counts[(before >= 0) & ~is_border[octets[np.maximum(before, 0)]]] = 0
    return counts


def _list_indents(opened: Positions, counts: npt.NDArray[np.int64]) -> Positions:
    """The positions of so many spaces before each of these quotes."""
    ends = np.cumsum(counts)
    return np.repeat(opened - ends, counts) + np.arange(int(ends[-1]) if len(ends) else 0)


def _walk_quotes(
    quotes: Positions, begins_field: npt.NDArray[np.bool_], is_doubled: npt.NDArray[np.bool_]
) -> tuple[Positions, Positions]:
    """The same one quote at a time, for blocks with a quote inside a bare field or after a closed one."""
    opened: list[int] = []
    closed: list[int] = []
    positions, begins, doubled = quotes.tolist(), begins_field.tolist(), is_doubled.tolist()
    index, end = 0, len(positions)
    while index < end:
        if not begins[index]:
            index += 1
            continue
        opened.append(positions[index])
        index += 1
        while index < end and doubled[index]:
            index += 2
        closed.append(positions[index] if index < end else _NEVER)
        index += 1
    return np.array(opened, dtype=np.int64), np.array(closed, dtype=np.int64)


_LINE_END = re.compile(rb"\r\n|\n|\r")
_ROWS_LOOKED_AT = 20  # below a quote that was not closed; of the lines of a text hardly any looks like a row
_MOST_ARE_ROWS = 0.8  # some may be ragged for reasons of their own


def end_runaways(block: bytes, records: Records, delimiter: str, width: int, quote: str) -> Records:
    """Give the records of a block with each that plainly took in others cut into its first line and those."""
    suspects = set(np.searchsorted(records.nexts, records.strays, side="right").tolist())
    suspects |= {len(records) - 1} if records.is_unclosed else set()
    for index in sorted(suspects, reverse=True):  # the last first, so that the indices before it stay what they are
        start, end = int(records.starts[index]), int(records.nexts[index])
        text = block[start:end]
        line = find_runaway(text, delimiter, width, quote, is_last=True)
        is_second_open = not line and bool(line := _find_second(text, delimiter, width, quote))
        if line:
            records = _cut(block, records, index, start + line, delimiter, quote, is_second_open=is_second_open)
    return records


def find_runaway(text: bytes, delimiter: str, width: int, quote: str, *, is_last: bool) -> int:
    """Return how long the first line of a text is, its end included, if what is below it are plainly rows; else 0."""
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
    """Return whether most of the first of them are as wide as the header."""
    first = records[:_ROWS_LOOKED_AT]
    widths = [_count_cells(record, delimiter, quote) for record in first if record.strip()]
    return widths.count(width) > _MOST_ARE_ROWS * len(widths)


def _count_cells(record: bytes, delimiter: str, quote: str) -> int:
    text = io.StringIO(record.decode("utf-8", "replace"), newline="")
    return len(next(csv.reader(text, delimiter=delimiter, quotechar=quote), []))


def _cut(
    block: bytes, records: Records, index: int, offset: int, delimiter: str, quote: str, *, is_second_open: bool
) -> Records:
    below = find_records(block[offset : int(records.nexts[index])], delimiter, is_last=True, quote=quote)
    if is_second_open:
        below.stops[-1] = records.stops[index] - offset  # and not where the next record begins
    line = block[int(records.starts[index]) : offset]
    stop = offset - len(line) + len(line.rstrip(b"\r\n"))
    first, end = records.starts[index], records.nexts[index]
    strays, ambiguous = (each[(each < first) | (each >= end)] for each in (records.strays, records.ambiguous))
    return replace(
        records,
        starts=np.concatenate([records.starts[: index + 1], below.starts + offset, records.starts[index + 1 :]]),
        stops=np.concatenate([records.stops[:index], [stop], below.stops + offset, records.stops[index + 1 :]]),
        nexts=np.concatenate([records.nexts[:index], [offset], below.nexts + offset, records.nexts[index + 1 :]]),
        strays=strays,
        ambiguous=ambiguous,
        is_unclosed=records.is_unclosed and index != len(records) - 1,
        broken=(
            index,
            *([index + len(below)] if is_second_open else []),
            *(later + len(below) for later in records.broken),
        ),
    )
