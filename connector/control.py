"""Stops a run after a signal or for a reason of its own, and describes what the run does or waits for.

After the first signal the run ends in order; the second signal ends it at once.
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

_CANCELLED_AGAIN_S = 1.0  # seconds between two cancellations of a task

_LAST_WAIT_S = 5.0  # seconds that recording may take after a second signal: the ledger's server may not answer any more


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
            f"the time limit of {show_duration(time_limit_s)} has passed: no new request was sent, and the result of "
            "every sent request is recorded. Run it again to continue"
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
            stay_alive()  # the second of two signals at once has cancelled this task
        if not task.done():
            was_recording, self.is_recording = self.is_recording, True
            await _cancel(task, again_after_s)
            self.is_recording = was_recording
        if task.cancelled():
            raise RunAborted(self.reason or STOPPED)
        return task.result()

    async def within_grace(self, sending: Coroutine[Any, Any, None], grace_s: float) -> None:
        """Run `sending` to its end. Once the run must stop, cancel `sending` after `grace_s` seconds."""
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
    """Cancel the task again and again until it ends, because aiohttp may drop a cancellation as its own timeout."""
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=again_after_s)


@contextmanager
def stop_on_signals(clock: Clock) -> Iterator[Stop]:
    """Yield a Stop with this clock that SIGINT and SIGTERM set.

    A second signal cancels the task that entered this context and, if that does not help within five seconds, ends the
    process.
    """
    stop, task, loop = Stop(clock), asyncio.current_task(), asyncio.get_running_loop()

    received: list[int] = []

    def handle(signal_number: int, _frame: FrameType | None) -> None:
        received.append(signal_number)
        loop.call_soon_threadsafe(receive, signal_number, len(received))

    def receive(signal_number: int, signal_count: int) -> None:
        if signal_count == 2:  # later signals change nothing
            loop.call_later(_LAST_WAIT_S, kill_process, signal_number)
            if task is not None and not stop.is_recording:
                task.cancel()
        stop.signal = stop.signal or signal_number
        stop.event.set()

    def kill_process(signal_number: int) -> None:
        """End the process as a kill does. The next run resolves the requests that were under way."""
        message = "ended without a report, because the ledger did not answer. Run it again to settle the open requests"
        os.write(2, f"connector: {message}\n".encode())
        os._exit(128 + signal_number)

    previous_handlers = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for signal_number, handler in previous_handlers.items():
            # After a signal the report must still be printed, so further signals do nothing. SIG_IGN would not do:
            # Python prints a traceback if the handler of a pending signal is removed before Python calls it.
            signal.signal(signal_number, (lambda *_: None) if received else handler)


@asynccontextmanager
async def work_beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` in a task beside the block. When the block ends, cancel the task, wait for its end, and raise its
    error, if any."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        await _cancel(task)
        if not task.cancelled():
            task.result()


@asynccontextmanager
async def enter_in_thread(opened: AbstractContextManager[T], stop: Stop) -> AsyncIterator[T]:
    """Enter the context in a thread, because a lock or a copy of a ledger takes time. Yield the context's value."""
    entered = await call_in_thread(opened.__enter__, stop)
    with ExitStack() as stack:
        stack.push(opened.__exit__)
        yield entered


async def call_in_thread(work: Callable[[], T], stop: Stop) -> T:
    """Run `work` in a thread, and return its result. Signals are received meanwhile, and do not interrupt `work`."""
    was_recording, stop.is_recording = stop.is_recording, True  # a thread cannot be cancelled: its context stays open
    try:
        return await asyncio.to_thread(work)
    finally:
        stop.is_recording = was_recording


def stay_alive() -> None:
    """Let the current task continue after a cancellation, because results must still be recorded and reported."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
