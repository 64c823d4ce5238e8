"""One block of CSV to an Arrow table of texts, and beside it the records that have no place in a table.

pyarrow parses; this says which of the block's records became which row, and why the others did not. A byte that is
not UTF-8 costs its record here, before pyarrow (26) sees it: it stops altogether at one in a ragged record. So does
a stray quote: pyarrow would glue what follows a closing quote to the value, and make one that is in no file.
"""

import codecs
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from connector.errors import SourceError
from connector.extract.csv.records import Records, find_blank
from connector.extract.csv.stream import advise_encoding, show_bytes

_MOST_RECORD = 1 << 20  # a thousand times what a subscriber's fields hold; a cell longer than a record may be is in one
_MOST_SHOWN = 1 << 16  # of a record in a rejects file: a person finds the fault at its beginning
_DECODED_BYTES = 1 << 16  # at a time: after a wrong byte Python lays out the whole text anew
_SWALLOWING = ("stray_quote", "unclosed_quote", "oversized")  # for these the record's end may be far from its fault


@dataclass(frozen=True, slots=True)
class Failed:
    """A record without a row: its place among the block's records, and why."""

    place: int
    raw: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """A block's rows as large_string columns; `places` says which record each row is, `is_record` which of the
    block's records are records at all: a blank line, or one of just the header's delimiters, is none."""

    table: pa.Table
    places: npt.NDArray[np.int64]
    failed: tuple[Failed, ...]
    is_record: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Format:
    """How a file is written: its delimiter, the number of its columns, the encoding that it was read in, the quote, the
    encoding to advise for rows that are not in it, and whether a delimiter more follows the last cell of each row."""

    delimiter: str
    width: int
    encoding: str
    quote: str = '"'
    advised: str = "cp1252"
    has_tails: bool = False

    @property
    def cells(self) -> int:
        """How many cells a row has, the empty one after a last delimiter counted."""
        return self.width + self.has_tails


def parse_block(block: bytes, records: Records, form: Format) -> Parsed:
    """Parse the records of a block (positions in bytes). Raises SourceError if pyarrow finds others than we did."""
    is_record = ~_find_blank(block, records, form)
    failed = _find_stray_quotes(block, records) | _find_undecodable(block, records, form)
    if records.is_unclosed:
        failed[len(records) - 1] = _fail_unclosed(block, records, len(records) - 1)
    failed |= {place: _fail_broken(block, records, place) for place in records.broken}
    failed |= _find_oversized(block, records)
    is_parsed = is_record.copy()
    is_parsed[list(failed)] = False
    parsed_places = np.flatnonzero(is_parsed)
    table, ragged = _read_table(_keep(block, records, is_parsed), form)
    if form.has_tails:
        table, ragged = _cut_tails(table, ragged)
    for row, width in ragged.items():
        place = int(parsed_places[row])
        failed[place] = _fail_ragged(block, records, place, width, form)
    if table.num_rows + len(ragged) != len(parsed_places):
        raise SourceError("its quotes are beyond telling where a record ends; write it anew with a spreadsheet")
    places = np.delete(parsed_places, list(ragged))
    return Parsed(table, places, tuple(failed[place] for place in sorted(failed)), is_record)


def _find_blank(block: bytes, records: Records, form: Format) -> npt.NDArray[np.bool_]:
    """Lines with nothing in any cell: spreadsheets leave thousands of them, and no person is in them."""
    lengths = records.stops - records.starts
    is_blank = find_blank(block, records, form.delimiter)
    only_delimiters = form.delimiter.encode() * (form.cells - 1)
    for place in np.flatnonzero(lengths == form.cells - 1).tolist():
        is_blank[place] |= block[records.starts[place] : records.stops[place]] == only_delimiters
    return is_blank


def _find_oversized(block: bytes, records: Records) -> dict[int, Failed]:
    message = (
        f"is longer than {_MOST_RECORD >> 10} KiB, which no person's row is; look for a quote that is never closed"
    )
    places = np.flatnonzero(records.stops - records.starts > _MOST_RECORD).tolist()
    return {place: _fail(block, records, place, "oversized", message) for place in places}


def _find_stray_quotes(block: bytes, records: Records) -> dict[int, Failed]:
    message = (
        'a quote closes a cell and more follows it; write a quote within a quoted cell twice, as in "Jo ""X"" Doe", '
        'or let the other program write its file so (not \\")'
    )
    places = np.unique(np.searchsorted(records.nexts, records.strays, side="right")).tolist()
    return {place: _fail(block, records, place, "stray_quote", message) for place in places}


