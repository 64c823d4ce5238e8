"""How many creates may be under way, and when none may: what a 429 asks for is given to all of them together.

A refusal halves what may be under way, successes raise it by one for each such number of them, up to the job's limit.
"""

import asyncio

from connector.load.session import Session

_FIRST_PAUSE_S = 0.05
_LARGEST_OWN_PAUSE_S = 10.0
_LONGEST_PAUSE_S = 600.0  # a longer wait is better spent not running
_PATIENCE_S = 120.0  # refused for its rate all that time, a run meets a service that takes no creates from it


class Throttle:
    """Everyone who sends enters first, and leaves with the answer."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._limit = session.policy.max_concurrency
        self._allowed = float(self._limit)
        self._under_way = 0
        self._pause_until = 0.0
        self._refusals = 0  # in a row
        self._refused_since: float | None = None
        self._left = asyncio.Event()

    async def enter(self) -> bool:
        """Wait for a place; False, and no place is taken, when the run is to stop."""
        while await self.wait_for_pause():
            if self._under_way < max(1, int(self._allowed)):
                self._under_way += 1
                return True
            self._left.clear()
            await self._left.wait()
        return False

    async def wait_for_pause(self) -> bool:
        """Wait until the service may be asked again; False when the run is to stop."""
        is_going_on = not self._session.stopping.is_set()
        while is_going_on and (wait_s := self._pause_until - self._session.clock.monotonic()) > 0:
            is_going_on = await self._session.rest(wait_s)
        return is_going_on

    def leave(self) -> None:
        """Give the place back."""
        self._under_way -= 1
        self._left.set()

    def note_taken(self) -> None:
        """A request was not refused for its rate."""
        self._refusals, self._refused_since = 0, None
        self._allowed = min(self._limit, self._allowed + 1 / self._allowed)

    def note_refused(self, retry_after_s: float | None) -> None:
        """A 429: nothing leaves for as long as the service says or, when it says nothing, for longer each time."""
        now = self._session.clock.monotonic()
        self._refused_since = now if self._refused_since is None else self._refused_since
        if now >= self._pause_until:  # the first of those that were under way together
            self._refusals += 1
            self._allowed = max(1.0, self._allowed / 2)
        own_s = min(_FIRST_PAUSE_S * 2**self._refusals, _LARGEST_OWN_PAUSE_S)
        wait_s = own_s if retry_after_s is None else retry_after_s
        self._pause_until = max(self._pause_until, now + wait_s)
        if wait_s > _LONGEST_PAUSE_S:
            self._session.end(f"the service asks to wait for {wait_s:.0f} seconds (429): run again after that")
        elif now - self._refused_since > _PATIENCE_S:
            self._session.end("the service kept refusing creates for their rate (429): run again when it is less busy")
