"""A sheet of an .xlsx walked for the places of its cells and its errors; the values are the library's to read."""

import posixpath
from xml.parsers import expat

from connector.extract.files.workbook.area import Area, parse_column
from connector.extract.files.workbook.parts import Parts

WORKBOOK = "xl/workbook.xml"
_RELATIONS = "xl/_rels/workbook.xml.rels"
_DIGITS = "0123456789"


def scan_xlsx(parts: Parts, sheet: str) -> Area:
    """What the sheet of this name spans. Raises ValueError for a workbook that does not say where it is."""
    relation = _find_attribute(parts, WORKBOOK, "sheet", "name", sheet, "id")
    target = _find_attribute(parts, _RELATIONS, "Relationship", "Id", relation, "Target")
    part = target.lstrip("/") if target.startswith("/") else posixpath.normpath(posixpath.join("xl", target))
    walker = _Walker()
    parts.walk(part, walker.prepare)
    return walker.area


def _find_attribute(parts: Parts, part: str, tag: str, key: str, value: str, wanted: str) -> str:
    """What the element that has this value under a key has under another."""
    found: list[str] = []

    def on_start(name: str, attributes: dict[str, str]) -> None:
        local = {each.rpartition(" ")[2]: text for each, text in attributes.items()}
        if name.rpartition(" ")[2] == tag and local.get(key) == value and wanted in local:
            found.append(local[wanted])

    def prepare(parser: expat.XMLParserType) -> None:
        parser.StartElementHandler = on_start

    parts.walk(part, prepare)
    if not found:
        raise ValueError(f"{part} does not say where the sheet is")
    return found[0]


class _Walker:
    """Goes from cell to cell; one without a name of its own is the next one of its row."""

    def __init__(self) -> None:
        self.area = Area()
        self._row = self._column = -1
        self._is_error = False
        self._columns: dict[str, int] = {}

    def prepare(self, parser: expat.XMLParserType) -> None:
        parser.StartElementHandler = self._on_start
        self._parser = parser

    def _on_start(self, name: str, attributes: dict[str, str]) -> None:
        tag = name.rpartition(" ")[2]
        if tag == "c":
            self._go_to(attributes.get("r"))
            if self._is_error:
                self._parser.CharacterDataHandler = None
            self._is_error = attributes.get("t") == "e"
        elif tag in ("v", "is"):
            self.area.add(self._row, self._column)
            if self._is_error:
                self._parser.CharacterDataHandler = self._on_error
        elif tag == "row":
            number = attributes.get("r")
            self._row, self._column = self._row + 1 if number is None else int(number) - 1, -1

    def _go_to(self, cell: str | None) -> None:
        if cell is None:
            self._column += 1
            return
        letters = cell.rstrip(_DIGITS)
        if letters not in self._columns:
            self._columns[letters] = parse_column(letters)
        self._row, self._column = int(cell[len(letters) :]) - 1, self._columns[letters]

    def _on_error(self, text: str) -> None:
        self.area.add_error(self._row, self._column, text)
