"""Packed streams read forward, in pieces, with a bound on what they unpack to. Nothing is kept: memory stays flat.

What was unpacked before the damage is given; the error comes with the read after it.
"""

import gzip
import zipfile
import zlib
from collections.abc import Callable
from typing import BinaryIO, Protocol, cast

import pyarrow as pa

from connector.errors import SourceError
from connector.extract.csv import Readable

# Lists of people pack to a tenth, numbered addresses and nothing else to a 270th (measured); a bomb to a 1000th.
_MOST_TIMES = 500
_ALWAYS_BYTES = 1 << 26  # allowed at any rate: a short file of one line over and over is no bomb
_ZSTD_BYTES = 1 << 14  # what of the rows before a damage may be lost: Arrow gives nothing of the read that meets it

_FAULTS = (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError, pa.ArrowException)


class Named(Readable, Protocol):
    """The same with a name for people."""

    @property
    def name(self) -> str: ...


class _Counted:
    """A stream that counts what was read of it, closed with whoever reads it."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self.count = 0
        self.closed = False

    def read(self, size: int = -1, /) -> bytes:
        piece = self._stream.read(size)
        self.count += len(piece)
        return piece

    def close(self) -> None:
        self.closed = True
        self._stream.close()


class Unpacked:
    """What a packed stream holds. Raises SourceError where it is damaged, and where it would unpack to too much."""

    def __init__(
        self, name: str, read_packed: Callable[[int], bytes], count_packed: Callable[[], int], owner: Readable
    ) -> None:
        """`owner` is closed with it; `count_packed` says how many packed bytes what was read so far has taken."""
        self._name, self._read, self._count_packed, self._owner = name, read_packed, count_packed, owner
        self._given = 0

    def read(self, size: int, /) -> bytes:
        """Some of the next bytes, at most `size`; none at the end."""
        try:
            piece = self._read(size)
        except _FAULTS as error:
            raise SourceError(
                f"{self._name}: its packed content is cut off or damaged after {self._given:,} unpacked bytes "
                f"({error}); fetch it or pack it anew"
            ) from None
        self._given += len(piece)
        if self._given > max(_ALWAYS_BYTES, _MOST_TIMES * self._count_packed()):
            raise SourceError(
                f"{self._name}: unpacks to more than {_MOST_TIMES} times its size, as no list of people does; "
                "if it is one, unpack it first"
            )
        return piece

    def close(self) -> None:
        """Let go of the packed file."""
        self._owner.close()


def open_gzip(packed: Named) -> Unpacked:
    """What is in a gzip stream, of one or several parts."""
    counted = _Counted(packed)
    unpacked = gzip.GzipFile(fileobj=counted, mode="rb")  # type: ignore[call-overload] # it only reads, never seeks
    return Unpacked(packed.name, unpacked.read1, lambda: counted.count, counted)


def open_zstd(packed: Named) -> Unpacked:
    """What is in a Zstandard stream, of one or several frames."""
    counted = _Counted(packed)
    unpacked = pa.CompressedInputStream(pa.PythonFile(counted, mode="r"), "zstd")
    return Unpacked(packed.name, lambda size: unpacked.read(min(size, _ZSTD_BYTES)), lambda: counted.count, counted)


def open_member(packed: Named, file: BinaryIO, member: zipfile.ZipInfo) -> Unpacked:
    """What is in one file of a zip archive. Raises SourceError for a packing that is not known here."""
    try:
        archive = zipfile.ZipFile(file)
        unpacked = cast("zipfile.ZipExtFile", archive.open(member))
    except _FAULTS as error:
        raise SourceError(f"{packed.name}: {member.filename} in it cannot be unpacked: {error}") from None
    return Unpacked(packed.name, unpacked.read1, lambda: member.compress_size, packed)
