"""What a job decides of its load, how much it may do, and what the parts of the load of one base share."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from connector.clock import Clock
from connector.control import RunControl
from connector.errors import RunAborted
from connector.ledger import LedgerWriter
from connector.listing import ListAccess, ListPolicy, LookupKey, LookupResult
from connector.load.tally import Tally, WaitingRows
from connector.pace import Pace
from connector.subscribers import IDENTITY_BYTES, Suppression, join_digests

_SHORTEST_FRESH_S = 1.0
_ENOUGH = 100  # rows; of fewer a share says little, unless all are concerned
_ALL_OF = 10  # rows at least, that all are concerned


@dataclass(frozen=True, slots=True)
class LoadPolicy:
    """A job's `load` section: times in seconds; `identity` is email or client_user_id."""

    identity: str = "email"
    max_concurrency: int = 512  # 1,000 creates/s at a round trip of half a second; how many it really is, is found
    max_rate: float = inf  # requests/s
    on_unknown: Literal["resend", "hold"] = "resend"
    quiet_period_s: float = 30.0
    fresh_s: float = 900.0
    grace_s: float = 8.0  # for what is under way when a run is stopped; `docker stop` kills after 10 s
    is_looking: bool = True  # look before creating (architecture 4.7); `load.look: none` turns it off
    is_suppressing_inactive: bool = False  # no row is created active that the list shows as inactive in any base
    accepts_cut_off_possible: bool = False  # architecture 7, rule 7

    @property
    def listing(self) -> ListPolicy:
        """What look-ups need to know of it."""
        return ListPolicy(
            self.identity, self.max_concurrency, self.quiet_period_s, self.fresh_s, self.accepts_cut_off_possible
        )

    def known_until(self, began_at: float, ended_at: float) -> float:
        """Until when a subscriber may be created whom a look from `began_at` to `ended_at` (monotonic) did not show.

        Raises RunAborted when that has passed by `ended_at`: then no look is ever of use.
        """
        if not self.is_looking:
            return inf
        until = began_at + max(self.fresh_s, _SHORTEST_FRESH_S)
        if until <= ended_at:
            raise RunAborted(
                f"looking which subscribers exist took {ended_at - began_at:,.0f} s, longer than load.fresh "
                f"({self.fresh_s:g} s) allows a create to rely on it, and no quicker look tells. Nothing was created "
                "since. Make load.fresh longer than a look takes, then run again"
            )
        return until


def is_excess(number: int, allowed: float | None, of: int) -> bool:
    """Whether so many of so many rows are more than a guard's share (0 to 1; None: any) allows (architecture 8).

    Judged from 100 rows on, below that only when all of at least 10 rows are concerned.
    """
    if allowed is None or (of < _ENOUGH and not (of >= _ALL_OF and number == of)):
        return False
    return number > allowed * of


@dataclass(slots=True)
class Limits:
    """`max_creates` rows may be sent, and a share of `max_rejected` (0 to 1) of the answered be rejected; None: all."""

    max_creates: int | None = None
    max_rejected: float | None = None
    begun: int = 0  # rows that were sent, or are about to be
    answered: int = 0
    rejected: int = 0  # of the answered

    def allow(self, number: int) -> int:
        """How many of so many more may be sent."""
        return number if self.max_creates is None else max(0, min(number, self.max_creates - self.begun))

    def note(self, *, is_rejected: bool) -> str | None:
        """One was answered; why the run is to end by that, or None."""
        self.answered += 1
        self.rejected += is_rejected
        return self._find_excess() if self.answered >= _ENOUGH else None  # fewer are judged once all have been sent

    def take_back(self) -> None:
        """One that was noted as rejected was not, as a look has shown since."""
        self.rejected -= 1

    def check(self) -> None:
        """Judge what there was when all has been sent. Raises RunAborted."""
        if reason := self._find_excess():
            raise RunAborted(reason)

    def describe_creates(self) -> str:
        """Why nobody more is created."""
        return (
            f"guard.max_creates: {self.begun:,} were sent, as many as it allows, and there are more: the source has "
            "changed since it was surveyed. The others were not sent; look at the source, or raise the guard"
        )

    def _find_excess(self) -> str | None:
        if self.max_rejected is None or not is_excess(self.rejected, self.max_rejected, self.answered):
            return None
        return (
            f"guard.max_rejected: of {self.answered:,} creates that were answered {self.rejected:,} were rejected, and "
            f"{100 * self.max_rejected:.3g} % are allowed. Nobody else was sent; the service's words are in the "
            "rejects file: correct the rows or the mapping, or raise the guard"
        )


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
    """State of the load of one base; what is not of the base is shared with the run's others."""

    access: ListAccess
    policy: LoadPolicy
    tally: Tally
    job: str = ""  # the job's name: what an earlier run of it left may be sent again by this one
    suppression: Suppression | None = None  # the job's list, read anew by this run: none of it is sent again
    pace: Pace | None = None  # what is known of it from the run's other bases; None: this is the first, or the only one
    canaries: Canaries = field(default_factory=Canaries)  # of the run
    limits: Limits = field(default_factory=Limits)  # of the run
    waiting: WaitingRows = field(default_factory=WaitingRows)  # to be compared with the service, of the run

    @property
    def control(self) -> RunControl:
        """The run's."""
        return self.access.control

    @property
    def clock(self) -> Clock:
        """The run's."""
        return self.access.control.clock

    @property
    def journal(self) -> LedgerWriter:
        """Of the base's entries."""
        return self.access.journal

    def has_confirmed_since(self, at: float) -> bool:
        """Whether this run has confirmed a subscriber after `at` (monotonic)."""
        sentinels = self.access.witnesses
        return bool(sentinels) and sentinels[-1].at > at

    def is_suppressed(self, identity: bytes, sent: Mapping[str, object]) -> bool:
        """Whether a create that an earlier run left may not be sent again, by the job's list or by the service's."""
        if self.suppression is not None and self.suppression.holds(sent):
            return True
        inactive = self.access.inactive
        is_inactive = bool(inactive.find(join_digests([identity], IDENTITY_BYTES))[0])
        if not is_inactive or sent.get("is_active") is not True:
            return False
        if not self.policy.is_suppressing_inactive:
            inactive.reactivated.add(identity)
        return self.policy.is_suppressing_inactive


Look = Callable[[Session, Sequence[LookupKey]], Awaitable[LookupResult]]
"""Looks up these identities in the base of the session."""
