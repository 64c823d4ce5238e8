"""Reads a CSV file as a source, block by block. Memory is limited by the size of a block.

Blocks end at the ends of records, and pyarrow parses each block. This module numbers the records, and reports the
records that are not rows. pyarrow's streaming reader is not used: it reads 32 blocks ahead, in threads that crash the
interpreter if the interpreter ends first (measured, pyarrow 26). pyarrow stops at a ragged record with a byte that is
not UTF-8, and appends the text after a closing quote to the value. So such records are removed before. A record with a
fault is malformed, and the other records are read. A file is refused if a record may hide other rows, or has spaces
before a quote.
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
from connector.rows import Chunk, CloseableResource, MalformedRow, Source
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
from connector.texts import agree, count

_HEAD_BYTES = 1 << 18
_CHUNK_ROWS = 30_000  # target; with fewer rows pandera's fixed cost dominates, and more rows only need memory
_MAX_ROWS = 50_000
_LEAST_BLOCK, _MOST_BLOCK = 1 << 16, 1 << 23
_MAX_RECORD = 1 << 20  # bytes; a thousand times the record of a subscriber
_MAX_SHOWN = 1 << 16  # bytes of a record in a rejects file; its beginning shows the fault
_DECODED_BYTES = 1 << 16  # at a time, because Python copies the whole text after an invalid byte
_SWALLOWING = ("stray_quote", "unclosed_quote", "oversized")  # with these faults a record may contain other lines
_LOST_BYTES = LOST.encode()
_MAX_HELD = 1 << 24  # bytes; a longer record has a quote that is never closed


_Failures = dict[int, tuple[str, str]]
"""Code and message of each malformed record, by its index in the block."""


@dataclass(frozen=True, slots=True)
class ParsedBlock:
    """The rows of a block as large_string columns. `indices` has the record of each row, and `failed` the malformed
    records. `is_record` is the mask of records that count: blank lines and lines of only delimiters do not."""

    table: pa.Table
    indices: npt.NDArray[np.int64]
    failed: _Failures
    is_record: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """The form of a file."""

    delimiter: str
    width: int  # number of columns
    encoding: str
    advised: str = "cp1252"  # the encoding that a message advises for undecodable bytes
    has_tails: bool = False  # an extra delimiter follows the last cell of each row

    @property
    def cells(self) -> int:
        """The number of cells of a row, with the empty cell after an extra delimiter."""
        return self.width + self.has_tails


class CsvSource(CloseableResource):
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
        self._above = head[: above + size]  # the header and the lines above it
        rows_head = head[above + size :]
        is_tailed = has_tails(rows_head.decode("utf-8", "replace"), len(self.columns), chosen, is_whole=is_whole)
        self._form = CsvDialect(
            chosen, len(self.columns), self._stream.encoding, self._stream.advised, has_tails=is_tailed
        )
        rows_bytes = _CHUNK_ROWS * len(rows_head) // max(1, rows_head.count(b"\n"))  # estimated from the first lines
        self._block_bytes = chunk_bytes or min(max(rows_bytes, _LEAST_BLOCK), _MOST_BLOCK)
        self._messages = []
        if self._stream.remark is not None:
            self._messages.append(f"{self.name}: {self._stream.remark}")
        if titles:
            self._messages.append(f"{self.name}: titles above its header were left out (lines: {titles})")
        if is_tailed:
            self._messages.append(
                f"{self.name}: its rows end with a delimiter that the header does not have; it was left out"
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
                first_line = line + count_lines(block[: int(records.starts[index])])
                raise ContentError(
                    f"{self.name}: the record that begins on line {first_line} {problem}. {_HOW_TO_SAVE}"
                )
            try:
                parsed = parse_block(block, records, self._form, used_indices)
            except (SourceError, pa.ArrowInvalid) as error:
                raise ContentError(f"{self.name}: cannot be read on from line {line}: {error}") from error
            end, rows, block_rows = self._input.file.tell() / size, 0, max(int(parsed.is_record.sum()), 1)
            for chunk in self._build_chunks(block, records, parsed, line, number):
                rows += len(chunk.numbers) + len(chunk.malformed)
                yield replace(chunk, messages=messages, share=begin + (end - begin) * rows / block_rows)
                messages = ()
            begin, number = end, number + int(parsed.is_record.sum())

    def close(self) -> None:
        """Release the file; may be called more than once."""
        self._input.close()

    def _read_header(
        self, head: bytes, delimiter: str, titles: int, lines_above: int, *, is_whole: bool
    ) -> tuple[tuple[str, ...], int]:
        """Return the names of the columns, and the offset of the end of the header."""
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
        """Yield the first line, the bytes and the records of each block. A block ends at the end of a record."""
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
            elif len(block) >= _MAX_HELD:
                raise ContentError(
                    f"{self.name}: the record that begins on line {line} is longer than {_MAX_HELD >> 20} MiB; look "
                    f"there for a quote that is never closed. {_HOW_TO_SAVE}"
                )
            else:
                wanted = min(2 * len(block), _MAX_HELD)

    def _build_chunks(
        self, block: bytes, records: Records, parsed: ParsedBlock, line: int, number: int
    ) -> Iterator[Chunk]:
        """Yield the records of a block in chunks of about `_MAX_ROWS`; `number` is the number of the record before."""
        numbers_of_records = number + np.cumsum(parsed.is_record)
        numbers = numbers_of_records[parsed.indices]
        malformed, since = [], 0
        for index, (code, message) in sorted(parsed.failed.items()):
            start, stop = int(records.starts[index]), int(records.stops[index])
            line, since = line + count_lines(block[since:start]), start
            record = block[start:stop]
            inner_lines = count_lines(record.rstrip(b"\r\n"))
            if inner_lines and code in _SWALLOWING:
                were = agree(inner_lines, "was", "were")
                message += f"; the row takes in {count(inner_lines, 'more line')}, which {were} not read as a row"
            raw = show_bytes(record[:_MAX_SHOWN]) + ("…" if len(record) > _MAX_SHOWN else "")
            malformed.append(MalformedRow(int(numbers_of_records[index]), line, raw, code, message))
        table = parsed.table.rename_columns(list(self.columns))
        starts = range(0, max(1, table.num_rows), _MAX_ROWS)
        for start in starts:
            rows = table.slice(start, _MAX_ROWS)
            is_last = start == starts[-1]
            chunk_malformed = tuple(row for row in malformed if is_last or row.number <= numbers[start + _MAX_ROWS - 1])
            malformed = malformed[len(chunk_malformed) :]
            if rows.num_rows or chunk_malformed:
                yield Chunk(build_frame(rows), numbers[start : start + _MAX_ROWS], chunk_malformed, self.name)


def open_csv(
    source_input: Input, *, delimiter: str = "auto", encoding: str = "auto", chunk_bytes: int | None = None
) -> Source:
    """Open an input as CSV. Each cell is a text, and an empty cell is "".

    The header names the columns (an empty name becomes `column N`, a second `Email` becomes `Email (2)`). Titles above
    the header (lines of a single cell) are left out, and a delimiter after the last cell of each row, too. A record is
    malformed if its width differs from the header's, if a used column has an undecodable or a NUL byte, if a quote
    closes before the end of its cell or is ambiguous, or if the record is longer than a MiB. Blank lines (also with
    spaces and tabs) and lines with only the delimiters of the header are not records. A quote within quotes is written
    twice. A backslash has no special meaning.

    The `messages` of the first chunk name the left-out parts and a detected encoding. If the encoding is not certain,
    rows with other characters than ASCII are malformed. `chunk_bytes` is the size of a block (default: about 30,000
    rows). A longer record makes its block longer. The source closes the input.

    Raises SourceError if the input is empty, binary, without a header or with single quotes around its cells. While
    rows are read, raises SourceError at a quote that is never closed, that contains other rows, or that has spaces
    before. Raises ConfigurationError for an unknown delimiter or encoding.
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
        f"is longer than {_MAX_RECORD >> 10} KiB, which is not the row of a subscriber; look for a quote that is "
        "never closed"
    ),
    "nul": "holds a NUL byte, which is not text",
}
"""Messages of malformed records by code. The messages of `ragged` and `encoding` contain facts of the file."""

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
    suspects = {*_find_indices(records, records.strays), *np.flatnonzero(lengths > _MAX_RECORD).tolist()}
    sign, expected = form.delimiter.encode(), form.cells - 1
    for index in suspects:
        record = block[records.starts[index] : records.stops[index]]
        lines_below = record.splitlines()[1:]  # lines that may be rows of their own
        if record.count(sign) > expected and any(line.count(sign) >= expected for line in lines_below):
            problems[index] = (
                f"has a quote that is not closed, so that it takes in {count_lines(record)} lines below it"
            )
    if records.is_unclosed and (lines := count_lines(block[records.starts[-1] :].rstrip(b"\r\n"))):
        problems[len(records) - 1] = f"has a quote that is never closed, so that it takes in all {lines} lines below it"
    return min(problems.items(), default=None)


