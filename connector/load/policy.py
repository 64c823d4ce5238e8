"""What a job decides of its load."""

from dataclasses import dataclass
from math import inf
from typing import Literal

from connector.errors import RunAborted

_SHORTEST_FRESH_S = 1.0


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
