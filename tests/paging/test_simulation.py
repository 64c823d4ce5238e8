"""No certificate is false, whatever the list does while it is read; and lists that can be proved are."""

import os
from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest

from connector.paging.certificate import Certificate, Order, Reason
from connector.paging.overlap import PageRequest
from connector.paging.pager import Pager
from tests.paging.simulated import FINISHED, STABLE, STARTED, SimulatedList, read
from tests.paging.worlds import build_large_world, build_long_world, build_small_world

AHEAD = 4
TOTALS = ("cap", "wrong", "none")
NOT_HERE = {Reason.FILTER, Reason.CUT_OFF, Reason.CUT_OFF_POSSIBLE}
LISTS = int(os.environ.get("CONNECTOR_TEST_LISTS", "60"))


def test_no_certificate_is_false_in_small_worlds() -> None:
    reasons = Counter[Reason]()
    for seed in range(3 * LISTS):
        simulated = build_small_world(seed)
        result = read(simulated, ahead=AHEAD * (seed % 2))
        assert not result.is_false(simulated), f"seed {seed}: {result.certificate}"
        reasons[result.certificate.reason] += 1
    assert set(reasons) >= set(Reason) - NOT_HERE, "the worlds no longer meet every verdict"


def test_no_certificate_is_false_in_large_worlds() -> None:
    reasons = Counter[Reason]()
    for seed in range(LISTS):
        simulated = build_large_world(seed)
        result = read(simulated, ahead=AHEAD * (seed % 2))
        assert not result.is_false(simulated), f"seed {seed}: {result.certificate}"
        reasons[result.certificate.reason] += 1
    assert reasons[Reason.ID_ORDER] > LISTS // 10


