"""Applies the mapping to a chunk: reads the columns of the source, and returns a column for each field.

The mapping reads and translates whole columns. The validation decides whether a value may be sent.
"""

import ast
import csv
import html
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from html.entities import html5
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from connector.fields import BY_NAME, DIGIT_FIELDS, FREE_FIELDS, NAME_FIELDS, Kind, wire_name
from connector.outcomes import Fault
from connector.subscribers.checks import TEXT, has_any, map_distinct, normalize_texts, read_cells
from connector.subscribers.rules import ColumnRule, FieldMapping, require_columns
from connector.texts import GUARDED


class Reading(NamedTuple):
    """A way in which a cell of a field was read as another value than its text: as missing, because the cell holds a
    `word` for a missing value, or with its HTML codes decoded (`word` is empty)."""

    field: str
    word: str


Readings = dict[Reading, npt.NDArray[np.int64]]
"""The positions (0-based) of the cells of each reading."""


@dataclass(frozen=True, slots=True)
class MappedChunk:
    """A chunk after its mapping: the `frame` of the fields, `readings`, and `faults` of rows without a value that could
    be validated."""

    frame: pd.DataFrame
    faults: tuple[Fault, ...]
    readings: Readings

    @property
    def null_positions(self) -> set[int]:
        """The positions of rows with a cell such as NULL, which was read as missing."""
        by_word = [positions for reading, positions in self.readings.items() if reading.word]
        return {position for positions in by_word for position in positions.tolist()}


def apply_mapping(frame: pd.DataFrame, mapping: FieldMapping, *, today: date = date.max) -> MappedChunk:
    """Return the mapped fields of a chunk's frame (text columns), with the same rows and index.

    Empty cells are missing. `tags` is an Arrow column of list<string>, and all other columns are `str`. Raises
    ConfigurationError if the frame lacks a column of the mapping.
    """
    require_columns(mapping, list(frame.columns))
    columns: dict[str, pd.Series] = {}
    faults: list[Fault] = []
    readings: Readings = {}
    for name, rule in mapping.rules.items():
        if rule.template is not None:
            cells, problems = _fill_template(frame, rule.template, is_trimmed=rule.is_trimmed)
            message = f"{wire_name(BY_NAME[name])}: the template"
            faults += [
                Fault(position, name, "template", f"{message} {problem}") for position, problem in problems.items()
            ]
        elif rule.column is None:
            cells = pa.repeat(pa.scalar(rule.value or "", pa.large_string()), len(frame))
        else:
            cells = read_cells(frame[rule.column])
        cells, field_readings = _apply_steps(cells, rule, name, today)
        readings |= field_readings
        if name in NAME_FIELDS and (unclear := field_readings.get(Reading(name, _NAME_OR_NULL))) is not None:
            alone = _find_lone(frame, rule.columns, unclear)
            faults += [Fault(row, name, "null", f"{wire_name(BY_NAME[name])} {_UNCLEAR}") for row in alone.tolist()]
        if BY_NAME[name].kind is Kind.TAGS:
            tags, unreadable = build_tags(cells, rule.split or DEFAULT_SPLIT)
            if rule.split is None and rule.value is None and (undivided := _find_undivided(cells)):
                faults += [
                    Fault(position, name, "split", f"{wire_name(BY_NAME[name])} {_UNDIVIDED}")
                    for position in undivided
                    if position not in unreadable
                ]
            columns[name] = pd.Series(pd.arrays.ArrowExtensionArray(tags), index=frame.index)
            message = f"{wire_name(BY_NAME[name])} {_UNREADABLE_LIST}"
            faults += [Fault(position, name, "list", message) for position in unreadable]
        else:
            columns[name] = pd.Series(cells, index=frame.index, dtype=TEXT)
    return MappedChunk(pd.DataFrame(columns, index=frame.index), tuple(faults), readings)


