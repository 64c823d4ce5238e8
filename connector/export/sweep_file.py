"""Keeps the current sweep in a file without a name, until its certificate is there and the rows may be had."""

import tempfile
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import IO, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.ipc as ipc

from connector.export.columns import SCHEMA, stamp_columns

_BATCH = 16_384
"""Rows of a kept batch: a few MB in memory, and large enough that a batch costs nothing by itself."""


class SweepFile:
    """A sink of columns. The file is its owner's only, in the system's folder for such, and ends with the process.

    Raises OSError when the disk is full, and when there is no such folder.
    """

    def __init__(self) -> None:
        self._run_id = uuid4().hex
        self._exported_at = datetime.now(UTC)
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        self._close = weakref.finalize(self, self._file.close)  # also if nobody ever reads it
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start_sweep(self, number: int) -> None:
        """Forget the sweep before."""
        self._writer.close()
        self._waiting, self._rows = [], 0
        self._file.seek(0)
        self._file.truncate()
        self._begin()

    def take(self, rows: pa.RecordBatch) -> None:
        """Keep these."""
        self._waiting.append(stamp_columns(rows, run_id=self._run_id, exported_at=self._exported_at))
        self._rows += len(rows)
        if self._rows >= _BATCH:
            self._flush()

    def read(self, chunk_rows: int) -> Iterator[pa.Table]:
        """All rows in their order, in tables of `SCHEMA` with `chunk_rows` each and the rest in the last; none for no
        rows. To be called once, after all was taken; the file is closed at its end, however that comes."""
        with self:
            self._flush()
            self._writer.close()
            self._file.seek(0)
            waiting = SCHEMA.empty_table()
            for batch in ipc.open_stream(self._file):
                waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
                while len(waiting) >= chunk_rows:
                    yield waiting.slice(0, chunk_rows)
                    waiting = waiting.slice(chunk_rows)
            if len(waiting):
                yield waiting

    def close(self) -> None:
        """Give up the file, and all rows with it."""
        self._close()

    def _begin(self) -> None:
        options = ipc.IpcWriteOptions(compression="lz4")
        self._writer = ipc.new_stream(self._file, SCHEMA, options=options)

    def _flush(self) -> None:
        waiting, self._waiting, self._rows = self._waiting, [], 0
        if waiting:
            self._writer.write_table(pa.concat_tables(waiting).combine_chunks())
