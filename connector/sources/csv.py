"""A CSV file as a source: blocks of bytes in, numbered chunks of texts out, memory bounded by the block.

Blocks are cut at the ends of records and parsed one by one by pyarrow; this module says which of a block's records
became which row, and why the others did not. pyarrow's own streaming reader is not used: it reads 32 blocks ahead, from
threads that crash the interpreter if it ends before they do (measured, pyarrow 26). It stops at a byte that is not
UTF-8 in a ragged record, and glues what follows a closing quote to the value: so such records are taken out before. A
record with a fault is malformed, and the other records are read. A file is refused if a record may hide other rows, or
has spaces before a quote.
"""

import codecs
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from connector.errors import ContentError, SourceError
from connector.rows import Chunk, Closing, MalformedRow, Source
from connector.sources.cell_text import build_frame
from connector.sources.csv_records import Records, find_blank, find_records
from connector.sources.encoding import LOST, Utf8Stream, advise_encoding, refuse_binary, show_bytes
from connector.sources.header_row import (
    count_titles,
    decide_delimiter,
    find_single_quotes,
    has_tails,
    parse_delimiter,
    parse_header,
)
from connector.sources.inputs import Input

_HEAD_BYTES = 1 << 18
_CHUNK_ROWS = 30_000  # aimed at; fewer cost pandera's fixed time per run too often, more only memory
_MOST_ROWS = 50_000
_LEAST_BLOCK, _MOST_BLOCK = 1 << 16, 1 << 23
_MOST_RECORD = 1 << 20  # a thousand times what a subscriber's fields hold; a cell longer than a record may be is in one
_MOST_SHOWN = 1 << 16  # of a record in a rejects file: a person finds the fault at its beginning
_DECODED_BYTES = 1 << 16  # at a time: after a wrong byte Python copies the whole text
_SWALLOWING = ("stray_quote", "unclosed_quote", "oversized")  # for these the record's end may be far from its fault
_LOST_BYTES = LOST.encode()
_MOST_HELD = 1 << 24  # a record of 16 MiB is a quote that was never closed


_Failures = dict[int, tuple[str, str]]
"""Code and message of what is no row, by its index among the block's records."""


@dataclass(frozen=True, slots=True)
class ParsedBlock:
    """A block's rows as large_string columns; `indices` says which record each row is, `failed` which are none and why,
    `is_record` which of the block's records count: a blank line, or one of just the header's delimiters, does not."""

    table: pa.Table
    indices: npt.NDArray[np.int64]
    failed: _Failures
    is_record: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """The form of a file: its delimiter, the number of its columns, the encoding by which it is read, the encoding to
    advise for rows with undecodable bytes, and whether an extra delimiter follows the last cell of each row."""

    delimiter: str
    width: int
    encoding: str
    advised: str = "cp1252"
    has_tails: bool = False

    @property
    def cells(self) -> int:
        """How many cells a row has, the empty one after a last delimiter counted."""
        return self.width + self.has_tails