def _find_undecodable(block: bytes, records: Records, form: Format) -> dict[int, Failed]:
    failed: dict[int, Failed] = {}
    at = block.find(b"\0")
    while at >= 0:
        place = int(np.searchsorted(records.nexts, at, side="right"))
        failed[place] = _fail(block, records, place, "nul", "holds a NUL byte, which is no text")
        at = block.find(b"\0", int(records.nexts[place]))
    view, at = memoryview(block), 0
    while at < len(block):
        end = at + _DECODED_BYTES
        try:
            at += codecs.utf_8_decode(view[at:end], "strict", end >= len(block))[1]
        except UnicodeDecodeError as error:
            wrong = at + error.start
            place = int(np.searchsorted(records.nexts, wrong, side="right"))
            failed[place] = _fail(block, records, place, "encoding", _explain_encoding(block[wrong], form))
            at = int(records.nexts[place])
    return failed


def _explain_encoding(octet: int, form: Format) -> str:
    advice = f"if the file is in another encoding, name it: {advise_encoding(form.advised)}"
    if form.encoding == "utf-8":
        return f"byte 0x{octet:02X} is not UTF-8; {advice}"
    return f"holds bytes that are not {form.encoding}; {advice}"


def _fail_ragged(block: bytes, records: Records, place: int, width: int, form: Format) -> Failed:
    expected = f"the header has {form.width}"
    if form.has_tails:
        expected = f"other rows have {form.cells}, the last of them empty"
    message = f"has {width} cells where {expected}; look for a missing or a stray delimiter or quote"
    return _fail(block, records, place, "ragged", message)


def _fail_broken(block: bytes, records: Records, place: int) -> Failed:
    message = "a quote is opened and not closed, and what is below are rows of their own; close the quote"
    return _fail(block, records, place, "unclosed_quote", message)


def _fail_unclosed(block: bytes, records: Records, place: int) -> Failed:
    message = "a quote is opened and never closed, so that all to the end of the file is one record; close the quote"
    return _fail(block, records, place, "unclosed_quote", message)


def _fail(block: bytes, records: Records, place: int, code: str, message: str) -> Failed:
    record = block[records.starts[place] : records.stops[place]]
    lines = count_lines(record.rstrip(b"\r\n"))
    if lines and code in _SWALLOWING:
        message += f"; the row takes in {lines} more lines, which were not read as rows of their own"
    return Failed(place, show_bytes(record[:_MOST_SHOWN]) + ("…" if len(record) > _MOST_SHOWN else ""), code, message)


def count_lines(text: bytes) -> int:
    """How many lines end in a text, by LF, CR LF or CR."""
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")


def _keep(block: bytes, records: Records, is_parsed: npt.NDArray[np.bool_]) -> bytes:
    """The block without what pyarrow is not to see, records and spaces before quotes; the same block, uncopied, if
    there is none."""
    if is_parsed.all() and not len(records.indents):
        return block
    dropped = np.flatnonzero(~is_parsed).tolist()
    if len(records.indents):
        is_kept = np.ones(len(block), dtype=bool)
        is_kept[records.indents] = False
        for place in dropped:
            is_kept[records.starts[place] : records.nexts[place]] = False
        return np.frombuffer(block, dtype=np.uint8)[is_kept].tobytes()
    pieces, since = [], 0
    for place in dropped:
        pieces.append(block[since : records.starts[place]])
        since = int(records.nexts[place])
    return b"".join([*pieces, block[since:]])


def _cut_tails(table: pa.Table, ragged: dict[int, int]) -> tuple[pa.Table, dict[int, int]]:
    """The rows without their last cell, which is empty; those where it is not are ragged, by their place."""
    rows = np.delete(np.arange(table.num_rows + len(ragged)), list(ragged))
    is_empty = pc.equal(table.columns[-1], "")
    full = np.flatnonzero(~is_empty.to_numpy().astype(bool))
    ragged |= {int(row): table.num_columns for row in rows[full]}
    return table.filter(is_empty).select(range(table.num_columns - 1)), ragged


def _read_table(block: bytes, form: Format) -> tuple[pa.Table, dict[int, int]]:
    """Give the rows of the right width, and the widths of the others by their place (from 0) in `block`."""
    names = [str(place) for place in range(form.cells)]
    if not block:
        return pa.table({name: pa.array([], pa.large_string()) for name in names}), {}
    ragged: dict[int, int] = {}

    def note(row: pa_csv.InvalidRow) -> str:
        ragged[row.number - 1] = row.actual_columns
        return "skip"

    table = pa_csv.read_csv(
        pa.BufferReader(block),
        read_options=pa_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
        parse_options=pa_csv.ParseOptions(
            delimiter=form.delimiter,
            quote_char=form.quote,
            newlines_in_values=True,
            ignore_empty_lines=False,
            invalid_row_handler=note,
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.large_string()),
            null_values=[],
            strings_can_be_null=False,
            check_utf8=False,  # it was, above
        ),
    )
    return table, ragged
