"""No certificate over ranges is false, in whatever order of time they are read; and a list in id order has one."""

import os
from collections import Counter
from random import Random

import pytest

from connector.paging import Order
from tests.paging.ranged import RangedResult, read_in_ranges
from tests.paging.simulated import SimulatedList
from tests.paging.worlds import build_large_world, build_long_world

LISTS = int(os.environ.get("CONNECTOR_TEST_LISTS", "60"))


def read(simulated: SimulatedList, seed: int) -> RangedResult:
    return read_in_ranges(simulated, 2 + seed % 4, ahead=4 * (seed // 4 % 2), seed=seed)


@pytest.mark.parametrize("build", [build_large_world, build_long_world])
def test_no_certificate_over_ranges_is_false(build) -> None:
    verdicts = Counter[tuple[bool, str]]()
    for seed in range(LISTS):
        simulated = build(seed)
        result = read(simulated, seed)
        assert not result.is_false(simulated), f"seed {seed}: {result.certificate}"
        verdicts[result.certificate is not None, simulated.order] += 1
    print(sorted(verdicts.items()))


@pytest.mark.parametrize("order", ["id", "id_desc"])
@pytest.mark.parametrize("churn", [0.0, 0.1, 0.6])
def test_churn_does_not_keep_ranges_in_id_order_from_their_certificate(order: str, churn: float) -> None:
    ends = Counter[bool]()
    for seed in range(LISTS // 2):
        where = "end" if order == "id" else "end"
        simulated = SimulatedList(Random(seed), 1500, order, limit=60, inserts=churn, deletes=churn, burst=1)
        result = read(simulated, seed)
        ends[result.certificate is not None] += 1
        if result.certificate is not None:
            assert result.certificate.order is (Order.ID if order == "id" else Order.ID_DESC)
    print(order, churn, ends)
