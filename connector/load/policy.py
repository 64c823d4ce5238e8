"""What a job decides of its load."""

from dataclasses import dataclass
from math import inf
from typing import Literal

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
    is_looking: bool = True  # look before creating (design 4.7); `load.look: none` turns it off

    def known_until(self, began_at: float, ended_at: float) -> float:
        """Until when somebody may be created whom a look of that time (monotonic) did not show.

        A list that takes long to read stays good for twice that time, or a large base would only ever be listed.
        """
        if not self.is_looking:
            return inf
        return began_at + max(self.fresh_s, 3 * (ended_at - began_at), _SHORTEST_FRESH_S)
