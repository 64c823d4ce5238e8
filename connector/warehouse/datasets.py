"""An export divided by a column into Parquet files: a folder as Hive has it (`base_id=7/connector-RUN.parquet`).

The manifest in it, `_connector.json`, names the run that is in place and its files. On a disk the new folder is made
beside the present one, and the two change places in one step. A store has no such step: the new files are put first,
then the manifest, which alone decides, and then the files of earlier runs are deleted. So who reads the files of the
manifest's run sees all of one run.
"""

import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc

from connector.atomic_file import PartialFile, describe_unwritable, swap_folders, sync_folder
from connector.driver_words import say_safely
from connector.errors import ConfigurationError, RunAborted
from connector.stores import (
    StoreError,
    check_writable,
    delete_objects,
    list_folder,
    open_object,
    put_file,
    read_version,
    replace_bytes,
)
from connector.warehouse.file_targets import described_store
from connector.warehouse.parquet import ROW_GROUP, ParquetFormat
from connector.warehouse.runs import ExportRun, ExportStart, RowChanges

_LOG = logging.getLogger(__name__)

MANIFEST = "_connector.json"

_PART = re.compile(r"\w+=[^/]+/connector-[\w-]+\.parquet")
_NULL = "__HIVE_DEFAULT_PARTITION__"
_MOST_PARTS = 500
"""Each is an open file until the end; systems allow a process 1,024, some 256 of which a run uses for other things."""
_MOST_WAITING = 4 * ROW_GROUP
"""Rows of all parts that wait for a row group: about 100 MB."""


class DatasetPlace(Protocol):
    """A folder for one data set. Its methods raise OSError and what is said of each."""

    def prepare(self) -> None:
        """See whether it can be written, and leave nothing behind. Raises ConfigurationError, RunAborted and
        LockedError."""

    def list_files(self) -> Collection[str]:
        """Return the files that are there, by their names from the folder."""

    def read_manifest(self) -> bytes | None:
        """Return the manifest that is there."""

    def open_part(self, name: str) -> BinaryIO:
        """Open a new file of the next data set."""

    def publish(self, manifest: bytes) -> None:
        """Let the new files and their manifest be the data set. Raises RunAborted if another run was first."""

    def interrupt(self) -> None:
        """End a publishing soon, if its manifest is not there yet."""

    def clear(self) -> None:
        """Forget the new files, unless they are published."""

    def discard(self) -> None:
        """Forget them and let others write; harmless when repeated."""


