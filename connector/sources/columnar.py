"""Parquet and JSON Lines as sources: batches of typed values in, chunks of texts out, memory bounded by the batch.

JSON Lines are read twice, since a key may come with the last line. A line that is broken or no object costs that line
alone.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connector.driver_words import say_safely
from connector.errors import SourceError
from connector.rows import Chunk, Closing, MalformedRow
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
from connector.sources.encoding import Utf8Stream, show_bytes
from connector.sources.header_row import name_columns
from connector.sources.inputs import Input

_CHUNK_BYTES = 1 << 23  # of rows that are wide: fewer at a time
_BUFFER_BYTES = 1 << 20  # of a column, read ahead; a row group may be as large as the file

_READ_BYTES = 1 << 22  # about 20,000 lines
_MOST_LINE = 1 << 20  # bytes; a subscriber's line has a few hundred
_MOST_KEYS = 10_000  # an object with a key of its own for each subscriber is no row


class ParquetSource(Closing):
    """A Parquet file, of which every value comes as text; raises SourceError.

    Null is missing, booleans are true and false, numbers plain, dates and times ISO, lists JSON; a struct's fields are
    columns of their own, `address.city`. Bytes that are not UTF-8 make their row malformed.
    """

    def __init__(self, source_input: Input) -> None:
        self.name, self._input = source_input.name, source_input
        try:
            self._file = pq.ParquetFile(source_input.file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
            self.columns = name_columns(flatten(self._file.schema_arrow.empty_table()).column_names)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise SourceError(f"{self.name}: is no Parquet file that can be read: {say_safely(error)}") from None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order, from the first; none for a file without any. Raises SourceError."""
        first = 1
        try:
            # One thread: others that read ahead crash the interpreter if it ends before they do.
            for batch in self._file.iter_batches(_choose_rows(self._file.metadata), use_threads=False):
                chunk = build_table_chunk(self.name, self.columns, flatten(pa.Table.from_batches([batch])), first)
                first += batch.num_rows
                yield replace(chunk, share=(first - 1) / self._file.metadata.num_rows)
        except (pa.ArrowException, OSError) as error:
            raise SourceError(
                f"{self.name}: cannot be read on after row {first - 1}: {say_safely(error)}; write the file again"
            ) from None

    def close(self) -> None:
        """Release the file; may be called more than once."""
        self._input.close()


def _choose_rows(about: pq.FileMetaData) -> int:
    """Return how many rows make a chunk, by the sizes of the file's row groups."""
    size = sum(about.row_group(index).total_byte_size for index in range(about.num_row_groups))
    return int(min(CHUNK_ROWS, max(1, _CHUNK_BYTES * about.num_rows // max(1, size))))


def build_table_chunk(name: str, columns: tuple[str, ...], table: pa.Table, first: int) -> Chunk:
    """Return the rows of a flat table as a chunk; `first` is the number of the first row."""

    def show(index: int) -> str:
        return show_record(columns, [_read_values(column.slice(index, 1))[0] for column in table.columns])

    texts = [write_texts(column) for column in table.columns]
    return build_chunk(name, columns, texts, first + np.arange(table.num_rows), show)


def flatten(table: pa.Table) -> pa.Table:
    """Return the table with structs cut into their fields, at any depth; a field of a struct that is null is null."""
    while any(pa.types.is_struct(kind) for kind in table.schema.types):
        table = table.flatten()
    return table


def write_texts(column: pa.ChunkedArray) -> Text:
    """Return a column as texts; texts and whole numbers as whole columns."""
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
    """A file of JSON Lines: its columns are all keys of all objects, in the order in which they come.

    Nested objects are flattened (`address.city`), lists stay JSON, null and an absent key are missing. Raises
    SourceError for a file without any object, or with a line of more than a MiB.
    """

    def __init__(self, source_input: Input, encoding: str) -> None:
        self.name, self._input = source_input.name, source_input
        # RFC 8259: no other encoding is found in what it exchanges.
        encoding = "utf-8" if encoding == "auto" else encoding
        self._stream = Utf8Stream(self.name, source_input.file, encoding)
        self._keys = self._find_keys()
        self.columns = name_columns(self._keys)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the objects in order, from the first; their numbers are those of their lines. Raises SourceError."""
        size = max(os.fstat(self._input.file.fileno()).st_size, 1)
        for lines in self._read_lines():
            yield replace(self._build_chunk(lines), share=self._input.file.tell() / size)

    def close(self) -> None:
        """Release the file; may be called more than once."""
        self._input.close()

    def _find_keys(self) -> list[str]:
        keys: dict[str, None] = {}
        filled: set[str] = set()  # those for which any object has a value
        for lines in self._read_lines():
            for row in (_parse_if_object(text) for _, text in lines):
                if not row.keys() <= filled:
                    keys |= dict.fromkeys(row)
                    filled |= {key for key, value in row.items() if value is not None}
            if len(keys) > _MOST_KEYS:
                raise SourceError(f"{self.name}: has more than {_MOST_KEYS:,} keys; is each line a row?")
        if not keys:
            raise SourceError(f"{self.name}: holds no JSON object with a key; JSON Lines has one on each line")
        nested = {key[:end] for key in keys for end, sign in enumerate(key) if sign == "."}
        return [key for key in keys if key in filled or key not in nested]  # an object that is null is no key

    def _read_lines(self) -> Iterator[list[tuple[int, bytes]]]:
        """Yield the lines that are not blank with their numbers (from 1), about four megabytes at a time."""
        self._stream.rewind()
        first, rest, is_ended = 1, b"", False
        while not is_ended:
            block = self._stream.read(_READ_BYTES)
            is_ended = not block
            *lines, rest = [rest, b""] if is_ended else (rest + block).split(b"\n")
            numbered = list(enumerate(lines, first))
            first += len(lines)
            for number, text in [*numbered, (first, rest)]:
                if len(text) > _MOST_LINE:
                    raise SourceError(
                        f"{self.name}: line {number} is longer than {_MOST_LINE >> 20} MiB, as no row is; look there "
                        "for a missing line end"
                    )
            if filled := [(number, stripped) for number, text in numbered if (stripped := text.strip())]:
                yield filled

    def _build_chunk(self, lines: Sequence[tuple[int, bytes]]) -> Chunk:
        rows: dict[int, dict[str, object]] = {}
        faults: dict[int, tuple[str, str]] = {}
        for number, text in lines:
            try:
                rows[number] = parse_object(text)
            except ValueError as error:
                faults[number] = ("json", str(error))
        numbers = np.array(list(rows), dtype=np.int64)
        texts = []
        for key, column in zip(self._keys, self.columns, strict=True):
            array, wrong = build_texts(write_lists([row.get(key) for row in rows.values()]))
            texts.append(array)
            for index, why in wrong.items():
                faults.setdefault(int(numbers[index]), ("encoding", f"{column} {why}"))
        is_good = np.isin(numbers, list(faults), invert=True)
        frame = build_frame(pa.table(texts, names=list(self.columns)).filter(pa.array(is_good)))
        malformed = tuple(
            MalformedRow(number, number, show_bytes(text), *faults[number])
            for number, text in lines
            if number in faults
        )
        return Chunk(frame, numbers[is_good], malformed, self.name)


def _parse_if_object(text: bytes) -> dict[str, object]:
    try:
        return parse_object(text)
    except ValueError:  # said when the line is read as a row
        return {}
