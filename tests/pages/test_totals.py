"""TotalCount against the ids that were seen, and the changes that ranks tell of."""

import pytest

from connector.pages.joint import Bond, Joint
from connector.pages.totals import Changes, Totals


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
    assert Changes(appeared, vanished).allow(distinct, totals_of(*counts)) is fits


@pytest.mark.parametrize(
    ("joint", "before", "after", "appeared", "vanished"),
    [
        (Joint(Bond.MATCHED), 100, 100, 0, 0),
        (Joint(Bond.MATCHED, shift=2), 100, 102, 2, 0),  # two before the joint
        (Joint(Bond.MATCHED), 100, 102, 2, 0),  # two behind it
        (Joint(Bond.MATCHED, shift=-1), 100, 100, 1, 1),  # one vanished before, one appeared behind
        (Joint(Bond.MATCHED, vanished=1), 100, 99, 0, 1),
        (Joint(Bond.MATCHED, appeared=1), 100, 100, 1, 1),  # among the shared rows; so one vanished behind
        (Joint(Bond.MATCHED, shift=0, appeared_before=1), 100, 100, 1, 1),
    ],
)
def test_changes_are_told_from_ranks(joint: Joint, before: int, after: int, appeared: int, vanished: int) -> None:
    changes = Changes()
    changes.note_joint(joint, before, after)

    assert (changes.appeared, changes.vanished, changes.is_exact) == (appeared, vanished, True)


def test_without_a_total_count_nothing_is_exact() -> None:
    changes = Changes()
    changes.note_joint(Joint(Bond.MATCHED), None, 100)

    assert not changes.is_exact
    assert totals_of(None, 5).is_missing
    assert not totals_of(5, None).are_all(5)
