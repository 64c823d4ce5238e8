"""How a run is stopped, by a signal or by itself, and what a person should know of it meanwhile."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from connector.clock import Clock
from connector.errors import RunAborted

T = TypeVar("T")

_CANCELLED_AGAIN_S = 1.0


@dataclass(slots=True)
class RunControl:
    """`stopping` set: no new request leaves. `reason`: why the run ends itself; `activity`: what it is doing."""

    clock: Clock
    stopping: asyncio.Event
    reason: str | None = None
    activity: str = "reading"

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

    async def until_stopped(self, reading: Coroutine[Any, Any, T]) -> T:
        """Return what `reading` gives, unless the run is to stop before: then cancel it, and raise RunAborted."""
        task = asyncio.ensure_future(reading)
        stopped = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise RunAborted(self.reason or "the run was stopped")
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
