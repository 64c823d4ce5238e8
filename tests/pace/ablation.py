"""Shows the effect of each rule of the rate controller: simulates cells of the matrix with a changed rule."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

from connector.pace import rate
from connector.pace.rate import RateController
from tests.pace.chance import measure_chance
from tests.pace.matrix import (
    ALONE,
    CHANGE_END_S_BY_SCENARIO,
    DATE_PAUSE,
    LIMITERS,
    SHARED,
    Cell,
    list_cells,
    list_chance_cells,
    measure,
    simulate_run,
)


class _WithoutGeometricMean(RateController):
    def _find_ramp_rates(self, rate_behind_refusal: float) -> tuple[float, float]:
        low_rate, high_rate = super()._find_ramp_rates(rate_behind_refusal)
        # The ramp begins at the lower bound, where the base class takes the geometric mean.
        return low_rate**2 / high_rate, high_rate


class _WithoutFewestServedCount(RateController):
    def _find_ramp_rates(self, rate_behind_refusal: float) -> tuple[float, float]:
        self._fewest_served_count = inf
        return super()._find_ramp_rates(rate_behind_refusal)


class _WithoutRateBehindRefusal(RateController):
    def _find_ramp_rates(self, rate_behind_refusal: float) -> tuple[float, float]:
        return super()._find_ramp_rates(0.0)


class _WithoutChance(RateController):
    def _detect_chance(self, is_pause_short: bool, rate_behind_refusal: float) -> bool:
        return False


class _WithoutChanceInRamps(RateController):
    def _detect_chance(self, is_pause_short: bool, rate_behind_refusal: float) -> bool:
        return self._ramp is None and super()._detect_chance(is_pause_short, rate_behind_refusal)


class _WithoutDoubt(RateController):
    def _detect_contradiction(self) -> bool:
        return False


class _WithoutCertainty(RateController):
    def _detect_contradiction(self) -> bool:
        self._agreement_count = min(self._agreement_count, 0)
        return super()._detect_contradiction()


@contextmanager
def _set_constant(name: str, value: float) -> Iterator[None]:
    previous_value = getattr(rate, name)
    setattr(rate, name, value)
    try:
        yield
    finally:
        setattr(rate, name, previous_value)


# The controllers of the table: the text of the changed rule, the controller, and a constant of `rate` with its value.
RULES: tuple[tuple[str, Callable[[], RateController], str, float], ...] = (
    ("all rules", RateController, "_MIN_REFUSALS", 3),
    ("a ramp begins at the lower bound, not at the geometric mean", _WithoutGeometricMean, "_MIN_REFUSALS", 3),
    ("the stretch with the fewest served requests gives no lower bound", _WithoutFewestServedCount, "_MIN_REFUSALS", 3),
    ("windows are not recognised", RateController, "_LONGEST_WINDOW_S", 0.0),
    ("a ramp lasts at most 5 pauses", RateController, "_LONGEST_RAMP_COSTS", 5.0),
    ("a ramp lasts at most 60 pauses", RateController, "_LONGEST_RAMP_COSTS", 60.0),
    ("the longest ramp counts a pause in its real length", RateController, "_LEAST_COST_IN_LONGEST_RAMP_S", 0.0),
    ("a short ramp counts a pause in its real length", RateController, "_LEAST_COST_S", 0.0),
    ("one refusal instead of three decides between a limit and chance", RateController, "_MIN_REFUSALS", 1),
    ("requests behind a refused request do not measure the rate", _WithoutRateBehindRefusal, "_MIN_REFUSALS", 3),
    ("the first ramp ends at the mean rate of the search", RateController, "_FIRST_RAMP_END_FACTOR", 1.0),
    ("random refusals are not recognised", _WithoutChance, "_MIN_REFUSALS", 3),
    ("random refusals are recognised only while the rate doubles", _WithoutChanceInRamps, "_MIN_REFUSALS", 3),
    ("a limit that is not certain is not doubted", _WithoutDoubt, "_MIN_REFUSALS", 3),
    ("each limit is doubted, even if it is certain", _WithoutCertainty, "_MIN_REFUSALS", 3),
    (
        "two refusals end the expectation of random refusals and the doubt",
        RateController,
        "_MAX_REFUSALS_WITHOUT_EVIDENCE",
        2,
    ),
    ("random refusals may ask for a pause of any length", RateController, "_SHORTEST_LONG_PAUSE_S", 1e9),
)


_CHANCE_RUN_COUNT = 8  # simulated runs of each chance cell; a rule may help in only some of the runs

RULES_TABLE_HEAD = """\
| rules | goodput: mean, least, < 85 % | first: mean, < 70 % | refused > 3 % | beside: least | chance |
|---|---|---|---|---|---|
"""


def format_rule_row(index: int) -> str:
    """Return a row of a Markdown table: the results of a sample of cells without one rule.

    The sample: the cells at 5 and 50 requests/s with 20 ms latency, six cells at 500/s, eleven cells at 50/s with
    300 ms, the cells at 50/s with 300 ms beside another client, and chance cells."""
    rule_name, build_controller, constant_name, value = RULES[index]
    alone_cells = [
        cell for cell in list_cells() if cell.scenario == ALONE and cell.round_trip_s == 0.02 and cell.rate <= 50
    ]
    alone_cells += [
        Cell(limiter_kind, span_s, 5.0, 500.0, 0.3) for limiter_kind, span_s in (LIMITERS[0], LIMITERS[5], LIMITERS[8])
    ]
    alone_cells += [Cell("sliding window", 1.0, None, 500.0, 0.02)]
    alone_cells += [Cell("fixed window", 10.0, 1.0, 500.0, 0.3), Cell("sliding window", 60.0, DATE_PAUSE, 500.0, 0.3)]
    alone_cells += [Cell(limiter_kind, span_s, None, 50.0, 0.3) for limiter_kind, span_s in LIMITERS]
    shared_cells = [
        Cell(limiter_kind, span_s, pause_s, 50.0, 0.3, SHARED)
        for limiter_kind, span_s in LIMITERS
        for pause_s in (5.0, 30.0)
    ]
    chance_cells = [cell for cell in list_chance_cells() if cell.status == 429]
    with _set_constant(constant_name, value):
        lowest_shared_goodput = min(
            measure(
                cell, simulate_run(cell, build_controller(), length_s=CHANGE_END_S_BY_SCENARIO[SHARED])
            ).goodput_beside_other_client
            for cell in shared_cells
        )
        return (
            f"| {rule_name} | {_format_results(alone_cells, build_controller)} | {lowest_shared_goodput:.2f} | "
            f"{_format_chance_results(chance_cells, build_controller)} |"
        )


def _format_results(cells: list[Cell], build_controller: Callable[[], RateController]) -> str:
    measurements = [measure(cell, simulate_run(cell, build_controller())) for cell in cells]
    goodputs, first_minute_goodputs = (
        [result.goodput for result in measurements],
        [result.first_minute_goodput for result in measurements],
    )
    low_goodput_count, high_refusal_count = (
        sum(share < 0.85 for share in goodputs),
        sum(result.refused_share > 0.03 for result in measurements),
    )
    goodput_cells = f"{sum(goodputs) / len(goodputs):.3f}, {min(goodputs):.3f}, {low_goodput_count}"
    return (
        f"{goodput_cells} | {sum(first_minute_goodputs) / len(first_minute_goodputs):.3f}, "
        f"{sum(share < 0.7 for share in first_minute_goodputs)} | {high_refusal_count}"
    )


def _format_chance_results(cells: list[Cell], build_controller: Callable[[], RateController]) -> str:
    seeds = range(1, 1 + _CHANCE_RUN_COUNT)
    served_shares = [measure_chance(cell, build_controller(), seed)[0] for cell in cells for seed in seeds]
    return (
        f"{sum(served_shares) / len(served_shares):.3f}, {min(served_shares):.3f}, "
        f"{sum(share < 0.5 for share in served_shares)}"
    )
