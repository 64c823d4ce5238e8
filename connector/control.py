"""How a run is stopped, by a signal or by itself, and what a person should know of it meanwhile.

The first signal lets a run end in order, the second ends it at once.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar

from connector.clock import Clock
from connector.errors import STOPPED, RunAborted
from connector.units import show_duration

T = TypeVar("T")

_CANCELLED_AGAIN_S = 1.0

_LAST_WAIT_S = 5.0  # for what is being recorded when a second signal comes: a ledger's server may not answer any more


@dataclass(slots=True)
class RunControl:
    """`stopping` set: no new request leaves. `reason`: why the run ends itself; `activity`: what it is doing."""

    clock: Clock
    stopping: asyncio.Event
    reason: str | None = None
    activity: str = "reading"
    resumes_at: float | None = None  # (monotonic) until when it waits

    @property
    def is_stopping(self) -> bool:
        """Whether a signal or a reason has ended the run."""
        return self.stopping.is_set()

    def end(self, reason: str) -> None:
        """End the run for this reason (the first given counts), once what is in flight has come back."""
        self.reason = self.reason or reason
        self.stopping.set()

    def check(self) -> None:
        """Raise RunAborted if the run has ended itself."""
        if self.reason is not None:
            raise RunAborted(self.reason)

    async def rest(self, seconds: float) -> bool:
        """Wait so long, or until the run is to stop; True when the time has passed."""
        if seconds > 0:
            sleeping = asyncio.ensure_future(self.clock.sleep(seconds))
            stopped = asyncio.ensure_future(self.stopping.wait())
            await asyncio.wait((sleeping, stopped), return_when=asyncio.FIRST_COMPLETED)
            await _end(sleeping, stopped)
        return not self.is_stopping

    async def wait(self, seconds: float, why: str) -> bool:
        """Rest so long, and say why meanwhile, with a countdown."""
        before = self.activity
        self.activity, self.resumes_at = why, self.clock.monotonic() + seconds
        try:
            return await self.rest(seconds)
        finally:
            self.activity, self.resumes_at = before, None

    def describe(self) -> str:
        """Return what the run is doing, or how long it waits, and why."""
        if self.resumes_at is None:
            return self.activity
        return f"waiting {max(self.resumes_at - self.clock.monotonic(), 0):.0f} s: {self.activity}"

    async def until_stopped(self, reading: Coroutine[Any, Any, T]) -> T:
        """Return what `reading` gives, unless the run is to stop before: then cancel it, and raise RunAborted."""
        task = asyncio.ensure_future(reading)
        stopped = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise RunAborted(self.reason or STOPPED)
        finally:
            await _end(task, stopped)

    async def within_grace(self, sending: Coroutine[Any, Any, None], grace_s: float) -> None:
        """See `sending` to its end; once the run is to stop, cancel it after `grace_s`."""
        task = asyncio.ensure_future(sending)
        over = asyncio.ensure_future(self._wait_for_grace(grace_s))
        try:
            await asyncio.wait((task, over), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            await _end(task, over)

    async def _wait_for_grace(self, grace_s: float) -> None:
        await self.stopping.wait()
        await self.clock.sleep(grace_s)


async def _end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel them, and again while they go on: aiohttp may take a cancellation for its own time-out, and drop it."""
    while rest := [task for task in tasks if not task.done()]:
        for task in rest:
            task.cancel()
        await asyncio.wait(rest, timeout=_CANCELLED_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class Stop:
    """Whether a run is to stop, and what said so: a signal, or a `reason` of its own."""

    event: asyncio.Event = field(default_factory=asyncio.Event)
    signal: int | None = None
    reason: str | None = None
    is_recording: bool = False  # what was done is being recorded, or waited for: nothing is left that could be ended

    def end(self, reason: str) -> None:
        """End the run as a first signal does, for this reason, unless it is ending already."""
        if not self.event.is_set():
            self.reason = reason
            self.event.set()

    def end_after(self, time_limit_s: float) -> None:
        """End the run in order, as `end` does, once so many seconds have passed."""
        reason = (
            f"the time limit of {show_duration(time_limit_s)} has passed: nothing more was begun, and what was under "
            "way is recorded; run it again for the rest"
        )
        asyncio.get_running_loop().call_later(time_limit_s, self.end, reason)


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Yield a Stop that SIGINT and SIGTERM set; a second signal cancels the task that entered this context and, if that
    does not help within five seconds, ends the process."""
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
async def work_beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do this work beside the block, and cancel it when the block ends, until it has ended. What it raises is raised
    then."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        await _end(task)
        if not task.cancelled():
            task.result()


@asynccontextmanager
async def enter_in_thread(opened: AbstractContextManager[T], stop: Stop) -> AsyncIterator[T]:
    """Enter a context in a thread, since a lock or a copy of a ledger takes time; yield what it gives."""
    entered = await call_in_thread(opened.__enter__, stop)
    with ExitStack() as stack:
        stack.push(opened.__exit__)
        yield entered


async def call_in_thread(work: Callable[[], T], stop: Stop) -> T:
    """Return what the work gives, done in a thread: signals are heard meanwhile, and do not cut it off."""
    was_recording, stop.is_recording = stop.is_recording, True  # a thread cannot be cancelled, and what it opens stays
    try:
        return await asyncio.to_thread(work)
    finally:
        stop.is_recording = was_recording


async def until_stopped(work: Coroutine[Any, Any, T], stop: Stop) -> T | BaseException:
    """Return how the work ended: what it gave, its error, or its cancellation when a signal came first.

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
    """Have the current task go on after a cancellation: what is known is still to be recorded and reported."""
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
