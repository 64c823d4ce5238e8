"""When two pages join, and what their overlap shows of the changes between them."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from connector.paging.overlap import (
    IdSet,
    OverlapKind,
    PageOverlap,
    decide_direction,
    decide_overlap,
    first_occurrences,
)

BEFORE = [10, 20, 30, 40, 50]  # at offset 100, so its last row has rank 104


def join(ids: list[int], offset: int, seen: list[int] | None = None) -> PageOverlap:
    known = set(BEFORE) | set(seen or ())
    fresh = np.array([each not in known for each in ids])
    return decide_overlap(np.array(BEFORE), 100, np.array(ids), offset, fresh)


@pytest.mark.parametrize(
    ("ids", "offset", "overlap"),
    [
        ([40, 50, 60], 103, PageOverlap(OverlapKind.MATCHED)),
        ([40, 50, 60], 102, PageOverlap(OverlapKind.MATCHED, shift=-1)),  # one vanished before
        ([30, 40, 50], 103, PageOverlap(OverlapKind.MATCHED, shift=1)),  # one appeared before
        ([30, 40, 45, 50, 60], 102, PageOverlap(OverlapKind.MATCHED, appeared=1)),
        ([30, 50, 60], 102, PageOverlap(OverlapKind.MATCHED, vanished=1)),
        ([25, 30, 40, 50], 102, PageOverlap(OverlapKind.MATCHED, shift=1, appeared_before=1)),
        ([20, 30], 101, PageOverlap(OverlapKind.MATCHED)),  # ends within the page before: says nothing of 40 and 50
        ([60, 70], 105, PageOverlap(OverlapKind.GAP)),
        ([1, 2, 3], 104, PageOverlap(OverlapKind.BEHIND)),
        ([50, 40, 60], 103, PageOverlap(OverlapKind.MOVED)),
        ([10, 60, 70, 80], 103, PageOverlap(OverlapKind.MOVED)),  # four of five are missing: no witness
        ([40, 41, 42, 50], 103, PageOverlap(OverlapKind.MOVED)),  # as many came between as stayed
    ],
)
def test_joint(ids: list[int], offset: int, overlap: PageOverlap) -> None:
    assert join(ids, offset, seen=[1, 2, 3]) == overlap


@pytest.mark.parametrize(("ids", "direction"), [([1, 2, 3], 1), ([3, 2, 1], -1), ([1, 1], 0), ([1, 3, 2], 0), ([7], 1)])
def test_direction(ids: list[int], direction: int) -> None:
    assert decide_direction(np.array(ids)) == direction


IDS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 20), max_size=30)


@given(st.lists(IDS, max_size=12), IDS)
def test_it_holds_what_was_added_and_nothing_else(pages: list[list[int]], asked: list[int]) -> None:
    ids, expected = IdSet(), set[int]()
    for page in pages:
        array = np.array(page, dtype=np.int64)
        ids.add(array[~ids.holds(array) & first_occurrences(array)])
        expected |= set(page)

    assert ids.holds(np.array(asked, dtype=np.int64)).tolist() == [each in expected for each in asked]
    assert len(ids) == len(expected)
    assert ids.to_array().tolist() == sorted(expected)
