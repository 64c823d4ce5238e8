"""Rows on their way: an Arrow stream in a file without a name, which ends with the process and is nobody else's."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.ipc as ipc

_BATCH = 16_384
"""Rows of a staged batch: a few MB in memory, and large enough that a batch costs nothing by itself."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that can be read again and again, batch by batch."""

    schema: pa.Schema
    read: Callable[[], Iterator[pa.RecordBatch]]

    def map(self, change: Callable[[pa.RecordBatch], pa.RecordBatch], schema: pa.Schema | None = None) -> "Rows":
        """The same rows, each batch changed as it is read; `schema` is that of what comes out, if it differs."""
        return Rows(schema or self.schema, lambda: map(change, self.read()))


class Staged:
    """Takes rows until `close_rows`; then `rows` gives them. The file is closed, and so gone, by `discard`."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file
        self._schema = schema
        self._writer = ipc.new_stream(file, schema, options=ipc.IpcWriteOptions(compression="lz4"))
        self._waiting: list[pa.Table] = []
        self._count = 0
        self.total = 0

    def add(self, table: pa.Table) -> None:
        """Take rows; they are written once there are enough for a batch."""
        self._waiting.append(table)
        self._count += table.num_rows
        self.total += table.num_rows
        if self._count >= _BATCH:
            self._flush()

    def close_rows(self) -> Rows:
        """Write what is left; all the rows, in the order in which they came."""
        self._flush()
        self._writer.close()
        return Rows(self._schema, lambda: self._read(None))

    def read_columns(self, names: Sequence[str]) -> Rows:
        """The same rows, of these columns alone, once all are written."""
        included = [self._schema.get_field_index(name) for name in names]
        schema = pa.schema([self._schema.field(place) for place in sorted(included)])
        return Rows(schema, lambda: self._read(sorted(included)))

    def discard(self) -> None:
        """Forget the rows."""
        self._waiting.clear()
        self._file.close()

    def _read(self, included: Sequence[int] | None) -> Iterator[pa.RecordBatch]:
        self._file.seek(0)
        options = ipc.IpcReadOptions(included_fields=included)
        yield from ipc.open_stream(self._file, options=options)

    def _flush(self) -> None:
        waiting, self._waiting, self._count = self._waiting, [], 0
        if waiting:
            self._writer.write_table(pa.concat_tables(waiting).combine_chunks())
