"""The joint of two pages, and the changes that their overlap shows."""

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
    first_occurrences,
)

BEFORE = [10, 20, 30, 40, 50]  # at offset 100, so its last row has rank 104


def join(ids: list[int], offset: int, seen: list[int] | None = None) -> PageOverlap:
    known = set(BEFORE) | set(seen or ())
    fresh = np.array([number not in known for number in ids])
    return decide_overlap(np.array(BEFORE), 100, np.array(ids), offset, fresh)


def test_a_page_joins_the_rows_before_it() -> None:
    cases: list[tuple[list[int], int, PageOverlap]] = [
        ([40, 50, 60], 103, PageOverlap(OverlapKind.MATCHED)),
        ([40, 50, 60], 102, PageOverlap(OverlapKind.MATCHED, shift=-1)),  # one vanished before
        ([30, 40, 50], 103, PageOverlap(OverlapKind.MATCHED, shift=1)),  # one appeared before
        ([30, 40, 45, 50, 60], 102, PageOverlap(OverlapKind.MATCHED, appeared_count=1)),
        ([30, 50, 60], 102, PageOverlap(OverlapKind.MATCHED, vanished_count=1)),
        ([25, 30, 40, 50], 102, PageOverlap(OverlapKind.MATCHED, shift=1, appeared_before_count=1)),
        ([20, 30], 101, PageOverlap(OverlapKind.MATCHED)),  # ends within the page before: says nothing of 40 and 50
        ([60, 70], 105, PageOverlap(OverlapKind.GAP)),
        ([1, 2, 3], 104, PageOverlap(OverlapKind.BEHIND)),
        ([50, 40, 60], 103, PageOverlap(OverlapKind.MOVED)),
        ([10, 60, 70, 80], 103, PageOverlap(OverlapKind.MOVED)),  # four of five are missing: no witness
        ([40, 41, 42, 50], 103, PageOverlap(OverlapKind.MOVED)),  # as many came between as stayed
    ]
    for ids, offset, overlap in cases:
        assert join(ids, offset, seen=[1, 2, 3]) == overlap


def test_ids_of_a_page_have_a_direction() -> None:
    cases: list[tuple[list[int], int]] = [([1, 2, 3], 1), ([3, 2, 1], -1), ([1, 1], 0), ([1, 3, 2], 0), ([7], 1)]
    for ids, direction in cases:
        assert decide_direction(np.array(ids)) == direction


IDS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 20), max_size=30)


@given(st.lists(IDS, max_size=12), IDS)
def test_a_set_of_ids_holds_exactly_the_added_ids(pages: list[list[int]], asked: list[int]) -> None:
    ids, expected = IdSet(), set[int]()
    for page in pages:
        array = np.array(page, dtype=np.int64)
        ids.add(array[~ids.holds(array) & first_occurrences(array)])
        expected |= set(page)

    assert ids.holds(np.array(asked, dtype=np.int64)).tolist() == [request in expected for request in asked]
    assert len(ids) == len(expected)
    assert ids.to_array().tolist() == sorted(expected)


# TotalCount against the ids that were seen, and the changes that ranks show


def totals_of(*counts: int | None) -> Totals:
    totals = Totals()
    for count in counts:
        totals.record(count)
    return totals


def test_distinct_ids_fit_the_window_of_rule_4() -> None:
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
    for counts, appeared, vanished, distinct, fits in cases:
        assert ListChanges(appeared, vanished).allow(distinct, totals_of(*counts)) is fits


def test_a_change_shows_in_the_ranks_of_an_overlap() -> None:
    cases: list[tuple[PageOverlap, int, int, int, int]] = [
        (PageOverlap(OverlapKind.MATCHED), 100, 100, 0, 0),
        (PageOverlap(OverlapKind.MATCHED, shift=2), 100, 102, 2, 0),  # two before the overlap
        (PageOverlap(OverlapKind.MATCHED), 100, 102, 2, 0),  # two behind it
        (PageOverlap(OverlapKind.MATCHED, shift=-1), 100, 100, 1, 1),  # one vanished before, one appeared behind
        (PageOverlap(OverlapKind.MATCHED, vanished_count=1), 100, 99, 0, 1),
        (
            PageOverlap(OverlapKind.MATCHED, appeared_count=1),
            100,
            100,
            1,
            1,
        ),  # among the shared rows; so one vanished behind
        (PageOverlap(OverlapKind.MATCHED, shift=0, appeared_before_count=1), 100, 100, 1, 1),
    ]
    for overlap, before, after, appeared, vanished in cases:
        changes = ListChanges()
        changes.record_overlap(overlap, before, after)

        assert (changes.appeared_count, changes.vanished_count, changes.is_exact) == (appeared, vanished, True)


def test_changes_without_a_total_count_are_not_exact() -> None:
    changes = ListChanges()
    changes.record_overlap(PageOverlap(OverlapKind.MATCHED), None, 100)

    assert not changes.is_exact
    assert totals_of(None, 5).is_missing
    assert not totals_of(5, None).are_all(5)


def test_a_change_past_the_last_row_shows_in_the_total_count_alone() -> None:
    changes = ListChanges()
    changes.record_end(100, 97)

    assert (changes.appeared_count, changes.vanished_count) == (0, 3)
