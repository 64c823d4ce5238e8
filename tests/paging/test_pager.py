"""Reading a list page by page: the requests, the new rows and the certificate."""

import json
from collections.abc import Callable, Sequence

import numpy as np

from connector.paging.certificate import Certificate, CertificateReason
from connector.paging.overlap import PageRequest
from connector.paging.pager import Pager
from tests.paging.simulated import FINISHED_AT, STARTED_AT

Rows = list[int]
ListChange = Callable[[Rows], None]


def read_list(
    rows: Rows, changes: dict[int, ListChange] | None = None, limit: int = 100
) -> tuple[Certificate, list[PageRequest], Rows]:
    """Read a list in the order of `rows` from a service that answers correctly. `changes` has the changes of the
    list by the index of the request that follows the change."""
    pager, pages, listed_ids = Pager(limit), list[PageRequest](), Rows()
    while (page := pager.decide_next_page()) is not None:
        if changes and len(pages) in changes:
            changes[len(pages)](rows)
        if pages and page.sweep_number != pages[-1].sweep_number:
            listed_ids.clear()
        pages.append(page)
        ids = rows[page.offset : page.offset + page.limit]
        new_row_mask = pager.add_page(
            np.array(ids, dtype=np.int64), total_count=len(rows), offset=page.offset, limit=page.limit
        )
        listed_ids += [subscriber_id for subscriber_id, is_new in zip(ids, new_row_mask, strict=True) if is_new]
    return pager.certify(STARTED_AT, FINISHED_AT), pages, listed_ids


def list_offsets(pages: Sequence[PageRequest]) -> list[int]:
    return [page.offset for page in pages]


def build_insertion(index: int, *ids: int) -> ListChange:
    return lambda rows: rows.__setitem__(slice(index, index), ids)


def build_deletion(start: int, stop: int) -> ListChange:
    return lambda rows: rows.__delitem__(slice(start, stop))


def test_an_empty_list_takes_one_request() -> None:
    certificate, pages, listed_ids = read_list([])

    assert (certificate.reason, list_offsets(pages), listed_ids) == (CertificateReason.ONE_ANSWER, [0], [])
    assert (certificate.total_first, certificate.total_last, certificate.distinct) == (0, 0, 0)


def test_a_list_of_one_page_takes_two_requests() -> None:
    certificate, pages, listed_ids = read_list([5, 3, 9, 1])

    assert (certificate.reason, list_offsets(pages), listed_ids) == (CertificateReason.ONE_ANSWER, [0, 4], [5, 3, 9, 1])


def test_rows_of_the_overlap_of_two_pages_count_once() -> None:
    certificate, pages, listed_ids = read_list(list(range(1, 251)))

    # The last two requests are the page past the end, and the first page again.
    assert list_offsets(pages) == [0, 95, 190, 250, 0]
    assert listed_ids == list(range(1, 251))
    assert (certificate.reason, certificate.pages, certificate.sweeps) == (CertificateReason.ID_ORDER, 5, 1)


def test_the_last_page_is_long_enough_to_prove_its_order() -> None:
    _, pages, listed_ids = read_list(list(range(1, 197)))

    assert list_offsets(pages) == [0, 95, 164, 196, 0]
    assert len(listed_ids) == 196


def test_the_reading_finds_the_unread_rows_after_a_large_insertion() -> None:
    rows = list(range(1000, 500, -1))
    added_ids = range(1250, 1000, -1)

    certificate, _, listed_ids = read_list(rows, {2: build_insertion(0, *added_ids)})

    assert certificate.reason is CertificateReason.ID_ORDER
    assert set(range(501, 1001)) <= set(listed_ids)
    assert len(listed_ids) == len(set(listed_ids))


def test_a_list_is_read_only_once_if_many_already_read_rows_are_deleted() -> None:
    certificate, pages, listed_ids = read_list(list(range(1, 501)), {2: build_deletion(0, 50)})

    # The unread rows move 50 ranks up the list, so 45 unread rows are before the page at offset 190. The reader then
    # requests an earlier page.
    assert list_offsets(pages)[:4] == [0, 95, 190, 163]
    assert (certificate.reason, certificate.sweeps) == (CertificateReason.ID_ORDER, 1)
    assert set(range(51, 501)) <= set(listed_ids)


def test_an_unread_row_is_found_if_it_moves_to_the_head_during_a_deletion() -> None:
    def move_row_to_head_and_delete_other_row(rows: Rows) -> None:
        rows.insert(0, rows.pop(450))  # each row that was read moves one rank down the list
        rows.remove(490)  # the rows behind row 490 return to their old ranks, so the next overlap is unchanged

    certificate, _, listed_ids = read_list(list(range(500, 0, -1)), {2: move_row_to_head_and_delete_other_row})

    assert certificate.reason is CertificateReason.TWO_SWEEPS
    assert set(listed_ids) == set(range(1, 501)) - {490}


