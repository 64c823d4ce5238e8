"""The counts of those active and those not, against TotalCount."""

import numpy as np
import pytest

from connector.pages import Measures, Reading, Reason, TotalCount
from connector.pages.activity import ActivityCount, Agreement
from connector.pages.answer import Answer
from tests.pages.times import FINISHED, STARTED


def count(*answers: tuple[int | None, bool], lowest: float = 100, highest: float = 100) -> ActivityCount:
    activity = ActivityCount(lowest, highest)
    for total, is_matching in answers:
        assert activity.agreement is None
        activity.take(Answer(0, np.arange(1 if total else 0), total, 0, 1, is_matching))
    return activity


@pytest.mark.parametrize(
    ("answers", "agreement"),
    [
        ([(60, True), (40, True)], Agreement.AGREES),
        ([(100, True), (0, True)], Agreement.AGREES),
        ([(60, True), (41, True), (101, True)], Agreement.AGREES),  # one has come meanwhile
        (
            [(60, True), (41, True), (100, True), (59, True)],
            Agreement.AGREES,
        ),  # one changed sides and was counted twice
        ([(60, True), (41, True), (100, True), (60, True)], Agreement.DISAGREES),
        ([(60, True), (60, True), (100, True), (60, True)], Agreement.DISAGREES),  # a TotalCount that is capped
        ([(60, False)], Agreement.UNTOLD),
        ([(100, True), (100, False)], Agreement.UNTOLD),  # the filter is ignored, and all are active
        ([(None, True)], Agreement.UNTOLD),
    ],
)
def test_the_sum_is_held_against_total_count(answers: list[tuple[int | None, bool]], agreement: Agreement) -> None:
    activity = count(*answers)

    assert activity.agreement is agreement
    assert (activity.active is None) is (agreement is Agreement.UNTOLD)


def test_a_count_that_shows_nobody_of_them_is_not_believed() -> None:
    activity = ActivityCount(100, 100)
    activity.take(Answer(0, np.arange(0), 60, 0, 1))

    assert activity.agreement is Agreement.UNTOLD


def test_the_changes_that_were_seen_widen_what_is_allowed() -> None:
    assert count((60, True), (45, True), lowest=98, highest=105).agreement is Agreement.AGREES


def read_with_counts(active: int, inactive: int, *, total: int = 500, ignores: bool = False) -> Reading:
    """A quiet list of 500 ids in order, whose IsActive filter counts so many, and whose TotalCount says `total`."""
    rows = np.arange(500)
    reading = Reading(100, Measures(counts_activity=True, ignores_total_count=ignores))
    while (page := reading.decide_next()) is not None:
        if page.filters:
            counted = active if dict(page.filters)["is_active"] else inactive
            reading.take(rows[: min(1, counted)], total=counted, offset=0, limit=1)
        else:
            ids = rows[page.offset : page.offset + page.limit]
            reading.take(ids, total=total, offset=page.offset, limit=page.limit)
    return reading


@pytest.mark.parametrize(
    ("active", "inactive", "total", "ignores", "reason", "total_count"),
    [
        (300, 200, 500, False, Reason.ID_ORDER, TotalCount.CHECKED),
        (300, 200, 500, True, Reason.ID_ORDER, TotalCount.CHECKED),
        (300, 300, 500, False, Reason.TOTAL_COUNT, TotalCount.CHECKED),
        (300, 300, 500, True, Reason.ID_ORDER, TotalCount.IGNORED),
        (300, 200, 400, False, Reason.TOTAL_COUNT, TotalCount.CHECKED),
        (300, 200, 400, True, Reason.ID_ORDER, TotalCount.IGNORED),
    ],
)
def test_a_verdict_against_which_total_count_alone_stands_can_be_had_by_leaving_it_out_of_account(
    active: int, inactive: int, total: int, *, ignores: bool, reason: Reason, total_count: TotalCount
) -> None:
    certificate = read_with_counts(active, inactive, total=total, ignores=ignores).certify(STARTED, FINISHED)

    assert (certificate.reason, certificate.total_count) == (reason, total_count)
    assert certificate.is_complete is (reason is Reason.ID_ORDER)
    assert (certificate.total_active is None) is (total != 500 and not ignores)
    assert certificate.pages == (8 if total == 500 else 12), "the counts are no pages of the list"
