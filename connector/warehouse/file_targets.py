"""Where the file of an export goes: the disk, where it takes its target's place by a rename, or a store, where it is
put as one object at the end. Readers see the file that was there or the new one, and no part of it."""

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from connector.atomic_file import PartialFile, TargetKind, read_target_kind
from connector.errors import ConfigurationError, RunAborted
from connector.stores import StoreError, check_writable, open_object, put_file, read_size


class FileTarget(Protocol):
    """A place for one file. Its methods raise ConfigurationError, RunAborted, OSError and LockedError."""

    @property
    def is_free(self) -> bool:
        """Whether nothing is there, or an empty file."""

    def prepare(self) -> None:
        """See whether a file can be written there, and leave nothing behind."""

    def refuse_kind(self) -> None:
        """Raise ConfigurationError for what is there and is no file, such as a pipe."""

    def open_present(self) -> AbstractContextManager[BinaryIO]:
        """Open the file that is there, for reading."""

    def open_new(self) -> BinaryIO:
        """Open the new file, for writing."""

    def put_in_place(self, *, is_new: bool) -> None:
        """Let the new file be there from now on, whole and in one step; `is_new`: only where nothing is."""

    def discard(self) -> None:
        """Forget the new file unless it is in place; harmless when repeated."""


class DiskTarget:
    """A file at `path`, with `mode` (0600 or 0640)."""

    def __init__(self, path: Path, mode: int) -> None:
        self._path, self._mode = path, mode
        self._partial: PartialFile | None = None

    def __str__(self) -> str:
        return str(self._path)

    @property
    def is_free(self) -> bool:
        """Whether nothing is there, or an empty file."""
        return read_target_kind(self._path) is TargetKind.FREE

    def prepare(self) -> None:
        """Do nothing: making the partial file shows what is missing."""

    def refuse_kind(self) -> None:
        """Raise ConfigurationError for a folder, a pipe or a device."""
        kind = read_target_kind(self._path)
        if kind not in (TargetKind.FREE, TargetKind.FILE):
            raise ConfigurationError(
                f"{self} is {kind.value}, no file: an export can go to a file, or to - (standard output)."
            )

    def open_present(self) -> BinaryIO:
        """Open the file that is there, for reading."""
        return self._path.open("rb")

    def open_new(self) -> BinaryIO:
        """Open the partial file beside it, under its lock."""
        self._partial = PartialFile(self._path, mode=self._mode)
        return self._partial.file

    def put_in_place(self, *, is_new: bool) -> None:
        """Rename the partial file; `is_new`: only where nothing is."""
        partial = cast(PartialFile, self._partial)
        if is_new and not (self._path.exists() and self.is_free):
            partial.put_in_free_place()
        else:
            partial.put_in_place()

    def discard(self) -> None:
        """Remove the partial file, if there is one."""
        partial, self._partial = self._partial, None
        if partial is not None:
            partial.discard()


class ObjectTarget:
    """An object of a store, by its URL. Until the end the file is a temporary one of this machine, without a name."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._file: BinaryIO | None = None

    def __str__(self) -> str:
        return self._url

    @property
    def is_free(self) -> bool:
        """Whether there is no object, or an empty one."""
        with _described_store(self._url):
            return not read_size(self._url)

    def prepare(self) -> None:
        """See whether the bucket is there and may be written."""
        with _described_store(self._url):
            check_writable(self._url)

    def refuse_kind(self) -> None:
        """Do nothing: a store has objects and nothing else."""

    @contextmanager
    def open_present(self) -> Iterator[BinaryIO]:
        """Open the object, for reading; a failure of the store is no damage of the object."""
        with _described_store(self._url), open_object(self._url) as file:
            yield cast(BinaryIO, file)
            if file.failure is not None:
                raise file.failure

    def open_new(self) -> BinaryIO:
        """Open the temporary file."""
        self._file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed by discard()
        return self._file

    def put_in_place(self, *, is_new: bool) -> None:
        """Put the temporary file as one object; `is_new`: only where no object is."""
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
        """Close the temporary file, and so remove it."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


@contextmanager
def _described_store(url: str) -> Iterator[None]:
    """Turn what a store says before the list is read into ConfigurationError, or RunAborted where it may pass."""
    try:
        yield
    except FileNotFoundError:
        raise RunAborted(f"{url} has gone while it was looked at: run it again.") from None
    except StoreError as error:
        if error.is_passing:
            raise RunAborted(f"{url} cannot be reached: {error}. Run it again.") from None
        raise ConfigurationError(f"{url} cannot be written: {error}.") from None
