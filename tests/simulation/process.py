"""A process that can be killed: an event loop on virtual time that can end at any step, commit or time.

After the kill, no action of the process reaches its ledger or the service.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

from tests.simulation.timeline import Timeline

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_MAX_STEPS = 400_000  # 100 times the steps of the longest run; a process with more steps counts as endless
_MAX_CLOSE_CALLS = 100  # a task needs a call of `close` for each coroutine, and for each await in a finally block


class KilledError(BaseException):
    """The process was killed. The class is not an `Exception`, so that the program does not catch it and continue."""


class StuckError(Exception):
    """The process never ends, or the process waits for an event that never happens."""


@dataclass(slots=True)
class ProcessState:
    """The progress of a process, and the point at which it is killed."""

    kill_at_step: int | None = None  # kill the process before this step
    kill_at_commit: int | None = None  # kill the process at this commit
    kills_after_commit: bool = False  # kill the process after the commit instead of before the commit
    step_count: int = 0
    commit_count: int = 0
    has_ended: bool = False
    on_commit: Callable[[int], None] | None = None  # called after each commit with its number

    def record_step(self) -> None:
        """Count a step, and kill the process at `kill_at_step`."""
        self.step_count += 1
        if self.step_count == self.kill_at_step:
            self.has_ended = True

    def record_commit(self, *, is_committed: bool) -> None:
        """Count a commit. The method is called before (`is_committed` false) and after each commit.

        Raise KilledError at `kill_at_commit`.
        """
        self.commit_count += not is_committed
        if is_committed and self.on_commit is not None:
            self.on_commit(self.commit_count)
        if self.commit_count == self.kill_at_commit and is_committed == self.kills_after_commit:
            self.has_ended = True
            raise KilledError


class Process(asyncio.BaseEventLoop):  # only an event loop can run coroutines
    """An event loop on the timeline. Code that needs threads, sockets or signals fails, because the loop has none."""

    def __init__(self, timeline: Timeline, process_state: ProcessState) -> None:
        super().__init__()
        self.process_state = process_state
        self._timeline = timeline
        self._ready_handles: deque[asyncio.Handle] = deque()
        self._failure: BaseException | None = None

    def time(self) -> float:
        """Return the virtual time (s)."""
        return self._timeline.now_s

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Add a step after the waiting steps."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready_handles.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # safe without a lock, because the simulation has no threads

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Add a step `delay` seconds from now."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, due_at: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Add a step at the time `due_at`."""
        handle = asyncio.TimerHandle(due_at, callback, args, self, context)
        self._timeline.call_at(due_at, partial(self._resume_handle, handle))
        return handle

    def run(self, main: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of `main`, or None if the process is killed. Raise StuckError if the process never ends."""
        asyncio.set_event_loop(None)
        asyncio.events._set_running_loop(self)  # every running event loop does this
        try:
            task = self.create_task(main)
            while not (task.done() or self.process_state.has_ended):
                self._run_step()
            if not self.process_state.has_ended:
                self._cancel_remaining_tasks()
                return task.result()
            return None
        finally:
            self._close_coroutines()
            asyncio.events._set_running_loop(None)
            self.close()

    def _run_step(self) -> None:
        if not self._ready_handles:
            if not self._timeline.advance():
                raise StuckError("the process waits for something that will never happen")
            return
        if self.process_state.step_count >= _MAX_STEPS:
            raise StuckError(f"the process has not ended after {_MAX_STEPS} steps")
        handle = self._ready_handles.popleft()
        if not handle.cancelled():
            self.process_state.record_step()
            if not self.process_state.has_ended:
                handle._run()
            if self._failure is not None and not self.process_state.has_ended:
                raise self._failure

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """End the process if a callback has failed. If a task has failed and no other task awaits the task, log the
        error."""
        if "handle" in context:
            self._failure = context.get("exception")
        elif not self.process_state.has_ended:
            super().call_exception_handler(context)

    def _cancel_remaining_tasks(self) -> None:
        """Cancel the tasks that the main coroutine has left running, as `asyncio.run` does."""
        for task in self._list_tasks():
            task.cancel()
        while self._ready_handles and not self.process_state.has_ended:
            self._run_step()

    def _list_tasks(self) -> "list[asyncio.Task[Any]]":
        """Return the running tasks in the order of their start, so that each simulation of a seed is the same."""
        return sorted(asyncio.all_tasks(self), key=lambda task: int(task.get_name().partition("-")[2]))

    def _resume_handle(self, handle: asyncio.TimerHandle) -> None:
        if not (handle.cancelled() or self.process_state.has_ended):
            self._ready_handles.append(handle)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing, because `_resume_handle` ignores a cancelled timer."""

    def _close_coroutines(self) -> None:
        """Close the coroutines of a killed process. Their finally blocks run, but reach neither ledger nor service."""
        self.process_state.has_ended = True
        for task in self._list_tasks():
            task._log_destroy_pending = False  # type: ignore[attr-defined] # asyncio.gather does the same
            for _ in range(_MAX_CLOSE_CALLS):
                open_coroutines = _list_awaited_coroutines(task.get_coro())
                if not open_coroutines:
                    break
                # The coroutine may await once more, or fail because the ledger is gone.
                with suppress(Exception, KilledError):
                    open_coroutines[-1].close()
        self._ready_handles.clear()


def _list_awaited_coroutines(coroutine: Any) -> list[Coroutine[Any, Any, Any]]:
    """Return the coroutine and the coroutines that it awaits, the innermost last. Finished coroutines are left out."""
    open_coroutines: list[Coroutine[Any, Any, Any]] = []
    while inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) != inspect.CORO_CLOSED:
        open_coroutines.append(coroutine)
        coroutine = coroutine.cr_await
    return open_coroutines
