"""The clock of all code that waits. The clock is an argument, so that simulations can pass a virtual clock."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial


@dataclass(frozen=True, slots=True)
class Clock:
    """The three functions of a clock.

    `monotonic` returns seconds that never decrease. The seconds also count while the machine sleeps. `now` returns the
    aware time in UTC. `sleep` waits for a number of seconds.
    """

    monotonic: Callable[[], float]
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]


def system_clock() -> Clock:
    """Return the clock of this machine.

    `time.monotonic` of Linux stands still while the machine sleeps or is paused. After the pause, an expired lease or
    look-up would seem to be valid. So CLOCK_BOOTTIME is used if the machine has this clock.
    """
    clock_id = getattr(time, "CLOCK_BOOTTIME", None)
    monotonic = time.monotonic if clock_id is None else partial(time.clock_gettime, clock_id)
    return Clock(monotonic, lambda: datetime.now(UTC), asyncio.sleep)


def format_timestamp(seconds: float) -> str:
    """Return a time in Unix seconds as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
