"""Random refusals, which do not depend on the rate, neither stop a client nor lower its rate for long."""

from math import inf

import pytest

from tests.pace.clients import Both
from tests.pace.world import World, run

SEEDS = range(1, 3)  # the mean counts, because three random refusals in a row sometimes look like a limit


def count_served(world: World, since: float, until: float) -> float:
    """Return the number of served requests from `since` to `until`, as the mean of several runs."""
    trips = [trip for seed in SEEDS for trip in run(Both(), world, until, seed)]
    return sum(trip.is_served for trip in trips if since <= trip.answered_at < until) / len(SEEDS)


@pytest.mark.parametrize("faulty", [0.01, 0.05])
def test_a_service_without_a_limit_is_used_fully_despite_random_refusals(faulty: float) -> None:
    world = World("bucket", [(0, inf)], 0.05, capacity=20, faulty=faulty)
    assert count_served(world, 25, 45) >= 0.8 * 800 * 20


@pytest.mark.parametrize("faulty", [0.01, 0.05])
def test_a_limit_is_still_used_after_two_minutes_of_random_refusals(faulty: float) -> None:
    world = World("bucket", [(0, 100)], 0.05, faulty=faulty)
    assert count_served(world, 120, 180) >= 0.8 * 100 * 60  # measured with 32 seeds: 0.9


@pytest.mark.parametrize("faulty", [0.01, 0.02])
def test_a_small_limit_that_doubled_is_found_despite_random_refusals(faulty: float) -> None:
    world = World("bucket", [(0, 2.5), (300, 5)], 0.05, faulty=faulty)
    assert count_served(world, 400, 900) >= 0.95 * 5 * 500
