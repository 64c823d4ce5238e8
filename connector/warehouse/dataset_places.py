"""Where a list that is divided into files goes: a folder of a disk, which changes places with the new one in one step,
or a folder of a store, where the manifest decides."""

import logging
import os
import re
import shutil
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from connector.atomic_file import PartialFile, describe_unwritable, swap_folders, sync_folder
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

_LOG = logging.getLogger(__name__)

MANIFEST = "_connector.json"

PART = re.compile(r"(\w+=[^/]+/)?connector-[\w-]+\.parquet")
"""The name of a file that an export wrote."""


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

    def publish(self, manifest: bytes, adopted: Collection[str]) -> None:
        """Let the new files, those that workers have put there (`adopted`) and their manifest be the data set. Raises
        RunAborted if another run was first, or an adopted file is gone."""

    def interrupt(self) -> None:
        """End a publishing soon, if its manifest is not there yet."""

    def clear(self, adopted: Collection[str] = ()) -> None:
        """Forget the new files and the adopted ones, unless they are published."""

    def discard(self) -> None:
        """Forget them and let others write; harmless when repeated."""


class PartPlace(Protocol):
    """Where a worker puts its files of the next data set. Its methods raise OSError."""

    def open_part(self, name: str) -> BinaryIO:
        """Open a new file."""

    def put_in_place(self) -> None:
        """Let the files be where the publishing process finds them, durably."""

    def discard(self) -> None:
        """Remove the files that are not put in place; harmless when repeated."""


class FolderPlace:
    """A folder of this machine, its owner's only, or its group's too if it `is_shared`."""

    def __init__(self, path: Path, *, is_shared: bool) -> None:
        self._folder = path.resolve()
        self._new = _name_new(self._folder)
        self._is_shared = is_shared
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
        file = _open_in(self._new, name, is_shared=self._is_shared)
        self._files.append(file)
        return file

    def publish(self, manifest: bytes, adopted: Collection[str]) -> None:
        """Make all durable, and let the new folder and the present one change places. What a worker left that died is
        removed from it before."""
        if lost := [name for name in adopted if not (self._new / name).is_file()]:
            raise RunAborted(f"{self._new / lost[0]} is gone, which a worker wrote: {self} is as it was. Run it again.")
        own = {*adopted, *(str(Path(file.name).relative_to(self._new)) for file in self._files)}
        for path in list(self._new.rglob("*")):
            if not path.is_dir() and str(path.relative_to(self._new)) not in own:
                path.unlink()
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

    def clear(self, adopted: Collection[str] = ()) -> None:
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


class FolderPart:
    """A worker's files in the new folder beside `path`, which the publishing process has locked."""

    def __init__(self, path: Path, *, is_shared: bool) -> None:
        self._folder = path.resolve()
        self._is_shared = is_shared
        self._files: list[BinaryIO] = []

    def __str__(self) -> str:
        return str(self._folder)

    def open_part(self, name: str) -> BinaryIO:
        """Open a file in the new folder."""
        self._files.append(_open_in(_name_new(self._folder), name, is_shared=self._is_shared))
        return self._files[-1]

    def put_in_place(self) -> None:
        """Make the files durable where they are."""
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        self._files.clear()

    def discard(self) -> None:
        """Remove them."""
        files, self._files = self._files, []
        for file in files:
            with suppress(OSError):  # the folder may be gone, or the disk be full: the files belong to no data set
                Path(file.name).unlink()
                file.close()


def _name_new(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.new")


def _open_in(new: Path, name: str, *, is_shared: bool) -> BinaryIO:
    """Open a new file in a new folder, both their owner's only, or the group's too."""
    folder_mode, file_mode = (0o750, 0o640) if is_shared else (0o700, 0o600)
    path = new / name
    for folder in dict.fromkeys((new, path.parent)):
        with suppress(FileExistsError):  # several workers make it
            folder.mkdir(folder_mode)  # at no moment open to others
            folder.chmod(folder_mode)  # of whatever the umask has left
    file = path.open("xb")
    os.fchmod(file.fileno(), file_mode)
    return file


class StorePlace:
    """A folder of a store, by its URL. Until the end the files are temporary ones of this machine, without names."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._files: dict[str, BinaryIO] = {}
        self._version: str | None = None
        self._is_stopped = False
        self._may_be_published = False

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

    def publish(self, manifest: bytes, adopted: Collection[str]) -> None:
        """Put the files, then the manifest; delete the files that were there."""
        new = {*self._files, *adopted}
        there = list_folder(self._url).keys()
        if lost := [name for name in adopted if name not in there]:
            raise RunAborted(f"{self._name(lost[0])} is gone, which a worker put there: what was there counts.")
        stale = [name for name in there if PART.fullmatch(name) and name not in new]
        for name, file in self._files.items():
            if self._is_stopped:
                raise RunAborted(f"The run was stopped before {self} had all of its files: what was there counts.")
            put_file(file, self._name(name))
        self._may_be_published = True  # even where no answer comes: from now on the manifest may name these files
        try:
            replace_bytes(self._name(MANIFEST), manifest, self._version)
        except FileExistsError:
            delete_objects([self._name(name) for name in new])
            raise RunAborted(f"Another export to {self} was first, and its files count: run it again.") from None
        try:
            delete_objects([self._name(name) for name in stale])
        except StoreError as error:
            _LOG.warning("files of an earlier run are left over in %s: %s", self, error)

    def interrupt(self) -> None:
        """Put no other file."""
        self._is_stopped = True

    def clear(self, adopted: Collection[str] = ()) -> None:
        """Close the temporary files, and so remove them; delete what workers have put there."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        if adopted and not self._may_be_published:
            try:
                delete_objects([self._name(name) for name in adopted])
            except StoreError as error:
                _LOG.warning("files of a run that wrote nothing are left over in %s: %s", self, error)

    def discard(self) -> None:
        """The same: a store is not locked."""
        self.clear()

    def _name(self, name: str) -> str:
        return f"{self._url}/{name}"


class StorePart:
    """A worker's files in a folder of a store; until the end they are temporary ones of its machine, without names."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._files: dict[str, BinaryIO] = {}

    def __str__(self) -> str:
        return self._url

    def open_part(self, name: str) -> BinaryIO:
        """Open a temporary file."""
        self._files[name] = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed by discard()
        return self._files[name]

    def put_in_place(self) -> None:
        """Put the files, which no manifest names yet."""
        for name, file in self._files.items():
            put_file(file, f"{self._url}/{name}")

    def discard(self) -> None:
        """Close the temporary files, and so remove them."""
        for file in self._files.values():
            file.close()
        self._files.clear()
