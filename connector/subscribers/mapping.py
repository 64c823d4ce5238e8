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
from typing import NamedTuple, assert_never

import numpy as np
import numpy.typing as npt
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from connector.fields import FIELD_BY_NAME, FieldContent, FieldKind
from connector.outcomes import Fault
from connector.subscribers.checks import (
    EMPTY_MARKS,
    NA_TEXT,
    NULL_TEXTS,
    TAGS,
    TEXT,
    UNSPECIFIED_GENDERS,
    ZERO_DATES,
    contains_any_character,
    convert_distinct_texts,
    normalize_texts,
    read_cells,
)
from connector.subscribers.rules import ColumnRule, FieldMapping, normalise_header, require_columns
from connector.texts import ESCAPED_FORMULA_PATTERN


class Reinterpretation(NamedTuple):
    """The reason why the values of some cells of a field differ from the texts of the cells. Either the cells have the
    text `null_text`, such as NULL, and were read as missing. Or their HTML codes were decoded, and `null_text` is
    empty."""

    field: str
    null_text: str


ReinterpretedCells = dict[Reinterpretation, npt.NDArray[np.int64]]
"""The positions (from 0) of cells whose value differs from their text, by the reason for the difference."""


@dataclass(frozen=True, slots=True)
class MappedChunk:
    """A chunk after its mapping: the `frame` with a column for each field, the `reinterpreted_cells`, and the `faults`
    of rows with a cell that the mapping could not read."""

    frame: pd.DataFrame
    faults: tuple[Fault, ...]
    reinterpreted_cells: ReinterpretedCells

    @property
    def null_positions(self) -> set[int]:
        """The positions of rows with a cell that was read as missing, such as NULL."""
        return {
            position
            for reinterpretation, positions in self.reinterpreted_cells.items()
            if reinterpretation.null_text
            for position in positions.tolist()
        }


def apply_mapping(frame: pd.DataFrame, mapping: FieldMapping, *, today: date = date.max) -> MappedChunk:
    """Return the mapped fields of a chunk. `frame` has text columns. The result has the same rows and index.

    Empty cells are missing. `tags` is an Arrow column of list<string>, and all other columns are `str`. Raises
    ConfigurationError if the frame lacks a column of the mapping.
    """
    require_columns(mapping, list(frame.columns))
    column_by_field: dict[str, pd.Series] = {}
    faults: list[Fault] = []
    reinterpreted_cells: ReinterpretedCells = {}
    for name, rule in mapping.rules.items():
        field = FIELD_BY_NAME[name]
        if rule.template is not None:
            cells, problem_by_position = _fill_template(frame, rule.template, is_trimmed=rule.is_trimmed)
            faults += [
                Fault(position, name, "template", f"{name}: the template {problem}")
                for position, problem in problem_by_position.items()
            ]
        elif rule.column is None:
            cells = pa.repeat(pa.scalar(rule.value or "", pa.large_string()), len(frame))
        else:
            cells = read_cells(frame[rule.column])
        cells, reinterpreted_field_cells = _apply_steps(cells, rule, name, today, frame)
        reinterpreted_cells |= reinterpreted_field_cells
        none_text_positions = reinterpreted_field_cells.get(Reinterpretation(name, _NONE_TEXT))
        if field.content is FieldContent.NAME and none_text_positions is not None:
            positions_without_null_elsewhere = _select_positions_without_null_elsewhere(
                frame, rule.columns, none_text_positions, (*NULL_TEXTS, NA_TEXT)
            ).tolist()
            message = f"{name} {_NONE_TEXT_MESSAGE}"
            faults += [Fault(position, name, "null", message) for position in positions_without_null_elsewhere]
        if field.kind is FieldKind.TAGS:
            tags, unreadable_positions = build_tags(cells, rule.split or ",")
            if rule.split is None and rule.value is None:
                faults += [
                    Fault(position, name, "split", f"{name} {_OTHER_SEPARATOR_MESSAGE}")
                    for position in _find_cells_with_other_separator(cells)
                    if position not in unreadable_positions
                ]
            column_by_field[name] = pd.Series(pd.arrays.ArrowExtensionArray(tags), index=frame.index)
            message = f"{name} {_UNREADABLE_LIST_MESSAGE}"
            faults += [Fault(position, name, "list", message) for position in unreadable_positions]
        else:
            column_by_field[name] = pd.Series(cells, index=frame.index, dtype=TEXT)
    return MappedChunk(pd.DataFrame(column_by_field, index=frame.index), tuple(faults), reinterpreted_cells)


