"""Refusals that have nothing to do with the rate neither stop a client nor wear its pace down."""

from math import inf

import pytest

from connector.pace.noise import Noise
from tests.pace.clients import Both
from tests.pace.world import World, run


def feed(noise: Noise, served: int, refused: int) -> None:
    for _ in range(served):
        noise.note_served()
    for _ in range(refused):
        noise.note_refused()


def test_a_share_that_three_cuts_leave_as_it_was_is_noise() -> None:
    noise = Noise()
    for _ in range(3):
        feed(noise, 95, 5)
        assert not noise.is_left(is_paused=False)
        noise.note_cut()
    feed(noise, 95, 5)
    assert noise.is_left(is_paused=False)
    feed(noise, 94, 6)
    assert (noise.share, noise.explains()) == (0.05, True)
    feed(noise, 0, 20)
    assert not noise.explains()


@pytest.mark.parametrize("later", [(99, 1), (70, 30)], ids=["fewer", "too many to get used to"])
def test_another_share_is_none(later: tuple[int, int]) -> None:
    noise = Noise()
    for _ in range(3):
        feed(noise, 95, 5)
        noise.note_cut()
    feed(noise, *later)
    assert not noise.is_left(is_paused=False)


@pytest.mark.parametrize("faulty", [0.01, 0.02, 0.05])
def test_a_service_without_a_limit_is_used_to_the_full_whatever_it_refuses_at_random(faulty: float) -> None:
    trips = run(Both(), World("bucket", [(0, inf)], 0.05, capacity=20, faulty=faulty), 30, seed=3)
    served = sum(trip.is_served for trip in trips if 10 <= trip.answered_at < 30)
    assert served >= 0.75 * 800 * 20


@pytest.mark.parametrize("faulty", [0.01, 0.02, 0.05])
def test_a_limit_is_used_still_after_two_minutes_of_random_refusals(faulty: float) -> None:
    trips = run(Both(), World("bucket", [(0, 100)], 0.05, faulty=faulty), 180, seed=3)
    assert sum(trip.is_served for trip in trips if 120 <= trip.answered_at < 180) >= 0.6 * 100 * 60
