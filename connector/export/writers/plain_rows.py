"""Rows as Python values, for drivers that take nothing else."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from connector.export.writers.lists import write_lists_as_json
from connector.export.writers.plain import flatten_table


def read_flat_rows(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    """Lists as JSON, dates as ISO 8601 texts; the rest as Python has it."""
    columns = flatten_table(pa.Table.from_batches([batch])).columns
    texts = [column.cast(pa.string()) if pa.types.is_date(column.type) else column for column in columns]
    return zip(*(column.to_pylist() for column in texts), strict=True)


def read_typed_rows(batch: pa.RecordBatch, names: Sequence[str]) -> list[dict[str, object]]:
    """Dates as Python's own, lists as JSON; by column name."""
    table = pa.Table.from_batches([batch])
    columns = [write_lists_as_json(each) if pa.types.is_list(each.type) else each for each in table.columns]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]
