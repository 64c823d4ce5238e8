"""Opens a path, a pipe, standard input or an object of a store as a seekable file, unpacked once (gzip, zip,
Zstandard).

A pipe, an object or a packed file is copied to a temporary file when it is opened. The temporary file has no name and
is deleted when its process ends. So each source can be read several times, and damage is found before the first row.

A file or an object that changes before its last row is read is refused: an upload may be in progress, and the last row
may be incomplete.
"""

import gzip
import os
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from os import PathLike, fspath
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from connector.errors import SourceError
from connector.rows import CloseableResource, closed_on_error
from connector.spool import describe_no_room
from connector.stores import StoreError, is_url, open_object, parse_store_url, read_size, read_version

STANDARD_INPUT = "-"

_HEAD_BYTES = 1 << 16  # enough to recognise the format
_COPIED_BYTES = 1 << 20  # for each read and write of a temporary copy
_MAX_SHARE_OF_ROOM = 0.9  # of the free space in the folder, because other programs need space, too

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # an archive with files, and an empty archive
_PACKING = re.compile(r"\.(gz|gzip|zst|zstd)$", re.IGNORECASE)
_MAX_NAMES = 20  # of files of an archive in a message
_DOCUMENTS = {
    "[Content_Types].xml",
    "content.xml",
}  # files of an .xlsx and an .ods (which is refused), which are zip archives

_MAX_FACTOR = 500  # a list of subscribers unpacks to 10 times its size, numbered addresses to 270, a bomb to 1,000
_ALWAYS_BYTES = 1 << 26  # always allowed: a short file that repeats one line is not a bomb
_FAULTS = (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError)


@dataclass(frozen=True, slots=True)
class Input(CloseableResource):
    """An unpacked file. `name` is its name in messages. `inner` is the name in its archive, or the name without the
    suffix of its packing.

    `origin` is the file or object that may change while it is read, and `state` its state at opening. Both are None for
    a pipe.
    """

    name: str
    inner: str
    file: BinaryIO
    origin: "BinaryIO | str | None" = None
    state: tuple[int, object] | None = None  # the size in bytes, and a time or tag that each change changes

    @property
    def head(self) -> bytes:
        """The first 64 KiB; the file is at its beginning afterwards."""
        self.file.seek(0)
        head = self.file.read(_HEAD_BYTES)
        self.file.seek(0)
        return head

    @property
    def is_local(self) -> bool:
        """Whether the state can be read without a request to a store."""
        return not isinstance(self.origin, str)

    def refuse_changed(self) -> None:
        """Raise SourceError if the file or the object has changed since it was opened."""
        state = None if self.origin is None else _read_state(self.origin)
        if state is None or self.state is None or state == self.state:
            return
        (old_size, _), (size, _) = self.state, state
        change = "at the same size" if size == old_size else f"{old_size:,} bytes then, {size:,} bytes now"
        raise SourceError(
            f"{self.name}: has changed since it was opened ({change}), so another program may still be writing it, and "
            "its last row may be incomplete. Wait until it is complete, then run again"
        )

    def close(self) -> None:
        """Release the file and its copy; may be called more than once."""
        self.file.close()
        if self.origin is not None and not isinstance(self.origin, str):
            self.origin.close()


def _read_state(origin: BinaryIO | str) -> tuple[int, object] | None:
    """Return the `state` of an open file, or of the object of a URL. Return None if the object does not exist any more.
    Raises SourceError."""
    if not isinstance(origin, str):
        status = os.fstat(origin.fileno())
        return status.st_size, status.st_mtime_ns
    try:
        return read_version(origin)
    except StoreError as error:
        raise SourceError(f"{origin}: cannot be read: {error}") from None


def open_input(path: str | PathLike[str]) -> Input:
    """Open a path, standard input (`-`), an object by its URL (`s3://bucket/people.csv`), or one file of a zip archive
    (`archive.zip#member.csv`, `*` allowed).

    Raises SourceError, and ConfigurationError for a URL that cannot be used.
    """
    location = fspath(path)
    archive, sign, member = location.partition("#")
    if sign and member and not is_there(location) and is_there(archive):  # a file may have a # in its name
        location = archive
    else:
        member = ""
    packed = _open_packed(location)
    with closed_on_error(packed):
        unpacked = _unpack(packed, member or None)
    if unpacked is packed:
        return packed
    packed.file.close()
    return replace(unpacked, origin=packed.origin, state=packed.state)


def is_there(location: str) -> bool:
    """Return whether a file or folder with this path, or an object with this URL, exists. Raises SourceError, and
    ConfigurationError for a URL that cannot be used."""
    if not is_url(location):
        return Path(location).exists()
    url = parse_store_url(location)
    try:
        return read_size(url) is not None
    except StoreError as error:
        raise SourceError(f"{url}: cannot be read: {error}") from None


