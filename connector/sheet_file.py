"""Writes an .xlsx workbook with one sheet into an open file, row by row, with little memory and without other files.

A text is written as an inline string, so that no spreadsheet reads the text as a formula, a number or a date. Excel
keeps only 15 digits of a number, has no date before 1900, and treats 1900 as a leap year. A value that Excel's numbers
cannot represent is written as text. ECMA-376 (Office Open XML), part 1, describes the parts of a workbook and their
names.
"""

import re
import weakref
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from typing import IO, BinaryIO
from xml.sax.saxutils import escape, quoteattr

MAX_ROWS = 1_048_576  # maximum number of rows of a sheet, including the header
MAX_TEXT_UNITS = 32_767  # maximum number of UTF-16 units in the text of a cell

Cell = str | int | bool | date | datetime | None

_BATCH_LENGTH = 1 << 18  # number of characters that are compressed and written together
_MAX_DIGITS = 15  # Excel keeps at most this many digits of a number
_EPOCH = datetime(1899, 12, 30)  # noqa: DTZ001 - no time zone in workbooks; Excel has a 29 February 1900
_FIRST_DAY = date(1900, 3, 1)  # from this day on, all programs number the days in the same way
_DATE_STYLE, _TIME_STYLE = 1, 2  # indices of the formats in `cellXfs` of `xl/styles.xml`

