"""What the parts of one load share: service, journal, policy, clock, sums, and the way to stop."""

import asyncio
import os
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from connector.clock import Clock
from connector.errors import RunAborted
from connector.load.drift import WaitingRows
from connector.load.journal import Journal
from connector.load.limits import Limits
from connector.load.looks.lookout import Lookout
from connector.load.looks.witness import Seeing, Witness
from connector.load.policy import LoadPolicy
from connector.load.tally import Tally
from connector.pace import Pace
from connector.service import Client, Retrier
from connector.subscribers import IDENTITY_BYTES, InactiveIdentities, Suppression, join_digests

T = TypeVar("T")

_CANCELLED_AGAIN_S = 1.0


@dataclass(slots=True)
class Canaries:
    """What the first creates have come to (architecture 4.9): of a run until one create of it is answered, whichever
    base that is in; then of each base by itself.

    `unknown`: those who are (different ones: one alone is sent again as often as anybody); `refused`: how many in which
    way; `lost`: how many answers in a row, of a canary or not, have told nothing.
    """

    unknown: set[tuple[int, bytes]] = field(default_factory=set)  # key of the base, identity
    refused: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    is_answered: bool = False


@dataclass(slots=True)
class Session:
    """State of one load. `stopping` set: no new request leaves; `ending` is the reason when the run ends itself."""

    client: Client
    retrier: Retrier
    journal: Journal
    policy: LoadPolicy
    clock: Clock
    tally: Tally
    stopping: asyncio.Event
    asked_name: str | None = None  # the base's name, where the job gave that and no id: answers must agree with it
    job: str = ""  # the job's name: what an earlier run of it left may be sent again by this one
    suppression: Suppression | None = None  # the job's list, read anew by this run: none of it is sent again
    inactive: InactiveIdentities = field(default_factory=InactiveIdentities)  # of the run, all its bases together
    pace: Pace | None = None  # what is known of it from the run's other bases; None: this is the first, or the only one
    canaries: Canaries = field(default_factory=Canaries)  # of the run, all its bases together
    limits: Limits = field(default_factory=Limits)  # of the whole run
    waiting: WaitingRows = field(default_factory=WaitingRows)  # to be compared with the service, of all bases together
    draw: Callable[[int], bytes] = os.urandom  # so many random bytes; simulations pass their own
    ending: str | None = None
    activity: str = "reading"  # what a person should know of it now
    seeing: Seeing = field(default_factory=Seeing)  # of the run, all its bases together
    lookout: Lookout = field(default_factory=Lookout)  # what its looks have learnt of how to look

    @property
    def witnesses(self) -> deque[Witness]:
        """The latest whom this run has confirmed."""
        return self.seeing.witnesses

    @property
    def shown_after_s(self) -> float:
        """Seconds after which the list should show a create: a quiet period, or the largest lag on record."""
        return max(self.policy.quiet_period_s, self.seeing.largest_lag_s)

    def has_confirmed_since(self, at: float) -> bool:
        """Whether this run has confirmed somebody after `at` (monotonic)."""
        return bool(self.witnesses) and self.witnesses[-1].at > at

    def is_suppressed(self, identity: bytes, sent: Mapping[str, object]) -> bool:
        """Whether a create that an earlier run left may not be sent again, by the job's list or by the service's."""
        if self.suppression is not None and self.suppression.holds(sent):
            return True
        is_inactive = bool(self.inactive.find(join_digests([identity], IDENTITY_BYTES))[0])
        if not is_inactive or sent.get("is_active") is not True:
            return False
        if not self.policy.is_suppressing_inactive:
            self.inactive.reactivated.add(identity)
        return self.policy.is_suppressing_inactive

    def end(self, reason: str) -> None:
        """End the run for this reason (the first given counts), once what is in flight has come back."""
        self.ending = self.ending or reason
        self.stopping.set()

    def check(self) -> None:
        """Raise RunAborted if the run has ended itself."""
        if self.ending is not None:
            raise RunAborted(self.ending)

    async def until_stopped(self, reading: Coroutine[Any, Any, T]) -> T:
        """What `reading` gives, unless the run is to stop before: then it is cancelled, and RunAborted raised."""
        task = asyncio.ensure_future(reading)
        stopped = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise RunAborted(self.ending or "the run was stopped")
        finally:
            await _end(task, stopped)

    async def within_grace(self, sending: Coroutine[Any, Any, None]) -> None:
        """See `sending` to its end; once the run is to stop, for no longer than the grace period: then it is cancelled,
        and what was under way is unknown."""
        task = asyncio.ensure_future(sending)
        over = asyncio.ensure_future(self._wait_for_grace())
        try:
            await asyncio.wait((task, over), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            await _end(task, over)

    async def _wait_for_grace(self) -> None:
        await self.stopping.wait()
        await self.clock.sleep(self.policy.grace_s)

    async def rest(self, seconds: float) -> bool:
        """Wait so long, or until the run is to stop; True when the time has passed."""
        if seconds <= 0:
            return not self.stopping.is_set()
        sleeping = asyncio.ensure_future(self.clock.sleep(seconds))
        stopped = asyncio.ensure_future(self.stopping.wait())
        await asyncio.wait((sleeping, stopped), return_when=asyncio.FIRST_COMPLETED)
        await _end(sleeping, stopped)
        return not self.stopping.is_set()


async def _end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel them, and again while they go on: aiohttp may take a cancellation for its own time-out, and drop it."""
    while rest := [task for task in tasks if not task.done()]:
        for task in rest:
            task.cancel()
        await asyncio.wait(rest, timeout=_CANCELLED_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)
