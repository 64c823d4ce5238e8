"""The mapping applied to a chunk: a source's columns in, columns named after fields out, whole columns at once.

It reads and translates; whether a value may be sent is decided by the validation.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from connector.fields import BY_NAME, Kind, wire_name
from connector.outcomes import Fault
from connector.subscribers.cell_steps import (
    DEFAULT_SPLIT,
    build_tags,
    change_case,
    drop_apostrophes,
    drop_midnight,
    empty_to_null,
    parse_dates,
    read_column,
    replace_cells,
)
from connector.subscribers.rules import ColumnRule, FieldMapping, require_columns

_TEXT = pd.StringDtype(na_value=np.nan)


@dataclass(frozen=True, slots=True)
class MappedChunk:
    """A chunk's `frame` of the mapped fields, and `faults`: the rows whose template gave no text for a field."""

    frame: pd.DataFrame
    faults: tuple[Fault, ...] = ()


def apply_mapping(frame: pd.DataFrame, mapping: FieldMapping) -> MappedChunk:
    """Make a chunk's frame (text columns) a frame of the mapped fields, with the same rows on the same index.

    What is empty is missing. `tags` is a list<string> column of Arrow's, all others are `str`. Raises
    ConfigurationError if the mapping names a column that the frame does not have.
    """
    require_columns(mapping, list(frame.columns))
    columns: dict[str, pd.Series] = {}
    faults: list[Fault] = []
    for name, rule in mapping.rules.items():
        cells, failed = _read_source(frame, rule)
        columns[name] = _build_column(cells, name, rule, frame.index)
        message = f"{wire_name(BY_NAME[name])}: the template"
        faults += [Fault(position, name, "template", f"{message} {why}") for position, why in failed.items()]
    return MappedChunk(pd.DataFrame(columns, index=frame.index), tuple(faults))


def _build_column(cells: pa.Array, name: str, rule: ColumnRule, index: pd.Index) -> pd.Series:
    cells = _read_cells(cells, rule)
    if BY_NAME[name].kind is Kind.DATE:
        cells = drop_midnight(cells)
    if rule.default is not None:
        cells = pc.fill_null(cells, rule.default.strip() if rule.is_trimmed else rule.default)
    if BY_NAME[name].kind is Kind.TAGS:
        tags = build_tags(cells, rule.split or DEFAULT_SPLIT)
        return pd.Series(pd.arrays.ArrowExtensionArray(tags), index=index)
    return pd.Series(cells, index=index, dtype=_TEXT)


def _read_cells(cells: pa.Array, rule: ColumnRule) -> pa.Array:
    """The steps of a rule, in their order; null where nothing is left."""
    if rule.is_trimmed:
        cells = pc.utf8_trim_whitespace(cells)
    if rule.is_apostrophe_dropped:
        cells = drop_apostrophes(cells)
    if rule.case is not None:
        cells = change_case(cells, rule.case)
    if rule.values is not None:
        cells = replace_cells(cells, rule.values, is_trimmed=rule.is_trimmed)
    if rule.format:
        cells = parse_dates(cells, rule.format)
    return empty_to_null(cells)


def _read_source(frame: pd.DataFrame, rule: ColumnRule) -> tuple[pa.Array, dict[int, str]]:
    """Return a rule's cells as they come and, by position (0-based), why a template failed."""
    if rule.template is not None:
        return _fill_template(frame, rule.template, is_trimmed=rule.is_trimmed)
    if rule.column is None:
        return pa.repeat(pa.scalar(rule.value or "", pa.large_string()), len(frame)), {}
    return read_column(frame, rule.column, is_trimmed=False), {}


def _fill_template(frame: pd.DataFrame, text: str, *, is_trimmed: bool) -> tuple[pa.Array, dict[int, str]]:
    """The one rule that goes row by row; Jinja is imported only for it."""
    from connector.templates import TemplateError, compile_template

    template = compile_template(text)
    columns = [read_column(frame, name, is_trimmed=is_trimmed) for name in template.columns]
    rows = zip(*(pc.fill_null(column, "").to_pylist() for column in columns), strict=True)
    texts: list[str | None] = []
    failed: dict[int, str] = {}
    for position, cells in enumerate(rows if columns else [()] * len(frame)):
        try:
            texts.append(template.render(dict(zip(template.columns, cells, strict=True))))
        except TemplateError as error:
            texts.append(None)
            failed[position] = error.problem
    return pa.array(texts, pa.large_string()), failed
