"""The list of subscribers for a script or a notebook: DataFrames, whole or in chunks, and Arrow batches.

The whole list is read and certified before the first row is given: no caller works on rows that a later sweep takes
back. What is given in chunks waits in a file without a name, so memory holds a chunk at a time.
"""

from __future__ import annotations

import json
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypedDict, Unpack, cast, overload
from uuid import uuid4

import pyarrow as pa

from connector.descriptors import bound_connections
from connector.errors import ConfigurationError, RunAborted
from connector.library.threads import ServiceOptions, make_token, override_environ, refuse_unknown, run_in_thread
from connector.listing.columns import open_columns
from connector.listing.reader import LIST_CONNECTIONS, read_list
from connector.service.client import open_client
from connector.service.retry import Retrier
from connector.service.wire import ListQuery
from connector.settings import read_service
from connector.warehouse.columns import SCHEMA, narrow_table, select_columns, stamp_columns
from connector.warehouse.database import Stage
from connector.warehouse.destination import check_columns

if TYPE_CHECKING:
    import pandas as pd

    from connector.paging.certificate import Certificate

CHUNK_ROWS = 50_000
"""About 20 MB as Arrow, 60 MB as a DataFrame."""


class IncompleteList(RunAborted):
    """The list was read, and is not known to be complete; `certificate` says why."""

    def __init__(self, certificate: Certificate) -> None:
        super().__init__(
            f"The list is incomplete ({certificate.reason}). Read it again later, or take it with allow_incomplete."
        )
        self.certificate = certificate


class ListFilters(TypedDict, total=False):
    """What to read of the list: filters (service-api.md 4.3), columns, and what to accept."""

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
    """What to read of the list, and the service."""


_FILTERS = ("id", "base_id", "client_user_id", "email", "is_active", "first_name", "last_name", "gender")


@overload
def read_subscribers(*, chunksize: None = ..., **options: Unpack[ListOptions]) -> pd.DataFrame: ...


@overload
def read_subscribers(*, chunksize: int, **options: Unpack[ListOptions]) -> Iterator[pd.DataFrame]: ...


def read_subscribers(
    *, chunksize: int | None = None, **options: Unpack[ListOptions]
) -> pd.DataFrame | Iterator[pd.DataFrame]:
    """Return the list as a DataFrame, or with `chunksize` an iterator of DataFrames of so many rows, the last with the
    rest; `attrs["certificate"]` is the certificate, as in a report.

    Columns are those of every export: numbers Int64, flags boolean, texts str, tags tuples, birthdays datetime64; then
    `_run_id`, `_exported_at` (datetime64 in UTC, without a zone, which Excel could not take) and `_invalid`; of the
    fields only `columns`, beside the id, where they are given. Chunks have an index of their own; an empty list gives
    one without rows.

    `id` to `gender` are the filters of service-api.md 4.3. The list is certified before the first row is given. One
    that is not complete is given with `allow_incomplete`; with `ignore_total_count` a list is complete whose TotalCount
    alone disagrees, with `allow_truncated` one that the service may cut off unseen.

    What is None of `base_url` and `token` comes from the environment, as for the commands; `timeout_s` (seconds) bounds
    one request. May be called where an event loop runs. Raises ConfigurationError, ListFailed, and IncompleteList.

    >>> from connector import read_subscribers
    >>> frame = read_subscribers(base_id=7, columns=["email", "is_active"])
    >>> frame["email"].tolist()
    ['ann@example.com', 'bob@example.com']
    >>> frame.attrs["certificate"]["verdict"]
    'complete'
    """
    kept, certificate = _read_all(options, chunksize)
    if chunksize is not None:
        return (_certify(build_frame(table), certificate) for table in kept.read(chunksize))
    return _certify(build_frame(pa.concat_tables(kept.read(CHUNK_ROWS))), certificate)


