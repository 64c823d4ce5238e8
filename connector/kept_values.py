"""Values that wait to be compared, by their index, in a temporary file without a name: it goes with its process."""

import json
import os
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from connector.errors import RunAborted


class KeptValues:
    """A list of JSON values for each index, from 0 on."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`, or with the values
        weakref.finalize(self, self._file.close)
        self._begins = array("q", [0])
        self._is_flushed = False

    def clear(self) -> None:
        """Forget all that was added."""
        self._file.seek(0)
        self._file.truncate()
        self._begins = array("q", [0])

    def add(self, rows: Iterable[Sequence[object]]) -> None:
        """Keep these, at the next indices. Raises RunAborted when there is no room."""
        written = [_write(row) for row in rows]
        try:
            self._file.write(b"".join(written))
        except OSError as error:
            raise _explain(error) from None
        self._is_flushed = False
        end = self._begins[-1]
        for each in written:
            end += len(each)
            self._begins.append(end)

    def read(self, index: int) -> list[Any]:
        """Return what was kept at this index. Raises RunAborted when that is on the disk no more."""
        if not self._is_flushed:
            try:
                self._file.flush()
            except OSError as error:
                raise _explain(error) from None
            self._is_flushed = True
        begin = self._begins[index]
        return _read(os.pread(self._file.fileno(), self._begins[index + 1] - begin, begin))

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _explain(error: OSError) -> RunAborted:
    return RunAborted(
        f"what is to be compared cannot be kept in {tempfile.gettempdir()} ({error.strerror}): make room, or set "
        "TMPDIR to another folder"
    )


def _write(row: Sequence[object]) -> bytes:
    try:
        return orjson.dumps(row)
    except orjson.JSONEncodeError:  # half a character, or a number beyond 64 bits: json can write both
        return json.dumps(row).encode()


def _read(text: bytes) -> list[Any]:
    try:
        values: list[Any] = orjson.loads(text)
    except orjson.JSONDecodeError:
        values = json.loads(text)
    return values
