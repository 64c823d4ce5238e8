"""The set of ids is a set."""

import numpy as np
from hypothesis import given, strategies as st

from connector.paging.overlap import IdSet, contained, first_occurrences

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


@given(IDS)
def test_first_occurrences_keep_each_id_once(page: list[int]) -> None:
    array = np.array(page, dtype=np.int64)

    assert array[first_occurrences(array)].tolist() == list(dict.fromkeys(page))


@given(IDS, IDS)
def test_contained_is_membership(held: list[int], asked: list[int]) -> None:
    ascending = np.array(sorted(set(held)), dtype=np.int64)

    assert contained(ascending, np.array(asked, dtype=np.int64)).tolist() == [each in held for each in asked]


def test_it_counts_those_between_two_both_included() -> None:
    ids = IdSet()
    ids.add(np.array([5, 1, 9]))
    ids.add(np.array([4]))

    assert [ids.count_between(1, 9), ids.count_between(4, 5), ids.count_between(6, 8)] == [4, 2, 0]
