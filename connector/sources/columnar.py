"""Parquet and JSON Lines as sources: batches of typed values in, chunks of texts out, memory bounded by the batch.

JSON Lines are read twice, since a key may come with the last line. A line that is broken, no object or too long costs
that line alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connector.driver_words import say_safely
from connector.errors import SourceError
from connector.rows import Chunk, Closing, MalformedRow, Source
from connector.sources.cell_text import (
    CHUNK_ROWS,
    Text,
    build_chunk,
    build_frame,
    build_texts,
    parse_object,
    show_record,
    write_lists,
)
from connector.sources.encoding import Utf8Stream, open_utf8, show_bytes
from connector.sources.header_row import name_columns
from connector.sources.inputs import Input

_CHUNK_BYTES = 1 << 23  # of rows that are wide: fewer at a time
_BUFFER_BYTES = 1 << 20  # of a column, read ahead; a row group may be as large as the file

_READ_BYTES = 1 << 22  # about 20,000 lines
_MOST_LINE = 1 << 20  # bytes; a subscriber's line has a few hundred
_KEPT_BYTES = 1 << 10  # of a line that is too long, for the rejects file
_MOST_KEYS = 10_000  # an object with a key of its own for each subscriber is no row


class ParquetSource(Closing):
    """A Parquet file, opened by `open_parquet`."""

    def __init__(self, source_input: Input) -> None:
        self.name, self._input = source_input.name, source_input
        try:
            self._file = pq.ParquetFile(source_input.take_file(), buffer_size=_BUFFER_BYTES, pre_buffer=False)
            self.columns = name_columns(_flatten(self._file.schema_arrow.empty_table()).column_names)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise SourceError(f"{self.name}: is no Parquet file that can be read: {say_safely(error)}") from None

    def chunks(self) -> Iterator[Chunk]:
        """Give the rows, in order, once; none for a file without any. Raises SourceError."""
        first = 1
        try:
            # One thread: others that read ahead crash the interpreter if it ends before they do.
            for batch in self._file.iter_batches(_choose_rows(self._file.metadata), use_threads=False):
                yield self._build_chunk(_flatten(pa.Table.from_batches([batch])), first)
                first += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise SourceError(
                f"{self.name}: cannot be read on after row {first - 1}: {say_safely(error)}; write the file again"
            ) from None

    def close(self) -> None:
        """Release the file; may be called more than once."""
        self._input.close()

    def _build_chunk(self, table: pa.Table, first: int) -> Chunk:
        def show(index: int) -> str:
            return show_record(self.columns, [_read_values(column.slice(index, 1))[0] for column in table.columns])

        texts = [_write_texts(column) for column in table.columns]
        return build_chunk(self.name, self.columns, texts, first + np.arange(table.num_rows), show)


def open_parquet(source_input: Input) -> Source:
    """Open a Parquet file, of which every value comes as text.

    Null is missing, booleans are true and false, numbers plain, dates and times ISO, lists JSON; a struct's fields are
    columns of their own, `address.city`. Bytes that are not UTF-8 make their row malformed. Raises SourceError.
    """
    return ParquetSource(source_input)


def _choose_rows(about: pq.FileMetaData) -> int:
    """Return how many rows make a chunk, by the sizes of the file's row groups."""
    size = sum(about.row_group(index).total_byte_size for index in range(about.num_row_groups))
    return int(min(CHUNK_ROWS, max(1, _CHUNK_BYTES * about.num_rows // max(1, size))))


def _flatten(table: pa.Table) -> pa.Table:
    """Structs cut into their fields, at any depth; a field of a struct that is null is null."""
    while any(pa.types.is_struct(kind) for kind in table.schema.types):
        table = table.flatten()
    return table


def _write_texts(column: pa.ChunkedArray) -> Text:
    """A column as texts; texts and whole numbers as whole columns."""
    try:
        if _is_text(column.type):
            return _combine(column.cast(pa.large_binary()).cast(pa.large_string())), {}  # bytes: so UTF-8 is checked
        if pa.types.is_integer(column.type):
            return _combine(column.cast(pa.large_string())), {}
    except pa.ArrowInvalid:
        pass  # some are not UTF-8: one by one
    return build_texts(_read_values(column))


def _read_values(column: pa.ChunkedArray) -> list[object]:
    """A column as Python's values; a text as its bytes, and a short float as the number that is written for it."""
    if pa.types.is_dictionary(column.type):
        return _read_values(pc.dictionary_decode(column))
    if _is_text(column.type):
        column = column.cast(pa.large_binary())
    try:
        values: list[object] = column.to_pylist()
    except (ValueError, OverflowError):
        values = [_read_value(value) for value in column]
    if pa.types.is_nested(column.type):
        return write_lists(values)
    if pa.types.is_float32(column.type) or pa.types.is_float16(column.type):
        numbers = column.to_numpy()  # NaN where null; its short floats are written with their own digits
        return [None if value is None else float(str(number)) for value, number in zip(values, numbers, strict=True)]
    return values


def _read_value(value: pa.Scalar) -> object:
    """One value; bytes that are not UTF-8 as they are, and a date beyond Python's as its text."""
    try:
        return value.as_py()
    except UnicodeDecodeError as error:
        return error.object
    except (ValueError, OverflowError):
        return value.cast(pa.string()).as_py()


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _combine(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array


class JsonLinesSource(Closing):
    """A file of JSON Lines, opened by `open_json_lines`."""

    def __init__(self, source_input: Input, file: BinaryIO, encoding: str, keys: Sequence[str]) -> None:
        self.name = source_input.name
        self.columns = name_columns(keys)
        self._keys, self._input = tuple(keys), source_input
        self._stream = open_utf8(file, encoding)

    def chunks(self) -> Iterator[Chunk]:
        """Give the objects, in order, once; their numbers are those of their lines. Raises SourceError."""
        for lines in _read_lines(self._stream):
            yield self._build_chunk(lines)

    def close(self) -> None:
        """Release the file; may be called more than once."""
        self._input.close()

    def _build_chunk(self, lines: Sequence["_Line"]) -> Chunk:
        rows: dict[int, dict[str, object]] = {}
        faults: dict[int, tuple[str, str]] = {}
        for index, line in enumerate(lines):
            try:
                rows[index] = _read_row(line)
            except ValueError as error:
                faults[index] = ("too_long" if line.is_too_long else "json", str(error))
        indices = list(rows)
        texts = []
        for key, column in zip(self._keys, self.columns, strict=True):
            array, wrong = build_texts(write_lists([row.get(key) for row in rows.values()]))
            texts.append(array)
            for at, why in wrong.items():
                faults.setdefault(indices[at], ("encoding", f"{column} {why}"))
        table = pa.table(texts, names=list(self.columns))
        is_good = [index not in faults for index in indices]
        frame = build_frame(table.filter(pa.array(is_good, pa.bool_())))
        numbers = [lines[index].number for index, good in zip(indices, is_good, strict=True) if good]
        malformed = tuple(_build_malformed(lines[index], *faults[index]) for index in sorted(faults))
        return Chunk(frame, np.array(numbers, dtype=np.int64), malformed, self.name)


def open_json_lines(source_input: Input, encoding: str) -> Source:
    """Open a file of JSON Lines: its columns are all keys of all objects, in the order in which they come.

    Nested objects are flattened (`address.city`), lists stay JSON, null and an absent key are missing. Raises
    SourceError for a file without any object.
    """
    encoding = "utf-8" if encoding == "auto" else encoding  # RFC 8259: no other is found in what it exchanges
    file = source_input.take_file()
    keys = _find_keys(source_input.name, file, encoding)
    file.seek(0)
    return JsonLinesSource(source_input, file, encoding, keys)


def _find_keys(name: str, file: BinaryIO, encoding: str) -> list[str]:
    keys: dict[str, None] = {}
    filled: set[str] = set()  # those for which any object has a value
    for lines in _read_lines(open_utf8(file, encoding)):
        for row in map(_read_row_if_any, lines):
            if not row.keys() <= filled:
                keys |= dict.fromkeys(row)
                filled |= {key for key, value in row.items() if value is not None}
        if len(keys) > _MOST_KEYS:
            raise SourceError(f"{name}: has more than {_MOST_KEYS:,} keys; is each line a row?")
    if not keys:
        raise SourceError(f"{name}: holds no JSON object with a key; JSON Lines has one on each line")
    nested = {key[:end] for key in keys for end, sign in enumerate(key) if sign == "."}
    return [key for key in keys if key in filled or key not in nested]  # an object that is null is no key


@dataclass(frozen=True, slots=True)
class _Line:
    """One line without its end, its `number` from 1; of one that `is_too_long` only the beginning."""

    number: int
    text: bytes
    is_too_long: bool = False


def _read_lines(stream: Utf8Stream) -> Iterator[list[_Line]]:
    """Give all lines that are not blank, about four megabytes at a time; a line that is too long is never held."""
    number, rest, is_skipping = 0, b"", False
    while True:
        block = stream.read(_READ_BYTES)
        *ended, rest = (rest + block).split(b"\n") if block else [rest, b""]
        batch = []
        for text in ended:
            number += 1
            line = _build_line(number, text)
            if line is not None and not is_skipping:
                batch.append(line)
            is_skipping = False
        if len(rest) > _MOST_LINE:
            if not is_skipping:
                batch.append(_Line(number + 1, rest[:_KEPT_BYTES], is_too_long=True))
            is_skipping, rest = True, b""
        if batch:
            yield batch
        if not block:
            return


def _build_line(number: int, text: bytes) -> _Line | None:
    if len(text) > _MOST_LINE:
        return _Line(number, text[:_KEPT_BYTES], is_too_long=True)
    stripped = text.strip()
    return _Line(number, stripped) if stripped else None


def _read_row_if_any(line: _Line) -> dict[str, object]:
    try:
        return _read_row(line)
    except ValueError:  # said when the line is read as a row
        return {}


def _read_row(line: _Line) -> dict[str, object]:
    if line.is_too_long:
        raise ValueError(f"is longer than {_MOST_LINE >> 20} MiB, as no row is; look there for a missing line end")
    return parse_object(line.text)


def _build_malformed(line: _Line, code: str, message: str) -> MalformedRow:
    return MalformedRow(line.number, line.number, show_bytes(line.text), code, message)