@pytest.mark.parametrize("ahead", [0, AHEAD])
def test_no_certificate_is_false_in_long_worlds(ahead: int) -> None:
    reasons, under_way = Counter[Reason](), Counter[int]()
    for seed in range(LISTS // 2):
        simulated = build_long_world(seed)
        result = read(simulated, ahead=ahead)
        assert not result.is_false(simulated), f"seed {seed}: {result.certificate}"
        reasons[result.certificate.reason] += 1
        under_way[result.most_under_way] += 1
    assert min(reasons[reason] for reason in (Reason.ID_ORDER, Reason.TWO_SWEEPS, Reason.UNSTABLE_ORDER)) > 0
    assert set(under_way) == {1} if not ahead else under_way[1 + ahead] > LISTS // 16


@pytest.mark.parametrize("ahead", [0, AHEAD])
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("order", ["id", "id_desc"])
def test_a_list_in_id_order_is_certified_by_its_order_whatever_the_churn(order: str, seed: int, ahead: int) -> None:
    simulated = SimulatedList(Random(seed), 700, order, limit=100, inserts=0.6, deletes=0.6, burst=3)

    result = read(simulated, ahead=ahead)

    certificate = result.certificate
    assert certificate.reason is Reason.ID_ORDER
    assert certificate.sweeps <= 2  # a second where somebody came in at the head and went again unseen
    assert simulated.throughout <= set(result.rows) <= simulated.ever
    assert certificate.order is (Order.ID if order == "id" else Order.ID_DESC)
    assert certificate.appeared + certificate.vanished > 0


@pytest.mark.parametrize("inserts", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("where", ["head", "end"])
@pytest.mark.parametrize("order", ["id", "id_desc"])
def test_inserts_at_either_end_without_end_do_not_keep_an_id_order_from_its_certificate(
    order: str, where: str, inserts: float
) -> None:
    for seed in range(10):
        simulated = SimulatedList(Random(seed), 3000, order, limit=60, inserts=inserts, where=where, burst=3)
        result = read(simulated, ahead=AHEAD)

        certificate = result.certificate
        assert (certificate.reason, certificate.sweeps) == (Reason.ID_ORDER, 1), f"seed {seed}"
        assert simulated.throughout <= set(result.rows) <= simulated.ever
        assert len(result.rows) == len(set(result.rows))


def read_quiet(count: int, order: str) -> tuple[Certificate, int]:
    """Read `count` ids in full pages, some ahead; returns the certificate and the requests, dropped pages included."""
    rows, reading, asked, requests = np.arange(count, dtype=np.int64), Pager(1000), list[PageRequest](), 0
    if order == "email":
        np.random.default_rng(1).shuffle(rows)
    rows = rows[::-1] if order == "id_desc" else rows
    while (page := reading.decide_next()) is not None:
        wanted = [page, *reading.decide_ahead(AHEAD)]
        kept = [each for each, want in zip(asked, wanted, strict=False) if each == want] if reading.is_calm else []
        requests += len(wanted) - len(kept)
        asked = wanted[1:]
        reading.add_page(rows[page.offset :][: page.limit], total=count, offset=page.offset, limit=page.limit)
    return reading.certify(STARTED, FINISHED), requests


@pytest.mark.parametrize(("order", "bound"), [("id", 1.1), ("id_desc", 1.1), ("email", 2.2)])
def test_a_quiet_million_costs_few_more_requests_than_the_fewest_possible(order: str, bound: float) -> None:
    certificate, requests = read_quiet(1_000_000, order)

    assert certificate.is_complete
    assert certificate.distinct == 1_000_000
    assert requests <= bound * 1_000_000 / 1000


@pytest.mark.parametrize("seed", range(10))
def test_a_list_that_is_shuffled_at_each_request_is_never_certified(seed: int) -> None:
    certificate = read(SimulatedList(Random(seed), 500, "shuffled", limit=100)).certificate
    assert read(SimulatedList(Random(seed), 500, "page_sorted", limit=100)).certificate.reason is not Reason.ID_ORDER

    assert not certificate.is_complete
    assert (certificate.reason, certificate.order) == (Reason.UNSTABLE_ORDER, Order.UNSTABLE)
    assert certificate.sweeps == 2, "a hopeless list is not read five times"


@pytest.mark.parametrize("order", STABLE)
@pytest.mark.parametrize("count", [0, 1, 2, 15, 99, 100, 101, 195, 196, 290])
def test_a_quiet_honest_list_is_always_certified(order: str, count: int) -> None:
    result = read(SimulatedList(Random(count), count, order, limit=100))

    assert result.certificate.is_complete
    assert result.certificate.distinct == len(result.rows) == count


@pytest.mark.parametrize("paging", ["aligned", "silent"])
def test_a_quiet_list_paged_in_an_odd_way_is_certified_all_the_same(paging: str) -> None:
    result = read(SimulatedList(Random(1), 750, "id", limit=100, paging=paging))

    assert result.certificate.is_complete
    assert len(result.rows) == 750


@pytest.mark.parametrize("lie", [{"paging": "stuck"}, {"paging": "clamped"}, *({"total": each} for each in TOTALS)])
@pytest.mark.parametrize("order", STABLE)
def test_a_list_that_contradicts_its_total_count_for_good_is_incomplete(order: str, lie: dict[str, Any]) -> None:
    result = read(SimulatedList(Random(1), 750, order, limit=100, **lie))

    assert (result.certificate.is_complete, result.certificate.reason) == (False, Reason.TOTAL_COUNT)
    assert len(result.rows) == 750 or "paging" in lie, "what can be read is read, for those who want it incomplete"


def test_a_capped_total_count_does_not_hide_the_row_behind_it_when_another_goes() -> None:
    """1 page of rows, TotalCount says so too, and the row behind it slips forward as one before it is deleted."""
    for seed in range(300):
        simulated = SimulatedList(Random(seed), 101, "email", limit=100, deletes=0.5, total="page_cap")
        result = read(simulated)
        assert not result.is_false(simulated), f"seed {seed}"


@pytest.mark.parametrize(("order", "touches"), [("grouped", 0.05), ("grouped", 0.3), ("touched_desc", 0.3)])
def test_a_row_that_moves_unread_behind_the_walk_or_to_the_head_is_not_overlooked(order: str, touches: float) -> None:
    for seed in range(LISTS // 3):
        simulated = SimulatedList(Random(seed), 600, order, limit=60, touches=touches)
        result = read(simulated)
        assert not result.is_false(simulated), f"seed {seed}: {result.certificate}"
