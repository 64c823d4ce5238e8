"""The claims of the simulation hold for rows that name their base, and for runs of shards.

The runs of a night's shards follow each other at once, so that each run finds the entries of the other runs.
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
from tests.simulation.test_seeds import SEED_COUNT

_BASES = (BASE_ID, 9, 11)
_SHARD_COUNTS = (2, 3, 1, 2)
_GAP_S = 1.0
_MAX_SHOWN_FAILURES = 10


def build_by_row(seeds: range) -> Iterator[Scenario]:
    """Yield the scenarios of these seeds with a base in each row.

    The function leaves out three kinds of scenarios:

    - scenarios with retries;
    - scenarios whose base has no id yet;
    - scenarios whose base is answered as another base, because a list can then show one person in two bases of the run.
    """

    def change(night: Night) -> Night:
        # Without newcomers, because the newcomers of a seed belong to one base.
        return replace(night, is_by_row=True, bases=_BASES, newcomers=())

    for scenario in build_scenarios(seeds):
        is_alias = "base_alias" in scenario.settings
        if scenario.has_base and not is_alias and not any(night.retry for night in scenario.nights):
            yield replace(scenario, nights=tuple(change(night) for night in scenario.nights))


def build_sharded(seeds: range) -> Iterator[Scenario]:
    """Yield the scenarios of these seeds in shards, without scenarios whose base has no id yet and scenarios with
    retries."""
    for scenario in build_scenarios(seeds):
        if scenario.has_base and not any(night.retry or night.is_by_name for night in scenario.nights):
            counts = (_SHARD_COUNTS[index % len(_SHARD_COUNTS)] for index in range(len(scenario.nights)))
            nights = [run for night, count in zip(scenario.nights, counts, strict=True) for run in divide(night, count)]
            yield replace(scenario, nights=tuple(nights))


def divide(night: Night, count: int) -> Iterator[Night]:
    """Yield the runs of all shards of a night. Events between two nights happen before the first run."""
    for index in range(1, count + 1):
        shard = Shard(index, count)
        shard_portions = tuple(select(portion, shard) for portion in night.portions)
        if index == 1:
            yield replace(night, portions=shard_portions, shard=shard)
        else:
            yield replace(night, portions=shard_portions, shard=shard, gap_s=_GAP_S, newcomers=(), ledger="kept")


def select(portion: Portion, shard: Shard) -> Portion:
    """Return the rows of a shard. The first shard also has the rows whose outcome needs no ledger."""
    planned_chunk = portion.planned_chunk.select(np.flatnonzero(shard.contains(portion.planned_chunk.identities)))
    shard_rows = tuple(row for row in portion.rows if shard.holds(row.identity))
    if shard.index > 1:
        return Portion(planned_chunk, len(shard_rows), 0, 0, 0, shard_rows)
    rows_of_other_shards = len(portion.rows) - len(shard_rows)
    return replace(
        portion, planned_chunk=planned_chunk, read_count=portion.read_count - rows_of_other_shards, rows=shard_rows
    )


@pytest.mark.parametrize(("build", "seeds"), [(build_by_row, SEED_COUNT // 10), (build_sharded, SEED_COUNT // 5)])
def test_every_claim_holds(build: Callable[[range], Iterator[Scenario]], seeds: int) -> None:
    ledgers = Ledgers()
    results = (simulate(scenario, ledgers) for scenario in build(range(seeds)))
    failures = [f"seed {result.world.scenario.seed}: {fault}" for result in results for fault in result.faults]
    assert failures == [], "\n".join([f"{len(failures)} failures:", *failures[:_MAX_SHOWN_FAILURES]])
