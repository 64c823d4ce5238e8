"""The cells of the closed-loop matrix: limiters, round trips and limits, and how many seeds play each."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from tests.pace.clients import RateAlone
from tests.pace.world import SHARED, Trip, World, run

SEEDS = int(
    os.environ.get("CONNECTOR_TEST_PACE_SEEDS", "2")
)  # of each cell; 20 for the promise itself, in a quarter of an hour

LIMITERS = (
    ("bucket", 1.0),
    ("sliding_window", 1.0),
    ("fixed_window", 1.0),
    (SHARED, 1.0),
    ("sliding_window", 10.0),
    ("fixed_window", 10.0),
)
ROUND_TRIPS_S = (0.05, 0.1, 0.5, 2.0)
RATES = (5, 100, 1000)
HIGH, LOW = 100, 25  # requests/s: the limit falls fourfold and rises again
_MEASURED_S = {5: 200.0, 100: 60.0, 1000: 30.0}
_WINDOWS_MEASURED = 10
_LONG_RUN_S = 0.5  # the longest round trip of the promise


@dataclass(frozen=True, slots=True)
class Cell:
    """A limiter and the way to it."""

    kind: str
    window_s: float
    rtt_s: float

    def __str__(self) -> str:
        return f"{self.kind}-{self.window_s:g}s-trip_{self.rtt_s:g}s"

    @property
    def is_promised(self) -> bool:
        """Whether the figures of the promise are meant: round trips up to half a second."""
        return self.rtt_s <= 0.5

    def play(self, steps: Sequence[tuple[float, float]], seconds: float, seed: int) -> list[Trip]:
        """The trips of the rate controller in this cell."""
        return run(RateAlone(), World(self.kind, steps, self.rtt_s, self.window_s), seconds, seed)


CELLS = [Cell(kind, window_s, rtt_s) for (kind, window_s), rtt_s in product(LIMITERS, ROUND_TRIPS_S)]


def list_steady() -> Iterator[tuple[Cell, int]]:
    """Each cell at each limit; the longest runs, of 150,000 requests and more, mostly in campaigns only."""
    for cell, rate in product(CELLS, RATES):
        is_long = rate == max(RATES) and cell.window_s > 1
        if SEEDS > 2 or not is_long or cell.rtt_s == _LONG_RUN_S:
            yield cell, rate


def list_seeds(rate: int) -> range:
    """A thousand requests a second tell in one run as much as a few tell in many."""
    return range(max(1, SEEDS // 2) if rate == max(RATES) else SEEDS)


def list_seeds_of_steps(cell: Cell) -> range:
    """What is refused in twelve seconds varies most where another client takes part."""
    return range(2 * SEEDS if cell.kind == SHARED else SEEDS)


def measured_s(cell: Cell, rate: int) -> float:
    """How long a steady cell is measured: so long that the noise of one cycle does not decide."""
    return max(_MEASURED_S[rate], _WINDOWS_MEASURED * cell.window_s)
