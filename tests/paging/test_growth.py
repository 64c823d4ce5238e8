"""Evidence that a list is cut off. Subscribers that other runs create at the same time are not evidence."""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from connector.listing.evidence import plan_requests
from connector.listing.findings import Answer, ListReading, decide_evidence, find_hidden_groups
from connector.paging.certificate import Certificate, CertificateReason, CertificateVerdict, EvidenceResult, Order
from connector.service.wire import ListPage, ListQuery

READ_AT = datetime(2026, 11, 26, tzinfo=UTC)


def build_reading(ids: list[int], order: Order, base_id_of_load: int = 7) -> ListReading:
    counts = (1, 1, len(ids), len(ids), len(ids), 0, 0)  # sweeps, pages, ids, first and last TotalCount, changes
    certificate = Certificate(
        CertificateVerdict.COMPLETE, CertificateReason.ID_ORDER, order, *counts, {}, READ_AT, READ_AT
    )
    group_counts: dict[str, dict[object, int]] = {
        "gender": {"": len(ids)},
        "is_active": {True: len(ids)},
        "base_id": {7: len(ids)},
    }
    return ListReading(
        certificate,
        ListQuery(limit=1000),
        {},
        np.array(ids, dtype=np.int64),
        group_counts=group_counts,
        base_ids=[base_id_of_load],
    )


def answer_evidence_requests(
    reading: ListReading,
    listed_ids: list[int],
    *,
    has_working_id_filter: bool = True,
    base_8_ids: Collection[int] = (),
    is_base_8_hidden: bool = False,
    added_count_per_answer: int = 0,
) -> list[Answer]:
    """Answer every request for evidence like a service that lists `listed_ids` in the order of the reading. The
    subscribers of `base_8_ids` are in base 8, and all other subscribers are in base 7. If `is_base_8_hidden`, only a
    request with the BaseId 8 returns subscribers of base 8. The service adds `added_count_per_answer` subscribers to
    base 8 before each answer."""
    answers: list[Answer] = []
    is_descending = reading.certificate.order is Order.ID_DESC
    listed_ids, base_8_ids = sorted(listed_ids, reverse=is_descending), set(base_8_ids)
    while requests := plan_requests(reading, answers):
        for request in requests:
            query = request.query
            added_ids = range(len(listed_ids) + 1, len(listed_ids) + added_count_per_answer + 1)
            listed_ids = [*added_ids[::-1], *listed_ids] if is_descending else [*listed_ids, *added_ids]
            base_8_ids |= set(added_ids)
            shown_ids = [
                listed_id
                for listed_id in listed_ids
                if query.id is None or (query.id == listed_id and has_working_id_filter)
            ]
            shown_ids = shown_ids if query.gender in (None, "") and query.is_active is not False else []
            base_id_by_subscriber = {
                subscriber_id: 8 if subscriber_id in base_8_ids else 7 for subscriber_id in shown_ids
            }
            if query.base_id is not None:
                shown_ids = [
                    subscriber_id
                    for subscriber_id in shown_ids
                    if base_id_by_subscriber[subscriber_id] == query.base_id
                ]
            elif is_base_8_hidden:
                shown_ids = [subscriber_id for subscriber_id in shown_ids if base_id_by_subscriber[subscriber_id] == 7]
            rows = [
                {
                    "Id": subscriber_id,
                    "Gender": "",
                    "IsActive": True,
                    "Base": {"Id": base_id_by_subscriber[subscriber_id]},
                }
                for subscriber_id in shown_ids[query.offset : query.offset + query.limit]
            ]
            answers.append(Answer(request, ListPage(rows, len(shown_ids), query.offset, query.limit)))
    return answers


