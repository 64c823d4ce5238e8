"""Reads JSON Lines as a source: one object on each line. Memory is limited by the size of a batch.

The file is read twice, because the last line may have a new key. A broken line, or a line that is not an object, is
malformed; the other lines are read.
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
from connector.rows import Chunk, CloseableResource, MalformedRow
from connector.sources.cell_text import build_frame, build_texts, find_wrong, write_lists
from connector.sources.encoding import Utf8Stream, show_bytes
from connector.sources.header_row import name_columns
from connector.sources.inputs import Input

_READ_BYTES = 1 << 22  # about 20,000 lines
_MAX_LINE = 1 << 20  # bytes; the line of a subscriber has a few hundred bytes
_MAX_KEYS = 10_000  # a file with more keys has subscribers as keys, and not rows
_MAX_DEPTH = 20  # of nested objects; exports of subscribers have a depth of two or three
_FIRST_INEXACT = 2.0**53  # from this number on a float cannot represent each whole number


class JsonLinesSource(CloseableResource):
    """A file of JSON Lines. Its columns are the keys of all objects, in the order of their first lines.

    Nested objects are flattened (`address.city`), lists stay JSON, and null and absent keys are missing values. Raises
    SourceError for a file without an object, and for a line of more than a MiB.
    """

    def __init__(self, source_input: Input, encoding: str) -> None:
        self.name, self._input = source_input.name, source_input
        # RFC 8259 allows only UTF-8 for JSON that programs exchange.
        encoding = "utf-8" if encoding == "auto" else encoding
        self._stream = Utf8Stream(self.name, source_input.file, encoding)
        self._keys = self._find_keys()
        self.columns = name_columns(self._keys)
        within = [key for key in self._keys if "." in key]
        self._mixed = {  # columns that are an object in some rows, with the columns of the inner keys
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
        filled: set[str] = set()  # keys with a value in at least one object
        for lines in self._read_lines():
            for _, text in lines:
                row: dict[str, object] = {}
                with suppress(ValueError):  # reported when the line is read as a row
                    row = read_row(load_object(text), text)
                if not row.keys() <= filled:
                    keys |= dict.fromkeys(row)
                    filled |= {key for key, value in row.items() if value is not None}
            if len(keys) > _MAX_KEYS:
                raise SourceError(f"{self.name}: has more than {_MAX_KEYS:,} keys; check whether each line is a row")
        if not keys:
            raise SourceError(f"{self.name}: holds no JSON object with a key; JSON Lines has one on each line")
        nested = {key[:end] for key in keys for end, sign in enumerate(key) if sign == "."}
        return [
            key for key in keys if key in filled or key not in nested
        ]  # a key of an object that is null in some rows is not a column

    def _read_lines(self) -> Iterator[list[tuple[int, bytes]]]:
        """Yield lists of filled lines with their numbers (from 1); a list has about four megabytes."""
        self._stream.rewind()
        first, incomplete, is_ended = 1, b"", False
        while not is_ended:
            block = self._stream.read(_READ_BYTES)
            is_ended = not block
            *lines, incomplete = [incomplete, b""] if is_ended else (incomplete + block).split(b"\n")
            numbered = list(enumerate(lines, first))
            first += len(lines)
            for number, text in [*numbered, (first, incomplete)]:
                if len(text) > _MAX_LINE:
                    raise ContentError(
                        f"{self.name}: line {number} is longer than {_MAX_LINE >> 20} MiB, which is not a row; look "
                        "there for a missing line end"
                    )
            if filled := [(number, stripped) for number, text in numbered if (stripped := text.strip())]:
                yield filled

    def _build_chunk(self, lines: list[tuple[int, bytes]], used: Collection[str] | None) -> Chunk:
        rows: dict[int, dict[str, object]] = {}
        faults: dict[int, tuple[str, str]] = {}
        for number, text in lines:
            try:
                parsed = load_object(text)
                rows[number] = read_row(parsed, text)
            except ValueError as error:
                faults[number] = ("json", str(error))
                continue
            for key in find_repeated_keys(text, parsed):
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
        """Return the problem of a row with an object in a column of `used`, if no inner key is used; else None."""
        for column, inner in self._mixed.items():
            filled = [key for key in inner if row.get(key) is not None]
            if column in used and column not in row and filled and used.isdisjoint(filled):
                return f"column {column} holds an object here, and other values in other rows: write one kind of value"
        return None


def load_object(text: bytes) -> dict[str, object]:
    """Return the object of a line of JSON. Raises ValueError if the line is not an object.

    NaN is read as null and Infinity as a number, as pandas writes them.
    """
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        problem = f"is not JSON: {str(error).partition(': line')[0]}"
        try:
            parsed = json.loads(text, parse_constant=lambda name: None if name == "NaN" else float(name))
        except (ValueError, RecursionError):
            raise ValueError(problem) from None
    if not isinstance(parsed, dict):
        raise ValueError('is JSON, but not an object: a row looks like {"email": "ann@example.com"}')  # noqa: TRY004
    return parsed


def read_row(parsed: Mapping[str, object], text: bytes) -> dict[str, object]:
    """Return the values of an object by their paths (`address.city`); `text` is the line of the object.

    A number that a float cannot represent exactly is a Decimal. Raises ValueError for a repeated path, and for a path
    that is too deep.
    """
    row = _flatten(parsed)
    inexact = [key for key, value in row.items() if type(value) is float and abs(value) >= _FIRST_INEXACT]
    if inexact:
        exact_row = _flatten(json.loads(text, parse_float=Decimal))
        row |= {key: exact_row[key] for key in inexact}
    return row


_MEMBER = re.compile(rb'"\s*:')
"""The end of a key. Texts may contain the same characters, so a line has at least as many matches as keys."""


def find_repeated_keys(text: bytes, parsed: Mapping[str, object]) -> list[str]:
    """Return the keys that an object of the line `text` has twice; `parsed` is the result of `load_object`.

    Parsers of JSON silently drop one of the values. Keys are counted first, because collecting all pairs takes five
    times as long."""
    if text.count(b":") == len(parsed) or len(_MEMBER.findall(text)) == _count_keys(parsed):
        return []
    repeated: list[str] = []

    def build(pairs: list[tuple[str, object]]) -> dict[str, object]:
        built = dict(pairs)
        if len(built) < len(pairs):
            repeated.extend(key for key, key_count in Counter(key for key, _ in pairs).items() if key_count > 1)
        return built

    with suppress(ValueError, RecursionError):
        json.loads(text, object_pairs_hook=build)
    return repeated


def _count_keys(value: object) -> int:
    """Return the number of keys in all objects of a JSON value."""
    count, values = 0, [value]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            count += len(value)
            values += value.values()
        elif isinstance(value, list):
            values += value
    return count


def _flatten(nested: Mapping[str, object], prefix: str = "", depth: int = 1) -> dict[str, object]:
    """Return each value by its path; a list is one value. Raises ValueError for a repeated path, and for a path that is
    too deep."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"holds objects nested more than {_MAX_DEPTH} deep")
    if not prefix and dict not in map(type, nested.values()):
        return dict(nested)
    row: dict[str, object] = {}
    for key, value in nested.items():
        path = prefix + key
        inner = _flatten(value, f"{path}.", depth + 1) if isinstance(value, dict) else {path: value}
        for name in inner.keys() & row.keys():
            raise ValueError(f"has {name} twice, as a key and as a key within another")
        row |= inner
    return row
