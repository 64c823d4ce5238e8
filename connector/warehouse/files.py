"""Writes an export to one file, plain or gzip: on the disk, in a store, or to standard output.

The new file takes the place of the old one in one step. A file is replaced only if an export made the file.
"""

import gzip
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar, cast

import pyarrow as pa

from connector.atomic_file import PartialFile, TargetKind, read_target_kind
from connector.driver_errors import describe_error
from connector.errors import ConfigurationError, RunAborted
from connector.stores import StoreError, check_writable, open_object, put_file, read_size
from connector.warehouse.runs import ExportRun, ExportStart, RowChanges

T = TypeVar("T")


class FileFormat(Protocol):
    """Writes tables in one format; the class itself reads a file of an earlier export."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None: ...

    def write(self, table: pa.Table) -> None:
        """Write rows."""

    def close(self, run: ExportRun | None) -> None:
        """Write the end of the format, with the run where the format has a place for it. The file stays open."""

    @staticmethod
    def is_ours(file: BinaryIO) -> bool:
        """Return whether an export made this file, which is unpacked and not empty."""

    @staticmethod
    def count_rows(file: BinaryIO, filters: Mapping[str, object]) -> int | None:
        """Return the rows of an export's file, or None if the file is damaged or has other filters, as far as the
        format tells."""


class FileTarget(Protocol):
    """A place for one file. Its methods raise ConfigurationError, RunAborted, OSError and LockedError."""

    @property
    def is_free(self) -> bool:
        """Whether the place has no file, or an empty one."""

    def open_present(self) -> AbstractContextManager[BinaryIO]:
        """Open the present file for reading."""

    def open_new(self) -> BinaryIO:
        """Open the new file for writing, after a check that it can take its place."""

    def publish(self, *, is_new: bool) -> None:
        """Publish the new file atomically; with `is_new` only if the place is free."""

    def discard(self) -> None:
        """Remove the new file unless it is published. Harmless when repeated."""


class DiskTarget:
    """A file at `path`, with `mode` (0600 or 0640)."""

    def __init__(self, path: Path, mode: int) -> None:
        self._path, self._mode = path, mode
        self._partial: PartialFile | None = None

    def __str__(self) -> str:
        return str(self._path)

    @property
    def is_free(self) -> bool:
        kind = read_target_kind(self._path)
        if kind not in (TargetKind.FREE, TargetKind.FILE):  # opening a pipe would wait for its reader
            raise ConfigurationError(f"{self} is {kind.value}: export to a file, or to - (standard output).")
        return kind is TargetKind.FREE

    def open_present(self) -> BinaryIO:
        return self._path.open("rb")

    def open_new(self) -> BinaryIO:
        self._partial = PartialFile(self._path, mode=self._mode)
        return self._partial.file

    def publish(self, *, is_new: bool) -> None:
        is_empty_file = self._path.exists() and self.is_free
        cast(PartialFile, self._partial).publish(is_new=is_new and not is_empty_file)

    def discard(self) -> None:
        partial_file, self._partial = self._partial, None
        if partial_file is not None:
            partial_file.close()


class ObjectTarget:
    """An object of a store. The new file is a temporary one of this machine until it is put as one object."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._file: BinaryIO | None = None

    def __str__(self) -> str:
        return self._url

    @property
    def is_free(self) -> bool:
        with self._describe():
            return not read_size(self._url)

    @contextmanager
    def open_present(self) -> Iterator[BinaryIO]:
        with self._describe(), open_object(self._url) as file:
            yield cast(BinaryIO, file)
            if file.failure is not None:  # the reader of a format took the failure for a damaged file
                raise file.failure

    def open_new(self) -> BinaryIO:
        with self._describe():
            check_writable(self._url)
        self._file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed by discard()
        return self._file

    def publish(self, *, is_new: bool) -> None:
        is_empty = read_size(self._url) == 0
        try:
            put_file(cast(BinaryIO, self._file), self._url, is_new=is_new and not is_empty)
        except FileExistsError:
            raise RunAborted(
                f"{self._url} was made by another program meanwhile and was left as it is: run it again."
            ) from None
        except FileNotFoundError:
            raise StoreError("its bucket is gone", is_passing=False) from None

    def discard(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    @contextmanager
    def _describe(self) -> Iterator[None]:
        """Turn a failure of the store into ConfigurationError, or into RunAborted if the failure may pass."""
        try:
            yield
        except FileNotFoundError:
            raise RunAborted(f"{self} was removed while it was read: run it again.") from None
        except StoreError as error:
            if error.is_passing:
                raise RunAborted(f"{self} cannot be reached: {error}. Run it again.") from None
            raise ConfigurationError(f"{self} cannot be written: {error}.") from None


class StandardOutput:
    """The standard output of this process, which gets the file when it is complete."""

    is_free = True

    def __init__(self) -> None:
        self._file: BinaryIO | None = None

    def __str__(self) -> str:
        return "standard output"

    def open_present(self) -> AbstractContextManager[BinaryIO]:
        raise FileNotFoundError

    def open_new(self) -> BinaryIO:
        if sys.stdout is None:
            raise RunAborted("Standard output is closed: name a file, or run again with an open one.")
        self._file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed by discard()
        return self._file

    def publish(self, *, is_new: bool) -> None:
        """Write by the descriptor: a buffer of Python would fail again when the process ends."""
        file = cast(BinaryIO, self._file)
        sys.stdout.flush()
        file.seek(0)
        try:
            while part := memoryview(file.read(1 << 20)):
                while part:
                    part = part[os.write(sys.stdout.fileno(), part) :]
        except OSError as error:
            raise RunAborted(
                f"Standard output took only a part of the export ({error.strerror}): do not use it, and run again."
            ) from error

    def discard(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


class FileWriter:
    """Writes one file at `target`, with or without gzip. A file that no export made is replaced only if
    `is_adopting`."""

    def __init__(
        self,
        target: FileTarget,
        form: type[FileFormat],
        schema: pa.Schema,
        *,
        is_packed: bool = False,
        is_adopting: bool = False,
        make: Callable[[BinaryIO, pa.Schema], FileFormat] | None = None,
    ) -> None:
        """`make` opens a new file of the format `form` with options; None: without any."""
        self._target, self._form, self._schema, self._make = target, form, schema, make or form
        self._is_packed, self._is_adopting = is_packed, is_adopting
        self._packed: gzip.GzipFile | None = None
        self._rows: FileFormat | None = None
        self.is_committing = False

    def prepare(self, beginning: ExportStart) -> None:
        self.start()

    @property
    def has_target(self) -> bool:
        return not self._target.is_free

    def start(self) -> None:
        self.discard()
        if not self._may_be_replaced():
            raise ConfigurationError(
                f"{self._target} was not written by an export, and was left as it was: export to another file, or "
                "replace this one with --overwrite (in a job: overwrite: true)."
            )
        file = self._target.open_new()
        if self._is_packed:
            self._packed = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0)
        with self._translate():
            self._rows = self._make(cast(BinaryIO, self._packed or file), self._schema)

    def add(self, table: pa.Table) -> None:
        if self._rows is None:
            raise ValueError("prepare() comes before add()")
        with self._translate():
            self._rows.write(table)

    def count_last(self, filters: Mapping[str, object]) -> int | None:
        """Return the rows of the present export; only Parquet and workbooks tell their filters."""
        if self._target.is_free or not self._read_present(self._form.is_ours):
            return None
        return self._read_present(partial(self._form.count_rows, filters=filters))

    def publish(self, run: ExportRun) -> RowChanges:
        """Finish the new file and publish it; the place must be free if the run is incomplete."""
        if self._rows is None:
            raise ValueError("prepare() comes before publish()")
        with self._translate():
            rows, self._rows = self._rows, None
            rows.close(run)
            if self._packed is not None:
                self._packed.close()
            if not self._may_be_replaced():  # another program made a file while the list was read
                raise RunAborted(f"{self._target} was made by another program meanwhile and was left as it is.")
            self.is_committing = not isinstance(self._target, StandardOutput)
            self._target.publish(is_new=not run.certificate.is_complete)
        self.discard()
        return RowChanges(inserted=run.rows)

    def interrupt(self) -> None:
        """Do nothing: standard output may wait for its reader, and nothing can end that."""

    def discard(self) -> None:
        rows, packed = self._rows, self._packed
        self._rows = self._packed = None
        with suppress(OSError, ValueError, pa.ArrowException):
            if rows is not None:
                rows.close(None)  # Arrow's writers refer to the file until they are closed
        with suppress(OSError, ValueError):
            if packed is not None:
                packed.close()
        self._target.discard()

    def _may_be_replaced(self) -> bool:
        return self._target.is_free or self._is_adopting or self._read_present(self._form.is_ours)

    def _read_present(self, read: Callable[[BinaryIO], T]) -> T:
        """Return the result of reading the present file, unpacked."""
        with self._target.open_present() as file:
            return read(cast(BinaryIO, gzip.GzipFile(fileobj=file)) if self._is_packed else file)

    @contextmanager
    def _translate(self) -> Iterator[None]:
        """Turn a failure to write into RunAborted, which says what the target is like."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            state = "What was there is as it was"
            if isinstance(error, StoreError) and error.is_passing:  # the answer to a successful request may be lost
                state += ", or the whole export has taken its place"
            raise RunAborted(
                f"Could not write {self._target}: {describe_error(error)}. {state}; run it again."
            ) from error
