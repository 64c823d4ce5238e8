"""The overlap of two pages, and the changes that the overlap shows."""

import numpy as np
from hypothesis import given, strategies as st

from connector.paging.overlap import (
    IdSet,
    ListChanges,
    OverlapKind,
    PageOverlap,
    Totals,
    decide_direction,
    decide_overlap,
    mark_first_occurrences,
)

PREVIOUS_IDS = [10, 20, 30, 40, 50]  # ids of the page at offset 100, so the id 50 has the rank 104


def decide_overlap_with_previous_page(ids: list[int], offset: int, earlier_ids: list[int] | None = None) -> PageOverlap:
    known_ids = set(PREVIOUS_IDS) | set(earlier_ids or ())
    new_row_mask = np.array([subscriber_id not in known_ids for subscriber_id in ids])
    return decide_overlap(np.array(PREVIOUS_IDS), 100, np.array(ids), offset, new_row_mask)


def test_the_overlap_of_two_pages_shows_the_changes_between_their_requests() -> None:
    cases: list[tuple[list[int], int, PageOverlap]] = [
        ([40, 50, 60], 103, PageOverlap(OverlapKind.MATCHED)),
        ([40, 50, 60], 102, PageOverlap(OverlapKind.MATCHED, offset_shift=-1)),  # a row vanished before the overlap
        ([30, 40, 50], 103, PageOverlap(OverlapKind.MATCHED, offset_shift=1)),  # a row appeared before the overlap
        ([30, 40, 45, 50, 60], 102, PageOverlap(OverlapKind.MATCHED, appeared_count=1)),
        ([30, 50, 60], 102, PageOverlap(OverlapKind.MATCHED, vanished_count=1)),
        ([25, 30, 40, 50], 102, PageOverlap(OverlapKind.MATCHED, offset_shift=1, appeared_count_before_overlap=1)),
        # The page ends before 40 and 50, so it does not show whether these rows vanished.
        ([20, 30], 101, PageOverlap(OverlapKind.MATCHED)),
        ([60, 70], 105, PageOverlap(OverlapKind.GAP)),
        ([1, 2, 3], 104, PageOverlap(OverlapKind.MOSTLY_KNOWN)),
        ([50, 40, 60], 103, PageOverlap(OverlapKind.MOVED)),
        # Four of five rows are missing, so the order proves nothing.
        ([10, 60, 70, 80], 103, PageOverlap(OverlapKind.MOVED)),
        ([40, 41, 42, 50], 103, PageOverlap(OverlapKind.MOVED)),  # the page has as many new rows as shared rows
    ]
    for ids, offset, overlap in cases:
        assert decide_overlap_with_previous_page(ids, offset, earlier_ids=[1, 2, 3]) == overlap


def test_the_direction_shows_whether_the_ids_of_a_page_rise_or_fall() -> None:
    cases: list[tuple[list[int], int]] = [([1, 2, 3], 1), ([3, 2, 1], -1), ([1, 1], 0), ([1, 3, 2], 0), ([7], 1)]
    for ids, direction in cases:
        assert decide_direction(np.array(ids)) == direction


IDS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 20), max_size=30)


@given(st.lists(IDS, max_size=12), IDS)
def test_a_set_of_ids_holds_exactly_the_added_ids(pages: list[list[int]], tested_ids: list[int]) -> None:
    id_set, expected_ids = IdSet(), set[int]()
    for page in pages:
        ids = np.array(page, dtype=np.int64)
        id_set.add(ids[~id_set.mark_contained_ids(ids) & mark_first_occurrences(ids)])
        expected_ids |= set(page)

    expected_mask = [tested_id in expected_ids for tested_id in tested_ids]
    assert id_set.mark_contained_ids(np.array(tested_ids, dtype=np.int64)).tolist() == expected_mask
    assert len(id_set) == len(expected_ids)
    assert id_set.to_array().tolist() == sorted(expected_ids)


def build_totals(*total_counts: int | None) -> Totals:
    totals = Totals()
    for total_count in total_counts:
        totals.record(total_count)
    return totals


def test_the_number_of_ids_must_match_the_total_counts() -> None:
    """The number may differ from a TotalCount only if rows appeared or vanished while the list was read."""
    cases: list[tuple[list[int], int, int, int, bool]] = [
        ([100, 100], 0, 0, 100, True),
        ([100, 100], 0, 0, 99, False),
        ([100, 100], 0, 0, 101, False),
        ([100, 97], 0, 3, 94, True),
        ([100, 97], 0, 3, 93, False),
        ([100, 102], 2, 0, 104, True),
        ([100, 102], 2, 0, 105, False),
        ([], 0, 0, 0, False),
    ]
    for total_counts, appeared_count, vanished_count, id_count, is_allowed in cases:
        changes = ListChanges(appeared_count, vanished_count)
        assert changes.is_count_possible(id_count, build_totals(*total_counts)) is is_allowed


def test_an_overlap_and_total_counts_show_how_many_rows_appeared_and_vanished() -> None:
    cases: list[tuple[PageOverlap, int, int, int, int]] = [
        (PageOverlap(OverlapKind.MATCHED), 100, 100, 0, 0),
        (PageOverlap(OverlapKind.MATCHED, offset_shift=2), 100, 102, 2, 0),  # two rows appeared before the overlap
        (PageOverlap(OverlapKind.MATCHED), 100, 102, 2, 0),  # two rows appeared after the overlap
        # One row vanished before the overlap, and one row appeared after the overlap.
        (PageOverlap(OverlapKind.MATCHED, offset_shift=-1), 100, 100, 1, 1),
        (PageOverlap(OverlapKind.MATCHED, vanished_count=1), 100, 99, 0, 1),
        # A row appeared among the shared rows, and TotalCount is unchanged, so a row vanished after the overlap.
        (PageOverlap(OverlapKind.MATCHED, appeared_count=1), 100, 100, 1, 1),
        (PageOverlap(OverlapKind.MATCHED, offset_shift=0, appeared_count_before_overlap=1), 100, 100, 1, 1),
    ]
    for overlap, previous_total, total_count, appeared_count, vanished_count in cases:
        changes = ListChanges()
        changes.record_overlap(overlap, previous_total, total_count)

        expected_changes = (appeared_count, vanished_count, True)
        assert (changes.appeared_count, changes.vanished_count, changes.is_exact) == expected_changes


def test_without_a_total_count_the_numbers_of_appeared_and_vanished_rows_are_not_exact() -> None:
    changes = ListChanges()
    changes.record_overlap(PageOverlap(OverlapKind.MATCHED), None, 100)

    assert not changes.is_exact
    assert build_totals(None, 5).is_total_missing
    assert not build_totals(5, None).has_only_total(5)


def test_only_the_total_count_shows_a_change_after_the_last_row() -> None:
    changes = ListChanges()
    changes.record_end(100, 97)

    assert (changes.appeared_count, changes.vanished_count) == (0, 3)