def _find_lone(frame: pd.DataFrame, columns: Sequence[str], positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the positions of the rows in which only `columns` have a word for a missing value."""
    rows = frame.iloc[positions]
    is_null = [rows[name].str.strip().isin(_NULL_TEXTS) for name in frame.columns if name not in columns]
    return positions[~np.logical_or.reduce(is_null)] if is_null else positions


def _fill_template(frame: pd.DataFrame, text: str, *, is_trimmed: bool) -> tuple[pa.Array, dict[int, str]]:
    """Return the text of each row and, by position from 0, why a row has no text."""
    from connector.templates import TemplateError, compile_template  # here: most mappings need no Jinja

    template = compile_template(text)
    columns = [read_cells(frame[name]) for name in template.columns]
    if is_trimmed:
        columns = [pc.utf8_trim_whitespace(column) for column in columns]
    rows = zip(*(pc.fill_null(column, "").to_pylist() for column in columns), strict=True)
    texts: list[str | None] = []
    problems: dict[int, str] = {}
    for position, cells in enumerate(rows if columns else [()] * len(frame)):
        try:
            texts.append(template.render(dict(zip(template.columns, cells, strict=True))))
        except TemplateError as error:
            texts.append(None)
            problems[position] = error.problem
    return pa.array(texts, pa.large_string()), problems


_CASES = {"lower": pc.utf8_lower, "upper": pc.utf8_upper, "title": pc.utf8_title}
_GUARDED_DIGITS = "^'('*[=+@\t\r\n-]|[0-9])"
"""GUARDED, or an apostrophe before a digit: with the apostrophe, Shopify and Excel keep the digits as text."""

_GUARDED_EMAIL = "^'([^@]*[^'@]@.*?)'?$"
"""An apostrophe before an address, or around an address as Outlook writes it. In `'ann'@example.com` the two belong to
the address."""

_FORMULA_TEXT = r'^="([^"]*)"$'
"""A formula that Excel keeps as text: `="0151"`."""

_QUOTED = r'^=?"([^"]*)"$'
"""_FORMULA_TEXT, or a text with two pairs of quotes in the CSV file: `\"\"\"Ann\"\"\"`."""

_LABELS = {"phone": r"^(?:p|tel|Tel|TEL): *", "address_zip": r"^z:"}
"""The letters of Facebook before a phone number (`p:`) and a zip code (`z:`), and `tel:` of links."""

_MIDNIGHT = r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]00:00(?::00(?:\.0+)?)?(?:Z|\+00:?00)?$"

_INVISIBLE = "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
"""Soft hyphens, spaces without width, marks of direction and BOMs, for a regular expression: texts that were copied
from a page or an address book have them."""

_UNSEEN = rf"[\s\pZ{_INVISIBLE}\x{{200c}}\x{{200d}}]"
_INVISIBLE_ENDS = rf"^{_UNSEEN}+|(\pM[\x{{200c}}\x{{200d}}])?{_UNSEEN}*$"
"""White space and invisible characters at both ends. A joiner after a mark stays: in Malayalam, a name may end with a
virama and a joiner, which form one letter with the letter before."""

_INVISIBLE_ANYWHERE = rf"[{_INVISIBLE}\x{{200c}}\x{{200d}}]"
_CODED = (Kind.EMAIL, Kind.FLAG, Kind.GENDER, Kind.COUNTRY, Kind.ZIP, Kind.DATE)
"""Kinds whose values are codes, which contain no invisible characters."""

_NULL_TEXTS = (
    "NULL", "null", "(null)", "[null]", "<null>", "None", "NaN", "nan", "NaT", "<NA>", "N/A", "n/a", "#N/A", "#NV",
    "#N/D", "#N/D!", "#N/B", "#N/DISP", "\\N", "undefined",
)  # fmt: skip
"""Words of programs for a missing value. `Null`, `Nan` and `NA` are not here, because they may be names."""

_ZERO_DATES = ("0000-00-00", "0000-00-00 00:00:00", "0000-00-00T00:00:00")
"""Texts of MySQL for a missing date."""

_NAME_OR_NULL = "None"
_UNCLEAR = (
    "is None, which may be a name, or the word of a program for a missing value. A job says which by the field's "
    'values: {"None": ""} for a missing value, or {"None": "None"} for the name'
)
"""None may be a name of a person. In a row with another word of `_NULL_TEXTS`, None means a missing value."""

_HTML_CODE = r"""&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);|\\['"]"""
"""A code of HTML, or a quote after the backslash that PHP and MySQL write (`O\\'Brien`)."""

_HTML_CODES = re.compile(_HTML_CODE)


def _apply_steps(cells: pa.Array, rule: ColumnRule, name: str, today: date) -> tuple[pa.Array, Readings]:
    """Apply the steps of a rule to the column of the field `name`. Empty cells become null. Also return the positions
    of cells with HTML codes, and of cells with a word for a missing value."""
    kind, readings, is_from_source = BY_NAME[name].kind, Readings(), rule.value is None and name not in FREE_FIELDS
    if is_from_source and name != "client_user_id":
        cells, decoded = _decode_html(cells, except_for=_MAY_BE_LIST if kind is Kind.TAGS else None)
        readings |= {Reading(name, ""): decoded} if len(decoded) else {}
    if rule.is_trimmed:
        cells = _trim(cells, is_code=kind in _CODED or name in DIGIT_FIELDS)
    if pc.any(pc.starts_with(cells, "'")).as_py():
        guarded = _GUARDED_DIGITS if name in DIGIT_FIELDS else _GUARDED_EMAIL if kind is Kind.EMAIL else GUARDED
        cells = pc.replace_substring_regex(cells, guarded, r"\1")
    if has_any(cells, b'"'):
        quoted = _FORMULA_TEXT if name in FREE_FIELDS or kind is Kind.TAGS else _QUOTED
        cells = pc.replace_substring_regex(cells, quoted, r"\1")
    if name == "phone" and has_any(cells, b".,"):
        cells = pc.replace_substring_regex(cells, r"^([+-]?[0-9]{5,})[.,]0+$", r"\1")
    if name in _LABELS and has_any(cells, b":"):
        cells = pc.replace_substring_regex(cells, _LABELS[name], "")
    if rule.case is not None:  # in NFC: Arrow does not change a letter whose accent is a separate character
        cells = _CASES[rule.case](normalize_texts(cells, "NFC"))
    is_translated: pa.Array | None = None
    if rule.values:
        pairs = [(key.strip(), new.strip()) if rule.is_trimmed else (key, new) for key, new in rule.values.items()]
        keys, replacements = (pa.array(texts, pa.large_string()) for texts in zip(*pairs, strict=True))
        indices = pc.index_in(pc.fill_null(cells, ""), keys)  # a missing cell counts as empty
        is_translated = indices.is_valid()
        cells = pc.coalesce(replacements.take(indices), cells)
    if rule.format:
        cells = _parse_dates(cells, rule.format, today)
    if is_from_source:
        words = (*_NULL_TEXTS, *_ZERO_DATES) if kind is Kind.DATE else _NULL_TEXTS
        is_null = pc.is_in(cells, pa.array(words, cells.type))
        if is_translated is not None:
            is_null = pc.and_not(is_null, is_translated)
        positions = np.flatnonzero(is_null.to_numpy(zero_copy_only=False))
        if len(positions):
            found_words = cells.take(pa.array(positions)).to_numpy(zero_copy_only=False)
            readings |= {Reading(name, word): positions[found_words == word] for word in set(found_words)}
            cells = pc.if_else(is_null, pa.scalar(None, cells.type), cells)
    cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.large_string()), cells)
    if kind is Kind.DATE:  # in a column of timestamps, a birthday is a midnight
        cells = pc.replace_substring_regex(cells, _MIDNIGHT, r"\1")
    if rule.default is not None:
        cells = pc.fill_null(cells, rule.default.strip() if rule.is_trimmed else rule.default)
    return cells, readings


