"""The bytes of a path, a pipe or standard input, with one packing (gzip, zip, Zstandard), known by content, undone.

An `Input` is read forward once, which keeps nothing, or taken as a file to seek in: the file itself or, of a pipe and
of a packed file, a temporary copy without a name, which goes with its process.
"""

import gzip
import os
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from os import PathLike, fspath
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol, cast

from connector.errors import SourceError
from connector.rows import Closing

STANDARD_INPUT = "-"

_HEAD_BYTES = 1 << 16  # formats are recognised by these
_COPIED_BYTES = 1 << 20  # at a time, into a temporary copy

_GZIP, _ZSTD, _ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", (b"PK\x03\x04", b"PK\x05\x06")  # the last: an empty archive
_NAMES_SHOWN = 20
_DOCUMENTS = {"[Content_Types].xml", "content.xml"}  # in an .xlsx and an .ods, which are zip archives too

# Lists of subscribers pack to a tenth, numbered addresses and nothing else to a 270th (measured); a bomb to a 1000th.
_MOST_TIMES = 500
_ALWAYS_BYTES = 1 << 26  # allowed at any rate: a short file of one line over and over is no bomb
_ZSTD_BYTES = 1 << 14  # at a time: Arrow gives nothing of a read that meets damage, so only these rows are lost
_FAULTS = (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError)


