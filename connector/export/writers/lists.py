"""Lists of texts as one text each, column by column."""

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.export.arrow_values import EMPTY, build_null, build_numbers, build_text

_QUOTE, _COMMA = build_text('"'), build_text(",")
_NO_TEXT, _ZERO = build_null(pa.string()), build_numbers(0)[0]
_BLANK = ord(" ")  # what comes before it has an escape of its own in JSON


def write_lists_as_json(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Each list as a JSON array; null stays null."""
    return pa.chunked_array([_write_json(chunk) for chunk in column.chunks], pa.string())


def quote_lists(lists: pa.ListArray, opening: str, closing: str) -> pa.StringArray:
    r"""Each list with its texts in quotes, as in {"a","say \"hi\""}; null stays null."""
    texts = lists.flatten()
    for special in ("\\", '"'):
        texts = pc.replace_substring(texts, special, f"\\{special}")
    quoted = pc.binary_join_element_wise(_QUOTE, texts, _QUOTE, EMPTY)
    lengths = pc.fill_null(pc.list_value_length(lists), _ZERO)
    offsets = pa.concat_arrays([build_numbers(0), pc.cumulative_sum(lengths).cast(pa.int32())])
    inner = pc.binary_join(pa.ListArray.from_arrays(offsets, quoted), _COMMA)
    whole = pc.binary_join_element_wise(build_text(opening), inner, build_text(closing), EMPTY)
    return pc.if_else(lists.is_valid(), whole, _NO_TEXT)


def _write_json(lists: pa.ListArray) -> pa.StringArray:
    if _has_controls(lists.flatten()):
        texts = [None if each is None else orjson.dumps(each).decode() for each in lists.to_pylist()]
        return pa.array(texts, pa.string())
    return quote_lists(lists, "[", "]")


def _has_controls(texts: pa.StringArray) -> bool:
    """Whether there may be a character among them that JSON writes by its number."""
    data = texts.buffers()[2]
    return data is not None and bool((np.frombuffer(data, np.uint8) < _BLANK).any())
