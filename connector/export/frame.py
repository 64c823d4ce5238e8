"""The list as a pandas DataFrame, for a notebook or a script."""

import asyncio
import threading
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pandas as pd
import pyarrow as pa

from connector.api.client import open_client
from connector.api.listing import read_list
from connector.api.retries import Retrier
from connector.api.service import Service
from connector.api.token import Token
from connector.errors import ConfigurationError, RunAborted
from connector.export.columns import SCHEMA, stamp_columns
from connector.export.form import COLUMNS
from connector.pages import Certificate
from connector.protocol import ListQuery
from connector.validation import build_listed_schema

_CONNECTIONS = 2  # a list is read page after page

_PANDAS_TYPES = {
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.string(): pd.StringDtype(na_value=float("nan")),
}


class IncompleteList(RunAborted):
    """The list was read, and is not known to be complete; `certificate` says why."""

    def __init__(self, certificate: Certificate) -> None:
        super().__init__(
            f"The list is incomplete ({certificate.reason}). Read it again later, or take it with allow_incomplete."
        )
        self.certificate = certificate


def read_subscribers(
    *,
    base_url: str,
    token: str | Token,
    authorization: str = "{token}",
    timeout_s: float = 30.0,
    allow_incomplete: bool = False,
    **filters: Any,
) -> pd.DataFrame:
    """Everyone on the list as a DataFrame; `attrs["certificate"]` is the certificate, as in a report.

    Columns are those of every export, typed by `build_listed_schema`: numbers Int64, flags boolean, texts str, tags
    lists and birthdays dates of Arrow's; `_run_id`, `_exported_at` (UTC) and `_invalid` follow. `filters` are those of
    api.md 4.3 by field name: id, base_id, client_user_id, email, is_active, first_name, last_name, gender. May be
    called where an event loop runs. Raises ConfigurationError, ListFailed, and IncompleteList unless allowed.
    """
    query = _build_query(filters)
    service = Service(
        base_url,
        token if isinstance(token, Token) else Token(token),
        authorization=authorization,
        timeout_s=timeout_s,
        max_connections=_CONNECTIONS,
    )
    collected = _run(_collect(service, query))
    if not collected.certificate.is_complete and not allow_incomplete:
        raise IncompleteList(collected.certificate)
    return collected.to_frame()


def build_frame(table: pa.Table) -> pd.DataFrame:
    """A table of an export as a DataFrame, each column of its own type whatever its values."""
    frame = table.to_pandas(types_mapper=_choose_type)
    checked: pd.DataFrame = build_listed_schema().validate(frame)
    return checked


class _Collected:
    """Keeps the tables of the current sweep."""

    def __init__(self) -> None:
        self._run_id = uuid4().hex
        self._exported_at = datetime.now(UTC)
        self._tables: list[pa.Table] = []
        self.certificate: Certificate

    def start_sweep(self, number: int) -> None:
        self._tables.clear()

    def take(self, rows: pa.RecordBatch) -> None:
        self._tables.append(stamp_columns(rows, run_id=self._run_id, exported_at=self._exported_at))

    def to_frame(self) -> pd.DataFrame:
        frame = build_frame(pa.concat_tables([SCHEMA.empty_table(), *self._tables]))
        frame.attrs["certificate"] = self.certificate.as_report()
        return frame


async def _collect(service: Service, query: ListQuery) -> _Collected:
    collected = _Collected()
    async with open_client(service) as client:
        collected.certificate = await read_list(
            client, Retrier(), query, collected, form=COLUMNS, now=lambda: datetime.now(UTC)
        )
    return collected


def _build_query(filters: dict[str, Any]) -> ListQuery:
    try:
        return ListQuery(**filters)
    except TypeError:
        known = "id, base_id, client_user_id, email, is_active, first_name, last_name, gender"
        raise ConfigurationError(f"The list can be filtered by {known}; not by all of {', '.join(filters)}.") from None


def _choose_type(kind: pa.DataType) -> Any:
    return _PANDAS_TYPES.get(kind, pd.ArrowDtype(kind))


def _run(coroutine: Coroutine[Any, Any, _Collected]) -> _Collected:
    """Run to the end; where a loop runs already (a notebook), in a thread with a loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    outcome: list[_Collected | BaseException] = []

    def work() -> None:
        try:
            outcome.append(asyncio.run(coroutine))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            outcome.append(error)

    thread = threading.Thread(target=work, name="read_subscribers")
    thread.start()
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]
