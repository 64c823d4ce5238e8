"""The mapping at work on a chunk: a source's columns in, columns named after fields out, whole columns at once.

It trims and translates; whether a value is any good is validation's to say.
"""

from collections.abc import Mapping
from datetime import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from connector.fields import BY_NAME, Kind
from connector.mapping.override import require_columns
from connector.mapping.rules import ColumnRule, FieldMapping
from connector.mapping.tags import DEFAULT_SPLIT, build_tags

_TEXT = pd.StringDtype(na_value=np.nan)


def apply_mapping(frame: pd.DataFrame, mapping: FieldMapping) -> pd.DataFrame:
    """Make a chunk's frame (text columns) a frame of the mapped fields, with the same rows on the same index.

    Cells are trimmed; an empty one becomes missing. `tags` is a list<string> column of Arrow's, all others are `str`.
    Raises ConfigurationError if the mapping names a column that the frame does not have.
    """
    require_columns(mapping, list(frame.columns))
    columns = {name: _build_column(frame, name, rule) for name, rule in mapping.rules.items()}
    return pd.DataFrame(columns, index=frame.index)


def _build_column(frame: pd.DataFrame, name: str, rule: ColumnRule) -> pd.Series:
    cells = _read_cells(frame, rule)
    if rule.values is not None:
        cells = _replace(cells, rule.values)
    if rule.format is not None:
        cells = _parse_dates(cells, rule.format)
    cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.large_string()), cells)
    if BY_NAME[name].kind is Kind.TAGS:
        tags = build_tags(cells, rule.split or DEFAULT_SPLIT)
        return pd.Series(pd.arrays.ArrowExtensionArray(tags), index=frame.index)
    return pd.Series(cells, index=frame.index, dtype=_TEXT)


def _read_cells(frame: pd.DataFrame, rule: ColumnRule) -> pa.Array:
    if rule.column is None:
        return pa.repeat(pa.scalar((rule.value or "").strip(), pa.large_string()), len(frame))
    cells = pa.array(frame[rule.column], type=pa.large_string(), from_pandas=True)
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
    cells = pc.utf8_trim_whitespace(cells)
    return pc.replace_substring_regex(cells, r"^'([0-9+])", r"\1") if rule.is_apostrophe_dropped else cells


def _replace(cells: pa.Array, values: Mapping[str, str]) -> pa.Array:
    """Whole cells by the map; a missing one counts as empty, one that the map does not name stays as it is."""
    keys = pa.array([key.strip() for key in values], pa.large_string())
    news = pa.array([value.strip() for value in values.values()], pa.large_string())
    found = news.take(pc.index_in(pc.fill_null(cells, ""), keys))
    return pc.coalesce(found, cells)


def _parse_dates(cells: pa.Array, form: str) -> pa.Array:
    """Dates as YYYY-MM-DD. Python's own strptime, over distinct cells: Arrow's makes 31 February the 3rd of March."""
    coded = cells.dictionary_encode()
    dates = [None if cell is None else _parse_date(cell, form) for cell in coded.dictionary.to_pylist()]
    return pa.array(dates, pa.large_string()).take(coded.indices)


def _parse_date(cell: str, form: str) -> str:
    try:
        return datetime.strptime(cell, form).date().isoformat()  # noqa: DTZ007 - a birthday has no zone
    except ValueError:
        return cell  # validation rejects it, in the words that it came in
