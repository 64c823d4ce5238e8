"""Reads JSON as a source: JSON Lines, with one object on each line, or one array of objects.

The file is read twice, because the last line may have a new key. A line that is not valid JSON or not an object is
malformed. The other lines are read. Only a batch of lines is in memory. An array is in memory as a whole.
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
from connector.sources.cell_text import CHUNK_ROWS, build_frame, build_texts, find_problems, format_list_items
from connector.sources.encoding import Utf8Stream, find_bom_encoding, format_bytes
from connector.sources.header_row import build_column_names
from connector.sources.inputs import Input

_READ_BYTES = 1 << 22  # bytes that are read at a time: about 20,000 lines
_MAX_LINE_BYTES = 1 << 20  # the line of a subscriber has a few hundred bytes
_MAX_ARRAY_BYTES = 1 << 29  # a larger array should be JSON Lines, which needs less memory
_ARRAY_BEGINNING_PATTERN = re.compile(rb"\s*\[\s*[{\]]")
_SPACE = " \t\n\r"  # the white space of JSON (RFC 8259)
_MAX_KEYS = 10_000  # a file with more keys probably has one object whose keys are the subscribers
_MAX_DEPTH = 20  # levels of nested objects; exports of subscribers have two or three levels
_FIRST_INEXACT_NUMBER = 2.0**53  # from this number on, a float can represent only some whole numbers


class JsonSource(CloseableResource):
    """A file of JSON Lines, or of one array. Its columns are the keys of all objects, in the order of the objects.

    Nested objects are flattened (`address.city`), lists stay JSON, and null and absent keys are missing values. Raises
    SourceError for a file without an object, for a line of more than a MiB, and for a damaged array.
    """

    def __init__(self, source_input: Input, encoding: str) -> None:
        self.name, self._input = source_input.name, source_input
        if encoding == "auto":
            # RFC 8259 allows only UTF-8 for JSON that programs exchange. Windows PowerShell writes UTF-16 with a BOM.
            encoding = find_bom_encoding(source_input.first_bytes) or "utf-8"
        self._stream = Utf8Stream(self.name, source_input.file, encoding)
        self._array_elements = self._read_array()
        self._keys = self._find_keys()
        self.columns = build_column_names(self._keys)
        nested_keys = [key for key in self._keys if "." in key]
        # Each column that has an object in some rows and another value in others, with the keys of these objects.
        self._inner_keys_by_mixed_column = {
            key: inner_keys
            for key in self._keys
            if (inner_keys := [nested_key for nested_key in nested_keys if nested_key.startswith(f"{key}.")])
        }

    def read_chunks(self, used_columns: Collection[str] | None = None) -> Iterator[Chunk]:
        """Yield all records, as `Source.read_chunks` does. The number of a row is the number of its line,
        or of its object in the array (from 1)."""
        file_size = max(os.fstat(self._input.file.fileno()).st_size, 1)
        for lines in self._read_objects():
            yield replace(self._build_chunk(lines, used_columns), read_share=self._input.file.tell() / file_size)

    def close(self) -> None:
        """Release the file. A second call does nothing."""
        self._input.close()

    def _find_keys(self) -> list[str]:
        keys: dict[str, None] = {}
        filled_keys: set[str] = set()  # keys with a value in at least one object
        first_problem = ""  # the other problems are reported by `_build_chunk`
        for lines in self._read_objects():
            for number, text in lines:
                row: dict[str, object] = {}
                try:
                    row = read_row(load_object(text), text)
                except ValueError as error:
                    kind = "line" if self._array_elements is None else "element"
                    first_problem = first_problem or f" ({kind} {number} {error})"
                if not row.keys() <= filled_keys:
                    keys |= dict.fromkeys(row)
                    filled_keys |= {key for key, value in row.items() if value is not None}
            if len(keys) > _MAX_KEYS:
                raise SourceError(f"{self.name}: has more than {_MAX_KEYS:,} keys; check whether each line is a row")
        if not keys:
            raise SourceError(
                f"{self.name}: holds no JSON object with a key{first_problem}. Write one object on each line, or one "
                "array of objects, in UTF-8"
            )
        object_keys = {key[:end] for key in keys for end, character in enumerate(key) if character == "."}
        # A key that is an object in some rows and null in the others is not a column.
        return [key for key in keys if key in filled_keys or key not in object_keys]

    def _read_array(self) -> list[tuple[int, bytes]] | None:
        """Return the text of each element with its number (from 1), or None if the file is not an array."""
        blocks = [self._stream.read(_READ_BYTES)]
        if not _ARRAY_BEGINNING_PATTERN.match(blocks[0]):
            return None
        while len(blocks) <= _MAX_ARRAY_BYTES // _READ_BYTES and (block := self._stream.read(_READ_BYTES)):
            blocks.append(block)
        if self._stream.read(1):
            raise SourceError(
                f"{self.name}: is a JSON array of more than {_MAX_ARRAY_BYTES >> 20} MiB. Write one object on each "
                "line, for example with `jq -c '.[]'`"
            )
        text = b"".join(blocks).decode(errors="surrogateescape")
        try:
            elements = list(split_array(text))
        except (ValueError, IndexError, RecursionError) as error:
            problem = "the array has no end" if isinstance(error, IndexError) else str(error)
            raise ContentError(f"{self.name}: is a damaged JSON array ({problem}). Write the file again") from None
        return [(number, element.encode(errors="surrogateescape")) for number, element in enumerate(elements, start=1)]

    def _read_objects(self) -> Iterator[list[tuple[int, bytes]]]:
        """Yield lists of objects as text, each with the number of its line or of its element (from 1)."""
        if self._array_elements is None:
            yield from self._read_lines()
        else:
            for first_index in range(0, len(self._array_elements), CHUNK_ROWS):
                yield self._array_elements[first_index : first_index + CHUNK_ROWS]

    def _read_lines(self) -> Iterator[list[tuple[int, bytes]]]:
        """Yield lists of filled lines with their numbers (from 1). A list has about four megabytes."""
        self._stream.rewind()
        first_line_number, incomplete_line, is_at_end = 1, b"", False
        while not is_at_end:
            block = self._stream.read(_READ_BYTES)
            is_at_end = not block
            *lines, incomplete_line = [incomplete_line, b""] if is_at_end else (incomplete_line + block).split(b"\n")
            numbered_lines = list(enumerate(lines, first_line_number))
            first_line_number += len(lines)
            for line_number, text in [*numbered_lines, (first_line_number, incomplete_line)]:
                if len(text) > _MAX_LINE_BYTES:
                    raise ContentError(
                        f"{self.name}: line {line_number} is longer than {_MAX_LINE_BYTES >> 20} MiB, which is not a "
                        "row; look in this line for a missing line end"
                    )
            if filled_lines := [
                (line_number, stripped_text) for line_number, text in numbered_lines if (stripped_text := text.strip())
            ]:
                yield filled_lines

    def _build_chunk(self, lines: list[tuple[int, bytes]], used_columns: Collection[str] | None) -> Chunk:
        row_by_line_number: dict[int, dict[str, object]] = {}
        fault_by_line_number: dict[int, tuple[str, str]] = {}
        for line_number, text in lines:
            try:
                parsed_object = load_object(text)
                row_by_line_number[line_number] = read_row(parsed_object, text)
            except ValueError as error:
                fault_by_line_number[line_number] = ("json", str(error))
                continue
            for key in find_repeated_keys(text, parsed_object):
                if used_columns is None or any(key in (name, *name.split(".")) for name in used_columns):
                    problem_text = f"has the key {key} more than once: keep the right value, delete the others"
                    fault_by_line_number[line_number] = ("json", problem_text)
        row_numbers = np.array(list(row_by_line_number), dtype=np.int64)
        text_columns = [
            build_texts(format_list_items([row.get(key) for row in row_by_line_number.values()])) for key in self._keys
        ]
        for index, problem_text in find_problems(self.columns, text_columns, used_columns).items():
            fault_by_line_number[int(row_numbers[index])] = ("encoding", problem_text)
        if used_columns is not None and self._inner_keys_by_mixed_column:
            for line_number, row in row_by_line_number.items():
                if object_problem := self._find_unread_object(row, frozenset(used_columns)):
                    fault_by_line_number[line_number] = ("json", object_problem)
        row_mask = np.isin(row_numbers, list(fault_by_line_number), invert=True)
        malformed_rows = tuple(
            MalformedRow(
                line_number,
                None if self._array_elements else line_number,
                format_bytes(text),
                *fault_by_line_number[line_number],
            )
            for line_number, text in lines
            if line_number in fault_by_line_number
        )
        table = pa.table([array for array, _ in text_columns], names=list(self.columns)).filter(pa.array(row_mask))
        return Chunk(build_frame(table), row_numbers[row_mask], malformed_rows, self.name)

    def _find_unread_object(self, row: Mapping[str, object], used_columns: frozenset[str]) -> str | None:
        """Return the problem of a row that has an object in a used column, if no key of the object is used. Else return
        None."""
        for column, inner_keys in self._inner_keys_by_mixed_column.items():
            filled_keys = [key for key in inner_keys if row.get(key) is not None]
            if column in used_columns and column not in row and filled_keys and used_columns.isdisjoint(filled_keys):
                return f"column {column} holds an object here, and other values in other rows: write one kind of value"
        return None


def split_array(text: str) -> Iterator[str]:
    """Yield the text of each element of a JSON array. Raises ValueError if the array is damaged, and IndexError if the
    array has no end."""
    decoder, position = json.JSONDecoder(), _skip_space(text, text.index("[") + 1)
    while text[position] != "]":
        end = decoder.raw_decode(text, position)[1]
        yield text[position:end]
        position = _skip_space(text, end)
        if text[position] == ",":
            position = _skip_space(text, position + 1)
        elif text[position] != "]":
            raise ValueError(f"a comma is missing at character {position}")
    if _skip_space(text, position + 1) < len(text):
        raise ValueError(f"more text follows the array at character {position + 1}")


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position


def load_object(text_bytes: bytes) -> dict[str, object]:
    """Return the object of a line of JSON. Raises ValueError if the line is not an object.

    NaN, which pandas writes, is read as null, and Infinity as a number.
    """
    try:
        parsed_value = orjson.loads(text_bytes)
    except orjson.JSONDecodeError as error:
        problem_text = f"is not JSON: {str(error).partition(': line')[0]}"
        try:
            parsed_value = json.loads(text_bytes, parse_constant=lambda name: None if name == "NaN" else float(name))
        except (ValueError, RecursionError):
            raise ValueError(problem_text) from None
    if not isinstance(parsed_value, dict):
        raise ValueError('is JSON, but not an object: a row looks like {"email": "ann@example.com"}')  # noqa: TRY004
    return parsed_value


def read_row(parsed_object: Mapping[str, object], text_bytes: bytes) -> dict[str, object]:
    """Return the values of an object by their paths (`address.city`). `text_bytes` is the line of the object.

    A number that a float cannot represent exactly is a Decimal. Raises ValueError for a repeated path, and for a path
    that is too deep.
    """
    row = _flatten_object(parsed_object)
    inexact_keys = [key for key, value in row.items() if type(value) is float and abs(value) >= _FIRST_INEXACT_NUMBER]
    if inexact_keys:
        exact_row = _flatten_object(json.loads(text_bytes, parse_float=Decimal))
        row |= {key: exact_row[key] for key in inexact_keys}
    return row


_KEY_END_PATTERN = re.compile(rb'"\s*:')
"""The end of a key. A text may contain the same characters, so a line may have more matches than keys."""


def find_repeated_keys(text_bytes: bytes, parsed_object: Mapping[str, object]) -> list[str]:
    """Return the keys that an object in the line `text_bytes` has more than once. `parsed_object` is the result of
    `load_object`.

    JSON parsers silently keep only one value of a repeated key. The pairs of keys and values are collected only if the
    line may have more keys than `parsed_object`. Collecting the pairs takes five times as long as counting the keys."""
    if text_bytes.count(b":") == len(parsed_object):
        return []
    if len(_KEY_END_PATTERN.findall(text_bytes)) == _count_keys(parsed_object):
        return []
    repeated_keys: list[str] = []

    def build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
        new_object = dict(pairs)
        if len(new_object) < len(pairs):
            repeated_keys.extend(key for key, key_count in Counter(key for key, _ in pairs).items() if key_count > 1)
        return new_object

    with suppress(ValueError, RecursionError):
        json.loads(text_bytes, object_pairs_hook=build_object)
    return repeated_keys


def _count_keys(json_value: object) -> int:
    key_count, pending_values = 0, [json_value]
    while pending_values:
        json_value = pending_values.pop()
        if isinstance(json_value, dict):
            key_count += len(json_value)
            pending_values += json_value.values()
        elif isinstance(json_value, list):
            pending_values += json_value
    return key_count


def _flatten_object(nested_object: Mapping[str, object], prefix: str = "", depth: int = 1) -> dict[str, object]:
    """Return each value by its path. A list is one value. Raises ValueError for a repeated path, and for a path that is
    too deep."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"holds objects inside objects, more than {_MAX_DEPTH} levels deep")
    if not prefix and dict not in map(type, nested_object.values()):
        return dict(nested_object)
    row: dict[str, object] = {}
    for key, value in nested_object.items():
        path = prefix + key
        inner_row = _flatten_object(value, f"{path}.", depth + 1) if isinstance(value, dict) else {path: value}
        for name in inner_row.keys() & row.keys():
            raise ValueError(f"has {name} twice: as a key with a dot, and as a key of an inner object")
        row |= inner_row
    return row
