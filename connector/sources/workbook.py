"""Reads a sheet of a workbook (.xlsx, .xls) as a source by python-calamine. Rows have the row numbers of the sheet.

calamine allocates memory for each cell between the first and the last, and crashes the process without enough memory.
It returns an error (`#N/A`) as an empty cell, and a formula without a computed value as an empty cell or 0. So the XML
of the sheet is scanned for the three problems before calamine loads the sheet.
"""

import posixpath
import re
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa

from connector.errors import SourceError
from connector.rows import Chunk, CloseableResource, MalformedRow, Source
from connector.sheet_file import name_column
from connector.sources.cell_text import CHUNK_ROWS, build_frame, build_texts, show_record, write_text
from connector.sources.header_row import count_filled, find_titles, looks_like_row, name_columns
from connector.sources.inputs import Input
from connector.texts import agree, count

if TYPE_CHECKING:
    from python_calamine import CalamineSheet, CalamineWorkbook

Row = tuple[int, list[object]]
"""The number of a row in its sheet (from 1), and the cells of the row."""

_HEAD_ROWS = 200  # enough to recognise titles above the header, as in a CSV
_MAX_CELLS = 12_000_000  # a cell takes about 100 bytes (measured): 1.2 GB, and a million rows of twelve columns
_MAX_BYTES = 1 << 31  # unpacked; a full sheet of a million rows and ten columns is 600 MB of XML
_READ_BYTES = 1 << 20
_STRINGS = "xl/sharedStrings.xml"

_FAULTS = (OSError, KeyError, RuntimeError, ElementTree.ParseError, zipfile.BadZipFile, zlib.error)

_XLSX_TAG = re.compile(
    rb"<(?:\w+:)?(row|c)(?=[\s/>])([^>]*)>"
    rb"(?P<formula><(?:\w+:)?f\b(?:[^>]*/>|[^>]*>[^<]*</(?:\w+:)?f>)(?:<(?:\w+:)?v\s*>(?P<value>[^<]*)<)?)?"
)
_CELL_ENDS = (b"</c>", b":c>", b"</row>", b":row>")
_XLSX_NAME = re.compile(rb"""\br=["'](?P<column>[A-Z]{0,3})(?P<row>\d+)["']""")
_XLSX_HIDDEN = re.compile(rb"""\bhidden=["'](?:1|true)["']""")
_XLSX_ERROR = re.compile(rb"""\bt=["']e["']""")
_XLS_ERROR = re.compile(  # in BIFF8, a cell that is an error, and a formula whose result is one; in any of its sheets
    rb"\x05\x02\x08\x00.{6}[\x00\x07\x0f\x17\x1d\x24\x2a]\x01|\x06\x00..[^\xff].{5}\x02.[\x00\x07\x0f\x17\x1d\x24\x2a].{3}\xff\xff",
    re.DOTALL,
)
_PROTECTED = re.compile(  # an encrypted .xlsx, and an .xls whose second record marks all others as encrypted
    "EncryptedPackage".encode("utf-16-le") + rb"|\x09\x08\x10\x00.{16}(?:\x86\x00\x00\x00)?\x2f\x00", re.DOTALL
)


