"""The closed loop under a limit that falls fourfold and rises again: what that costs, and how soon it is met."""

from dataclasses import dataclass

import pytest

from tests.pace.cells import CELLS, HIGH, LOW, Cell, list_seeds_of_steps
from tests.pace.measures import Count, add, count, find_met_s

REQUESTS = 300  # of the lower rate: what is refused after the fall is counted over so many


@dataclass(frozen=True, slots=True)
class Bounds:
    """Each limit lasts `phase_s`. From `low_s` after the fall `refused` holds, of all seeds together, `worst` of each.

    The rise is met within `met_s`; the loop is steady `steady_s` after the fall, and again that long after it met the
    rise, and then keeps `goodput` and `steady_refused`, of all seeds together.
    """

    phase_s: float
    low_s: float
    refused: float
    worst: float
    met_s: float
    steady_s: float
    goodput: float
    steady_refused: float


# Promised: 0.05 and 15 s. The rest by measuring, 20 seeds a cell: 0.068 the worst but for one of 0.11; met in 13.3 s;
# once it is steady 0.02, which two seeds cannot tell from 0.025.
PROMISED = Bounds(60, 3, 0.05, 0.15, 15, 10, 0.95, 0.03)
# Chosen by measuring, 24 seeds a cell. A window of 10 s is full when the limit falls, and stays so for up to two.
LONG_WINDOW = Bounds(120, 20, 0.02, 0.05, 40, 30, 0.95, 0.03)  # 0.002, 0.014; 32.7 s
# Each refusal, and each step up, takes two seconds to be heard of.
LONG_TRIP = Bounds(80, 10, 0.05, 0.10, 45, 15, 0.95, 0.03)  # 0.02, 0.039; 35.5 s
LONG_TRIP_LONG_WINDOW = Bounds(120, 30, 0.02, 0.05, 50, 30, 0.95, 0.05)  # 0.001, 0.032; 44 s


def choose_bounds(cell: Cell) -> Bounds:
    if cell.window_s == 1:
        return PROMISED if cell.is_promised else LONG_TRIP
    return LONG_WINDOW if cell.is_promised else LONG_TRIP_LONG_WINDOW


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_limit_that_falls_and_rises_fourfold_is_followed(cell: Cell) -> None:
    bounds = choose_bounds(cell)
    fall, rise, end = bounds.phase_s, 2 * bounds.phase_s, 3 * bounds.phase_s
    steps = [(0.0, HIGH), (fall, LOW), (rise, HIGH)]
    fallen, low, high, met_s = list[Count](), list[Count](), list[Count](), list[float]()

    for seed in list_seeds_of_steps(cell):
        trips = cell.play(steps, end, seed)
        fallen.append(count(trips, LOW, fall + bounds.low_s, fall + bounds.low_s + REQUESTS / LOW))
        low.append(count(trips, LOW, fall + bounds.steady_s, rise))
        met_s.append(find_met_s(trips, HIGH, rise))
        high.append(count(trips, HIGH, min(rise + met_s[-1], end) + bounds.steady_s, end - 2 * cell.rtt_s))

    assert add(fallen).refusals <= bounds.refused
    assert max(each.refusals for each in fallen) <= bounds.worst
    assert max(met_s) <= bounds.met_s
    assert min(add(low).goodput, add(high).goodput) >= bounds.goodput
    assert max(add(low).refusals, add(high).refusals) <= bounds.steady_refused
