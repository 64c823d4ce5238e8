"""Keeps lines, in memory or at the end of a file, in the order in which they came; it does not know what they say.

A line is with the operating system before `append` returns, so a killed process loses none that it answered for.
"""

import os
import sys
from pathlib import Path
from typing import Protocol


class Journal(Protocol):
    """An append-only list of lines without line ends."""

    def append(self, line: bytes) -> None:
        """Keeps one more line."""

    def read_lines(self) -> list[bytes]:
        """All lines, the oldest first."""

    def clear(self) -> None:
        """Forgets all lines."""

    def close(self) -> None:
        """Lets go of what it holds; it is not used afterwards."""


class MemoryJournal:
    """Lines that end with the process."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []

    def append(self, line: bytes) -> None:
        """Keeps one more line."""
        self._lines.append(line)

    def read_lines(self) -> list[bytes]:
        """All lines, the oldest first."""
        return self._lines

    def clear(self) -> None:
        """Forgets all lines."""
        self._lines = []

    def close(self) -> None:
        """Nothing is held."""


class FileJournal:
    """Lines in a file that one process at a time may hold; a last line without an end, torn by a kill, is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            _lock(self._handle, path)
            self._size = _drop_torn_line(self._handle, path)
        except BaseException:
            os.close(self._handle)
            raise

    def append(self, line: bytes) -> None:
        """Writes one more line; raises OSError and leaves the file as it was when it cannot be written whole."""
        data = line + b"\n"
        written = os.write(self._handle, data)
        if written != len(data):
            os.ftruncate(self._handle, self._size)
            raise OSError(f"{self._path}: only {written} of {len(data)} bytes could be written; is the disk full?")
        self._size += written

    def read_lines(self) -> list[bytes]:
        """All lines, the oldest first."""
        return self._path.read_bytes().split(b"\n")[:-1]

    def clear(self) -> None:
        """Empties the file."""
        os.ftruncate(self._handle, 0)
        self._size = 0

    def close(self) -> None:
        """Closes the file, and so gives up the lock."""
        os.close(self._handle)


def _lock(handle: int, path: Path) -> None:
    if sys.platform == "win32":
        return  # there is no flock; two sandboxes on one directory are then the user's to avoid
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"{path} is in use by another sandbox: end it, or give another directory") from None


def _drop_torn_line(handle: int, path: Path) -> int:
    """Cuts the file after its last line end; returns the size that is left."""
    size = path.read_bytes().rfind(b"\n") + 1
    os.ftruncate(handle, size)
    return size
