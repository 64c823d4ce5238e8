"""The rate controller in a sample of the matrix. `python -m tests.pace` plays the whole matrix."""

import os

import pytest

from connector.pace.rate import RateController
from tests.pace import matrix
from tests.pace.chance import measure_chance
from tests.pace.matrix import (
    ALONE,
    CHANGED,
    DATE,
    END_S,
    FIRST_S,
    SHARED,
    TWO_TOKENS,
    Cell,
    average,
    list_cells,
    list_chance_cells,
    measure,
    play,
    read_promise,
)

SEEDS = range(1, 1 + int(os.environ.get("CONNECTOR_TEST_PACE_SEEDS", "1")))
SAMPLE = [cell for cell in list_cells() if cell.rate == 5 and cell.trip_s == 0.02 and cell.scene == ALONE]
FASTER = [
    Cell("bucket", 0.2, 1.0, 50.0, 0.3),
    Cell("sliding window", 10.0, None, 50.0, 0.3),
    Cell("fixed window", 10.0, DATE, 5.0, 0.3),
]
CHANGING = [cell for cell in list_cells() if cell.rate == 5 and cell.trip_s == 0.3 and cell.scene == CHANGED][::4]


@pytest.mark.parametrize("cell", [*SAMPLE, *FASTER, *CHANGING], ids=str)
def test_a_limit_is_used_and_obeyed_and_no_request_leaves_inside_a_pause(cell: Cell) -> None:
    promise = read_promise(cell)
    measurements = average([measure(cell, play(cell, RateController(), seed)) for seed in SEEDS])
    assert promise.list_misses(cell, measurements) == []


def test_a_window_that_began_before_the_run_is_recognised() -> None:
    cell = Cell("fixed window", 60.0, None, 5.0, 0.3)
    measurements = measure(cell, play(cell, RateController(), seed=101))
    assert read_promise(cell).list_misses(cell, measurements) == []


def test_the_first_minute_of_a_first_run_is_close_to_the_best_certain_result() -> None:
    first = [measure(cell, play(cell, RateController(), length_s=FIRST_S)).first for cell in [*SAMPLE, *FASTER]]
    assert sum(first) / len(first) >= 0.90
    assert min(first) >= 0.60  # docs/pace-table.md has the mean of several plays


def test_a_search_with_many_requests_in_flight_does_not_end_far_below_the_limit() -> None:
    cell = Cell("sliding window", 1.0, 5.0, 500.0, 0.3)
    assert measure(cell, play(cell, RateController(), length_s=FIRST_S)).first >= 0.70


@pytest.mark.parametrize(
    "cell", [Cell("fixed window", 10.0, 1.0, 500.0, 0.3), Cell("sliding window", 60.0, DATE, 500.0, 0.3)], ids=str
)
def test_few_requests_are_refused_in_a_long_window_with_many_in_flight(cell: Cell) -> None:
    played = play(cell, RateController(), length_s=480)
    served, refused = sum(played.served[180:]), sum(played.refused[180:])
    assert refused <= 0.03 * (served + refused)


@pytest.mark.parametrize("cell", [*list_chance_cells()][6:12] + [*list_chance_cells()][18:24], ids=str)
def test_random_refusals_do_not_lower_the_rate(cell: Cell) -> None:
    served, first, inside = measure_chance(cell, RateController(), seed=1, length_s=FIRST_S)
    assert served >= 0.85
    assert first == served
    assert inside == 0


def test_a_search_that_a_random_refusal_ends_early_recovers_within_minutes() -> None:
    cell = Cell("bucket", 1.0, 5.0, 500.0, 0.02, chance=0.05)
    served = [measure_chance(cell, RateController(), seed)[0] for seed in range(1, 25)]
    assert sum(served) >= 0.85 * len(served)
    assert sum(share > 0.6 for share in served) >= 23


def test_a_sender_that_stalls_for_moments_loses_little_more_than_these_moments() -> None:
    cell = Cell("sliding window", 1.0, 1.0, 50.0, 0.02)
    measurements = measure(cell, play(cell, RateController(), stall_s=0.05))
    assert measurements.goodput >= 0.93  # half a percent of the time is lost


@pytest.mark.parametrize("pause_s", [None, 1.0, 30.0])
def test_a_later_run_begins_at_the_limit_of_an_earlier_run(pause_s: float | None) -> None:
    cell, first = Cell("bucket", 0.2, pause_s, 50.0, 0.02), RateController()
    play(cell, first, length_s=900)
    assert first.found is not None

    soon = play(cell, RateController(found=first.found, age_s=600.0), length_s=60)
    late = play(cell, RateController(found=first.found, age_s=10 * 86_400.0), length_s=60)

    assert sum(soon.served[:20]) >= 0.9 * 50 * 20
    assert sum(soon.refused) <= 0.05 * 50 * 60
    assert sum(late.served[:5]) < sum(soon.served[:5])


def test_a_fast_client_beside_another_one_uses_a_third_of_its_share_despite_long_pauses() -> None:
    cell = Cell("bucket", TWO_TOKENS, 30.0, 500.0, 0.3, SHARED)
    assert measure(cell, play(cell, RateController(), length_s=END_S[SHARED])).beside >= 0.33


@pytest.mark.parametrize(
    ("rate", "pause_s", "scene"), [(50.0, 5.0, CHANGED), (10.0, 1.0, CHANGED), (50.0, 1.0, SHARED)]
)
def test_a_limit_that_falls_early_is_doubted_only_once(
    monkeypatch: pytest.MonkeyPatch, rate: float, pause_s: float, scene: str
) -> None:
    """The requests of the time before the fall contradict the lower limit until the controller forgets them."""
    monkeypatch.setattr(matrix, "BEGIN_S", 40)
    monkeypatch.setattr(matrix, "END_S", {SHARED: 1000, CHANGED: 1000})
    cell = Cell("bucket", TWO_TOKENS, pause_s, rate, 0.02, scene)
    played = play(cell, RateController(), length_s=400)
    served, refused = sum(played.served[100:400]), sum(played.refused[100:400])
    allowed = cell.rate / 2 * 300 if scene == CHANGED else cell.rate * 300 - sum(played.other_served[100:400])
    assert served >= (0.9 if scene == CHANGED else 0.6) * allowed
    assert refused <= 0.03 * (served + refused)
