"""Rows on their way: an Arrow stream in a file without a name, which ends with the process."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.ipc as ipc

from connector.warehouse.columns import INVALID

_BATCH = 16_384
"""Rows of a staged batch: a few MB in memory, and large enough that a batch costs nothing by itself."""


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows that can be read again and again, batch by batch."""

    schema: pa.Schema
    read: Callable[[], Iterator[pa.RecordBatch]]

    def map(self, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> "StagedRows":
        """The same rows, each batch changed as it is read."""
        return StagedRows(self.schema, lambda: map(change, self.read()))


def build_no_rows(schema: pa.Schema) -> StagedRows:
    """Rows of that schema, of which there are none."""
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


def move_nuls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without U+0000, for databases whose texts cannot hold it: such a value becomes null and is kept in
    `_invalid`, where JSON escapes it. A batch without any is returned as it is, after one look at its bytes."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    broken: dict[int, dict[str, object]] = {}
    for name in [name for name, column in columns.items() if _may_hold_nul(column)]:
        values = columns[name].to_pylist()
        rows = [row for row, value in enumerate(values) if value is not None and _has_nul(value)]
        for row in rows:
            broken.setdefault(row, {})[name] = values[row]
            values[row] = None
        columns[name] = pa.array(values, columns[name].type)
    if not broken:
        return batch
    texts = columns[INVALID].to_pylist()
    for row, found in broken.items():
        texts[row] = json.dumps(json.loads(texts[row] or "{}") | found)
    columns[INVALID] = pa.array(texts, pa.string())
    return pa.record_batch(list(columns.values()), schema=batch.schema)


def _may_hold_nul(column: pa.Array) -> bool:
    texts = column.values if pa.types.is_list(column.type) else column
    if not pa.types.is_string(texts.type):
        return False
    data = texts.buffers()[2]
    return data is not None and b"\0" in data.to_pybytes()


def _has_nul(value: str | list[str]) -> bool:
    return "\0" in value if isinstance(value, str) else any("\0" in text for text in value)
