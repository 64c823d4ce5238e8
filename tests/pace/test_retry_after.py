"""A service that asks for pauses: nothing leaves within one, and they cost little."""

from bisect import bisect_left, bisect_right

import pytest

from tests.pace.cells import SEEDS
from tests.pace.clients import RateAlone
from tests.pace.measures import Count, add, count
from tests.pace.world import Trip, World, run

SINCE, UNTIL = 10.0, 130.0
HAIR_S = 1e-9
# Of each seed, and of all together; by measuring 30 seeds each at 20 and at 200/s.
GOODPUT = {
    ("bucket", 1.0): (0.98, 0.985),  # 0.989, 0.993
    ("bucket", 5.0): (0.845, 0.85),  # 0.855, 0.856: three or four pauses until it is known
    ("sliding_window", 1.0): (0.97, 0.97),  # 0.978, 0.978
    ("sliding_window", 5.0): (0.97, 0.97),  # 0.978, 0.978
    ("fixed_window", 1.0): (0.87, 0.92),  # 0.891, 0.954
    ("fixed_window", 5.0): (0.75, 0.88),  # 0.775, 0.925: each window that is overrun costs five
}


def list_sent_in_pauses(trips: list[Trip], pause_s: float) -> list[float]:
    """When requests left after an answer that asked for a pause came, and before the pause was over."""
    sent_at = sorted(trip.sent_at for trip in trips)
    inside = list[float]()
    for began_at in (trip.answered_at for trip in trips if not trip.is_served):
        inside += sent_at[bisect_right(sent_at, began_at) : bisect_left(sent_at, began_at + pause_s - HAIR_S)]
    return inside


@pytest.mark.parametrize("rate", [20, 200])
@pytest.mark.parametrize(("kind", "pause_s"), GOODPUT)
def test_nothing_leaves_within_a_pause_and_pauses_are_rare(kind: str, pause_s: float, rate: int) -> None:
    each, together = GOODPUT[kind, pause_s]
    counts = list[Count]()

    for seed in range(SEEDS):
        trips = run(RateAlone(), World(kind, [(0, rate)], 0.1, retry_after_s=pause_s), UNTIL + 1, seed)
        assert list_sent_in_pauses(trips, pause_s) == []
        counts.append(count(trips, rate, SINCE, UNTIL))

    assert min(seed.goodput for seed in counts) >= each
    assert add(counts).goodput >= together
    assert add(counts).refusals < 0.01
