"""A replacement for sleep that records the waits and returns immediately."""

from collections.abc import Awaitable, Callable

from connector.clock import Clock, system_clock


class RecordedWaits:
    """A sleep that records its seconds and returns immediately. `on_wait` is called with the number of each wait."""

    def __init__(self, on_wait: Callable[[int], Awaitable[None]] | None = None) -> None:
        self.seconds: list[float] = []
        self._on_wait = on_wait

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if self._on_wait:
            await self._on_wait(len(self.seconds))

    @property
    def clock(self) -> Clock:
        """The clock of the machine plus the seconds of all waits."""
        machine_clock = system_clock()
        return Clock(lambda: machine_clock.monotonic() + sum(self.seconds), machine_clock.now, self)
