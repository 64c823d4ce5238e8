"""The rows of a mail run that are to be sent, kept from the time they are checked until they are: the source is read
once, so that what is sent is what was checked. In a file without a name, which goes with the process.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from types import TracebackType
from typing import Self

import orjson

from connector.errors import RunAborted
from connector.load.candidates import Row
from connector.protocol.email import Message


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunAborted(
            f"the rows of the run cannot be kept in {tempfile.gettempdir()}: {error.strerror}. Nothing was sent; make "
            "room there, or name another folder by TMPDIR, and run again"
        ) from None


@dataclass(frozen=True, slots=True)
class Kept:
    """A row, and the digest of the files that went with its email as it was checked."""

    row: Row
    files: bytes


def digest_files(message: Message) -> bytes:
    """A digest (16 bytes) of all that is attached: what a row names may be another file by the time it is sent."""
    digest = blake2b(digest_size=16)
    for each in message.attachments:
        digest.update(blake2b(each.content).digest())
    return digest.digest()


class Spool:
    """Rows in their order; written first, read after."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # on a full disk what is still in memory is not written: nobody reads it any more
            self._file.close()

    def add(self, row: Row, files: bytes) -> None:
        """Keep a row, and the digest of the files that go with its email. Raises RunAborted when there is no room."""
        with _explained():
            self._file.write(orjson.dumps([row.number, row.file, row.columns, row.cells, files.hex()]) + b"\n")
        self.rows += 1

    def read(self, number: int) -> Iterator[list[Kept]]:
        """All of them, so many at a time."""
        with _explained():
            self._file.seek(0)  # what is still in memory is written
        batch: list[Kept] = []
        for line in self._file:
            place, file, columns, cells, files = orjson.loads(line)
            batch.append(Kept(Row(place, file, tuple(columns), tuple(cells)), bytes.fromhex(files)))
            if len(batch) == number:
                yield batch
                batch = []
        if batch:
            yield batch
