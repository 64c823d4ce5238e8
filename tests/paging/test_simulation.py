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
from tests.paging.simulated import FINISHED, STABLE_ORDERS, STARTED, SimulatedList, read
from tests.paging.worlds import build_large_world, build_long_world, build_small_world

AHEAD_COUNT = 4  # pages that are fetched ahead
WRONG_TOTAL_MODES = ("cap", "wrong", "none")
REASONS_OF_OTHER_TESTS = {Reason.FILTER, Reason.CUT_OFF, Reason.CUT_OFF_POSSIBLE}
LIST_COUNT = int(os.environ.get("CONNECTOR_TEST_LISTS", "60"))


def test_no_certificate_is_false_in_small_worlds() -> None:
    reasons = Counter[Reason]()
    for seed in range(3 * LIST_COUNT):
        simulated = build_small_world(seed)
        result = read(simulated, ahead=AHEAD_COUNT * (seed % 2))
        assert not result.is_false(simulated), f"seed {seed}: {result.certificate}"
        reasons[result.certificate.reason] += 1
    assert set(reasons) >= set(Reason) - REASONS_OF_OTHER_TESTS, "the lists no longer cause every reason"


def test_no_certificate_is_false_in_large_worlds() -> None:
    reasons = Counter[Reason]()
    for seed in range(LIST_COUNT):
        simulated = build_large_world(seed)
        result = read(simulated, ahead=AHEAD_COUNT * (seed % 2))
        assert not result.is_false(simulated), f"seed {seed}: {result.certificate}"
        reasons[result.certificate.reason] += 1
    assert reasons[Reason.ID_ORDER] > LIST_COUNT // 10


