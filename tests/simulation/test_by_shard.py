"""Seeded nights that are divided into shards, another number each night: every claim holds as it does for whole runs.

The runs of a night's shards follow each other at once, so that each finds what the others have left behind.
"""

import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from connector.shards import Shard
from tests.simulation.chances import build_scenarios
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.rows import Portion
from tests.simulation.scenario import Night, Scenario
from tests.simulation.simulate import simulate

SEEDS = int(os.environ.get("CONNECTOR_TEST_SEEDS", "150")) // 5
_COUNTS = (2, 3, 1, 2)
_GAP_S = 1.0
_SHOWN = 10


def build_sharded(seeds: range) -> Iterator[Scenario]:
    """Return the scenarios of these seeds in shards, without those whose base has no id yet, or that are retried."""
    for scenario in build_scenarios(seeds):
        if scenario.has_base and not any(night.retry or night.is_by_name for night in scenario.nights):
            counts = (_COUNTS[index % len(_COUNTS)] for index in range(len(scenario.nights)))
            nights = [
                each for night, count in zip(scenario.nights, counts, strict=True) for each in divide(night, count)
            ]
            yield replace(scenario, nights=tuple(nights))


def divide(night: Night, count: int) -> Iterator[Night]:
    """Return the runs of all shards of a night. Events between two nights happen before the first run."""
    for index in range(1, count + 1):
        shard = Shard(index, count)
        own = tuple(take(portion, shard) for portion in night.portions)
        if index == 1:
            yield replace(night, portions=own, shard=shard)
        else:
            yield replace(night, portions=own, shard=shard, gap_s=_GAP_S, newcomers=(), ledger="kept")


def take(portion: Portion, shard: Shard) -> Portion:
    """Return the rows of a shard. The first shard also has the rows whose outcome needs no ledger."""
    planned = portion.planned.select(np.flatnonzero(shard.contains(portion.planned.identities)))
    told = tuple(each for each in portion.told if shard.holds(each.identity))
    if shard.index > 1:
        return Portion(planned, len(told), 0, 0, 0, told)
    elsewhere = len(portion.told) - len(told)
    return replace(portion, planned=planned, read=portion.read - elsewhere, told=told)


def test_in_every_seed_every_claim_holds() -> None:
    ledgers = Ledgers()
    played = (simulate(scenario, ledgers) for scenario in build_sharded(range(SEEDS)))
    failures = [f"seed {each.world.scenario.seed}: {fault}" for each in played for fault in each.faults]
    assert not failures, "\n".join([f"{len(failures)} failures:", *failures[:_SHOWN]])
