"""The rows of a mail run that are to be sent, kept from the time they are checked until they are: the source is read
once, so that what is sent is what was checked. In a file without a name, which goes with the process.
"""

import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import orjson

from connector.load.candidates import Row


class Spool:
    """Rows in their order; written first, read after."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, row: Row) -> None:
        """Keep a row."""
        self._file.write(orjson.dumps([row.number, row.file, row.columns, row.cells]) + b"\n")
        self.rows += 1

    def read(self, number: int) -> Iterator[list[Row]]:
        """All rows, so many at a time."""
        self._file.seek(0)
        batch: list[Row] = []
        for line in self._file:
            place, file, columns, cells = orjson.loads(line)
            batch.append(Row(place, file, tuple(columns), tuple(cells)))
            if len(batch) == number:
                yield batch
                batch = []
        if batch:
            yield batch
