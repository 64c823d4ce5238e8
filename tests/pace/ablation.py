"""Shows the effect of each rule of the rate controller: plays cells of the matrix without the rule."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

from connector.pace import rate
from connector.pace.rate import RateController
from tests.pace.chance import measure_chance
from tests.pace.matrix import (
    ALONE,
    DATE,
    END_S,
    LIMITERS,
    SHARED,
    Cell,
    list_cells,
    list_chance_cells,
    measure,
    play,
)


class _WithoutMean(RateController):
    def _find_ends(self, rate_behind: float) -> tuple[float, float]:
        low, high = super()._find_ends(rate_behind)
        return low**2 / high, high  # the geometric mean of this bound and `high` is `low`


class _WithoutFewest(RateController):
    def _find_ends(self, rate_behind: float) -> tuple[float, float]:
        self._fewest_served = inf
        return super()._find_ends(rate_behind)


class _WithoutRateBehind(RateController):
    def _find_ends(self, rate_behind: float) -> tuple[float, float]:
        return super()._find_ends(0.0)


class _WithoutChance(RateController):
    def _judge_chance(self, is_short: bool, rate_behind: float) -> bool:
        return False


class _WithoutChanceInRamps(RateController):
    def _judge_chance(self, is_short: bool, rate_behind: float) -> bool:
        return self._ramp is None and super()._judge_chance(is_short, rate_behind)


class _WithoutDoubt(RateController):
    def _judge_doubt(self) -> bool:
        return False


class _WithoutCertainty(RateController):
    def _judge_doubt(self) -> bool:
        self._agreement_count = min(self._agreement_count, 0)
        return super()._judge_doubt()


@contextmanager
def _set_constant(name: str, value: float) -> Iterator[None]:
    before = getattr(rate, name)
    setattr(rate, name, value)
    try:
        yield
    finally:
        setattr(rate, name, before)


RULES: tuple[tuple[str, Callable[[], RateController], str, float], ...] = (
    ("all rules", RateController, "_REFUSALS", 3),
    ("a ramp begins at the lower bound, not at the geometric mean", _WithoutMean, "_REFUSALS", 3),
    ("the ramp with the fewest served requests gives no lower bound", _WithoutFewest, "_REFUSALS", 3),
    ("windows are not recognised", RateController, "_LONGEST_WINDOW_S", 0.0),
    ("a ramp lasts at most 5 pauses", RateController, "_LONGEST_RAMP_COSTS", 5.0),
    ("a ramp lasts at most 60 pauses", RateController, "_LONGEST_RAMP_COSTS", 60.0),
    ("the longest ramp counts a pause in its real length", RateController, "_LEAST_CAP_COST_S", 0.0),
    ("a short ramp counts a pause in its real length", RateController, "_LEAST_COST_S", 0.0),
    ("one refusal, not three, shows a limit or chance", RateController, "_REFUSALS", 1),
    ("requests behind a refused one do not measure the rate", _WithoutRateBehind, "_REFUSALS", 3),
    ("the first ramp ends at the mean rate of the search", RateController, "_FIRST_END", 1.0),
    ("a refusal just below the lower bound contradicts the bound", RateController, "_BELOW", 1.0),
    ("random refusals are not recognised", _WithoutChance, "_REFUSALS", 3),
    ("random refusals are recognised only while the rate doubles", _WithoutChanceInRamps, "_REFUSALS", 3),
    ("a limit that is not certain is not doubted", _WithoutDoubt, "_REFUSALS", 3),
    ("each limit is doubted, even if it is certain", _WithoutCertainty, "_REFUSALS", 3),
    ("two refusals end the expectation of random refusals and the doubt", RateController, "_PATIENCE", 2),
    ("random refusals may have pauses of any length", RateController, "_LIMIT_PAUSE_S", 1e9),
)


HEAD = """| rules | goodput: mean, least, < 85 % | first: mean, < 70 % | refused > 3 % | beside: least | chance |
|---|---|---|---|---|---|
"""


def write_rule(index: int) -> str:
    """Return a row of a Markdown table with the results of a sample of cells without one rule.

    The sample: the cells at 5 and 50 requests/s with 20 ms latency, six cells at 500/s, eleven cells at 50/s with
    300 ms, the cells at 50/s with 300 ms beside another client, and chance cells."""
    name, build, constant, value = RULES[index]
    alone = [cell for cell in list_cells() if cell.scene == ALONE and cell.trip_s == 0.02 and cell.rate <= 50]
    alone += [Cell(kind, span_s, 5.0, 500.0, 0.3) for kind, span_s in (LIMITERS[0], LIMITERS[5], LIMITERS[8])]
    alone += [Cell("sliding window", 1.0, None, 500.0, 0.02)]
    alone += [Cell("fixed window", 10.0, 1.0, 500.0, 0.3), Cell("sliding window", 60.0, DATE, 500.0, 0.3)]
    alone += [Cell(kind, span_s, None, 50.0, 0.3) for kind, span_s in LIMITERS]
    shared = [Cell(kind, span_s, pause_s, 50.0, 0.3, SHARED) for kind, span_s in LIMITERS for pause_s in (5.0, 30.0)]
    chance = [cell for cell in list_chance_cells() if cell.status == 429]
    with _set_constant(constant, value):
        beside = min(measure(cell, play(cell, build(), length_s=END_S[SHARED])).beside for cell in shared)
        return f"| {name} | {_describe(alone, build)} | {beside:.2f} | {_describe_chance(chance, build)} |"


def _describe(cells: list[Cell], build: Callable[[], RateController]) -> str:
    measurements = [measure(cell, play(cell, build())) for cell in cells]
    goodput, first = [result.goodput for result in measurements], [result.first for result in measurements]
    lost, refused = sum(share < 0.85 for share in goodput), sum(result.refused > 0.03 for result in measurements)
    mean = f"{sum(goodput) / len(goodput):.3f}, {min(goodput):.3f}, {lost}"
    return f"{mean} | {sum(first) / len(first):.3f}, {sum(share < 0.7 for share in first)} | {refused}"


def _describe_chance(cells: list[Cell], build: Callable[[], RateController]) -> str:
    served = [measure_chance(cell, build(), seed=1)[0] for cell in cells]
    return f"{sum(served) / len(served):.3f}, {min(served):.3f}, {sum(share < 0.85 for share in served)}"
