"""What a file holds, whatever it came in: a path or standard input, plain or packed. It knows no format.

What is read forward is never kept; what must be sought in is the file itself or, from a pipe, a temporary copy of it.
"""

import stat
import tempfile
from os import PathLike, fspath
from pathlib import Path
from typing import BinaryIO

from connector.errors import SourceError
from connector.extract.closing import Closing
from connector.extract.csv import Readable
from connector.extract.files.archive import choose_member
from connector.extract.files.unpacking import open_gzip, open_member, open_zstd

STANDARD_INPUT = "-"
_INPUT_NAME = "standard input"

HEAD_BYTES = 1 << 16  # what formats are told by; no more is ever looked at before it is read
_COPIED_BYTES = 1 << 20  # at a time, into a temporary copy

_GZIP, _ZSTD, _ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", (b"PK\x03\x04", b"PK\x05\x06")  # the last: an empty one


class Content(Closing):
    """A file unpacked, to be read forward once (`read`) or taken as a file that can be sought in, but not both.

    `name` is what a person calls it, `inner` the same without the suffix of its packing, or its name in the archive.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        stream: Readable,
        plain: BinaryIO | None = None,
        inner: str | None = None,
        beneath: Readable | None = None,
    ) -> None:
        """`plain` is the stream itself where it can be sought in; what is `beneath` is closed with it.

        `path` may be `-`. Raises SourceError.
        """
        self._path, self._stream, self._plain = path, stream, plain
        self._owned = [each for each in (stream, beneath) if each is not None]
        self.name = _INPUT_NAME if fspath(path) == STANDARD_INPUT else fspath(path)
        self.inner = inner or self.name
        self._failure: SourceError | None = None  # met while the head was read: told after it
        self.head = self._ahead = self._read_head()

    def read(self, size: int, /) -> bytes:
        """Some of the next bytes, at most `size`; none at the end. Raises SourceError."""
        if not self._ahead:
            return self._read_on(size)
        piece, self._ahead = self._ahead[:size], self._ahead[size:]
        return piece

    def take_file(self) -> BinaryIO:
        """All of it, as a file to be sought in, at its beginning. Raises SourceError."""
        if self._plain is None:
            self._plain = self._copy()
            self._owned.append(self._plain)
        self._plain.seek(0)
        return self._plain

    def keep(self) -> None:
        """See to it that it can begin anew: what comes through a pipe is copied first. Raises SourceError."""
        if not is_regular(self._path):
            self._stream, self._ahead = self.take_file(), b""

    def begin_anew(self) -> "Content":
        """The same from its beginning, which closes this one, too; after `keep`. Raises SourceError."""
        if is_regular(self._path):
            self.close()
            return open_content(self._path)
        file = self.take_file()
        return Content(self._path, file, file, self.inner, beneath=self)

    def close(self) -> None:
        """Let go of the file and its copy; may be called more than once."""
        for each in self._owned:
            each.close()

    def _read_head(self) -> bytes:
        head = b""
        try:
            while len(head) < HEAD_BYTES and (more := self._read_on(HEAD_BYTES - len(head))):
                head += more
        except SourceError as error:
            if not head:
                raise
            self._failure = error
        return head

    def _read_on(self, size: int) -> bytes:
        if self._failure is not None:
            raise self._failure
        try:
            return self._stream.read(size)
        except OSError as error:
            raise SourceError(f"{self.name}: reading failed: {error.strerror or error}") from error

    def _copy(self) -> BinaryIO:
        copy: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        try:
            while piece := self.read(_COPIED_BYTES):
                copy.write(piece)
        except OSError as error:
            copy.close()
            raise SourceError(
                f"{self.name}: must be copied to be read, and there is no room for it in {tempfile.gettempdir()} "
                f"({error.strerror}): make room, or set TMPDIR to another folder"
            ) from None
        except BaseException:
            copy.close()
            raise
        return copy


def open_content(path: str | PathLike[str], kept: BinaryIO | None = None) -> Content:
    """Open a path, or standard input for `-`, and undo one packing: gzip, zip or Zstandard. Raises SourceError.

    What was `kept` of the path, a file to be sought in, is read in its place, and closed with it.
    """
    raw = kept or open_raw(path)
    try:
        return _unpack(path, Content(path, raw, raw if kept is not None or is_regular(path) else None))
    except BaseException:
        raw.close()
        raise


def _unpack(path: str | PathLike[str], packed: Content) -> Content:
    """What is in a packed file; a workbook, though it is a zip archive, and any other file as it is."""
    if packed.head.startswith(_GZIP):
        return Content(path, open_gzip(packed), inner=_without_suffix(packed.name, ".gz", ".gzip"))
    if packed.head.startswith(_ZSTD):
        return Content(path, open_zstd(packed), inner=_without_suffix(packed.name, ".zst", ".zstd"))
    if packed.head.startswith(_ZIP) and (member := choose_member(packed.take_file(), packed.name)) is not None:
        return Content(path, open_member(packed, packed.take_file(), member), inner=member.filename)
    return packed


def open_raw(path: str | PathLike[str]) -> BinaryIO:
    """The bytes of a path, or of standard input for `-`, as they are. Raises SourceError."""
    if fspath(path) == STANDARD_INPUT:
        try:
            return open(0, "rb", closefd=False)  # a descriptor, which stays open for whoever is next
        except OSError as error:
            raise SourceError(f"standard input cannot be read: {error.strerror}") from None
    try:
        if stat.S_ISDIR(Path(path).stat().st_mode):
            raise SourceError(f"{path}: is a folder; name the file in it")
        return Path(path).open("rb")
    except FileNotFoundError:
        raise SourceError(f"{path}: there is no such file; check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise SourceError(f"{path}: cannot be opened: {getattr(error, 'strerror', None) or error}") from None


def is_regular(path: str | PathLike[str]) -> bool:
    """Whether it is a file, and no pipe or folder."""
    return fspath(path) != STANDARD_INPUT and Path(path).is_file()


def _without_suffix(name: str, *suffixes: str) -> str:
    return next((name[: -len(suffix)] for suffix in suffixes if name.lower().endswith(suffix)), name)
