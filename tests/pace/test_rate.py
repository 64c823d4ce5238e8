"""The rate controller, question by question; how it does as a whole is in the matrix."""

from math import inf

import pytest

from connector.pace import RateController
from connector.pace.rate import Phase
from tests.pace.clients import RateAlone
from tests.pace.measures import count
from tests.pace.world import World, run

TRIP_S = 0.1
IDLE_S = 600.0
BURST_S = 0.006  # what a sender that wakes up late may make up for
RESUMED = 2.006  # when the pause of `find_limit` is over


def settle(rate: float, seconds: float = 30.0) -> RateController:
    """A controller that has found the rate of a bucket by then."""
    client = RateAlone()
    run(client, World("bucket", [(0, rate)], TRIP_S), seconds, seed=1)
    assert client.rate.rate == pytest.approx(rate, rel=0.1)
    return client.rate


def count_admitted(controller: RateController, now: float) -> int:
    """How many leave at one instant."""
    number = 0
    while controller.admit(now) == 0:
        number += 1
        assert number < 10_000
    return number


@pytest.mark.parametrize("now", [0.0, 123.4, 1e7])
@pytest.mark.parametrize("ceiling", [inf, 50.0, 0.5])
def test_the_first_request_leaves_at_once_and_the_second_by_the_rate(now: float, ceiling: float) -> None:
    controller = RateController(ceiling)

    assert controller.admit(now) == 0
    assert controller.admit(now) == pytest.approx(1 / min(20, ceiling), abs=BURST_S)


@pytest.mark.parametrize("ceiling", [0.5, 5.0, 300.0])
@pytest.mark.parametrize("limit", [inf, 100.0])
def test_the_ceiling_is_never_exceeded(ceiling: float, limit: float) -> None:
    client = RateAlone(RateController(ceiling))

    trips = run(client, World("bucket", [(0, limit)], TRIP_S), 60, seed=1)

    for second in range(59):
        sent = sum(second <= trip.sent_at < second + 1 for trip in trips)
        assert sent <= ceiling * (1 + BURST_S) + 1
    assert client.rate.rate <= ceiling
    assert count(trips, min(ceiling, limit), 20, 59).goodput >= 0.95


@pytest.mark.parametrize("rate", [5.0, 100.0, 2000.0])
def test_time_in_which_nothing_was_sent_is_not_made_up_for(rate: float) -> None:
    controller = settle(rate)

    assert count_admitted(controller, 30.0 + IDLE_S) <= 1 + 1.1 * rate * BURST_S


def test_it_does_not_grow_before_the_limit_is_found_while_few_requests_are_sent() -> None:
    controller = RateController()

    for second in range(1000):
        assert controller.admit(second) == 0
        controller.note_served(second, second + TRIP_S)

    assert controller.rate <= 20


def test_it_does_not_grow_beyond_a_known_limit_while_few_requests_are_sent() -> None:
    controller = settle(100)

    for second in range(31, 1031):
        assert controller.admit(second) == 0
        controller.note_served(second, second + TRIP_S)

    assert controller.rate <= 1.4 * 100


def test_refusals_of_what_was_sent_before_the_last_cut_change_nothing() -> None:
    controller = RateController()
    world = World("bucket", [(0, 100)], rtt_s=1.0)
    rates = list[tuple[float, float]]()
    late = 0

    class Watched(RateAlone):
        def note_refused(self, sent_at: float, now: float, retry_after_s: float | None) -> None:
            nonlocal late
            before = self.rate.rate
            super().note_refused(sent_at, now, retry_after_s)
            if rates and sent_at < rates[-1][0]:
                late += 1
                assert self.rate.rate == before
            elif self.rate.rate != before:
                rates.append((now, self.rate.rate))

    run(Watched(controller), world, 15, seed=1)

    assert rates
    assert late > 50, "half a second's overshoot comes back after the cut"


def test_a_refusal_in_the_long_run_lowers_the_rate_and_what_is_served_raises_it_again() -> None:
    client = RateAlone()
    world = World("bucket", [(0, 100), (30, 25), (60, 100)], TRIP_S)

    trips = run(client, world, 100, seed=1)

    assert count(trips, 100, 20, 30).goodput > 0.95
    assert 0.95 < count(trips, 25, 40, 60).goodput < 1.05
    assert count(trips, 100, 80, 99).goodput > 0.95


