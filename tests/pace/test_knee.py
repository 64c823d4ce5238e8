"""The number of requests in flight for a service with a capacity: enough to keep the service busy, and no queue."""

from math import inf
from statistics import median

import pytest

from tests.pace.clients import Both
from tests.pace.measures import add, count
from tests.pace.world import Trip, World, run

SEEDS = range(1)
# Seconds until the capacity is found, and the median round trip after that, as a multiple of the round trip without
# load. With a capacity of four, even the first requests wait, so the shortest known round trip is too long. Measured:
# 1.5, 1.6, 1.9.
PROMISED = (10.0, 1.5)
OF_FOUR = {0.02: (10.0, 1.7), 0.1: (10.0, 1.8), 0.5: (25.0, 2.2)}
# Round trip (s), capacity, and seconds until a change is followed. The time is ten seconds, or longer if a round of
# sixteen answers takes long. Measured with six seeds: 12 and 45.
FOLLOWED = [(0.02, 20, 10.0), (0.05, 50, 10.0), (0.1, 20, 15.0), (0.5, 20, 50.0)]


def read_capacity(world: World) -> float:
    """Return the capacity in requests/s. The service works on a request for half of its round trip."""
    return world.capacity / (world.rtt_s / 2)


def select_answered(trips: list[Trip], since: float, until: float) -> list[Trip]:
    return [trip for trip in trips if since <= trip.answered_at < until]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("rtt_s", "capacity"), [(0.02, 4), (0.02, 20), (0.1, 20), (0.1, 100), (0.5, 4), (0.5, 20)])
def test_a_service_is_kept_busy_without_a_queue(rtt_s: float, capacity: int, seed: int) -> None:
    world = World("bucket", [(0, inf)], rtt_s, capacity=capacity)
    found_s, patience = OF_FOUR[rtt_s] if capacity == 4 else PROMISED
    length_s = max(4.0, 20 * rtt_s)

    trips = select_answered(run(Both(), world, found_s + length_s, seed), found_s, found_s + length_s)

    assert len(trips) >= 0.95 * read_capacity(world) * length_s
    assert median(trip.answered_at - trip.sent_at for trip in trips) <= patience * rtt_s


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("rtt_s", "capacity", "within_s"), FOLLOWED)
def test_a_service_that_becomes_four_times_slower_and_fast_again_is_kept_busy(
    rtt_s: float, capacity: int, within_s: float, seed: int
) -> None:
    slow, fast, end = (part * 2 * within_s for part in (1, 2, 3))
    world = World("bucket", [(0, inf)], rtt_s, capacity=capacity, rtt_steps=[(slow, 4 * rtt_s), (fast, rtt_s)])

    trips = run(Both(), world, end, seed)

    for since, factor in ((0, 1), (slow, 4), (fast, 1)):
        busy = select_answered(trips, since + within_s, since + 2 * within_s)
        assert len(busy) >= 0.9 * read_capacity(world) / factor * within_s


def test_a_thousand_requests_a_second_over_half_a_second_leave_room_in_flight() -> None:
    world = World("bucket", [(0, 1000)], rtt_s=0.5)

    steady = add([count(run(Both(), world, 91, seed), 1000, 70, 90) for seed in SEEDS])
    assert steady.goodput >= 0.93  # measured with 32 seeds: 0.96
    assert steady.refusals <= 0.02
