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

from connector.clock import Clock, system_clock
from connector.errors import STOPPED, RunAborted
from connector.units import show_duration

T = TypeVar("T")

_CANCELLED_AGAIN_S = 1.0

_LAST_WAIT_S = 5.0  # for what is being recorded when a second signal comes: a ledger's server may not answer any more


@dataclass(slots=True)
class Stop:
    """Records whether and why a run must stop, and what the run does or waits for.

    `event` is set once no new request may leave. `signal` is the signal that stopped the run, and `reason` is the run's
    own reason. While `is_recording`, a second signal does not cancel the work, which only records results by then.
    """

    clock: Clock = field(default_factory=system_clock)
    event: asyncio.Event = field(default_factory=asyncio.Event)
    signal: int | None = None
    reason: str | None = None
    is_recording: bool = False
    activity: str = "reading"
    resumes_at: float | None = None  # end of the current wait (monotonic)

    @property
    def is_stopping(self) -> bool:
        """Whether a signal or a reason has ended the run."""
        return self.event.is_set()

    def end(self, reason: str) -> None:
        """Stop the run for this reason: no new request leaves. If several reasons are given, the first one counts."""
        self.reason = self.reason or reason
        self.event.set()

    def end_after(self, time_limit_s: float) -> None:
        """Stop the run after this many seconds, unless the run is stopping already."""
        reason = (
            f"the time limit of {show_duration(time_limit_s)} has passed: nothing more was begun, and what was under "
            "way is recorded; run it again for the rest"
        )

        def end() -> None:
            if not self.is_stopping:
                self.end(reason)

        asyncio.get_running_loop().call_later(time_limit_s, end)

    def check(self) -> None:
        """Raise RunAborted if the run has ended itself."""
        if self.reason is not None:
            raise RunAborted(self.reason)

    async def wait_for(self, future: asyncio.Future[Any]) -> bool:
        """Wait until the future is done or the run must stop; return whether the future is done. The future goes on."""
        stopped = asyncio.ensure_future(self.event.wait())
        try:
            await asyncio.wait((future, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        return future.done()

    async def rest(self, seconds: float) -> bool:
        """Wait this many seconds, or until the run must stop; return whether the run goes on."""
        if seconds > 0:
            sleeping = asyncio.ensure_future(self.clock.sleep(seconds))
            try:
                await self.wait_for(sleeping)
            finally:
                await _cancel(sleeping)
        return not self.is_stopping

    async def wait(self, seconds: float, why: str) -> bool:
        """Wait like `rest`; meanwhile `describe` returns the reason `why` with a countdown."""
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

    async def until_stopped(self, work: Coroutine[Any, Any, T], *, is_cancelled_once: bool = False) -> T:
        """Return the result of the work, or its error. Once the run must stop, cancel the work and wait for its end.

        Raises RunAborted if the work was cancelled. `is_cancelled_once`: do not cancel the work again while it cleans
        up.
        """
        task, again_after_s = asyncio.ensure_future(work), None if is_cancelled_once else _CANCELLED_AGAIN_S
        try:
            await self.wait_for(task)
        except asyncio.CancelledError:
            if self.signal is None:
                await _cancel(task, again_after_s)
                raise
            stay_alive()  # two signals at once
        if not task.done():
            was_recording, self.is_recording = self.is_recording, True
            await _cancel(task, again_after_s)
            self.is_recording = was_recording
        if task.cancelled():
            raise RunAborted(self.reason or STOPPED)
        return task.result()

    async def within_grace(self, sending: Coroutine[Any, Any, None], grace_s: float) -> None:
        """See `sending` to its end; once the run is to stop, cancel it after `grace_s`."""
        task = asyncio.ensure_future(sending)
        grace: asyncio.Future[None] | None = None
        try:
            if not await self.wait_for(task):
                grace = asyncio.ensure_future(self.clock.sleep(grace_s))
                await asyncio.wait((task, grace), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            await _cancel(task)
            if grace is not None:
                await _cancel(grace)


async def _cancel(task: asyncio.Future[Any], again_after_s: float | None = _CANCELLED_AGAIN_S) -> None:
    """Cancel the task until it ends, again and again: aiohttp may take a cancellation for its own timeout, and drop
    it."""
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=again_after_s)


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
            loop.call_later(_LAST_WAIT_S, give_up, number)
            if task is not None and not stop.is_recording:
                task.cancel()
        stop.signal = stop.signal or number
        stop.event.set()

    def give_up(number: int) -> None:
        """End the process as a kill does. That is safe: the next run settles what was under way."""
        words = "ended without a report, since the ledger did not answer; what was under way is settled next time"
        os.write(2, f"connector: {words}\n".encode())
        os._exit(128 + number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            # After a signal the report is still to be shown, and the exit code says it all. No SIG_IGN: Python prints
            # a traceback where a signal that has come is taken away its function before that was called.
            signal.signal(number, (lambda *_: None) if received else handler)


@asynccontextmanager
async def work_beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do this work beside the block, and cancel it when the block ends, until it has ended. What it raises is raised
    then."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        await _cancel(task)
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


def stay_alive() -> None:
    """Have the current task go on after a cancellation: what is known is still to be recorded and reported."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