class WorkbookSource(CloseableResource):
    """A sheet, opened by `open_workbook`."""

    def __init__(
        self, source_input: Input, sheet: "CalamineSheet", errors: Mapping[int, Mapping[int, str]], hidden_count: int
    ) -> None:
        """`errors` has the problems of cells without a value, by row number and column (from 1). `hidden_count` is the
        number of rows that a filter or a person has hidden."""
        self.name, self._input, self._sheet, self._errors = source_input.name, source_input, sheet, errors
        where = f"{self.name}, sheet {sheet.name}"
        head = list(islice(filter(_is_filled, _read_rows(sheet)), _HEAD_ROWS))
        if not head:
            raise SourceError(f"{where}: is empty; its first row must name the columns")
        titles, texts = 0, [[write_text(_plain(cell)) for cell in cells] for _, cells in head]
        if sum(count_filled(cells) > 1 for cells in texts) > len(texts) / 2:  # most rows have several cells
            titles = find_titles(texts)
            if any(number in errors for number, _ in head[: titles + 1]):
                titles = 0
        messages = [f"{where}: titles above its header were left out (rows: {titles})"] if titles else []
        if hidden_count:
            messages.append(
                f"{where}: {count(hidden_count, 'hidden row')} {agree(hidden_count, 'is', 'are')} used like the "
                "others. To leave hidden rows out, copy the visible rows to a new sheet"
            )
        self._messages = tuple(messages)
        self._header, cells = head[titles]
        if self._header in errors:
            problem = next(iter(errors[self._header].values()))
            raise SourceError(f"{where}: its header cannot be used: {problem}")
        filled = [index for index, cell in enumerate(cells) if cell != ""]
        self._span = slice(filled[0], filled[-1] + 1)  # cells beside the header belong to no column
        names = [write_text(cell) for cell in cells[self._span]]
        if looks_like_row(names):
            raise SourceError(
                f"{where}: has no header: its first row looks like a subscriber's. Put a row with the columns' names "
                "first"
            )
        self.columns = name_columns(names)

    def chunks(self, used: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`. A cell with an error (#N/A) is not text."""
        below = (row for row in _read_rows(self._sheet) if row[0] > self._header)
        filled = (row for row in below if row[0] in self._errors or _is_filled(row))
        messages, last = self._messages, (self._sheet.end or (self._header, 0))[0] + 1
        while rows := list(islice(filled, CHUNK_ROWS)):
            share = (rows[-1][0] - self._header) / max(last - self._header, 1)
            yield replace(self._build_chunk(rows, used), messages=messages, share=share)
            messages = ()

    def close(self) -> None:
        """Release the workbook; may be called more than once."""
        self._input.close()

    def _build_chunk(self, rows: Sequence[Row], used: Collection[str] | None) -> Chunk:
        width = len(self.columns)
        malformed, good = [], []
        for number, cells in rows:
            if (problem := self._find_error(number, used)) is not None:
                fault = ("error_cell", f"row {number}: {problem}")
            elif any(cell != "" for cell in [*cells[: self._span.start], *cells[self._span.stop :]]):
                fault = ("ragged", f"row {number}: has a cell outside the columns that the header names")
            else:
                good.append((number, cells[self._span]))
                continue
            names = [f"column {column}" for column in range(1, len(cells) + 1)]
            names[self._span] = self.columns[: len(names[self._span])]
            raw = show_record(names, [_plain(cell) for cell in cells])
            malformed.append(MalformedRow(number, None, raw, *fault))
        columns = list(zip(*(cells for _, cells in good), strict=True)) or [()] * width
        columns += [("",) * len(good)] * (width - len(columns))  # columns of the header without cells
        texts = [build_texts([_plain(cell) for cell in cells])[0] for cells in columns]
        frame = build_frame(pa.table(texts, names=list(self.columns)))
        numbers = np.array([number for number, _ in good], dtype=np.int64)
        number_counts = {
            name: sum(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells)
            for name, cells in zip(self.columns, columns, strict=True)
        }
        number_cells = {name: number for name, number in number_counts.items() if number}
        return Chunk(frame, numbers, tuple(malformed), self.name, number_cells=number_cells)

    def _find_error(self, number: int, used: Collection[str] | None) -> str | None:
        """Return the problem of the first cell of the row without a value in a `used` column (None: in any), or
        None."""
        for column, problem in self._errors.get(number, {}).items():
            index = column - 1 - self._span.start
            if used is None or not 0 <= index < len(self.columns) or self.columns[index] in used:
                return problem
        return None


def open_workbook(source_input: Input, sheet: str | None) -> Source:
    """Open a sheet by its name, or by its number from 1. Without either, open the first visible sheet.

    The first filled row names the columns, after titles of a single cell. Empty rows are skipped. Whole numbers have no
    `.0`, numbers have no exponent, dates are ISO dates, booleans are true and false. A row with an error (#N/A) is
    malformed, and an .xls with an error is refused. Raises SourceError, also for an OpenDocument spreadsheet (.ods) and
    for a workbook that is damaged or too large.
    """
    import python_calamine  # here: most files are not workbooks

    name, file = source_input.name, source_input.file
    try:
        is_xlsx = zipfile.is_zipfile(file)
        file.seek(0)
        if is_xlsx:
            _refuse_archive(file, name)
        elif _PROTECTED.search(file.read()):  # the library checks that only for a path
            raise SourceError(f"{name}: is protected by a password; save it without one")  # noqa: TRY301
        file.seek(0)
        workbook = python_calamine.load_workbook(file)
        chosen = _choose_sheet(workbook, sheet, name)
        file.seek(0)
        if not is_xlsx and _XLS_ERROR.search(file.read()):
            raise SourceError(  # noqa: TRY301 - not an error of the library
                f"{name}: holds an error, such as #N/A, in a cell; save it as .xlsx, whose errors are named"
            )
        errors, hidden_count = _find_errors(file, chosen, name) if is_xlsx else ({}, 0)
        return WorkbookSource(source_input, workbook.get_sheet_by_name(chosen), errors, hidden_count)
    except (python_calamine.CalamineError, *_FAULTS) as error:
        raise SourceError(f"{name}: is not a workbook that can be read ({error}); save it again") from None
    except BaseException as error:
        if (
            type(error).__name__ != "PanicException"
        ):  # an exception of the library for a damaged .xls; no module exports its class
            raise
        raise SourceError(f"{name}: is a workbook that is damaged; save it again") from None


def _refuse_archive(file: BinaryIO, name: str) -> None:
    """Raise SourceError for an OpenDocument file, and for a workbook that is too large by its zip directory."""
    with zipfile.ZipFile(file) as archive:
        if "content.xml" in archive.namelist():
            raise SourceError(
                f"{name}: is an OpenDocument file (.ods), which is not read; open it in LibreOffice, choose File > "
                "Save As, and save it as .xlsx or as CSV"
            )
        if sum(info.file_size for info in archive.infolist()) > _MAX_BYTES:
            raise SourceError(f"{name}: unpacks to more than {_MAX_BYTES >> 30} GiB; save the sheet as CSV instead")
        if _STRINGS in archive.namelist():  # unpacked completely: the checksum shows a false size
            with archive.open(_STRINGS) as strings:
                while strings.read(_READ_BYTES):
                    pass


def _find_errors(file: BinaryIO, sheet: str, name: str) -> tuple[dict[int, dict[int, str]], int]:
    """Return the problems of cells in an .xlsx sheet without a value, by row number and column (from 1): errors, and
    formulas without a computed value. Also return the number of hidden rows. Raises SourceError for a sheet that is too
    large.

    A program that does not compute its formulas requests a computation when the workbook is opened, and writes no value
    or a 0 for each formula.

    Raises KeyError if the workbook does not name the part of the archive with the sheet.
    """
    errors: dict[int, dict[int, str]] = {}
    row = column = last_row = last_column = hidden_count = 0
    columns: dict[bytes, int] = {}
    with zipfile.ZipFile(file) as archive:
        book = ElementTree.fromstring(archive.read("xl/workbook.xml"))  # noqa: S314 - expat bounds entities since 2.4
        links = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))  # noqa: S314
        ids = {
            tag.get("name"): value
            for tag in book.iter()
            for key, value in tag.items()
            if tag.tag.endswith("}sheet") and key.endswith("}id")
        }
        is_uncomputed = any(
            tag.get("fullCalcOnLoad") in ("1", "true") for tag in book.iter() if tag.tag.endswith("}calcPr")
        )
        target = {link.get("Id"): link.get("Target", "") for link in links}[ids[sheet]]
        part = target.lstrip("/") if target.startswith("/") else posixpath.normpath(posixpath.join("xl", target))
        for tag in _find_tags(archive, part, _XLSX_TAG):
            found = _XLSX_NAME.search(tag[2])
            if tag[1] == b"row":
                row, column = int(found["row"]) if found else row + 1, 0
                hidden_count += bool(_XLSX_HIDDEN.search(tag[2])) and not tag[2].endswith(b"/")
                continue
            column += 1
            if found:
                row, letters = int(found["row"]), found["column"]
                if letters not in columns:
                    columns[letters] = reduce(lambda number, letter: number * 26 + letter - 64, letters, 0)
                column = columns[letters]
            if not tag[2].endswith(b"/"):  # a cell with only a format is empty
                last_row, last_column = max(last_row, row), max(last_column, column)
                cell = _name_cell(row, column)
                if _XLSX_ERROR.search(tag[2]):
                    problem = f"the cell {cell} holds an error, such as #N/A; correct it in the workbook"
                    errors.setdefault(row, {})[column] = problem
                elif tag["formula"] and (tag["value"] is None or (is_uncomputed and tag["value"] in (b"", b"0"))):
                    problem = (
                        f"the cell {cell} holds a formula that was never computed; open the workbook in a spreadsheet "
                        "program, and save it"
                    )
                    errors.setdefault(row, {})[column] = problem
    if last_row * last_column > _MAX_CELLS:
        raise SourceError(
            f"{name}: the sheet {sheet} spans {last_row * last_column:,} cells, down to "
            f"{_name_cell(last_row, last_column)}, and {_MAX_CELLS:,} are the most that is read: clear the "
            "cells far from the rest, or save it as CSV"
        )
    return errors, hidden_count


def _find_tags(archive: zipfile.ZipFile, part: str, pattern: re.Pattern[bytes]) -> Iterator[re.Match[bytes]]:
    """Yield the tags of a part of the archive. The part is searched in pieces that end after a cell or a row."""
    remaining = b""
    with archive.open(part) as stream:
        while piece := stream.read(_READ_BYTES):
            text = remaining + piece
            ends = [text.rfind(sign) + len(sign) for sign in _CELL_ENDS if sign in text]
            end = max(ends, default=text.rfind(b">") + 1)
            yield from pattern.finditer(text, 0, end)
            remaining = text[end:]


def _name_cell(row: int, column: int) -> str:
    """Return the name of a cell by its row and column (from 1): (4, 28) is AB4."""
    return f"{name_column(column - 1)}{row}"


def _choose_sheet(workbook: "CalamineWorkbook", sheet: str | None, name: str) -> str:
    from python_calamine import SheetTypeEnum, SheetVisibleEnum

    sheets = workbook.sheets_metadata
    names = [metadata.name for metadata in sheets]
    if sheet is None:
        visible = [
            metadata.name
            for metadata in sheets
            if metadata.typ == SheetTypeEnum.WorkSheet and metadata.visible == SheetVisibleEnum.Visible
        ]
        chosen = next(iter(visible or names), None)
    elif sheet in names:
        chosen = sheet
    else:
        chosen = names[int(sheet) - 1] if sheet.isdecimal() and 0 < int(sheet) <= len(names) else None
    if chosen is None:
        existing = f"its sheets: {', '.join(names)}" if names else "it has none"
        raise SourceError(f"{name}: has no sheet {sheet or ''}; {existing}")
    return chosen


def _read_rows(sheet: "CalamineSheet") -> Iterator[Row]:
    """Yield each row, also empty rows at the beginning. The library leaves out empty columns before the first cell."""
    omitted_columns = sheet.start[1] if sheet.start else 0
    for number, cells in enumerate(sheet.iter_rows(), start=1):
        yield number, [*[""] * omitted_columns, *cells]


def _is_filled(row: Row) -> bool:
    return any(cell != "" for cell in row[1])


def _plain(cell: object) -> object:
    """Return a duration as a sheet shows it (30:00:00), and any other cell unchanged."""
    if not isinstance(cell, timedelta):
        return cell
    seconds = round(cell.total_seconds())
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
