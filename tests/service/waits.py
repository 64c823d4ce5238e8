"""Waits that are recorded and do not sleep."""

from collections.abc import Awaitable, Callable

from connector.clock import Clock, system_clock


class Waits:
    """A sleep that returns at once and remembers; it may do something at a given wait."""

    def __init__(self, act: Callable[[int], Awaitable[None]] | None = None) -> None:
        self.seconds: list[float] = []
        self._act = act

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if self._act:
            await self._act(len(self.seconds))

    @property
    def clock(self) -> Clock:
        """The machine's, put forward by what was waited for."""
        machine = system_clock()
        return Clock(lambda: machine.monotonic() + sum(self.seconds), machine.now, self)
