"""Columns of a frame as Arrow arrays and back, and the characters that no text may hold."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

TEXT = pd.StringDtype(na_value=np.nan)
"""The type of every text column: pandas' own `str`."""

TAGS = pd.ArrowDtype(pa.list_(pa.string()))

# C0 without tab and line ends: they are never meant, break terminals and CSV readers, and NUL ends texts elsewhere.
_CONTROL = r"[\x00-\x08\x0b\x0c\x0e-\x1f]"
_CONTROL_OCTETS = np.array([octet for octet in range(32) if octet not in (0x09, 0x0A, 0x0D)], dtype=np.uint8)


def read_cells(column: "pd.Series[str]") -> pa.Array:
    """A text column as one large_string array, null where missing."""
    cells = pa.array(column, type=pa.large_string(), from_pandas=True)
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def is_true_or_missing(mask: pa.Array) -> "pd.Series[bool]":
    """A check's answer as pandera takes it: what is missing breaks no rule but that of being required."""
    return pd.Series(pc.fill_null(mask, True).to_numpy(zero_copy_only=False))


def translate(cells: pa.Array, meanings: Mapping[str, str]) -> pa.Array:
    """Each cell's meaning by its lower case; null for a cell without one."""
    keys, values = pa.array(list(meanings), pa.large_string()), pa.array(list(meanings.values()), pa.large_string())
    return values.take(pc.index_in(pc.utf8_lower(cells), keys))


def is_free_of_controls(cells: pa.Array) -> pa.Array:
    """Whether each text is without control characters, tab and line ends apart (null where missing).

    Looks at a whole column's bytes at once, since hardly ever one has any; cell by cell only if one does.
    """
    octets = view_octets(cells)
    low = octets[octets < 32]
    if not np.isin(low, _CONTROL_OCTETS).any():
        return pa.repeat(pa.scalar(True), len(cells))
    return pc.invert(pc.match_substring_regex(cells, _CONTROL))


def view_octets(cells: pa.Array) -> npt.NDArray[np.uint8]:
    """The bytes of a large_string array's texts, one after another, uncopied."""
    _, offsets, data = cells.buffers()
    if data is None or not len(cells):
        return np.empty(0, dtype=np.uint8)
    ends = np.frombuffer(offsets, dtype=np.int64)
    return np.frombuffer(data, dtype=np.uint8)[ends[cells.offset] : ends[cells.offset + len(cells)]]
