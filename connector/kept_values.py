"""Values that wait until a run comes back to them, by index, in a temporary file that goes with its process."""

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

_WHAT = "what the run reads again"


class KeptValues(Closing):
    """A list of JSON values for each index, from 0 on; the first `add` makes the file."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._begins = array("q", [0])
        self._is_flushed = False

    def add(self, rows: Iterable[Sequence[object]]) -> int:
        """Keep these, at the next indices; return the first of them. Raises RunAborted when there is no room."""
        written = [write_values(row) for row in rows]
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`, or with the values
                weakref.finalize(self, self._file.close)
            self._file.write(b"".join(written))
        except OSError as error:
            raise RunAborted(describe_no_room(_WHAT, error)) from None
        self._is_flushed = False
        first, end = len(self._begins) - 1, self._begins[-1]
        for each in written:
            end += len(each)
            self._begins.append(end)
        return first

    def read(self, index: int) -> list[Any]:
        """Return what was kept at this index. Raises RunAborted when that is on the disk no more."""
        begin, end = self._begins[index], self._begins[index + 1]
        if self._file is None:
            raise IndexError(index)
        if not self._is_flushed:
            try:
                self._file.flush()
            except OSError as error:
                raise RunAborted(describe_no_room(_WHAT, error)) from None
            self._is_flushed = True
        return read_values(os.pread(self._file.fileno(), end - begin, begin))

    def close(self) -> None:
        """Forget all that was added, and let go of the file."""
        if self._file is not None:
            with suppress(OSError):  # on a full disk what is still in memory is not written: it is not read any more
                self._file.close()
        self._file, self._begins = None, array("q", [0])


def describe_no_room(what: str, error: OSError) -> str:
    """Return what a person reads when a temporary file has no room for `what` ("the rows of the plan")."""
    folder = tempfile.tempdir or "any temporary folder"
    return (
        f"{what} cannot be kept in {folder} ({error.strerror}): make room there, or set TMPDIR to another folder, and "
        "run again"
    )


def write_values(row: Sequence[object]) -> bytes:
    """Return JSON values as bytes. Equal values have equal bytes."""
    try:
        return orjson.dumps(row)
    except orjson.JSONEncodeError:  # half a character, or a number beyond 64 bits: json can write both
        return json.dumps(row).encode()


def read_values(text: bytes) -> list[Any]:
    """Return the values of bytes from `write_values`."""
    try:
        values: list[Any] = orjson.loads(text)
    except orjson.JSONDecodeError:
        values = json.loads(text)
    return values