class Readable(Protocol):
    """Bytes that are read forward, and closed."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class Input(Closing):
    """Unpacked bytes, to be read forward once (`read`) or taken as a file to seek in (`take_file`), but not both.

    `name` is for messages; `inner` is the same without the suffix of its packing, or the name in its archive. `head` is
    the first 64 KiB.
    """

    def __init__(
        self,
        name: str,
        stream: Readable,
        *,
        file: BinaryIO | None = None,
        inner: str | None = None,
        beneath: Readable | None = None,
    ) -> None:
        """`file` is the stream itself where it can be sought in; `beneath` is closed with it. Raises SourceError."""
        self.name, self.inner = name, inner or name
        self._stream, self._file = stream, file
        self._owned = [each for each in (stream, beneath) if each is not None]
        self._failure: SourceError | None = None  # met while the head was read: raised after the head was given
        self.count, self.closed = 0, False  # bytes given so far
        self.head = self._ahead = self._read_head()

    def read(self, size: int = -1, /) -> bytes:
        """Return some of the next bytes, at most `size`; none at the end. Raises SourceError."""
        if self._ahead:
            end = size if size >= 0 else None
            piece, self._ahead = self._ahead[:end], self._ahead[end:] if end is not None else b""
        else:
            piece = self._read_on(size)
        self.count += len(piece)
        return piece

    def take_file(self) -> BinaryIO:
        """Return all of it, as a file to seek in, at its beginning. Raises SourceError."""
        if self._file is None:
            self._file = _copy(self.read, self.name)
            self._owned.append(self._file)
        self._file.seek(0)
        return self._file

    def close(self) -> None:
        """Release the file and its copy; may be called more than once."""
        self.closed = True
        for each in self._owned:
            each.close()

    def _read_head(self) -> bytes:
        head = b""
        try:
            while len(head) < _HEAD_BYTES and (more := self._read_on(_HEAD_BYTES - len(head))):
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


def open_input(path: str | PathLike[str], spool: BinaryIO | None = None) -> Input:
    """Open a path, standard input (`-`) or one file of a zip archive (`archive.zip#member.csv`, `*` allowed).

    A `spool` (from `spool_pipe`) is read in place of the path, from its beginning. Raises SourceError.
    """
    place, member = _split_member(fspath(path))
    name = "standard input" if place == STANDARD_INPUT else place
    raw = _open_raw(place) if spool is None else os.fdopen(os.dup(spool.fileno()), "rb")
    try:
        if spool is not None:
            raw.seek(0)
        is_file = spool is not None or (place != STANDARD_INPUT and Path(place).is_file())
        packed = Input(name, raw, file=raw if is_file else None)
        return _unpack(packed, member)
    except BaseException:
        raw.close()
        raise


def spool_pipe(path: str | PathLike[str]) -> BinaryIO | None:
    """Copy what comes through a pipe, so that it can be read more than once; None for a file. Raises SourceError."""
    place = fspath(path)
    if place != STANDARD_INPUT and (not Path(place).exists() or Path(place).is_file() or Path(place).is_dir()):
        return None
    with _open_raw(place) as raw:
        return _copy(raw.read, place)


def _split_member(path: str) -> tuple[str, str | None]:
    """The file, and the name of its member after `#`, unless a file is called so with its `#`."""
    archive, sign, member = path.partition("#")
    return (archive, member) if sign and member and not Path(path).exists() and Path(archive).exists() else (path, None)


def _unpack(packed: Input, member: str | None) -> Input:
    """The Input in a packed one; a workbook, though it is a zip archive, and any other file stays as it is."""
    if packed.head.startswith(_ZIP) and (found := _choose_member(packed, member)) is not None:
        return Input(packed.name, _open_member(packed, found), inner=found.filename, beneath=packed)
    if member is not None:
        raise SourceError(f"{packed.name}: is no ZIP archive, so there is no {member} in it; name the file alone")
    if packed.head.startswith(_GZIP):
        unpacked = gzip.GzipFile(fileobj=packed, mode="rb")  # type: ignore[call-overload] # it only reads, never seeks
        stream = _Unpacked(packed, unpacked.read1)
        return Input(packed.name, stream, inner=_without_suffix(packed.name, ".gz", ".gzip"))
    if packed.head.startswith(_ZSTD):
        import pyarrow as pa  # here: other inputs do not need it

        frames = pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd")
        stream = _Unpacked(packed, lambda size: frames.read(min(size, _ZSTD_BYTES)))
        return Input(packed.name, stream, inner=_without_suffix(packed.name, ".zst", ".zstd"))
    return packed


class _Unpacked:
    """A packed Input unpacked. Raises SourceError where it is damaged, and where it unpacks to too much."""

    def __init__(self, packed: Input, read: Callable[[int], bytes], packed_bytes: int | None = None) -> None:
        self._packed, self._read, self._packed_bytes = packed, read, packed_bytes
        self._given = 0

    def read(self, size: int, /) -> bytes:
        try:
            piece = self._read(size)
        except _FAULTS as error:
            raise SourceError(
                f"{self._packed.name}: its packed content is cut off or damaged after {self._given:,} unpacked bytes "
                f"({error}); fetch it or pack it again"
            ) from None
        self._given += len(piece)
        if self._given > max(_ALWAYS_BYTES, _MOST_TIMES * (self._packed_bytes or self._packed.count)):
            raise SourceError(
                f"{self._packed.name}: unpacks to more than {_MOST_TIMES} times its size, as no list of subscribers "
                "does; if it is one, unpack it first"
            )
        return piece

    def close(self) -> None:
        self._packed.close()


def _choose_member(packed: Input, wanted: str | None) -> zipfile.ZipInfo | None:
    """The file of the archive that is wanted, or its only one; None if the archive is a workbook or another document.

    Folders and what macOS adds (`__MACOSX/`, names that begin with a dot) do not count. Raises SourceError.
    """
    try:
        with zipfile.ZipFile(packed.take_file()) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        raise SourceError(
            f"{packed.name}: is a ZIP archive that is cut off or damaged ({error}); fetch it again"
        ) from None
    if wanted is None and _DOCUMENTS & {member.filename for member in members}:
        return None
    files = [member for member in members if _is_data(member)]
    found = files if wanted is None else _find_named(files, wanted)
    if len(found) == 1:
        return found[0]
    if not files:
        raise SourceError(f"{packed.name}: the ZIP archive holds no file")
    names = [member.filename for member in files]
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    held = f"the ZIP archive holds {', '.join(names[:_NAMES_SHOWN])}{more}"
    if wanted is not None:
        how_many = f"{len(found)} of them match" if found else "none of them is"
        raise SourceError(f"{packed.name}: {held}; {how_many} {wanted}; name one: {packed.name}#{names[0]}")
    raise SourceError(f"{packed.name}: {held}; name the one to read: {packed.name}#{names[0]}")


def _find_named(files: Sequence[zipfile.ZipInfo], wanted: str) -> list[zipfile.ZipInfo]:
    exact = [member for member in files if member.filename == wanted]
    return exact or [member for member in files if fnmatchcase(member.filename, wanted)]


def _is_data(member: zipfile.ZipInfo) -> bool:
    path = PurePosixPath(member.filename)
    is_link = stat.S_ISLNK(member.external_attr >> 16)
    return not (member.is_dir() or is_link or path.parts[:1] == ("__MACOSX",) or path.name.startswith("."))


def _open_member(packed: Input, member: zipfile.ZipInfo) -> _Unpacked:
    if member.flag_bits & 1:
        raise SourceError(f"{packed.name}: {member.filename} in it is protected by a password; unpack it first")
    try:
        archive = zipfile.ZipFile(packed.take_file())
        unpacked = cast("zipfile.ZipExtFile", archive.open(member))
    except _FAULTS as error:
        raise SourceError(f"{packed.name}: {member.filename} in it cannot be unpacked: {error}") from None
    return _Unpacked(packed, unpacked.read1, member.compress_size)


def _open_raw(place: str) -> BinaryIO:
    if place == STANDARD_INPUT:
        try:
            return open(0, "rb", closefd=False)  # a descriptor, which stays open for others
        except OSError as error:
            raise SourceError(f"standard input cannot be read: {error.strerror}") from None
    try:
        if stat.S_ISDIR(Path(place).stat().st_mode):
            raise SourceError(f"{place}: is a folder; name the file in it")
        return Path(place).open("rb")
    except FileNotFoundError:
        raise SourceError(f"{place}: there is no such file; check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise SourceError(f"{place}: cannot be opened: {getattr(error, 'strerror', None) or error}") from None


def _copy(read: Callable[[int], bytes], name: str) -> BinaryIO:
    copy: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - its owner closes it
    try:
        while piece := read(_COPIED_BYTES):
            copy.write(piece)
        copy.flush()
    except OSError as error:
        copy.close()
        raise SourceError(
            f"{name}: must be copied to be read, and there is no room for it in {tempfile.gettempdir()} "
            f"({error.strerror}): make room, or set TMPDIR to another folder"
        ) from None
    except BaseException:
        copy.close()
        raise
    return copy


def _without_suffix(name: str, *suffixes: str) -> str:
    return next((name[: -len(suffix)] for suffix in suffixes if name.lower().endswith(suffix)), name)
