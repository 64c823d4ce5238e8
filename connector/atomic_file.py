"""Files that appear whole, and only where they may.

A file is written as `.NAME.partial` beside its target, under a lock that is held from the first byte to the end, and
then takes the target's place in one step. A second writer of the same target is refused meanwhile. What a killed
writer left is written over by the next one, so nothing has to be cleaned up. Files hold personal data: their owner
alone may read them (0600), or their group too (0640) where the caller says so.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from connector.errors import ConfigurationError, LockedError, RunAborted

OWNER_ONLY, GROUP_READABLE = 0o600, 0o640

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a file system without locks; there, two writers of one target are not kept apart."""


_HEAD = 4096  # bytes by which a file is known


class TargetKind(Enum):
    """What stands at a path, links followed."""

    FREE = "nothing, or an empty file"
    FILE = "a file"
    DEVICE = "a character device"
    PIPE = "a pipe"
    FOLDER = "a folder"
    OTHER = "a socket or a disk"


_KINDS: tuple[tuple[Callable[[int], bool], TargetKind], ...] = (
    (stat.S_ISREG, TargetKind.FILE),
    (stat.S_ISCHR, TargetKind.DEVICE),
    (stat.S_ISFIFO, TargetKind.PIPE),
    (stat.S_ISDIR, TargetKind.FOLDER),
)


def read_target_kind(path: Path) -> TargetKind:
    """Return what stands at `path`, without opening it: a pipe would wait for its reader. Raises OSError."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return TargetKind.FREE
    kind = next((kind for is_kind, kind in _KINDS if is_kind(found.st_mode)), TargetKind.OTHER)
    return TargetKind.FREE if kind is TargetKind.FILE and found.st_size == 0 else kind


def refuse_foreign(option: str, path: Path, is_ours: Callable[[bytes], bool], *, may_be_device: bool = False) -> None:
    """Raise ConfigurationError unless the file that an option names may be written: a new or empty one in a folder that
    exists, or one that `is_ours` by its first bytes."""
    try:
        kind = read_target_kind(path)
        may_go = kind is TargetKind.FREE or (may_be_device and kind is TargetKind.DEVICE)
        if kind is TargetKind.FILE:
            with path.open("rb") as file:
                may_go = is_ours(file.read(_HEAD))
    except OSError as error:
        raise ConfigurationError(f"{option} {path}: {error.strerror}; name another file") from None
    if not may_go:
        what = "that file is something else" if kind is TargetKind.FILE else f"that is {kind.value}"
        raise ConfigurationError(f"{option} {path}: {what}, and is left as it is; name another file")
    if not path.resolve().parent.is_dir():
        raise ConfigurationError(f"{option} {path}: name a file in a folder that exists")


def describe_unwritable(folder: Path, error: OSError) -> ConfigurationError | RunAborted:
    """Return what a failure to make a file in the folder means: a full disk passes, a missing right has to be given."""
    said = f"Cannot write in {folder} ({error.strerror or error})"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunAborted(f"{said}: free some room, and run again.")
    return ConfigurationError(f"{said}: allow it, or write elsewhere.")


class PartialFile:
    """The file at `path`, beside `target`, a link followed, that is to take its place; a context manager that discards
    it unless it has been put there.

    Raises LockedError if another process is writing the same target, and what `describe_unwritable` has if nothing can
    be written beside it.
    """

    def __init__(self, target: Path, *, mode: int = OWNER_ONLY) -> None:
        self.target = target.resolve()
        self.path = self.target.with_name(f".{self.target.name}.partial")
        try:
            self.file: BinaryIO = os.fdopen(_open_held(self.path, self.target, mode), "w+b")
        except OSError as error:
            raise describe_unwritable(self.target.parent, error) from error

    def put_in_place(self) -> None:
        """Let the file be the target from now on; durable when this returns. Raises OSError."""
        self._sync()
        self.path.replace(self.target)
        self._end()

    def put_in_free_place(self) -> None:
        """As `put_in_place`, but replace nothing: raises RunAborted for a target that was made meanwhile."""
        self._sync()
        try:
            os.link(self.path, self.target)
        except FileExistsError:
            raise RunAborted(
                f"{self.target} was made by another program meanwhile and was left as it is: run it again."
            ) from None
        self.path.unlink()
        self._end()

    def discard(self) -> None:
        """Remove the file, unless it is in place; harmless when repeated."""
        if self.file.closed:
            return
        self.path.unlink(missing_ok=True)  # before the lock is let go: else another writer's file would be removed
        with suppress(OSError):  # bytes that no longer fit on the disk belong to a file that is gone
            self.file.close()

    def _sync(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())

    def _end(self) -> None:
        self.file.close()
        sync_folder(self.target.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()


def write_whole(target: Path, data: bytes, *, mode: int = OWNER_ONLY) -> None:
    """Let `data` be the contents of the file `target`. Raises OSError, and as PartialFile does."""
    with PartialFile(target, mode=mode) as partial:
        partial.file.write(data)
        partial.put_in_place()


def create_private(path: Path) -> BinaryIO:
    """Open a new file for writing, its owner's only. Raises FileExistsError, and OSError."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY), "wb")


def _open_held(partial: Path, target: Path, mode: int) -> int:
    """The descriptor of the locked and empty file at `partial`, where a killed writer may have left one. Raises OSError
    for a link or a pipe of that name."""
    while True:
        handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, OWNER_ONLY)
        try:
            _hold(handle, target)
            if os.path.samestat(os.fstat(handle), partial.stat()):
                os.fchmod(handle, mode)
                os.truncate(handle, 0)
                return handle
        except FileNotFoundError:  # its writer put it in place, or removed it, between the opening and the lock
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _hold(handle: int, target: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(f"another run is writing {target}: run again when it has ended") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where its file system does. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, *_NO_LOCKS):  # not every file system syncs a folder
            raise
    finally:
        os.close(handle)