def parse_block(block: bytes, records: Records, form: CsvDialect, used_indices: Sequence[int]) -> ParsedBlock:
    """Parse the records of a block. A record with an undecodable byte fails only if the byte is in one of the columns
    `used_indices`. Raises SourceError if pyarrow finds another number of records."""
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
    oversized = np.flatnonzero(lengths > _MAX_RECORD).tolist()
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
    """Return the records of a block that pyarrow can parse. In `undecodable` records U+FFFD replaces undecodable bytes.
    Delimiters and quotes are ASCII, so they stay."""
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
    """Return the indices of undecodable records whose used columns have no undecodable character."""
    rows = np.flatnonzero(np.isin(indices, list(undecodable)))
    is_lost = np.zeros(len(rows), dtype=bool)
    for index in used_indices if len(rows) else ():
        cells = table.columns[index].take(pa.array(rows))
        is_lost |= pc.match_substring(cells, LOST).to_numpy().astype(bool)
    return set(indices[rows[~is_lost]].tolist())


def _find_indices(records: Records, positions: npt.NDArray[np.int64]) -> list[int]:
    """Return the indices of the records that contain these positions."""
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
            problem = (
                f"byte 0x{block[wrong]:02X} is not UTF-8" if is_utf_8 else f"holds bytes that are not {form.encoding}"
            )
            advice = f"if the file is in another encoding, name it: {advise_encoding(form.advised)}"
            failed[index] = ("encoding", f"{problem}; {advice}")
            offset = int(records.nexts[index])
    return failed


def count_lines(text: bytes) -> int:
    """Return the number of line ends (LF, CR LF or CR) in a text."""
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")


def _read_table(block: bytes, form: CsvDialect) -> tuple[pa.Table, dict[int, int]]:
    """Return the rows of the right width, and the widths of ragged rows by their index (from 0) in `block`."""
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
            check_utf8=False,  # `_find_undecodable` has checked it
        ),
    )
    return table, ragged