def read_batches(*, chunksize: int = CHUNK_ROWS, **options: Unpack[ListOptions]) -> pa.RecordBatchReader:
    """Return the list as a `pyarrow.RecordBatchReader`, for DuckDB, Polars or a writer; no batch has more rows than
    `chunksize`.

    Columns are those of `read_subscribers` in Arrow's types: id and base_id int64, is_active bool, tags list<string>,
    birthday date32, all other fields string, `_run_id` string, `_exported_at` timestamp[us, UTC], and `_invalid` (JSON
    text of what breaks its type, else null). The certificate is JSON text in `reader.schema.metadata[b"certificate"]`.
    Takes and raises what `read_subscribers` does.

    >>> from connector import read_batches
    >>> reader = read_batches(base_id=7)
    >>> reader.read_all()["email"].to_pylist()
    ['ann@example.com', 'bob@example.com']
    """
    kept, certificate = _read_all(options, chunksize)
    schema = kept.schema.with_metadata({"certificate": json.dumps(certificate.as_report())})
    batches = (
        batch
        for table in kept.read(chunksize)
        for batch in table.replace_schema_metadata(schema.metadata).combine_chunks().to_batches(chunksize)
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def build_frame(table: pa.Table) -> pd.DataFrame:
    """Return a table of an export as a DataFrame, each column of its own type whatever its values."""
    import pandas as pd

    from connector.subscribers.validation import build_listed_schema

    types = {
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
        pa.string(): pd.StringDtype(na_value=float("nan")),
    }
    frame = table.to_pandas(types_mapper=lambda kind: types.get(kind, pd.ArrowDtype(kind)))
    schema = build_listed_schema()
    checked: pd.DataFrame = schema.remove_columns([name for name in schema.columns if name not in frame]).validate(
        frame
    )
    # Types of Arrow's that pandas cannot write as JSON or to Excel, or tell apart.
    if "tags" in checked:
        tags = [None if each is None else tuple(each) for each in table["tags"].to_pylist()]
        checked["tags"] = pd.Series(tags, index=checked.index, dtype=object)
    if "birthday" in checked:
        checked["birthday"] = checked["birthday"].astype("datetime64[s]")
    checked["_exported_at"] = checked["_exported_at"].astype("datetime64[us, UTC]").dt.tz_localize(None)
    return checked


class KeptSweep:
    """A sink that keeps the current sweep in a file without a name, which is closed when the rows were read or when
    the object goes.

    Raises OSError when the disk is full, and when there is no folder for such files.
    """

    def __init__(self, schema: pa.Schema = SCHEMA) -> None:
        self.schema = schema
        self._run_id = uuid4().hex
        self._exported_at = datetime.now(UTC)
        self._begin()

    def start_sweep(self, number: int) -> None:
        """Forget the sweep before."""
        self.close()
        self._begin()

    def take(self, rows: pa.RecordBatch) -> None:
        """Keep these."""
        stamped = stamp_columns(rows, run_id=self._run_id, exported_at=self._exported_at)
        self._staged.add(narrow_table(stamped, self.schema))

    def read(self, chunk_rows: int) -> Iterator[pa.Table]:
        """Yield all rows in their order, once, in tables of `schema` with `chunk_rows` each, the last with the rest;
        one empty table for no rows."""
        try:
            remaining = self.schema.empty_table()
            for batch in self._staged.close_rows().read():
                remaining = pa.concat_tables([remaining, pa.Table.from_batches([batch])])
                while len(remaining) > chunk_rows:
                    yield remaining.slice(0, chunk_rows)
                    remaining = remaining.slice(chunk_rows)
            yield remaining
        finally:
            self.close()

    def close(self) -> None:
        """Give up the file, and all rows with it."""
        self._close()

    def _begin(self) -> None:
        file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed with this object
        self._staged = Stage(file, self.schema)
        self._close = weakref.finalize(self, self._staged.discard)


def _read_all(options: ListOptions, chunksize: int | None) -> tuple[KeptSweep, Certificate]:
    """Read the whole list; when this returns, no connection is left."""
    refuse_unknown(options, ListOptions)
    if chunksize is not None and chunksize < 1:
        raise ConfigurationError(f"chunksize must be at least 1, not {chunksize}.")
    filters: dict[str, Any] = {name: value for name, value in options.items() if name in _FILTERS}
    query = ListQuery(**filters | ({"gender": ""} if filters.get("gender") == "unspecified" else {}))
    kept = KeptSweep(select_columns(check_columns(options.get("columns"))))
    service = read_service(
        override_environ(options.get("base_url")),
        token=make_token(options.get("token")),
        authorization=options.get("authorization"),
        timeout_s=options.get("timeout_s"),
        proxy=options.get("proxy"),
        max_connections=bound_connections(LIST_CONNECTIONS),
    )

    async def read() -> Certificate:
        with open_columns() as columns:
            async with open_client(service) as client:
                return await read_list(
                    client,
                    Retrier(),
                    query,
                    kept,
                    form=columns,
                    now=lambda: datetime.now(UTC),
                    ignore_total_count=options.get("ignore_total_count", False),
                    allow_truncated=options.get("allow_truncated", False),
                )

    try:
        certificate = run_in_thread(lambda stop: stop.until_stopped(read()))
    except BaseException:
        kept.close()
        raise
    if not certificate.is_complete and not options.get("allow_incomplete", False):
        kept.close()
        raise IncompleteList(certificate)
    return kept, certificate


def _certify(frame: pd.DataFrame, certificate: Certificate) -> pd.DataFrame:
    frame.attrs["certificate"] = certificate.as_report()
    return frame
