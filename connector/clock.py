"""Time as everything that waits sees it; it is passed in, so that simulations pass a virtual one."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial


@dataclass(frozen=True, slots=True)
class Clock:
    """`monotonic` in seconds, never back, and on while the machine sleeps; `now` aware and in UTC; `sleep` waits for so
    many seconds."""

    monotonic: Callable[[], float]
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]


def system_clock() -> Clock:
    """Return the machine's own clock.

    Linux's usual one stands still while the machine sleeps or is paused: on its waking a lease or a look-up would seem
    to be good still.
    """
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    monotonic = time.monotonic if boot is None else partial(time.clock_gettime, boot)
    return Clock(monotonic, lambda: datetime.now(UTC), asyncio.sleep)


def write_timestamp(seconds: float) -> str:
    """Return a time in Unix seconds as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
