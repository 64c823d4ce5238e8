"""A list of texts as rows of their own: (id, position, tag)."""

import pyarrow as pa
import pyarrow.compute as pc

from connector.export.writers.kinds import ID, TAGS

TAG_SCHEMA = pa.schema(
    [
        pa.field(ID, pa.int64()),
        pa.field("position", pa.int64()),
        pa.field("tag", pa.string()),
    ]
)


def explode_tags(batch: pa.RecordBatch) -> pa.RecordBatch:
    """One row for each tag, in the order of its row's tags; `position` counts from 1."""
    tags = batch.column(TAGS)
    parents = pc.list_parent_indices(tags)
    lengths = pc.fill_null(pc.list_value_length(tags), 0)
    begins = pc.subtract(pc.cumulative_sum(lengths), lengths).cast(pa.int64())
    numbers = pa.array(range(len(parents)), pa.int64())
    positions = pc.add(pc.subtract(numbers, begins.take(parents)), 1)
    return pa.record_batch([batch.column(ID).take(parents), positions, pc.list_flatten(tags)], schema=TAG_SCHEMA)
