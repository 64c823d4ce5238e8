"""Some rows of a database as a chunk: texts in a frame, and beside them the rows that cannot be text."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from connector.extract.chunk import Chunk, MalformedRow
from connector.extract.texts import build_texts, show_record

CHUNK_ROWS = 20_000
"""As Python objects they weigh about ten times what they do as text."""

_TEXT = pd.StringDtype(na_value=np.nan)


def build_chunk(name: str, columns: tuple[str, ...], values: Sequence[Sequence[object]], first: int) -> Chunk:
    """Make a chunk of `values`, a sequence a column, of which `first` is the record number (from 1) of the first row.

    Of a row with a value that cannot be text the others are kept as they came, in `malformed`.
    """
    texts, wrong = [], dict[int, str]()
    for column, given in zip(columns, values, strict=True):
        array, wrong_here = build_texts(given)
        texts.append(array)
        for place, why in wrong_here.items():
            wrong.setdefault(place, f"column {column} {why}; if it is no text at all, read by a query without it")
    malformed = tuple(
        MalformedRow(first + place, None, show_record(columns, [each[place] for each in values]), "encoding", why)
        for place, why in sorted(wrong.items())
    )
    is_good = np.ones(len(values[0]), dtype=bool)
    is_good[list(wrong)] = False
    table = pa.table(texts, names=list(columns))
    if wrong:
        table = table.filter(pa.array(is_good))
    frame = table.to_pandas(types_mapper=lambda _: _TEXT)
    return Chunk(frame, first + np.flatnonzero(is_good), malformed, name)
