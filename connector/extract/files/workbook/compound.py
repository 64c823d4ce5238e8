"""A stream out of a compound file, the little file system that an .xls is."""

from collections.abc import Iterator, Sequence
from typing import BinaryIO

_HEADER_BYTES = 512
_LAST_SECTOR = 0xFFFFFFFA  # above it are marks: end of a chain, free, and sectors of the tables themselves
_ENTRY_BYTES = 128
_SMALLEST = 4096  # bytes of a stream of its own; Excel never writes a shorter workbook


def read_stream(file: BinaryIO, names: Sequence[str]) -> bytes | None:
    """The stream that has one of these names, None if there is none. Raises ValueError for a damaged file."""
    file.seek(0)
    content = file.read()  # sheets of 65,536 rows: tens of megabytes at most, which the library holds as well
    size = 1 << int.from_bytes(content[0x1E:0x20], "little")
    if len(content) < _HEADER_BYTES or size not in (512, 4096):
        raise ValueError("its header is damaged")
    table = _read_table(content, size)
    for entry in _split(_join(content, size, table, _number(content, 0x30)), _ENTRY_BYTES):
        name = entry[: max(int.from_bytes(entry[64:66], "little") - 2, 0)].decode("utf-16-le", "replace")
        length = _number(entry, 120)
        if name in names and length >= _SMALLEST:
            return _join(content, size, table, _number(entry, 116))[:length]
    return None


def _read_table(content: bytes, size: int) -> Sequence[int]:
    """The number of the sector that follows each; the header says where 109 parts of it are, a chain the others."""
    parts = list(_numbers(content[0x4C:_HEADER_BYTES]))
    more, seen = _number(content, 0x44), 0
    while more < _LAST_SECTOR and seen * size < len(content):
        *others, more = _numbers(_take(content, size, more))
        parts += others
        seen += 1
    return _numbers(b"".join(_take(content, size, part) for part in parts if part < _LAST_SECTOR))


def _join(content: bytes, size: int, table: Sequence[int], first: int) -> bytes:
    pieces: list[bytes] = []
    at = first
    while at < _LAST_SECTOR:
        if at >= len(table) or len(pieces) > len(table):
            raise ValueError("a chain of its sectors is damaged")
        pieces.append(_take(content, size, at))
        at = table[at]
    return b"".join(pieces)


def _take(content: bytes, size: int, sector: int) -> bytes:
    return content[(sector + 1) * size : (sector + 2) * size]


def _split(content: bytes, size: int) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


def _number(content: bytes, at: int) -> int:
    return int.from_bytes(content[at : at + 4], "little")


def _numbers(content: bytes) -> Sequence[int]:
    return [_number(content, at) for at in range(0, len(content) - 3, 4)]
