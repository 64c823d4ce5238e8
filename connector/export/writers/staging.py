"""Files beside a target that take its place in one step, and leave nothing behind when they do not."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from connector.errors import ConfigurationError, RunAborted
from connector.export.writers.leftovers import make_room, remove_leftovers


def open_nameless_beside(target: Path) -> BinaryIO:
    """A file in the target's directory that ends with the process, however that ends; raises ConfigurationError.

    What a killed export to this target left there is removed.
    """
    remove_leftovers(target)
    with _told_to_allow(target.parent):
        return cast(BinaryIO, tempfile.TemporaryFile(dir=target.parent))


@contextmanager
def open_room_beside(target: Path) -> Iterator[Path]:
    """A new directory beside the target, for its owner only, removed at the end; raises ConfigurationError."""
    with ExitStack() as stack:
        with _told_to_allow(target.parent):
            room = stack.enter_context(make_room(target))
        yield room


@contextmanager
def _told_to_allow(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(f"Cannot write in {directory} ({reason}): allow it, or export elsewhere.") from error


def put_in_free_place(partial: Path, target: Path) -> None:
    """Let the finished file be the target from now on; raises RunAborted for one that came meanwhile."""
    try:
        os.link(partial, target)
    except FileExistsError:
        raise _is_taken(target) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if target.exists():
            raise _is_taken(target) from None
        partial.replace(target)
    else:
        partial.unlink()
    _sync(target.parent)


_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""What a file system says that has no second names for files, such as FAT; there a look has to do."""


def _is_taken(target: Path) -> RunAborted:
    return RunAborted(f"{target} was made by another program meanwhile and was left as it is: run it again.")


def _sync(path: Path) -> None:
    with suppress(OSError):  # not every file system lets a directory be synced; the file itself is
        directory = os.open(path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def read_target(path: Path) -> Path:
    """The file that is meant: where `path` is a link, what it points to is replaced, and the link stays."""
    return path.resolve()
