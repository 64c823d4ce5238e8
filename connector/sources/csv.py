"""Reads a CSV file as a source, block by block. Memory is limited by the size of a block.

A block ends at the end of a record, and pyarrow parses each block. This module numbers the records as a spreadsheet
program numbers its rows, and reports the malformed records. The other records are read. A file is refused if a record
may hide other rows, or has spaces before a quote.

pyarrow's streaming reader is not used, because it reads 32 blocks ahead in threads. These threads crash the interpreter
if the interpreter ends first (measured, pyarrow 26).

pyarrow fails at a record with a wrong number of cells if the record has a byte that is not UTF-8. If a text follows a
closing quote, pyarrow appends the text to the value. So this module first replaces undecodable bytes, and removes
records with a text after a closing quote.
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
from connector.rows import Chunk, CloseableResource, MalformedRow
from connector.sources.cell_text import build_frame
from connector.sources.csv_records import Records, find_blank_records, find_records
from connector.sources.encoding import (
    REPLACEMENT_CHARACTER,
    Utf8Stream,
    advise_encoding,
    format_bytes,
    refuse_binary_file,
)
from connector.sources.header_row import (
    count_titles,
    decide_delimiter,
    find_line_in_single_quotes,
    has_trailing_delimiters,
    parse_delimiter,
    parse_header,
)
from connector.sources.inputs import Input
from connector.texts import choose_form, count

_HEAD_BYTES = 1 << 18
# Pandera has a fixed cost for each chunk, which dominates in smaller chunks. Larger chunks need more memory and are not
# faster.
_TARGET_CHUNK_ROWS = 30_000
_MAX_CHUNK_ROWS = 50_000
_MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 1 << 16, 1 << 23
_MAX_RECORD_BYTES = 1 << 20  # a thousand times the record of a subscriber
_MAX_SHOWN_BYTES = 1 << 16  # the rejects file shows only the beginning of a longer record
# Number of bytes that are decoded at a time. Larger pieces are slow if they have invalid bytes, because Python copies
# all later bytes of the piece at each invalid byte.
_DECODED_PIECE_BYTES = 1 << 16
# With these faults, a record may include later lines of the file.
_CODES_OF_MULTILINE_FAULTS = ("stray_quote", "unclosed_quote", "oversized")
_MAX_HELD_BYTES = 1 << 24  # if a record does not end within this size, one of its quotes is never closed


_FailureByIndex = dict[int, tuple[str, str]]
"""Code and message of each malformed record, by its index in the block."""


@dataclass(frozen=True, slots=True)
class ParsedBlock:
    """A block after parsing. `table` has the rows as large_string columns. `indices` has the index of each row's
    record. `failure_by_index` has the malformed records. Blank lines and lines of only delimiters are left
    out.
    """

    table: pa.Table
    indices: npt.NDArray[np.int64]
    failure_by_index: _FailureByIndex


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """The delimiter, the number of columns and the encoding of a file."""

    delimiter: str
    column_count: int  # the number of columns in the header
    encoding: str
    advised_encoding: str = "cp1252"  # the encoding that a message advises for undecodable bytes
    has_trailing_delimiters: bool = False  # a delimiter follows the last cell of each row, but not of the header

    @property
    def cell_count(self) -> int:
        """The number of cells of a row, with the empty cell after a trailing delimiter."""
        return self.column_count + self.has_trailing_delimiters


class CsvSource(CloseableResource):
    """A CSV file. Each cell is a text, and an empty cell is "".

    The header names the columns. An empty name is replaced by `column N`, and a second `Email` by `Email (2)`. Titles
    above the header (lines of a single cell) are left out. A delimiter after the last cell of each row is also left
    out.

    A record is malformed in these cases:

    - The record has more or fewer cells than the header.
    - A used column has an undecodable byte or a NUL byte.
    - A quote closes before the end of its cell, or is ambiguous.
    - The record is longer than a MiB.

    Blank lines (some have spaces or tabs) and lines with only the delimiters of the header are not records. But these
    lines are numbered, so that each record has the row number of a spreadsheet program. The first row is the
    header, or a title above the header, and has the number 1. A `sep=` line is not numbered. A quote within quotes is
    written twice. A backslash has no special meaning.

    The `messages` of the first chunk report titles and delimiters that were left out, and a detected encoding. If the
    encoding is not certain, rows with bytes beyond ASCII are malformed.

    `chunk_size` is the size of a block in bytes (default: the size of about 30,000 rows). If a record is longer, its
    block is longer, too. The source closes the input.

    Raises SourceError if the input is empty, binary, without a header or with single quotes around its cells. While
    rows are read, raises SourceError at a quote that is never closed, that contains other rows, or that follows spaces.
    Raises ConfigurationError for an unknown delimiter or encoding.
    """

    def __init__(
        self, source_input: Input, *, delimiter: str = "auto", encoding: str = "auto", chunk_size: int | None = None
    ) -> None:
        self.name, self._input = source_input.name, source_input
        requested_delimiter = parse_delimiter(delimiter)
        self._stream = Utf8Stream(self.name, source_input.file, encoding)
        first_bytes = self._stream.read(_HEAD_BYTES)
        is_whole_file = len(first_bytes) < _HEAD_BYTES
        refuse_binary_file(self.name, first_bytes)
        hint_line, hinted_delimiter = b"", None
        first_line, line_end, _ = first_bytes.partition(b"\n")
        delimiter_hint = first_line.strip(b'\r"')
        if len(delimiter_hint) == 5 and delimiter_hint.lower().startswith(b"sep="):
            # The first line names the delimiter for Excel, for example `sep=;`. The header is below it.
            hint_line, hinted_delimiter = first_line + line_end, parse_delimiter(chr(delimiter_hint[4]))
        table_bytes = first_bytes.removeprefix(hint_line)
        text = table_bytes.decode("utf-8", "replace")
        line_count_above_header = count_lines(hint_line)
        if (quoted_line_number := find_line_in_single_quotes(text)) is not None:
            raise SourceError(
                f"{self.name}: line {line_count_above_header + quoted_line_number}: the header's cells stand in single "
                f"quotes. {_SAVE_ADVICE}"
            )
        chosen_delimiter = (
            requested_delimiter or hinted_delimiter or decide_delimiter(text, is_whole_file=is_whole_file)
        )
        title_count = count_titles(text, chosen_delimiter)
        self.columns, header_byte_count, self._header_number = self._read_header(
            table_bytes, chosen_delimiter, title_count, line_count_above_header, is_whole_file=is_whole_file
        )
        # The header and the lines above the header.
        self._bytes_above_rows = hint_line + table_bytes[:header_byte_count]
        first_rows = table_bytes[header_byte_count:]
        rows_have_trailing_delimiters = has_trailing_delimiters(
            first_rows.decode("utf-8", "replace"), len(self.columns), chosen_delimiter, is_whole_file=is_whole_file
        )
        self._dialect = CsvDialect(
            chosen_delimiter,
            len(self.columns),
            self._stream.encoding,
            self._stream.advised_encoding,
            has_trailing_delimiters=rows_have_trailing_delimiters,
        )
        # The mean length of the first lines shows how many bytes a chunk needs.
        chunk_size_estimate = _TARGET_CHUNK_ROWS * len(first_rows) // max(1, first_rows.count(b"\n"))
        self._block_bytes = chunk_size or min(max(chunk_size_estimate, _MIN_BLOCK_BYTES), _MAX_BLOCK_BYTES)
        self._messages = [] if self._stream.remark is None else [f"{self.name}: {self._stream.remark}"]
        if title_count:
            self._messages.append(f"{self.name}: titles above its header were left out (lines: {title_count})")
        if rows_have_trailing_delimiters:
            self._messages.append(
                f"{self.name}: its rows end with a delimiter that the header does not have; this delimiter was left out"
            )

    def read_chunks(self, used_columns: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`."""
        messages, previous_row_number = tuple(self._messages), self._header_number
        used_column_indices = [
            index for index, column in enumerate(self.columns) if used_columns is None or column in used_columns
        ]
        file_size, previous_read_share = max(os.fstat(self._input.file.fileno()).st_size, 1), 0.0
        for line_number, block, records in self._read_blocks():
            if (file_problem := find_file_problem(block, records, self._dialect)) is not None:
                index, problem = file_problem
                first_line_number = line_number + count_lines(block[: int(records.starts[index])])
                raise ContentError(
                    f"{self.name}: the record that begins on line {first_line_number} {problem}. {_SAVE_ADVICE}"
                )
            try:
                parsed_block = parse_block(block, records, self._dialect, used_column_indices)
            except (SourceError, pa.ArrowInvalid) as error:
                raise ContentError(f"{self.name}: cannot be read from line {line_number} on: {error}") from error
            read_share = self._input.file.tell() / file_size
            row_count = 0
            block_row_count = max(len(parsed_block.indices) + len(parsed_block.failure_by_index), 1)
            for chunk in self._build_chunks(block, records, parsed_block, line_number, previous_row_number):
                row_count += chunk.record_count
                yield replace(
                    chunk,
                    messages=messages,
                    read_share=previous_read_share + (read_share - previous_read_share) * row_count / block_row_count,
                )
                messages = ()
            previous_read_share, previous_row_number = read_share, previous_row_number + len(records)

    def close(self) -> None:
        """Release the file. A second call does nothing."""
        self._input.close()

    def _read_header(
        self, first_bytes: bytes, delimiter: str, title_count: int, line_count_above_header: int, *, is_whole_file: bool
    ) -> tuple[tuple[str, ...], int, int]:
        """Return the names of the columns, the offset at which the first row begins, and the row number that a
        spreadsheet program shows for the header. This number counts titles and blank lines, but not a `sep=` line."""
        records = find_records(first_bytes, delimiter, is_last=is_whole_file)
        filled_indices = np.flatnonzero(~find_blank_records(first_bytes, records, delimiter))
        if len(filled_indices) <= title_count:
            raise SourceError(f"{self.name}: no header: its first line does not end within {_HEAD_BYTES} bytes")
        index = int(filled_indices[title_count])
        if records.is_unclosed and index == len(records) - 1:
            raise SourceError(f"{self.name}: a quote in its header is never closed. {_SAVE_ADVICE}")
        indented_positions = records.indented_quotes[records.indented_quotes < records.next_starts[index]]
        if len(indented_positions):
            line_number = line_count_above_header + 1 + count_lines(first_bytes[: indented_positions[0]])
            raise SourceError(
                f"{self.name}: line {line_number} of its header {_INDENTED_QUOTE_PROBLEM}. {_SAVE_ADVICE}"
            )
        record = first_bytes[records.starts[index] : records.stops[index]]
        if b"\0" in record:
            raise SourceError(f"{self.name}: its header holds a NUL byte; is it a text file?")
        try:
            columns = parse_header(record.decode("utf-8"), delimiter, self.name)
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{self.name}: its header is not {self._stream.encoding} (byte 0x{record[error.start]:02X}); "
                f"name the file's encoding: {advise_encoding(self._stream.advised_encoding)}"
            ) from None
        return columns, int(records.next_starts[index]), index + 1

    def _read_blocks(self) -> Iterator[tuple[int, bytes, Records]]:
        """Yield the number of the first line, the bytes and the records of each block. A block ends at the end of a
        record."""
        self._stream.rewind()
        first_bytes = self._stream.read(_HEAD_BYTES)
        if not first_bytes.startswith(self._bytes_above_rows):
            raise SourceError(f"{self.name}: its columns have changed since the run began; run again")
        first_rows_stream = BytesIO(first_bytes[len(self._bytes_above_rows) :])
        line_number = 1 + count_lines(self._bytes_above_rows)
        block, requested_size, is_at_end = b"", self._block_bytes, False
        while block or not is_at_end:
            while len(block) < requested_size and not is_at_end:
                missing_size = requested_size - len(block)
                new_bytes = first_rows_stream.read(missing_size) or self._stream.read(missing_size)
                is_at_end = not new_bytes
                block += new_bytes
            records = find_records(block, self._dialect.delimiter, is_last=is_at_end)
            if len(records):
                block_end = int(records.next_starts[-1])
                yield line_number, block[:block_end], records
                line_number += count_lines(block[:block_end])
                block, requested_size = block[block_end:], self._block_bytes
            elif len(block) >= _MAX_HELD_BYTES:
                raise ContentError(
                    f"{self.name}: the record that begins on line {line_number} is longer than "
                    f"{_MAX_HELD_BYTES >> 20} MiB; look in this record for a quote that is never closed. {_SAVE_ADVICE}"
                )
            else:
                requested_size = min(2 * len(block), _MAX_HELD_BYTES)

    def _build_chunks(
        self, block: bytes, records: Records, parsed_block: ParsedBlock, line_number: int, previous_row_number: int
    ) -> Iterator[Chunk]:
        """Yield the records of a block in chunks of at most `_MAX_CHUNK_ROWS` rows. `previous_row_number` is the number
        of the last record before the block. Blank lines are also numbered."""
        first_row_number = previous_row_number + 1
        row_numbers = first_row_number + parsed_block.indices
        malformed_rows, previous_start = [], 0
        for index, (code, message) in sorted(parsed_block.failure_by_index.items()):
            start, stop = int(records.starts[index]), int(records.stops[index])
            line_number, previous_start = line_number + count_lines(block[previous_start:start]), start
            record = block[start:stop]
            inner_line_count = count_lines(record.rstrip(b"\r\n"))
            if inner_line_count and code in _CODES_OF_MULTILINE_FAULTS:
                reading_text = choose_form(inner_line_count, "was not read as a row", "were not read as rows")
                message += f"; the row includes {count(inner_line_count, 'more line')}, which {reading_text}"
            raw_text = format_bytes(record[:_MAX_SHOWN_BYTES]) + ("…" if len(record) > _MAX_SHOWN_BYTES else "")
            malformed_rows.append(MalformedRow(first_row_number + index, line_number, raw_text, code, message))
        table = parsed_block.table.rename_columns(list(self.columns))
        chunk_starts = range(0, max(1, table.num_rows), _MAX_CHUNK_ROWS)
        for chunk_start in chunk_starts:
            chunk_table = table.slice(chunk_start, _MAX_CHUNK_ROWS)
            is_last = chunk_start == chunk_starts[-1]
            chunk_malformed_rows = tuple(
                row for row in malformed_rows if is_last or row.number <= row_numbers[chunk_start + _MAX_CHUNK_ROWS - 1]
            )
            malformed_rows = malformed_rows[len(chunk_malformed_rows) :]
            if chunk_table.num_rows or chunk_malformed_rows:
                yield Chunk(
                    build_frame(chunk_table),
                    row_numbers[chunk_start : chunk_start + _MAX_CHUNK_ROWS],
                    chunk_malformed_rows,
                    self.name,
                )


