"""Reading the list from a script or a notebook: whom to ask, where it runs, and what an incomplete list is."""

import asyncio
import threading
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

import pyarrow as pa

from connector.api.ahead import LIST_CONNECTIONS
from connector.api.client import open_client
from connector.api.handing import PageSink
from connector.api.listing import read_list
from connector.api.retries import Retrier
from connector.api.service import Service
from connector.api.token import Token
from connector.errors import ConfigurationError, RunAborted
from connector.export.form import open_columns
from connector.pages import Certificate
from connector.protocol import ListQuery

T = TypeVar("T")


class IncompleteList(RunAborted):
    """The list was read, and is not known to be complete; `certificate` says why."""

    def __init__(self, certificate: Certificate) -> None:
        super().__init__(
            f"The list is incomplete ({certificate.reason}). Read it again later, or take it with allow_incomplete."
        )
        self.certificate = certificate


def build_service(base_url: str, token: str | Token, authorization: str, timeout_s: float) -> Service:
    """The service of these settings. Raises ConfigurationError."""
    known = token if isinstance(token, Token) else Token(token)
    return Service(base_url, known, authorization=authorization, timeout_s=timeout_s, max_connections=LIST_CONNECTIONS)


def build_query(filters: dict[str, Any]) -> ListQuery:
    """The query of these filters, by field name (api.md 4.3). Raises ConfigurationError for any other."""
    try:
        return ListQuery(**filters)
    except TypeError:
        known = "id, base_id, client_user_id, email, is_active, first_name, last_name, gender"
        raise ConfigurationError(f"The list can be filtered by {known}; not by all of {', '.join(filters)}.") from None


async def collect(
    service: Service, query: ListQuery, sink: PageSink[pa.RecordBatch], *, allow_incomplete: bool
) -> Certificate:
    """Read everyone into the sink; when this returns, no connection is left. Raises ListFailed, and IncompleteList."""
    with open_columns() as columns:
        async with open_client(service) as client:
            certificate = await read_list(client, Retrier(), query, sink, form=columns, now=lambda: datetime.now(UTC))
    if not certificate.is_complete and not allow_incomplete:
        raise IncompleteList(certificate)
    return certificate


def run_anywhere(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end; where a loop runs already (a notebook), in a thread with a loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    done: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            done.append(asyncio.run(coroutine))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            failed.append(error)

    thread = threading.Thread(target=work, name="connector reads the list")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]
