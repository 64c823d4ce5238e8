"""JSON Lines as a source: an object a line, memory bounded by the batch.

The file is read twice, since a key may come with the last line. A broken line, or a line that is not an object, costs
that line alone.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal

import numpy as np
import orjson
import pyarrow as pa

from connector.errors import ContentError, SourceError
from connector.rows import Chunk, Closing, MalformedRow
from connector.sources.cell_text import build_frame, build_texts, find_wrong, write_lists
from connector.sources.encoding import Utf8Stream, show_bytes
from connector.sources.header_row import name_columns
from connector.sources.inputs import Input

_READ_BYTES = 1 << 22  # about 20,000 lines
_MOST_LINE = 1 << 20  # bytes; a subscriber's line has a few hundred
_MOST_KEYS = 10_000  # an object with a key of its own for each subscriber is not a row
_DEEPEST = 20  # objects within objects; exports of subscribers are two or three deep
_EXACT = 2.0**53  # from here on a float no longer holds every whole number


class JsonLinesSource(Closing):
    """A file of JSON Lines: its columns are all keys of all objects, in the order in which they come.

    Nested objects are flattened (`address.city`), lists stay JSON, null and an absent key are missing. Raises
    SourceError for a file without any object, or with a line of more than a MiB.
    """

    def __init__(self, source_input: Input, encoding: str) -> None:
        self.name, self._input = source_input.name, source_input
        # RFC 8259: no other encoding is found in what it exchanges.
        encoding = "utf-8" if encoding == "auto" else encoding
        self._stream = Utf8Stream(self.name, source_input.file, encoding)
        self._keys = self._find_keys()
        self.columns = name_columns(self._keys)
        within = [key for key in self._keys if "." in key]
        self._mixed = {  # columns that may be an object in some rows, with the keys within
            key: inner for key in self._keys if (inner := [path for path in within if path.startswith(f"{key}.")])
        }

    def chunks(self, used: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`. The number of a row is the number of its line."""
        size = max(os.fstat(self._input.file.fileno()).st_size, 1)
        for lines in self._read_lines():
            yield replace(self._build_chunk(lines, used), share=self._input.file.tell() / size)

    def close(self) -> None:
        """Release the file; may be called more than once."""
        self._input.close()

    def _find_keys(self) -> list[str]:
        keys: dict[str, None] = {}
        filled: set[str] = set()  # those for which any object has a value
        for lines in self._read_lines():
            for _, text in lines:
                row: dict[str, object] = {}
                with suppress(ValueError):  # reported when the line is read as a row
                    row = parse_object(text)
                if not row.keys() <= filled:
                    keys |= dict.fromkeys(row)
                    filled |= {key for key, value in row.items() if value is not None}
            if len(keys) > _MOST_KEYS:
                raise SourceError(f"{self.name}: has more than {_MOST_KEYS:,} keys; is each line a row?")
        if not keys:
            raise SourceError(f"{self.name}: holds no JSON object with a key; JSON Lines has one on each line")
        nested = {key[:end] for key in keys for end, sign in enumerate(key) if sign == "."}
        return [key for key in keys if key in filled or key not in nested]  # an object that is null is no key

    def _read_lines(self) -> Iterator[list[tuple[int, bytes]]]:
        """Yield the lines that are not blank with their numbers (from 1), about four megabytes at a time."""
        self._stream.rewind()
        first, rest, is_ended = 1, b"", False
        while not is_ended:
            block = self._stream.read(_READ_BYTES)
            is_ended = not block
            *lines, rest = [rest, b""] if is_ended else (rest + block).split(b"\n")
            numbered = list(enumerate(lines, first))
            first += len(lines)
            for number, text in [*numbered, (first, rest)]:
                if len(text) > _MOST_LINE:
                    raise ContentError(
                        f"{self.name}: line {number} is longer than {_MOST_LINE >> 20} MiB, as no row is; look there "
                        "for a missing line end"
                    )
            if filled := [(number, stripped) for number, text in numbered if (stripped := text.strip())]:
                yield filled

    def _build_chunk(self, lines: list[tuple[int, bytes]], used: Collection[str] | None) -> Chunk:
        rows: dict[int, dict[str, object]] = {}
        faults: dict[int, tuple[str, str]] = {}
        for number, text in lines:
            try:
                rows[number] = row = parse_object(text)
            except ValueError as error:
                faults[number] = ("json", str(error))
                continue
            for key in find_repeated_keys(text, row):
                if used is None or any(key in (name, *name.split(".")) for name in used):
                    problem = f"has the key {key} more than once: keep the right value, delete the others"
                    faults[number] = ("json", problem)
        numbers = np.array(list(rows), dtype=np.int64)
        texts = [build_texts(write_lists([row.get(key) for row in rows.values()])) for key in self._keys]
        for index, problem in find_wrong(self.columns, [wrong for _, wrong in texts], used).items():
            faults[int(numbers[index])] = ("encoding", problem)
        for number, row in rows.items() if used is not None and self._mixed else ():
            if unread := self._find_unread_object(row, frozenset(used or ())):
                faults[number] = ("json", unread)
        is_good = np.isin(numbers, list(faults), invert=True)
        malformed = tuple(
            MalformedRow(number, number, show_bytes(text), *faults[number])
            for number, text in lines
            if number in faults
        )
        table = pa.table([array for array, _ in texts], names=list(self.columns)).filter(pa.array(is_good))
        return Chunk(build_frame(table), numbers[is_good], malformed, self.name)

    def _find_unread_object(self, row: Mapping[str, object], used: frozenset[str]) -> str | None:
        """Return the problem of a row that has an object of which nothing is used in a column of `used`, or None."""
        for column, inner in self._mixed.items():
            filled = [key for key in inner if row.get(key) is not None]
            if column in used and column not in row and filled and used.isdisjoint(filled):
                return f"column {column} holds an object here, and other values in other rows: write one kind of value"
        return None


