"""Rows on their way: an Arrow stream in a file without a name, which ends with the process."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.ipc as ipc

_BATCH = 16_384
"""Rows of a staged batch: a few MB in memory, and large enough that a batch costs nothing by itself."""


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows that can be read again and again, batch by batch."""

    schema: pa.Schema
    read: Callable[[], Iterator[pa.RecordBatch]]

    def map(self, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> "StagedRows":
        """Return the same rows, each batch changed as it is read."""
        return StagedRows(self.schema, lambda: map(change, self.read()))


def build_no_rows(schema: pa.Schema) -> StagedRows:
    """Return no rows, of that schema."""
    return StagedRows(schema, lambda: iter(()))


class Stage:
    """Takes rows until `close_rows`, which gives them all. `discard` closes the file, and so removes it."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file
        self._schema = schema
        self._writer = ipc.new_stream(file, schema, options=ipc.IpcWriteOptions(compression="lz4"))
        self._waiting: list[pa.Table] = []
        self._count = 0

    def add(self, table: pa.Table) -> None:
        """Take rows; they are written once there are enough for a batch."""
        self._waiting.append(table)
        self._count += table.num_rows
        if self._count >= _BATCH:
            self._flush()

    def close_rows(self) -> StagedRows:
        """Write what is left; all the rows, in the order in which they came."""
        self._flush()
        self._writer.close()
        return StagedRows(self._schema, self._read)

    def discard(self) -> None:
        """Forget the rows."""
        self._waiting.clear()
        self._file.close()

    def _read(self) -> Iterator[pa.RecordBatch]:
        self._file.seek(0)
        yield from ipc.open_stream(self._file)

    def _flush(self) -> None:
        waiting, self._waiting, self._count = self._waiting, [], 0
        if waiting:
            self._writer.write_table(pa.concat_tables(waiting).combine_chunks())
