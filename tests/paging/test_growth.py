"""A list that other runs fill during the questions is not cut off."""

from datetime import UTC, datetime

import numpy as np
import pytest

from connector.listing.evidence import plan_questions
from connector.listing.findings import Answer, Suspect, decide_evidence
from connector.paging.certificate import Certificate, Order, Reason, Says, Verdict
from connector.service.wire import ListPage, ListQuery

AT = datetime(2026, 11, 26, tzinfo=UTC)


def build_suspect(ids: list[int], order: Order) -> Suspect:
    certificate = Certificate(
        Verdict.COMPLETE, Reason.ID_ORDER, order, 1, 1, len(ids), len(ids), len(ids), 0, 0, {}, AT, AT
    )
    listed: dict[str, dict[object, int]] = {
        "gender": {"": len(ids)},
        "is_active": {True: len(ids)},
        "base_id": {7: len(ids)},
    }
    return Suspect(certificate, ListQuery(limit=1000), {}, np.array(sorted(ids), dtype=np.int64), class_counts=listed)


def answer_all(suspect: Suspect, now: list[int], *, finds_ids: bool = True) -> list[Answer]:
    """Ask every question of a service that lists `now`, of subscribers without any class."""
    answers: list[Answer] = []
    while questions := plan_questions(suspect, answers):
        for question in questions:
            query = question.query
            found = [row for row in now if query.id is None or (query.id == row and finds_ids)]
            found = found if query.gender in (None, "") and query.is_active is not False else []
            shown = found[query.offset : query.offset + query.limit]
            rows = [{"Id": number, "Gender": "", "IsActive": True, "Base": {"Id": 7}} for number in shown]
            answers.append(Answer(question, ListPage(rows, len(found), query.offset, query.limit)))
    return answers


@pytest.mark.parametrize("order", [Order.ID, Order.ID_DESC])
@pytest.mark.parametrize("size", [1, 10, 2500])
def test_newcomers_beyond_the_largest_id_do_not_contradict_a_list(size: int, order: Order) -> None:
    before, after = list(range(1, size + 1)), list(range(1, size + size // 10 + 20))
    if order is Order.ID_DESC:
        before, after = before[::-1], after[::-1]
    suspect = build_suspect(before, order)
    findings = decide_evidence(suspect, answer_all(suspect, after))
    assert not [finding for finding in findings if finding.says is Says.CONTRADICTS]


def test_a_service_that_finds_no_id_is_no_proof_that_no_subscriber_follows() -> None:
    ids = list(range(1, 2501))
    for finds_ids, says in ((True, Says.AGREES), (False, Says.NOTHING)):
        suspect = build_suspect(ids, Order.ID)
        findings = decide_evidence(suspect, answer_all(suspect, ids, finds_ids=finds_ids))
        assert [finding.says for finding in findings if finding.kind == "ids"] == [says]


@pytest.mark.parametrize("order", [Order.ID, Order.ID_DESC])
@pytest.mark.parametrize("size", [10, 2500])
def test_subscribers_between_the_listed_ones_contradict_a_list(size: int, order: Order) -> None:
    before, after = list(range(2, 2 * size + 1, 2)), list(range(1, 2 * size + 20))
    if order is Order.ID_DESC:
        before, after = before[::-1], after[::-1]
    suspect = build_suspect(before, order)
    findings = decide_evidence(suspect, answer_all(suspect, after))
    assert [finding for finding in findings if finding.says is Says.CONTRADICTS]
