"""The claims of the simulation hold for rows that name their base, and for runs of shards.

The shards of a run follow one another, a second apart. So each shard finds the entries of the shards before it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from connector.shards import Shard
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.random_scenarios import build_scenarios
from tests.simulation.rows import PreparedChunk
from tests.simulation.scenario import BASE_ID, JobRun, Scenario
from tests.simulation.simulate import simulate
from tests.simulation.test_seeds import SEED_COUNT

_BASE_IDS = (BASE_ID, 9, 11)
_SHARD_COUNTS = (2, 3, 1, 2)
_GAP_BETWEEN_SHARDS_S = 1.0
_MAX_SHOWN_FAILURES = 10


def build_scenarios_with_bases_in_rows(seeds: range) -> Iterator[Scenario]:
    """Yield the scenarios of these seeds with a base in each row.

    The function leaves out three kinds of scenarios:

    - scenarios with retries;
    - scenarios whose base has no id yet;
    - scenarios in which the service answers with another base, because a list can then show one person in two bases.
    """

    def add_base_column(job_run: JobRun) -> JobRun:
        # The creates of other programs are left out: their bases differ from the bases of the rows.
        return replace(job_run, has_base_column=True, base_ids=_BASE_IDS, foreign_creates=())

    for scenario in build_scenarios(seeds):
        has_base_alias = "base_alias" in scenario.settings
        if scenario.has_base and not has_base_alias and not any(job_run.retry for job_run in scenario.job_runs):
            yield replace(scenario, job_runs=tuple(add_base_column(job_run) for job_run in scenario.job_runs))


def build_sharded_scenarios(seeds: range) -> Iterator[Scenario]:
    """Yield the scenarios of these seeds, with each run divided into shards.

    The function leaves out scenarios with retries, and scenarios whose base has no id or is given by its name.
    """
    for scenario in build_scenarios(seeds):
        if scenario.has_base and not any(job_run.retry or job_run.has_base_name for job_run in scenario.job_runs):
            shard_counts = (_SHARD_COUNTS[index % len(_SHARD_COUNTS)] for index in range(len(scenario.job_runs)))
            job_runs = [
                shard_run
                for job_run, count in zip(scenario.job_runs, shard_counts, strict=True)
                for shard_run in divide_into_shards(job_run, count)
            ]
            yield replace(scenario, job_runs=tuple(job_runs))


def divide_into_shards(job_run: JobRun, count: int) -> Iterator[JobRun]:
    """Yield a run for each shard. Events before the original run happen before the first shard."""
    for index in range(1, count + 1):
        shard = Shard(index, count)
        shard_chunks = tuple(select_rows_of_shard(prepared_chunk, shard) for prepared_chunk in job_run.prepared_chunks)
        if index == 1:
            yield replace(job_run, prepared_chunks=shard_chunks, shard=shard)
        else:
            yield replace(
                job_run,
                prepared_chunks=shard_chunks,
                shard=shard,
                gap_s=_GAP_BETWEEN_SHARDS_S,
                foreign_creates=(),
                ledger_accident="none",
            )


def select_rows_of_shard(prepared_chunk: PreparedChunk, shard: Shard) -> PreparedChunk:
    """Return the rows of a shard. The first shard also has the counts of the invalid, duplicate and suppressed
    rows."""
    planned_chunk = prepared_chunk.planned_chunk.select(
        np.flatnonzero(shard.build_digest_mask(prepared_chunk.planned_chunk.identities))
    )
    shard_rows = tuple(row for row in prepared_chunk.rows if shard.has_digest(row.identity))
    if shard.index > 1:
        return PreparedChunk(planned_chunk, len(shard_rows), 0, 0, 0, shard_rows)
    other_row_count = len(prepared_chunk.rows) - len(shard_rows)
    return replace(
        prepared_chunk,
        planned_chunk=planned_chunk,
        read_count=prepared_chunk.read_count - other_row_count,
        rows=shard_rows,
    )


@pytest.mark.parametrize(
    ("build_variants", "seed_count"),
    [(build_scenarios_with_bases_in_rows, SEED_COUNT // 10), (build_sharded_scenarios, SEED_COUNT // 5)],
)
def test_every_claim_holds_for_bases_in_rows_and_for_shards(
    build_variants: Callable[[range], Iterator[Scenario]], seed_count: int
) -> None:
    ledgers = Ledgers()
    results = (simulate(scenario, ledgers) for scenario in build_variants(range(seed_count)))
    failure_texts = [
        f"seed {result.simulation.scenario.seed}: {contradiction}"
        for result in results
        for contradiction in result.contradictions
    ]
    assert failure_texts == [], "\n".join([f"{len(failure_texts)} failures:", *failure_texts[:_MAX_SHOWN_FAILURES]])