class FolderPlace:
    """A folder of this machine, its owner's only, or its group's too if it `is_shared`."""

    def __init__(self, path: Path, *, is_shared: bool) -> None:
        self._folder = path.resolve()
        self._new = self._folder.with_name(f".{self._folder.name}.new")
        self._folder_mode, self._file_mode = (0o750, 0o640) if is_shared else (0o700, 0o600)
        self._lock: PartialFile | None = None
        self._files: list[BinaryIO] = []

    def __str__(self) -> str:
        return str(self._folder)

    def prepare(self) -> None:
        """Take the lock, remove what a killed run left, and see whether folders can change places here."""
        self._lock = PartialFile(self._folder)
        try:
            self.clear()
            first, second = self._new / "first", self._new / "second"
            for folder in (self._new, first, second):
                folder.mkdir(mode=0o700)
        except OSError as error:
            raise describe_unwritable(self._folder.parent, error) from error
        try:
            swap_folders(first, second)
        except OSError as error:
            raise ConfigurationError(
                f"{self} cannot be a divided export: its file system cannot let two folders change places "
                f"({error.strerror}). Export to one file, to a store, or to another disk."
            ) from None
        self.clear()

    def list_files(self) -> Collection[str]:
        """Return the files that are there, links too."""
        paths = (path for path in self._folder.rglob("*") if path.is_symlink() or not path.is_dir())
        return [str(path.relative_to(self._folder)) for path in paths]

    def read_manifest(self) -> bytes | None:
        """Return the manifest that is there."""
        path = self._folder / MANIFEST
        return path.read_bytes() if path.is_file() else None

    def open_part(self, name: str) -> BinaryIO:
        """Open a file in the new folder."""
        path = self._new / name
        for folder in (self._new, path.parent):
            if not folder.is_dir():
                folder.mkdir()
                folder.chmod(self._folder_mode)
        file = path.open("xb")
        os.fchmod(file.fileno(), self._file_mode)
        self._files.append(file)
        return file

    def publish(self, manifest: bytes) -> None:
        """Make all durable, and let the new folder and the present one change places."""
        self.open_part(MANIFEST).write(manifest)
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        for folder in (*(path for path in self._new.iterdir() if path.is_dir()), self._new):
            sync_folder(folder)
        if self._folder.exists():
            swap_folders(self._new, self._folder)
        else:
            self._new.rename(self._folder)
        sync_folder(self._folder.parent)

    def interrupt(self) -> None:
        """Do nothing: it is done in a moment."""

    def clear(self) -> None:
        """Remove the new folder, or what has become the old one."""
        for file in self._files:
            with suppress(OSError):  # bytes that no longer fit on the disk belong to a file that is gone
                file.close()
        self._files.clear()
        if self._new.exists():
            shutil.rmtree(self._new)

    def discard(self) -> None:
        """Remove the new folder and let go of the lock."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            self.clear()
        except OSError as error:
            _LOG.warning("%s is left over and cannot be removed: %s", self._new, error.strerror)
        lock.discard()


class StorePlace:
    """A folder of a store, by its URL. Until the end the files are temporary ones of this machine, without names."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._files: dict[str, BinaryIO] = {}
        self._version: str | None = None
        self._is_stopped = False

    def __str__(self) -> str:
        return self._url

    def prepare(self) -> None:
        """See whether the bucket is there and may be written, and which manifest is there."""
        with described_store(self._url):
            check_writable(self._name(MANIFEST))
            self._version = read_version(self._name(MANIFEST))

    def list_files(self) -> Collection[str]:
        """Return the files that are there."""
        with described_store(self._url):
            return list_folder(self._url).keys()

    def read_manifest(self) -> bytes | None:
        """Return the manifest that is there."""
        with described_store(self._url):
            if self._version is None:
                return None
            with open_object(self._name(MANIFEST)) as file:
                return b"".join(file.read_pieces(1 << 20))

    def open_part(self, name: str) -> BinaryIO:
        """Open a temporary file."""
        self._files[name] = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed by clear()
        return self._files[name]

    def publish(self, manifest: bytes) -> None:
        """Put the files, then the manifest; delete the files that were there."""
        stale = [name for name in list_folder(self._url) if _PART.fullmatch(name) and name not in self._files]
        for name, file in self._files.items():
            if self._is_stopped:
                raise RunAborted(f"The run was stopped before {self} had all of its files: what was there counts.")
            put_file(file, self._name(name))
        try:
            replace_bytes(self._name(MANIFEST), manifest, self._version)
        except FileExistsError:
            delete_objects([self._name(name) for name in self._files])
            raise RunAborted(f"Another export to {self} was first, and its files count: run it again.") from None
        try:
            delete_objects([self._name(name) for name in stale])
        except StoreError as error:
            _LOG.warning("files of an earlier run are left over in %s: %s", self, error)

    def interrupt(self) -> None:
        """Put no other file."""
        self._is_stopped = True

    def clear(self) -> None:
        """Close the temporary files, and so remove them."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def discard(self) -> None:
        """The same: a store is not locked."""
        self.clear()

    def _name(self, name: str) -> str:
        return f"{self._url}/{name}"


class DatasetWriter:
    """A Writer of a data set divided by the column `by`, which Hive's readers take from the names of its folders.

    Raises ConfigurationError when rows are first staged for a folder with files that no export wrote.
    """

    def __init__(self, place: DatasetPlace, schema: pa.Schema, by: str) -> None:
        self._place, self._by = place, by
        self._schema = schema.remove(schema.get_field_index(by))
        self._run_id = ""
        self._manifest: Mapping[str, Any] | None = None
        self._waiting: list[pa.Table] = []
        self._parts: dict[str, ParquetFormat] = {}
        self._rows: dict[str, int] = {}
        self._is_committing = False

    def prepare(self, beginning: ExportStart) -> None:
        """See whether the folder can be written, and whether it is an export's."""
        self._run_id = beginning.run_id
        self._place.prepare()
        self._manifest = _parse_manifest(self._place.read_manifest())
        if strange := self._find_strange():
            raise ConfigurationError(
                f"{self._place} holds {strange}, which no export wrote, and was left as it is: name another folder, or "
                "move that elsewhere."
            )

    @property
    def is_committing(self) -> bool:
        """Whether the new files are about to take their place, which may still happen."""
        return self._is_committing

    @property
    def has_target(self) -> bool:
        """Whether a data set is there."""
        return self._manifest is not None

    def interrupt(self) -> None:
        """End a publishing soon, if its manifest is not there yet."""
        self._place.interrupt()

    def start(self) -> None:
        """Begin a new data set."""
        self._forget()

    def add(self, table: pa.Table) -> None:
        """Take rows, and divide them as soon as they would make a row group."""
        self._waiting.append(table)
        if sum(each.num_rows for each in self._waiting) >= ROW_GROUP:
            self._divide()

    def count_last(self, filters: Mapping[str, object]) -> int | None:
        """Return the rows of the data set that is there, if it was certified and filtered so."""
        if self._manifest is None:
            return None
        certificate = self._manifest["certificate"]
        is_such = certificate["verdict"] == "complete" and certificate["filters"].get("asked", {}) == dict(filters)
        return int(self._manifest["rows"]) if is_such else None

    def publish(self, run: ExportRun) -> RowChanges:
        """Finish the files and let them take the place of earlier ones, which an incomplete run leaves alone."""
        if self.has_target and not run.certificate.is_complete:
            raise RunAborted(f"{self._place} has an export, and an incomplete one replaces nothing.")
        if strange := self._find_strange():  # it came while the list was read
            raise RunAborted(f"{self._place} was left as it is: another program put {strange} there meanwhile.")
        self._divide()
        with self._described():
            for part in self._parts.values():
                part.close(run)
            self._parts.clear()
            self._is_committing = True
            self._place.publish(_build_manifest(run, self._by, self._rows))
        self.discard()
        return RowChanges(inserted=run.rows)

    def discard(self) -> None:
        """Forget what was staged."""
        self._forget()
        self._place.discard()

    def _find_strange(self) -> str:
        """Return the name of a file that no export wrote, or ""."""
        names = sorted(self._place.list_files())
        is_ours = self._manifest is not None
        return next((name for name in names if not (_PART.fullmatch(name) or (name == MANIFEST and is_ours))), "")

    def _forget(self) -> None:
        for part in self._parts.values():
            with suppress(OSError, ValueError, pa.ArrowException):  # what could not be finished is thrown away
                part.close(None)
        self._parts.clear()
        self._rows.clear()
        self._waiting.clear()
        self._place.clear()

    def _divide(self) -> None:
        """Write the rows that wait, each value's to its own file."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        table = pa.concat_tables(waiting).combine_chunks()
        encoded = table[self._by].combine_chunks().dictionary_encode(null_encoding="encode")
        counted = pc.value_counts(encoded.indices)
        rows = dict(zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True))
        ordered = table.take(pc.sort_indices(encoded.indices)).drop_columns([self._by])
        values, start = encoded.dictionary.to_pylist(), 0
        with self._described():
            for index in sorted(rows):
                self._write(_name_folder(self._by, values[index]), ordered.slice(start, rows[index]))
                start += rows[index]
            if sum(part.waiting for part in self._parts.values()) > _MOST_WAITING:
                for part in self._parts.values():
                    part.flush()

    def _write(self, folder: str, table: pa.Table) -> None:
        name = f"{folder}/connector-{self._run_id}.parquet"
        if name not in self._parts:
            if len(self._parts) == _MOST_PARTS:
                raise RunAborted(
                    f"The list has more than {_MOST_PARTS} values of {self._by}, each of which would be a file of "
                    f"{self._place}: leave out --partition-by, and export to one file."
                )
            self._parts[name] = ParquetFormat(self._place.open_part(name), self._schema)
        self._parts[name].write(table)
        self._rows[name] = self._rows.get(name, 0) + table.num_rows

    @contextmanager
    def _described(self) -> Iterator[None]:
        """Turn a failure to write into RunAborted, which says what the target is like."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise RunAborted(
                f"Could not write {self._place}: {say_safely(error)}. Its {MANIFEST} names all files of one run; run "
                "it again."
            ) from error


def _name_folder(column: str, value: object) -> str:
    return f"{column}={_NULL if value is None else value}"


def _build_manifest(run: ExportRun, by: str, rows: Mapping[str, int]) -> bytes:
    said = {
        "run_id": run.run_id,
        "job": run.job,
        "exported_at": run.exported_at.isoformat(),
        "partition_by": by,
        "rows": run.rows,
        "files": [{"path": name, "rows": number} for name, number in sorted(rows.items())],
        "certificate": run.certificate.as_report(),
    }
    return json.dumps(said, indent=1).encode() + b"\n"


def _parse_manifest(data: bytes | None) -> Mapping[str, Any] | None:
    """Return what an export's manifest says; None where it is missing, or no export wrote it."""
    try:
        said = json.loads(data or b"null")
    except ValueError:
        return None
    keys = {"run_id", "rows", "files", "certificate"}
    return said if isinstance(said, dict) and keys <= said.keys() and isinstance(said["certificate"], dict) else None
