"""The list of subscribers for a script or a notebook: DataFrames, whole or in chunks, and Arrow batches.

The whole list is read and certified before the first row is given: no caller works on rows that a later sweep takes
back. What is given in chunks waits in a file without a name, so memory holds a chunk at a time.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast, overload
from uuid import uuid4

import pyarrow as pa

from connector.errors import ConfigurationError, RunAborted
from connector.listing import LIST_CONNECTIONS, open_columns, read_list
from connector.service import ListQuery, Retrier, Service, Token, open_client
from connector.warehouse import SCHEMA, Stage, stamp_columns

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    import pandas as pd

    from connector.listing import PageSink
    from connector.paging import Certificate

T = TypeVar("T")

CHUNK_ROWS = 50_000
"""About 20 MB as Arrow, 60 MB as a DataFrame."""


class IncompleteList(RunAborted):
    """The list was read, and is not known to be complete; `certificate` says why."""

    def __init__(self, certificate: Certificate) -> None:
        super().__init__(
            f"The list is incomplete ({certificate.reason}). Read it again later, or take it with allow_incomplete."
        )
        self.certificate = certificate


@overload
def read_subscribers(
    *,
    base_url: str,
    token: str | Token,
    authorization: str = ...,
    timeout_s: float = ...,
    allow_incomplete: bool = ...,
    chunksize: None = ...,
    **filters: Any,
) -> pd.DataFrame: ...


@overload
def read_subscribers(
    *,
    base_url: str,
    token: str | Token,
    authorization: str = ...,
    timeout_s: float = ...,
    allow_incomplete: bool = ...,
    chunksize: int,
    **filters: Any,
) -> Iterator[pd.DataFrame]: ...


def read_subscribers(
    *,
    base_url: str,
    token: str | Token,
    authorization: str = "{token}",
    timeout_s: float = 30.0,
    allow_incomplete: bool = False,
    chunksize: int | None = None,
    **filters: Any,
) -> pd.DataFrame | Iterator[pd.DataFrame]:
    """Return the list as a DataFrame, or with `chunksize` an iterator of DataFrames of so many rows, the last with the
    rest; `attrs["certificate"]` is the certificate, as in a report.

    Columns are those of every export: numbers Int64, flags boolean, texts str, tags tuples, birthdays datetime64; then
    `_run_id`, `_exported_at` (datetime64 in UTC, without a zone, which Excel could not take) and `_invalid`. Chunks
    have an index of their own; an empty list gives one without rows. `filters` are those of service-api.md 4.3 by field
    name: id, base_id, client_user_id, email, is_active, first_name, last_name, gender. May be called where an event
    loop runs. Raises ConfigurationError, ListFailed, and IncompleteList unless allowed.
    """
    _check_chunksize(chunksize)
    kept, certificate = _read_all(
        _build_service(base_url, token, authorization, timeout_s), _build_query(filters), allow_incomplete
    )
    if chunksize is not None:
        return _iterate_frames(kept, certificate, chunksize)
    return _certify(build_frame(pa.concat_tables([SCHEMA.empty_table(), *kept.read(CHUNK_ROWS)])), certificate)


def read_batches(
    *,
    base_url: str,
    token: str | Token,
    authorization: str = "{token}",
    timeout_s: float = 30.0,
    chunksize: int = CHUNK_ROWS,
    allow_incomplete: bool = False,
    **filters: Any,
) -> pa.RecordBatchReader:
    """Return the list as a `pyarrow.RecordBatchReader`, for DuckDB, Polars or a writer; no batch has more rows than
    `chunksize`.

    Columns are those of `read_subscribers` in Arrow's types: id and base_id int64, is_active bool, tags list<string>,
    birthday date32, all other fields string, `_run_id` string, `_exported_at` timestamp[us, UTC], and `_invalid` (JSON
    text of what breaks its type, else null). The certificate is JSON text in `reader.schema.metadata[b"certificate"]`.
    Raises as `read_subscribers`.
    """
    _check_chunksize(chunksize)
    kept, certificate = _read_all(
        _build_service(base_url, token, authorization, timeout_s), _build_query(filters), allow_incomplete
    )
    schema = SCHEMA.with_metadata({"certificate": json.dumps(certificate.as_report())})
    return pa.RecordBatchReader.from_batches(schema, _iterate_batches(kept, schema, chunksize))


def build_frame(table: pa.Table) -> pd.DataFrame:
    """Return a table of an export as a DataFrame, each column of its own type whatever its values."""
    import pandas as pd

    from connector.subscribers import build_listed_schema

    types = {
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
        pa.string(): pd.StringDtype(na_value=float("nan")),
    }
    frame = table.to_pandas(types_mapper=lambda kind: types.get(kind, pd.ArrowDtype(kind)))
    checked: pd.DataFrame = build_listed_schema().validate(frame)
    # Types of Arrow's that pandas cannot write as JSON or to Excel, or tell apart.
    tags = [None if each is None else tuple(each) for each in table["tags"].to_pylist()]
    checked["tags"] = pd.Series(tags, index=checked.index, dtype=object)
    checked["birthday"] = checked["birthday"].astype("datetime64[s]")
    checked["_exported_at"] = checked["_exported_at"].astype("datetime64[us, UTC]").dt.tz_localize(None)
    return checked


class KeptSweep:
    """A sink that keeps the current sweep in a file without a name, which is closed when the rows were read or when
    the object goes.

    Raises OSError when the disk is full, and when there is no folder for such files.
    """

    def __init__(self) -> None:
        self._run_id = uuid4().hex
        self._exported_at = datetime.now(UTC)
        self._begin()

    def start_sweep(self, number: int) -> None:
        """Forget the sweep before."""
        self.close()
        self._begin()

    def take(self, rows: pa.RecordBatch) -> None:
        """Keep these."""
        self._staged.add(stamp_columns(rows, run_id=self._run_id, exported_at=self._exported_at))

    def read(self, chunk_rows: int) -> Iterator[pa.Table]:
        """Give all rows in their order, once, in tables of `SCHEMA` with `chunk_rows` each and the rest in the last;
        none for no rows."""
        try:
            waiting = SCHEMA.empty_table()
            for batch in self._staged.close_rows().read():
                waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
                while len(waiting) >= chunk_rows:
                    yield waiting.slice(0, chunk_rows)
                    waiting = waiting.slice(chunk_rows)
            if len(waiting):
                yield waiting
        finally:
            self.close()

    def close(self) -> None:
        """Give up the file, and all rows with it."""
        self._close()

    def _begin(self) -> None:
        file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed with this object
        self._staged = Stage(file, SCHEMA)
        self._close = weakref.finalize(self, self._staged.discard)


def _check_chunksize(chunksize: int | None) -> None:
    if chunksize is not None and chunksize < 1:
        raise ConfigurationError(f"chunksize must be at least 1, not {chunksize}.")


def _build_service(base_url: str, token: str | Token, authorization: str, timeout_s: float) -> Service:
    known = token if isinstance(token, Token) else Token(token)
    return Service(base_url, known, authorization=authorization, timeout_s=timeout_s, max_connections=LIST_CONNECTIONS)


def _build_query(filters: dict[str, Any]) -> ListQuery:
    try:
        return ListQuery(**filters)
    except TypeError:
        known = "id, base_id, client_user_id, email, is_active, first_name, last_name, gender"
        raise ConfigurationError(f"The list can be filtered by {known}; not by all of {', '.join(filters)}.") from None


def _read_all(service: Service, query: ListQuery, allow_incomplete: bool) -> tuple[KeptSweep, Certificate]:
    """Read the whole list; when this returns, no connection is left."""
    kept = KeptSweep()
    try:
        certificate = _run_anywhere(_collect(service, query, kept))
    except BaseException:
        kept.close()
        raise
    if not certificate.is_complete and not allow_incomplete:
        kept.close()
        raise IncompleteList(certificate)
    return kept, certificate


async def _collect(service: Service, query: ListQuery, sink: PageSink[pa.RecordBatch]) -> Certificate:
    with open_columns() as columns:
        async with open_client(service) as client:
            return await read_list(client, Retrier(), query, sink, form=columns, now=lambda: datetime.now(UTC))


def _run_anywhere(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end; where a loop runs already (a notebook), in a thread with a loop of its own.

    What interrupts the waiting there (Ctrl-C) cancels the coroutine, and is raised when that has ended.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    loop = asyncio.new_event_loop()
    task = loop.create_task(coroutine)
    with ThreadPoolExecutor(1, thread_name_prefix="connector reads the list") as thread:
        running = thread.submit(_run_in, loop, task)
        try:
            wait((running,))
        except BaseException:
            with suppress(RuntimeError):  # it has ended at this very moment, and its loop is closed
                loop.call_soon_threadsafe(task.cancel)
            raise
        return running.result()


def _run_in(loop: asyncio.AbstractEventLoop, task: asyncio.Task[T]) -> T:
    async def see_through() -> T:
        return await task

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(see_through())


def _iterate_frames(kept: KeptSweep, certificate: Certificate, chunksize: int) -> Iterator[pd.DataFrame]:
    is_empty = True
    for table in kept.read(chunksize):
        is_empty = False
        yield _certify(build_frame(table), certificate)
    if is_empty:
        yield _certify(build_frame(SCHEMA.empty_table()), certificate)


def _iterate_batches(kept: KeptSweep, schema: pa.Schema, chunksize: int) -> Iterator[pa.RecordBatch]:
    for table in kept.read(chunksize):
        yield from table.replace_schema_metadata(schema.metadata).combine_chunks().to_batches(chunksize)


def _certify(frame: pd.DataFrame, certificate: Certificate) -> pd.DataFrame:
    frame.attrs["certificate"] = certificate.as_report()
    return frame