class CsvSource(Closing):
    """A CSV file, opened by `open_csv`."""

    def __init__(self, source_input: Input, encoding: str, delimiter: str | None, chunk_bytes: int | None) -> None:
        self.name, self._input = source_input.name, source_input
        self._stream = Utf8Stream(self.name, source_input.file, encoding)
        head = self._stream.read(_HEAD_BYTES)
        is_whole = len(head) < _HEAD_BYTES
        refuse_binary(self.name, head)
        above, hinted = 0, None
        first, end, _ = head.partition(b"\n")
        hint = first.strip(b'\r"')
        if len(hint) == 5 and hint.lower().startswith(b"sep="):  # Excel's line `sep=;` above the header
            above, hinted = len(first + end), parse_delimiter(chr(hint[4]))
        text = head[above:].decode("utf-8", "replace")
        lines_above = count_lines(head[:above])
        if (single := find_single_quotes(text)) is not None:
            raise SourceError(
                f"{self.name}: line {lines_above + single}: the header's cells stand in single quotes. {_HOW_TO_SAVE}"
            )
        chosen = delimiter or hinted or decide_delimiter(text, is_whole=is_whole)
        titles = count_titles(text, chosen)
        self.columns, size = self._read_header(head[above:], chosen, titles, lines_above, is_whole=is_whole)
        self._above = head[: above + size]  # the header, and what stands above it
        rest = head[above + size :]
        is_tailed = has_tails(rest.decode("utf-8", "replace"), len(self.columns), chosen, is_whole=is_whole)
        self._form = CsvDialect(
            chosen, len(self.columns), self._stream.encoding, self._stream.advised, has_tails=is_tailed
        )
        rows_bytes = _CHUNK_ROWS * len(rest) // max(1, rest.count(b"\n"))  # judged by the lines of the file's beginning
        self._block_bytes = chunk_bytes or min(max(rows_bytes, _LEAST_BLOCK), _MOST_BLOCK)
        self._messages = []
        if self._stream.remark is not None:
            self._messages.append(f"{self.name}: {self._stream.remark}")
        if titles:
            self._messages.append(f"{self.name}: titles above its header were left out (lines: {titles})")
        if is_tailed:
            self._messages.append(
                f"{self.name}: its rows end with a delimiter that the header has not; it was left out"
            )

    def chunks(self, used: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`."""
        messages, number = tuple(self._messages), 0
        used_indices = [index for index, column in enumerate(self.columns) if used is None or column in used]
        size, begin = max(os.fstat(self._input.file.fileno()).st_size, 1), 0.0
        for line, block, records in self._read_blocks():
            refusal = find_refusal(block, records, self._form)
            if refusal is not None:
                index, problem = refusal
                at = line + count_lines(block[: int(records.starts[index])])
                raise ContentError(f"{self.name}: the record that begins on line {at} {problem}. {_HOW_TO_SAVE}")
            try:
                parsed = parse_block(block, records, self._form, used_indices)
            except (SourceError, pa.ArrowInvalid) as error:
                raise ContentError(f"{self.name}: cannot be read on from line {line}: {error}") from error
            end, rows, of_block = self._input.file.tell() / size, 0, max(int(parsed.is_record.sum()), 1)
            for chunk in self._build_chunks(block, records, parsed, line, number):
                rows += len(chunk.numbers) + len(chunk.malformed)
                yield replace(chunk, messages=messages, share=begin + (end - begin) * rows / of_block)
                messages = ()
            begin, number = end, number + int(parsed.is_record.sum())

    def close(self) -> None:
        """Release the file; may be called more than once."""
        self._input.close()

    def _read_header(
        self, head: bytes, delimiter: str, titles: int, lines_above: int, *, is_whole: bool
    ) -> tuple[tuple[str, ...], int]:
        """The names of the columns, and where the header ends."""
        records = find_records(head, delimiter, is_last=is_whole)
        filled = np.flatnonzero(~find_blank(head, records, delimiter))
        if len(filled) <= titles:
            raise SourceError(f"{self.name}: no header: its first line does not end within {_HEAD_BYTES} bytes")
        index = int(filled[titles])
        if records.is_unclosed and index == len(records) - 1:
            raise SourceError(f"{self.name}: a quote in its header is never closed. {_HOW_TO_SAVE}")
        indented = records.indented[records.indented < records.nexts[index]]
        if len(indented):
            line = lines_above + 1 + count_lines(head[: indented[0]])
            raise SourceError(f"{self.name}: line {line} of its header {_INDENTED}. {_HOW_TO_SAVE}")
        record = head[records.starts[index] : records.stops[index]]
        if b"\0" in record:
            raise SourceError(f"{self.name}: its header holds a NUL byte; is it a text file?")
        try:
            columns = parse_header(record.decode("utf-8"), delimiter, self.name)
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{self.name}: its header is not {self._stream.encoding} (byte 0x{record[error.start]:02X}); "
                f"name the file's encoding: {advise_encoding(self._stream.advised)}"
            ) from None
        return columns, int(records.nexts[index])

    def _read_blocks(self) -> Iterator[tuple[int, bytes, Records]]:
        """Yield blocks that end where a record does, with their first line; what follows waits for the next block."""
        self._stream.rewind()
        head = self._stream.read(_HEAD_BYTES)
        if not head.startswith(self._above):
            raise SourceError(f"{self.name}: its columns have changed since the run began; run again")
        ahead, line = BytesIO(head[len(self._above) :]), 1 + count_lines(self._above)
        block, wanted, is_ended = b"", self._block_bytes, False
        while block or not is_ended:
            while len(block) < wanted and not is_ended:
                more = ahead.read(wanted - len(block)) or self._stream.read(wanted - len(block))
                is_ended = not more
                block += more
            records = find_records(block, self._form.delimiter, is_last=is_ended)
            if len(records):
                end = int(records.nexts[-1])
                yield line, block[:end], records
                line += count_lines(block[:end])
                block, wanted = block[end:], self._block_bytes
            elif len(block) >= _MOST_HELD:
                raise ContentError(
                    f"{self.name}: the record that begins on line {line} is longer than {_MOST_HELD >> 20} MiB; look "
                    f"there for a quote that is never closed. {_HOW_TO_SAVE}"
                )
            else:
                wanted = min(2 * len(block), _MOST_HELD)

    def _build_chunks(
        self, block: bytes, records: Records, parsed: ParsedBlock, line: int, number: int
    ) -> Iterator[Chunk]:
        """Yield the records of a block, numbered on from `number`, about _MOST_ROWS at a time."""
        numbers_of_records = number + np.cumsum(parsed.is_record)
        numbers = numbers_of_records[parsed.indices]
        malformed, since = [], 0
        for index, (code, message) in sorted(parsed.failed.items()):
            start, stop = int(records.starts[index]), int(records.stops[index])
            line, since = line + count_lines(block[since:start]), start
            record = block[start:stop]
            inner_lines = count_lines(record.rstrip(b"\r\n"))
            if inner_lines and code in _SWALLOWING:
                message += f"; the row takes in {inner_lines} more lines, which were not read as rows of their own"
            raw = show_bytes(record[:_MOST_SHOWN]) + ("…" if len(record) > _MOST_SHOWN else "")
            malformed.append(MalformedRow(int(numbers_of_records[index]), line, raw, code, message))
        table = parsed.table.rename_columns(list(self.columns))
        starts = range(0, max(1, table.num_rows), _MOST_ROWS)
        for start in starts:
            rows = table.slice(start, _MOST_ROWS)
            is_last = start == starts[-1]
            with_it = tuple(row for row in malformed if is_last or row.number <= numbers[start + _MOST_ROWS - 1])
            malformed = malformed[len(with_it) :]
            if rows.num_rows or with_it:
                yield Chunk(build_frame(rows), numbers[start : start + _MOST_ROWS], with_it, self.name)


def open_csv(
    source_input: Input, *, delimiter: str = "auto", encoding: str = "auto", chunk_bytes: int | None = None
) -> Source:
    """Read an input as CSV, of whose cells nothing is guessed: each is text, an empty one is "".

    The header names the columns (an empty name becomes `column N`, a second `Email` becomes `Email (2)`); titles above
    it, lines of a single cell, are left out, and so is a delimiter that follows the last cell of each row and not of
    the header. Records of another width than the header's, with an undecodable or a NUL byte in a column that is used,
    with a quote that closes before its cell ends or that may or may not be one, or of more than a MiB, come as
    malformed. No records are blank lines (nothing, or spaces and tabs alone) and lines of just as many delimiters as
    the header has. A quote within quotes is written twice; a backslash is a backslash.

    The first chunk's `messages` say what was left out, and which encoding was found where none was named. An encoding
    that is not certain costs the rows with other than ASCII in them. `chunk_bytes` is the size of a block (chosen for
    about 30,000 rows); a longer record makes its block longer. The source closes the input.

    Raises SourceError for an input that is empty, binary, without a header or with single quotes around its cells, and,
    while it is read, at a quote that is never closed, that takes in other rows, or that spaces stand before;
    ConfigurationError for a delimiter or an encoding that does not exist.
    """
    return CsvSource(source_input, encoding, parse_delimiter(delimiter), chunk_bytes)


_MESSAGES = {
    "ambiguous_quote": (
        "has quotes inside a cell that does not begin with one, and a delimiter between them, so it has two readings; "
        'quote the whole cell, and write the quotes in it twice: "Ann""Lee, Jr"""'
    ),
    "stray_quote": (
        'a quote closes a cell and more follows it; write a quote within a quoted cell twice, as in "Jo ""X"" Doe", or '
        'let the other program write its file so (not \\")'
    ),
    "unclosed_quote": "a quote is opened and never closed, and the file ends in its cell; close the quote",
    "oversized": (
        f"is longer than {_MOST_RECORD >> 10} KiB, which no subscriber's row is; look for a quote that is never closed"
    ),
    "nul": "holds a NUL byte, which is no text",
}
"""The messages of malformed records by their codes; those of `ragged` and `encoding` hold facts of the file."""

_HOW_TO_SAVE = (
    "Correct it there, or save the file again as CSV from a spreadsheet: a cell begins with its double quote, and a "
    "quote within it is written twice"
)
_INDENTED = "has spaces between the beginning of a cell and its quote"


def find_refusal(block: bytes, records: Records, form: CsvDialect) -> tuple[int, str] | None:
    """Return the index and the problem of the first record for which the file must be refused, or None.

    Such a record has spaces before a quote, a quote that is open over several lines to the end of the file, or a
    damaged cell that contains other rows.
    """
    problems = dict.fromkeys(_find_indices(records, records.indented), _INDENTED)
    lengths = records.stops - records.starts
    suspects = {*_find_indices(records, records.strays), *np.flatnonzero(lengths > _MOST_RECORD).tolist()}
    sign, expected = form.delimiter.encode(), form.cells - 1
    for index in suspects:
        record = block[records.starts[index] : records.stops[index]]
        lines_below = record.splitlines()[1:]  # do some look like rows, of which the first line is not a part?
        if record.count(sign) > expected and any(line.count(sign) >= expected for line in lines_below):
            problems[index] = (
                f"has a quote that is not closed, so that it takes in {count_lines(record)} lines below it"
            )
    if records.is_unclosed and (lines := count_lines(block[records.starts[-1] :].rstrip(b"\r\n"))):
        problems[len(records) - 1] = f"has a quote that is never closed, so that it takes in all {lines} lines below it"
    return min(problems.items(), default=None)


def parse_block(block: bytes, records: Records, form: CsvDialect, used_indices: Sequence[int]) -> ParsedBlock:
    """Parse the records of a block (positions in bytes). A record with a byte that is no text fails only if the byte is
    in one of the columns `used_indices`. Raises SourceError if pyarrow finds others than we did."""
    lengths = records.stops - records.starts
    is_blank = find_blank(block, records, form.delimiter)
    only_delimiters = form.delimiter.encode() * (form.cells - 1)  # spreadsheets leave thousands of such lines
    for index in np.flatnonzero(lengths == form.cells - 1).tolist():
        is_blank[index] |= block[records.starts[index] : records.stops[index]] == only_delimiters
    codes = dict.fromkeys(_find_indices(records, records.ambiguous), "ambiguous_quote")
    codes |= dict.fromkeys(_find_indices(records, records.strays), "stray_quote")
    failed = {index: (code, _MESSAGES[code]) for index, code in codes.items()}
    undecodable = _find_undecodable(block, records, form)
    if records.is_unclosed:
        failed[len(records) - 1] = ("unclosed_quote", _MESSAGES["unclosed_quote"])
    oversized = np.flatnonzero(lengths > _MOST_RECORD).tolist()
    failed |= dict.fromkeys(oversized, ("oversized", _MESSAGES["oversized"]))
    is_parsed = ~is_blank
    is_parsed[list(failed)] = False
    parsed_indices = np.flatnonzero(is_parsed)
    table, ragged = _read_table(_select_parseable(block, records, is_parsed, undecodable), form)
    expected = f"the header has {form.width}"
    if form.has_tails:
        rows = np.delete(np.arange(table.num_rows + len(ragged)), list(ragged))
        is_empty = pc.equal(table.columns[-1], "")
        ragged |= dict.fromkeys(rows[~is_empty.to_numpy().astype(bool)].tolist(), form.cells)
        table = table.filter(is_empty).select(range(form.width))
        expected = f"other rows have {form.cells}, the last of them empty"
    for row, width in ragged.items():
        message = f"has {width} cells where {expected}; look for a missing or a stray delimiter or quote"
        failed[int(parsed_indices[row])] = ("ragged", message)
    if table.num_rows + len(ragged) != len(parsed_indices):
        raise SourceError("unbalanced quotes: cannot find where this row ends; save the file again as CSV")
    indices = np.delete(parsed_indices, list(ragged))
    harmless = _find_harmless(table, indices, undecodable, used_indices)
    failed |= {index: problem for index, problem in undecodable.items() if index not in harmless}
    is_row = ~np.isin(indices, list(failed))
    return ParsedBlock(table.filter(pa.array(is_row)), indices[is_row], failed, ~is_blank)


def _select_parseable(
    block: bytes, records: Records, is_parsed: npt.NDArray[np.bool_], undecodable: Collection[int]
) -> bytes:
    """Return the records of a block that pyarrow can parse. In those that are `undecodable`, U+FFFD stands for each
    byte that is no text: delimiters and quotes are ASCII, so they stay where they are."""
    pieces, since = [], 0
    for index in sorted({*np.flatnonzero(~is_parsed).tolist(), *undecodable}):
        start, end = int(records.starts[index]), int(records.nexts[index])
        pieces.append(block[since:start])
        if is_parsed[index]:
            pieces.append(block[start:end].replace(b"\0", _LOST_BYTES).decode("utf-8", "replace").encode())
        since = end
    return b"".join([*pieces, block[since:]]) if since else block


def _find_harmless(
    table: pa.Table, indices: npt.NDArray[np.int64], undecodable: Collection[int], used_indices: Sequence[int]
) -> set[int]:
    """Return the undecodable records, by their index in the block, whose used columns hold no lost character."""
    rows = np.flatnonzero(np.isin(indices, list(undecodable)))
    is_lost = np.zeros(len(rows), dtype=bool)
    for index in used_indices if len(rows) else ():
        cells = table.columns[index].take(pa.array(rows))
        is_lost |= pc.match_substring(cells, LOST).to_numpy().astype(bool)
    return set(indices[rows[~is_lost]].tolist())


def _find_indices(records: Records, positions: npt.NDArray[np.int64]) -> list[int]:
    """The indices of the records that these bytes are in."""
    indices: list[int] = np.unique(np.searchsorted(records.nexts, positions, side="right")).tolist()
    return indices


def _find_undecodable(block: bytes, records: Records, form: CsvDialect) -> _Failures:
    failed: _Failures = {}
    offset = block.find(b"\0")
    while offset >= 0:
        index = int(np.searchsorted(records.nexts, offset, side="right"))
        failed[index] = ("nul", _MESSAGES["nul"])
        offset = block.find(b"\0", int(records.nexts[index]))
    view, offset = memoryview(block), 0
    while offset < len(block):
        end = offset + _DECODED_BYTES
        try:
            offset += codecs.utf_8_decode(view[offset:end], "strict", end >= len(block))[1]
        except UnicodeDecodeError as error:
            wrong = offset + error.start
            index = int(np.searchsorted(records.nexts, wrong, side="right"))
            is_utf_8 = form.encoding == "utf-8"
            what = (
                f"byte 0x{block[wrong]:02X} is not UTF-8" if is_utf_8 else f"holds bytes that are not {form.encoding}"
            )
            advice = f"if the file is in another encoding, name it: {advise_encoding(form.advised)}"
            failed[index] = ("encoding", f"{what}; {advice}")
            offset = int(records.nexts[index])
    return failed


def count_lines(text: bytes) -> int:
    """Return how many lines end in a text, by LF, CR LF or CR."""
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")


def _read_table(block: bytes, form: CsvDialect) -> tuple[pa.Table, dict[int, int]]:
    """Give the rows of the right width, and the widths of the others by their index (from 0) in `block`."""
    names = [str(index) for index in range(form.cells)]
    if not block:
        return pa.table({name: pa.array([], pa.large_string()) for name in names}), {}
    ragged: dict[int, int] = {}

    def skip(row: pa_csv.InvalidRow) -> str:
        ragged[row.number - 1] = row.actual_columns
        return "skip"

    table = pa_csv.read_csv(
        pa.BufferReader(block),
        read_options=pa_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
        parse_options=pa_csv.ParseOptions(
            delimiter=form.delimiter,
            newlines_in_values=True,
            ignore_empty_lines=False,
            invalid_row_handler=skip,
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.large_string()),
            null_values=[],
            strings_can_be_null=False,
            check_utf8=False,  # it was, above
        ),
    )
    return table, ragged