_FORBIDDEN_CHARACTER_PATTERN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML 1.0 does not allow."""

_SPECIAL_CHARACTER_PATTERN = re.compile("[&<>\r]|_x[0-9A-Fa-f]{4}_")
_ESCAPE_BEGINNING_PATTERN = re.compile("_(?=x[0-9A-Fa-f]{4}_)")

_PROPERTIES_PART = "docProps/custom.xml"
_SHEET_PART = "xl/worksheets/sheet1.xml"
_XML_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_MAIN_NS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_LINKS_NS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_CONTENT_TYPE_PREFIX = "application/vnd.openxmlformats-officedocument"
_CUSTOM_NS = "http://schemas.openxmlformats.org/officeDocument/2006/custom-properties"
_VALUES_NS = "http://schemas.openxmlformats.org/officeDocument/2006/docPropsVTypes"
_FORMAT_ID = "{D5CDD505-2E9C-101B-9397-08002B2CF9AE}"  # the id of the format of custom properties

_FIXED_PARTS = {
    "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Default Extension="xml" ContentType="application/xml"/>'
    f'<Override PartName="/xl/workbook.xml" ContentType="{_CONTENT_TYPE_PREFIX}.spreadsheetml.sheet.main+xml"/>'
    f'<Override PartName="/{_SHEET_PART}" ContentType="{_CONTENT_TYPE_PREFIX}.spreadsheetml.worksheet+xml"/>'
    f'<Override PartName="/xl/styles.xml" ContentType="{_CONTENT_TYPE_PREFIX}.spreadsheetml.styles+xml"/>'
    f'<Override PartName="/{_PROPERTIES_PART}" ContentType="{_CONTENT_TYPE_PREFIX}.custom-properties+xml"/></Types>',
    "_rels/.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    f'<Relationship Id="rId1" Type="{_LINKS_NS}/officeDocument" Target="xl/workbook.xml"/>'
    f'<Relationship Id="rId2" Type="{_LINKS_NS}/custom-properties" Target="{_PROPERTIES_PART}"/></Relationships>',
    "xl/workbook.xml": f'<workbook xmlns="{_MAIN_NS}" xmlns:r="{_LINKS_NS}">'
    '<sheets><sheet name="Sheet1" sheetId="1" r:id="rId1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    f'<Relationship Id="rId1" Type="{_LINKS_NS}/worksheet" Target="worksheets/sheet1.xml"/>'
    f'<Relationship Id="rId2" Type="{_LINKS_NS}/styles" Target="styles.xml"/></Relationships>',
    "xl/styles.xml": f'<styleSheet xmlns="{_MAIN_NS}"><numFmts count="2">'
    '<numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd"/>'
    '<numFmt numFmtId="165" formatCode="yyyy\\-mm\\-dd\\ hh:mm:ss"/></numFmts>'
    '<fonts count="1"><font><sz val="11"/><name val="Calibri"/></font></fonts>'
    '<fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill>'
    "</fills><borders count=\"1\"><border><left/><right/><top/><bottom/><diagonal/></border></borders>"
    '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs><cellXfs count="3">'
    '<xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/>'
    '<xf numFmtId="164" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/>'
    '<xf numFmtId="165" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/></cellXfs>'
    '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>',
}  # fmt: skip


class CellError(ValueError):
    """A value that a cell cannot contain, or a row beyond the last row of a sheet."""


class SheetFile:
    """A workbook that is written into `file`. `close` ends the workbook, but does not close `file`. `discard`, or the
    end of this object, stops the writing."""

    def __init__(self, file: BinaryIO, header: Sequence[str]) -> None:
        """Write the names of the columns. Raises CellError for a name that a workbook cannot contain, and OSError."""
        self._header = header
        self._column_letters = [format_column_letters(index) for index in range(len(header))]
        self._archive = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=4)
        open_files: list[IO[bytes] | zipfile.ZipFile] = [self._archive]
        self._close_open_files = weakref.finalize(self, _close_files, open_files)
        for name, content in _FIXED_PARTS.items():
            self._archive.writestr(name, _XML_HEAD + content)
        self._sheet = self._archive.open(_SHEET_PART, "w", force_zip64=True)
        open_files.insert(0, self._sheet)  # an archive cannot be closed before its open part
        self._sheet.write(
            f'{_XML_HEAD}<worksheet xmlns="{_MAIN_NS}"><sheetViews><sheetView workbookViewId="0"><pane ySplit="1" '
            'topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews><sheetData>'.encode()
        )
        self._pending_rows: list[str] = []
        self._pending_length = 0
        self.row_count = 0
        self.write_row(header)

    def write_row(self, cells: Iterable[Cell]) -> None:
        """Write a row with a cell for each column of the header. Raises CellError for a value that a workbook cannot
        contain, and OSError."""
        self.row_count += 1
        if self.row_count > MAX_ROWS:
            raise CellError(
                f"a sheet can have at most {MAX_ROWS:,} rows, including the header, and there are more rows"
            )
        row = "".join(
            _write_cell(f"{letters}{self.row_count}", cell, name)
            for letters, cell, name in zip(self._column_letters, cells, self._header, strict=True)
            if cell is not None and cell != ""
        )
        self._pending_rows.append(f'<row r="{self.row_count}">{row}</row>')
        self._pending_length += len(row)
        if self._pending_length > _BATCH_LENGTH:
            self._flush_rows()

    def close(self, properties: Mapping[str, str]) -> None:
        """Finish the workbook, and write these custom properties. Raises OSError."""
        self._flush_rows()
        self._sheet.write(b"</sheetData></worksheet>")
        self._sheet.close()
        properties_xml = "".join(
            f'<property fmtid="{_FORMAT_ID}" pid="{property_id}" name={quoteattr(name)}>'
            f"<vt:lpwstr>{escape(value)}</vt:lpwstr></property>"
            for property_id, (name, value) in enumerate(properties.items(), start=2)  # the ids 0 and 1 are reserved
        )
        content = f'{_XML_HEAD}<Properties xmlns="{_CUSTOM_NS}" xmlns:vt="{_VALUES_NS}">{properties_xml}</Properties>'
        self._archive.writestr(_PROPERTIES_PART, content)
        self._archive.close()

    def discard(self) -> None:
        """Stop writing. The file is a valid workbook only if `close` was called before."""
        self._close_open_files()

    def _flush_rows(self) -> None:
        self._sheet.write("".join(self._pending_rows).encode())
        self._pending_rows.clear()
        self._pending_length = 0


def _close_files(open_files: Iterable[IO[bytes] | zipfile.ZipFile]) -> None:
    for open_file in open_files:
        with suppress(OSError, ValueError):  # for example a full disk or a closed file
            open_file.close()


def read_properties(file: BinaryIO) -> dict[str, str]:
    """Return the custom properties of a workbook. The sheets are not read. Raises the errors of zipfile and ElementTree
    if the file is not a workbook, and KeyError if the workbook has no custom properties."""
    with zipfile.ZipFile(file) as archive:
        from xml.etree import ElementTree  # imported here, because only workbooks need the parser

        root = ElementTree.fromstring(archive.read(_PROPERTIES_PART))  # noqa: S314 - expat bounds entities since 2.4
    return {property_element.get("name", ""): "".join(property_element.itertext()) for property_element in root}


def format_column_letters(index: int) -> str:
    """Return the letters of a column by its index (from 0). The index 27 gives `AB`."""
    letters = ""
    column_number = index + 1
    while column_number:
        column_number, letter_index = divmod(column_number - 1, 26)
        letters = chr(65 + letter_index) + letters
    return letters


def _write_cell(cell_reference: str, cell: str | int | date, column_name: str) -> str:
    if isinstance(cell, str):
        return _write_text(cell_reference, cell, column_name)
    if isinstance(cell, bool):
        return f'<c r="{cell_reference}" t="b"><v>{int(cell)}</v></c>'
    if isinstance(cell, int):
        if abs(cell) >= 10**_MAX_DIGITS:
            return _write_text(cell_reference, str(cell), column_name)
        return f'<c r="{cell_reference}"><v>{cell}</v></c>'
    if isinstance(cell, datetime):
        day_number = (cell.replace(tzinfo=None) - _EPOCH) / timedelta(days=1)
        return f'<c r="{cell_reference}" s="{_TIME_STYLE}"><v>{day_number}</v></c>'
    if cell < _FIRST_DAY:
        return _write_text(cell_reference, cell.isoformat(), column_name)
    return f'<c r="{cell_reference}" s="{_DATE_STYLE}"><v>{(cell - _EPOCH.date()).days}</v></c>'


def _write_text(cell_reference: str, text: str, column_name: str) -> str:
    if (forbidden_match := _FORBIDDEN_CHARACTER_PATTERN.search(text)) is not None:
        raise CellError(f"{column_name} has the character {forbidden_match[0]!a}, which a workbook cannot contain")
    if 2 * len(text) > MAX_TEXT_UNITS and (unit_count := len(text.encode("utf-16-le")) // 2) > MAX_TEXT_UNITS:
        raise CellError(
            f"{column_name} has {unit_count:,} characters, and a cell can have at most {MAX_TEXT_UNITS:,} characters"
        )
    if _SPECIAL_CHARACTER_PATTERN.search(text):
        text = escape(_ESCAPE_BEGINNING_PATTERN.sub("_x005F_", text)).replace("\r", "_x000D_")
    return f'<c r="{cell_reference}" t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'
