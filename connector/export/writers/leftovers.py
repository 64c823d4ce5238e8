"""Rooms of new databases beside a target, each held by a lock while its writer lives.

A partial that nobody holds was left by a process that was killed, and the next export to that target removes it. Where
locks cannot be had (Windows, some network file systems), it stays.
"""

import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SUFFIX = ".partial"
_RANDOM = "[a-z0-9_]{8}"  # as `tempfile` names files and directories


@contextmanager
def make_room(target: Path) -> Iterator[Path]:
    """A new directory beside the target, for its owner only; held, and removed at the end."""
    room, handle = _make_held_room(target)
    try:
        yield room
    finally:
        shutil.rmtree(room)
        if handle is not None:
            os.close(handle)


def remove_leftovers(target: Path) -> None:
    """Remove the target's partials that no living process holds; those of other targets are left alone."""
    if sys.platform == "win32":
        return
    name = re.compile(re.escape(f".{target.name}.") + _RANDOM + re.escape(_SUFFIX))
    with suppress(OSError):  # a directory that cannot be read is told of by who writes there
        for each in [each for each in target.parent.iterdir() if name.fullmatch(each.name)]:
            with suppress(OSError):  # held, somebody else's, or gone by now: no reason not to export
                _remove_unless_held(each)


def _make_held_room(target: Path) -> tuple[Path, int | None]:
    while True:
        room = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=_SUFFIX, dir=target.parent))
        if sys.platform == "win32":
            return room, None
        with suppress(FileNotFoundError):
            handle = os.open(room, os.O_RDONLY)
            if _hold(handle, room):
                return room, handle
            os.close(handle)


def _hold(handle: int, partial: Path) -> bool:
    """Lock a partial that was just made; False if another export saw it before the lock, and removed it."""
    if sys.platform == "win32":
        return True
    import fcntl

    with suppress(OSError):  # without locks here nobody else has one either, and so nobody removes it
        fcntl.flock(handle, fcntl.LOCK_EX)  # who is about to remove it holds the lock for a moment
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), partial.stat())
    return False


def _remove_unless_held(partial: Path) -> None:
    if sys.platform == "win32":
        return
    import fcntl

    handle = os.open(partial, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            shutil.rmtree(partial)
        else:
            partial.unlink()
    finally:
        os.close(handle)