def parse_object(text: bytes) -> dict[str, object]:
    """Return the keys and values of a line of JSON, nested objects flattened to `address.city`.

    Numbers are exact: a number that a float cannot hold comes as a Decimal. Raises ValueError for a line that is not an
    object.
    """
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        found = _load_with_nan(text, f"is no JSON: {str(error).partition(': line')[0]}")
    if not isinstance(found, dict):
        raise ValueError('is JSON, and no object: a row looks like {"email": "ann@example.com"}')  # noqa: TRY004
    row = _flatten(found)
    inexact = [key for key, value in row.items() if type(value) is float and abs(value) >= _EXACT]
    if inexact:
        exact = _flatten(json.loads(text, parse_float=Decimal))
        row |= {key: exact[key] for key in inexact}
    return row


_MEMBER = re.compile(rb'"\s*:')
"""The end of a key. Texts may have the same characters, so there are at least as many of them as keys."""


def find_repeated_keys(text: bytes, row: Mapping[str, object]) -> list[str]:
    """Return the keys that an object of the line `text` has twice; `row` is what `parse_object` made of the line.

    Each parser of JSON drops one of the values in silence. Keys are counted, because the other way takes five times as
    long."""
    if text.count(b":") == len(row) or (members := len(_MEMBER.findall(text))) == len(row):
        return []
    repeated: list[str] = []

    def build(pairs: list[tuple[str, object]]) -> dict[str, object]:
        built = dict(pairs)
        if len(built) < len(pairs):
            repeated.extend(key for key, number in Counter(key for key, _ in pairs).items() if number > 1)
        return built

    with suppress(orjson.JSONDecodeError):  # NaN
        if _count_keys(orjson.loads(text)) == members:
            return []
    with suppress(ValueError, RecursionError):
        json.loads(text, object_pairs_hook=build)
    return repeated


def _count_keys(value: object) -> int:
    """Return how many keys the objects of a value of JSON have."""
    count, values = 0, [value]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            count += len(value)
            values += value.values()
        elif isinstance(value, list):
            values += value
    return count


def _load_with_nan(text: bytes, problem: str) -> object:
    """Return the value of JSON in which pandas or Python wrote NaN or Infinity: NaN as null, Infinity as a number.

    Raises ValueError with `problem` if the text has another fault."""
    try:
        return json.loads(text, parse_constant=lambda name: None if name == "NaN" else float(name))
    except (ValueError, RecursionError):
        raise ValueError(problem) from None


def _flatten(found: Mapping[str, object], prefix: str = "", depth: int = 1) -> dict[str, object]:
    """Return every value by its path; a list is a value. Raises ValueError for a repeated path, or one too deep."""
    if depth > _DEEPEST:
        raise ValueError(f"holds objects nested more than {_DEEPEST} deep")
    if not prefix and dict not in map(type, found.values()):
        return dict(found)
    row: dict[str, object] = {}
    for key, value in found.items():
        path = prefix + key
        inner = _flatten(value, f"{path}.", depth + 1) if isinstance(value, dict) else {path: value}
        for name in inner.keys() & row.keys():
            raise ValueError(f"has {name} twice, as a key and as a key within another")
        row |= inner
    return row
