"""Reads a sheet of a workbook (.xlsx, .xls) as a source by python-calamine. Rows have the row numbers of the sheet.

calamine has three problems. calamine allocates memory for each cell between the first cell and the last cell, and
crashes the process if the memory is not enough. calamine returns an error (`#N/A`) as an empty cell, and a formula
without a computed value as an empty cell or 0. So the XML of the sheet is searched for these problems before calamine
loads the sheet.
"""

import posixpath
import re
import zipfile
import zlib
from collections import Counter
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
from connector.sheet_file import format_column_letters
from connector.sources.cell_text import CHUNK_ROWS, build_frame, build_texts, format_record, format_value
from connector.sources.header_row import build_column_names, count_filled_cells, count_title_rows, looks_like_row
from connector.sources.inputs import Input
from connector.texts import choose_form, count

if TYPE_CHECKING:
    from python_calamine import CalamineSheet, CalamineWorkbook

Row = tuple[int, list[object]]
"""The number of a row in its sheet (from 1), and the cells of the row."""

_HEAD_ROWS = 200  # enough rows to recognise titles above the header
_MAX_CELLS = 12_000_000  # a million rows of twelve columns; a cell takes about 100 bytes (measured), so 1.2 GB
_MAX_BYTES = 1 << 31  # largest size of the unpacked XML; a sheet of a million rows and ten columns has 600 MB
_READ_BYTES = 1 << 20
_SHARED_STRINGS_PART = "xl/sharedStrings.xml"

_READ_ERRORS = (OSError, KeyError, RuntimeError, ElementTree.ParseError, zipfile.BadZipFile, zlib.error)

_XLSX_TAG_PATTERN = re.compile(
    rb"<(?:\w+:)?(row|c)(?=[\s/>])([^>]*)>"
    rb"(?P<formula><(?:\w+:)?f\b(?:[^>]*/>|[^>]*>[^<]*</(?:\w+:)?f>)(?:<(?:\w+:)?v\s*>(?P<value>[^<]*)<)?)?"
)
_CELL_ENDS = (b"</c>", b":c>", b"</row>", b":row>")
_XLSX_CELL_NAME_PATTERN = re.compile(rb"""\br=["'](?P<column>[A-Z]{0,3})(?P<row>\d+)["']""")
_XLSX_HIDDEN_PATTERN = re.compile(rb"""\bhidden=["'](?:1|true)["']""")
_XLSX_ERROR_PATTERN = re.compile(rb"""\bt=["']e["']""")
_XLS_ERROR_PATTERN = re.compile(  # a cell of a BIFF8 file with an error, or with a formula whose result is an error
    rb"\x05\x02\x08\x00.{6}[\x00\x07\x0f\x17\x1d\x24\x2a]\x01|\x06\x00..[^\xff].{5}\x02.[\x00\x07\x0f\x17\x1d\x24\x2a].{3}\xff\xff",
    re.DOTALL,
)
_PASSWORD_PATTERN = re.compile(  # an encrypted .xlsx, or an .xls whose second record says that the file is encrypted
    "EncryptedPackage".encode("utf-16-le") + rb"|\x09\x08\x10\x00.{16}(?:\x86\x00\x00\x00)?\x2f\x00", re.DOTALL
)


