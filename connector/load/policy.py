"""What a job decides of its load, and the clock that a load lives by."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

_SHORTEST_FRESH_S = 1.0


@dataclass(frozen=True, slots=True)
class LoadPolicy:
    """A job's `load` section: times in seconds; `identity` is email or client_user_id."""

    identity: str = "email"
    max_concurrency: int = 64
    on_unknown: Literal["resend", "hold"] = "resend"
    quiet_period_s: float = 30.0
    fresh_s: float = 900.0
    grace_s: float = 8.0  # for what is under way when a run is stopped; `docker stop` kills after 10 s
    is_looking: bool = True  # look before creating (design 4.7); `load.look: none` turns it off

    def known_until(self, began_at: float, ended_at: float) -> float:
        """Until when somebody may be created whom a look of that time (monotonic) did not show.

        A list that takes long to read stays good for twice that time, or a large base would only ever be listed.
        """
        if not self.is_looking:
            return float("inf")
        return began_at + max(self.fresh_s, 3 * (ended_at - began_at), _SHORTEST_FRESH_S)


@dataclass(frozen=True, slots=True)
class Clock:
    """Time as a load sees it: `monotonic` in seconds, `now` aware and in UTC; simulations pass virtual ones."""

    monotonic: Callable[[], float]
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]


def system_clock() -> Clock:
    """The machine's own clock."""
    return Clock(time.monotonic, lambda: datetime.now(UTC), asyncio.sleep)
