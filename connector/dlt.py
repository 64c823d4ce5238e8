"""The list as a dlt resource, and a dlt destination that creates subscribers by a job's mapping.

The service, the token and the ledger come from the environment, as for the commands. See docs/how-to/dlt.md.
"""

from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

import dlt

from connector.library.facade import Connector
from connector.library.lists import ListFilters
from connector.records import load_records

if TYPE_CHECKING:
    import pyarrow as pa
    from dlt.common.schema import TTableSchema
    from dlt.extract import DltResource

_BATCH_ROWS = 10_000


def subscribers(**filters: Unpack[ListFilters]) -> "DltResource":
    """Return the list as a resource of Arrow tables. Loading the resource replaces the rows of its table.

    The filters have the meaning of `Connector.read_batches`. The whole list is read and checked before the first row
    is yielded. The resource raises IncompleteList if nothing proves that the list is complete.
    """

    def read_batches() -> "Iterator[pa.RecordBatch]":
        yield from Connector().read_batches(**filters)

    return dlt.resource(read_batches, name="subscribers", write_disposition="replace", primary_key="id")


def subscriber_destination(job: str | PathLike[str], *, batch_rows: int = _BATCH_ROWS) -> Any:
    """Return a destination that creates a subscriber for each row of a pipeline. `job` is a job file without a source.

    Each batch of up to `batch_rows` rows is one run. If a run ends early, the load fails, and dlt loads the batch
    again. Nobody is created twice. Invalid and rejected rows are written to the rejects file of the run.
    """

    @dlt.destination(
        name="subscribers",
        batch_size=batch_rows,
        loader_file_format="typed-jsonl",
        skip_dlt_columns_and_tables=True,
        max_table_nesting=0,
        loader_parallelism_strategy="sequential",
    )
    def load_batch(items: Any, table: "TTableSchema") -> None:
        load_records(items, job, table["name"] or "rows")

    return load_batch()
