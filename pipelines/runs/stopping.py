"""Ctrl-C and SIGTERM: the first lets a run end in order, the second ends it at once."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

_LAST_WAIT_S = 5.0  # for what is being recorded when a second signal comes: a ledger's server may not answer any more


@dataclass(slots=True)
class Stop:
    """Whether a run is to stop, and the signal that said so."""

    event: asyncio.Event = field(default_factory=asyncio.Event)
    signal: int | None = None
    is_recording: bool = False  # what was done is being recorded, or waited for: nothing is left that could be ended


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """A Stop that SIGINT and SIGTERM set; a second signal cancels the task that entered this context and, if that does
    not help within five seconds, ends the process."""
    stop, task, loop = Stop(), asyncio.current_task(), asyncio.get_running_loop()

    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        loop.call_soon_threadsafe(receive, number, len(received))

    def receive(number: int, how_many: int) -> None:
        if how_many == 2:  # a third changes nothing
            loop.call_later(_LAST_WAIT_S, _give_up, number)
            if task is not None and not stop.is_recording:
                task.cancel()
        stop.signal = stop.signal or number
        stop.event.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            # After a signal the report is still to be shown, and the exit code says it all. No SIG_IGN: Python prints
            # a traceback where a signal that has come is taken away its function before that was called.
            signal.signal(number, _ignore if received else handler)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Let a signal pass."""


@asynccontextmanager
async def enter_in_thread(opened: AbstractContextManager[T], stop: Stop) -> AsyncIterator[T]:
    """What is entered in a thread: to wait for a lock, or to copy a ledger, takes time. It hears signals itself."""
    stop.is_recording = True  # a thread cannot be cancelled, and would leave behind what it opens
    try:
        entered = await asyncio.to_thread(opened.__enter__)
    finally:
        stop.is_recording = False
    with ExitStack() as stack:
        stack.push(opened.__exit__)
        yield entered


async def until_stopped(work: Coroutine[Any, Any, T], stop: Stop) -> T | BaseException:
    """How the work ended: what it gave, its error, or its cancellation when a signal came first.

    A second signal, whenever it comes, changes nothing of that. Raises only a cancellation that no signal asked for.
    """
    working, stopped = asyncio.create_task(work), asyncio.create_task(stop.event.wait())
    try:
        await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        if stop.signal is None:
            raise
        stay_alive()  # two signals at once
    stop.is_recording = True  # the work has ended, or is cancelled next
    working.cancel()
    stopped.cancel()
    ending, _ = await asyncio.gather(working, stopped, return_exceptions=True)
    return ending


def stay_alive() -> None:
    """Have the current task go on after a cancellation: what is known is still to be recorded and told."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


def _give_up(number: int) -> None:
    """End the process as a kill does. That is safe: what was under way is settled by the next run."""
    words = (
        "connector: ended without a report, since the ledger did not answer; what was under way is settled next time\n"
    )
    os.write(2, words.encode())
    os._exit(128 + number)
