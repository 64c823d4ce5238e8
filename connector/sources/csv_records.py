"""Finds the beginnings and ends of the records in a block of CSV, as arrays of positions.

The rules are those of pyarrow's parser. A quote opens only at the beginning of a cell, a doubled quote is a quote, and
a record ends at LF, CR LF or CR outside quotes.
"""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]

_LF, _CR, _QUOTE = 0x0A, 0x0D, 0x22
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a block with its blank lines, and its suspicious quotes, as byte positions."""

    starts: Positions  # of the records
    stops: Positions  # ends of the records' texts
    nexts: Positions  # starts of the following records
    strays: Positions  # closing quotes before the end of their cell: `"Jo"x`
    indented: Positions  # quotes after spaces at the beginning of their cell: `a, "b"`
    ambiguous: Positions  # first quotes of pairs in an unquoted cell that enclose a delimiter: `Ann"Lee, Jr"`
    is_unclosed: bool  # the last quote of the file is not closed

    def __len__(self) -> int:
        return len(self.starts)


def find_records(block: bytes, delimiter: str, *, is_last: bool) -> Records:
    """Return the records that end in `block`, which begins at a record. The last block (`is_last`) ends its last
    record."""
    octets = np.frombuffer(block, dtype=np.uint8)
    stops, nexts = _find_line_ends(block, octets, is_last=is_last)
    quoted = _find_quoted(block, octets, delimiter)
    if len(quoted.opened):
        field = np.searchsorted(quoted.opened, stops) - 1
        is_outside = (field < 0) | (stops > quoted.closed[field])
        stops, nexts = stops[is_outside], nexts[is_outside]
    if is_last and len(block) > (nexts[-1] if len(nexts) else 0):
        stops, nexts = np.append(stops, len(block)), np.append(nexts, len(block))
    starts = np.concatenate([np.zeros(min(1, len(nexts)), dtype=np.int64), nexts[:-1]])
    is_unclosed = is_last and bool(len(quoted.closed)) and bool(quoted.closed[-1] == _NEVER)
    end = nexts[-1] if len(nexts) else 0
    strays, indented = quoted.strays[quoted.strays < end], quoted.indented[quoted.indented < end]
    ambiguous = _find_ambiguous(block, quoted, nexts, delimiter)
    return Records(starts, stops, nexts, strays, indented, ambiguous, is_unclosed)


def find_blank(block: bytes, records: Records, delimiter: str) -> npt.NDArray[np.bool_]:
    """Return the mask of the records that are empty or have only blanks. A delimiter is not a blank."""
    is_blank: npt.NDArray[np.bool_] = records.stops == records.starts
    blanks = bytes(octet for octet in b" \t" if octet != ord(delimiter))
    octets = np.frombuffer(block, dtype=np.uint8)
    is_edge = np.zeros(256, dtype=bool)
    is_edge[list(blanks)] = True
    # Few records begin and end with a blank. Only these records are checked completely.
    filled = np.flatnonzero(~is_blank)
    edged = filled[is_edge[octets[records.starts[filled]]] & is_edge[octets[records.stops[filled] - 1]]]
    for index in edged.tolist():
        is_blank[index] = not block[records.starts[index] : records.stops[index]].strip(blanks)
    return is_blank


def _find_line_ends(block: bytes, octets: npt.NDArray[np.uint8], *, is_last: bool) -> tuple[Positions, Positions]:
    """Return the ends of the lines and the starts of the next lines, also inside quotes."""
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
    """Return the first quote of each pair in unquoted cells that encloses a delimiter.

    Pairs are formed within a record. A quote without a partner (`12" screen`) is a plain character.
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
    """The quotes of a block, as byte positions."""

    opened: Positions
    closed: Positions  # `_NEVER` for a quote that is not closed
    strays: Positions  # closing quotes before the end of their cell
    indented: Positions  # inner quotes after spaces at the beginning of their cell
    inner: Positions  # quotes in unquoted cells; the first of doubled quotes


def _find_quoted(block: bytes, octets: npt.NDArray[np.uint8], delimiter: str) -> _Quoted:
    quotes = np.flatnonzero(octets == _QUOTE)
    none = quotes[:0]
    if not len(quotes):
        return _Quoted(none, none, none, none, none)
    is_border = np.zeros(256, dtype=bool)
    is_border[[ord(delimiter), _LF, _CR]] = True
    begins_field = is_border[octets[np.maximum(quotes - 1, 0)]] | (quotes == 0)
    ends_field = is_border[octets[np.minimum(quotes + 1, len(octets) - 1)]] | (quotes == len(octets) - 1)
    is_doubled = np.append(np.diff(quotes) == 1, False)  # the next byte is a quote, too
    follows_one = np.append(False, is_doubled[:-1])
    # In regular CSV, quotes open and close in turn (a doubled quote closes and opens). Array operations check that.
    if np.all((begins_field | follows_one)[0::2]) and np.all((ends_field | is_doubled)[1::2]):
        closed = np.append(quotes[1::2], [_NEVER] * (len(quotes) % 2))
        return _Quoted(quotes[0::2], closed, none, none, none)
    opened, closed = _walk_quotes(quotes, begins_field, is_doubled)
    strays = np.intersect1d(closed, quotes[~ends_field], assume_unique=True)
    stretch = np.searchsorted(opened, quotes, side="right") - 1
    is_outside = (stretch < 0) | (quotes > closed[stretch]) if len(closed) else np.ones_like(quotes, dtype=bool)
    spaced = re.compile(rb"(?:\A|(?<=[\r\n%b])) +\"" % re.escape(delimiter.encode()))
    ends = [] if delimiter == " " else [found.end() - 1 for found in spaced.finditer(block)]
    indented = np.intersect1d(quotes[is_outside], np.array(ends, dtype=np.int64), assume_unique=True)
    return _Quoted(opened, closed, strays, indented, quotes[is_outside & ~follows_one])


def _walk_quotes(
    quotes: Positions, begins_field: npt.NDArray[np.bool_], is_doubled: npt.NDArray[np.bool_]
) -> tuple[Positions, Positions]:
    """Return the opening and closing quotes, one by one, for blocks with quotes in unquoted cells or after closed
    cells."""
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