class WorkbookSource(CloseableResource):
    """A sheet, opened by `open_workbook`."""

    def __init__(
        self,
        source_input: Input,
        sheet: "CalamineSheet",
        cell_problems: Mapping[int, Mapping[int, str]],
        hidden_row_count: int,
        unread_sheets: Sequence[str],
    ) -> None:
        """`cell_problems` has a message for each cell whose value is not known, by row number and column (from 1).
        `hidden_row_count` is the number of rows that a filter or a person has hidden. `unread_sheets` are the other
        visible sheets, if no sheet was selected."""
        self.name, self._input, self._sheet, self._cell_problems = source_input.name, source_input, sheet, cell_problems
        location = f"{self.name}, sheet {sheet.name}"
        first_rows = list(islice(filter(_is_filled, _read_rows(sheet)), _HEAD_ROWS))
        if not first_rows:
            raise SourceError(f"{location}: is empty; its first row must name the columns")
        title_row_count, rows = 0, [[format_value(_format_duration(cell)) for cell in cells] for _, cells in first_rows]
        # Titles are recognised only if most rows have more than one filled cell.
        wide_row_count = sum(count_filled_cells(cells) > 1 for cells in rows)
        if wide_row_count > len(rows) / 2:
            title_row_count = count_title_rows(rows)
            if any(row_number in cell_problems for row_number, _ in first_rows[: title_row_count + 1]):
                title_row_count = 0
        messages = []
        if unread_sheets:
            messages.append(
                f"{location}: only this sheet is read. To read another sheet, use --sheet (in a job: `sheet`). Other "
                f"sheets: {', '.join(unread_sheets)}"
            )
        if title_row_count:
            messages.append(f"{location}: titles above its header were left out (rows: {title_row_count})")
        if hidden_row_count:
            messages.append(
                f"{location}: {count(hidden_row_count, 'hidden row')} {choose_form(hidden_row_count, 'is', 'are')} "
                "used like visible rows. To leave hidden rows out, copy the visible rows to a new sheet"
            )
        self._messages = tuple(messages)
        self._header_row_number, cells = first_rows[title_row_count]
        if self._header_row_number in cell_problems:
            problem = next(iter(cell_problems[self._header_row_number].values()))
            raise SourceError(f"{location}: its header cannot be used: {problem}")
        filled_indices = [index for index, cell in enumerate(cells) if cell != ""]
        # Cells left and right of the header belong to no column.
        self._column_span = slice(filled_indices[0], filled_indices[-1] + 1)
        header_names = [format_value(cell) for cell in cells[self._column_span]]
        if looks_like_row(header_names):
            raise SourceError(
                f"{location}: has no header: its first row looks like a subscriber. Insert a first row with the names "
                "of the columns"
            )
        self.columns = build_column_names(header_names)

    def read_chunks(self, used_columns: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`. A row is malformed if a used cell has an error (#N/A) or a formula that was never computed."""
        rows_below = (row for row in _read_rows(self._sheet) if row[0] > self._header_row_number)
        filled_rows = (row for row in rows_below if row[0] in self._cell_problems or _is_filled(row))
        messages, last_row_number = self._messages, (self._sheet.end or (self._header_row_number, 0))[0] + 1
        while rows := list(islice(filled_rows, CHUNK_ROWS)):
            read_share = (rows[-1][0] - self._header_row_number) / max(last_row_number - self._header_row_number, 1)
            yield replace(self._build_chunk(rows, used_columns), messages=messages, read_share=read_share)
            messages = ()

    def close(self) -> None:
        """Release the workbook. A second call does nothing."""
        self._input.close()

    def _build_chunk(self, rows: Sequence[Row], used_columns: Collection[str] | None) -> Chunk:
        column_count = len(self.columns)
        malformed_rows, valid_rows = [], []
        for row_number, cells in rows:
            if (problem := self._find_row_problem(row_number, used_columns)) is not None:
                fault = ("error_cell", problem)
            elif any(cell != "" for cell in [*cells[: self._column_span.start], *cells[self._column_span.stop :]]):
                fault = ("ragged", "has a cell outside the columns that the header names")
            else:
                valid_rows.append((row_number, cells[self._column_span]))
                continue
            column_names = [f"column {column}" for column in range(1, len(cells) + 1)]
            column_names[self._column_span] = self.columns[: len(column_names[self._column_span])]
            shown_cells = format_record(column_names, [_format_duration(cell) for cell in cells])
            malformed_rows.append(MalformedRow(row_number, None, shown_cells, *fault))
        cells_by_column = list(zip(*(cells for _, cells in valid_rows), strict=True)) or [()] * column_count
        cells_by_column += [("",) * len(valid_rows)] * (column_count - len(cells_by_column))  # columns without cells
        text_arrays = [build_texts([_format_duration(cell) for cell in cells])[0] for cells in cells_by_column]
        frame = build_frame(pa.table(text_arrays, names=list(self.columns)))
        row_numbers = np.array([row_number for row_number, _ in valid_rows], dtype=np.int64)
        number_cell_counts = Counter(
            name
            for name, cells in zip(self.columns, cells_by_column, strict=True)
            for cell in cells
            if isinstance(cell, int | float) and not isinstance(cell, bool)
        )
        return Chunk(frame, row_numbers, tuple(malformed_rows), self.name, number_cell_counts=number_cell_counts)

    def _find_row_problem(self, row_number: int, used_columns: Collection[str] | None) -> str | None:
        """Return the message about the first used cell of this row whose value is not known, or None. A cell is used if
        its column is one of `used_columns`. If `used_columns` is None, all cells are used."""
        for column, problem in self._cell_problems.get(row_number, {}).items():
            index = column - 1 - self._column_span.start
            if used_columns is None or not 0 <= index < len(self.columns) or self.columns[index] in used_columns:
                return problem
        return None


def open_workbook(source_input: Input, sheet: str | None) -> Source:
    """Open a sheet by its name, or by its number from 1. If `sheet` is None, open the first visible sheet.

    The first filled row names the columns. Titles of a single cell may stand above this row. Empty rows are skipped.
    Numbers of at most 15 digits have no exponent, and no `.0` if they are whole. Dates are in ISO form, and booleans
    are `true` and `false`. A row with an error (#N/A) is malformed, but an .xls file with an error is refused. Raises
    SourceError, for example for an OpenDocument spreadsheet (.ods), and for a workbook that is damaged or too large.
    """
    import python_calamine  # imported here, because most files are not workbooks

    name, file = source_input.name, source_input.file
    try:
        is_xlsx = zipfile.is_zipfile(file)
        file.seek(0)
        if is_xlsx:
            _refuse_archive(file, name)
        elif _PASSWORD_PATTERN.search(file.read()):
            # The library gets an open file. It would notice a password only if it got a path.
            raise SourceError(f"{name}: is protected by a password; save the file without the password")  # noqa: TRY301
        file.seek(0)
        workbook = python_calamine.load_workbook(file)
        visible_sheets = _list_visible_sheets(workbook)
        chosen_sheet = _choose_sheet(workbook, sheet or next(iter(visible_sheets), None), name)
        file.seek(0)
        if not is_xlsx and _XLS_ERROR_PATTERN.search(file.read()):
            raise SourceError(  # noqa: TRY301 - not an error of the library
                f"{name}: a cell has an error, such as #N/A. The connector cannot find the cell in an .xls file. Save "
                "the workbook as .xlsx and run again: the connector then finds the cell"
            )
        cell_problems, hidden_row_count = _find_cell_problems(file, chosen_sheet, name) if is_xlsx else ({}, 0)
        unread_sheets = [] if sheet else [sheet_name for sheet_name in visible_sheets if sheet_name != chosen_sheet]
        calamine_sheet = workbook.get_sheet_by_name(chosen_sheet)
        return WorkbookSource(source_input, calamine_sheet, cell_problems, hidden_row_count, unread_sheets)
    except (python_calamine.CalamineError, *_READ_ERRORS) as error:
        raise SourceError(f"{name}: is not a workbook that can be read ({error}); save it again") from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            # The library raises PanicException for a damaged .xls, and exports no class for it.
            raise
        raise SourceError(f"{name}: is a workbook that is damaged; save it again") from None


def _refuse_archive(file: BinaryIO, name: str) -> None:
    """Raise SourceError for an OpenDocument file, and for a workbook whose zip directory shows that the workbook
    unpacks to too many bytes."""
    with zipfile.ZipFile(file) as archive:
        if "content.xml" in archive.namelist():
            raise SourceError(
                f"{name}: is an OpenDocument file (.ods), which cannot be read; open it in LibreOffice, choose File > "
                "Save As, and save it as .xlsx or as CSV"
            )
        if sum(member_info.file_size for member_info in archive.infolist()) > _MAX_BYTES:
            raise SourceError(f"{name}: unpacks to more than {_MAX_BYTES >> 30} GiB; save the sheet as CSV instead")
        if _SHARED_STRINGS_PART in archive.namelist():  # read to the end, because the checksum then proves the size
            with archive.open(_SHARED_STRINGS_PART) as strings_file:
                while strings_file.read(_READ_BYTES):
                    pass


def _find_cell_problems(file: BinaryIO, sheet: str, name: str) -> tuple[dict[int, dict[int, str]], int]:
    """Return the problems of an .xlsx sheet, by row number and column (from 1), and the number of hidden rows. A
    problem is a cell with an error, or with a formula without a computed value. Raises SourceError for a sheet that is
    too large.

    A program that cannot compute formulas writes no value or a 0 for each formula. The program also marks the workbook,
    so that a spreadsheet program computes the formulas when a person opens the workbook.

    Raises KeyError if the workbook does not name the file of the sheet in the archive.
    """
    cell_problems: dict[int, dict[int, str]] = {}
    row_number = column_number = last_row_number = last_column_number = hidden_row_count = 0
    column_number_by_letters: dict[bytes, int] = {}
    with zipfile.ZipFile(file) as archive:
        workbook_xml = ElementTree.fromstring(archive.read("xl/workbook.xml"))  # noqa: S314 - expat bounds entities since 2.4
        links = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))  # noqa: S314
        link_id_by_sheet = {
            tag.get("name"): value
            for tag in workbook_xml.iter()
            for key, value in tag.items()
            if tag.tag.endswith("}sheet") and key.endswith("}id")
        }
        is_uncomputed = any(
            tag.get("fullCalcOnLoad") in ("1", "true") for tag in workbook_xml.iter() if tag.tag.endswith("}calcPr")
        )
        sheet_target = {link.get("Id"): link.get("Target", "") for link in links}[link_id_by_sheet[sheet]]
        # If the target is an absolute path, `join` leaves out `/xl`.
        sheet_path = posixpath.normpath(posixpath.join("/xl", sheet_target)).lstrip("/")
        for tag in _find_tags(archive, sheet_path, _XLSX_TAG_PATTERN):
            name_match = _XLSX_CELL_NAME_PATTERN.search(tag[2])
            if tag[1] == b"row":
                row_number, column_number = int(name_match["row"]) if name_match else row_number + 1, 0
                hidden_row_count += bool(_XLSX_HIDDEN_PATTERN.search(tag[2])) and not tag[2].endswith(b"/")
                continue
            column_number += 1
            if name_match:
                row_number, letters = int(name_match["row"]), name_match["column"]
                if letters not in column_number_by_letters:
                    column_number_by_letters[letters] = reduce(
                        lambda number, letter: number * 26 + letter - 64, letters, 0
                    )
                column_number = column_number_by_letters[letters]
            if not tag[2].endswith(b"/"):  # a tag without content is an empty cell with a format
                last_row_number = max(last_row_number, row_number)
                last_column_number = max(last_column_number, column_number)
                if _XLSX_ERROR_PATTERN.search(tag[2]):
                    problem = "holds an error, such as #N/A; correct it in the workbook"
                elif tag["formula"] and (tag["value"] is None or (is_uncomputed and tag["value"] in (b"", b"0"))):
                    problem = (
                        "holds a formula that was never computed; open the workbook in a spreadsheet program, and save "
                        "it"
                    )
                else:
                    continue
                message = f"the cell {_name_cell(row_number, column_number)} {problem}"
                cell_problems.setdefault(row_number, {})[column_number] = message
    if last_row_number * last_column_number > _MAX_CELLS:
        raise SourceError(
            f"{name}: the sheet {sheet} spans {last_row_number * last_column_number:,} cells, down to "
            f"{_name_cell(last_row_number, last_column_number)}, and at most {_MAX_CELLS:,} can be read: clear the "
            "cells far from the table, or save the sheet as CSV"
        )
    return cell_problems, hidden_row_count


def _find_tags(archive: zipfile.ZipFile, file_path: str, pattern: re.Pattern[bytes]) -> Iterator[re.Match[bytes]]:
    """Yield the matches of `pattern` in the file `file_path` of the archive. The file is searched in pieces that end
    after a cell or a row."""
    remaining_bytes = b""
    with archive.open(file_path) as stream:
        while piece := stream.read(_READ_BYTES):
            text = remaining_bytes + piece
            end_offsets = [text.rfind(cell_end) + len(cell_end) for cell_end in _CELL_ENDS if cell_end in text]
            end_offset = max(end_offsets, default=text.rfind(b">") + 1)
            yield from pattern.finditer(text, 0, end_offset)
            remaining_bytes = text[end_offset:]


def _name_cell(row_number: int, column_number: int) -> str:
    """Return the name of a cell by its row and column (from 1): (4, 28) is AB4."""
    return f"{format_column_letters(column_number - 1)}{row_number}"


def _list_visible_sheets(workbook: "CalamineWorkbook") -> list[str]:
    from python_calamine import SheetTypeEnum, SheetVisibleEnum

    return [
        sheet_metadata.name
        for sheet_metadata in workbook.sheets_metadata
        if sheet_metadata.typ == SheetTypeEnum.WorkSheet and sheet_metadata.visible == SheetVisibleEnum.Visible
    ]


def _choose_sheet(workbook: "CalamineWorkbook", sheet: str | None, name: str) -> str:
    """Return the name of the sheet with this name or number. `sheet` is None only if the user has named no sheet and
    all sheets are hidden. In this case, return the name of the first sheet."""
    sheet_names = [sheet_metadata.name for sheet_metadata in workbook.sheets_metadata]
    if sheet is None:
        chosen_name = next(iter(sheet_names), None)
    elif sheet in sheet_names:
        chosen_name = sheet
    else:
        chosen_name = sheet_names[int(sheet) - 1] if sheet.isdecimal() and 0 < int(sheet) <= len(sheet_names) else None
    if chosen_name is None:
        sheets_message = f"its sheets: {', '.join(sheet_names)}" if sheet_names else "the workbook has no sheets"
        raise SourceError(f"{name}: has no sheet {sheet or ''}; {sheets_message}")
    return chosen_name


def _read_rows(sheet: "CalamineSheet") -> Iterator[Row]:
    """Yield each row, also empty rows at the beginning. Add the empty columns before the first cell, which the library
    leaves out."""
    omitted_column_count = sheet.start[1] if sheet.start else 0
    for row_number, cells in enumerate(sheet.iter_rows(), start=1):
        yield row_number, [*[""] * omitted_column_count, *cells]


def _is_filled(row: Row) -> bool:
    return any(cell != "" for cell in row[1])


def _format_duration(cell: object) -> object:
    """Return a duration as a sheet shows it (30:00:00), and any other cell unchanged."""
    if not isinstance(cell, timedelta):
        return cell
    seconds = round(cell.total_seconds())
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
