"""What a run does about those who are to be created, and about those who are unknown: it sends them, or it plans.

All else of a load is the same for both: whatever a plan says was found out by the code that a load goes by.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from connector.load.creating import Creator, Settle, Take
from connector.load.judging import Verdict
from connector.load.refusing import Refusals
from connector.load.session import Session
from connector.load.settling import Settler
from connector.states import Event

_AT_ONCE = 1024  # then signals are heard
_WOULD_BE_CREATED = Verdict(Event.ANSWERED)


class Creates(Protocol):
    """Whatever is given those who are to be created, and tells a verdict on each."""

    async def create(self, take: Take) -> None:
        """All that `take(n)` gives, n at a time at most, until it gives nothing or the run is to stop."""


class Planner:
    """In place of a `Creator`: nobody is sent, and nothing recorded; each is told to be created."""

    def __init__(self, session: Session, _refusals: Refusals, on_verdict: Settle) -> None:
        self._session, self._on_verdict = session, on_verdict

    async def create(self, take: Take) -> None:
        """Tell of all that `take(n)` gives, until it gives nothing or the run is to stop."""
        while not self._session.stopping.is_set() and (batch := take(_AT_ONCE)):
            for candidate in batch:
                self._on_verdict(candidate, _WOULD_BE_CREATED)
            await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Conduct:
    """`is_sending`: rows are acted upon, so that what they say now is recorded, and nobody may stay in doubt who could
    be one of them."""

    build_creator: Callable[[Session, Refusals, Settle], Creates]
    settle: Callable[[Settler], Awaitable[None]]
    is_sending: bool


SENDING = Conduct(Creator, Settler.settle, is_sending=True)
PLANNING = Conduct(Planner, Settler.look_once, is_sending=False)
