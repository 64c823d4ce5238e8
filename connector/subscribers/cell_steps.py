"""The steps that a field's cells go through, each over a whole column: large_string in and out, null = missing."""

import csv
from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

_MIDNIGHT = r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]00:00(?::00(?:\.0+)?)?(?:Z|\+00:?00)?$"

_CASES = {"lower": pc.utf8_lower, "upper": pc.utf8_upper, "title": pc.utf8_title}


def read_column(frame: pd.DataFrame, column: str, *, is_trimmed: bool) -> pa.Array:
    """Return the cells of a chunk's column, as one array."""
    cells = pa.array(frame[column], type=pa.large_string(), from_pandas=True)
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
    return pc.utf8_trim_whitespace(cells) if is_trimmed else cells


def empty_to_null(cells: pa.Array) -> pa.Array:
    """Return the cells with empty ones as null."""
    return pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.large_string()), cells)


def change_case(cells: pa.Array, case: str) -> pa.Array:
    """Change all letters to lower or upper case, or each word to title case."""
    return _CASES[case](cells)


def replace_cells(cells: pa.Array, values: Mapping[str, str], *, is_trimmed: bool) -> pa.Array:
    """Replace whole cells by the map; a missing one counts as empty, one that the map does not name stays."""
    trimmed = {key.strip(): value.strip() for key, value in values.items()} if is_trimmed else dict(values)
    keys, news = pa.array(list(trimmed), pa.large_string()), pa.array(list(trimmed.values()), pa.large_string())
    found = news.take(pc.index_in(pc.fill_null(cells, ""), keys))
    return pc.coalesce(found, cells)


def drop_apostrophes(cells: pa.Array) -> pa.Array:
    """Return the cells without a leading apostrophe that stands before a digit or a plus."""
    return pc.replace_substring_regex(cells, r"^'([0-9+])", r"\1")


def parse_dates(cells: pa.Array, forms: Sequence[str]) -> pa.Array:
    """Return dates as YYYY-MM-DD, by Python's strptime over distinct cells: Arrow's makes 31 February 3 March."""
    coded = cells.dictionary_encode()
    dates = [None if cell is None else _parse_date(cell, forms) for cell in coded.dictionary.to_pylist()]
    return pa.array(dates, pa.large_string()).take(coded.indices)


def drop_midnight(cells: pa.Array) -> pa.Array:
    """Return midnights (`1980-02-29T00:00:00`, from a column of timestamps) as dates; other cells as they are."""
    return pc.replace_substring_regex(cells, _MIDNIGHT, r"\1")


def _parse_date(cell: str, forms: Sequence[str]) -> str:
    for form in forms:
        try:
            return datetime.strptime(cell, form).date().isoformat()  # noqa: DTZ007 - a birthday has no zone
        except ValueError:
            continue
    return cell  # validation rejects it, in the words that it came in


# Tags

DEFAULT_SPLIT = ","

_TAGS = pa.list_(pa.string())


def build_tags(cells: pa.Array, split: str) -> pa.Array:
    """Make trimmed cells (large_string, null where empty) a list<string> array of the same length.

    A JSON array of texts and numbers is that list, without its nulls; other cells are cut at `split`. Tags are trimmed,
    empty ones left out; a cell without any tag is null, save for the JSON array that is empty itself.
    """
    is_special = pc.fill_null(pc.or_(pc.starts_with(cells, "["), pc.starts_with(cells, '"')), False)
    if not pc.any(is_special).as_py():
        return _cut(cells, split)
    indices = pc.indices_nonzero(is_special)
    plain = _cut(pc.if_else(is_special, pa.scalar(None, cells.type), cells), split)
    special = pa.array([_read_tags(cell, split) for cell in cells.take(indices).to_pylist()], _TAGS)
    order = np.arange(len(cells))
    order[indices.to_numpy()] = len(cells) + np.arange(len(indices))
    return pa.concat_arrays([plain, special]).take(pa.array(order))


def _cut(cells: pa.Array, split: str) -> pa.Array:
    lists = pc.split_pattern(cells, split)
    ends = np.concatenate([[0], np.cumsum(pc.fill_null(pc.list_value_length(lists), 0).to_numpy())])
    tags = pc.utf8_trim_whitespace(lists.flatten())
    is_tag = pc.not_equal(tags, "")
    kept = np.concatenate([[0], np.cumsum(is_tag.to_numpy(zero_copy_only=False))])
    offsets = kept[ends]
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()),
        tags.filter(is_tag).cast(pa.string()),
        type=_TAGS,
        mask=pa.array(offsets[1:] == offsets[:-1]),
    )


def _read_tags(cell: str, split: str) -> list[str] | None:
    """One cell that is JSON, or has quoted tags in it as Mailchimp writes them: `"VIP","Paris, France"`."""
    if cell.startswith("["):
        try:
            tags = orjson.loads(cell)
        except orjson.JSONDecodeError:
            tags = None
        if isinstance(tags, list) and not any(isinstance(tag, list | dict) for tag in tags):
            return _trim(
                [tag if isinstance(tag, str) else orjson.dumps(tag).decode() for tag in tags if tag is not None]
            )
    if cell.startswith('"') and len(split) == 1:
        try:
            return _trim(next(csv.reader([cell], delimiter=split, skipinitialspace=True))) or None
        except csv.Error:  # a line break outside quotes: no list of that kind
            return _trim(cell.split(split)) or None
    return _trim(cell.split(split)) or None


def _trim(tags: list[str]) -> list[str]:
    return [tag.strip() for tag in tags if tag.strip()]