@pytest.mark.parametrize("pause_s", [0.5, 30.0, 3600.0])
def test_nothing_leaves_within_a_pause_and_one_request_does_when_it_is_over(pause_s: float) -> None:
    controller = settle(100)
    controller.note_refused(29.9, 30.0, pause_s)

    for part in (0.0, 0.3, 0.99):
        now = 30.0 + part * pause_s
        assert controller.admit(now) == pytest.approx(30.0 + pause_s - now)
    assert 1 <= count_admitted(controller, 30.0 + pause_s) <= 2


def test_when_all_is_refused_a_probe_a_second_goes_out_and_it_goes_on_when_one_is_served() -> None:
    world = World("bucket", [(0, 100), (30, 1e-6), (150, 100)], TRIP_S)

    trips = run(RateAlone(), world, 170, seed=1)

    assert 90 <= count(trips, 100, 35, 150).refused <= 120
    assert count(trips, 100, 150, 152).served >= 1
    assert count(trips, 100, 152, 170).goodput >= 0.2


def test_a_short_outage_is_made_good_soon() -> None:
    world = World("bucket", [(0, 100), (30, 1e-6), (33, 100)], TRIP_S)

    trips = run(RateAlone(), world, 90, seed=1)

    assert count(trips, 100, 35, 90).goodput >= 0.75


def count_in_a_second(controller: RateController, begin: float) -> int:
    """How many leave within a second."""
    now, number = begin, 0
    while now < begin + 1:
        wait_s = controller.admit(now)
        number += wait_s == 0
        now += wait_s
    return number


@pytest.mark.parametrize("lists", [1, 15, 40])
def test_requests_of_another_kind_take_places(lists: int) -> None:
    controller = settle(100.0)
    count_in_a_second(controller, 31.0)  # nothing is in arrears
    alone = count_in_a_second(controller, 32.0)
    controller.make_room(lists, 33.0)
    assert count_in_a_second(controller, 33.0) == pytest.approx(alone - lists, abs=1)


def test_a_thousand_of_another_kind_hold_nobody_up_for_longer_than_a_second() -> None:
    """Whether they count at all is not known."""
    controller = settle(5.0)
    for _ in range(10):
        controller.make_room(100, 31.0)
    assert 0.5 < controller.admit(31.0) <= 1.0


def test_before_a_limit_is_known_none_is_made_room_for() -> None:
    controller = RateController()
    assert controller.admit(0.0) == 0
    wait_s = controller.admit(0.001)
    controller.make_room(100, 0.001)
    assert controller.admit(0.001) == wait_s


@pytest.mark.parametrize("kind", ["bucket", "sliding_window", "fixed_window"])
@pytest.mark.parametrize("retry_after_s", [None, 1.0])
@pytest.mark.parametrize("begin", [0.0, 0.4, 0.8, 1.2])
@pytest.mark.parametrize("are_limited", [True, False], ids=["limited together", "not limited"])
def test_a_few_of_another_kind_at_the_first_refusals_do_not_lead_astray(
    kind: str, begin: float, are_limited: bool, retry_after_s: float | None
) -> None:
    """As when a list is read before the first creates, or the first who are refused are looked up."""
    lists_at = [begin + each * 0.02 for each in range(14)]
    world = World(
        kind, [(0, 200.0)], 0.02, retry_after_s=retry_after_s, lists_at=lists_at, are_lists_limited=are_limited
    )
    for seed in range(3):
        steady = count(run(RateAlone(), world, 40, seed), 200, 10, 39)
        assert steady.goodput >= 0.96
        assert steady.refusals <= 0.01


def find_limit(lists: int = 0, pause_s: float = 1.0, ceiling: float = inf) -> RateController:
    """A controller that was refused after about 100 in a second, with pauses of so long, beside so many of another
    kind."""
    controller = RateController(ceiling)
    controller.make_room(lists, 0.0)
    for now in (each / 100 for each in range(100)):
        if controller.admit(now) == 0:
            controller.note_served(now, now + 0.005)
    for _ in range(40):
        controller.note_refused(1.0, 1.005, pause_s)
    return controller


def test_a_rate_is_held_a_little_below_what_was_served() -> None:
    assert 80 < find_limit().rate < 100


