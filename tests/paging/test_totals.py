"""TotalCount against the ids that were seen, and the changes that ranks tell of."""

import pytest

from connector.paging.overlap import ListChanges, OverlapKind, PageOverlap, Totals


def totals_of(*counts: int | None) -> Totals:
    totals = Totals()
    for count in counts:
        totals.note(count)
    return totals


@pytest.mark.parametrize(
    ("counts", "appeared", "vanished", "distinct", "fits"),
    [
        ([100, 100], 0, 0, 100, True),
        ([100, 100], 0, 0, 99, False),
        ([100, 100], 0, 0, 101, False),
        ([100, 97], 0, 3, 94, True),
        ([100, 97], 0, 3, 93, False),
        ([100, 102], 2, 0, 104, True),
        ([100, 102], 2, 0, 105, False),
        ([], 0, 0, 0, False),
    ],
)
def test_distinct_ids_fit_the_window_of_rule_4(
    counts: list[int], appeared: int, vanished: int, distinct: int, fits: bool
) -> None:
    assert ListChanges(appeared, vanished).allow(distinct, totals_of(*counts)) is fits


@pytest.mark.parametrize(
    ("overlap", "before", "after", "appeared", "vanished"),
    [
        (PageOverlap(OverlapKind.MATCHED), 100, 100, 0, 0),
        (PageOverlap(OverlapKind.MATCHED, shift=2), 100, 102, 2, 0),  # two before the overlap
        (PageOverlap(OverlapKind.MATCHED), 100, 102, 2, 0),  # two behind it
        (PageOverlap(OverlapKind.MATCHED, shift=-1), 100, 100, 1, 1),  # one vanished before, one appeared behind
        (PageOverlap(OverlapKind.MATCHED, vanished=1), 100, 99, 0, 1),
        (PageOverlap(OverlapKind.MATCHED, appeared=1), 100, 100, 1, 1),  # among the shared rows; so one vanished behind
        (PageOverlap(OverlapKind.MATCHED, shift=0, appeared_before=1), 100, 100, 1, 1),
    ],
)
def test_changes_show_in_ranks(overlap: PageOverlap, before: int, after: int, appeared: int, vanished: int) -> None:
    changes = ListChanges()
    changes.note_overlap(overlap, before, after)

    assert (changes.appeared, changes.vanished, changes.is_exact) == (appeared, vanished, True)


def test_without_a_total_count_nothing_is_exact() -> None:
    changes = ListChanges()
    changes.note_overlap(PageOverlap(OverlapKind.MATCHED), None, 100)

    assert not changes.is_exact
    assert totals_of(None, 5).is_missing
    assert not totals_of(5, None).are_all(5)
