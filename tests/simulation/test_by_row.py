"""Seeded nights in which each row says its base: every claim holds as it does where all rows are for one."""

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.simulation.chances import build_scenarios
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.scenario import BASE_ID, Night, Scenario
from tests.simulation.simulate import simulate

SEEDS = int(os.environ.get("CONNECTOR_TEST_SEEDS", "150")) // 10
_SHOWN = 10


def build_by_row(seeds: range, bases: tuple[int, ...]) -> Iterator[Scenario]:
    """The scenarios of these seeds, by row; but for those whose base has no id yet, that are retried, or whose base is
    answered as another: a base of the run then holds a subscriber of another one, and a listing rightly finds it."""

    def change(night: Night) -> Night:
        return replace(night, is_by_row=True, bases=bases, newcomers=())  # newcomers would come into one base

    for scenario in build_scenarios(seeds):
        is_alias = "base_alias" in scenario.settings
        if scenario.has_base and not is_alias and not any(night.retry for night in scenario.nights):
            yield replace(scenario, nights=tuple(change(night) for night in scenario.nights))


@pytest.mark.parametrize(
    "bases", [pytest.param((BASE_ID, 9), marks=pytest.mark.campaign), (BASE_ID, 9, 11)], ids=["two", "three"]
)
def test_in_every_seed_every_claim_holds(bases: tuple[int, ...]) -> None:
    ledgers = Ledgers()
    played = (simulate(scenario, ledgers) for scenario in build_by_row(range(SEEDS), bases))
    failures = [f"seed {each.world.scenario.seed}: {fault}" for each in played for fault in each.faults]
    assert not failures, "\n".join([f"{len(failures)} failures:", *failures[:_SHOWN]])
