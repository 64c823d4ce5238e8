"""Seeded nights of loader, ledger and service on virtual time: every stance, every fault, and death at any moment.

A failure names the line that plays its seed again and prints the story.
"""

import json
import os
from collections.abc import Callable
from itertools import chain

import pytest

from tests.simulation.coverage import Coverage
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.simulate import simulate_seeds
from tests.simulation.story import tell_story
from tests.simulation.truth import Truth

USUAL_SEEDS = 100
SEEDS = int(os.environ.get("CONNECTOR_TEST_SEEDS", USUAL_SEEDS))
_RARE = (115, 116, 155, 229, 356, 9231)
"""Seeds that meet what no other seed meets: a create that is executed twice, a create that is executed after the quiet
period, a 429 that created, a create that updates an existing subscriber, an entry that the suppression list gives up,
and a lag that is not on record."""
_ENOUGH = 10  # failures to begin with


def test_every_claim_holds_and_every_phase_and_setting_is_met(record_property: Callable[[str, object], None]) -> None:
    ledgers, coverage, failures = Ledgers(), Coverage(), list[str]()
    blocks = (range(SEEDS), *(range(seed, seed + 1) for seed in _RARE if seed >= SEEDS))
    for result in chain.from_iterable(simulate_seeds(seeds, ledgers) for seeds in blocks):
        failures += [f"python -m tests.simulation {result.world.scenario.seed}  # {fault}" for fault in result.faults]
        coverage.add(Truth(result.world))
        if len(failures) >= _ENOUGH:
            break
    assert failures == [], "\n".join(failures)
    record_property("simulated", json.dumps([SEEDS, coverage.list_rows()]))
    if SEEDS < USUAL_SEEDS:
        pytest.skip(f"{SEEDS} seeds need not meet every phase and setting")
    assert coverage.list_missed() == []


def test_a_seed_has_the_same_story_twice() -> None:
    ledgers = Ledgers()
    first, second = ([tell_story(result) for result in simulate_seeds(range(4), ledgers)] for _ in range(2))
    assert first == second
