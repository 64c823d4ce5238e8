"""No certificate is false. If a list can be proved complete, the certificate says that the list is complete."""

import os
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from connector.paging.certificate import Certificate, CertificateReason, Order
from connector.paging.overlap import PageRequest
from connector.paging.pager import Pager
from tests.paging.random_lists import build_large_list, build_long_list, build_small_list
from tests.paging.simulated import FINISHED_AT, STABLE_ORDERS, STARTED_AT, SimulatedList, read_list

PAGES_AHEAD_COUNT = 4  # pages that are fetched ahead
WRONG_TOTAL_MODES = ("cap", "wrong", "none")
REASONS_OF_OTHER_TESTS = {CertificateReason.FILTER, CertificateReason.CUT_OFF, CertificateReason.CUT_OFF_POSSIBLE}
LIST_COUNT = int(os.environ.get("CONNECTOR_TEST_LISTS", "60"))


def count_reasons(
    build_list: Callable[[int], SimulatedList], list_count: int, pages_ahead_counts: tuple[int, int]
) -> tuple[Counter[CertificateReason], Counter[int]]:
    """Read lists, and check that no certificate is false. Return the counts of the reasons, and the counts of the
    largest numbers of pages in flight. `pages_ahead_counts` has the numbers of pages that are fetched ahead, for even
    and for odd seeds."""
    reason_counts, in_flight_counts = Counter[CertificateReason](), Counter[int]()
    for seed in range(list_count):
        simulated_list = build_list(seed)
        result = read_list(simulated_list, pages_ahead_count=pages_ahead_counts[seed % 2])
        assert not result.has_false_certificate(simulated_list), f"seed {seed}: {result.certificate}"
        reason_counts[result.certificate.reason] += 1
        in_flight_counts[result.max_in_flight_count] += 1
    return reason_counts, in_flight_counts


def test_each_certificate_of_a_small_random_list_is_correct() -> None:
    reason_counts, _ = count_reasons(build_small_list, 3 * LIST_COUNT, (0, PAGES_AHEAD_COUNT))
    assert set(reason_counts) >= set(CertificateReason) - REASONS_OF_OTHER_TESTS, (
        "some reasons of certificates appear in no random list"
    )


def test_each_certificate_of_a_large_random_list_is_correct() -> None:
    reason_counts, _ = count_reasons(build_large_list, LIST_COUNT, (0, PAGES_AHEAD_COUNT))
    assert reason_counts[CertificateReason.ID_ORDER] > LIST_COUNT // 10