@pytest.mark.parametrize(("lists", "most"), [(1, 1.016), (10, 1.13), (10_000, 1.25)])
def test_requests_of_another_kind_that_left_before_the_first_refusal_may_have_counted(lists: int, most: float) -> None:
    """The next refusal says that they did not."""
    alone, controller = find_limit().rate, find_limit(lists)

    assert alone < controller.rate <= alone * most
    controller.note_served(2.5, 2.505)
    controller.note_refused(3.0, 3.005, 1.0)
    assert controller.rate <= alone


def test_answers_that_come_after_a_refusal_of_what_was_sent_later_count_as_well() -> None:
    controller = find_limit()
    before = controller.rate
    for number in range(10):
        controller.note_served(0.9 + number / 100, 1.006)
    assert controller.rate == pytest.approx(before + 0.978 * 10)
    for sent_at in (-0.1, 1.002):  # before that window, and after it
        controller.note_served(sent_at, 1.2)
    assert controller.rate == pytest.approx(before + 0.978 * 10)


@pytest.mark.parametrize("lists", [1, 10_000])
def test_where_a_pause_is_long_they_are_believed_in_only_as_far_as_nothing_is_refused_if_they_did_not_count(
    lists: int,
) -> None:
    alone, beside = find_limit(pause_s=10.0).rate, find_limit(lists, pause_s=10.0).rate

    assert alone < beside <= alone * 1.016
    assert beside < alone / 0.978


def count_with_a_late_one(controller: RateController, begin: float, seconds: float, late_s: float) -> int:
    """How many leave in `seconds`, by a sender that wakes up late once, a second after the beginning."""
    now, number, was_late = begin, 0, False
    while now < begin + seconds:
        if now >= begin + 1 and not was_late:
            now, was_late = now + late_s, True
        wait_s = controller.admit(now)
        number += wait_s == 0
        now += wait_s
    return number


def test_what_a_sender_loses_by_waking_up_late_is_made_up_for_little_by_little() -> None:
    steady, late = find_limit(), find_limit()
    rate = steady.rate
    whole = count_with_a_late_one(steady, RESUMED, 60.0, 0.0)

    assert whole == pytest.approx(60 * rate, rel=0.01)
    assert count_with_a_late_one(late, RESUMED, 60.0, 0.25) >= whole - 0.02 * rate
    busy = find_limit()
    count_with_a_late_one(busy, RESUMED, 1.5, 0.25)
    assert count_in_a_second(busy, RESUMED + 1.5) <= 1.016 * rate + 1, "all that was lost came at once"


def test_a_ceiling_is_not_exceeded_to_make_up_for_what_was_lost() -> None:
    controller = find_limit(10_000, ceiling=50.0)
    assert (controller.phase, controller.rate) == (Phase.HOLD, 50.0)

    count_with_a_late_one(controller, RESUMED, 1.5, 0.4)
    assert sum(count_in_a_second(controller, RESUMED + 2 + second) for second in range(20)) <= 20 * 50 + 1


def test_no_more_than_half_a_second_is_made_up_for() -> None:
    """However long the process itself stood still."""
    controller = find_limit(pause_s=4.0)  # a pause that is dear: the rate is held for minutes
    rate = controller.rate
    count_with_a_late_one(controller, RESUMED + 3, 1.5, 2.5)

    counted = sum(count_in_a_second(controller, RESUMED + 8 + second) for second in range(60))
    assert controller.phase is Phase.HOLD
    assert counted <= (60 + 0.6) * rate


def test_what_the_first_estimate_counted_too_much_is_taken_back_once() -> None:
    """What is refused after that is judged by what was served since."""
    controller = find_limit(10_000)
    controller.note_served(2.5, 2.505)
    controller.note_refused(3.0, 3.005, 1.0)
    before = controller.rate
    controller.note_served(0.9, 3.1)  # of the first window, and too late to count in another estimate
    assert controller.rate == before
    controller.note_served(4.5, 4.505)
    controller.note_refused(5.0, 5.005, 1.0)
    assert controller.rate < before


def test_a_bucket_that_refused_the_first_estimate_is_measured_by_what_it_gained() -> None:
    """What it served before had been saved: it was more than its rate."""
    world = World("bucket", [(0, 300)], 0.02, retry_after_s=2.9, lists_at=(0.1, 0.13, 0.16))
    trips = run(RateAlone(RateController()), world, 30, seed=1)
    assert sum(each.is_served for each in trips if each.sent_at >= 10) >= 0.83 * 20 * 300
