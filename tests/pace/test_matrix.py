"""The rate controller in a sample of the matrix; `python -m tests.pace` plays all of it."""

import os
from dataclasses import replace

import pytest

from connector.pace.rate import RateController
from tests.pace.matrix import ALONE, CHANGED, DATE, Cell, average, list_cells, measure, play, read_promise

SEEDS = range(1, 1 + int(os.environ.get("CONNECTOR_TEST_PACE_SEEDS", "4")))
SAMPLE = [cell for cell in list_cells() if cell.rate == 5 and cell.trip_s == 0.02 and cell.scene == ALONE]
FASTER = [
    Cell(kind, span_s, pause_s, 50.0, 0.3)
    for kind, span_s, pause_s in (
        ("bucket", 0.2, 1.0),
        ("fixed window", 1.0, 30.0),
        ("fixed window", 10.0, 5.0),
        ("sliding window", 10.0, None),
        ("sliding window", 60.0, DATE),
    )
]
CHANGING = [cell for cell in list_cells() if cell.rate == 5 and cell.trip_s == 0.3 and cell.scene == CHANGED][::4]
DEEP = [Cell("bucket", 60.0, 5.0, 50.0, 0.02, CHANGED)]


@pytest.mark.parametrize("cell", [*SAMPLE, *FASTER, *CHANGING, *DEEP], ids=str)
def test_a_limit_is_used_and_kept_and_no_request_leaves_inside_a_pause(cell: Cell) -> None:
    promise = read_promise(cell)
    # twelve plays keep the promise in the mean (docs/pace.md); the four that are played here may miss it by chance
    exceeded = 0.06 if cell.pause_s in (None, DATE) else promise.exceeded
    if len(SEEDS) < 12:
        promise = replace(promise, goodput=promise.goodput - 0.005, exceeded=exceeded)
    shown = average([measure(cell, play(cell, RateController(), seed)) for seed in SEEDS])
    assert promise.list_misses(cell, shown) == []


def test_a_sender_that_stands_still_for_moments_loses_little_more_than_that_time() -> None:
    cell = Cell("sliding window", 1.0, 1.0, 200.0, 0.02)
    shown = measure(cell, play(cell, RateController(), stall_s=0.05))
    assert shown.goodput >= 0.945  # half a percent of the time is lost


@pytest.mark.parametrize("pause_s", [None, 1.0, 30.0])
def test_a_later_run_begins_at_what_an_earlier_one_found(pause_s: float | None) -> None:
    cell, first = Cell("bucket", 0.2, pause_s, 50.0, 0.02), RateController()
    play(cell, first, length_s=900)
    assert first.found is not None

    soon = play(cell, RateController(found=first.found, age_s=600.0), length_s=60)
    late = play(cell, RateController(found=first.found, age_s=10 * 86_400.0), length_s=60)

    assert sum(soon.served[:20]) >= 0.9 * 50 * 20
    assert sum(soon.refused) <= 0.05 * 50 * 60
    assert sum(late.served[:5]) < sum(soon.served[:5])
