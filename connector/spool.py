"""Objects in a temporary file, in the order in which they were appended. The file is deleted when its process ends."""

import os
import pickle
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any

import pyarrow as pa

from connector.errors import RunAborted
from connector.rows import Closing
from connector.spooled_values import describe_no_room

_CONTENT = "the rows of the source"


class Spool(Closing):
    """A file of objects. The first `append` creates the file, which has no name, and which no other user can read."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._sizes: list[tuple[int, int]] = []  # for each object: compressed and uncompressed size in bytes

    def append(self, value: object) -> None:
        """Write one object. Raises RunAborted if the disk is full."""
        pickled = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        compressed = pa.compress(pickled, codec="lz4", asbytes=True)
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by `close`, or with the spool
                weakref.finalize(self, self._file.close)
            _write_all(self._file.fileno(), compressed)
        except OSError as error:
            raise RunAborted(describe_no_room(_CONTENT, error)) from None
        self._sizes.append((len(compressed), len(pickled)))

    def read(self) -> Iterator[Any]:
        """Yield all objects in their order. Raises RunAborted if the file cannot be read."""
        offset, file = 0, self._file
        for size, pickled_size in self._sizes:
            if file is None:
                return
            try:
                compressed = os.pread(file.fileno(), size, offset)
            except OSError as error:
                raise RunAborted(describe_no_room(_CONTENT, error)) from None
            yield pickle.loads(pa.decompress(compressed, pickled_size, codec="lz4"))  # noqa: S301 - written by this process
            offset += size

    def close(self) -> None:
        """Delete all objects. May be called more than once."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        self._file, self._sizes = None, []


def _write_all(descriptor: int, content: bytes) -> None:
    """Write the whole content: one call of `os.write` may write only a part."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
