"""A cell of tags becomes a list of texts: a JSON array as it is, anything else cut at a separator. Vectorised."""

import csv

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

DEFAULT_SPLIT = ","

_TYPE = pa.list_(pa.string())


def build_tags(cells: pa.Array, split: str) -> pa.Array:
    """Make trimmed cells (large_string, null where empty) a list<string> array of the same length.

    A JSON array of texts and numbers is that list, without its nulls; other cells are cut at `split`. Tags are trimmed,
    empty ones left out; a cell without any tag is null, save for the JSON array that is empty itself.
    """
    is_special = pc.fill_null(pc.or_(pc.starts_with(cells, "["), pc.starts_with(cells, '"')), False)
    if not pc.any(is_special).as_py():
        return _cut(cells, split)
    places = pc.indices_nonzero(is_special)
    plain = _cut(pc.if_else(is_special, pa.scalar(None, cells.type), cells), split)
    special = pa.array([_read_tags(cell, split) for cell in cells.take(places).to_pylist()], _TYPE)
    order = np.arange(len(cells))
    order[places.to_numpy()] = len(cells) + np.arange(len(places))
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
        type=_TYPE,
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


def _write_tag(tag: str | float | bool) -> str:
    return tag if isinstance(tag, str) else orjson.dumps(tag).decode()


def _trim(tags: list[str]) -> list[str]:
    return [tag.strip() for tag in tags if tag.strip()]