_MESSAGE_BY_CODE = {
    "ambiguous_quote": (
        "has quotes inside an unquoted cell, and a delimiter between these quotes, so the end of the cell is not "
        'certain; quote the whole cell, and write the quotes in it twice: "Ann""Lee, Jr"""'
    ),
    "stray_quote": (
        "a quote closes a cell, and more text follows in the cell; write a quote within a quoted cell twice, as in "
        '"Jo ""X"" Doe", and not with a backslash (\\")'
    ),
    "unclosed_quote": "a quote is opened and never closed, and the file ends in its cell; close the quote",
    "oversized": (
        f"is longer than {_MAX_RECORD_BYTES >> 10} KiB, which is not the row of a subscriber; look for a quote that is "
        "never closed"
    ),
    "nul": "holds a NUL byte, which is not text",
}
"""Messages of malformed records by code. The messages of the codes `ragged` and `encoding` are not here, because they
contain facts of the file."""

_SAVE_ADVICE = (
    "Correct the file, or save the file again as CSV from a spreadsheet: a cell begins with its double quote, "
    "and a quote within a cell is written twice"
)
_INDENTED_QUOTE_PROBLEM = "has spaces between the beginning of a cell and its quote"


def find_file_problem(block: bytes, records: Records, dialect: CsvDialect) -> tuple[int, str] | None:
    """Return the index and the problem of the first record for which the file must be refused, or None.

    A file is refused for one of three faults of a record:
    - Spaces stand before a quote.
    - A quote stays open for several lines, up to the end of the file.
    - A damaged cell contains other rows.
    """
    problem_by_index = dict.fromkeys(_find_record_indices(records, records.indented_quotes), _INDENTED_QUOTE_PROBLEM)
    record_lengths = records.stops - records.starts
    suspect_record_indices = {  # these records may include other rows
        *_find_record_indices(records, records.stray_quotes),
        *np.flatnonzero(record_lengths > _MAX_RECORD_BYTES).tolist(),
    }
    delimiter, delimiter_count = dialect.delimiter.encode(), dialect.cell_count - 1
    for index in suspect_record_indices:
        record = block[records.starts[index] : records.stops[index]]
        lines_below = record.splitlines()[1:]  # these lines may be separate rows
        if record.count(delimiter) > delimiter_count and any(
            line.count(delimiter) >= delimiter_count for line in lines_below
        ):
            problem_by_index[index] = (
                "has a quote that is not closed, so that the record includes "
                f"{count_lines(record)} lines below the quote"
            )
    if records.is_unclosed and (line_count := count_lines(block[records.starts[-1] :].rstrip(b"\r\n"))):
        problem_by_index[len(records) - 1] = (
            f"has a quote that is never closed, so that the record includes the last {count(line_count, 'line')}"
        )
    return min(problem_by_index.items(), default=None)


