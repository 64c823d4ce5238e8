"""An export to one file: rows go straight into a partial file beside it, which then takes its place."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa

from connector.export.writers.run import Changes, Run
from connector.export.writers.staging import open_beside, put_in_free_place, put_in_place, read_target, told_of


class Rows(Protocol):
    """Writes tables in one file format."""

    def write(self, table: pa.Table) -> None:
        """Write these rows."""

    def close(self) -> None:
        """Write what the format needs at its end; the file itself stays open."""


OpenRows = Callable[[BinaryIO, pa.Schema], Rows]
CountRows = Callable[[Path], int | None]


class FileWriter:
    """A Writer of `path` in the format of `open_rows`.

    The file is readable by its owner only (0600), also where the one that it replaces was readable by others (0644):
    it holds personal data, so who may read it is decided anew, by a chmod, and not inherited.
    """

    def __init__(self, path: Path, open_rows: OpenRows, count_rows: CountRows, schema: pa.Schema) -> None:
        self._path = read_target(path)
        self._open_rows = open_rows
        self._count_rows = count_rows
        self._schema = schema
        self._partial: Path | None = None
        self._file: BinaryIO | None = None
        self._rows: Rows | None = None

    @property
    def has_target(self) -> bool:
        """Whether there is such a file."""
        return self._path.exists()

    def start(self) -> None:
        """Begin a new partial file."""
        self.discard()
        self._partial, self._file = open_beside(self._path)
        with told_of(str(self._path), pa.ArrowException):
            self._rows = self._open_rows(self._file, self._schema)

    def add(self, table: pa.Table) -> None:
        """Write rows to the partial file."""
        if self._rows is None:
            raise ValueError("start() comes before add()")
        with told_of(str(self._path), pa.ArrowException):
            self._rows.write(table)

    def count_last(self, filters: Mapping[str, object]) -> int | None:
        """The rows of the file that is there, whatever it was filtered by; None where it is none of this format."""
        return self._count_rows(self._path) if self._path.exists() else None

    def publish(self, run: Run) -> Changes:
        """Finish the partial file and let it take the target's place, which must be free if the run is incomplete."""
        if self._rows is None or self._file is None or self._partial is None:
            raise ValueError("start() comes before publish()")
        with told_of(str(self._path), pa.ArrowException):
            rows, self._rows = self._rows, None
            rows.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            put = put_in_place if run.certificate.is_complete else put_in_free_place
            put(self._partial, self._path)
            self._file.close()  # not before: the partial is held only while it is open
        self._file = self._partial = None
        return Changes(inserted=run.rows)

    def discard(self) -> None:
        """Remove the partial file, if there is one."""
        rows, file, partial = self._rows, self._file, self._partial
        self._rows = self._file = self._partial = None
        if rows is not None:
            with suppress(OSError, ValueError, pa.ArrowException):  # what could not be finished is thrown away
                rows.close()  # Arrow's writers keep hold of the file until they are closed
        if file is not None:
            with suppress(OSError):  # bytes that no longer fit on the disk belong to a file that is removed next
                file.close()
        if partial is not None:
            partial.unlink(missing_ok=True)