@pytest.mark.parametrize("ahead", [0, AHEAD_COUNT])
def test_no_certificate_is_false_in_long_worlds(ahead: int) -> None:
    reasons, in_flight_counts = Counter[Reason](), Counter[int]()
    for seed in range(LIST_COUNT // 2):
        simulated = build_long_world(seed)
        result = read(simulated, ahead=ahead)
        assert not result.is_false(simulated), f"seed {seed}: {result.certificate}"
        reasons[result.certificate.reason] += 1
        in_flight_counts[result.most_in_flight] += 1
    assert min(reasons[reason] for reason in (Reason.ID_ORDER, Reason.TWO_SWEEPS, Reason.UNSTABLE_ORDER)) > 0
    assert set(in_flight_counts) == {1} if not ahead else in_flight_counts[1 + ahead] > LIST_COUNT // 16


@pytest.mark.parametrize("order", ["id", "id_desc"])
def test_a_list_in_id_order_that_changes_is_certified_by_its_order(order: str) -> None:
    for seed in range(LIST_COUNT // 2):
        simulated = SimulatedList(Random(seed), 700, order, limit=100, insert_chance=0.6, delete_chance=0.6, burst=3)

        result = read(simulated, ahead=AHEAD_COUNT * (seed % 2))

        certificate = result.certificate
        assert certificate.reason is Reason.ID_ORDER, f"seed {seed}"
        assert certificate.sweeps <= 2, "an insert at the head that is deleted unread costs a second sweep"
        assert simulated.always_listed <= set(result.rows) <= simulated.ever_listed, f"seed {seed}"
        assert certificate.order is (Order.ID if order == "id" else Order.ID_DESC)
        assert certificate.appeared + certificate.vanished > 0


@pytest.mark.parametrize("change_place", ["head", "end"])
@pytest.mark.parametrize("order", ["id", "id_desc"])
def test_a_list_in_id_order_with_inserts_at_one_end_is_certified_by_one_sweep(order: str, change_place: str) -> None:
    for seed, insert_chance in enumerate((0.05, 0.3, 1.0) * (LIST_COUNT // 20)):
        simulated = SimulatedList(
            Random(seed), 3000, order, limit=60, insert_chance=insert_chance, change_place=change_place, burst=3
        )
        result = read(simulated, ahead=AHEAD_COUNT)

        certificate = result.certificate
        assert (certificate.reason, certificate.sweeps) == (Reason.ID_ORDER, 1), f"seed {seed}"
        assert simulated.always_listed <= set(result.rows) <= simulated.ever_listed
        assert len(result.rows) == len(set(result.rows))


def read_quiet_list(count: int, order: str) -> tuple[Certificate, int]:
    """Read `count` ids in full pages, some of them ahead. Return the certificate and the number of requests, including
    requests for dropped pages."""
    rows, reading, pages_ahead, request_count = np.arange(count, dtype=np.int64), Pager(1000), list[PageRequest](), 0
    if order == "email":
        np.random.default_rng(1).shuffle(rows)
    rows = rows[::-1] if order == "id_desc" else rows
    while (page := reading.decide_next()) is not None:
        pages = [page, *reading.decide_pages_ahead(AHEAD_COUNT)]
        same_pages = [page for page, previous in zip(pages, pages_ahead, strict=False) if page == previous]
        request_count += len(pages) - (len(same_pages) if reading.is_unchanging else 0)
        pages_ahead = pages[1:]
        reading.add_page(rows[page.offset :][: page.limit], total=count, offset=page.offset, limit=page.limit)
    return reading.certify(STARTED, FINISHED), request_count


@pytest.mark.parametrize(("order", "bound"), [("id", 1.1), ("id_desc", 1.1), ("email", 2.2)])
def test_a_long_quiet_list_needs_few_requests_more_than_its_pages(order: str, bound: float) -> None:
    certificate, request_count = read_quiet_list(200_000, order)

    assert certificate.is_complete
    assert certificate.distinct == 200_000
    assert request_count <= bound * 200_000 / 1000


def test_a_list_that_is_shuffled_at_each_request_is_never_certified() -> None:
    for seed in range(10):
        certificate = read(SimulatedList(Random(seed), 500, "shuffled", limit=100)).certificate
        page_sorted_certificate = read(SimulatedList(Random(seed), 500, "page_sorted", limit=100)).certificate
        assert page_sorted_certificate.reason is not Reason.ID_ORDER
        assert not certificate.is_complete
        assert (certificate.reason, certificate.order) == (Reason.UNSTABLE_ORDER, Order.UNSTABLE)
        assert certificate.sweeps == 2, "a shuffled list is not read five times"


def test_a_quiet_honest_list_is_certified() -> None:
    for order in STABLE_ORDERS:
        for count in (0, 1, 2, 15, 99, 100, 101, 195, 196, 290):
            result = read(SimulatedList(Random(count), count, order, limit=100))
            assert result.certificate.is_complete
            assert result.certificate.distinct == len(result.rows) == count
        for paging in ("aligned", "silent"):
            result = read(SimulatedList(Random(1), 750, order, limit=100, paging_mode=paging))
            assert (result.certificate.is_complete, len(result.rows)) == (True, 750), paging


@pytest.mark.parametrize(
    "fault",
    [{"paging_mode": "stuck"}, {"paging_mode": "clamped"}, *({"total_mode": switch} for switch in WRONG_TOTAL_MODES)],
)
def test_a_list_that_always_contradicts_its_total_count_is_incomplete(fault: dict[str, Any]) -> None:
    for order in STABLE_ORDERS:
        result = read(SimulatedList(Random(1), 750, order, limit=100, **fault))
        assert (result.certificate.is_complete, result.certificate.reason) == (False, Reason.TOTAL_COUNT)
        assert len(result.rows) == 750 or "paging_mode" in fault, (
            "an incomplete reading has every row that the list shows"
        )


def test_a_list_with_pages_of_one_row_is_certified_by_two_sweeps_without_overlaps() -> None:
    simulated = SimulatedList(Random(1), 50, "id", limit=1)
    result = read(simulated)
    assert (result.certificate.reason, simulated.request_count) == (Reason.TWO_SWEEPS, 103)


def test_no_certificate_is_false_if_total_count_is_at_most_one_page() -> None:
    """TotalCount is the size of a page. If a row is deleted, the first row of the second page moves to the first
    page."""
    for seed in range(300):
        simulated = SimulatedList(Random(seed), 101, "email", limit=100, delete_chance=0.5, total_mode="page_cap")
        result = read(simulated)
        assert not result.is_false(simulated), f"seed {seed}"


@pytest.mark.parametrize(("order", "touch_chance"), [("grouped", 0.05), ("grouped", 0.3), ("touched_desc", 0.3)])
def test_no_certificate_is_false_if_unread_rows_move_to_the_head(order: str, touch_chance: float) -> None:
    for seed in range(LIST_COUNT // 3):
        simulated = SimulatedList(Random(seed), 600, order, limit=60, touch_chance=touch_chance)
        result = read(simulated)
        assert not result.is_false(simulated), f"seed {seed}: {result.certificate}"