def _decode_html(cells: pa.Array, except_for: str | None) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return the texts with decoded HTML codes (`M&uuml;ller`, `O&#39;Brien`), and the positions of changed texts.
    Texts that match the regular expression `except_for` stay."""
    if not has_any(cells, b"&\\"):
        return cells, np.empty(0, dtype=np.int64)
    has_codes = pc.fill_null(pc.match_substring_regex(cells, _HTML_CODE), False)
    if except_for is not None:
        has_codes = pc.and_not(has_codes, pc.match_substring_regex(cells, except_for))
    if not pc.any(has_codes).as_py():
        return cells, np.empty(0, dtype=np.int64)
    texts = cells.to_pylist()
    changed = []
    for position in pc.indices_nonzero(has_codes).to_pylist():
        if (decoded := _decode_text(texts[position])) != texts[position]:
            texts[position] = decoded
            changed.append(position)
    return pa.array(texts, cells.type), np.array(changed, dtype=np.int64)


def _decode_text(text: str) -> str:
    """Return a text with decoded HTML codes. Codes may be encoded twice (`&amp;#39;`)."""
    while (decoded := _HTML_CODES.sub(_decode_code, text)) != text:
        text = decoded
    return text


def _decode_code(code: re.Match[str]) -> str:
    name = code[0][1:]
    if code[0].startswith("\\"):
        return name
    return html.unescape(code[0]) if name.startswith("#") or name in html5 else code[0]


def _trim(cells: pa.Array, *, is_code: bool) -> pa.Array:
    """Remove white space and invisible characters at both ends. In codes (`is_code`), also remove invisible characters
    inside, and replace full-width characters by plain ones."""
    cells = pc.utf8_trim_whitespace(cells)
    if pc.all(pc.string_is_ascii(cells)).as_py() is not False:
        return cells
    if is_code:
        cells = pc.replace_substring_regex(cells, _INVISIBLE_ANYWHERE, "")
        is_wide = pc.match_substring_regex(cells, r"[\x{ff01}-\x{ff5e}]")
        cells = pc.if_else(is_wide, normalize_texts(cells, "NFKC"), cells)
    return pc.replace_substring_regex(cells, _INVISIBLE_ENDS, r"\1")


def _parse_dates(cells: pa.Array, formats: Sequence[str], today: date) -> pa.Array:
    """Return dates as YYYY-MM-DD. Python's strptime parses distinct cells, because Arrow reads 31 February as 3 March.

    A year of two digits is the latest year whose date is not after `today`."""

    def parse(cell: str) -> str:
        for format_ in formats:
            try:
                parsed = datetime.strptime(cell, format_).date()  # noqa: DTZ007 - a date has no time zone
                if "%y" in format_ and parsed > today:
                    parsed = parsed.replace(year=parsed.year - 100)
                return parsed.isoformat()
            except ValueError:
                continue
        return cell  # the validation rejects the unchanged cell

    return map_distinct(cells, parse)


# Tags

DEFAULT_SPLIT = ","

_TAGS = pa.list_(pa.string())
_UNREADABLE_LIST = (
    "is a list or an object that cannot be read as texts: tags are plain texts or numbers. Select these in the source, "
    "or map no column to tags"
)
_ARRAY_ITEM = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^",{}\\]*))\s*(,|$)')
"""An item of a PostgreSQL array as text, with or without quotes, and the comma or the end after it."""

_UNDIVIDED = (
    "has ;, | or a line break between texts, and only commas divide tags. Set the separator in the job: "
    'split: ";" (or split: "," for one tag)'
)
_MAY_BE_LIST = r"""^[\[{"]|^\(\s*["']|[\[{]\s*["']|["']\s*[\]}]"""
_LIST = re.compile(_MAY_BE_LIST)
_BRACKETED = re.compile(r'\[[^\[\]{}"]*\]|\{[^\[\]{}"]*\}')
_BRACKET = re.compile(r"[\[\]{}]")
_KEY = re.compile(r'"[^"]*"\s*:')
"""The key of an object. A key at the beginning, or a bracket outside `_BRACKETED`, shows that a list was cut."""


def build_tags(cells: pa.Array, split: str) -> tuple[pa.Array, list[int]]:
    """Return the tags of trimmed cells (large_string, null if empty) as a list<string> array.

    A JSON array of texts and numbers, a list of Python and an array of PostgreSQL (`{vip,news}`) are read as lists,
    without nulls. Other cells are cut at `split`. Tags are trimmed, and empty tags are left out. A cell without tags is
    null, except for an empty list. Also return the positions of cells that hold another list, an object, or a part of
    them. These cells are null.
    """
    coded = cells.dictionary_encode()  # equal cells are read once
    lists: list[list[str] | None] = []
    unreadable: list[int] = []
    for code, cell in enumerate(coded.dictionary.to_pylist()):
        try:
            lists.append(_read_tags(cell, split))
        except ValueError:
            lists.append(None)
            unreadable.append(code)
    positions = pc.indices_nonzero(pc.is_in(coded.indices, pa.array(unreadable, coded.indices.type))).to_pylist()
    return pa.array(lists, _TAGS).take(coded.indices), positions


def _find_undivided(cells: pa.Array) -> list[int]:
    """Return the positions of cells with a character that may separate tags (`;`, `|`, line break). Lists do not
    count."""
    if not has_any(cells, b";|\n"):
        return []
    is_undivided = pc.fill_null(pc.match_substring_regex(cells, "[;|\n]"), False)
    return pc.indices_nonzero(pc.and_not(is_undivided, pc.match_substring_regex(cells, _MAY_BE_LIST))).to_pylist()  # type: ignore[no-any-return] # pyarrow has no types


def _read_tags(cell: str, split: str) -> list[str] | None:
    """Return the tags of a cell: of a list, quoted tags of Mailchimp (`"VIP","Paris, France"`), tags in brackets
    (`[VIP], [news]`), or texts with the separator `split` between them.

    Raises ValueError for a list or an object that cannot be read, and for a part of a list."""
    if not _LIST.search(cell):
        return [text.strip() for text in cell.split(split) if text.strip()] or None
    if (cell[0], cell[-1]) in (("[", "]"), ("{", "}"), ("(", ")")) and (items := _read_list(cell)) is not None:
        texts = [value if isinstance(value, str) else _write_number(value) for value in items]
        texts = [_decode_text(text) for text in texts]
        "".join(texts).encode()  # raises UnicodeEncodeError for half a character, which JSON can hold
        return [text.strip() for text in texts if text.strip()]
    texts = cell.split(split)
    if cell.startswith('"') and len(split) == 1:
        with suppress(csv.Error):  # a line break outside quotes: the cell is not such a list
            texts = next(csv.reader([cell], delimiter=split, skipinitialspace=True))
    if _KEY.match(cell) or any(_BRACKET.search(_BRACKETED.sub("", text)) for text in texts):
        raise ValueError("a part of a list")
    return [text.strip() for text in texts if text.strip()] or None


def _write_number(value: object) -> str:
    """Return a number or a bool as text: 2024 for 2024.0. Raises ValueError for an infinite float, and for a whole
    number from 2**53 on, which may have lost digits."""
    if not isinstance(value, float):
        return orjson.dumps(value).decode()
    if not math.isfinite(value) or (abs(value) >= 2.0**53 and value.is_integer()):
        raise ValueError("digits are lost")
    return f"{Decimal(repr(value)):f}".removesuffix(".0")


def _read_list(cell: str) -> list[object] | None:
    """Return the items of a list of JSON, Python or PostgreSQL without nulls, or None for a text in brackets. Raises
    ValueError for an object, and for a list of lists or objects."""
    parsed: object
    try:
        parsed = orjson.loads(cell)
    except orjson.JSONDecodeError:
        parsed = _read_array(cell) if cell.startswith("{") and not cell.startswith("{'") else _read_literal(cell)
    if parsed is None:
        return None
    if parsed == {}:  # an empty array of PostgreSQL
        return []
    if not isinstance(parsed, list) or not all(isinstance(item, str | int | float | None) for item in parsed):
        raise ValueError("not a list of plain values")
    return [item for item in parsed if item is not None]


def _read_literal(cell: str) -> object:
    """Return the list, set or tuple of a Python literal as a list, or None for another text. Raises ValueError for a
    NumPy array of texts: Python would join texts without commas."""
    if re.search(r"""['"]\s+['"]""", cell):
        raise ValueError("no comma between two texts")
    try:
        parsed = ast.literal_eval(cell)
        if isinstance(parsed, set):  # as a list, because a set loses the order
            return ast.literal_eval(f"[{cell[1:-1]}]")
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return list(parsed) if isinstance(parsed, tuple) else parsed


def _read_array(cell: str) -> list[object] | None:
    """Return the items of a one-dimensional PostgreSQL array (`{vip,"a, b",NULL}`), or None."""
    items = list[object]()
    text, offset = cell[1:-1], 0
    while text.strip():
        match = _ARRAY_ITEM.match(text, offset)
        if match is None:
            return None
        quoted, bare, end = match.groups()
        if quoted is not None:
            items.append(re.sub(r"\\(.)", r"\1", quoted))
        elif bare.strip().upper() != "NULL":
            items.append(bare.strip())
        if not end:
            break
        offset = match.end()
    return items
