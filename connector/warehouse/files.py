"""Writes an export to one file, with or without gzip. The file is on disk, in a store, or standard output.

The new file replaces the old file in one step. Without `overwrite`, a file is replaced only if an export created the
file.
"""

import gzip
import os
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar, cast

import pyarrow as pa

from connector.atomic_file import PartialFile, TargetKind, read_target_kind
from connector.driver_errors import describe_error
from connector.errors import ConfigurationError, RunAborted
from connector.stores import StoreError, check_writable, open_object, put_file, read_size
from connector.warehouse.destination import FileOptions
from connector.warehouse.runs import ExportRun, ExportStart, RowChanges

T = TypeVar("T")

_DAMAGE_ERRORS = (
    pa.ArrowException, zipfile.BadZipFile, zlib.error, OSError, EOFError, LookupError, NotImplementedError,
    RecursionError, RuntimeError, SyntaxError, ValueError,
)  # fmt: skip
"""The errors of reading a damaged file, or a file of another format. ParseError of ElementTree is a SyntaxError."""


class FileFormat(Protocol):
    """A writer of tables in one format. `is_of_export` and `count_rows` read a file of an earlier export, and raise
    `_DAMAGE_ERRORS` for a damaged file or a file of another format."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, options: FileOptions) -> None: ...

    def write(self, table: pa.Table) -> None:
        """Write rows."""

    def close(self, run: ExportRun | None) -> None:
        """Write the end of the file. If the format has metadata, write the run into the metadata. The file stays open.
        `run` is None for receipts."""

    def discard(self) -> None:
        """Stop writing. The file is not used."""

    @staticmethod
    def is_of_export(file: BinaryIO) -> bool:
        """Return whether an export created this file. The caller must not pass an empty or a gzip file."""

    @staticmethod
    def count_rows(file: BinaryIO, filters: Mapping[str, object]) -> int | None:
        """Return the number of rows in an export's file. Return None if the file shows that the export had other
        filters, or that its list was not complete."""


class FileTarget(Protocol):
    """The place of one file: a path, an object in a store, or standard output. The methods raise ConfigurationError,
    RunAborted, OSError and LockedError."""

    @property
    def has_content(self) -> bool:
        """Whether the target exists and is not empty."""

    def open_old_file(self) -> AbstractContextManager[BinaryIO]:
        """Open the existing file for reading."""

    def open_new_file(self) -> BinaryIO:
        """Check that a new file can be written, and open the new file for writing."""

    def publish(self, *, must_be_new: bool) -> None:
        """Publish the new file, atomically except on standard output. With `must_be_new`, raise RunAborted if the
        target has content."""

    def discard(self) -> None:
        """Remove the new file unless the file is published. A second call does nothing."""


class DiskTarget:
    """A file on disk at `path`, with the permissions `mode` (0600 or 0640)."""

    def __init__(self, path: Path, mode: int) -> None:
        self._path, self._mode = path, mode
        self._partial_file: PartialFile | None = None

    def __str__(self) -> str:
        return str(self._path)

    @property
    def has_content(self) -> bool:
        target_kind = read_target_kind(self._path)
        if target_kind not in (TargetKind.MISSING_OR_EMPTY, TargetKind.FILE):
            # Only a file is allowed, because opening a pipe would wait for a reader.
            raise ConfigurationError(f"{self} is {target_kind.value}: export to a file, or to - (standard output).")
        return target_kind is TargetKind.FILE

    def open_old_file(self) -> BinaryIO:
        return self._path.open("rb")

    def open_new_file(self) -> BinaryIO:
        self._partial_file = PartialFile(self._path, mode=self._mode)
        return self._partial_file.file

    def publish(self, *, must_be_new: bool) -> None:
        is_empty_file = self._path.exists() and not self.has_content
        cast(PartialFile, self._partial_file).publish(must_be_new=must_be_new and not is_empty_file)

    def discard(self) -> None:
        if self._partial_file is not None:
            self._partial_file.close()


class ObjectTarget:
    """An object of a store. The new file is a temporary local file until it is uploaded as one object."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._file: BinaryIO | None = None

    def __str__(self) -> str:
        return self._url

    @property
    def has_content(self) -> bool:
        with self._translate_store_errors():
            return bool(read_size(self._url))

    @contextmanager
    def open_old_file(self) -> Iterator[BinaryIO]:
        with self._translate_store_errors(), open_object(self._url) as file:
            yield cast(BinaryIO, file)
            if file.failure is not None:  # the store failed, but the reader of the format has reported a damaged file
                raise file.failure

    def open_new_file(self) -> BinaryIO:
        with self._translate_store_errors():
            check_writable(self._url)
        self._file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed by discard()
        return self._file

    def publish(self, *, must_be_new: bool) -> None:
        is_empty = read_size(self._url) == 0
        try:
            put_file(cast(BinaryIO, self._file), self._url, must_be_new=must_be_new and not is_empty)
        except FileExistsError:
            raise RunAborted(
                f"Another program has created {self._url} while the list was read. This object was not changed. Run "
                "again."
            ) from None
        except FileNotFoundError:
            raise StoreError("the bucket no longer exists", is_transient=False) from None

    def discard(self) -> None:
        if self._file is not None:
            self._file.close()

    @contextmanager
    def _translate_store_errors(self) -> Iterator[None]:
        """Replace an error of the store by RunAborted if its cause may be temporary, else by ConfigurationError."""
        try:
            yield
        except FileNotFoundError:
            raise RunAborted(f"{self} was removed while it was read. Run again.") from None
        except StoreError as error:
            if error.is_transient:
                raise RunAborted(f"{self} cannot be reached: {error}. Run again.") from None
            raise ConfigurationError(f"{self} cannot be written: {error}.") from None


