"""A sheet of a workbook (.xlsx, .xls) as a source, by python-calamine; rows have the sheet's own numbers.

calamine keeps a place for each cell between the first and the last, and ends the process when memory does not hold
them; and it gives an error (`#N/A`) as an empty cell. So the sheet's XML is scanned for both before it is loaded.
"""

import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa

from connector.errors import SourceError
from connector.rows import Chunk, Closing, MalformedRow, Source
from connector.sources.cell_text import CHUNK_ROWS, build_frame, build_texts, show_record, write_text
from connector.sources.header_row import count_filled, find_titles, looks_like_row, name_columns
from connector.sources.inputs import Input

if TYPE_CHECKING:
    from python_calamine import CalamineSheet, CalamineWorkbook

Row = tuple[int, list[object]]
"""The number of a sheet's row, from 1, and its cells."""

_HEAD_ROWS = 200  # titles above the header are recognised by these, as in a CSV
_MOST_CELLS = 12_000_000  # a cell takes about 100 bytes (measured): 1.2 GB, and a million rows of twelve columns
_MOST_BYTES = 1 << 31  # unpacked; a full sheet of a million rows and ten columns is 600 MB of XML
_READ_BYTES = 1 << 20

_FAULTS = (OSError, KeyError, RuntimeError, ElementTree.ParseError, zipfile.BadZipFile, zlib.error)

_XLSX_TAG = re.compile(rb"<(?:\w+:)?(row|c)(?=[\s/>])([^>]*)>")
_XLSX_NAME = re.compile(rb"""\br=["'](?P<column>[A-Z]{0,3})(?P<row>\d+)["']""")
_XLSX_ERROR = re.compile(rb"""\bt=["']e["']""")
_XLS_ERROR = re.compile(  # in BIFF8, a cell that is an error, and a formula whose result is one; in any of its sheets
    rb"\x05\x02\x08\x00.{6}[\x00\x07\x0f\x17\x1d\x24\x2a]\x01|\x06\x00..[^\xff].{5}\x02.[\x00\x07\x0f\x17\x1d\x24\x2a].{3}\xff\xff",
    re.DOTALL,
)


