"""JSON Lines as a source: one object a line. The file is read twice: a key may come with its last line.

A line that is broken, no object or too long costs itself alone.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from connector.errors import SourceError
from connector.extract.chunk import Chunk, MalformedRow, Source
from connector.extract.closing import Closing
from connector.extract.csv import open_utf8, show_bytes
from connector.extract.files.content import Content
from connector.extract.files.lines import MOST_LINE, Line, read_lines
from connector.extract.files.objects import parse_object, write_lists
from connector.extract.names import name_columns
from connector.extract.texts import build_texts

_MOST_KEYS = 10_000  # an object with a key of its own for each person is no row
_TEXT = pd.StringDtype(na_value=np.nan)


class JsonLinesSource(Closing):
    """A file of JSON Lines, opened by `open_json_lines`."""

    def __init__(self, content: Content, encoding: str, keys: Sequence[str]) -> None:
        self.name = content.name
        self.columns = name_columns(keys)
        self._keys, self._content = tuple(keys), content
        self._stream = open_utf8(self.name, encoding, content)

    def chunks(self) -> Iterator[Chunk]:
        """Give the objects, in order, once; their numbers are those of their lines. Raises SourceError."""
        for lines in read_lines(self._stream):
            yield self._build_chunk(lines)

    def close(self) -> None:
        """Let go of the file; may be called more than once."""
        self._content.close()

    def _build_chunk(self, lines: Sequence[Line]) -> Chunk:
        rows: dict[int, dict[str, object]] = {}
        faults: dict[int, tuple[str, str]] = {}
        for place, line in enumerate(lines):
            try:
                rows[place] = _read_row(line)
            except ValueError as error:
                faults[place] = ("too_long" if line.is_too_long else "json", str(error))
        places = list(rows)
        texts = []
        for key, column in zip(self._keys, self.columns, strict=True):
            array, wrong = build_texts(write_lists([row.get(key) for row in rows.values()]))
            texts.append(array)
            for at, why in wrong.items():
                faults.setdefault(places[at], ("encoding", f"{column} {why}"))
        table = pa.table(texts, names=list(self.columns))
        is_good = [place not in faults for place in places]
        frame = table.filter(pa.array(is_good, pa.bool_())).to_pandas(types_mapper=lambda _: _TEXT)
        numbers = [lines[place].number for place, good in zip(places, is_good, strict=True) if good]
        malformed = tuple(_build_malformed(lines[place], *faults[place]) for place in sorted(faults))
        return Chunk(frame, np.array(numbers, dtype=np.int64), malformed, self.name)


def open_json_lines(content: Content, encoding: str) -> Source:
    """Open a file of JSON Lines: its columns are all keys of all objects, in the order in which they come.

    Nested objects are flattened (`address.city`), lists stay JSON, null and an absent key are missing. Raises
    SourceError for a file without any object.
    """
    encoding = "utf-8" if encoding == "auto" else encoding  # RFC 8259: no other is found in what it exchanges
    content.keep()
    keys = _find_keys(content, encoding)
    anew = content.begin_anew()
    try:
        return JsonLinesSource(anew, encoding, keys)
    except BaseException:
        anew.close()
        raise


def _find_keys(content: Content, encoding: str) -> list[str]:
    keys: dict[str, None] = {}
    filled: set[str] = set()  # those for which any object has a value
    try:
        for lines in read_lines(open_utf8(content.name, encoding, content)):
            for row in map(_read_row_if_any, lines):
                if not row.keys() <= filled:
                    keys |= dict.fromkeys(row)
                    filled |= {key for key, value in row.items() if value is not None}
            if len(keys) > _MOST_KEYS:
                break
    except SourceError:
        if not keys:  # else it comes again, after the rows before it
            raise
    if len(keys) > _MOST_KEYS:
        raise SourceError(f"{content.name}: has more than {_MOST_KEYS:,} keys; is each line a row?")
    if not keys:
        raise SourceError(f"{content.name}: holds no JSON object with a key; JSON Lines has one on each line")
    nested = {key[:end] for key in keys for end, sign in enumerate(key) if sign == "."}
    return [key for key in keys if key in filled or key not in nested]  # an object that is null is none


def _read_row_if_any(line: Line) -> dict[str, object]:
    try:
        return _read_row(line)
    except ValueError:  # told when its turn comes as a row
        return {}


def _read_row(line: Line) -> dict[str, object]:
    if line.is_too_long:
        raise ValueError(f"is longer than {MOST_LINE >> 20} MiB, as no row is; look there for a missing line end")
    return parse_object(line.text)


def _build_malformed(line: Line, code: str, message: str) -> MalformedRow:
    return MalformedRow(line.number, line.number, show_bytes(line.text), code, message)
