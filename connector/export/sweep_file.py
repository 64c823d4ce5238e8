"""Keeps the current sweep in a file without a name, until its certificate is there and the rows may be had."""

import tempfile
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import BinaryIO, Self, cast
from uuid import uuid4

import pyarrow as pa

from connector.export.columns import SCHEMA, stamp_columns
from connector.warehouse.stage import Stage


class SweepFile:
    """A sink of columns. The file is its owner's only, in the system's folder for such, and ends with the process.

    Raises OSError when the disk is full, and when there is no such folder.
    """

    def __init__(self) -> None:
        self._run_id = uuid4().hex
        self._exported_at = datetime.now(UTC)
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start_sweep(self, number: int) -> None:
        """Forget the sweep before."""
        self.close()
        self._begin()

    def take(self, rows: pa.RecordBatch) -> None:
        """Keep these."""
        self._staged.add(stamp_columns(rows, run_id=self._run_id, exported_at=self._exported_at))

    def read(self, chunk_rows: int) -> Iterator[pa.Table]:
        """All rows in their order, in tables of `SCHEMA` with `chunk_rows` each and the rest in the last; none for no
        rows. To be called once, after all was taken; the file is closed at its end, however that comes."""
        with self:
            waiting = SCHEMA.empty_table()
            for batch in self._staged.close_rows().read():
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
        file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed with this object
        self._staged = Stage(file, SCHEMA)
        self._close = weakref.finalize(self, self._staged.discard)  # also if nobody ever reads it
