"""No certificate is false, and a list that can be proved gets a certificate."""

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


@pytest.mark.parametrize("order", ["id", "id_desc"])
def test_a_list_in_id_order_that_changes_is_certified_by_its_order(order: str) -> None:
    for seed in range(LISTS // 2):
        simulated = SimulatedList(Random(seed), 700, order, limit=100, inserts=0.6, deletes=0.6, burst=3)

        result = read(simulated, ahead=AHEAD * (seed % 2))

        certificate = result.certificate
        assert certificate.reason is Reason.ID_ORDER, f"seed {seed}"
        assert certificate.sweeps <= 2, "an insert at the head that is deleted unread costs a second sweep"
        assert simulated.throughout <= set(result.rows) <= simulated.ever, f"seed {seed}"
        assert certificate.order is (Order.ID if order == "id" else Order.ID_DESC)
        assert certificate.appeared + certificate.vanished > 0


@pytest.mark.parametrize("where", ["head", "end"])
@pytest.mark.parametrize("order", ["id", "id_desc"])
def test_a_list_in_id_order_with_inserts_at_one_end_is_certified_by_one_sweep(order: str, where: str) -> None:
    for seed, inserts in enumerate((0.05, 0.3, 1.0) * (LISTS // 20)):
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
        reused = (
            [request for request, want in zip(asked, wanted, strict=False) if request == want]
            if reading.is_calm
            else []
        )
        requests += len(wanted) - len(reused)
        asked = wanted[1:]
        reading.add_page(rows[page.offset :][: page.limit], total=count, offset=page.offset, limit=page.limit)
    return reading.certify(STARTED, FINISHED), requests


@pytest.mark.parametrize(("order", "bound"), [("id", 1.1), ("id_desc", 1.1), ("email", 2.2)])
def test_a_long_quiet_list_costs_few_requests_more_than_the_minimum(order: str, bound: float) -> None:
    certificate, requests = read_quiet(200_000, order)

    assert certificate.is_complete
    assert certificate.distinct == 200_000
    assert requests <= bound * 200_000 / 1000


def test_a_list_that_is_shuffled_at_each_request_is_never_certified() -> None:
    for seed in range(10):
        certificate = read(SimulatedList(Random(seed), 500, "shuffled", limit=100)).certificate
        by_page = read(SimulatedList(Random(seed), 500, "page_sorted", limit=100)).certificate
        assert by_page.reason is not Reason.ID_ORDER
        assert not certificate.is_complete
        assert (certificate.reason, certificate.order) == (Reason.UNSTABLE_ORDER, Order.UNSTABLE)
        assert certificate.sweeps == 2, "a hopeless list is not read five times"


def test_a_quiet_honest_list_is_certified() -> None:
    for order in STABLE:
        for count in (0, 1, 2, 15, 99, 100, 101, 195, 196, 290):
            result = read(SimulatedList(Random(count), count, order, limit=100))
            assert result.certificate.is_complete
            assert result.certificate.distinct == len(result.rows) == count
        for paging in ("aligned", "silent"):
            result = read(SimulatedList(Random(1), 750, order, limit=100, paging=paging))
            assert (result.certificate.is_complete, len(result.rows)) == (True, 750), paging


@pytest.mark.parametrize("lie", [{"paging": "stuck"}, {"paging": "clamped"}, *({"total": switch} for switch in TOTALS)])
def test_a_list_that_always_contradicts_its_total_count_is_incomplete(lie: dict[str, Any]) -> None:
    for order in STABLE:
        result = read(SimulatedList(Random(1), 750, order, limit=100, **lie))
        assert (result.certificate.is_complete, result.certificate.reason) == (False, Reason.TOTAL_COUNT)
        assert len(result.rows) == 750 or "paging" in lie, "an incomplete reading has every row that the list shows"


def test_a_list_with_pages_of_one_row_is_certified_by_two_sweeps_without_overlaps() -> None:
    simulated = SimulatedList(Random(1), 50, "id", limit=1)
    result = read(simulated)
    assert (result.certificate.reason, simulated.requests) == (Reason.TWO_SWEEPS, 103)


def test_a_capped_total_count_does_not_hide_a_row() -> None:
    """TotalCount equals one page. A row is deleted, and the row behind the page moves forward."""
    for seed in range(300):
        simulated = SimulatedList(Random(seed), 101, "email", limit=100, deletes=0.5, total="page_cap")
        result = read(simulated)
        assert not result.is_false(simulated), f"seed {seed}"


@pytest.mark.parametrize(("order", "touches"), [("grouped", 0.05), ("grouped", 0.3), ("touched_desc", 0.3)])
def test_a_row_that_moves_behind_the_reading_or_to_the_head_is_not_missed(order: str, touches: float) -> None:
    for seed in range(LISTS // 3):
        simulated = SimulatedList(Random(seed), 600, order, limit=60, touches=touches)
        result = read(simulated)
        assert not result.is_false(simulated), f"seed {seed}: {result.certificate}"