def _open_packed(location: str) -> Input:
    """Return the file, or a copy of a pipe or object. The store may change an object while the object is read."""
    if is_url(location):
        url = parse_store_url(location)
        state = _read_state(url)
        try:
            with open_object(url) as stored:
                copy = _copy(stored.read_pieces(_COPIED_BYTES), url)
                return Input(location, location, copy, url, state)
        except FileNotFoundError:
            raise SourceError(f"{url}: there is no such object; check the URL") from None
        except StoreError as error:
            raise SourceError(f"{url}: cannot be read: {error}") from None
    name = "standard input" if location == STANDARD_INPUT else location
    try:
        if location != STANDARD_INPUT and Path(location).is_dir():
            raise SourceError(f"{location}: is a folder; name the file in it")
        # Standard input is a descriptor, which stays open for others.
        opened, is_own = (0, False) if location == STANDARD_INPUT else (location, True)
        file: BinaryIO = open(opened, "rb", closefd=is_own)  # noqa: SIM115 - its owner closes it
    except FileNotFoundError:
        raise SourceError(f"{name}: there is no such file; check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        if isinstance(error, UnicodeEncodeError):
            reason = "the locale has no such characters in a file's name; set LC_ALL=C.UTF-8"
        raise SourceError(f"{name}: cannot be opened: {reason}") from None
    if location == STANDARD_INPUT or not Path(location).is_file():
        with file as pipe:
            return Input(name, name, _copy(iter(lambda: pipe.read(_COPIED_BYTES), b""), name))
    origin = os.fdopen(
        os.dup(file.fileno()), "rb"
    )  # a second descriptor, because pyarrow closes the file that it unpacks
    return Input(name, name, file, origin, _read_state(file))


def _unpack(packed: Input, member: str | None) -> Input:
    """Return the unpacked Input of a packed file. A workbook (also a zip archive) and an unpacked file are returned
    unchanged."""
    name, file, head = packed.name, packed.file, packed.head
    if head.startswith(_ZIP) and (found := _choose_member(packed, member)) is not None:
        with zipfile.ZipFile(file) as archive:
            pieces = _read_pieces(lambda: archive.open(found).read, name, found.compress_size)
            return Input(name, found.filename, _copy(pieces, name))
    if member is not None:
        raise SourceError(f"{name}: is not a ZIP archive, so it does not contain {member}; name only the file")
    if head.startswith(_GZIP):
        open_stream = lambda: gzip.GzipFile(fileobj=file).read1  # noqa: E731
    elif head.startswith(_ZSTD):
        import pyarrow as pa  # here: other inputs do not need it

        open_stream = lambda: pa.CompressedInputStream(file, "zstd").read  # noqa: E731
    else:
        return packed
    return Input(
        name, _PACKING.sub("", name), _copy(_read_pieces(open_stream, name, os.fstat(file.fileno()).st_size), name)
    )


def _read_pieces(open_stream: Callable[[], Callable[[int], bytes]], name: str, packed_bytes: int) -> Iterator[bytes]:
    """Yield the unpacked bytes. Raises SourceError if the file is damaged, or unpacks to too many bytes."""
    unpacked_bytes = 0
    try:
        read = open_stream()
        while piece := read(_COPIED_BYTES):
            unpacked_bytes += len(piece)
            if unpacked_bytes > max(_ALWAYS_BYTES, _MAX_FACTOR * packed_bytes):
                raise SourceError(
                    f"{name}: unpacks to more than {_MAX_FACTOR} times its size, which is not usual for a list of "
                    "subscribers; if the file is a list, unpack it first"
                )
            yield piece
    except _FAULTS as error:
        raise SourceError(
            f"{name}: cannot be unpacked, it is cut off, damaged or encrypted ({error}); fetch it or pack it again"
        ) from None


def _choose_member(packed: Input, wanted: str | None) -> zipfile.ZipInfo | None:
    """Return the wanted file of the archive, or its only file. Return None if the archive is a workbook.

    Folders, links and the files that macOS adds (`__MACOSX/`, names that begin with a dot) do not count. Raises
    SourceError.
    """
    try:
        with zipfile.ZipFile(packed.file) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        raise SourceError(
            f"{packed.name}: is a ZIP archive that is cut off or damaged ({error}); fetch it again"
        ) from None
    if wanted is None and _DOCUMENTS & {member.filename for member in members}:
        return None
    files = []
    for member in members:
        path = PurePosixPath(member.filename)
        is_data = path.parts[:1] != ("__MACOSX",) and not path.name.startswith(".")
        if is_data and not member.is_dir() and not stat.S_ISLNK(member.external_attr >> 16):
            files.append(member)
    found = [member for member in files if wanted in (None, member.filename)]
    found = found or [member for member in files if fnmatchcase(member.filename, wanted or "")]
    if len(found) == 1:
        return found[0]
    if not files:
        raise SourceError(f"{packed.name}: the ZIP archive holds no file")
    names = [member.filename for member in files]
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    matches = "" if wanted is None else f"; {len(found) or 'none'} of them {'match' if found else 'is'} {wanted}"
    raise SourceError(
        f"{packed.name}: the ZIP archive holds {', '.join(names[:_MAX_NAMES])}{more}{matches}; name the one to "
        f"read: {packed.name}#{names[0]}"
    )


def _copy(pieces: Iterable[bytes], name: str) -> BinaryIO:
    """Return a temporary copy, which the caller closes. Raises SourceError if the folder has no room for the copy."""
    with ExitStack() as opened:
        try:
            copy: BinaryIO = opened.enter_context(tempfile.TemporaryFile())
            most = int(_MAX_SHARE_OF_ROOM * shutil.disk_usage(tempfile.gettempdir()).free)
            for piece in pieces:
                if copy.tell() + len(piece) > most:
                    raise SourceError(
                        f"{name}: must be copied to be read, and has more than {most >> 20:,} MiB, for which "
                        f"{tempfile.gettempdir()} has no room. Write it to a file and read that file, or set TMPDIR to "
                        "another folder"
                    )
                copy.write(piece)
            copy.flush()
        except StoreError:
            raise
        except OSError as error:
            raise SourceError(describe_no_room(f"{name}: must be copied to be read, and the copy", error)) from None
        opened.pop_all()
        return copy