def parse_block(block: bytes, records: Records, dialect: CsvDialect, used_column_indices: Sequence[int]) -> ParsedBlock:
    """Parse the records of a block. A record with an undecodable byte fails only if the byte is in one of the columns
    `used_column_indices`. Raises SourceError if pyarrow does not find the same number of records as `records`."""
    record_lengths = records.stops - records.starts
    blank_mask = find_blank_records(block, records, dialect.delimiter)
    # Spreadsheets may write thousands of lines that have only delimiters. Such a line counts as blank.
    delimiters_only_record = dialect.delimiter.encode() * (dialect.cell_count - 1)
    for index in np.flatnonzero(record_lengths == dialect.cell_count - 1).tolist():
        blank_mask[index] |= block[records.starts[index] : records.stops[index]] == delimiters_only_record
    code_by_index = dict.fromkeys(_find_record_indices(records, records.ambiguous_quotes), "ambiguous_quote")
    code_by_index |= dict.fromkeys(_find_record_indices(records, records.stray_quotes), "stray_quote")
    if records.is_unclosed:
        code_by_index[len(records) - 1] = "unclosed_quote"
    code_by_index |= dict.fromkeys(np.flatnonzero(record_lengths > _MAX_RECORD_BYTES).tolist(), "oversized")
    failure_by_index = {index: (code, _MESSAGE_BY_CODE[code]) for index, code in code_by_index.items()}
    decoding_failure_by_index = _find_decoding_failures(block, records, dialect)
    parsed_mask = ~blank_mask
    parsed_mask[list(failure_by_index)] = False
    parsed_indices = np.flatnonzero(parsed_mask)
    parseable_records = _select_parseable_records(block, records, parsed_mask, decoding_failure_by_index)
    table, width_by_row = _read_table(parseable_records, dialect)
    expected_width_text = f"the header has {dialect.column_count}"
    if dialect.has_trailing_delimiters:
        regular_row_indices = np.delete(np.arange(table.num_rows + len(width_by_row)), list(width_by_row))
        empty_last_cell_mask = pc.equal(table.columns[-1], "")
        width_by_row |= dict.fromkeys(
            regular_row_indices[~empty_last_cell_mask.to_numpy().astype(bool)].tolist(), dialect.cell_count
        )
        table = table.filter(empty_last_cell_mask).select(range(dialect.column_count))
        expected_width_text = f"other rows have {dialect.cell_count}, of which the last is empty"
    for row_index, width in width_by_row.items():
        message = f"has {width} cells where {expected_width_text}; look for a missing or a stray delimiter or quote"
        failure_by_index[int(parsed_indices[row_index])] = ("ragged", message)
    if table.num_rows + len(width_by_row) != len(parsed_indices):
        raise SourceError("unbalanced quotes: cannot find where this row ends; save the file again as CSV")
    record_indices = np.delete(parsed_indices, list(width_by_row))
    readable_indices = _find_readable_records(table, record_indices, decoding_failure_by_index, used_column_indices)
    failure_by_index |= {
        index: fault for index, fault in decoding_failure_by_index.items() if index not in readable_indices
    }
    row_mask = ~np.isin(record_indices, list(failure_by_index))
    return ParsedBlock(table.filter(pa.array(row_mask)), record_indices[row_mask], failure_by_index)


