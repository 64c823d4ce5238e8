"""Until when nothing may leave, and what is made up for after a pause."""

from math import inf

import pytest

from connector.pace.deliveries import Deliveries
from connector.pace.pauses import Pauses

RATE = 100
GAP_S = 1 / RATE


@pytest.mark.parametrize(
    ("refusals", "until", "cost_s"),
    [
        ([], -inf, 0.0),
        ([(10.0, 5.0)], 15.0, 5.0),
        ([(10.0, 5.0), (10.1, 5.0)], 15.1, 5.1),  # several were under way: one pause, and the longest counts
        ([(10.0, 5.0), (10.1, 1.0)], 15.0, 5.0),  # a shorter one takes nothing back
        ([(10.0, 1.0), (20.0, 2.0)], 22.0, 2.0),
        ([(10.0, 1.0), (11.0, 2.0)], 13.0, 2.0),  # as the pause ends, another begins
    ],
)
def test_a_pause_lasts_until_the_latest_time_that_was_asked_for(
    refusals: list[tuple[float, float]], until: float, cost_s: float
) -> None:
    pauses = Pauses()

    for now, asked_s in refusals:
        pauses.note(now - 0.1, now, asked_s, RATE)

    assert pauses.until == pytest.approx(until)
    assert pauses.cost_s == pytest.approx(cost_s)


def count_faster(pauses: Pauses, now: float) -> int:
    """After how many requests the pace is as it was."""
    number = 0
    while pauses.quicken(GAP_S, now) < GAP_S:
        now, number = now + GAP_S / 2, number + 1
        assert number < 10 * RATE
    return number


@pytest.mark.parametrize(("asked_s", "owed"), [(0.5, 50), (1.0, 100), (5.0, 100), (60.0, 100)])
def test_what_a_bucket_gained_meanwhile_is_made_up_for_at_twice_the_pace(asked_s: float, owed: float) -> None:
    pauses = Pauses()
    pauses.note(9.9, 10.0, asked_s, RATE)

    assert count_faster(pauses, 10.0 + asked_s) == 2 * owed


def test_nothing_is_made_up_for_without_a_pause_or_within_one() -> None:
    pauses = Pauses()
    assert pauses.quicken(GAP_S, 5.0) == GAP_S

    pauses.note(9.9, 10.0, 1.0, RATE)

    assert pauses.quicken(GAP_S, 10.5) == GAP_S
    assert pauses.quicken(GAP_S, 11.0) == GAP_S / 2


def test_a_limiter_that_refuses_what_makes_up_is_not_tried_that_way_again() -> None:
    pauses = Pauses()
    pauses.note(9.9, 10.0, 1.0, RATE)
    pauses.quicken(GAP_S, 11.0)

    pauses.note(11.0, 11.1, 1.0, RATE)  # one that was sent while making up
    pauses.note(13.0, 13.1, 1.0, RATE)

    assert count_faster(pauses, 14.2) == 0


def test_a_refusal_of_what_was_sent_before_making_up_says_nothing_about_it() -> None:
    pauses = Pauses()
    pauses.note(9.9, 10.0, 1.0, RATE)
    pauses.quicken(GAP_S, 11.0)

    pauses.note(10.9, 11.1, 1.0, RATE)

    assert count_faster(pauses, 12.2) > 0


def test_after_another_pause_only_what_makes_up_for_that_one_says_something() -> None:
    pauses = Pauses()
    pauses.note(9.9, 10.0, 1.0, RATE)
    pauses.quicken(GAP_S, 11.0)
    pauses.note(10.9, 11.1, 1.0, RATE)

    pauses.note(12.05, 12.2, 1.0, RATE)  # before anything was made up for after the second

    assert count_faster(pauses, 13.3) > 0


def test_what_overdid_making_up_is_told_and_nothing_is_made_up_for_again() -> None:
    pauses = Pauses()
    pauses.note(9.9, 10.0, 1.0, RATE)
    assert not pauses.has_overdone

    count_faster(pauses, 11.0)
    pauses.note(11.5, 11.6, 1.0, RATE)

    assert (pauses.has_overdone, pauses.can_make_up) == (True, False)
    assert pauses.quicken(GAP_S, 12.6) == GAP_S


def test_nothing_is_made_up_for_at_a_rate_that_is_not_known() -> None:
    pauses = Pauses()
    pauses.note(9.9, 10.0, 1.0, 0.0)

    assert pauses.quicken(GAP_S, 11.0) == GAP_S


@pytest.mark.parametrize(("served_s", "measured"), [(4.0, None), (5.0, 100 * 5 / 6), (9.0, 90.0)])
def test_a_bucket_is_measured_once_it_can_be_no_window(served_s: float, measured: float | None) -> None:
    pauses, deliveries = Pauses(), Deliveries()
    pauses.note(9.9, 10.0, 5.0, RATE)
    for number in range(round(served_s * RATE)):
        deliveries.add(15.0 + (number + 0.5) * GAP_S)
    refused_at = 15.0 + served_s
    pauses.note(refused_at, refused_at + 0.1, 5.0, RATE)

    told = pauses.measure_bucket(refused_at, deliveries, 1.0)

    assert told == (None if measured is None else pytest.approx(measured, rel=0.01))


def test_before_the_first_pause_no_bucket_is_measured() -> None:
    pauses = Pauses()
    pauses.note(9.9, 10.0, 5.0, RATE)

    assert pauses.measure_bucket(9.9, Deliveries(), 1.0) is None
