"""Simulates cases of the matrix with a changed rule, to show the effect of each rule of the rate controller."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf

from connector.pace import rate
from connector.pace.rate import RateController
from tests.pace.chance import compare_with_known_limit
from tests.pace.matrix import (
    CHANGE_END_S_BY_SCENARIO,
    DATE_PAUSE,
    LIMITERS,
    ONE_CLIENT,
    SHARED_LIMIT,
    Case,
    list_cases,
    list_random_refusal_cases,
    measure,
    simulate_run,
)


class _ControllerWithoutGeometricMean(RateController):
    def _find_ramp_rates(self, trailing_rate: float) -> tuple[float, float]:
        start_rate, end_rate = super()._find_ramp_rates(trailing_rate)
        # The ramp begins at the lower bound. With all rules, the ramp begins at the geometric mean of the bounds.
        return start_rate**2 / end_rate, end_rate


class _ControllerWithoutSecondBound(RateController):
    def _find_ramp_rates(self, trailing_rate: float) -> tuple[float, float]:
        self._fewest_served_count = inf
        return super()._find_ramp_rates(trailing_rate)


class _ControllerWithoutTrailingRate(RateController):
    def _find_ramp_rates(self, trailing_rate: float) -> tuple[float, float]:
        return super()._find_ramp_rates(0.0)


class _ControllerWithoutRandomRefusals(RateController):
    def _detect_random_refusal(self, is_pause_short: bool, trailing_rate: float) -> bool:
        return False


class _ControllerWithoutRandomRefusalsInRamps(RateController):
    def _detect_random_refusal(self, is_pause_short: bool, trailing_rate: float) -> bool:
        return self._ramp is None and super()._detect_random_refusal(is_pause_short, trailing_rate)


class _ControllerWithoutContradictions(RateController):
    def _detect_contradiction(self) -> bool:
        return False


class _ControllerWithoutCertainLimits(RateController):
    def _detect_contradiction(self) -> bool:
        self._agreement_count = min(self._agreement_count, 0)
        return super()._detect_contradiction()


@contextmanager
def _set_constants(constants: Mapping[str, float]) -> Iterator[None]:
    previous_values = {name: getattr(rate, name) for name in constants}
    vars(rate).update(constants)
    try:
        yield
    finally:
        vars(rate).update(previous_values)


# The rows of the table: the text of the changed rule, the controller, and the changed constants of
# `connector.pace.rate`.
RULES: tuple[tuple[str, Callable[[], RateController], Mapping[str, float]], ...] = (
    ("none", RateController, {}),
    ("a ramp begins at the lower bound, not at the geometric mean", _ControllerWithoutGeometricMean, {}),
    ("the second lower bound of the limit is not used", _ControllerWithoutSecondBound, {}),
    ("limiters that count requests in windows are not recognised", RateController, {"_LONGEST_WINDOW_S": 0.0}),
    (
        "the maximum length of a ramp is 5 times the seconds that a refusal costs, not 20 times",
        RateController,
        {"_MAX_RAMP_LENGTH_PER_REFUSAL_COST": 5.0},
    ),
    (
        "the maximum length of a ramp is 60 times the seconds that a refusal costs, not 20 times",
        RateController,
        {"_MAX_RAMP_LENGTH_PER_REFUSAL_COST": 60.0},
    ),
    (
        "the formula for the maximum length of a ramp has no minimum of 2 s for the cost of a refusal",
        RateController,
        {"_MIN_REFUSAL_COST_FOR_LONGEST_RAMP_S": 0.0},
    ),
    (
        "the formula for the length of a ramp has no minimum of 0.3 s for the cost of a refusal",
        RateController,
        {"_MIN_REFUSAL_COST_S": 0.0},
    ),
    ("one refusal, not three, shows whether refusals are random", RateController, {"_MIN_REFUSALS": 1}),
    ("the rate of the requests that left after a refused request is not measured", _ControllerWithoutTrailingRate, {}),
    (
        "the first ramp ends at the mean rate of the search, not at twice this rate",
        RateController,
        {"_FIRST_RAMP_END_PER_MEAN_RATE": 1.0},
    ),
    ("random refusals are not recognised", _ControllerWithoutRandomRefusals, {}),
    (
        "random refusals are recognised in the search for the limit, but not in a later ramp",
        _ControllerWithoutRandomRefusalsInRamps,
        {},
    ),
    ("a limit is never compared with the requests of earlier periods", _ControllerWithoutContradictions, {}),
    (
        "a limit is compared with earlier periods even after ten comparisons have confirmed it",
        _ControllerWithoutCertainLimits,
        {},
    ),
    (
        "two refusals, instead of ten, make it certain that a limit exists and that refusals are not random",
        RateController,
        {"_MAX_REFUSALS_WITHOUT_EVIDENCE": 2},
    ),
    ("a refusal counts as random even if its pause is 10 s or longer", RateController, {"_SHORTEST_LONG_PAUSE_S": 1e9}),
)


# The number of simulated runs of each case with random refusals. One run is not enough, because a rule may help in only
# some of the runs.
_RANDOM_REFUSAL_RUN_COUNT = 8

RULES_TABLE_HEAD = """\
| changed rule | used share of the limit: mean, smallest, number of cases under 85 % \
| first minute, relative to the best possible result: mean, number of cases under 70 % \
| number of cases with more than 3 % refused requests | smallest used share of the limit beside another client \
| served requests despite random refusals, relative to a client that knows the limit: mean, smallest, \
number of runs under 50 % |
|---|---|---|---|---|---|
"""


def format_rule_row(index: int) -> str:
    """Return a row of a Markdown table: the results of the controller with the changed rule `RULES[index]`. The
    introduction of the table lists the simulated cases."""
    rule_name, build_controller, constants = RULES[index]
    cases_without_other_client = [
        case for case in list_cases() if case.scenario == ONE_CLIENT and case.round_trip_s == 0.02 and case.rate <= 50
    ]
    cases_without_other_client += [
        Case(limiter_kind, limiter_span_s, 5.0, 500.0, 0.3)
        for limiter_kind, limiter_span_s in (LIMITERS[0], LIMITERS[5], LIMITERS[8])
    ]
    cases_without_other_client += [Case("sliding window", 1.0, None, 500.0, 0.02)]
    cases_without_other_client += [
        Case("fixed window", 10.0, 1.0, 500.0, 0.3),
        Case("sliding window", 60.0, DATE_PAUSE, 500.0, 0.3),
    ]
    cases_without_other_client += [
        Case(limiter_kind, limiter_span_s, None, 50.0, 0.3) for limiter_kind, limiter_span_s in LIMITERS
    ]
    cases_with_other_client = [
        Case(limiter_kind, limiter_span_s, pause_s, 50.0, 0.3, SHARED_LIMIT)
        for limiter_kind, limiter_span_s in LIMITERS
        for pause_s in (5.0, 30.0)
    ]
    random_refusal_cases = [case for case in list_random_refusal_cases() if case.status == 429]
    with _set_constants(constants):
        lowest_shared_goodput = min(
            measure(
                case, simulate_run(case, build_controller(), length_s=CHANGE_END_S_BY_SCENARIO[SHARED_LIMIT])
            ).goodput_beside_other_client
            for case in cases_with_other_client
        )
        return (
            f"| {rule_name} | {_format_results(cases_without_other_client, build_controller)} "
            f"| {lowest_shared_goodput:.2f} | {_format_random_refusals(random_refusal_cases, build_controller)} |"
        )


def _format_results(cases: list[Case], build_controller: Callable[[], RateController]) -> str:
    measurements = [measure(case, simulate_run(case, build_controller())) for case in cases]
    goodputs, first_minute_goodputs = (
        [case_measurements.goodput for case_measurements in measurements],
        [case_measurements.first_minute_goodput for case_measurements in measurements],
    )
    low_goodput_count, high_refusal_count = (
        sum(share < 0.85 for share in goodputs),
        sum(case_measurements.refused_share > 0.03 for case_measurements in measurements),
    )
    goodput_text = f"{sum(goodputs) / len(goodputs):.3f}, {min(goodputs):.3f}, {low_goodput_count}"
    return (
        f"{goodput_text} | {sum(first_minute_goodputs) / len(first_minute_goodputs):.3f}, "
        f"{sum(share < 0.7 for share in first_minute_goodputs)} | {high_refusal_count}"
    )


def _format_random_refusals(cases: list[Case], build_controller: Callable[[], RateController]) -> str:
    seeds = range(1, 1 + _RANDOM_REFUSAL_RUN_COUNT)
    served_shares = [compare_with_known_limit(case, build_controller(), seed)[0] for case in cases for seed in seeds]
    return (
        f"{sum(served_shares) / len(served_shares):.3f}, {min(served_shares):.3f}, "
        f"{sum(share < 0.5 for share in served_shares)}"
    )
