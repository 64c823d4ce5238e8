"""Which texts are short enough to be a person's. Whole columns at once."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LONGEST = 10_000
"""Characters of a text, and of all tags of a row: api.md gives no bound, so this keeps out only what is never meant.
Long notes on a person have some 5,000; a hundred rows of a file, swallowed by a quote that never closed, have more."""


def is_short(cells: pa.Array) -> pa.Array:
    """Whether each text has at most that many characters (null where missing); they are counted only if any may not."""
    octets = pc.binary_length(cells)
    if (pc.max(octets).as_py() or 0) <= LONGEST:
        return pa.repeat(pa.scalar(True), len(cells))
    return pc.less_equal(pc.utf8_length(cells), LONGEST)


def is_short_list(lists: pa.Array) -> pa.Array:
    """Whether the tags of each list have at most that many characters together."""
    lengths = pc.fill_null(pc.utf8_length(lists.flatten()), 0).to_numpy()
    sums = np.bincount(pc.list_parent_indices(lists).to_numpy(), weights=lengths, minlength=len(lists))
    return pa.array(sums <= LONGEST)
