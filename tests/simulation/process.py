"""A process that can die: an event loop on virtual time that ends at any step, commit or moment.

Death is faithful: from then on nothing that the process does reaches its ledger or the service.
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

_MOST_STEPS = 400_000  # a hundred times what the longest night has taken: a process that goes on so long does not end
_CLOSINGS = 100  # of one task: once for each coroutine in it, and for each await in a finally block


class DiedError(BaseException):
    """The process is dead. No `Exception`, since nothing that it runs may catch it and go on."""


class StuckError(Exception):
    """The process would wait for ever, or never stops being busy."""


@dataclass(slots=True)
class Life:
    """How far a process has come, and where it is to die: before its nth step, or on one side of its nth commit.

    `on_commit` is told the number of each commit that was made.
    """

    at_step: int | None = None
    at_commit: int | None = None
    is_after: bool = False  # after the commit rather than before
    steps: int = 0
    commits: int = 0
    is_over: bool = False
    on_commit: Callable[[int], None] | None = None

    def note_step(self) -> None:
        """Another await is resumed."""
        self.steps += 1
        if self.steps == self.at_step:
            self.is_over = True

    def note_commit(self, *, is_done: bool) -> None:
        """A commit is about to be made, or has been; raises DiedError at the one where this life ends."""
        self.commits += not is_done
        if is_done and self.on_commit is not None:
            self.on_commit(self.commits)
        if self.commits == self.at_commit and is_done == self.is_after:
            self.is_over = True
            raise DiedError


class Process(asyncio.BaseEventLoop):  # nothing else than an event loop can run coroutines
    """Runs coroutines on the timeline. Without threads, sockets and signals: whatever asks for one of them fails."""

    def __init__(self, timeline: Timeline, life: Life) -> None:
        super().__init__()
        self.life = life
        self._timeline = timeline
        self._resumed: deque[asyncio.Handle] = deque()
        self._failure: BaseException | None = None

    def time(self) -> float:
        """The timeline's clock."""
        return self._timeline.now_s

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """The next step but those already waiting."""
        handle = asyncio.Handle(callback, args, self, context)
        self._resumed.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # what its threads do, they do between two of its steps

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """A step so many seconds later."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """A step at that time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timeline.call_at(when, partial(self._resume, handle))
        return handle

    def run(self, main: Coroutine[Any, Any, T]) -> T | None:
        """What `main` gives, or None if the process dies before. Raises what `main` raises, and StuckError."""
        asyncio.set_event_loop(None)
        asyncio.events._set_running_loop(self)  # as every event loop does while it runs
        try:
            task = self.create_task(main)
            while not (task.done() or self.life.is_over):
                self._go_on()
            if not self.life.is_over:
                self._finish_leftovers()
                return task.result()
            return None
        finally:
            self._bury()
            asyncio.events._set_running_loop(None)
            self.close()

    def _go_on(self) -> None:
        if not self._resumed:
            if not self._timeline.advance():
                raise StuckError("the process waits for something that will never happen")
            return
        if self.life.steps >= _MOST_STEPS:
            raise StuckError(f"the process has not ended after {_MOST_STEPS} steps")
        handle = self._resumed.popleft()
        if not handle.cancelled():
            self.life.note_step()
            if not self.life.is_over:
                handle._run()
            if self._failure is not None and not self.life.is_over:
                raise self._failure

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A callback has failed, which ends the process; or a task's failure was read by nobody, which is logged."""
        if "handle" in context:
            self._failure = context.get("exception")
        elif not self.life.is_over:
            super().call_exception_handler(context)

    def _finish_leftovers(self) -> None:
        """What the main coroutine has set off and not waited for, as `asyncio.run` does it: cancelled."""
        for task in self._list_tasks():
            task.cancel()
        while self._resumed and not self.life.is_over:
            self._go_on()

    def _list_tasks(self) -> "list[asyncio.Task[Any]]":
        """All that have not ended, in the order in which they began: each playing of a seed is to be the same."""
        return sorted(asyncio.all_tasks(self), key=lambda task: int(task.get_name().partition("-")[2]))

    def _resume(self, handle: asyncio.TimerHandle) -> None:
        if not (handle.cancelled() or self.life.is_over):
            self._resumed.append(handle)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is dropped when its time comes."""

    def _bury(self) -> None:
        """Let go of the coroutines of a dead process. Their finally blocks run; by then they reach nothing."""
        self.life.is_over = True
        for task in self._list_tasks():
            task._log_destroy_pending = False  # type: ignore[attr-defined] # as asyncio.gather does; nobody waits
            for _ in range(_CLOSINGS):
                waiting = _list_waiting(task.get_coro())
                if not waiting:
                    break
                with suppress(Exception, DiedError):  # it awaits once more, or fails at its cut ledger
                    waiting[-1].close()
        self._resumed.clear()


def _list_waiting(coroutine: Any) -> list[Coroutine[Any, Any, Any]]:
    """A coroutine and those that it awaits, as far as they have not ended; the innermost last."""
    waiting: list[Coroutine[Any, Any, Any]] = []
    while inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) != inspect.CORO_CLOSED:
        waiting.append(coroutine)
        coroutine = coroutine.cr_await
    return waiting
