"""What the sheets of a workbook span, and which cells hold an error: read from its XML before the library is asked.

The library keeps a place for every cell between the first and the last, and ends the process when there is no memory
for them; and it gives an error (#N/A) as an empty cell.
"""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from connector.errors import SourceError
from connector.extract.files.workbook.area import MOST_CELLS, Area
from connector.extract.files.workbook.ods import CONTENT, scan_ods
from connector.extract.files.workbook.parts import Parts
from connector.extract.files.workbook.xls import scan_xls
from connector.extract.files.workbook.xlsx import WORKBOOK, scan_xlsx


class Survey:
    """A workbook looked at before it is loaded. Raises SourceError for what is too large to hold, or damaged."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name = file, name
        self._areas: dict[str, Area] = {}
        file.seek(0)
        self._parts: Parts | None = None
        if not zipfile.is_zipfile(file):
            return
        with self._translated():
            self._parts = Parts(file, name)
            if CONTENT in self._parts:
                self._areas = scan_ods(self._parts)  # all of them: the library reads all at once
            elif WORKBOOK not in self._parts:
                raise ValueError("it is another program's document; save the sheet as .xlsx or CSV")
        for sheet, area in self._areas.items():
            self._refuse_large(area, sheet)

    def find_errors(self, sheet: str) -> dict[int, str]:
        """By row number (from 1) what error is in a cell of it. Raises SourceError for a sheet too large to hold."""
        if sheet not in self._areas:
            with self._translated():
                parts = self._parts
                self._areas[sheet] = scan_xls(self._file, sheet) if parts is None else scan_xlsx(parts, sheet)
            self._refuse_large(self._areas[sheet], sheet)
        return {row + 1: fault for row, fault in self._areas[sheet].errors.items()}

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
            raise SourceError(f"{self._name}: is no workbook that can be read: {error}") from None

    def _refuse_large(self, area: Area, sheet: str) -> None:
        if area.size > MOST_CELLS:
            raise SourceError(
                f"{self._name}: the sheet {sheet} spans {area.size:,} cells, down to {area.last_cell}, and "
                f"{MOST_CELLS:,} are the most that is read: clear what stands far from the rest, or save it as CSV"
            )
