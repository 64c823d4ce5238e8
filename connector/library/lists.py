"""Reads the list of subscribers for a script or a notebook, as one DataFrame, as DataFrames in chunks, or as Arrow
batches.

The whole list is read and checked before the first row is returned, because the connector may read the list again and
replace rows. The rows are stored in a temporary file, so that the memory holds only one chunk at a time.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, assert_never, overload
from uuid import uuid4

import pyarrow as pa

from connector.errors import ConfigurationError, RunAborted
from connector.library.threads import (
    ServiceOptions,
    make_token,
    override_environ,
    refuse_unknown_options,
    run_in_thread,
)
from connector.listing.columns import open_columns
from connector.listing.reader import LIST_CONNECTION_COUNT, read_list
from connector.service.client import open_client
from connector.service.retry import Retrier
from connector.service.wire import ListQuery
from connector.settings import limit_connection_count, read_service
from connector.warehouse.columns import SCHEMA, add_run_columns, narrow_table, select_columns
from connector.warehouse.database import ColumnKind, StagingFile
from connector.warehouse.destination import check_columns
from connector.warehouse.statements import read_kinds

if TYPE_CHECKING:
    import pandas as pd

    from connector.paging.certificate import Certificate

CHUNK_ROWS = 50_000
"""The number of rows in a chunk. A chunk has about 20 MB as Arrow, and 60 MB as a DataFrame."""


class IncompleteList(RunAborted):
    """The error of a list that was read, but is not proved to be complete. `certificate` has the reason."""

    def __init__(self, certificate: Certificate) -> None:
        super().__init__(
            f"The list is incomplete ({certificate.reason}). Read the list again later, or accept the list with "
            "allow_incomplete."
        )
        self.certificate = certificate


class ListFilters(TypedDict, total=False):
    """The filters of the list (service-api.md 4.3), its columns, and the faults of the list that are accepted."""

    id: int | None
    base_id: int | None
    client_user_id: str | None
    email: str | None
    is_active: bool | None
    first_name: str | None
    last_name: str | None
    gender: Literal["male", "female", "unspecified"] | None
    columns: Sequence[str] | None
    ignore_total_count: bool
    allow_truncated: bool
    allow_incomplete: bool


class ListOptions(ListFilters, ServiceOptions, total=False):
    """The filters and columns of the list, and the service."""


@overload
def read_subscribers(*, chunksize: None = ..., **options: Unpack[ListOptions]) -> pd.DataFrame: ...


@overload
def read_subscribers(*, chunksize: int, **options: Unpack[ListOptions]) -> Iterator[pd.DataFrame]: ...


def read_subscribers(
    *, chunksize: int | None = None, **options: Unpack[ListOptions]
) -> pd.DataFrame | Iterator[pd.DataFrame]:
    """Return the list as a DataFrame, or as an iterator of DataFrames with at most `chunksize` rows.

    `attrs["certificate"]` is the certificate, as in a report. The columns are the columns of every export, and then
    `_run_id`, `_exported_at` and `_invalid`. Numbers are Int64, flags boolean, texts str, tags tuples, and birthdays
    datetime64. `_exported_at` is datetime64 in UTC without a zone, because `to_excel` of pandas refuses a zone. With
    `columns`, only these fields, the id, `_run_id`, `_exported_at` and `_invalid` are returned. Each chunk has its own
    index. An empty list yields one chunk without rows.

    `id` to `gender` are the filters of service-api.md 4.3. The whole list is read and checked before the first row is
    returned. `allow_incomplete` accepts a list that is not complete. `ignore_total_count` accepts a list whose
    TotalCount is missing or wrong, and `allow_truncated` a list that the service may have cut off.

    If `base_url` or `token` is missing, the value is from the environment, as for the commands. `timeout_s` (seconds)
    limits one request. The function also works inside a running event loop. Raises ConfigurationError, ListFailed and
    IncompleteList.

    >>> from connector import read_subscribers
    >>> frame = read_subscribers(base_id=7, columns=["email", "is_active"])
    >>> frame["email"].tolist()
    ['ann@example.com', 'bob@example.com']
    >>> frame.attrs["certificate"]["verdict"]
    'complete'
    """
    sweep, certificate = _read_stored_sweep(options, chunksize)
    if chunksize is not None:
        return (_attach_certificate(build_frame(table), certificate) for table in sweep.read(chunksize))
    return _attach_certificate(build_frame(pa.concat_tables(sweep.read(CHUNK_ROWS))), certificate)


def read_batches(*, chunksize: int = CHUNK_ROWS, **options: Unpack[ListOptions]) -> pa.RecordBatchReader:
    """Return the list as a `pyarrow.RecordBatchReader`, for DuckDB, Polars or a writer. A batch has at most `chunksize`
    rows.

    The columns are the columns of `read_subscribers` in Arrow's types: id and base_id int64, is_active bool, tags
    list<string>, birthday date32, all other fields string, `_run_id` string, `_exported_at` timestamp[us, UTC], and
    `_invalid` string. `_invalid` is a JSON object with the values that do not fit their column's type, or null. The
    certificate is a JSON text in `reader.schema.metadata[b"certificate"]`. Other arguments and errors have the meaning
    of `read_subscribers`.

    >>> from connector import read_batches
    >>> reader = read_batches(base_id=7)
    >>> reader.read_all()["email"].to_pylist()
    ['ann@example.com', 'bob@example.com']
    """
    sweep, certificate = _read_stored_sweep(options, chunksize)
    schema = sweep.schema.with_metadata({"certificate": json.dumps(certificate.as_report())})
    batches = (
        batch
        for table in sweep.read(chunksize)
        for batch in table.replace_schema_metadata(schema.metadata).combine_chunks().to_batches(chunksize)
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def build_frame(table: pa.Table) -> pd.DataFrame:
    """Return a table of an export as a DataFrame. The type of a column does not depend on its values."""
    import pandas as pd

    from connector.subscribers.checks import find_pandas_type
    from connector.subscribers.validation import build_listed_schema

    frame = table.to_pandas(types_mapper=find_pandas_type)
    schema = build_listed_schema()
    checked_frame: pd.DataFrame = schema.remove_columns(
        [name for name in schema.columns if name not in frame]
    ).validate(frame)
    for name, kind in read_kinds(table.schema).items():
        match kind:  # pandas cannot write the Arrow types of tags, dates and times as JSON or to Excel
            case ColumnKind.TAGS:
                tags = [None if texts is None else tuple(texts) for texts in table[name].to_pylist()]
                checked_frame[name] = pd.Series(tags, index=checked_frame.index, dtype=object)
            case ColumnKind.DATE:
                checked_frame[name] = checked_frame[name].astype("datetime64[s]")
            case ColumnKind.TIME:
                checked_frame[name] = checked_frame[name].astype("datetime64[us, UTC]").dt.tz_localize(None)
            case ColumnKind.TEXT | ColumnKind.NAME | ColumnKind.WHOLE_NUMBER | ColumnKind.FLAG:
                continue
            case _:
                assert_never(kind)
    return checked_frame


class StoredSweep:
    """A sink that stores the rows of the current sweep (one reading of the whole list) in a temporary file without a
    name. The file is closed when the rows were read, or when the object is deleted.

    Raises OSError if the disk is full, or if there is no folder for temporary files.
    """

    def __init__(self, schema: pa.Schema = SCHEMA) -> None:
        self.schema = schema
        self._run_id = uuid4().hex
        self._exported_at = datetime.now(UTC)
        self._begin_sweep()

    def start_sweep(self, sweep_number: int) -> None:
        """Delete the rows of the previous sweep, because the new sweep shows all subscribers again."""
        self.close()
        self._begin_sweep()

    def receive_rows(self, rows: pa.RecordBatch) -> None:
        """Store a page of rows."""
        stamped_rows = add_run_columns(rows, run_id=self._run_id, exported_at=self._exported_at)
        self._staging_file.add(narrow_table(stamped_rows, self.schema))

    def read(self, max_table_rows: int) -> Iterator[pa.Table]:
        """Yield all rows in their order, in tables of at most `max_table_rows` rows. If there are no rows, yield one
        empty table. Call this method only once."""
        try:
            remaining_rows = self.schema.empty_table()
            for batch in self._staging_file.finish_staging().read():
                remaining_rows = pa.concat_tables([remaining_rows, pa.Table.from_batches([batch])])
                while len(remaining_rows) > max_table_rows:
                    yield remaining_rows.slice(0, max_table_rows)
                    remaining_rows = remaining_rows.slice(max_table_rows)
            yield remaining_rows
        finally:
            self.close()

    def close(self) -> None:
        """Close the file, which deletes all rows."""
        self._discard_staging_file()

    def _begin_sweep(self) -> None:
        self._staging_file = StagingFile(self.schema)
        self._discard_staging_file = weakref.finalize(self, self._staging_file.discard)


def _read_stored_sweep(options: ListOptions, chunksize: int | None) -> tuple[StoredSweep, Certificate]:
    """Read the whole list, and return its rows and certificate. No connection remains open."""
    refuse_unknown_options(options, ListOptions)
    if chunksize is not None and chunksize < 1:
        raise ConfigurationError(f"chunksize must be at least 1, not {chunksize}.")
    filter_names = {field.name for field in fields(ListQuery)}
    filters: dict[str, Any] = {name: value for name, value in options.items() if name in filter_names}
    query = ListQuery(**filters | ({"gender": ""} if filters.get("gender") == "unspecified" else {}))
    sweep = StoredSweep(select_columns(check_columns(options.get("columns"))))
    service = read_service(
        override_environ(options.get("base_url")),
        token=make_token(options.get("token")),
        authorization=options.get("authorization"),
        timeout_s=options.get("timeout_s"),
        proxy=options.get("proxy"),
        max_connections=limit_connection_count(LIST_CONNECTION_COUNT),
    )

    async def read() -> Certificate:
        with open_columns() as columns:
            async with open_client(service) as client:
                return await read_list(
                    client,
                    Retrier(),
                    query,
                    sweep,
                    row_form=columns,
                    now=lambda: datetime.now(UTC),
                    ignore_total_count=options.get("ignore_total_count", False),
                    allow_truncated=options.get("allow_truncated", False),
                )

    try:
        certificate = run_in_thread(lambda stop: stop.wait_until_stopped(read()))
    except BaseException:
        sweep.close()
        raise
    if not certificate.is_complete and not options.get("allow_incomplete", False):
        sweep.close()
        raise IncompleteList(certificate)
    return sweep, certificate


def _attach_certificate(frame: pd.DataFrame, certificate: Certificate) -> pd.DataFrame:
    frame.attrs["certificate"] = certificate.as_report()
    return frame
