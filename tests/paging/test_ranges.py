"""No certificate over ranges is false, in whatever order of time they are read; and a list in id order has one."""

import os
from collections import Counter
from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from connector.paging.certificate import Order
from connector.paging.ranges import PackedIds
from tests.paging.ranged import RangedResult, read_in_ranges
from tests.paging.simulated import SimulatedList
from tests.paging.worlds import build_large_world, build_long_world

LISTS = int(os.environ.get("CONNECTOR_TEST_LISTS", "60"))


def build_moving_world(seed: int) -> SimulatedList:
    """An order that looks like that of ids until a row moves, which a reader of another range may not see."""
    random = Random(seed)
    return SimulatedList(
        random,
        random.choice((400, 900, 1500)),
        random.choice(("touched", "touched_desc", "grouped")),
        random.choice((20, 40, 60)),
        touches=random.choice((0.01, 0.03, 0.1, 0.3)),
        inserts=random.choice((0, 0, 0.05, 0.3)),
        deletes=random.choice((0, 0, 0.05, 0.3)),
        burst=random.choice((1, 1, 3)),
        where=random.choice(("anywhere", "head", "middle", "end")),
    )


def read(simulated: SimulatedList, seed: int) -> RangedResult:
    """In two to five ranges, with pages asked for ahead or without."""
    return read_in_ranges(simulated, 2 + seed % 4, ahead=4 * (seed // 4 % 2), seed=seed)


@pytest.mark.parametrize("build", [build_large_world, build_long_world, build_moving_world])
def test_no_certificate_over_ranges_is_false(build: Callable[[int], SimulatedList]) -> None:
    verdicts = Counter[str]()
    for seed in range(LISTS):
        simulated = build(seed)
        result = read(simulated, seed)
        assert not result.is_false(simulated), f"seed {seed}: {result.certificate}"
        verdicts["certified" if result.certificate else "undivided" if not result.is_divided else "refused"] += 1
    assert min(verdicts[each] for each in ("certified", "undivided", "refused")) > 0, "the worlds no longer meet both"


@pytest.mark.parametrize("where", ["end", "head", "anywhere"])
@pytest.mark.parametrize("churn", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("order", ["id", "id_desc"])
def test_churn_does_not_keep_ranges_in_id_order_from_their_certificate(order: str, churn: float, where: str) -> None:
    """Where two of the three rows have gone that two pages share, they join no more: one list in ten may have none."""
    seeds, refused = max(1, LISTS // 20), 0
    for seed in range(seeds):
        simulated = SimulatedList(
            Random(seed), 1200, order, limit=60, inserts=churn, deletes=churn if where == "anywhere" else 0, where=where
        )
        result = read(simulated, seed)

        certificate = result.certificate
        if certificate is None:
            refused += 1
            continue
        assert simulated.throughout <= set(result.rows) <= simulated.ever
        assert certificate.order is (Order.ID if order == "id" else Order.ID_DESC)
        assert (certificate.ranges, certificate.sweeps) == (2 + seed % 4, 1)
        assert certificate.appeared + certificate.vanished <= len(simulated.born) - 1200 + len(simulated.died)
    assert refused <= seeds // 10


@pytest.mark.parametrize("order", ["email", "shuffled", "page_sorted", "ties"])
def test_a_list_in_no_id_order_is_not_divided(order: str) -> None:
    assert not read_in_ranges(SimulatedList(Random(1), 900, order, limit=60), 3).is_divided


@pytest.mark.parametrize("odd", [{"total": "wrong"}, {"total": "none"}, {"paging": "clamped"}, {"paging": "aligned"}])
def test_a_list_that_is_counted_or_paged_in_an_odd_way_is_left_to_one_reader(odd: dict[str, str]) -> None:
    assert read_in_ranges(SimulatedList(Random(1), 930, "id", limit=60, **odd), 3).certificate is None  # type: ignore[arg-type] # each is a text


@given(st.sets(st.integers(-(2**63), 2**63 - 1), max_size=50))
def test_packed_ids_are_the_ids(ids: set[int]) -> None:
    ascending = np.array(sorted(ids), dtype=np.int64)
    assert PackedIds.pack(ascending).unpack(len(ids)).tolist() == sorted(ids)
