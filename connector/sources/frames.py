"""DataFrames and Arrow data as sources, in the memory of the caller; their values become text as Parquet's do."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pandas as pd
import pyarrow as pa

from connector.driver_words import say_safely
from connector.errors import SourceError
from connector.rows import Chunk, Closing, Source
from connector.sources.cell_text import CHUNK_ROWS, Text, build_chunk, build_texts, show_record
from connector.sources.columnar import build_table_chunk, flatten, write_texts
from connector.sources.header_row import name_columns


class ArrowStream(Protocol):
    """What gives its rows by Arrow's PyCapsule interface: a table, a reader, a frame of Polars, a result of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the stream, as Arrow has it."""


def open_rows(rows: pd.DataFrame | ArrowStream, name: str) -> Source:
    """Return a DataFrame or Arrow data as a source; `name` is what messages call it.

    Missing values (None, NaN, NaT, NA) are missing, booleans are true and false, numbers plain, dates and times ISO,
    lists JSON. A DataFrame's index is not read; a row's number is its place, from 1. A reader can be read once. Raises
    SourceError for what is neither.
    """
    if isinstance(rows, pd.DataFrame):
        return FrameSource(rows, name)
    if not hasattr(rows, "__arrow_c_stream__"):
        raise SourceError(
            f"{name}: is of the type {type(rows).__name__}; give a path, a DataFrame, or Arrow data (a table, a reader)"
        )
    return ArrowSource(rows, name)


class FrameSource(Closing):
    """A DataFrame, opened by `open_rows`."""

    def __init__(self, frame: pd.DataFrame, name: str) -> None:
        self.name, self._frame = name, frame
        self.columns = name_columns([str(column) for column in frame.columns])

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order, from the first; none for a frame without any."""
        for first in range(0, len(self._frame), CHUNK_ROWS):
            yield self._build_chunk(self._frame.iloc[first : first + CHUNK_ROWS], first + 1)

    def close(self) -> None:
        """Leave the frame to its owner."""

    def _build_chunk(self, part: pd.DataFrame, first: int) -> Chunk:
        def show(index: int) -> str:
            return show_record(self.columns, _list_values(part.iloc[index]))

        texts = [_write_series(part.iloc[:, place]) for place in range(part.shape[1])]
        return build_chunk(self.name, self.columns, texts, first + np.arange(len(part)), show)


def _write_series(series: pd.Series) -> Text:
    """A column as texts; one that Arrow has no type for, since its values are mixed, value by value.

    Pandas' own types (a Period) are for Arrow the numbers that they are kept as: these, too, value by value.
    """
    try:
        array = pa.array(series, from_pandas=True)
        if not isinstance(array.type, pa.BaseExtensionType):
            return write_texts(pa.chunked_array([array]))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, UnicodeEncodeError, OverflowError):
        pass
    return build_texts([_read_list(value) for value in _list_values(series)])


def _read_list(value: object) -> object:
    """A cell; one that holds several values as a list: pandas reads the lists of Parquet as arrays."""
    if isinstance(value, np.ndarray | pd.Series):
        return value.tolist()
    return list(value) if isinstance(value, set | frozenset) else value


def _list_values(series: pd.Series) -> list[object]:
    """The values as Python's; None for each that is missing."""
    values: list[object] = series.astype(object).tolist()
    return [None if is_missing else value for value, is_missing in zip(values, series.isna(), strict=True)]


class ArrowSource(Closing):
    """Arrow data, opened by `open_rows`. Raises SourceError where it cannot be opened, or not once more."""

    def __init__(self, rows: ArrowStream, name: str) -> None:
        self.name, self._rows = name, rows
        self._reader: pa.RecordBatchReader | None = self._open()
        self.columns = name_columns(flatten(self._reader.schema.empty_table()).column_names)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order, from the first. Raises SourceError, for a reader that was read before, too."""
        reader, self._reader = self._reader or self._open(), None
        first = 1
        try:
            for table in _regroup(reader):
                yield build_table_chunk(self.name, self.columns, flatten(table), first)
                first += table.num_rows
        except pa.ArrowException as error:
            raise SourceError(
                f"{self.name}: cannot be read on after row {first - 1}: {say_safely(error)}; give it again"
            ) from None

    def close(self) -> None:
        """Leave the data to their owner."""
        self._reader = None

    def _open(self) -> pa.RecordBatchReader:
        try:
            return pa.RecordBatchReader.from_stream(self._rows)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise SourceError(
                f"{self.name}: its rows cannot be read: {say_safely(error)}; give a table, or a reader that was not "
                "read yet"
            ) from None


def _regroup(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """The rows in tables of CHUNK_ROWS, the rest in the last: a batch may have one row, or all."""
    waiting, rows = list[pa.RecordBatch](), 0
    for batch in reader:
        waiting.append(batch)
        rows += batch.num_rows
        while rows >= CHUNK_ROWS:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, CHUNK_ROWS)
            rest = table.slice(CHUNK_ROWS)
            waiting, rows = rest.to_batches(), rest.num_rows
    if rows:
        yield pa.Table.from_batches(waiting)
