"""Opens a path, a pipe, standard input or an object of a store as a seekable file. A file packed by gzip, zip or
Zstandard is unpacked.

A pipe, an object or a packed file is copied to a temporary file when it is opened. Because of the copy, each source can
be read several times, and damage is found before the first row is read. The temporary file has no name, and disappears
when the process ends.

If a file or an object changes before its last row has been read, the source is refused: an upload may be in progress,
and the last row may be incomplete.
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
from connector.spool import describe_full_disk
from connector.stores import StoreError, is_url, open_object, parse_store_url, read_size, read_version

STANDARD_INPUT = "-"

_HEAD_BYTES = 1 << 16  # number of first bytes that are enough to recognise the format
_COPY_BLOCK_BYTES = 1 << 20  # bytes that are read and written at a time for a temporary copy
_MAX_SHARE_OF_FREE_SPACE = 0.9  # a copy may fill this share of the free space; other programs need the rest

_GZIP_BEGINNING, _ZSTD_BEGINNING = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_ZIP_BEGINNINGS = (b"PK\x03\x04", b"PK\x05\x06")  # an archive with files, and an empty archive
_PACKING_SUFFIX_PATTERN = re.compile(r"\.(gz|gzip|zst|zstd)$", re.IGNORECASE)
_MAX_SHOWN_NAMES = 20  # a message names at most this number of files of an archive
# Files that show that a zip archive is an .xlsx, or an .ods, which is refused.
_DOCUMENT_PARTS = {"[Content_Types].xml", "content.xml"}

_MAX_UNPACKING_FACTOR = 500  # a list of subscribers unpacks to 10 times its size, a zip bomb to 1,000 times
# 64 MiB: a file may unpack to this size in any case, because a short file that repeats one line is not a zip bomb.
_ALWAYS_ALLOWED_BYTES = 1 << 26
_UNPACKING_ERRORS = (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError)


@dataclass(frozen=True, slots=True)
class Input(CloseableResource):
    """An unpacked file. `name` is the name for messages. `inner_name` is the name of the file in its archive, or the
    name without a suffix such as `.gz`.

    `origin` is the file or object that may change while it is read. `origin_state` is its state when the
    `Input` was opened: the size in bytes, and a time or version tag that differs after each change. For a pipe,
    `origin` and `origin_state` are None.
    """

    name: str
    inner_name: str
    file: BinaryIO
    origin: "BinaryIO | str | None" = None
    origin_state: tuple[int, object] | None = None

    @property
    def first_bytes(self) -> bytes:
        """The first 64 KiB of the file. Reading this property moves the position to the beginning of the file."""
        self.file.seek(0)
        first_bytes = self.file.read(_HEAD_BYTES)
        self.file.seek(0)
        return first_bytes

    @property
    def is_local(self) -> bool:
        """Whether the input is on this machine. An object of a store is checked for changes less often, because each
        check is a request."""
        return not isinstance(self.origin, str)

    def refuse_changed_file(self) -> None:
        """Raise SourceError if the file or the object has changed since it was opened."""
        current_state = None if self.origin is None else _read_origin_state(self.origin)
        if current_state is None or self.origin_state is None or current_state == self.origin_state:
            return
        (old_size, _), (current_size, _) = self.origin_state, current_state
        change_message = f"its size was {old_size:,} bytes and is now {current_size:,} bytes"
        if current_size == old_size:
            change_message = "its size is the same"
        raise SourceError(
            f"{self.name}: has changed since it was opened ({change_message}), so another program may still be writing "
            "the data, and the last row may be incomplete. Wait until the data are complete, then run again"
        )

    def close(self) -> None:
        """Release the file and its copy. A second call does nothing."""
        self.file.close()
        if self.origin is not None and not isinstance(self.origin, str):
            self.origin.close()


def _read_origin_state(origin: BinaryIO | str) -> tuple[int, object] | None:
    """Return the `Input.origin_state` of an open file, or of the object with this URL. Return None if the object no
    longer exists. Raises SourceError."""
    if not isinstance(origin, str):
        status = os.fstat(origin.fileno())
        return status.st_size, status.st_mtime_ns
    try:
        return read_version(origin)
    except StoreError as error:
        raise SourceError(f"{origin}: cannot be read: {error}") from None


def open_input(path: str | PathLike[str]) -> Input:
    """Open a path, standard input (`-`), an object by its URL (`s3://bucket/people.csv`), or one file of a zip archive
    (`archive.zip#member.csv`). The name of the file in the archive may have a `*`.

    Raises SourceError, and ConfigurationError for a URL that cannot be used.
    """
    path_or_url = fspath(path)
    archive_path, separator, member_name = path_or_url.partition("#")
    # A file whose name contains a # is not an archive with a member.
    if separator and member_name and not exists(path_or_url) and exists(archive_path):
        path_or_url = archive_path
    else:
        member_name = ""
    packed_input = _open_without_unpacking(path_or_url)
    with closed_on_error(packed_input):
        unpacked_input = _unpack_input(packed_input, member_name or None)
    if unpacked_input is packed_input:
        return packed_input
    packed_input.file.close()
    return replace(unpacked_input, origin=packed_input.origin, origin_state=packed_input.origin_state)


def exists(path_or_url: str) -> bool:
    """Return whether a file or folder with this path, or an object with this URL, exists. Raises SourceError if
    the store fails, and ConfigurationError for a URL that cannot be used."""
    if not is_url(path_or_url):
        return Path(path_or_url).exists()
    url = parse_store_url(path_or_url)
    try:
        return read_size(url) is not None
    except StoreError as error:
        raise SourceError(f"{url}: cannot be read: {error}") from None


def _open_without_unpacking(path_or_url: str) -> Input:
    """Open a file, or copy a pipe or an object. An object is copied because it may change while it is read."""
    if is_url(path_or_url):
        url = parse_store_url(path_or_url)
        origin_state = _read_origin_state(url)
        try:
            with open_object(url) as stored_object:
                copy_file = _copy_to_temporary_file(stored_object.read_pieces(_COPY_BLOCK_BYTES), url)
                return Input(path_or_url, path_or_url, copy_file, url, origin_state)
        except FileNotFoundError:
            raise SourceError(f"{url}: there is no such object; check the URL") from None
        except StoreError as error:
            raise SourceError(f"{url}: cannot be read: {error}") from None
    source_name = "standard input" if path_or_url == STANDARD_INPUT else path_or_url
    try:
        if path_or_url != STANDARD_INPUT and Path(path_or_url).is_dir():
            raise SourceError(f"{path_or_url}: is a folder; name the file in it")
        # Standard input is a descriptor that stays open, because other code may use it.
        path_or_descriptor, is_closed_with_file = (0, False) if path_or_url == STANDARD_INPUT else (path_or_url, True)
        file: BinaryIO = open(path_or_descriptor, "rb", closefd=is_closed_with_file)  # noqa: SIM115 - the Input closes the file
    except FileNotFoundError:
        raise SourceError(f"{source_name}: there is no such file; check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        if isinstance(error, UnicodeEncodeError):
            reason = "the locale does not allow these characters in the name of a file; set LC_ALL=C.UTF-8"
        raise SourceError(f"{source_name}: cannot be opened: {reason}") from None
    if path_or_url == STANDARD_INPUT or not Path(path_or_url).is_file():
        with file as pipe_file:
            pieces = iter(lambda: pipe_file.read(_COPY_BLOCK_BYTES), b"")
            return Input(source_name, source_name, _copy_to_temporary_file(pieces, source_name))
    # `origin` has its own descriptor, because pyarrow closes `file` after unpacking.
    origin = os.fdopen(os.dup(file.fileno()), "rb")
    return Input(source_name, source_name, file, origin, _read_origin_state(file))


def _unpack_input(packed_input: Input, member_name: str | None) -> Input:
    """Unpack an input if it is packed. A workbook, which is also a zip archive, is returned unchanged."""
    name, file, first_bytes = packed_input.name, packed_input.file, packed_input.first_bytes
    if first_bytes.startswith(_ZIP_BEGINNINGS) and (member := _choose_member(packed_input, member_name)) is not None:
        with zipfile.ZipFile(file) as archive:
            pieces = _read_pieces(lambda: archive.open(member).read, name, member.compress_size)
            return Input(name, member.filename, _copy_to_temporary_file(pieces, name))
    if member_name is not None:
        raise SourceError(f"{name}: is not a ZIP archive, so it does not contain {member_name}; name only the file")
    if first_bytes.startswith(_GZIP_BEGINNING):
        open_stream = lambda: gzip.GzipFile(fileobj=file).read1  # noqa: E731
    elif first_bytes.startswith(_ZSTD_BEGINNING):
        import pyarrow as pa  # imported here, because other inputs do not need pyarrow

        open_stream = lambda: pa.CompressedInputStream(file, "zstd").read  # noqa: E731
    else:
        return packed_input
    pieces = _read_pieces(open_stream, name, os.fstat(file.fileno()).st_size)
    return Input(name, _PACKING_SUFFIX_PATTERN.sub("", name), _copy_to_temporary_file(pieces, name))


def _read_pieces(
    open_stream: Callable[[], Callable[[int], bytes]], name: str, packed_byte_count: int
) -> Iterator[bytes]:
    """Yield the unpacked bytes. Raises SourceError if the file is damaged, or unpacks to too many bytes."""
    unpacked_byte_count = 0
    try:
        read_next_bytes = open_stream()
        while piece := read_next_bytes(_COPY_BLOCK_BYTES):
            unpacked_byte_count += len(piece)
            if unpacked_byte_count > max(_ALWAYS_ALLOWED_BYTES, _MAX_UNPACKING_FACTOR * packed_byte_count):
                raise SourceError(
                    f"{name}: unpacks to more than {_MAX_UNPACKING_FACTOR} times its size, which is not usual for a "
                    "list of subscribers; if the file is such a list, unpack the file first"
                )
            yield piece
    except _UNPACKING_ERRORS as error:
        raise SourceError(
            f"{name}: cannot be unpacked, it is cut off, damaged or encrypted ({error}); fetch it or pack it again"
        ) from None


def _choose_member(packed_input: Input, requested_name: str | None) -> zipfile.ZipInfo | None:
    """Return the file `requested_name` of the archive, or the only file if `requested_name` is None. Return None if the
    archive is a workbook.

    Folders, links and the files that macOS adds (`__MACOSX/`, names that begin with a dot) are ignored. Raises
    SourceError.
    """
    try:
        with zipfile.ZipFile(packed_input.file) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        raise SourceError(
            f"{packed_input.name}: is a ZIP archive that is cut off or damaged ({error}); fetch it again"
        ) from None
    if requested_name is None and _DOCUMENT_PARTS & {member.filename for member in members}:
        return None
    data_members = []
    for member in members:
        path = PurePosixPath(member.filename)
        is_data_file = path.parts[:1] != ("__MACOSX",) and not path.name.startswith(".")
        if is_data_file and not member.is_dir() and not stat.S_ISLNK(member.external_attr >> 16):
            data_members.append(member)
    matching_members = [member for member in data_members if requested_name in (None, member.filename)] or [
        member for member in data_members if fnmatchcase(member.filename, requested_name or "")
    ]
    if len(matching_members) == 1:
        return matching_members[0]
    if not data_members:
        raise SourceError(f"{packed_input.name}: the ZIP archive holds no file")
    member_names = [member.filename for member in data_members]
    content_text = ", ".join(member_names[:_MAX_SHOWN_NAMES])
    if len(member_names) > _MAX_SHOWN_NAMES:
        content_text += f" and {len(member_names) - _MAX_SHOWN_NAMES} more"
    if requested_name is not None:
        count_text, verb = str(len(matching_members) or "none"), "match" if matching_members else "is"
        content_text += f"; {count_text} of them {verb} {requested_name}"
    raise SourceError(
        f"{packed_input.name}: the ZIP archive holds {content_text}; "
        f"name the file to read: {packed_input.name}#{member_names[0]}"
    )


def _copy_to_temporary_file(pieces: Iterable[bytes], name: str) -> BinaryIO:
    """Return a temporary copy of the pieces, which the caller closes. Raises SourceError if the folder has no room for
    the copy."""
    with ExitStack() as open_files:
        try:
            copy_file: BinaryIO = open_files.enter_context(tempfile.TemporaryFile())
            max_bytes = int(_MAX_SHARE_OF_FREE_SPACE * shutil.disk_usage(tempfile.gettempdir()).free)
            for piece in pieces:
                if copy_file.tell() + len(piece) > max_bytes:
                    raise SourceError(
                        f"{name}: the temporary copy needs more than {max_bytes >> 20:,} MiB, for which "
                        f"{tempfile.gettempdir()} has no room. Write the data to a file and read the file, or set "
                        "TMPDIR to another folder"
                    )
                copy_file.write(piece)
            copy_file.flush()
        except StoreError:
            raise
        except OSError as error:
            raise SourceError(describe_full_disk(f"{name}: the temporary copy of the data", error)) from None
        open_files.pop_all()
        return copy_file
