"""Reading the list from a script or a notebook: whom to ask, where it runs, and what an incomplete list is."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
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
