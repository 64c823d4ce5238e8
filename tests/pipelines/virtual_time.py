"""Clocks for commands that run in the process of a test (`Connector.run`)."""

import asyncio
from datetime import UTC, datetime, timedelta

from connector.clock import Clock, system_clock


class VirtualTime:
    """A clock that starts at `start` and runs with the machine's clock. A sleep moves the clock without waiting."""

    def __init__(self, start: datetime) -> None:
        self._start, self._monotonic = start, system_clock().monotonic
        self._offset_s = -self._monotonic()
        self.clock = Clock(self._read_monotonic_s, self._read_date, self._sleep)

    def move_to(self, date: datetime) -> None:
        """Move the time forward to this moment."""
        self._offset_s += (date - self._read_date()).total_seconds()

    def _read_monotonic_s(self) -> float:
        return self._monotonic() + self._offset_s

    def _read_date(self) -> datetime:
        return self._start + timedelta(seconds=self._read_monotonic_s())

    async def _sleep(self, seconds: float) -> None:
        self._offset_s += max(seconds, 0.0)
        await asyncio.sleep(0)


def skip_waits() -> Clock:
    """Return a clock on which each wait of a command takes no time: quiet periods, pauses and waits before a retry."""
    return VirtualTime(datetime.now(UTC)).clock
