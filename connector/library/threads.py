"""Runs a function of the library in a thread with its own event loop, while the caller waits.

This works in a script, in a notebook with a running loop, and in a thread of an orchestrator. No signal handler, event
loop policy or logging is changed. An interruption of the caller (Ctrl-C, an exception of an orchestrator) stops the run
cleanly, and is raised afterwards.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from os import PathLike
from threading import Thread
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import uvloop

from connector.control import Stop
from connector.progress import Progress
from connector.service.settings import Token

if TYPE_CHECKING:
    from connector.runs.report import Report

T = TypeVar("T")


class ServiceOptions(TypedDict, total=False):
    """The service and its connection. `timeout_s` (seconds, 30 by default) limits one request."""

    base_url: str | None
    token: str | Token | None
    authorization: str
    timeout_s: float
    proxy: str | None


_PATIENCE = 2  # interruptions after which the caller still waits; after a third the thread is abandoned


def run_in_thread(work: Callable[[Stop], Coroutine[Any, Any, T]]) -> T:
    """Return the result of the work, or raise its error.

    A first interruption of the caller sets the Stop of the work, a second cancels the work, and a third abandons its
    thread. The first interruption is raised.
    """
    loop, stop, ended = uvloop.new_event_loop(), Stop(), Future[T]()
    task = loop.create_task(work(stop))
    interruptions = list[BaseException]()

    def interrupt() -> None:
        if len(interruptions) > 1 and not stop.is_recording:
            task.cancel()
        is_by_hand = isinstance(interruptions[-1], KeyboardInterrupt)
        stop.signal = stop.signal or (signal.SIGINT if is_by_hand else signal.SIGTERM)
        stop.event.set()

    Thread(target=_run, args=(loop, task, ended), name="connector", daemon=True).start()
    while not ended.done() and len(interruptions) <= _PATIENCE:
        try:
            wait((ended,))
        except BaseException as interruption:  # noqa: BLE001 - it is raised below
            interruptions.append(interruption)
            with suppress(RuntimeError):  # the work has just ended, and its loop is closed
                loop.call_soon_threadsafe(interrupt)
    if interruptions:
        raise interruptions[0]
    return ended.result()


def _run(loop: asyncio.AbstractEventLoop, task: asyncio.Task[T], ended: Future[T]) -> None:
    async def wait_for_task() -> T:
        return await task

    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            result = runner.run(wait_for_task())
    except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
        ended.set_exception(error)
    else:
        ended.set_result(result)


def run_flow(
    flow: Callable[[Stop, Progress], Coroutine[Any, Any, Report]], time_limit_s: float | None = None
) -> Report:
    """Run one flow, and stop it cleanly after `time_limit_s` seconds. A note of an interruption shows the status of the
    run."""
    reports: list[Report] = []

    async def work(stop: Stop) -> Report:
        if time_limit_s is not None:
            stop.end_after(time_limit_s)
        reports.append(await flow(stop, Progress()))
        return reports[0]

    try:
        return run_in_thread(work)
    except BaseException as interruption:
        for report in reports:
            interruption.add_note(
                f"the run {report.run_id} ended as {report.status}; see: connector status {report.run_id}"
            )
        raise


def override_environ(
    base_url: str | None, state_dir: str | PathLike[str] | None = None, ledger: str | None = None
) -> Mapping[str, str]:
    """Return the environment with these arguments in place of its values. None or "" changes nothing."""
    overrides = {"CONNECTOR_BASE_URL": base_url, "CONNECTOR_STATE_DIR": state_dir, "CONNECTOR_LEDGER": ledger}
    return {**os.environ, **{name: os.fspath(value) for name, value in overrides.items() if value}}


def make_token(token: str | Token | None) -> Token | None:
    """Return the argument as a Token. Raises ConfigurationError for a text that a header cannot contain."""
    return Token(token) if isinstance(token, str) else token


def refuse_unknown(options: Mapping[str, object], kind: type) -> None:
    """Raise TypeError for an argument that the TypedDict `kind` lacks: Python does not check this."""
    if unknown := options.keys() - kind.__annotations__.keys():
        raise TypeError(f"no such argument: {', '.join(sorted(unknown))}; known: {', '.join(kind.__annotations__)}")