def _select_positions_without_null_elsewhere(
    frame: pd.DataFrame, columns: Sequence[str], positions: npt.NDArray[np.int64], null_texts: Sequence[str]
) -> npt.NDArray[np.int64]:
    """Return the `positions` of rows that have none of the `null_texts` outside of `columns`."""
    rows = frame.iloc[positions]
    null_masks = [rows[name].str.strip().isin(null_texts) for name in frame.columns if name not in columns]
    return positions[~np.logical_or.reduce(null_masks)] if null_masks else positions


def _fill_template(frame: pd.DataFrame, template_text: str, *, is_trimmed: bool) -> tuple[pa.Array, dict[int, str]]:
    """Return the text of each row, and a message for each row without a text, by position from 0."""
    # Imported here, because the module imports Jinja, which most mappings do not need.
    from connector.templates import TemplateError, compile_template

    template = compile_template(template_text)
    cell_columns = [read_cells(frame[name]) for name in template.columns]
    if is_trimmed:
        cell_columns = [pc.utf8_trim_whitespace(column) for column in cell_columns]
    rows = zip(*(pc.fill_null(column, "").to_pylist() for column in cell_columns), strict=True)
    texts: list[str | None] = []
    problem_by_position: dict[int, str] = {}
    for position, cells in enumerate(rows if cell_columns else [()] * len(frame)):
        try:
            texts.append(template.render(dict(zip(template.columns, cells, strict=True))))
        except TemplateError as error:
            texts.append(None)
            problem_by_position[position] = error.problem
    return pa.array(texts, pa.large_string()), problem_by_position


_CASE_FUNCTION_BY_NAME = {"lower": pc.utf8_lower, "upper": pc.utf8_upper, "title": pc.utf8_title}
_FORMULA_OR_DIGIT_AFTER_APOSTROPHE_PATTERN = "^'('*[=+@\t\r\n-]|[0-9])"
"""The pattern ESCAPED_FORMULA_PATTERN, or an apostrophe before a digit. Shopify and Excel write an apostrophe before
digits to keep the digits as text."""

_EMAIL_AFTER_APOSTROPHE_PATTERN = "^'([^@]*[^'@]@.*?)'?$"
"""An apostrophe before an address, or two apostrophes around an address, as Outlook writes them. In `'ann'@example.com`
the apostrophes are part of the address."""

_FORMULA_TEXT_PATTERN = r'^="([^"]*)"$'
"""A formula that makes Excel keep digits as text: `="0151"`."""

_QUOTED_TEXT_PATTERN = r'^=?"([^"]*)"$'
"""The pattern _FORMULA_TEXT_PATTERN, or a text in quotes: `\"\"\"Ann\"\"\"` in a CSV file."""

_LABEL_PATTERN_BY_FIELD = {"phone": r"^(?:p|tel|Tel|TEL): *", "address_zip": r"^z:"}
"""The letters that Facebook writes before a phone number (`p:`) and a zip code (`z:`), and the `tel:` of links."""

_MIDNIGHT_PATTERN = r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]00:00(?::00(?:\.0+)?)?(?:Z| ?UTC|\+00(?::?00)?)?$"

_INVISIBLE_CHARACTERS = "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
"""Soft hyphens, spaces without width, direction marks and byte order marks, for a regular expression. Texts that were
copied from a web page or an address book may have these characters."""

_SPACE_OR_INVISIBLE_PATTERN = rf"[\s\pZ{_INVISIBLE_CHARACTERS}\x{{200c}}\x{{200d}}]"
_SPACE_OR_INVISIBLE_ENDS_PATTERN = (
    rf"^{_SPACE_OR_INVISIBLE_PATTERN}+|(\pM[\x{{200c}}\x{{200d}}])?{_SPACE_OR_INVISIBLE_PATTERN}*$"
)
"""White space and invisible characters at both ends. A joiner after a mark stays: in Malayalam, a name may end with a
virama and a joiner, which form one letter with the letter before."""

_ANY_INVISIBLE_PATTERN = rf"[{_INVISIBLE_CHARACTERS}\x{{200c}}\x{{200d}}]"


def _has_fixed_form(kind: FieldKind) -> bool:
    """Return whether the values of this kind have a fixed form, for example a date. A value with a fixed form contains
    no invisible characters."""
    match kind:
        case FieldKind.EMAIL | FieldKind.FLAG | FieldKind.GENDER | FieldKind.COUNTRY | FieldKind.ZIP | FieldKind.DATE:
            return True
        case FieldKind.NUMBER | FieldKind.TEXT | FieldKind.NULLABLE_TEXT | FieldKind.TAGS:
            return False
    assert_never(kind)


