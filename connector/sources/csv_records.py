"""Finds the beginnings and ends of the records in a block of CSV, as arrays of positions.

The rules are the rules of pyarrow's parser. A quote opens a quoted cell only at the beginning of the cell. Within a
quoted cell, two quotes mean one quote character. A record ends at LF, CR LF or CR outside quotes.
"""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]

_LF, _CR, _QUOTE = 0x0A, 0x0D, 0x22
_NO_CLOSING_POSITION = np.iinfo(np.int64).max  # the position of the closing quote of a cell that is never closed


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a block, and the suspicious quotes in the block, as byte positions. Blank lines are also records
    here."""

    starts: Positions  # positions at which the records start
    stops: Positions  # positions at which the texts of the records end, before their line ends
    next_starts: Positions  # for each record, the position at which the record after it starts
    stray_quotes: Positions  # closing quotes with a text between the quote and the end of the cell: `"Jo"x`
    indented_quotes: Positions  # quotes that follow spaces at the beginning of a cell: `a, "b"`
    # Quotes inside unquoted cells, each with a delimiter between this quote and the next quote: `Ann"Lee, Jr"`.
    ambiguous_quotes: Positions
    is_unclosed: bool  # the last quote of the file is not closed

    def __len__(self) -> int:
        return len(self.starts)


def find_records(block: bytes, delimiter: str, *, is_last: bool) -> Records:
    """Return the records that end in `block`. The block begins with a record. If `is_last`, the last record ends at the
    end of the block."""
    octets = np.frombuffer(block, dtype=np.uint8)
    stops, next_starts = _find_line_ends(block, octets, is_last=is_last)
    quotes = _find_quotes(block, octets, delimiter)
    if len(quotes.opening_quotes):
        quoted_cell_indices = np.searchsorted(quotes.opening_quotes, stops) - 1
        outside_quotes_mask = (quoted_cell_indices < 0) | (stops > quotes.closing_quotes[quoted_cell_indices])
        stops, next_starts = stops[outside_quotes_mask], next_starts[outside_quotes_mask]
    if is_last and len(block) > (next_starts[-1] if len(next_starts) else 0):
        stops, next_starts = np.append(stops, len(block)), np.append(next_starts, len(block))
    starts = np.concatenate([np.zeros(min(1, len(next_starts)), dtype=np.int64), next_starts[:-1]])
    is_unclosed = is_last and _NO_CLOSING_POSITION in quotes.closing_quotes[-1:]
    last_record_end = next_starts[-1] if len(next_starts) else 0
    stray_quotes = quotes.stray_quotes[quotes.stray_quotes < last_record_end]
    indented_quotes = quotes.indented_quotes[quotes.indented_quotes < last_record_end]
    ambiguous_quotes = _find_ambiguous_quotes(block, quotes, next_starts, delimiter)
    return Records(starts, stops, next_starts, stray_quotes, indented_quotes, ambiguous_quotes, is_unclosed)


def find_blank_records(block: bytes, records: Records, delimiter: str) -> npt.NDArray[np.bool_]:
    """Return the mask of the records that are empty or have only blanks. A delimiter is not a blank."""
    blank_mask: npt.NDArray[np.bool_] = records.stops == records.starts
    blank_bytes = bytes(octet for octet in b" \t" if octet != ord(delimiter))
    octets = np.frombuffer(block, dtype=np.uint8)
    blank_byte_mask = np.zeros(256, dtype=bool)
    blank_byte_mask[list(blank_bytes)] = True
    # Only records that begin and end with a blank are compared byte by byte. These records are few.
    filled_indices = np.flatnonzero(~blank_mask)
    possibly_blank_indices = filled_indices[
        blank_byte_mask[octets[records.starts[filled_indices]]]
        & blank_byte_mask[octets[records.stops[filled_indices] - 1]]
    ]
    for index in possibly_blank_indices.tolist():
        blank_mask[index] = not block[records.starts[index] : records.stops[index]].strip(blank_bytes)
    return blank_mask


def _find_line_ends(block: bytes, octets: npt.NDArray[np.uint8], *, is_last: bool) -> tuple[Positions, Positions]:
    """Return where each line ends, and where the next line starts. Line ends inside quotes are included."""
    line_feeds = np.flatnonzero(octets == _LF)
    if b"\r" not in block:
        return line_feeds, line_feeds + 1
    carriage_returns = np.flatnonzero(octets == _CR)
    if len(carriage_returns) and carriage_returns[-1] == len(block) - 1 and not is_last:
        carriage_returns = carriage_returns[:-1]  # the LF of this CR may be the first byte of the next block
    following_bytes = octets[np.minimum(carriage_returns + 1, len(block) - 1)]
    paired_carriage_returns = carriage_returns[following_bytes == _LF]
    single_carriage_returns = carriage_returns[following_bytes != _LF]
    single_line_feeds = np.setdiff1d(line_feeds, paired_carriage_returns + 1, assume_unique=True)
    stops = np.concatenate([paired_carriage_returns, single_carriage_returns, single_line_feeds])
    next_starts = np.concatenate([paired_carriage_returns + 2, single_carriage_returns + 1, single_line_feeds + 1])
    stop_order = np.argsort(stops, kind="stable")
    return stops[stop_order], next_starts[stop_order]


def _find_ambiguous_quotes(block: bytes, quotes: "_Quotes", next_starts: Positions, delimiter: str) -> Positions:
    """Return the ambiguous quotes (see `Records`). In each record, the quotes inside unquoted cells form pairs. The
    first quote of a pair is ambiguous if a delimiter stands between the two quotes. A quote without a partner
    (`12" screen`) is a plain character."""
    inner_quotes = quotes.inner_quotes[quotes.inner_quotes < (next_starts[-1] if len(next_starts) else 0)]
    record_indices = np.searchsorted(next_starts, inner_quotes, side="right")
    delimiter_byte, ambiguous_quotes = delimiter.encode(), list[int]()
    first_quote, record_of_first_quote = 0, -1
    for quote, record_index in zip(inner_quotes.tolist(), record_indices.tolist(), strict=True):
        if record_index != record_of_first_quote:  # this quote begins a pair
            first_quote, record_of_first_quote = quote, record_index
            continue
        if block.find(delimiter_byte, first_quote, quote) >= 0:
            ambiguous_quotes.append(first_quote)
        record_of_first_quote = -1
    return np.array(ambiguous_quotes, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class _Quotes:
    """The quotes of a block, as byte positions."""

    opening_quotes: Positions
    closing_quotes: Positions  # the closing quote of each opening quote, or `_NO_CLOSING_POSITION`
    stray_quotes: Positions  # see `Records`
    indented_quotes: Positions  # see `Records`
    inner_quotes: Positions  # quotes in unquoted cells; of two adjacent quotes, only the first quote


def _find_quotes(block: bytes, octets: npt.NDArray[np.uint8], delimiter: str) -> _Quotes:
    quotes = np.flatnonzero(octets == _QUOTE)
    empty_positions = quotes[:0]
    if not len(quotes):
        return _Quotes(empty_positions, empty_positions, empty_positions, empty_positions, empty_positions)
    border_byte_mask = np.zeros(256, dtype=bool)
    border_byte_mask[[ord(delimiter), _LF, _CR]] = True
    cell_start_mask = border_byte_mask[octets[np.maximum(quotes - 1, 0)]] | (quotes == 0)
    cell_end_mask = border_byte_mask[octets[np.minimum(quotes + 1, len(octets) - 1)]] | (quotes == len(octets) - 1)
    doubled_quote_mask = np.append(np.diff(quotes) == 1, False)  # the next byte is also a quote
    after_quote_mask = np.append(False, doubled_quote_mask[:-1])
    # In regular CSV, opening and closing quotes alternate. Array operations can check this order.
    # Two adjacent quotes count as a closing and an opening quote.
    if np.all((cell_start_mask | after_quote_mask)[0::2]) and np.all((cell_end_mask | doubled_quote_mask)[1::2]):
        closing_quotes = np.append(quotes[1::2], [_NO_CLOSING_POSITION] * (len(quotes) % 2))
        return _Quotes(quotes[0::2], closing_quotes, empty_positions, empty_positions, empty_positions)
    opening_quotes, closing_quotes = _match_quotes_in_loop(quotes, cell_start_mask, doubled_quote_mask)
    stray_quotes = np.intersect1d(closing_quotes, quotes[~cell_end_mask], assume_unique=True)
    quoted_cell_indices = np.searchsorted(opening_quotes, quotes, side="right") - 1
    outside_quotes_mask = (
        (quoted_cell_indices < 0) | (quotes > closing_quotes[quoted_cell_indices])
        if len(closing_quotes)
        else np.ones_like(quotes, dtype=bool)
    )
    indented_pattern = re.compile(rb"(?:\A|(?<=[\r\n%b])) +\"" % re.escape(delimiter.encode()))
    positions_after_spaces = [] if delimiter == " " else [match.end() - 1 for match in indented_pattern.finditer(block)]
    indented_quotes = np.intersect1d(
        quotes[outside_quotes_mask], np.array(positions_after_spaces, dtype=np.int64), assume_unique=True
    )
    return _Quotes(
        opening_quotes, closing_quotes, stray_quotes, indented_quotes, quotes[outside_quotes_mask & ~after_quote_mask]
    )


def _match_quotes_in_loop(
    quotes: Positions, cell_start_mask: npt.NDArray[np.bool_], doubled_quote_mask: npt.NDArray[np.bool_]
) -> tuple[Positions, Positions]:
    """Return the opening and the closing quotes of a block. This function checks one quote after another, because
    array operations cannot match the quotes if unquoted cells have quotes or text follows a closing quote."""
    opening_quotes: list[int] = []
    closing_quotes: list[int] = []
    positions, cell_start_flags = quotes.tolist(), cell_start_mask.tolist()
    doubled_quote_flags = doubled_quote_mask.tolist()
    index, quote_count = 0, len(positions)
    while index < quote_count:
        if not cell_start_flags[index]:
            index += 1
            continue
        opening_quotes.append(positions[index])
        index += 1
        while index < quote_count and doubled_quote_flags[index]:
            index += 2
        closing_quotes.append(positions[index] if index < quote_count else _NO_CLOSING_POSITION)
        index += 1
    return np.array(opening_quotes, dtype=np.int64), np.array(closing_quotes, dtype=np.int64)