def test_a_change_between_two_readings_of_a_list_counts_as_appeared_and_vanished_rows() -> None:
    rows = list(range(300))
    np.random.default_rng(1).shuffle(rows)
    deleted_id = rows[150]

    def change(rows: Rows) -> None:
        rows.remove(deleted_id)
        rows.append(1000)

    certificate, _, listed_ids = read_list(rows, {5: change})  # request 5 begins to read the list a second time

    assert (certificate.reason, certificate.sweeps) == (CertificateReason.TWO_SWEEPS, 3)
    assert (certificate.appeared, certificate.vanished) == (1, 1)
    assert set(listed_ids) == set(rows)


def test_a_list_that_changes_each_time_it_is_read_is_incomplete_after_five_times() -> None:
    rows = list(range(300))
    np.random.default_rng(1).shuffle(rows)
    changes = {index: build_insertion(299, 1000 + index) for index in range(3, 100, 4)}

    certificate, _, _ = read_list(rows, changes)

    assert (certificate.reason, certificate.sweeps) == (CertificateReason.CHANGING, 5)


def test_a_list_with_a_repeated_id_is_not_certified_as_complete() -> None:
    certificate, _, listed_ids = read_list([1, 2, 3, 3, 4])

    assert not certificate.is_complete
    assert listed_ids == [1, 2, 3, 4]


def test_the_last_page_is_read_again_if_its_total_count_is_wrong() -> None:
    rows = list(range(1, 251))
    pager, request_count = Pager(100), 0
    while (page := pager.decide_next_page()) is not None:
        request_count += 1
        total_count = 249 if request_count == 3 else 250  # the third page ends the list
        ids = np.array(rows[page.offset : page.offset + 100], dtype=np.int64)
        pager.add_page(ids, total_count=total_count, offset=page.offset, limit=100)

    certificate = pager.certify(STARTED_AT, FINISHED_AT)
    assert (certificate.reason, certificate.sweeps) == (CertificateReason.ID_ORDER, 1)


def test_a_reading_is_incomplete_if_pages_that_do_not_overlap_repeat_a_row() -> None:
    """The service begins pages at multiples of 20, so the pages do not overlap, and sorts by a key with ties. Row 59 is
    on two pages, and row 39 is on no page."""
    rows = [*range(40, 60), 59, *range(20, 39), *range(20)]
    pager = Pager(20, ignores_total_count=True)
    while (page := pager.decide_next_page()) is not None:
        offset = page.offset - page.offset % 20
        ids = np.array(rows[offset : offset + 20], dtype=np.int64)
        pager.add_page(ids, total_count=len(rows) + 1, offset=offset, limit=20)
    assert not pager.certify(STARTED_AT, FINISHED_AT).is_complete


def read_pages(pager: Pager, rows: Rows, page_count: int) -> None:
    for _ in range(page_count):
        page = pager.decide_next_page()
        assert page is not None
        ids = np.array(rows[page.offset : page.offset + page.limit], dtype=np.int64)
        pager.add_page(ids, total_count=len(rows), offset=page.offset, limit=page.limit)


def test_the_pages_fetched_ahead_are_the_next_pages_of_an_unchanged_list() -> None:
    pager, rows, pages_ahead = Pager(100), list(range(1234)), list[PageRequest]()
    while (page := pager.decide_next_page()) is not None:
        assert not pages_ahead or page == pages_ahead[0]
        pages_ahead = pager.decide_pages_ahead(4)
        assert all(request.offset < 1234 or request.expected_end == 1234 for request in pages_ahead)
        read_pages(pager, rows, 1)
    assert pager.certify(STARTED_AT, FINISHED_AT).reason is CertificateReason.ID_ORDER


def test_after_a_change_pages_are_fetched_ahead_again_only_after_eight_further_pages() -> None:
    cases: list[ListChange] = [
        build_insertion(0, -1),
        build_insertion(2000, 2000),
        build_deletion(0, 1),
        build_deletion(1999, 2000),
    ]
    for change in cases:
        pager, rows = Pager(100), list(range(2000))
        read_pages(pager, rows, 8)
        assert pager.is_list_unchanging
        change(rows)
        read_pages(pager, rows, 1)

        assert not pager.is_list_unchanging
        assert not pager.decide_pages_ahead(4)
        read_pages(pager, rows, 7)
        assert not pager.decide_pages_ahead(4)
        read_pages(pager, rows, 1)
        assert len(pager.decide_pages_ahead(4)) == 4


def test_the_certificate_in_the_report_has_the_documented_keys_as_plain_json() -> None:
    report = read_list([1, 2])[0].as_report()
    keys = "verdict reason order sweeps pages distinct total_first total_last appeared vanished filters"
    keys += " started_at finished_at total_count cut_off evidence hidden"
    assert list(report) == keys.split()
    assert json.loads(json.dumps(report)) == report
    assert (report["verdict"], report["started_at"]) == ("complete", "2026-11-21T09:00:00+00:00")
