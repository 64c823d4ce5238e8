"""A sheet of a workbook (.xlsx, .xls, .ods) as a source; its rows go by the numbers that the sheet shows them with.

The library holds the whole sheet, so what it would hold is bounded before it is asked.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from connector.errors import ConfigurationError, SourceError
from connector.extract.chunk import Chunk, MalformedRow, Source
from connector.extract.closing import Closing
from connector.extract.files.content import Content
from connector.extract.files.workbook.survey import Survey
from connector.extract.names import name_columns
from connector.extract.texts import build_texts, show_record, write_text
from connector.extract.titles import count_filled, find_titles, looks_like_row

if TYPE_CHECKING:
    from python_calamine import CalamineSheet, CalamineWorkbook

Row = tuple[int, list[object]]
"""The number of a sheet's row, from 1, and its cells."""

_CHUNK_ROWS = 20_000
_HEAD_ROWS = 200  # by which titles above the header are told, as of a CSV
_TEXT = pd.StringDtype(na_value=np.nan)


class ExcelSource(Closing):
    """One sheet, opened by `open_excel`."""

    def __init__(self, content: Content, sheet: "CalamineSheet", errors: Mapping[int, str]) -> None:
        """`errors` says by row number what is wrong with a cell of that row."""
        self.name, self._content, self._errors = content.name, content, errors
        self._rows = _read_rows(sheet)
        self._where = f"{self.name}, sheet {sheet.name}"
        self._untold: tuple[str, ...] = ()  # messages for the first chunk
        self.columns = self._take_header()

    def chunks(self) -> Iterator[Chunk]:
        """Give the rows, in order, once; none for a sheet with a header only."""
        filled = (row for row in self._rows if row[0] in self._errors or any(cell != "" for cell in row[1]))
        while rows := list(islice(filled, _CHUNK_ROWS)):
            yield self._build_chunk(rows)

    def close(self) -> None:
        """Let go of the workbook; may be called more than once."""
        self._rows = iter(())
        self._content.close()

    def _take_header(self) -> tuple[str, ...]:
        first = next((row for row in self._rows if _is_filled(row)), None)
        if first is None:
            raise SourceError(f"{self._where}: is empty; its first row must name the columns")
        head = [first, *islice(self._rows, _HEAD_ROWS)]
        titles = self._count_titles(list(filter(_is_filled, head)))
        if titles:
            self._untold = (f"{self._where}: titles above its header were left out (rows: {titles})",)
        place = [place for place, row in enumerate(head) if _is_filled(row)][titles]
        number, cells = head[place]
        self._rows = chain(head[place + 1 :], self._rows)
        if number in self._errors:
            raise SourceError(f"{self._where}: its header cannot be used: {self._errors[number]}")
        filled = [place for place, cell in enumerate(cells) if cell != ""]
        self._span = slice(filled[0], filled[-1] + 1)  # what stands beside the header belongs to no column
        names = [write_text(cell) for cell in cells[self._span]]
        if looks_like_row(names):
            raise SourceError(
                f"{self._where}: has no header: its first row looks like a person's. Put a row with the columns' names "
                "first"
            )
        return name_columns(names)

    def _count_titles(self, head: Sequence[Row]) -> int:
        """How many of the first rows are titles, where most rows have several cells; 0 if there is an error in one."""
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
        frame = pa.table(texts, names=list(self.columns)).to_pandas(types_mapper=lambda _: _TEXT)
        numbers = np.array([number for number, _ in good], dtype=np.int64)
        counts = {name: sum(map(_is_number, cells)) for name, cells in zip(self.columns, columns, strict=True)}
        number_cells = {name: count for name, count in counts.items() if count}
        told, self._untold = self._untold, ()
        return Chunk(frame, numbers, malformed, self.name, messages=told, number_cells=number_cells)

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


def open_excel(content: Content, sheet: str | None) -> Source:
    """Open a sheet by its name, or by its number from 1; the first that is not hidden when none is given.

    The first row with anything in it names the columns, titles of a single cell above it apart; empty rows are no
    rows. Whole numbers come without `.0`, none with an exponent, dates as ISO dates, booleans as true and false, texts
    as they are. A row with an error (#N/A) in it comes as malformed. Raises SourceError, and ConfigurationError naming
    the extra for want of python-calamine.
    """
    try:
        import python_calamine
    except ModuleNotFoundError:
        raise ConfigurationError(
            f"{content.name}: reading a workbook takes python-calamine: pip install 'subscriber-connector[excel]'"
        ) from None
    file = content.take_file()
    survey = Survey(file, content.name)
    try:
        file.seek(0)
        workbook = python_calamine.load_workbook(file)
        name = _choose_sheet(workbook, sheet, content.name)
        errors = survey.find_errors(name)
        file.seek(0)
        return ExcelSource(content, workbook.get_sheet_by_name(name), errors)
    except python_calamine.PasswordError:
        raise SourceError(f"{content.name}: is protected by a password; save it without one") from None
    except (python_calamine.CalamineError, OSError) as error:
        raise SourceError(f"{content.name}: is no workbook that can be read ({error}); save it anew") from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the library's own, on a damaged .xls; no module exports it
            raise
        raise SourceError(f"{content.name}: is a workbook that is damaged; save it anew") from None


def _choose_sheet(workbook: "CalamineWorkbook", sheet: str | None, name: str) -> str:
    from python_calamine import SheetTypeEnum, SheetVisibleEnum  # it is there: it has opened the workbook

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
