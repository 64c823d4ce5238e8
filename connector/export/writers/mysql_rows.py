"""Rows as INSERT statements of many rows, written column by column by Arrow.

Nothing but an apostrophe means anything within a text, since the session runs under NO_BACKSLASH_ESCAPES. There is no
LOAD DATA LOCAL here: it would let a server name the file that it wants to read.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from connector.export.arrow_values import EMPTY, build_text
from connector.export.writers.lists import write_lists_as_json

_APOSTROPHE, _COMMA = build_text("'"), build_text(",")


def write_inserts(head: str, batch: pa.RecordBatch, most: int, shared: Sequence[str] = ()) -> Iterator[str]:
    """Statements that begin with `head` (INSERT … VALUES) and have up to `most` bytes, or one row that is longer.

    `shared` are texts that each row has after its own values, in ASCII.
    """
    tail = "".join(f",'{each.replace(chr(39), chr(39) * 2)}'" for each in shared)
    columns = [_write_literals(column) for column in pa.Table.from_batches([batch]).columns]
    joined = pc.binary_join_element_wise(*columns, _COMMA, null_handling="replace", null_replacement="NULL")
    rows: list[str] = []
    size = len(head)
    for row, length in zip(joined.to_pylist(), pc.binary_length(joined).to_pylist(), strict=True):
        length += len(tail) + 3
        if rows and size + length > most:
            yield f"{head} {','.join(rows)}"
            rows, size = [], len(head)
        rows.append(f"({row}{tail})")
        size += length
    if rows:
        yield f"{head} {','.join(rows)}"


def _write_literals(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_boolean(column.type) or pa.types.is_integer(column.type):
        whole = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
        return whole.cast(pa.string())
    if pa.types.is_list(column.type):
        column = write_lists_as_json(column)
    texts = pc.replace_substring(column.cast(pa.string()), "'", "''")
    return pc.binary_join_element_wise(_APOSTROPHE, texts, _APOSTROPHE, EMPTY)