class StandardOutput:
    """The standard output of this process. The complete file is written to standard output at the end."""

    has_content = False

    def __init__(self) -> None:
        self._file: BinaryIO | None = None

    def __str__(self) -> str:
        return "standard output"

    def open_old_file(self) -> AbstractContextManager[BinaryIO]:
        raise FileNotFoundError

    def open_new_file(self) -> BinaryIO:
        if sys.stdout is None:
            raise RunAborted("Standard output is closed: name a file, or run again with an open standard output.")
        self._file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed by discard()
        return self._file

    def publish(self, *, must_be_new: bool) -> None:
        """Write to the file descriptor and not to Python's buffer. After a failure, the buffer would fail again when
        the process ends."""
        file = cast(BinaryIO, self._file)
        sys.stdout.flush()
        file.seek(0)
        try:
            while unwritten_bytes := memoryview(file.read(1 << 20)):
                while unwritten_bytes:
                    unwritten_bytes = unwritten_bytes[os.write(sys.stdout.fileno(), unwritten_bytes) :]
        except OSError as error:
            raise RunAborted(
                f"Standard output received only a part of the export ({error.strerror}): do not use this part, and run "
                "again."
            ) from error

    def discard(self) -> None:
        if self._file is not None:
            self._file.close()


class FileWriter:
    """A writer of one file at `target`, with or without gzip. A file that no export created is replaced only if
    `overwrite`."""

    def __init__(
        self,
        target: FileTarget,
        file_format: type[FileFormat],
        schema: pa.Schema,
        options: FileOptions,
        *,
        is_packed: bool = False,
        overwrite: bool = False,
    ) -> None:
        self._target, self._format, self._schema, self._options = target, file_format, schema, options
        self._is_packed, self._overwrite = is_packed, overwrite
        self._gzip_file: gzip.GzipFile | None = None
        self._rows_writer: FileFormat | None = None
        self.is_committing = False

    def prepare(self, export_start: ExportStart) -> None:
        self.start()

    @property
    def has_target(self) -> bool:
        return self._target.has_content

    def start(self) -> None:
        self.discard()
        if not self._may_be_replaced():
            raise ConfigurationError(
                f"{self._target} was not written by an export, and was not changed. Export to another file, or "
                "replace this file with --overwrite (in a job: `overwrite: true`)."
            )
        file = self._target.open_new_file()
        if self._is_packed:
            self._gzip_file = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0)
        with self._translate_errors():
            self._rows_writer = self._format(cast(BinaryIO, self._gzip_file or file), self._schema, self._options)

    def add(self, table: pa.Table) -> None:
        if self._rows_writer is None:
            raise ValueError("prepare() comes before add()")
        with self._translate_errors():
            self._rows_writer.write(table)

    def find_last_row_count(self, filters: Mapping[str, object]) -> int | None:
        """Return the number of rows in the file of the last export, or None if there is no such file.

        Parquet files and workbooks contain the filters of their export. If these filters differ from `filters`, return
        None. In other formats, `filters` is not used.
        """
        if not self._target.has_content or not self._read_old_file(self._format.is_of_export):
            return None
        return self._read_old_file(lambda file: self._format.count_rows(file, filters))

    def publish(self, run: ExportRun) -> RowChanges:
        """Complete the new file, and publish it atomically. An incomplete export does not replace an existing file.
        Raises RunAborted."""
        if self._rows_writer is None:
            raise ValueError("prepare() comes before publish()")
        with self._translate_errors():
            rows_writer, self._rows_writer = self._rows_writer, None
            rows_writer.close(run)
            if self._gzip_file is not None:
                self._gzip_file.close()
            if not self._may_be_replaced():  # another program has created a file while the list was read
                raise RunAborted(
                    f"Another program has created {self._target} while the list was read. This file was not changed."
                )
            self.is_committing = not isinstance(self._target, StandardOutput)
            self._target.publish(must_be_new=not run.certificate.is_complete)
        self.discard()
        return RowChanges(inserted_row_count=run.row_count)

    def interrupt(self) -> None:
        """Do nothing, because writing a file cannot be interrupted. The program that reads standard output may delay
        the writing without limit."""

    def discard(self) -> None:
        rows_writer, gzip_file = self._rows_writer, self._gzip_file
        self._rows_writer = self._gzip_file = None
        with suppress(OSError, ValueError, pa.ArrowException):
            if rows_writer is not None:
                rows_writer.discard()
        with suppress(OSError, ValueError):
            if gzip_file is not None:
                gzip_file.close()
        self._target.discard()

    def _may_be_replaced(self) -> bool:
        return not self._target.has_content or self._overwrite or bool(self._read_old_file(self._format.is_of_export))

    def _read_old_file(self, read_file: Callable[[BinaryIO], T]) -> T | None:
        """Return the result of `read_file` for the existing file, or None if the file is damaged. A gzip file is
        decompressed."""
        with self._target.open_old_file() as file:
            try:
                return read_file(cast(BinaryIO, gzip.GzipFile(fileobj=file)) if self._is_packed else file)
            except _DAMAGE_ERRORS:
                return None

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise RunAborted instead of an error of writing. The message says whether the target has changed."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            state_message = "The destination is unchanged"
            if isinstance(error, StoreError) and error.is_transient:
                # The request may have succeeded, although no answer came.
                state_message += ", or has the whole new file"
            raise RunAborted(
                f"Could not write {self._target}: {describe_error(error)}. {state_message}. Run again."
            ) from error
