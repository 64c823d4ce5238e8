"""The mean round trip and how much it varies, forgetting what is long past."""

import pytest

from connector.pace.trip_time import TripTime


@pytest.mark.parametrize(
    ("trips_s", "mean_s", "margin_s"),
    [
        ([], 0.1, 0.0),  # a first guess
        ([0.5], 0.5, 0.0),
        ([0.2, 0.3], 0.21, 0.02),
        ([0.2, 0.1], 0.19, 0.02),
        ([0.2, 0.3, 0.21], 0.21, 0.018),
        ([0.02] * 50, 0.02, 0.0),
        ([0.02] + [2.0] * 200, 2.0, 0.0),  # the past is forgotten
    ],
)
def test_the_mean_and_the_margin_follow_what_is_noted(trips_s: list[float], mean_s: float, margin_s: float) -> None:
    trip = TripTime()

    for seconds in trips_s:
        trip.note(seconds)

    assert trip.mean_s == pytest.approx(mean_s, abs=1e-6)
    assert trip.margin_s == pytest.approx(margin_s, abs=1e-6)


def test_the_margin_is_near_twice_the_mean_distance_from_the_mean() -> None:
    trip = TripTime()

    for number in range(1000):
        trip.note(0.5 if number % 2 else 0.3)

    assert trip.mean_s == pytest.approx(0.4, abs=0.02)
    assert trip.margin_s == pytest.approx(0.2, rel=0.1)
