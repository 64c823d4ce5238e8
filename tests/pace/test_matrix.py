"""The rate controller in a sample of the matrix. `python -m tests.pace` simulates the whole matrix."""

import os

import pytest

from connector.pace.rate import RateController
from tests.pace import matrix
from tests.pace.chance import compare_with_known_limit
from tests.pace.matrix import (
    CHANGE_END_S_BY_SCENARIO,
    CHANGED_LIMIT,
    DATE_PAUSE,
    FIRST_MINUTE_S,
    ONE_CLIENT,
    SHARED_LIMIT,
    TWO_TOKEN_BUCKET_SPAN_S,
    Case,
    choose_bounds,
    compute_means,
    list_cases,
    list_random_refusal_cases,
    measure,
    simulate_run,
)

SEEDS = range(1, 1 + int(os.environ.get("CONNECTOR_TEST_PACE_SEEDS", "1")))
SAMPLE_CASES = [
    case for case in list_cases() if case.rate == 5 and case.round_trip_s == 0.02 and case.scenario == ONE_CLIENT
]
LONG_ROUND_TRIP_CASES = [
    Case("bucket", 0.2, 1.0, 50.0, 0.3),
    Case("sliding window", 10.0, None, 50.0, 0.3),
    Case("fixed window", 10.0, DATE_PAUSE, 5.0, 0.3),
]
CHANGED_LIMIT_CASES = [
    case for case in list_cases() if case.rate == 5 and case.round_trip_s == 0.3 and case.scenario == CHANGED_LIMIT
][::4]


@pytest.mark.parametrize("case", [*SAMPLE_CASES, *LONG_ROUND_TRIP_CASES, *CHANGED_LIMIT_CASES], ids=str)
def test_the_controller_stays_within_the_bounds_of_each_case(case: Case) -> None:
    bounds = choose_bounds(case)
    measurements = compute_means([measure(case, simulate_run(case, RateController(), seed)) for seed in SEEDS])
    assert bounds.list_broken_bounds(case, measurements) == []


def test_the_controller_recognises_a_window_that_began_before_the_run() -> None:
    case = Case("fixed window", 60.0, None, 5.0, 0.3)
    measurements = measure(case, simulate_run(case, RateController(), seed=101))
    assert choose_bounds(case).list_broken_bounds(case, measurements) == []


def test_the_first_minute_reaches_most_of_the_best_possible_goodput() -> None:
    goodputs = [
        measure(case, simulate_run(case, RateController(), length_s=FIRST_MINUTE_S)).first_minute_goodput
        for case in [*SAMPLE_CASES, *LONG_ROUND_TRIP_CASES]
    ]
    assert sum(goodputs) / len(goodputs) >= 0.90
    assert min(goodputs) >= 0.60  # docs/pace-table.md has the means of several simulated runs


def test_the_rate_found_with_many_requests_in_flight_is_not_far_below_the_limit() -> None:
    case = Case("sliding window", 1.0, 5.0, 500.0, 0.3)
    assert measure(case, simulate_run(case, RateController(), length_s=FIRST_MINUTE_S)).first_minute_goodput >= 0.70


@pytest.mark.parametrize(
    "case", [Case("fixed window", 10.0, 1.0, 500.0, 0.3), Case("sliding window", 60.0, DATE_PAUSE, 500.0, 0.3)], ids=str
)
def test_a_long_window_and_many_requests_in_flight_cause_few_refusals(case: Case) -> None:
    run_counts = simulate_run(case, RateController(), length_s=480)
    served_count, refused_count = sum(run_counts.served_counts[180:]), sum(run_counts.refused_counts[180:])
    assert refused_count <= 0.03 * (served_count + refused_count)


@pytest.mark.parametrize("case", [*list_random_refusal_cases()][6:12] + [*list_random_refusal_cases()][18:24], ids=str)
def test_random_refusals_do_not_lower_the_rate(case: Case) -> None:
    served_share, first_minute_share, sent_in_pause_count = compare_with_known_limit(
        case, RateController(), seed=1, length_s=FIRST_MINUTE_S
    )
    assert served_share >= 0.85
    assert first_minute_share == served_share
    assert sent_in_pause_count == 0


