"""Time as everything that waits sees it; it is passed in, so that simulations pass a virtual one."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Clock:
    """`monotonic` in seconds, never back; `now` aware and in UTC; `sleep` waits for so many seconds."""

    monotonic: Callable[[], float]
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]


def system_clock() -> Clock:
    """Return the machine's own clock."""
    return Clock(time.monotonic, lambda: datetime.now(UTC), asyncio.sleep)