def _select_parseable_records(
    block: bytes, records: Records, parsed_mask: npt.NDArray[np.bool_], undecodable_indices: Collection[int]
) -> bytes:
    """Return the records of a block that pyarrow can parse. In the records `undecodable_indices`, replace undecodable
    bytes by U+FFFD. Delimiters and quotes do not change, because they are ASCII."""
    pieces, previous_end = [], 0
    for index in sorted({*np.flatnonzero(~parsed_mask).tolist(), *undecodable_indices}):
        start_offset, end_offset = int(records.starts[index]), int(records.next_starts[index])
        pieces.append(block[previous_end:start_offset])
        if parsed_mask[index]:
            text = block[start_offset:end_offset].decode("utf-8", "replace")
            pieces.append(text.replace("\0", REPLACEMENT_CHARACTER).encode())
        previous_end = end_offset
    return b"".join([*pieces, block[previous_end:]]) if previous_end else block


def _find_readable_records(
    table: pa.Table,
    record_indices: npt.NDArray[np.int64],
    undecodable_indices: Collection[int],
    used_column_indices: Sequence[int],
) -> set[int]:
    """Return the indices of the records whose undecodable bytes are only in unused columns."""
    table_row_indices = np.flatnonzero(np.isin(record_indices, list(undecodable_indices)))
    lossy_mask = np.zeros(len(table_row_indices), dtype=bool)
    for column_index in used_column_indices if len(table_row_indices) else ():
        cells = table.columns[column_index].take(pa.array(table_row_indices))
        lossy_mask |= pc.match_substring(cells, REPLACEMENT_CHARACTER).to_numpy().astype(bool)
    return set(record_indices[table_row_indices[~lossy_mask]].tolist())


