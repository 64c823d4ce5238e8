"""Refusals in a row, when they are a block, and what is served while some are refused."""

import pytest

from connector.pace.deliveries import Deliveries
from connector.pace.refused import Pressure, Row
from connector.pace.windows import Windows

TRIP_S = 0.1


def build_windows(length_s: float) -> Windows:
    """A second, or another usual length that a block has shown."""
    windows = Windows()
    windows.begin(0.0)
    if length_s > 1:
        windows.open(0.0, length_s)
    assert windows.length_s == length_s
    return windows


@pytest.mark.parametrize(
    ("sent_at", "window_s", "trip_s", "expected"),
    [
        ([], 1.0, TRIP_S, False),
        ([1.0, 1.3, 1.6, 1.9, 2.0], 1.0, TRIP_S, True),
        ([1.0, 1.3, 1.6, 1.9, 1.95], 1.0, TRIP_S, False),  # less than a second
        ([1.0, 1.5, 2.0, 2.5], 1.0, TRIP_S, False),  # too few
        ([1.0, 1.3, 1.6, 1.9, 2.0], 1.0, 0.6, False),  # a probe would not be back sooner
        ([1.0, 1.3, 1.6, 1.9, 2.2], 1.0, 0.6, True),
        ([1.0, 1.1, 1.2], 10.0, TRIP_S, True),  # a long window: no need to wait
        ([1.0, 1.2], 10.0, TRIP_S, False),
        ([1.0, 1.05, 1.1], 10.0, TRIP_S, False),
        ([1.0, 1.1, 1.2], 10.0, 2.0, True),
        ([2.0, 1.3, 1.6, 1.9, 1.0], 1.0, TRIP_S, False),  # answers out of order: by the first that came
        ([1.0, 2.2, 1.3, 1.6, 1.9], 1.0, TRIP_S, True),
    ],
)
def test_a_long_row_of_refusals_is_a_block(
    sent_at: list[float], window_s: float, trip_s: float, expected: bool
) -> None:
    row = Row()

    for each in sent_at:
        row.add(each)

    assert row.is_block(build_windows(window_s), trip_s) is expected


def test_a_row_ends_with_what_is_served_and_begins_anew() -> None:
    row = Row()
    for sent_at in (1.0, 1.5, 2.0, 2.5):
        row.add(sent_at)

    row.end()
    row.add(3.0)

    assert (row.number, row.began_at, row.last_at) == (1, 3.0, 3.0)


@pytest.mark.parametrize(
    ("rate", "refused_at", "window_s", "expected_rate", "measured"),
    [
        (100, [10.0], 1.0, 100, None),  # a single refusal: nothing lies between
        (100, [10.0, 10.9], 1.0, 100, None),  # less than a window
        (100, [10.0, 11.0], 1.0, 100, 100),
        (100, [10.0, 11.7], 1.0, 100, 100),  # the whole window that ends at the last
        (100, [10.0, 12.0], 1.0, 400, 100),
        (20, [10.0, 11.0], 1.0, 20, None),  # 20 served: too few to tell 20 from 20
        (20, [10.0, 11.0], 1.0, 80, 20),  # but not 20 from 80
        (20, [10.0, 12.0], 1.0, 20, 20),  # 40 are enough
        (5, [10.0, 11.0], 1.0, 100, None),  # fewer than eight say nothing
        (5, [10.0, 12.0], 1.0, 100, 5),
        (50, [10.0, 15.0], 10.0, 50, None),  # half of a long window
        (50, [10.0, 20.0], 10.0, 50, 50),
    ],
)
def test_what_is_served_between_refusals_is_the_rate_of_the_limiter(
    rate: float, refused_at: list[float], window_s: float, expected_rate: float, measured: float | None
) -> None:
    deliveries, windows = Deliveries(), build_windows(window_s)
    for number in range(int(30 * rate)):
        deliveries.add((number + 0.5) / rate)
    pressure = Pressure(deliveries, Deliveries())

    told = [pressure.measure(each, windows, expected_rate) for each in refused_at][-1]

    assert told == (None if measured is None else pytest.approx(measured, rel=0.02))


@pytest.mark.parametrize(("sent_at", "measured"), [(9.9, 100), (10.5, 112), (11.1, 100)])
def test_what_else_was_sent_in_the_same_window_was_served_as_well(sent_at: float, measured: float) -> None:
    deliveries, others = Deliveries(), Deliveries()
    for number in range(3000):
        deliveries.add((number + 0.5) / 100)
    others.add(sent_at, 12)
    pressure = Pressure(deliveries, others)

    told = [pressure.measure(each, build_windows(1.0), 400) for each in (10.0, 11.0)][-1]

    assert told == pytest.approx(measured, rel=0.02)
