"""Objects that wait on disk until a run takes them, in their order, in a temporary file that goes with its process."""

import os
import pickle
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any

import pyarrow as pa

from connector.errors import RunAborted
from connector.kept_values import describe_no_room
from connector.rows import Closing

_WHAT = "the rows of the source"


class Spool(Closing):
    """Objects in the order in which they were appended. The first `append` makes the file, which has no name and which
    only its owner can read."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._sizes: list[tuple[int, int]] = []  # of each object: bytes on disk, bytes before they were compressed

    def append(self, value: object) -> None:
        """Write one object. Raises RunAborted if the disk is full."""
        written = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        packed = pa.compress(written, codec="lz4", asbytes=True)
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by `close`, or with the spool
                weakref.finalize(self, self._file.close)
            _write_all(self._file.fileno(), packed)
        except OSError as error:
            raise RunAborted(describe_no_room(_WHAT, error)) from None
        self._sizes.append((len(packed), len(written)))

    def read(self) -> Iterator[Any]:
        """Yield all objects, from the first. Raises RunAborted if the file cannot be read."""
        begin, file = 0, self._file
        for size, unpacked_size in self._sizes:
            if file is None:
                return
            try:
                packed = os.pread(file.fileno(), size, begin)
            except OSError as error:
                raise RunAborted(describe_no_room(_WHAT, error)) from None
            yield pickle.loads(pa.decompress(packed, unpacked_size, codec="lz4"))  # noqa: S301 - written by this process
            begin += size

    def close(self) -> None:
        """Forget all objects; may be called more than once."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        self._file, self._sizes = None, []


def _write_all(descriptor: int, content: bytes) -> None:
    """Write the content; a write may take a part of it only."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