def _find_record_indices(records: Records, positions: npt.NDArray[np.int64]) -> list[int]:
    indices: list[int] = np.unique(np.searchsorted(records.next_starts, positions, side="right")).tolist()
    return indices


def _find_decoding_failures(block: bytes, records: Records, dialect: CsvDialect) -> _FailureByIndex:
    failure_by_index: _FailureByIndex = {}
    offset = block.find(b"\0")
    while offset >= 0:
        index = int(np.searchsorted(records.next_starts, offset, side="right"))
        failure_by_index[index] = ("nul", _MESSAGE_BY_CODE["nul"])
        offset = block.find(b"\0", int(records.next_starts[index]))
    block_view, offset = memoryview(block), 0
    while offset < len(block):
        end_offset = offset + _DECODED_PIECE_BYTES
        try:
            offset += codecs.utf_8_decode(block_view[offset:end_offset], "strict", end_offset >= len(block))[1]
        except UnicodeDecodeError as error:
            undecodable_offset = offset + error.start
            index = int(np.searchsorted(records.next_starts, undecodable_offset, side="right"))
            problem_text = f"holds bytes that are not {dialect.encoding}"
            if dialect.encoding == "utf-8":
                problem_text = f"byte 0x{block[undecodable_offset]:02X} is not UTF-8"
            advice = f"if the file is in another encoding, name it: {advise_encoding(dialect.advised_encoding)}"
            failure_by_index[index] = ("encoding", f"{problem_text}; {advice}")
            offset = int(records.next_starts[index])
    return failure_by_index


