"""A sheet of an .xls walked for the places of its cells and its errors; the values are the library's to read."""

from collections.abc import Iterator
from struct import Struct
from typing import BinaryIO

from connector.extract.files.workbook.area import Area
from connector.extract.files.workbook.compound import read_stream

_STREAMS = ("Workbook", "Book")
_HEAD, _PLACE = Struct("<HH"), Struct("<HH")  # kind and length of a record; row and column of a cell

_BEGIN, _END = (0x0009, 0x0209, 0x0409, 0x0809), 0x000A
_SHEET, _FORMULA, _BOOLEAN_OR_ERROR, _SEVERAL_NUMBERS = 0x0085, 0x0006, 0x0205, 0x00BD
_CELLS = (_FORMULA, _BOOLEAN_OR_ERROR, _SEVERAL_NUMBERS, 0x00FD, 0x00D6, 0x0203, 0x0204, 0x027E)
_ERRORS = {0x00: "#NULL!", 0x07: "#DIV/0!", 0x0F: "#VALUE!", 0x17: "#REF!", 0x1D: "#NAME?", 0x24: "#NUM!", 0x2A: "#N/A"}

Record = tuple[int, bytes]


def scan_xls(file: BinaryIO, sheet: str) -> Area:
    """What the sheet of this name spans. Raises ValueError for a workbook that does not say where it is."""
    stream = read_stream(file, _STREAMS)
    if stream is None:
        raise ValueError("it holds no workbook")
    start = next((at for name, at in _find_sheets(stream) if name == sheet), None)
    if start is None:
        raise ValueError(f"it does not say where the sheet {sheet} is")
    area = Area()
    for kind, body in _read_records(stream, start):
        if kind in _CELLS:
            _add(area, kind, body)
    return area


def _find_sheets(stream: bytes) -> Iterator[tuple[str, int]]:
    """The sheets' names, and where in the stream each begins."""
    for kind, body in _read_records(stream, 0):
        if kind == _SHEET:
            is_wide = len(body) > 7 and body[7] == 1
            yield body[8:].decode("utf-16-le" if is_wide else "latin-1", "replace"), int.from_bytes(body[:4], "little")


def _read_records(stream: bytes, at: int) -> Iterator[Record]:
    """The records from one's beginning to its end; what is within another, such as a chart, is passed over."""
    depth = 0
    while at + _HEAD.size <= len(stream):
        kind, length = _HEAD.unpack_from(stream, at)
        body = stream[at + _HEAD.size : at + _HEAD.size + length]
        at += _HEAD.size + length
        depth += (kind in _BEGIN) - (kind == _END)
        if depth == 0:
            return
        if depth == 1 and len(body) >= _PLACE.size:
            yield kind, body


def _add(area: Area, kind: int, body: bytes) -> None:
    row, column = _PLACE.unpack_from(body)
    area.add(row, column)
    if kind == _SEVERAL_NUMBERS:
        area.add(row, int.from_bytes(body[-2:], "little"))
    elif kind == _BOOLEAN_OR_ERROR and body[7:8] == b"\x01":
        area.add_error(row, column, _ERRORS.get(body[6], ""))
    elif kind == _FORMULA and body[12:14] == b"\xff\xff" and body[6] == 2:
        area.add_error(row, column, _ERRORS.get(body[8], ""))
