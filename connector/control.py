"""Stops a run after a signal, or for a reason in the run, such as the time limit. Also describes what the run does now,
for a person.

After the first signal, the run ends cleanly. The second signal ends the run at once.
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
from connector.errors import RUN_STOPPED_MESSAGE, RunAborted
from connector.units import format_duration

T = TypeVar("T")

_CANCEL_INTERVAL_S = 1.0  # seconds between two cancellations of a task

# Seconds from the second signal until the process is killed. The run records its results meanwhile, but could wait
# forever for a ledger that does not answer.
_KILL_AFTER_S = 5.0


@dataclass(slots=True)
class Stop:
    """Shows whether a run must stop, and the reason. Also has the activity of the run: its work, or why the run waits.

    `event` is set when no new request may leave. `signal` is the signal that stopped the run. `reason` is the reason
    in the run, such as the time limit. While `ignores_second_signal` is true, a second signal does not cancel the work,
    because the work then only records results.
    """

    clock: Clock = field(default_factory=system_clock)
    event: asyncio.Event = field(default_factory=asyncio.Event)
    signal: int | None = None
    reason: str | None = None
    ignores_second_signal: bool = False
    activity: str = "reading"
    wait_ends_at: float | None = None  # time at which the current wait ends (monotonic)

    @property
    def is_stopping(self) -> bool:
        """Whether the run must stop, after a signal or a call of `request_stop`."""
        return self.event.is_set()

    def request_stop(self, reason: str) -> None:
        """Stop the run for this reason, so that no new request leaves. Only the first reason is stored."""
        self.reason = self.reason or reason
        self.event.set()

    def stop_after(self, time_limit_s: float) -> None:
        """Stop the run after `time_limit_s` seconds, unless the run is already stopping."""
        reason = (
            f"the time limit of {format_duration(time_limit_s)} has passed: the run stopped, and the result of "
            "every sent request is recorded. Run again to continue"
        )

        def stop_at_time_limit() -> None:
            if not self.is_stopping:
                self.request_stop(reason)

        asyncio.get_running_loop().call_later(time_limit_s, stop_at_time_limit)

    def raise_if_stop_requested(self) -> None:
        """Raise RunAborted with the reason if `request_stop` was called. After a signal, do nothing."""
        if self.reason is not None:
            raise RunAborted(self.reason)

    async def wait_for(self, future: asyncio.Future[Any]) -> bool:
        """Wait until the future is done or the run must stop. Return whether the future is done. The future is not
        cancelled."""
        stop_wait = asyncio.ensure_future(self.event.wait())
        try:
            await asyncio.wait((future, stop_wait), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop_wait.cancel()
        return future.done()

    async def sleep(self, seconds: float) -> bool:
        """Wait for `seconds`, or until the run must stop. Return whether the run continues."""
        if seconds > 0:
            sleep_task = asyncio.ensure_future(self.clock.sleep(seconds))
            try:
                await self.wait_for(sleep_task)
            finally:
                await _cancel_task(sleep_task)
        return not self.is_stopping

    async def wait(self, seconds: float, reason: str) -> bool:
        """Wait like `sleep`. During the wait, `describe` returns the `reason` with a countdown."""
        previous_activity = self.activity
        self.activity, self.wait_ends_at = reason, self.clock.monotonic() + seconds
        try:
            return await self.sleep(seconds)
        finally:
            self.activity, self.wait_ends_at = previous_activity, None

    def describe(self) -> str:
        """Return the activity of the run as a text. For a wait, the text has the remaining seconds and the reason."""
        if self.wait_ends_at is None:
            return self.activity
        return f"waiting {max(self.wait_ends_at - self.clock.monotonic(), 0):.0f} s: {self.activity}"

    async def wait_until_stopped(self, coroutine: Coroutine[Any, Any, T], *, cancels_only_once: bool = False) -> T:
        """Run the coroutine, and return its result or raise its error. When the run must stop, cancel the coroutine and
        wait for its end.

        Raises RunAborted if the coroutine was cancelled. If `cancels_only_once`, the coroutine is not cancelled again
        while it cleans up.
        """
        task, cancel_interval_s = asyncio.ensure_future(coroutine), None if cancels_only_once else _CANCEL_INTERVAL_S
        try:
            await self.wait_for(task)
        except asyncio.CancelledError:
            if self.signal is None:
                await _cancel_task(task, cancel_interval_s)
                raise
            ignore_cancellation()  # two signals came at once, and the second signal has cancelled this task
        if not task.done():
            previous_value, self.ignores_second_signal = self.ignores_second_signal, True
            await _cancel_task(task, cancel_interval_s)
            self.ignores_second_signal = previous_value
        if task.cancelled():
            raise RunAborted(self.reason or RUN_STOPPED_MESSAGE)
        return task.result()

    async def run_with_grace(self, coroutine: Coroutine[Any, Any, None], grace_s: float) -> None:
        """Run the coroutine to its end. When the run must stop, cancel the coroutine after `grace_s` seconds."""
        task = asyncio.ensure_future(coroutine)
        grace_sleep: asyncio.Future[None] | None = None
        try:
            if not await self.wait_for(task):
                grace_sleep = asyncio.ensure_future(self.clock.sleep(grace_s))
                await asyncio.wait((task, grace_sleep), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            await _cancel_task(task)
            if grace_sleep is not None:
                await _cancel_task(grace_sleep)


async def _cancel_task(task: asyncio.Future[Any], interval_s: float | None = _CANCEL_INTERVAL_S) -> None:
    """Cancel the task again and again until the task ends. aiohttp may ignore a cancellation, because aiohttp can
    mistake the cancellation for its own time-out."""
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=interval_s)


@contextmanager
def stop_on_signals(clock: Clock) -> Iterator[Stop]:
    """Yield a Stop with this clock. SIGINT and SIGTERM request a stop. SIGHUP, the signal of a closed terminal, counts
    as SIGTERM unless it is ignored, for example by `nohup`.

    A second signal other than SIGHUP cancels the task that entered this context. If the task has not ended five seconds
    later, the process is ended.
    """
    stop, task, loop = Stop(clock), asyncio.current_task(), asyncio.get_running_loop()

    received_signals: list[int] = []

    def handle_signal(signal_number: int, _frame: FrameType | None) -> None:
        received_signals.append(signal_number)
        # The kernel and the shell both send SIGHUP when a terminal closes, so SIGHUP never counts as a second signal.
        signal_count = sum(received_signal != signal.SIGHUP for received_signal in received_signals)
        loop.call_soon_threadsafe(receive_signal, signal_number, signal_count)

    def receive_signal(signal_number: int, signal_count: int) -> None:
        if signal_number == signal.SIGHUP:
            signal_number = signal.SIGTERM
        elif signal_count == 2:  # a third or later signal changes nothing
            loop.call_later(_KILL_AFTER_S, kill_process, signal_number)
            if task is not None and not stop.ignores_second_signal:
                task.cancel()
        stop.signal = stop.signal or signal_number
        stop.event.set()

    def kill_process(signal_number: int) -> None:
        """End the process at once, like a kill. The next run resolves the requests that had no answer."""
        message = "connector: ended without a report, because the ledger did not answer. "
        os.write(2, f"{message}Run again to resolve the requests that got no answer\n".encode())
        os._exit(128 + signal_number)

    signal_numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal_numbers.append(signal.SIGHUP)
    previous_handlers = {signal_number: signal.signal(signal_number, handle_signal) for signal_number in signal_numbers}
    try:
        yield stop
    finally:
        for signal_number, handler in previous_handlers.items():
            # After a signal, the report must still be printed, so further signals do nothing. SIG_IGN is not enough:
            # Python prints a traceback if a handler is removed while its signal is pending.
            signal.signal(signal_number, (lambda *_: None) if received_signals else handler)


@asynccontextmanager
async def run_in_background(coroutine: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run the coroutine in a task while the block runs. When the block ends, cancel the task, wait for its end, and
    raise its error if the task has failed."""
    task = asyncio.ensure_future(coroutine)
    try:
        yield
    finally:
        await _cancel_task(task)
        if not task.cancelled():
            task.result()


@asynccontextmanager
async def enter_in_thread(context: AbstractContextManager[T], stop: Stop) -> AsyncIterator[T]:
    """Enter the context in a thread, because locking or copying a ledger takes time. Yield the value that the context
    returns when it is entered."""
    context_value = await call_in_thread(context.__enter__, stop)
    with ExitStack() as stack:
        stack.push(context.__exit__)
        yield context_value


async def call_in_thread(function: Callable[[], T], stop: Stop) -> T:
    """Run `function` in a thread, and return its result. Signals are received during this time, but do not interrupt
    `function`."""
    # A second signal must not cancel this task, because a thread cannot be cancelled.
    previous_value, stop.ignores_second_signal = stop.ignores_second_signal, True
    try:
        return await asyncio.to_thread(function)
    finally:
        stop.ignores_second_signal = previous_value


def ignore_cancellation() -> None:
    """Let the current task continue after a cancellation, because results must still be recorded and reported."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
