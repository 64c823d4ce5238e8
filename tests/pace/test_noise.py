"""Refusals that have nothing to do with the rate neither stop a client nor wear its pace down."""

from math import inf

import pytest

from tests.pace.clients import Both
from tests.pace.world import World, run


@pytest.mark.parametrize("faulty", [0.01, 0.02, 0.05])
def test_a_service_without_a_limit_is_used_to_the_full_whatever_it_refuses_at_random(faulty: float) -> None:
    trips = run(Both(), World("bucket", [(0, inf)], 0.05, capacity=20, faulty=faulty), 45, seed=3)
    served = sum(trip.is_served for trip in trips if 25 <= trip.answered_at < 45)
    assert served >= 0.8 * 800 * 20


@pytest.mark.parametrize("faulty", [0.01, 0.02, 0.05])
def test_a_limit_is_used_still_after_two_minutes_of_random_refusals(faulty: float) -> None:
    trips = run(Both(), World("bucket", [(0, 100)], 0.05, faulty=faulty), 180, seed=3)
    assert sum(trip.is_served for trip in trips if 120 <= trip.answered_at < 180) >= 0.85 * 100 * 60