def test_the_rate_recovers_after_a_random_refusal_ended_the_search_early() -> None:
    case = Case("bucket", 1.0, 5.0, 500.0, 0.02, random_refusal_share=0.05)
    served_shares = [compare_with_known_limit(case, RateController(), seed)[0] for seed in range(1, 25)]
    assert sum(served_shares) >= 0.85 * len(served_shares)
    assert sum(share > 0.6 for share in served_shares) >= 23


def test_short_stalls_of_the_sender_cost_little_goodput() -> None:
    case = Case("sliding window", 1.0, 1.0, 50.0, 0.02)
    measurements = measure(case, simulate_run(case, RateController(), stall_s=0.05))
    assert measurements.goodput >= 0.93  # two seeds: 0.963 with stalls, and 0.966 without stalls


@pytest.mark.parametrize("pause_s", [None, 1.0, 30.0])
def test_a_later_run_begins_at_the_limit_of_an_earlier_run(pause_s: float | None) -> None:
    case, first_controller = Case("bucket", 0.2, pause_s, 50.0, 0.02), RateController()
    simulate_run(case, first_controller, length_s=900)
    assert first_controller.found_limit is not None

    result_after_ten_minutes = simulate_run(
        case, RateController(found_limit=first_controller.found_limit, found_limit_age_s=600.0), length_s=60
    )
    result_after_ten_days = simulate_run(
        case, RateController(found_limit=first_controller.found_limit, found_limit_age_s=10 * 86_400.0), length_s=60
    )

    assert sum(result_after_ten_minutes.served_counts[:20]) >= 0.9 * 50 * 20
    assert sum(result_after_ten_minutes.refused_counts) <= 0.05 * 50 * 60
    assert sum(result_after_ten_days.served_counts[:5]) < sum(result_after_ten_minutes.served_counts[:5])


def test_a_client_uses_at_least_a_third_of_the_limit_that_another_client_leaves_unused() -> None:
    case = Case("bucket", TWO_TOKEN_BUCKET_SPAN_S, 30.0, 500.0, 0.3, SHARED_LIMIT)
    assert (
        measure(
            case, simulate_run(case, RateController(), length_s=CHANGE_END_S_BY_SCENARIO[SHARED_LIMIT])
        ).goodput_beside_other_client
        >= 0.33
    )


@pytest.mark.parametrize(
    ("rate", "pause_s", "scenario"), [(50.0, 5.0, CHANGED_LIMIT), (10.0, 1.0, CHANGED_LIMIT), (50.0, 1.0, SHARED_LIMIT)]
)
def test_a_fall_of_the_limit_after_40_seconds_causes_few_refusals(
    monkeypatch: pytest.MonkeyPatch, rate: float, pause_s: float, scenario: str
) -> None:
    """The requests served before the fall are evidence against the lower limit until the controller forgets these
    requests."""
    monkeypatch.setattr(matrix, "CHANGE_BEGIN_S", 40)
    monkeypatch.setattr(matrix, "CHANGE_END_S_BY_SCENARIO", {SHARED_LIMIT: 1000, CHANGED_LIMIT: 1000})
    case = Case("bucket", TWO_TOKEN_BUCKET_SPAN_S, pause_s, rate, 0.02, scenario)
    run_counts = simulate_run(case, RateController(), length_s=400)
    served_count, refused_count = sum(run_counts.served_counts[100:400]), sum(run_counts.refused_counts[100:400])
    allowed_count = (
        case.rate / 2 * 300
        if scenario == CHANGED_LIMIT
        else case.rate * 300 - sum(run_counts.served_counts_of_other_client[100:400])
    )
    assert served_count >= (0.9 if scenario == CHANGED_LIMIT else 0.6) * allowed_count
    assert refused_count <= 0.03 * (served_count + refused_count)