_NONE_TEXT = "None"
_NONE_TEXT_MESSAGE = (
    "is `None`, which may be a name, or the word of a program for a missing value. Decide in the rule of the field in "
    'a job: `values: {"None": ""}` for a missing value, or `values: {"None": "None"}` for the name'
)
"""The end of the message about a cell with the text None, which may be a person's name. If another column of the row
has a word of `NULL_TEXTS`, None means a missing value, and the row has no fault."""


def _list_null_texts(kind: FieldKind, content: FieldContent) -> tuple[str, ...]:
    """Return the texts that always mean a missing value in a field of this kind and content."""
    match kind:
        case FieldKind.DATE:
            return (*NULL_TEXTS, *EMPTY_MARKS, NA_TEXT, *ZERO_DATES)
        case FieldKind.GENDER:
            return (*NULL_TEXTS, *EMPTY_MARKS, NA_TEXT, *UNSPECIFIED_GENDERS)
        case FieldKind.COUNTRY:  # NA is the code of Namibia
            return (*NULL_TEXTS, *EMPTY_MARKS)
        case (
            FieldKind.NUMBER
            | FieldKind.FLAG
            | FieldKind.TEXT
            | FieldKind.NULLABLE_TEXT
            | FieldKind.EMAIL
            | FieldKind.TAGS
            | FieldKind.ZIP
        ):
            return (*NULL_TEXTS, *EMPTY_MARKS, NA_TEXT) if content.is_digits else NULL_TEXTS
    assert_never(kind)


_HTML_CODE_PATTERN = r"""&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);|\\['"]"""
"""An HTML entity such as `&amp;`, or a quote with the backslash that PHP and MySQL put before it (`O\\'Brien`)."""


