"""A file as UTF-8, whatever its encoding, read forward in pieces; what cannot be decoded stays visibly undecodable.

It knows encodings and what is no text at all, and nothing of records or delimiters.
"""

import codecs
import re
import stat
from os import PathLike
from pathlib import Path
from typing import Protocol

from connector.errors import ConfigurationError, SourceError
from connector.extract.csv.decoding import UNDECODABLE_BYTES, build_decoder
from connector.extract.csv.encoding import find_utf_16, judge_encoding

_BEGINNING_BYTES = 1 << 18  # some thousand rows: what they do not show of the encoding, more hardly would
_MOST_CHARACTER_BYTES = 4  # of UTF-8
_READ_BYTES = 1 << 20  # one system call's worth; larger reads were no faster

_BOMS = (  # UTF-32's begins with UTF-16's, so the longer ones come first
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

_BINARY_BEGINNINGS = (
    (b"PK\x03\x04", "a ZIP archive or an Excel workbook (.xlsx): save the sheet as CSV first"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook (.xls): save the sheet as CSV first"),
    (b"\x1f\x8b", "compressed by gzip: unpack it first"),
    (b"BZh", "compressed by bzip2: unpack it first"),
    (b"\xfd7zXZ\x00", "compressed by xz: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed by Zstandard: unpack it first"),
    (b"PAR1", "a Parquet file, not CSV"),
    (b"SQLite format 3\x00", "a SQLite database: name it as a SQL source, sqlite:///FILE"),
    (b"%PDF-", "a PDF, not CSV"),
)

_BINARY_SHARE = 0.1  # of control bytes in the beginning; text has none or a few, a binary file about 0.1 and more

# NUL would make a CSV reader stop, and the others break terminals; tab and line ends are a record's own.
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Readable(Protocol):
    """What is read forward and closed; of a file no more is needed."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class Utf8Stream:
    """A file read forward as UTF-8 without its BOM; bytes that cannot be decoded stay invalid UTF-8.

    With the encoding `auto` a BOM's word is taken, else what the first bytes beyond ASCII show, wherever they come;
    where they do not show enough, it is UTF-8, and each of its rows with other bytes is undecodable. `remark` says
    what was found, for a person; None while there is nothing to say. `encoding` is what the file is read in by now.
    """

    def __init__(self, file: Readable, encoding: str) -> None:
        self._file = file
        self._failure: SourceError | None = None  # met after some bytes: they are given first
        self._is_first = True
        self.remark: str | None = None
        self.advised = "cp1252"  # for a person who must name an encoding
        self._pending = self._read_beginning()
        self._is_found = encoding != "auto"
        self._set_encoding(encoding if self._is_found else "utf-8")
        if not self._is_found:
            self._take_plain_signs()

    def read(self, size: int) -> bytes:
        """Give about `size` bytes, at least one unless the file has ended. Raises SourceError."""
        pieces: list[bytes] = []
        wanted = size
        while wanted > 0:
            try:
                piece = self._pending or self._read_on(min(wanted, _READ_BYTES))
                self._pending = b""
                if not self._is_found and not piece.isascii():
                    piece = self._find_encoding(piece)
            except SourceError as error:
                if not pieces:
                    raise
                self._failure = error
                break
            utf8 = self._to_utf8(piece)
            pieces.append(utf8)
            wanted -= len(utf8)
            if not piece:
                break
        return b"".join(pieces)

    def _take_plain_signs(self) -> None:
        """A BOM, or the zero bytes of UTF-16."""
        bom = next((encoding for bom, encoding in _BOMS if self._pending.startswith(bom)), None)
        utf_16 = find_utf_16(self._pending) if bom is None else None
        if utf_16 is not None:
            self.remark = f"read as {utf_16}, found by its zero bytes; it has no BOM that would say so"
        if encoding := bom or utf_16:
            self._set_encoding(encoding)
        self._is_found = encoding is not None or _is_binary(self._pending)

    def _read_beginning(self) -> bytes:
        """Enough to judge by; a pipe gives less at a time."""
        beginning = b""
        while len(beginning) < _BEGINNING_BYTES and (more := self._read_more(_BEGINNING_BYTES - len(beginning))):
            beginning += more
        if not beginning and self._failure is not None:
            raise self._failure
        return beginning

    def _find_encoding(self, piece: bytes) -> bytes:
        """Decide by the first piece that is not ASCII alone; give it, with what had to be read to its end."""
        if piece[:-_MOST_CHARACTER_BYTES].isascii():  # what is beyond ASCII may be half a character at its end
            piece += self._read_more(_READ_BYTES)
        verdict = judge_encoding(piece)
        self._is_found = True
        if verdict.encoding is None:
            if verdict.likely and self.advised not in verdict.likely:
                self.advised = verdict.likely[0]
            self.remark = (
                f"its encoding is not certain: {verdict.reason}. Rows with other than ASCII in them were not read; "
                f"name the encoding and run it again: {advise_encoding(self.advised)}"
            )
        elif verdict.encoding != "utf-8":
            self._set_encoding(verdict.encoding, is_strict=True)
            self.remark = (
                f"read as {verdict.encoding}, {verdict.reason}; if that is wrong, name it: {advise_encoding('NAME')}"
            )
        return piece

    def _set_encoding(self, encoding: str, *, is_strict: bool = False) -> None:
        """UTF-8 passes as it is, which is the fast way and keeps each wrong byte for the rejects file."""
        self.encoding = encoding
        self._decode = None if encoding == "utf-8" else build_decoder(encoding, is_strict=is_strict)

    def _read_more(self, size: int) -> bytes:
        """What follows; b"" at the end, and where reading fails: that is told after what was read before."""
        try:
            return self._read_on(size)
        except SourceError as error:
            self._failure = error
            return b""

    def _read_on(self, size: int) -> bytes:
        if self._failure is not None:
            raise self._failure
        try:
            return self._file.read(size)
        except OSError as error:
            raise SourceError(f"reading failed: {error.strerror or error}") from error

    def _to_utf8(self, piece: bytes) -> bytes:
        if self._decode is not None:
            piece = self._decode(piece, not piece).encode("utf-8", "surrogatepass")
        if self._is_first and piece:
            self._is_first = False
            while piece.startswith(codecs.BOM_UTF8):  # a second one, where a program put its own before another's
                piece = piece.removeprefix(codecs.BOM_UTF8)
        return piece

    def close(self) -> None:
        """Let go of the file; may be called more than once."""
        self._file.close()


def open_utf8(path: str | PathLike[str], encoding: str, stream: Readable | None = None) -> Utf8Stream:
    """Open a file; `encoding` is `auto` (a BOM's word, else what its bytes show) or a name that Python knows.

    A `stream` that is given is read in place of the file, whose `path` is then its name alone.
    Raises SourceError for what cannot be opened as a file, ConfigurationError for an unknown encoding.
    """
    name = _check_encoding(encoding)
    if stream is not None:
        return Utf8Stream(stream, name)
    try:
        if stat.S_ISDIR(Path(path).stat().st_mode):
            raise SourceError(f"{path}: is a folder; name the CSV file in it")
        file = Path(path).open("rb")  # noqa: SIM115 - the stream owns it and closes it
    except FileNotFoundError:
        raise SourceError(f"{path}: there is no such file; check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise SourceError(f"{path}: cannot be opened: {getattr(error, 'strerror', None) or error}") from None
    try:
        return Utf8Stream(file, name)
    except OSError as error:
        file.close()
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from None


def refuse_binary(path: str, beginning: bytes) -> None:
    """Raise SourceError if a file's `beginning` (some of it, as UTF-8) is empty or not that of a text."""
    if not beginning.strip():
        raise SourceError(f"{path}: is empty; a CSV file begins with a header line that names its columns")
    for magic, meaning in _BINARY_BEGINNINGS:
        if beginning.startswith(magic):
            raise SourceError(f"{path}: is {meaning}")
    if _is_full_of_controls(beginning):
        hint = f"if it is UTF-16 or UTF-32 without a BOM, say so: {advise_encoding('utf-16-le')}"
        raise SourceError(f"{path}: is a binary file, not CSV" + (f"; {hint}" if 0 in beginning else ""))


def show_bytes(record: bytes) -> str:
    """A record for a person and the rejects file: as text, wrong bytes and control characters written out as \\xNN."""
    shown = record.replace(UNDECODABLE_BYTES, "\ufffd".encode())
    return _CONTROLS.sub(lambda found: b"\\x%02x" % found[0][0], shown).decode("utf-8", "backslashreplace")


def advise_encoding(name: str = "cp1252") -> str:
    """Where a person says a file's encoding, with an example."""
    return f"--encoding {name}, or source.file.encoding in a job"


def _is_binary(beginning: bytes) -> bool:
    """No text in any encoding of single bytes: what it is, is then told by its bytes as they are."""
    return beginning.startswith(tuple(magic for magic, _ in _BINARY_BEGINNINGS)) or _is_full_of_controls(beginning)


def _is_full_of_controls(text: bytes) -> bool:
    controls = sum(text.count(bytes([byte])) for byte in (*range(9), *range(14, 32)))
    return controls > _BINARY_SHARE * len(text)


def _check_encoding(encoding: str) -> str:
    if encoding == "auto":
        return encoding
    try:
        "".encode(encoding)  # refuses what is no encoding of text, such as base64
        name = codecs.lookup(encoding).name
    except (LookupError, ValueError):
        raise ConfigurationError(
            f"encoding {encoding!r} is not known; use auto, utf-8, cp1252, latin-1, utf-16 or another name of Python's"
        ) from None
    return "utf-8" if name == "utf-8-sig" else name
