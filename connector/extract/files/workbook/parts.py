"""The parts of a workbook, measured by what they really unpack to, and walked element by element.

zipfile stops at the size that an archive claims; the workbook library does not, so no claim is believed here.
"""

import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO
from xml.parsers import expat

from connector.errors import SourceError

_MOST_BYTES = 1 << 31  # a full sheet of a million rows and ten columns is 600 MB of XML
_READ_BYTES = 1 << 18
_MOST_PIECE = 1 << 20
_LOCAL_HEADER = 30  # bytes, before a name and an extra field whose lengths are its last two numbers

Prepare = Callable[[expat.XMLParserType], None]
"""Sets the handlers of a parser; names of elements and attributes come as `namespace name`."""


class Parts:
    """The parts of a workbook by name, whatever the case. Raises SourceError, BadZipFile and ValueError."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        with zipfile.ZipFile(file) as archive:
            self._infos = {info.filename.casefold(): info for info in archive.infolist()}
        self._measure(name)

    def __contains__(self, part: str) -> bool:
        return part.casefold() in self._infos

    def walk(self, part: str, prepare: Prepare) -> None:
        """Read a part with a parser of its own; no entity is ever expanded."""
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.EntityDeclHandler = self._refuse_entity
        prepare(parser)
        try:
            for piece in self._inflate(part):
                parser.Parse(piece)
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise ValueError(f"{part}: {error}") from None

    def _measure(self, name: str) -> None:
        left = _MOST_BYTES
        for part in self._infos:
            for piece in self._inflate(part):
                left -= len(piece)
                if left < 0:
                    raise SourceError(
                        f"{name}: unpacks to more than {_MOST_BYTES >> 30} GiB; save the sheet as CSV instead"
                    )

    def _inflate(self, part: str) -> Iterator[bytes]:
        info = self._infos.get(part.casefold())
        if info is None:
            raise ValueError(f"it has no {part}")
        inflater = zlib.decompressobj(-15)
        is_packed = info.compress_type == zipfile.ZIP_DEFLATED
        if not is_packed and info.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{part} is packed in a way that workbooks are not")
        try:
            for packed in self._read_packed(info):
                while packed:
                    piece = inflater.decompress(packed, _MOST_PIECE) if is_packed else packed
                    packed = inflater.unconsumed_tail if is_packed else b""
                    yield piece
        except zlib.error as error:
            raise ValueError(f"{part}: {error}") from None

    def _read_packed(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        self._file.seek(info.header_offset)
        header = self._file.read(_LOCAL_HEADER)
        lengths = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
        self._file.seek(sum(lengths), 1)
        left = info.compress_size
        while left > 0 and (piece := self._file.read(min(left, _READ_BYTES))):
            left -= len(piece)
            yield piece

    def _refuse_entity(self, *_: object) -> None:
        raise ValueError("its XML declares entities, as no workbook does")
