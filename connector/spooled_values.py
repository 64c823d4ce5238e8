"""JSON values in a temporary file, which are read by index. The file is deleted when its process ends."""

import json
import os
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import IO, Any

import orjson

from connector.errors import RunAborted
from connector.rows import Closing

_CONTENT = "values that the run reads again"


class SpooledValues(Closing):
    """A file of rows of JSON values, by index from 0. The first `add` creates the file."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._offsets = array("q", [0])
        self._is_flushed = False

    def add(self, rows: Iterable[Sequence[object]]) -> int:
        """Append rows, and return the index of the first one. Raises RunAborted if the disk is full."""
        encoded_rows = [write_values(row) for row in rows]
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`, or with the values
                weakref.finalize(self, self._file.close)
            self._file.write(b"".join(encoded_rows))
        except OSError as error:
            raise RunAborted(describe_no_room(_CONTENT, error)) from None
        self._is_flushed = False
        first_index, end = len(self._offsets) - 1, self._offsets[-1]
        for encoded in encoded_rows:
            end += len(encoded)
            self._offsets.append(end)
        return first_index

    def read(self, index: int) -> list[Any]:
        """Return the row at this index. Raises RunAborted if rows in memory cannot be written to the disk first."""
        begin, end = self._offsets[index], self._offsets[index + 1]
        if self._file is None:
            raise IndexError(index)
        if not self._is_flushed:
            try:
                self._file.flush()
            except OSError as error:
                raise RunAborted(describe_no_room(_CONTENT, error)) from None
            self._is_flushed = True
        return read_values(os.pread(self._file.fileno(), end - begin, begin))

    def close(self) -> None:
        """Delete all rows and the file."""
        if self._file is not None:
            with suppress(OSError):  # on a full disk: rows in memory cannot be written, and nobody reads them again
                self._file.close()
        self._file, self._offsets = None, array("q", [0])


def describe_no_room(content: str, error: OSError) -> str:
    """Return a message: a temporary file has no room for its `content` ("the rows of the plan")."""
    folder = tempfile.tempdir or "any temporary folder"
    return (
        f"{content} cannot be kept in {folder} ({error.strerror}): make room there, or set TMPDIR to another folder, "
        "and run again"
    )


def write_values(row: Sequence[object]) -> bytes:
    """Return JSON values as bytes. Equal values have equal bytes."""
    try:
        return orjson.dumps(row)
    except orjson.JSONEncodeError:  # half a character, or a number beyond 64 bits: `json` can write both
        return json.dumps(row).encode()


def read_values(text: bytes) -> list[Any]:
    """Return the values of bytes that `write_values` has returned."""
    try:
        values: list[Any] = orjson.loads(text)
    except orjson.JSONDecodeError:
        values = json.loads(text)
    return values