def _apply_steps(
    cells: pa.Array, rule: ColumnRule, name: str, today: date, frame: pd.DataFrame
) -> tuple[pa.Array, ReinterpretedCells]:
    """Apply the steps of a rule to the column of the field `name`, and replace empty cells by null. Also return the
    positions of cells with HTML codes, and of cells with a word for a missing value. `frame` has all columns of the
    source."""
    kind, content, reinterpreted_cells = FIELD_BY_NAME[name].kind, FIELD_BY_NAME[name].content, ReinterpretedCells()
    may_reinterpret_cells = rule.value is None and content is not FieldContent.ANY_TEXT
    if may_reinterpret_cells and content is not FieldContent.ID:
        excluded_pattern = _LIST_PATTERN if kind is FieldKind.TAGS else None
        cells, decoded_positions = _decode_html(cells, excluded_pattern)
        reinterpreted_cells |= {Reinterpretation(name, ""): decoded_positions} if len(decoded_positions) else {}
    if rule.is_trimmed:
        cells = _trim_cells(cells, has_fixed_form_values=_has_fixed_form(kind) or content.is_digits)
    if pc.any(pc.starts_with(cells, "'")).as_py():
        pattern = _EMAIL_AFTER_APOSTROPHE_PATTERN if kind is FieldKind.EMAIL else ESCAPED_FORMULA_PATTERN
        if content.is_digits:
            pattern = _FORMULA_OR_DIGIT_AFTER_APOSTROPHE_PATTERN
        cells = pc.replace_substring_regex(cells, pattern, r"\1")
    if contains_any_character(cells, b'"'):
        keeps_quotes = content is FieldContent.ANY_TEXT or kind is FieldKind.TAGS
        pattern = _FORMULA_TEXT_PATTERN if keeps_quotes else _QUOTED_TEXT_PATTERN
        cells = pc.replace_substring_regex(cells, pattern, r"\1")
    if name == "phone" and contains_any_character(cells, b".,"):
        cells = pc.replace_substring_regex(cells, r"^([+-]?[0-9]{5,})[.,]0+$", r"\1")
    if name in _LABEL_PATTERN_BY_FIELD and contains_any_character(cells, b":"):
        cells = pc.replace_substring_regex(cells, _LABEL_PATTERN_BY_FIELD[name], "")
    # Words for a missing value are searched in the cells before the change of case. In title case, NULL would become
    # the name Null.
    cells_before_case_change = cells
    if rule.case is not None:  # in NFC, because Arrow does not change the case of a letter with a separate accent
        cells = _CASE_FUNCTION_BY_NAME[rule.case](normalize_texts(cells, "NFC"))
    replaced_mask: pa.Array | None = None
    if rule.values:
        pairs = [
            (key.strip(), replacement.strip()) if rule.is_trimmed else (key, replacement)
            for key, replacement in rule.values.items()
        ]
        replaced_texts, replacements = (pa.array(texts, pa.large_string()) for texts in zip(*pairs, strict=True))
        indices = pc.index_in(pc.fill_null(cells, ""), replaced_texts)  # a missing cell counts as empty
        replaced_mask = indices.is_valid()
        cells = pc.coalesce(replacements.take(indices), cells)
    if rule.format:
        cells = _parse_dates(cells, rule.format, today)
    if may_reinterpret_cells:
        null_mask = pc.is_in(cells_before_case_change, pa.array(_list_null_texts(kind, content), cells.type))
        if content is FieldContent.NAME or kind is FieldKind.COUNTRY:
            na_positions = np.flatnonzero(pc.fill_null(pc.equal(cells_before_case_change, NA_TEXT), False))
            if len(na_positions):
                # NA means a missing value only if another column of the row has NA, too. But a second column of
                # countries does not count, because both cells may mean Namibia.
                is_country = kind is FieldKind.COUNTRY
                skipped_columns = [name for name in frame.columns if is_country and "country" in normalise_header(name)]
                # NULL in another column does not count: a program that writes NULL for a missing value does not write
                # NA.
                positions_without_null_elsewhere = _select_positions_without_null_elsewhere(
                    frame, [*rule.columns, *skipped_columns], na_positions, [NA_TEXT]
                )
                missing_mask = np.zeros(len(cells), dtype=bool)
                missing_mask[np.setdiff1d(na_positions, positions_without_null_elsewhere)] = True
                null_mask = pc.or_(null_mask, pa.array(missing_mask))
        if replaced_mask is not None:
            null_mask = pc.and_not(null_mask, replaced_mask)
        null_positions = np.flatnonzero(null_mask.to_numpy(zero_copy_only=False))
        if len(null_positions):
            null_texts = cells_before_case_change.take(pa.array(null_positions)).to_numpy(zero_copy_only=False)
            reinterpreted_cells |= {
                Reinterpretation(name, null_text): null_positions[null_texts == null_text]
                for null_text in set(null_texts)
            }
            cells = pc.if_else(null_mask, pa.scalar(None, cells.type), cells)
    cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.large_string()), cells)
    if kind is FieldKind.DATE:  # a birthday from a column of timestamps has a time: 1990-05-02 00:00:00
        cells = pc.replace_substring_regex(cells, _MIDNIGHT_PATTERN, r"\1")
    if rule.default is not None:
        cells = pc.fill_null(cells, rule.default.strip() if rule.is_trimmed else rule.default)
    return cells, reinterpreted_cells