class WorkbookSource(Closing):
    """One sheet, opened by `open_workbook`."""

    def __init__(self, source_input: Input, sheet: "CalamineSheet", errors: Mapping[int, str]) -> None:
        """`errors` says by row number which cell of that row holds an error."""
        self.name, self._input, self._sheet, self._errors = source_input.name, source_input, sheet, errors
        where = f"{self.name}, sheet {sheet.name}"
        head = list(islice(filter(_is_filled, _read_rows(sheet)), _HEAD_ROWS))
        if not head:
            raise SourceError(f"{where}: is empty; its first row must name the columns")
        titles = self._count_titles(head)
        self._messages = (f"{where}: titles above its header were left out (rows: {titles})",) if titles else ()
        self._header, cells = head[titles]
        if self._header in errors:
            raise SourceError(f"{where}: its header cannot be used: {errors[self._header]}")
        filled = [index for index, cell in enumerate(cells) if cell != ""]
        self._span = slice(filled[0], filled[-1] + 1)  # cells beside the header belong to no column
        names = [write_text(cell) for cell in cells[self._span]]
        if looks_like_row(names):
            raise SourceError(
                f"{where}: has no header: its first row looks like a subscriber's. Put a row with the columns' names "
                "first"
            )
        self.columns = name_columns(names)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order, from the first; none for a sheet with a header only."""
        below = (row for row in _read_rows(self._sheet) if row[0] > self._header)
        filled = (row for row in below if row[0] in self._errors or _is_filled(row))
        messages, last = self._messages, (self._sheet.end or (self._header, 0))[0] + 1
        while rows := list(islice(filled, CHUNK_ROWS)):
            share = (rows[-1][0] - self._header) / max(last - self._header, 1)
            yield replace(self._build_chunk(rows), messages=messages, share=share)
            messages = ()

    def close(self) -> None:
        """Release the workbook; may be called more than once."""
        self._input.close()

    def _count_titles(self, head: Sequence[Row]) -> int:
        """Return how many of the first rows are titles, where most rows have several cells; 0 if there is an error in
        one."""
        texts = [[write_text(_plain(cell)) for cell in cells] for _, cells in head]
        if sum(count_filled(cells) > 1 for cells in texts) <= len(texts) / 2:
            return 0
        titles = find_titles(texts)
        return 0 if any(number in self._errors for number, _ in head[: titles + 1]) else titles

    def _build_chunk(self, rows: Sequence[Row]) -> Chunk:
        width = len(self.columns)
        faults = {number: fault for number, cells in rows if (fault := self._find_fault(number, cells)) is not None}
        malformed = tuple(
            MalformedRow(number, None, show_record(*self._show(cells)), *faults[number])
            for number, cells in rows
            if number in faults
        )
        good = [(number, cells[self._span]) for number, cells in rows if number not in faults]
        columns = list(zip(*(cells for _, cells in good), strict=True)) or [()] * width
        columns += [("",) * len(good)] * (width - len(columns))  # a column of the header with no cell at all
        texts = [build_texts([_plain(cell) for cell in cells])[0] for cells in columns]
        frame = build_frame(pa.table(texts, names=list(self.columns)))
        numbers = np.array([number for number, _ in good], dtype=np.int64)
        counts = {name: sum(map(_is_number, cells)) for name, cells in zip(self.columns, columns, strict=True)}
        number_cells = {name: count for name, count in counts.items() if count}
        return Chunk(frame, numbers, malformed, self.name, number_cells=number_cells)

    def _find_fault(self, number: int, cells: Sequence[object]) -> tuple[str, str] | None:
        if number in self._errors:
            return "error_cell", f"row {number}: {self._errors[number]}; correct it in the workbook"
        if any(cell != "" for cell in [*cells[: self._span.start], *cells[self._span.stop :]]):
            return "ragged", f"row {number}: has a cell outside the columns that the header names"
        return None

    def _show(self, cells: Sequence[object]) -> tuple[Sequence[str], Sequence[object]]:
        names = [f"column {place}" for place in range(1, len(cells) + 1)]
        names[self._span] = self.columns[: len(names[self._span])]
        return names, [_plain(cell) for cell in cells]


def open_workbook(source_input: Input, sheet: str | None) -> Source:
    """Open a sheet by its name, or by its number from 1; the first that is not hidden when none is given.

    The first row with anything in it names the columns, titles of a single cell above it apart; empty rows are no
    rows. Whole numbers come without `.0`, none with an exponent, dates as ISO dates, booleans as true and false, texts
    as they are. A row with an error (#N/A) in it comes as malformed; an .xls with an error anywhere is refused. Raises
    SourceError, also for an OpenDocument spreadsheet (.ods) and for a workbook that is damaged or too large.
    """
    import python_calamine  # here: most files are no workbooks

    name, file = source_input.name, source_input.file
    try:
        _refuse_open_document(file, name)
        _refuse_large(file, name)
        file.seek(0)
        workbook = python_calamine.load_workbook(file)
        chosen = _choose_sheet(workbook, sheet, name)
        extent = _scan(file, chosen, name)
        _refuse_wide(extent, name, chosen)
        return WorkbookSource(source_input, workbook.get_sheet_by_name(chosen), extent.errors)
    except python_calamine.PasswordError:
        raise SourceError(f"{name}: is protected by a password; save it without one") from None
    except (python_calamine.CalamineError, *_FAULTS) as error:
        raise SourceError(f"{name}: is no workbook that can be read ({error}); save it again") from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the library's own, on a damaged .xls; no module exports it
            raise
        raise SourceError(f"{name}: is a workbook that is damaged; save it again") from None


@dataclass(slots=True)
class _Extent:
    """How far a sheet reaches (rows and columns from 1), and by row number which cell holds an error."""

    rows: int = 0
    columns: int = 0
    errors: dict[int, str] = field(default_factory=dict)

    def add(self, row: int, column: int, *, is_error: bool) -> None:
        self.rows, self.columns = max(self.rows, row), max(self.columns, column)
        if is_error:
            self.errors.setdefault(row, f"the cell {_name_cell(row, column)} holds an error, such as #N/A")


def _refuse_large(file: BinaryIO, name: str) -> None:
    """Refuse a workbook by the sizes in its zip directory."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            if sum(info.file_size for info in archive.infolist()) > _MOST_BYTES:
                raise SourceError(
                    f"{name}: unpacks to more than {_MOST_BYTES >> 30} GiB; save the sheet as CSV instead"
                )


def _refuse_wide(extent: _Extent, name: str, sheet: str) -> None:
    if extent.rows * extent.columns > _MOST_CELLS:
        raise SourceError(
            f"{name}: the sheet {sheet} spans {extent.rows * extent.columns:,} cells, down to "
            f"{_name_cell(extent.rows, extent.columns)}, and {_MOST_CELLS:,} are the most that is read: clear the "
            "cells far from the rest, or save it as CSV"
        )


def _refuse_open_document(file: BinaryIO, name: str) -> None:
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            if "content.xml" in archive.namelist():
                raise SourceError(
                    f"{name}: is an OpenDocument file (.ods), which is not read; open it in LibreOffice, choose File > "
                    "Save As, and save it as .xlsx or as CSV"
                )


def _scan(file: BinaryIO, sheet: str, name: str) -> _Extent:
    """The extent of a sheet of an .xlsx; of an .xls (65,536 rows at most) nothing, but for an error in it."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            return _scan_xlsx(archive, _find_part(archive, sheet))
    file.seek(0)
    if _XLS_ERROR.search(file.read()):
        raise SourceError(f"{name}: holds an error, such as #N/A, in a cell; save it as .xlsx, whose errors are named")
    return _Extent()


def _find_part(archive: zipfile.ZipFile, sheet: str) -> str:
    """The part of an .xlsx that a sheet is in. Raises KeyError if it does not say."""
    book = ElementTree.fromstring(archive.read("xl/workbook.xml"))  # noqa: S314 - expat bounds entities since 2.4
    links = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))  # noqa: S314
    ids = {
        each.get("name"): value
        for each in book.iter()
        for key, value in each.items()
        if each.tag.endswith("}sheet") and key.endswith("}id")
    }
    targets = {each.get("Id"): each.get("Target", "") for each in links}
    target = targets[ids[sheet]]
    return target.lstrip("/") if target.startswith("/") else posixpath.normpath(posixpath.join("xl", target))


def _scan_xlsx(archive: zipfile.ZipFile, part: str) -> _Extent:
    extent, row, column = _Extent(), 0, 0
    columns: dict[bytes, int] = {}
    for tag in _find_tags(archive, part, _XLSX_TAG):
        found = _XLSX_NAME.search(tag[2])
        if tag[1] == b"row":
            row, column = int(found["row"]) if found else row + 1, 0
            continue
        column += 1
        if found:
            row, letters = int(found["row"]), found["column"]
            if letters not in columns:
                columns[letters] = _number_column(letters.decode())
            column = columns[letters]
        if not tag[2].endswith(b"/"):  # a cell that is only formatted holds nothing
            extent.add(row, column, is_error=_XLSX_ERROR.search(tag[2]) is not None)
    return extent


def _find_tags(archive: zipfile.ZipFile, part: str, pattern: re.Pattern[bytes]) -> Iterator[re.Match[bytes]]:
    """The tags of a part, piece by piece; a piece ends where a tag does."""
    rest = b""
    with archive.open(part) as stream:
        while piece := stream.read(_READ_BYTES):
            text, end, rest_after = (rest + piece).rpartition(b">")
            yield from pattern.finditer(text + end)
            rest = rest_after


def _name_cell(row: int, column: int) -> str:
    """The name of a cell by its place (from 1): (4, 28) is AB4."""
    letters = ""
    while column:
        column, letter = divmod(column - 1, 26)
        letters = chr(65 + letter) + letters
    return f"{letters}{row}"


def _number_column(letters: str) -> int:
    """The number of a column (from 1) by its letters: AB is 28."""
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number


def _choose_sheet(workbook: "CalamineWorkbook", sheet: str | None, name: str) -> str:
    from python_calamine import SheetTypeEnum, SheetVisibleEnum

    sheets = workbook.sheets_metadata
    names = [each.name for each in sheets]
    if sheet is None:
        shown = [
            each.name
            for each in sheets
            if each.typ == SheetTypeEnum.WorkSheet and each.visible == SheetVisibleEnum.Visible
        ]
        found = next(iter(shown or names), None)
    elif sheet in names:
        found = sheet
    else:
        found = names[int(sheet) - 1] if sheet.isdecimal() and 0 < int(sheet) <= len(names) else None
    if found is None:
        there_are = f"its sheets: {', '.join(names)}" if names else "it has none"
        raise SourceError(f"{name}: has no sheet {sheet or ''}; {there_are}")
    return found


def _read_rows(sheet: "CalamineSheet") -> Iterator[Row]:
    """Every row, the empty ones above the first cell included; the library leaves out the empty columns before it."""
    left = sheet.start[1] if sheet.start else 0
    for number, cells in enumerate(sheet.iter_rows(), start=1):
        yield number, [*[""] * left, *cells]


def _is_filled(row: Row) -> bool:
    return any(cell != "" for cell in row[1])


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _plain(cell: object) -> object:
    """A duration as a sheet shows it, 30:00:00; all else has a text already."""
    if not isinstance(cell, timedelta):
        return cell
    seconds = round(cell.total_seconds())
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
