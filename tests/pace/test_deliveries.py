"""What was served is counted by the time of sending, in little memory however long it goes on."""

import tracemalloc
from itertools import pairwise

import pytest

from connector.pace.deliveries import Deliveries

DAY_S = 86_400
MOST_CELLS = 170_000  # of 5 ms each: two looks back of 400 s, and no more


def build(*sent_at: float) -> Deliveries:
    deliveries = Deliveries()
    for each in sent_at:
        deliveries.add(each)
    return deliveries


@pytest.mark.parametrize(
    ("sent_at", "since", "until", "expected"),
    [
        ([], 0.0, 100.0, 0.0),
        ([10.012], 10.0, 11.0, 1.0),
        ([10.012], 10.010, 10.015, 1.0),  # the whole of its cell
        ([10.012], 10.0125, 10.015, 0.5),  # half of it
        ([10.012], 10.0, 10.011, 0.2),  # its first fifth
        ([10.012], 10.011, 10.012, 0.2),  # a part from within
        ([10.012], 10.015, 11.0, 0.0),
        ([10.012], 0.0, 10.010, 0.0),
        ([10.012], 10.014, 10.011, 0.0),  # an empty stretch
        ([10.002, 10.002, 10.102, 10.202], 10.0, 10.2, 3.0),
        ([10.2, 10.3, 10.1], 10.0, 10.25, 1.0),  # before the first that was served: not counted
        ([10.1, 10.3, 10.2], 10.0, 10.25, 2.0),  # out of order
        ([10.0, 200.0], 9.0, 300.0, 2.0),
        ([10.0, 5000.0], 9.0, 6000.0, 1.0),  # a pause longer than all that is remembered
        ([10.0, 5000.0, 5000.1], 4999.0, 5000.05, 1.0),
        ([5000.0, 4000.0], 3000.0, 6000.0, 1.0),  # too long ago
        ([10.0, 5000.0, 4500.0, 4601.0], 4000.0, 6000.0, 2.0),
    ],
)
def test_what_was_sent_in_a_stretch_is_counted(
    sent_at: list[float], since: float, until: float, expected: float
) -> None:
    assert build(*sent_at).count(since, until) == pytest.approx(expected)


def test_parts_of_a_stretch_add_up_to_it() -> None:
    deliveries = build(*(7 + 0.0137 * number for number in range(1000)))
    edges = [7 + 0.1234 * number for number in range(120)]

    parts = sum(deliveries.count(since, until) for since, until in pairwise(edges))

    assert parts == pytest.approx(deliveries.count(edges[0], edges[-1]))
    assert parts == pytest.approx(1000)


def test_two_minutes_are_remembered_all_day_and_memory_stays_bounded() -> None:
    deliveries = Deliveries()

    for second in range(DAY_S):
        if second % 3600 < 3300:  # five minutes of rest each hour
            deliveries.add(second + 0.5)
        if second % 3600 in (200, 3299):
            assert deliveries.count(second - 119, second + 1) == pytest.approx(120)
            assert len(deliveries._cells) <= MOST_CELLS


def test_a_single_step_over_hours_takes_no_more_memory_not_even_for_a_moment() -> None:
    deliveries = build(1.0)
    tracemalloc.start()

    deliveries.add(float(DAY_S))

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(deliveries._cells) <= MOST_CELLS
    assert peak <= 16 * MOST_CELLS
