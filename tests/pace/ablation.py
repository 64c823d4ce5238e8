"""What each rule of the rate controller is worth: the matrix without the rule."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from connector.pace import rate
from connector.pace.rate import RateController
from tests.pace.chance import measure_chance
from tests.pace.matrix import ALONE, ROUND_TRIPS_S, Cell, list_cells, list_chance_cells, measure, play


class _WithoutMean(RateController):
    def _begin_ramp_after(self, refusal: rate._Refusal) -> None:
        self._begin_ramp(max(refusal.proved, refusal.rate / 16), refusal.rate)


class _WithoutChance(RateController):
    def _is_chance_in_search(self) -> bool:
        return False

    def _is_chance_in_ramp(self) -> bool:
        return False


class _WithoutChanceInRamps(RateController):
    def _is_chance_in_ramp(self) -> bool:
        self._chance_for = 0
        return False


@contextmanager
def _set_constant(name: str, value: float) -> Iterator[None]:
    before = getattr(rate, name)
    setattr(rate, name, value)
    try:
        yield
    finally:
        setattr(rate, name, before)


RULES: tuple[tuple[str, Callable[[], RateController], str, float], ...] = (
    ("all rules", RateController, "_REPEATS", 3),
    ("a ramp begins at the lower bound, not at the geometric mean", _WithoutMean, "_REPEATS", 3),
    ("without windows", RateController, "_LONGEST_WINDOW_S", 0.0),
    ("a ramp of at most 5 pauses", RateController, "_LONGEST_RAMP_PAUSES", 5.0),
    ("a ramp of at most 60 pauses", RateController, "_LONGEST_RAMP_PAUSES", 60.0),
    ("without chance", _WithoutChance, "_REPEATS", 3),
    ("chance only while the rate doubles", _WithoutChanceInRamps, "_REPEATS", 3),
)


def write_rules() -> str:
    """Return in Markdown what the cells at 5 and 50/s and 20 ms, and the chance cells, reach without each rule."""
    alone = [cell for cell in list_cells() if cell.scene == ALONE and cell.trip_s == ROUND_TRIPS_S[0]]
    alone = [cell for cell in alone if cell.rate <= 50]
    chance = [cell for cell in list_chance_cells() if cell.status == 429]
    lines = [
        "| rules | goodput: mean, least, < 85 % | first minute | refused > 3 % | chance: mean, least, < 85 % |",
        "|---|---|---|---|---|",
    ]
    for name, build, constant, value in RULES:
        with _set_constant(constant, value):
            lines.append(f"| {name} | {_describe(alone, build)} | {_describe_chance(chance, build)} |")
    return "\n".join(lines) + "\n"


def _describe(cells: list[Cell], build: Callable[[], RateController]) -> str:
    shown = [measure(cell, play(cell, build())) for cell in cells]
    goodput, first = [each.goodput for each in shown], [each.first for each in shown]
    lost, refused = sum(each < 0.85 for each in goodput), sum(each.refused > 0.03 for each in shown)
    mean = f"{sum(goodput) / len(goodput):.3f}, {min(goodput):.3f}, {lost}"
    return f"{mean} | {sum(first) / len(first):.3f} | {refused}"


def _describe_chance(cells: list[Cell], build: Callable[[], RateController]) -> str:
    served = [measure_chance(cell, build(), seed=1)[0] for cell in cells]
    return f"{sum(served) / len(served):.3f}, {min(served):.3f}, {sum(each < 0.85 for each in served)}"
