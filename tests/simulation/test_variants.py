"""Seeded nights in other shapes: rows that name their base, and runs of one shard. Every claim holds as in whole runs.

The runs of the shards of a night follow each other at once, so that each run finds what the other runs have left.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from connector.shards import Shard
from tests.simulation.chances import build_scenarios
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.rows import Portion
from tests.simulation.scenario import BASE_ID, Night, Scenario
from tests.simulation.simulate import simulate
from tests.simulation.test_seeds import SEEDS

_BASES = (BASE_ID, 9, 11)
_SHARD_COUNTS = (2, 3, 1, 2)
_GAP_S = 1.0
_SHOWN = 10  # failures


def build_by_row(seeds: range) -> Iterator[Scenario]:
    """Yield the scenarios of these seeds by row. Left out are scenarios whose base has no id yet or is answered as
    another (a listing then finds subscribers of two bases of the run), and retries."""

    def change(night: Night) -> Night:
        return replace(night, is_by_row=True, bases=_BASES, newcomers=())  # a newcomer comes into one base

    for scenario in build_scenarios(seeds):
        is_alias = "base_alias" in scenario.settings
        if scenario.has_base and not is_alias and not any(night.retry for night in scenario.nights):
            yield replace(scenario, nights=tuple(change(night) for night in scenario.nights))


def build_sharded(seeds: range) -> Iterator[Scenario]:
    """Yield the scenarios of these seeds in shards. Left out are bases without an id, and retries."""
    for scenario in build_scenarios(seeds):
        if scenario.has_base and not any(night.retry or night.is_by_name for night in scenario.nights):
            counts = (_SHARD_COUNTS[index % len(_SHARD_COUNTS)] for index in range(len(scenario.nights)))
            nights = [run for night, count in zip(scenario.nights, counts, strict=True) for run in divide(night, count)]
            yield replace(scenario, nights=tuple(nights))


def divide(night: Night, count: int) -> Iterator[Night]:
    """Yield the runs of all shards of a night. Events between two nights happen before the first run."""
    for index in range(1, count + 1):
        shard = Shard(index, count)
        own = tuple(select(portion, shard) for portion in night.portions)
        if index == 1:
            yield replace(night, portions=own, shard=shard)
        else:
            yield replace(night, portions=own, shard=shard, gap_s=_GAP_S, newcomers=(), ledger="kept")


def select(portion: Portion, shard: Shard) -> Portion:
    """Return the rows of a shard. The first shard also has the rows whose outcome needs no ledger."""
    planned = portion.planned.select(np.flatnonzero(shard.contains(portion.planned.identities)))
    told = tuple(row for row in portion.told if shard.holds(row.identity))
    if shard.index > 1:
        return Portion(planned, len(told), 0, 0, 0, told)
    elsewhere = len(portion.told) - len(told)
    return replace(portion, planned=planned, read=portion.read - elsewhere, told=told)


@pytest.mark.parametrize(("build", "seeds"), [(build_by_row, SEEDS // 10), (build_sharded, SEEDS // 5)])
def test_every_claim_holds(build: Callable[[range], Iterator[Scenario]], seeds: int) -> None:
    ledgers = Ledgers()
    results = (simulate(scenario, ledgers) for scenario in build(range(seeds)))
    failures = [f"seed {result.world.scenario.seed}: {fault}" for result in results for fault in result.faults]
    assert failures == [], "\n".join([f"{len(failures)} failures:", *failures[:_SHOWN]])