def count_lines(text_bytes: bytes) -> int:
    """Return the number of line ends (LF, CR LF or CR) in a text."""
    return text_bytes.count(b"\n") + text_bytes.count(b"\r") - text_bytes.count(b"\r\n")


def _read_table(block: bytes, dialect: CsvDialect) -> tuple[pa.Table, dict[int, int]]:
    """Return the rows that have the expected number of cells. Also return the number of cells of each other row, by the
    index (from 0) of the row in `block`."""
    column_names = [str(index) for index in range(dialect.cell_count)]
    if not block:
        return pa.table({name: pa.array([], pa.large_string()) for name in column_names}), {}
    width_by_row: dict[int, int] = {}

    def record_ragged_row(row: pa_csv.InvalidRow) -> str:
        width_by_row[row.number - 1] = row.actual_columns
        return "skip"

    table = pa_csv.read_csv(
        pa.BufferReader(block),
        read_options=pa_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=column_names),
        parse_options=pa_csv.ParseOptions(
            delimiter=dialect.delimiter,
            newlines_in_values=True,
            ignore_empty_lines=False,
            invalid_row_handler=record_ragged_row,
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(column_names, pa.large_string()),
            null_values=[],
            strings_can_be_null=False,
            check_utf8=False,  # `_find_decoding_failures` has checked the block
        ),
    )
    return table, width_by_row
