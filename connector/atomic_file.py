"""Writes files that appear only when they are complete, and that replace only files that the connector may replace.

A file is written as `.NAME.partial` in the folder of its target. The writer holds a lock until the file is complete.
Then the file replaces the target in one step. A second writer of the same target is refused. If a writer is killed, the
next writer overwrites the partial file. Files contain personal data, so only the owner (0600), or the owner and the
group (0640), can read the files.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from connector.errors import ConfigurationError, LockedError, RunAborted
from connector.rows import CloseableResource

OWNER_ONLY, GROUP_READABLE = 0o600, 0o640

_NO_LOCK_ERRORS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a file system without locks. On such a file system, files are written without a lock, so nothing prevents a
second writer of the same target."""

_HEAD_BYTES = 4096  # number of bytes at the start of a file that `is_own_file` gets


class TargetKind(Enum):
    """The kind of file at a path. Symbolic links are followed."""

    MISSING_OR_EMPTY = "a missing or an empty file"
    FILE = "a file"
    DEVICE = "a character device"
    PIPE = "a pipe"
    FOLDER = "a folder"
    OTHER = "not a regular file"


_KIND_BY_FILE_TYPE = {
    stat.S_IFREG: TargetKind.FILE,
    stat.S_IFCHR: TargetKind.DEVICE,
    stat.S_IFIFO: TargetKind.PIPE,
    stat.S_IFDIR: TargetKind.FOLDER,
}


def read_target_kind(path: Path) -> TargetKind:
    """Return the kind of file at `path`. The file is not opened, because opening a pipe would wait for a reader. Raises
    OSError."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return TargetKind.MISSING_OR_EMPTY
    kind = _KIND_BY_FILE_TYPE.get(stat.S_IFMT(status.st_mode), TargetKind.OTHER)
    return TargetKind.MISSING_OR_EMPTY if kind is TargetKind.FILE and status.st_size == 0 else kind


def refuse_foreign_file(
    option: str, path: Path, is_own_file: Callable[[bytes], bool], *, may_be_device: bool = False
) -> None:
    """Raise ConfigurationError if the file of an option must not be written. Only a new or empty file in a writable
    folder may be written, or a file whose first bytes `is_own_file` accepts. With `may_be_device`, a
    character device may also be written."""
    try:
        kind = read_target_kind(path)
        may_write = kind is TargetKind.MISSING_OR_EMPTY or (may_be_device and kind is TargetKind.DEVICE)
        if kind is TargetKind.FILE:
            with path.open("rb") as file:
                may_write = is_own_file(file.read(_HEAD_BYTES))
    except OSError as error:
        raise ConfigurationError(f"{option} {path}: {error.strerror}; name another file") from None
    if not may_write:
        reason = "the connector did not write this file" if kind is TargetKind.FILE else f"this is {kind.value}"
        raise ConfigurationError(f"{option} {path}: {reason}, so nothing was changed; name another file")
    if not path.resolve().parent.is_dir():
        raise ConfigurationError(f"{option} {path}: name a file in a folder that exists")
    if kind is not TargetKind.DEVICE and not os.access(path.resolve().parent, os.W_OK | os.X_OK):
        raise ConfigurationError(
            f"{option} {path}: this user cannot write in the folder; name a file in another folder"
        )


def build_write_error(folder: Path, error: OSError) -> ConfigurationError | RunAborted:
    """Return the error to raise if no file can be written in a folder. For a full disk, return RunAborted, because a
    later run may succeed. Otherwise return ConfigurationError."""
    message = f"Cannot write in {folder} ({error.strerror or error})"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunAborted(f"{message}: free some disk space, and run again.")
    return ConfigurationError(f"{message}: allow this user to write there, or write to another folder.")


class PartialFile(CloseableResource):
    """A file in the folder of its `target`. `publish` moves the file to the target. The end of `with` deletes an
    unpublished file.

    If `target` is a symbolic link, `publish` replaces the file to which the link points. Raises LockedError if another
    process is writing the same target. Raises the errors of `build_write_error` if no file can be written in the
    folder of the target.
    """

    def __init__(self, target: Path, *, mode: int = OWNER_ONLY) -> None:
        self.target = target.resolve()
        self.path = self.target.with_name(f".{self.target.name}.partial")
        try:
            self.file: BinaryIO = os.fdopen(_open_locked_file(self.path, self.target, mode), "w+b")
        except OSError as error:
            raise build_write_error(self.target.parent, error) from error

    def publish(self, *, must_be_new: bool = False) -> None:
        """Replace the target by this file in one step. When this method returns, the change is on the disk.

        Raises RunAborted if `must_be_new` and the target exists. Raises OSError if the file cannot be written.
        """
        self.file.flush()
        os.fsync(self.file.fileno())
        if must_be_new:
            try:
                os.link(self.path, self.target)
            except FileExistsError:
                raise RunAborted(
                    f"Another program has created {self.target} meanwhile. The file was not changed. Run again."
                ) from None
            self.path.unlink()
        else:
            self.path.replace(self.target)
        self.file.close()
        sync_folder(self.target.parent)

    def close(self) -> None:
        """Delete the file, unless the file is published. A second call does nothing."""
        if self.file.closed:
            return
        # The path is deleted before `close` releases the lock, because another writer may then use the path.
        self.path.unlink(missing_ok=True)
        with suppress(OSError):  # on a full disk, buffered bytes of the deleted file cannot be written
            self.file.close()


def replace_content(target: Path, content: bytes, *, mode: int = OWNER_ONLY) -> None:
    """Replace the content of the file `target` by `content`. Raises OSError, and the errors of PartialFile."""
    with PartialFile(target, mode=mode) as partial_file:
        partial_file.file.write(content)
        partial_file.publish()


def create_private_file(path: Path) -> BinaryIO:
    """Open a new file for writing. Only its owner can read the file. Raises FileExistsError, and OSError."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY), "wb")


def _open_locked_file(partial_path: Path, target: Path, mode: int) -> int:
    """Lock and empty the file `partial_path`, and return its descriptor. A killed writer may have left the file. Raises
    OSError if `partial_path` is a link or a pipe."""
    while True:
        descriptor = os.open(
            partial_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, OWNER_ONLY
        )
        try:
            _lock_file(descriptor, target)
            if os.path.samestat(os.fstat(descriptor), partial_path.stat()):
                os.fchmod(descriptor, mode)
                os.truncate(descriptor, 0)
                return descriptor
        except FileNotFoundError:  # before this process got the lock, the other writer published or deleted the file
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock_file(descriptor: int, target: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(f"another run is writing {target}: run again when the other run has ended") from None
    except OSError as error:
        if error.errno not in _NO_LOCK_ERRORS:
            raise


def sync_folder(folder: Path) -> None:
    """Write the list of names in a folder to the disk, if the file system supports this. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, *_NO_LOCK_ERRORS):  # not every file system can sync a folder
            raise
    finally:
        os.close(descriptor)