def _decode_html(cells: pa.Array, excluded_pattern: str | None) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Decode the HTML codes of the texts (`M&uuml;ller`, `O&#39;Brien`). Texts that match the regular expression
    `excluded_pattern` are not changed. Also return the positions of the changed texts."""
    if not contains_any_character(cells, b"&\\"):
        return cells, np.empty(0, dtype=np.int64)
    html_code_mask = pc.fill_null(pc.match_substring_regex(cells, _HTML_CODE_PATTERN), False)
    if excluded_pattern is not None:
        html_code_mask = pc.and_not(html_code_mask, pc.match_substring_regex(cells, excluded_pattern))
    if not pc.any(html_code_mask).as_py():
        return cells, np.empty(0, dtype=np.int64)
    texts = cells.to_pylist()
    changed_positions = []
    for position in pc.indices_nonzero(html_code_mask).to_pylist():
        if (decoded_text := _decode_text(texts[position])) != texts[position]:
            texts[position] = decoded_text
            changed_positions.append(position)
    return pa.array(texts, cells.type), np.array(changed_positions, dtype=np.int64)


def _decode_text(text: str) -> str:
    """Return a text with decoded HTML codes. Codes may be encoded twice (`&amp;#39;`)."""
    while (decoded_text := re.sub(_HTML_CODE_PATTERN, _decode_html_code, text)) != text:
        text = decoded_text
    return text


def _decode_html_code(match: re.Match[str]) -> str:
    html_code_name = match[0][1:]
    if match[0].startswith("\\"):
        return html_code_name
    return html.unescape(match[0]) if html_code_name.startswith("#") or html_code_name in html5 else match[0]


def _trim_cells(cells: pa.Array, *, has_fixed_form_values: bool) -> pa.Array:
    """Remove white space and invisible characters at both ends. If the cells have values of a fixed form, such as dates
    or digits, also remove all other invisible characters, and replace full-width characters by plain characters."""
    cells = pc.utf8_trim_whitespace(cells)
    if pc.all(pc.string_is_ascii(cells)).as_py() is not False:
        return cells
    if has_fixed_form_values:
        cells = pc.replace_substring_regex(cells, _ANY_INVISIBLE_PATTERN, "")
        full_width_mask = pc.match_substring_regex(cells, r"[\x{ff01}-\x{ff5e}]")
        cells = pc.if_else(full_width_mask, normalize_texts(cells, "NFKC"), cells)
    return pc.replace_substring_regex(cells, _SPACE_OR_INVISIBLE_ENDS_PATTERN, r"\1")


def _parse_dates(cells: pa.Array, date_formats: Sequence[str], today: date) -> pa.Array:
    """Return the dates as YYYY-MM-DD. Python's strptime parses the cells instead of Arrow, because Arrow would read 31
    February as 3 March. Equal cells are parsed once.

    A year of two digits means the latest year with these last digits whose date is not after `today`."""

    def parse_date(cell: str) -> str:
        for date_format in date_formats:
            try:
                parsed_date = datetime.strptime(cell, date_format).date()  # noqa: DTZ007 - a date has no time zone
                if "%y" in date_format and parsed_date > today:
                    parsed_date = parsed_date.replace(year=parsed_date.year - 100)
                return parsed_date.isoformat()
            except ValueError:
                continue
        return cell  # the validation rejects the unchanged cell

    return convert_distinct_texts(cells, parse_date)


# Tags

_UNREADABLE_LIST_MESSAGE = (
    "is a list or an object that cannot be read as texts: tags are plain texts or numbers. Select plain texts in the "
    "source, or map no column to the field `tags`"
)
_ARRAY_ITEM_PATTERN = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^",{}\\]*))\s*(,|$)')
"""An item of a PostgreSQL array in text form, with or without quotes, and the comma or the end after the item."""

_OTHER_SEPARATOR_MESSAGE = (
    "has a semicolon, a bar (|) or a line break, and only commas divide tags. In the job, set `split` to the character "
    'that divides the tags, for example `split: ";"`. If the cell is one tag, set `split: ","`'
)
_LIST_PATTERN = r"""^[\[{"]|^\(\s*["']|[\[{]\s*["']|["']\s*[\]}]"""
_BRACKETED_PATTERN = re.compile(r'\[[^\[\]{}"]*\]|\{[^\[\]{}"]*\}')
_BRACKET_PATTERN = re.compile(r"[\[\]{}]")
"""A bracket. A cell with a bracket that is not in a match of `_BRACKETED_PATTERN` is a part of a list or an object."""
_JSON_KEY_PATTERN = re.compile(r'"[^"]*"\s*:')
"""The key of a JSON object. A cell that begins with a key is a part of an object."""


def build_tags(cells: pa.Array, separator: str) -> tuple[pa.Array, list[int]]:
    """Return the tags of trimmed cells (large_string, null if empty) as a list<string> array.

    A JSON array of texts and numbers, a Python list and a PostgreSQL array (`{vip,news}`) are read as lists, without
    nulls. Other cells are cut at `separator`. Tags are trimmed, and empty tags are left out. An empty list stays an
    empty list, and other cells without tags are null.

    Also return the positions of cells that hold any other list, an object, or a part of a list or an object. These
    cells are null, too.
    """
    encoded_cells = cells.dictionary_encode()  # equal cells are read once
    lists: list[list[str] | None] = []
    unreadable_cell_indices: list[int] = []
    for cell_index, cell in enumerate(encoded_cells.dictionary.to_pylist()):
        try:
            lists.append(_read_tags(cell, separator))
        except ValueError:
            lists.append(None)
            unreadable_cell_indices.append(cell_index)
    positions = pc.indices_nonzero(
        pc.is_in(encoded_cells.indices, pa.array(unreadable_cell_indices, encoded_cells.indices.type))
    ).to_pylist()
    return pa.array(lists, TAGS.pyarrow_dtype).take(encoded_cells.indices), positions


def _find_cells_with_other_separator(cells: pa.Array) -> list[int]:
    """Return the positions of cells with a character that may separate tags (`;`, `|`, line break). Cells with a list
    are left out."""
    if not contains_any_character(cells, b";|\n"):
        return []
    other_separator_mask = pc.fill_null(pc.match_substring_regex(cells, "[;|\n]"), False)
    list_mask = pc.match_substring_regex(cells, _LIST_PATTERN)
    return pc.indices_nonzero(pc.and_not(other_separator_mask, list_mask)).to_pylist()  # type: ignore[no-any-return] # pyarrow has no types


def _read_tags(cell: str, separator: str) -> list[str] | None:
    """Return the tags of a cell. Raises ValueError for a list or an object that cannot be read, and for a part of a
    list.

    Forms of cells:
    - a list
    - tags in quotes, as Mailchimp writes tags (`"VIP","Paris, France"`)
    - tags in brackets (`[VIP], [news]`)
    - texts that are separated by `separator`
    """
    if not re.search(_LIST_PATTERN, cell):
        return [text.strip() for text in cell.split(separator) if text.strip()] or None
    if (cell[0], cell[-1]) in (("[", "]"), ("{", "}"), ("(", ")")) and (items := _read_list(cell)) is not None:
        texts = [value if isinstance(value, str) else _format_number(value) for value in items]
        texts = [_decode_text(text) for text in texts]
        "".join(texts).encode()  # raises UnicodeEncodeError for a lone surrogate, which JSON allows
        return [text.strip() for text in texts if text.strip()]
    texts = cell.split(separator)
    if cell.startswith('"') and len(separator) == 1:
        with suppress(csv.Error):  # a cell with a line break outside quotes is not a list of quoted tags
            texts = next(csv.reader([cell], delimiter=separator, skipinitialspace=True))
    if _JSON_KEY_PATTERN.match(cell) or any(
        _BRACKET_PATTERN.search(_BRACKETED_PATTERN.sub("", text)) for text in texts
    ):
        raise ValueError("the cell is a part of a list or an object")
    return [text.strip() for text in texts if text.strip()] or None


def _format_number(number: object) -> str:
    """Return a number or a bool as text: `2024` for 2024.0. Raises ValueError for an infinite float, and for a whole
    float of 2**53 or more, which may have lost digits."""
    if not isinstance(number, float):
        return orjson.dumps(number).decode()
    if not math.isfinite(number) or (abs(number) >= 2.0**53 and number.is_integer()):
        raise ValueError("the number may have lost digits")
    return f"{Decimal(repr(number)):f}".removesuffix(".0")


def _read_list(cell: str) -> list[object] | None:
    """Return the items, without nulls, of a list that JSON, Python or PostgreSQL has written. Return None for a text in
    brackets that is not a list. Raises ValueError for an object, and for a list of lists or objects."""
    parsed_value: object
    try:
        parsed_value = orjson.loads(cell)
    except orjson.JSONDecodeError:
        parsed_value = _read_array(cell) if cell.startswith("{") and not cell.startswith("{'") else _read_literal(cell)
    if parsed_value is None:
        return None
    if parsed_value == {}:  # an empty array of PostgreSQL
        return []
    if not isinstance(parsed_value, list) or not all(
        isinstance(item, str | int | float | None) for item in parsed_value
    ):
        raise ValueError("the cell is not a list of plain values")
    return [item for item in parsed_value if item is not None]


def _read_literal(cell: str) -> object:
    """Return the list, set or tuple of a Python literal as a list, or None for another text. Raises ValueError for a
    NumPy array of texts such as `['a' 'b']`, because Python would read `['ab']`."""
    if re.search(r"""['"]\s+['"]""", cell):
        raise ValueError("the cell has two texts without a comma between them")
    try:
        parsed_value = ast.literal_eval(cell)
        if isinstance(parsed_value, set):  # a set has no order, so the cell is parsed again as a list
            return ast.literal_eval(f"[{cell[1:-1]}]")
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return list(parsed_value) if isinstance(parsed_value, tuple) else parsed_value


def _read_array(cell: str) -> list[object] | None:
    """Return the items of a one-dimensional PostgreSQL array (`{vip,"a, b",NULL}`), or None."""
    items = list[object]()
    text, offset = cell[1:-1], 0
    while text.strip():
        match = _ARRAY_ITEM_PATTERN.match(text, offset)
        if match is None:
            return None
        quoted_text, bare_text, separator = match.groups()
        if quoted_text is not None:
            items.append(re.sub(r"\\(.)", r"\1", quoted_text))
        elif bare_text.strip().upper() != "NULL":
            items.append(bare_text.strip())
        if not separator:
            break
        offset = match.end()
    return items
