"""Refusals that have nothing to do with the rate neither stop a client nor wear its pace down."""

from math import inf

import pytest

from tests.pace.clients import Both
from tests.pace.world import World, run

SEEDS = range(1, 3)  # three random refusals in a row are taken for a limit once in a while: the mean counts


def count_served(world: World, since: float, until: float) -> float:
    """The mean of several runs."""
    trips = [trip for seed in SEEDS for trip in run(Both(), world, until, seed)]
    return sum(trip.is_served for trip in trips if since <= trip.answered_at < until) / len(SEEDS)


@pytest.mark.parametrize("faulty", [0.01, 0.05])
def test_a_service_without_a_limit_is_used_to_the_full_whatever_it_refuses_at_random(faulty: float) -> None:
    world = World("bucket", [(0, inf)], 0.05, capacity=20, faulty=faulty)
    assert count_served(world, 25, 45) >= 0.8 * 800 * 20


@pytest.mark.parametrize("faulty", [0.01, 0.05])
def test_a_limit_is_used_still_after_two_minutes_of_random_refusals(faulty: float) -> None:
    world = World("bucket", [(0, 100)], 0.05, faulty=faulty)
    assert count_served(world, 120, 180) >= 0.8 * 100 * 60  # by measuring, 32 seeds: 0.9


@pytest.mark.parametrize("faulty", [0.01, 0.02])
def test_random_refusals_do_not_hide_that_a_small_limit_has_doubled(faulty: float) -> None:
    world = World("bucket", [(0, 2.5), (300, 5)], 0.05, faulty=faulty)
    assert count_served(world, 400, 900) >= 0.95 * 5 * 500
