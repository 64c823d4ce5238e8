"""A Parquet file as a source: batches of typed columns in, chunks of texts out, memory bounded by the batch."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connector.driver_words import say_safely
from connector.errors import SourceError
from connector.extract.chunk import Chunk, MalformedRow, Source
from connector.extract.closing import Closing
from connector.extract.files.content import Content
from connector.extract.files.objects import write_lists
from connector.extract.names import name_columns
from connector.extract.texts import build_texts, show_record

_CHUNK_ROWS = 20_000  # as Python objects they weigh about ten times what they do as text
_CHUNK_BYTES = 1 << 23  # of rows that are wide: fewer at a time
_BUFFER_BYTES = 1 << 20  # of a column, read ahead; a row group may be as large as the file
_TEXT = pd.StringDtype(na_value=np.nan)


class ParquetSource(Closing):
    """A Parquet file, opened by `open_parquet`."""

    def __init__(self, content: Content) -> None:
        self.name, self._content = content.name, content
        try:
            self._file = pq.ParquetFile(content.take_file(), buffer_size=_BUFFER_BYTES, pre_buffer=False)
            self.columns = name_columns(_flatten(self._file.schema_arrow.empty_table()).column_names)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise SourceError(f"{self.name}: is no Parquet file that can be read: {say_safely(error)}") from None

    def chunks(self) -> Iterator[Chunk]:
        """Give the rows, in order, once; none for a file without any. Raises SourceError."""
        first = 1
        try:
            # One thread: what reads ahead in others crashes the interpreter if it ends before they do.
            for batch in self._file.iter_batches(_choose_rows(self._file.metadata), use_threads=False):
                yield self._build_chunk(_flatten(pa.Table.from_batches([batch])), first)
                first += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise SourceError(
                f"{self.name}: cannot be read on after row {first - 1}: {say_safely(error)}; write it anew"
            ) from None

    def close(self) -> None:
        """Let go of the file; may be called more than once."""
        self._content.close()

    def _build_chunk(self, table: pa.Table, first: int) -> Chunk:
        texts, wrong = [], dict[int, str]()
        for name, column in zip(self.columns, table.columns, strict=True):
            array, wrong_here = _write_texts(column)
            texts.append(array)
            for place, why in wrong_here.items():
                wrong.setdefault(place, f"column {name} {why}")
        malformed = tuple(self._build_malformed(table, place, first, wrong[place]) for place in sorted(wrong))
        is_good = np.ones(table.num_rows, dtype=bool)
        is_good[list(wrong)] = False
        good = pa.table(texts, names=list(self.columns)).filter(pa.array(is_good))
        frame = good.to_pandas(types_mapper=lambda _: _TEXT)
        return Chunk(frame, first + np.flatnonzero(is_good), malformed, self.name)

    def _build_malformed(self, table: pa.Table, place: int, first: int, why: str) -> MalformedRow:
        values = [_read_values(column.slice(place, 1))[0] for column in table.columns]
        return MalformedRow(first + place, None, show_record(self.columns, values), "encoding", why)


def open_parquet(content: Content) -> Source:
    """Open a Parquet file, of which every value comes as text.

    Null is missing, booleans are true and false, numbers plain, dates and times ISO, lists JSON; a struct's fields are
    columns of their own, `address.city`. Bytes that are not UTF-8 make their row malformed. Raises SourceError.
    """
    return ParquetSource(content)


def _choose_rows(about: pq.FileMetaData) -> int:
    """How many rows make a chunk, judged by what the file says of its row groups."""
    size = sum(about.row_group(place).total_byte_size for place in range(about.num_row_groups))
    return int(min(_CHUNK_ROWS, max(1, _CHUNK_BYTES * about.num_rows // max(1, size))))


def _flatten(table: pa.Table) -> pa.Table:
    """Structs cut into their fields, at any depth; a field of a struct that is null is null."""
    while any(pa.types.is_struct(kind) for kind in table.schema.types):
        table = table.flatten()
    return table


def _write_texts(column: pa.ChunkedArray) -> tuple[pa.Array, dict[int, str]]:
    """A column as large_string, and by place what is no text and why; texts and whole numbers as whole columns."""
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
