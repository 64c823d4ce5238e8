"""Reads typed columns as sources: Parquet files, Arrow data and DataFrames."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from connector.driver_errors import describe_error
from connector.errors import ContentError, SourceError
from connector.rows import Chunk, CloseableResource, Source
from connector.sources.cell_text import (
    CHUNK_ROWS,
    TextColumn,
    build_chunk,
    build_texts,
    format_record,
    is_text_type,
    read_values,
)
from connector.sources.header_row import build_column_names
from connector.sources.inputs import Input

_CHUNK_BYTES = 1 << 23  # the target size of a chunk; a chunk of wide rows has fewer rows
# Number of bytes of each column that are read at a time. Without this limit, the reader would load whole row groups. A
# row group may be as large as the file.
_BUFFER_BYTES = 1 << 20


class ParquetSource(CloseableResource):
    """A Parquet file. Each value is read as text. Raises SourceError if the file cannot be read.

    Null is a missing value. Booleans are `true` and `false`, numbers of at most 15 digits have no exponent, dates and
    times are in ISO form, and lists are JSON. Each field of a struct is a column (`address.city`). A row with bytes
    that are not UTF-8 is malformed.
    """

    def __init__(self, source_input: Input) -> None:
        self.name, self._input = source_input.name, source_input
        try:
            self._file = pq.ParquetFile(source_input.file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
            self.columns = build_column_names(_flatten_structs(self._file.schema_arrow.empty_table()).column_names)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise SourceError(f"{self.name}: is not a Parquet file that can be read: {describe_error(error)}") from None

    def read_chunks(self, used_columns: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`."""
        metadata, first_row_number = self._file.metadata, 1
        table_bytes = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
        row_count = int(min(CHUNK_ROWS, max(1, _CHUNK_BYTES * metadata.num_rows // max(1, table_bytes))))
        try:
            # Only one thread reads. Threads that read ahead would crash the interpreter if the interpreter ends first.
            for batch in self._file.iter_batches(row_count, use_threads=False):
                table = pa.Table.from_batches([batch])
                chunk = _build_table_chunk(self.name, self.columns, table, first_row_number, used_columns)
                first_row_number += batch.num_rows
                yield replace(chunk, read_share=(first_row_number - 1) / metadata.num_rows)
        except (pa.ArrowException, OSError) as error:
            raise ContentError(
                f"{self.name}: cannot be read after row {first_row_number - 1}: {describe_error(error)}; "
                "write the file again"
            ) from None

    def close(self) -> None:
        """Release the file. A second call does nothing."""
        self._input.close()


def _build_table_chunk(
    name: str, columns: tuple[str, ...], table: pa.Table, first_row_number: int, used_columns: Collection[str] | None
) -> Chunk:
    """Return the rows of a table as a chunk. `first_row_number` is the number of the first row."""
    arrow_columns = _flatten_structs(table).columns

    def format_row(index: int) -> str:
        return format_record(columns, [read_values(column.slice(index, 1))[0] for column in arrow_columns])

    texts = [_format_column(column) for column in arrow_columns]
    return build_chunk(name, columns, texts, first_row_number, format_row, used_columns)


def _flatten_structs(table: pa.Table) -> pa.Table:
    """Return the table with a column for each field of its structs, at any depth. The fields of a null struct are
    null."""
    while any(pa.types.is_struct(arrow_type) for arrow_type in table.schema.types):
        table = table.flatten()
    return table


def _format_column(column: pa.ChunkedArray) -> TextColumn:
    """Return a column as texts. A column of texts or whole numbers is converted in one step."""
    if pa.types.is_integer(column.type):
        return column.cast(pa.large_string()).combine_chunks(), {}
    if is_text_type(column.type):
        with suppress(pa.ArrowInvalid):  # some bytes are not UTF-8: convert each value
            # The cast from bytes checks UTF-8.
            return column.cast(pa.large_binary()).cast(pa.large_string()).combine_chunks(), {}
    return build_texts(read_values(column))


# Data in the memory of the caller


class ArrowStream(Protocol):
    """Data with Arrow's PyCapsule interface, such as a table, a reader, a Polars frame, or a DuckDB result."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the stream as an Arrow capsule."""


def open_rows(rows: pd.DataFrame | ArrowStream, name: str) -> Source:
    """Return a DataFrame or Arrow data as a source. `name` is the name for messages.

    None, NaN, NaT and NA are missing values. Booleans are `true` and `false`, numbers of at most 15 digits have no
    exponent, dates and times are in ISO form, and lists are JSON. The index of a DataFrame is not read. Rows are
    numbered from 1. A reader can be read only once. Raises SourceError for other data.
    """
    if isinstance(rows, pd.DataFrame):
        return FrameSource(rows, name)
    if not hasattr(rows, "__arrow_c_stream__"):
        raise SourceError(
            f"{name}: is of the type {type(rows).__name__}; pass a path, a DataFrame, or Arrow data (a table, a reader)"
        )
    return ArrowSource(rows, name)


class FrameSource(CloseableResource):
    """A DataFrame, opened by `open_rows`."""

    def __init__(self, frame: pd.DataFrame, name: str) -> None:
        self.name, self._frame = name, frame
        self.columns = build_column_names([str(column) for column in frame.columns])

    def read_chunks(self, used_columns: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`."""
        for first_index in range(0, len(self._frame), CHUNK_ROWS):
            yield self._build_chunk(
                self._frame.iloc[first_index : first_index + CHUNK_ROWS], first_index + 1, used_columns
            )

    def close(self) -> None:
        """Do nothing: the frame belongs to the caller."""

    def _build_chunk(self, rows: pd.DataFrame, first_row_number: int, used_columns: Collection[str] | None) -> Chunk:
        def format_row(index: int) -> str:
            return format_record(self.columns, [_convert_cell(value) for value in _list_values(rows.iloc[index])])

        texts = [_format_series(rows.iloc[:, index]) for index in range(rows.shape[1])]
        return build_chunk(self.name, self.columns, texts, first_row_number, format_row, used_columns)


def _format_series(series: pd.Series) -> TextColumn:
    """Return a column as texts. A column is converted value by value if it has mixed values, for which Arrow has no
    type.

    A column of a pandas type that Arrow reads as numbers (a Period) is also converted value by value.
    """
    try:
        array = pa.array(series, from_pandas=True)
        if not isinstance(array.type, pa.BaseExtensionType):
            return _format_column(pa.chunked_array([array]))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, UnicodeEncodeError, OverflowError):
        pass
    return build_texts([_convert_cell(value) for value in _list_values(series)])


def _convert_cell(value: object) -> object:
    if isinstance(value, np.floating):
        return float(str(value))  # the 64-bit float with the same decimal digits
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | pd.Series | list | tuple | set | frozenset):
        return [_convert_cell(item) for item in value]
    return str(value) if isinstance(value, pd.Period) else value


def _list_values(series: pd.Series) -> list[object]:
    """Return the values as Python values. A missing value is None."""
    cell_values: list[object] = series.astype(object).tolist()
    return [None if is_missing else value for value, is_missing in zip(cell_values, series.isna(), strict=True)]


class ArrowSource(CloseableResource):
    """Arrow data, opened by `open_rows`. Raises SourceError if the data cannot be opened or cannot be read again."""

    def __init__(self, rows: ArrowStream, name: str) -> None:
        self.name, self._rows = name, rows
        self._reader: pa.RecordBatchReader | None = self._open_reader()
        self.columns = build_column_names(_flatten_structs(self._reader.schema.empty_table()).column_names)

    def read_chunks(self, used_columns: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`. Raises SourceError if the data is a reader that was already read."""
        reader, self._reader = self._reader or self._open_reader(), None
        first_row_number, batches, row_count = 1, list[pa.RecordBatch](), 0
        try:
            for batch in reader:  # a batch may have any number of rows
                batches.append(batch)
                row_count += batch.num_rows
                while row_count >= CHUNK_ROWS:
                    table = pa.Table.from_batches(batches)
                    rows = table.slice(0, CHUNK_ROWS)
                    yield _build_table_chunk(self.name, self.columns, rows, first_row_number, used_columns)
                    batches = table.slice(CHUNK_ROWS).to_batches()
                    row_count -= CHUNK_ROWS
                    first_row_number += CHUNK_ROWS
            if row_count:
                rows = pa.Table.from_batches(batches)
                yield _build_table_chunk(self.name, self.columns, rows, first_row_number, used_columns)
        except pa.ArrowException as error:
            raise SourceError(
                f"{self.name}: cannot be read after row {first_row_number - 1}: {describe_error(error)}; pass the data "
                "again"
            ) from None

    def close(self) -> None:
        """Release the reader. The data belong to the caller."""
        self._reader = None

    def _open_reader(self) -> pa.RecordBatchReader:
        try:
            return pa.RecordBatchReader.from_stream(self._rows)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise SourceError(
                f"{self.name}: its rows cannot be read: {describe_error(error)}; pass a table, or a reader that was "
                "not read yet"
            ) from None
