"""The rate controller in a sample of the matrix. `python -m tests.pace` simulates the whole matrix."""

import os

import pytest

from connector.pace.rate import RateController
from tests.pace import matrix
from tests.pace.chance import measure_chance
from tests.pace.matrix import (
    ALONE,
    CHANGE_END_S_BY_SCENARIO,
    CHANGED,
    DATE_PAUSE,
    FIRST_MINUTE_S,
    SHARED,
    TWO_TOKENS_SPAN_S,
    Cell,
    compute_means,
    list_cells,
    list_chance_cells,
    measure,
    read_promise,
    simulate_run,
)

SEEDS = range(1, 1 + int(os.environ.get("CONNECTOR_TEST_PACE_SEEDS", "1")))
SAMPLE_CELLS = [
    cell for cell in list_cells() if cell.rate == 5 and cell.round_trip_s == 0.02 and cell.scenario == ALONE
]
MORE_CELLS = [
    Cell("bucket", 0.2, 1.0, 50.0, 0.3),
    Cell("sliding window", 10.0, None, 50.0, 0.3),
    Cell("fixed window", 10.0, DATE_PAUSE, 5.0, 0.3),
]
CHANGE_CELLS = [
    cell for cell in list_cells() if cell.rate == 5 and cell.round_trip_s == 0.3 and cell.scenario == CHANGED
][::4]


@pytest.mark.parametrize("cell", [*SAMPLE_CELLS, *MORE_CELLS, *CHANGE_CELLS], ids=str)
def test_the_controller_stays_within_the_bounds_of_each_case(cell: Cell) -> None:
    promise = read_promise(cell)
    measurements = compute_means([measure(cell, simulate_run(cell, RateController(), seed)) for seed in SEEDS])
    assert promise.list_misses(cell, measurements) == []


def test_the_controller_recognises_a_window_from_before_the_run() -> None:
    cell = Cell("fixed window", 60.0, None, 5.0, 0.3)
    measurements = measure(cell, simulate_run(cell, RateController(), seed=101))
    assert read_promise(cell).list_misses(cell, measurements) == []


def test_the_first_minute_reaches_most_of_the_best_possible_goodput() -> None:
    goodputs = [
        measure(cell, simulate_run(cell, RateController(), length_s=FIRST_MINUTE_S)).first_minute_goodput
        for cell in [*SAMPLE_CELLS, *MORE_CELLS]
    ]
    assert sum(goodputs) / len(goodputs) >= 0.90
    assert min(goodputs) >= 0.60  # docs/pace-table.md has the means of several simulated runs


def test_a_search_with_many_requests_in_flight_does_not_end_far_below_the_limit() -> None:
    cell = Cell("sliding window", 1.0, 5.0, 500.0, 0.3)
    assert measure(cell, simulate_run(cell, RateController(), length_s=FIRST_MINUTE_S)).first_minute_goodput >= 0.70


@pytest.mark.parametrize(
    "cell", [Cell("fixed window", 10.0, 1.0, 500.0, 0.3), Cell("sliding window", 60.0, DATE_PAUSE, 500.0, 0.3)], ids=str
)
def test_few_requests_are_refused_in_a_long_window_with_many_requests_in_flight(cell: Cell) -> None:
    run_counts = simulate_run(cell, RateController(), length_s=480)
    served_count, refused_count = sum(run_counts.served_counts[180:]), sum(run_counts.refused_counts[180:])
    assert refused_count <= 0.03 * (served_count + refused_count)


@pytest.mark.parametrize("cell", [*list_chance_cells()][6:12] + [*list_chance_cells()][18:24], ids=str)
def test_random_refusals_do_not_lower_the_rate(cell: Cell) -> None:
    served_share, first_minute_share, sent_in_pause_count = measure_chance(
        cell, RateController(), seed=1, length_s=FIRST_MINUTE_S
    )
    assert served_share >= 0.85
    assert first_minute_share == served_share
    assert sent_in_pause_count == 0


def test_the_rate_recovers_after_a_random_refusal_ended_the_search_early() -> None:
    cell = Cell("bucket", 1.0, 5.0, 500.0, 0.02, random_refusal_share=0.05)
    served_shares = [measure_chance(cell, RateController(), seed)[0] for seed in range(1, 25)]
    assert sum(served_shares) >= 0.85 * len(served_shares)
    assert sum(share > 0.6 for share in served_shares) >= 23


def test_short_stalls_of_the_sender_cost_little_goodput() -> None:
    cell = Cell("sliding window", 1.0, 1.0, 50.0, 0.02)
    measurements = measure(cell, simulate_run(cell, RateController(), stall_s=0.05))
    assert measurements.goodput >= 0.93  # measured with two seeds: 0.963, and 0.966 without stalls


@pytest.mark.parametrize("pause_s", [None, 1.0, 30.0])
def test_a_later_run_begins_at_the_limit_of_an_earlier_run(pause_s: float | None) -> None:
    cell, first_controller = Cell("bucket", 0.2, pause_s, 50.0, 0.02), RateController()
    simulate_run(cell, first_controller, length_s=900)
    assert first_controller.found_limit is not None

    result_after_ten_minutes = simulate_run(
        cell, RateController(found_limit=first_controller.found_limit, found_limit_age_s=600.0), length_s=60
    )
    result_after_ten_days = simulate_run(
        cell, RateController(found_limit=first_controller.found_limit, found_limit_age_s=10 * 86_400.0), length_s=60
    )

    assert sum(result_after_ten_minutes.served_counts[:20]) >= 0.9 * 50 * 20
    assert sum(result_after_ten_minutes.refused_counts) <= 0.05 * 50 * 60
    assert sum(result_after_ten_days.served_counts[:5]) < sum(result_after_ten_minutes.served_counts[:5])


def test_a_client_uses_at_least_a_third_of_the_limit_that_another_client_leaves_unused() -> None:
    cell = Cell("bucket", TWO_TOKENS_SPAN_S, 30.0, 500.0, 0.3, SHARED)
    assert (
        measure(
            cell, simulate_run(cell, RateController(), length_s=CHANGE_END_S_BY_SCENARIO[SHARED])
        ).goodput_beside_other_client
        >= 0.33
    )


@pytest.mark.parametrize(
    ("rate", "pause_s", "scenario"), [(50.0, 5.0, CHANGED), (10.0, 1.0, CHANGED), (50.0, 1.0, SHARED)]
)
def test_a_fall_of_the_limit_after_40_seconds_causes_few_refusals(
    monkeypatch: pytest.MonkeyPatch, rate: float, pause_s: float, scenario: str
) -> None:
    """The requests before the fall contradict the lower limit until the controller forgets these requests."""
    monkeypatch.setattr(matrix, "CHANGE_BEGIN_S", 40)
    monkeypatch.setattr(matrix, "CHANGE_END_S_BY_SCENARIO", {SHARED: 1000, CHANGED: 1000})
    cell = Cell("bucket", TWO_TOKENS_SPAN_S, pause_s, rate, 0.02, scenario)
    run_counts = simulate_run(cell, RateController(), length_s=400)
    served_count, refused_count = sum(run_counts.served_counts[100:400]), sum(run_counts.refused_counts[100:400])
    allowed_count = (
        cell.rate / 2 * 300 if scenario == CHANGED else cell.rate * 300 - sum(run_counts.other_served_counts[100:400])
    )
    assert served_count >= (0.9 if scenario == CHANGED else 0.6) * allowed_count
    assert refused_count <= 0.03 * (served_count + refused_count)