@pytest.mark.parametrize("pages_ahead_count", [0, PAGES_AHEAD_COUNT])
def test_each_certificate_of_a_list_of_many_pages_is_correct(pages_ahead_count: int) -> None:
    reason_counts, in_flight_counts = count_reasons(build_long_list, LIST_COUNT // 2, (pages_ahead_count,) * 2)
    reasons = {CertificateReason.ID_ORDER, CertificateReason.TWO_SWEEPS, CertificateReason.UNSTABLE_ORDER}
    assert reasons <= set(reason_counts)
    if pages_ahead_count:
        assert in_flight_counts[1 + pages_ahead_count] > LIST_COUNT // 16
    else:
        assert set(in_flight_counts) == {1}


@pytest.mark.parametrize("order", ["id", "id_desc"])
def test_a_changing_list_in_id_order_is_certified_by_its_order(order: str) -> None:
    for seed in range(LIST_COUNT // 2):
        simulated_list = SimulatedList(
            Random(seed), 700, order, limit=100, insert_chance=0.6, delete_chance=0.6, max_changes_per_request=3
        )

        result = read_list(simulated_list, pages_ahead_count=PAGES_AHEAD_COUNT * (seed % 2))

        certificate = result.certificate
        assert certificate.reason is CertificateReason.ID_ORDER, f"seed {seed}"
        assert certificate.sweeps <= 2, (
            "the list is read twice only if a row is inserted at the head and deleted before its page is read"
        )
        assert simulated_list.always_listed_ids <= set(result.listed_ids) <= simulated_list.ever_listed_ids, (
            f"seed {seed}"
        )
        assert certificate.order is (Order.ID if order == "id" else Order.ID_DESC)
        assert certificate.appeared + certificate.vanished > 0


@pytest.mark.parametrize("change_position", ["head", "end"])
@pytest.mark.parametrize("order", ["id", "id_desc"])
def test_a_list_in_id_order_with_inserts_at_one_end_is_certified_without_a_second_reading(
    order: str, change_position: str
) -> None:
    for seed, insert_chance in enumerate((0.05, 0.3, 1.0) * (LIST_COUNT // 20)):
        simulated_list = SimulatedList(
            Random(seed),
            3000,
            order,
            limit=60,
            insert_chance=insert_chance,
            change_position=change_position,
            max_changes_per_request=3,
        )
        result = read_list(simulated_list, pages_ahead_count=PAGES_AHEAD_COUNT)

        certificate = result.certificate
        assert (certificate.reason, certificate.sweeps) == (CertificateReason.ID_ORDER, 1), f"seed {seed}"
        assert simulated_list.always_listed_ids <= set(result.listed_ids) <= simulated_list.ever_listed_ids
        assert len(result.listed_ids) == len(set(result.listed_ids))


def read_unchanged_list(subscriber_count: int, order: str) -> tuple[Certificate, int]:
    """Read `subscriber_count` ids in full pages, and request some pages in advance. Return the certificate and the
    number of requests, including requests for pages that were not used."""
    rows, pager, pages_ahead, request_count = (
        np.arange(subscriber_count, dtype=np.int64),
        Pager(1000),
        list[PageRequest](),
        0,
    )
    if order == "email":
        np.random.default_rng(1).shuffle(rows)
    rows = rows[::-1] if order == "id_desc" else rows
    while (page := pager.decide_next_page()) is not None:
        pages = [page, *pager.decide_pages_ahead(PAGES_AHEAD_COUNT)]
        same_pages = [page for page, earlier_page in zip(pages, pages_ahead, strict=False) if page == earlier_page]
        request_count += len(pages) - (len(same_pages) if pager.is_list_unchanging else 0)
        pages_ahead = pages[1:]
        pager.add_page(
            rows[page.offset :][: page.limit], total_count=subscriber_count, offset=page.offset, limit=page.limit
        )
    return pager.certify(STARTED_AT, FINISHED_AT), request_count


@pytest.mark.parametrize(("order", "max_requests_per_page"), [("id", 1.1), ("id_desc", 1.1), ("email", 2.2)])
def test_reading_an_unchanged_list_takes_only_a_few_more_requests_than_pages(
    order: str, max_requests_per_page: float
) -> None:
    certificate, request_count = read_unchanged_list(200_000, order)

    assert certificate.is_complete
    assert certificate.distinct == 200_000
    assert request_count <= max_requests_per_page * 200_000 / 1000


def test_a_list_in_random_order_is_never_certified() -> None:
    for seed in range(10):
        certificate = read_list(SimulatedList(Random(seed), 500, "shuffled", limit=100)).certificate
        page_sorted_certificate = read_list(SimulatedList(Random(seed), 500, "page_sorted", limit=100)).certificate
        assert page_sorted_certificate.reason is not CertificateReason.ID_ORDER
        assert not certificate.is_complete
        assert (certificate.reason, certificate.order) == (CertificateReason.UNSTABLE_ORDER, Order.UNSTABLE)
        assert certificate.sweeps == 2, "a shuffled list must be read exactly twice"


def test_an_unchanged_list_with_correct_answers_is_certified() -> None:
    for order in STABLE_ORDERS:
        for subscriber_count in (0, 1, 2, 15, 99, 100, 101, 195, 196, 290):
            result = read_list(SimulatedList(Random(subscriber_count), subscriber_count, order, limit=100))
            assert result.certificate.is_complete
            assert result.certificate.distinct == len(result.listed_ids) == subscriber_count
        for paging_mode in ("offset_rounded_down", "half_pages"):
            result = read_list(SimulatedList(Random(1), 750, order, limit=100, paging_mode=paging_mode))
            assert (result.certificate.is_complete, len(result.listed_ids)) == (True, 750), paging_mode


@pytest.mark.parametrize(
    "faulty_settings",
    [
        {"paging_mode": "offset_ignored"},
        {"paging_mode": "offset_limited"},
        *({"total_mode": total_mode} for total_mode in WRONG_TOTAL_MODES),
    ],
)
def test_a_list_with_a_wrong_total_count_in_each_answer_is_incomplete(faulty_settings: dict[str, Any]) -> None:
    for order in STABLE_ORDERS:
        result = read_list(SimulatedList(Random(1), 750, order, limit=100, **faulty_settings))
        assert (result.certificate.is_complete, result.certificate.reason) == (False, CertificateReason.TOTAL_COUNT)
        assert len(result.listed_ids) == 750 or "paging_mode" in faulty_settings, (
            "the reading lacks rows that the list shows"
        )


def test_a_list_with_pages_of_one_row_is_certified_after_it_was_read_twice() -> None:
    simulated_list = SimulatedList(Random(1), 50, "id", limit=1)
    result = read_list(simulated_list)
    assert (result.certificate.reason, simulated_list.request_count) == (CertificateReason.TWO_SWEEPS, 103)


def test_each_certificate_is_correct_if_total_count_is_capped_at_one_page() -> None:
    """TotalCount is the size of a page. If a row is deleted, the first row of the second page moves to the first
    page."""
    for seed in range(300):
        simulated_list = SimulatedList(Random(seed), 101, "email", limit=100, delete_chance=0.5, total_mode="page_cap")
        result = read_list(simulated_list)
        assert not result.has_false_certificate(simulated_list), f"seed {seed}"


@pytest.mark.parametrize(
    ("order", "activity_change_chance"), [("grouped", 0.05), ("grouped", 0.3), ("last_change_desc", 0.3)]
)
def test_each_certificate_is_correct_if_unread_rows_move_to_the_head(order: str, activity_change_chance: float) -> None:
    for seed in range(LIST_COUNT // 3):
        simulated_list = SimulatedList(
            Random(seed), 600, order, limit=60, activity_change_chance=activity_change_chance
        )
        result = read_list(simulated_list)
        assert not result.has_false_certificate(simulated_list), f"seed {seed}: {result.certificate}"
