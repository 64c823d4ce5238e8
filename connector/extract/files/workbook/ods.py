"""The sheets of an .ods walked for the places of their cells and their errors; the values are the library's to read."""

from xml.parsers import expat

from connector.extract.files.workbook.area import MOST_CELLS, Area
from connector.extract.files.workbook.parts import Parts

CONTENT = "content.xml"

_TABLE = "urn:oasis:names:tc:opendocument:xmlns:table:1.0 "
_OFFICE = "urn:oasis:names:tc:opendocument:xmlns:office:1.0 "
_CALC = "urn:org:documentfoundation:names:experimental:calc:xmlns:calcext:1.0 "
_CELLS = (_TABLE + "table-cell", _TABLE + "covered-table-cell")


def scan_ods(parts: Parts) -> dict[str, Area]:
    """What each sheet spans, by its name. Raises ValueError."""
    walker = _Walker()
    parts.walk(CONTENT, walker.prepare)
    return walker.areas


class _Walker:
    """Goes from cell to cell; one element may stand for many equal rows or cells."""

    def __init__(self) -> None:
        self.areas: dict[str, Area] = {}
        self._area = Area()
        self._row = self._column = 0
        self._row_times = self._cell_times = 1
        self._is_error = False

    def prepare(self, parser: expat.XMLParserType) -> None:
        parser.StartElementHandler = self._on_start
        parser.EndElementHandler = self._on_end

    def _on_start(self, name: str, attributes: dict[str, str]) -> None:
        if name in _CELLS:
            self._cell_times = int(attributes.get(_TABLE + "number-columns-repeated", "1"))
            if _OFFICE + "value-type" in attributes:
                self._add(is_error=attributes.get(_CALC + "value-type") == "error")
        elif name == _TABLE + "table-row":
            self._row_times = int(attributes.get(_TABLE + "number-rows-repeated", "1"))
            self._column = 0
        elif name == _TABLE + "table":
            self._area = self.areas.setdefault(attributes.get(_TABLE + "name", ""), Area())
            self._row = 0

    def _on_end(self, name: str) -> None:
        if name in _CELLS:
            self._column += self._cell_times
        elif name == _TABLE + "table-row":
            self._row += self._row_times

    def _add(self, *, is_error: bool) -> None:
        self._area.add(self._row, self._column)
        self._area.add(self._row + self._row_times - 1, self._column + self._cell_times - 1)
        if is_error and self._area.size <= MOST_CELLS:
            for row in range(self._row, self._row + self._row_times):
                self._area.add_error(row, self._column, "")