@pytest.mark.parametrize("order", [Order.ID, Order.ID_DESC])
@pytest.mark.parametrize("subscriber_count", [1, 10, 2500])
def test_new_subscribers_beyond_the_largest_id_do_not_contradict_a_list(subscriber_count: int, order: Order) -> None:
    listed_ids, existing_ids = (
        list(range(1, subscriber_count + 1)),
        list(range(1, subscriber_count + subscriber_count // 10 + 20)),
    )
    reading = build_reading(listed_ids, order)
    findings = decide_evidence(reading, answer_evidence_requests(reading, existing_ids))
    assert not [finding for finding in findings if finding.evidence_result is EvidenceResult.CONTRADICTS]


@pytest.mark.parametrize("order", [Order.ID, Order.ID_DESC])
@pytest.mark.parametrize("subscriber_count", [0, 10])
@pytest.mark.parametrize("added_count", [1, 40])
def test_a_base_with_only_new_subscribers_is_not_mistaken_for_a_hidden_base(
    added_count: int, subscriber_count: int, order: Order
) -> None:
    added_ids = list(range(subscriber_count + 1, subscriber_count + added_count + 1))
    listed_ids, existing_ids = list(range(1, subscriber_count + 1)), list(range(1, subscriber_count + added_count + 1))
    reading = build_reading(listed_ids, order, base_id_of_load=8)
    for is_base_8_hidden in (False, True):
        answers = answer_evidence_requests(
            reading, existing_ids, base_8_ids=added_ids, is_base_8_hidden=is_base_8_hidden
        )
        assert (("base_id", 8) in find_hidden_groups(reading, answers)) is is_base_8_hidden
        findings = decide_evidence(reading, answers)
        # If an empty list gets subscribers before the evidence is complete, the list is read again.
        if subscriber_count:
            assert (
                any(finding.evidence_result is EvidenceResult.CONTRADICTS for finding in findings) is is_base_8_hidden
            )


@pytest.mark.parametrize("order", [Order.ID, Order.ID_DESC])
@pytest.mark.parametrize("subscriber_count", [0, 10])
@pytest.mark.parametrize("added_count_per_answer", [1, 5])
def test_a_growing_base_is_not_mistaken_for_a_hidden_base(
    added_count_per_answer: int, subscriber_count: int, order: Order
) -> None:
    listed_ids = list(range(1, subscriber_count + 1))
    reading = build_reading(listed_ids, order, base_id_of_load=8)
    for is_base_8_hidden in (False, True):
        answers = answer_evidence_requests(
            reading, listed_ids, is_base_8_hidden=is_base_8_hidden, added_count_per_answer=added_count_per_answer
        )
        assert (("base_id", 8) in find_hidden_groups(reading, answers)) is is_base_8_hidden


def test_only_a_working_filter_by_id_proves_the_end_of_a_list() -> None:
    ids = list(range(1, 2501))
    for has_working_id_filter, expected_result in ((True, EvidenceResult.AGREES), (False, EvidenceResult.NOTHING)):
        reading = build_reading(ids, Order.ID)
        findings = decide_evidence(
            reading, answer_evidence_requests(reading, ids, has_working_id_filter=has_working_id_filter)
        )
        assert [finding.evidence_result for finding in findings if finding.topic == "ids"] == [expected_result]


@pytest.mark.parametrize(
    ("unlisted_count", "has_working_id_filter", "is_read_by_load", "expected_result"),
    [
        (1500, False, False, EvidenceResult.UNCLEAR),  # more than 5 % of the 20,000 compared entries
        (900, False, False, EvidenceResult.NOTHING),
        (1500, True, False, EvidenceResult.NOTHING),  # look-ups show that the unlisted subscribers were deleted
        (1500, False, True, EvidenceResult.NOTHING),
    ],
)
def test_the_evidence_is_unclear_if_many_confirmed_subscribers_cannot_be_looked_up(
    unlisted_count: int, has_working_id_filter: bool, is_read_by_load: bool, expected_result: EvidenceResult
) -> None:
    ids = list(range(1, 60_001))
    reading = replace(
        build_reading(ids, Order.ID),
        base_ids=[7] if is_read_by_load else None,
        unlisted_entry_ids=range(100_000, 100_000 + unlisted_count),
    )
    answers = answer_evidence_requests(reading, ids, has_working_id_filter=has_working_id_filter)
    evidence_results = [
        finding.evidence_result for finding in decide_evidence(reading, answers) if finding.topic == "ledger"
    ]
    assert evidence_results == [expected_result]


@pytest.mark.parametrize("order", [Order.ID, Order.ID_DESC])
@pytest.mark.parametrize("subscriber_count", [10, 2500])
def test_a_list_is_contradicted_by_existing_ids_between_the_listed_ids(subscriber_count: int, order: Order) -> None:
    listed_ids, existing_ids = list(range(2, 2 * subscriber_count + 1, 2)), list(range(1, 2 * subscriber_count + 20))
    reading = build_reading(listed_ids, order)
    findings = decide_evidence(reading, answer_evidence_requests(reading, existing_ids))
    assert [finding for finding in findings if finding.evidence_result is EvidenceResult.CONTRADICTS]
