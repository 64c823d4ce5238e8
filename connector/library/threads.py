"""Runs a function of the library in a thread with its own event loop, while the caller waits.

The functions work in a script, in a notebook with a running event loop, and in a thread of an orchestrator. Signal
handlers, the event loop policy and logging do not change. An interruption of the caller (Ctrl-C, or an exception of an
orchestrator) stops the run cleanly, and is raised after the run has ended.
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
Flow = Callable[[Stop, Progress], Coroutine[Any, Any, "Report"]]


class ServiceOptions(TypedDict, total=False):
    """The service and its connection. `timeout_s` (seconds, 30 by default) limits one request."""

    base_url: str | None
    token: str | Token | None
    authorization: str
    timeout_s: float
    proxy: str | None


_MAX_INTERRUPTIONS_BEFORE_RETURN = 2  # after a third interruption, the caller no longer waits for the thread


def run_in_thread(start_work: Callable[[Stop], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine that `start_work` returns in a thread, and return its result or raise its error.

    A first interruption of the caller sets the Stop of the coroutine. A second interruption cancels the coroutine.
    After a third interruption, the caller no longer waits. The first interruption is raised.
    """
    loop, stop, result_future = uvloop.new_event_loop(), Stop(), Future[T]()
    task = loop.create_task(start_work(stop))
    interruptions = list[BaseException]()

    def interrupt() -> None:
        if len(interruptions) > 1 and not stop.ignores_second_signal:
            task.cancel()
        is_keyboard_interrupt = isinstance(interruptions[-1], KeyboardInterrupt)
        stop.signal = stop.signal or (signal.SIGINT if is_keyboard_interrupt else signal.SIGTERM)
        stop.event.set()

    Thread(target=_run_task, args=(loop, task, result_future), name="connector", daemon=True).start()
    while not result_future.done() and len(interruptions) <= _MAX_INTERRUPTIONS_BEFORE_RETURN:
        try:
            wait((result_future,))
        except BaseException as interruption:  # noqa: BLE001 - the interruption is raised below
            interruptions.append(interruption)
            with suppress(RuntimeError):  # the work has just ended, and its event loop is closed
                loop.call_soon_threadsafe(interrupt)
    if interruptions:
        raise interruptions[0]
    return result_future.result()


def _run_task(loop: asyncio.AbstractEventLoop, task: asyncio.Task[T], result_future: Future[T]) -> None:
    async def wait_for_task() -> T:
        return await task

    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            result = runner.run(wait_for_task())
    except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
        result_future.set_exception(error)
    else:
        result_future.set_result(result)


def run_flow(flow: Flow, time_limit_s: float | None = None) -> Report:
    """Run one flow, and stop the flow cleanly after `time_limit_s` seconds. If an interruption is raised, the
    interruption gets a note with the status of the run."""
    reports: list[Report] = []

    async def start_work(stop: Stop) -> Report:
        if time_limit_s is not None:
            stop.stop_after(time_limit_s)
        reports.append(await flow(stop, Progress()))
        return reports[0]

    try:
        return run_in_thread(start_work)
    except BaseException as interruption:
        for report in reports:
            interruption.add_note(
                f"the run {report.run_id} ended with the status {report.status}. To see its report, run: connector "
                f"status {report.run_id}"
            )
        raise


def override_environ(
    base_url: str | None, state_dir: str | PathLike[str] | None = None, ledger: str | None = None
) -> Mapping[str, str]:
    """Return the environment. The arguments replace its values. An argument that is None or "" replaces nothing."""
    overriding_variables = {
        "CONNECTOR_BASE_URL": base_url,
        "CONNECTOR_STATE_DIR": state_dir,
        "CONNECTOR_LEDGER": ledger,
    }
    return {**os.environ, **{name: os.fspath(value) for name, value in overriding_variables.items() if value}}


def make_token(token: str | Token | None) -> Token | None:
    """Return the argument as a Token. Raises ConfigurationError for a text that a header cannot contain."""
    return Token(token) if isinstance(token, str) else token


def refuse_unknown_options(options: Mapping[str, object], options_type: type) -> None:
    """Raise TypeError for an argument that the TypedDict `options_type` does not have, because Python does not check
    the names of these arguments."""
    if unknown_names := options.keys() - options_type.__annotations__.keys():
        raise TypeError(
            f"no such argument: {', '.join(sorted(unknown_names))}; known: {', '.join(options_type.__annotations__)}"
        )
