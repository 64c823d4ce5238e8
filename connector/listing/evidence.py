"""Evidence that the list shows every subscriber, from requests after a sweep (a reading of the whole list).
Architecture 7, rule 7, explains the evidence.

A list that a result window cuts off, or that hides a group of subscribers, looks complete, because its TotalCount
counts only the subscribers on its pages. Other requests show the missing subscribers: counts of groups and bases, and
look-ups by Id. These requests look up two kinds of Ids: Ids that the ledger has and the sweep lacks, and Ids between
the listed Ids that no page showed.

`plan_requests` returns the next requests, and `send_requests_together` sends them. `connector.listing.findings`
decides what the answers prove. The plan and the decision are pure functions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import numpy as np

from connector.listing.findings import (
    GROUP_FIELDS,
    ID_COUNT_AFTER_LAST_ROW,
    ID_LOOK_UP_TARGETS,
    Answer,
    EvidenceRequest,
    ListReading,
    RequestTarget,
    compute_id_step,
    contradicts_reading,
    decide_partition,
    find_hidden_groups,
    find_hidden_ids,
    find_list_end_of_id,
    find_present_ids,
    list_unshown_groups,
    read_round_counts,
    read_totals,
    select_answers,
)
from connector.listing.trials import (
    PARTITIONS,
    SAMPLE_ROW_COUNT,
    DrawBytes,
    RequestPage,
    have_requested_values,
    make_up_value,
)
from connector.paging.certificate import HiddenGroup, Order
from connector.paging.overlap import IdArray
from connector.service.wire import MAX_LIMIT, ListQuery

MAX_REQUESTS = 25
"""The largest number of requests for evidence of one reading."""

FindUnlistedEntries = Callable[[IdArray], Awaitable[Sequence[int]]]
"""A function with one argument: the listed ids, in ascending order. It returns Ids of confirmed ledger entries that are
not among the listed ids."""

_MAX_LISTED_BASES = 3  # number of listed bases that are counted: first the bases of the job, then the largest bases
_MAX_UNLISTED_BASES = 3  # number of bases that are counted although no row shows them
_ID_COUNT_BETWEEN_LISTED_IDS = 3  # number of gaps between listed ids in which one id is looked up
# Number of ids before the first row that are looked up. One id is enough, because a result window cuts off only the
# last rows.
_ID_COUNT_BEFORE_FIRST_ROW = 1
_FIRST_ENTRY_COUNT = 4  # number of ledger entries that are looked up before the combinations of groups of subscribers
_RESERVED_REQUEST_COUNT = 4  # number of requests that are reserved for repeated counts and repeated look-ups
# An end of the list is requested this many times, because one answer may come from a replica that lags.
_REQUEST_COUNT_PER_END = 2

_OVERLAP_ROW_COUNT = 500
"""A request for the end of the list begins this many rows before the end. If pages are small, the request begins half a
page before the end."""


async def gather_answers(request_page: RequestPage, reading: ListReading, concurrency: int) -> list[Answer]:
    """Send the requests that `plan_requests` returns, at most `concurrency` at a time. Repeat this until the
    function returns no request, and return all answers."""
    answers: list[Answer] = []
    while requests := plan_requests(reading, answers):
        answers += await send_requests_together(request_page, requests, concurrency)
    return answers


async def look_up_unlisted_entries(
    request_page: RequestPage, unlisted_entry_ids: Sequence[int], earlier_answers: Sequence[Answer], concurrency: int
) -> list[Answer]:
    """Look up ledger entries that the reading still lacks after the hidden groups of subscribers were read separately.
    All requests for evidence, including those of `earlier_answers`, are at most MAX_REQUESTS."""
    requests = _build_entry_requests(unlisted_entry_ids, earlier_answers)
    return await send_requests_together(
        request_page, requests[: max(0, MAX_REQUESTS - len(earlier_answers))], concurrency
    )


async def send_requests_together(
    request_page: RequestPage, requests: Sequence[EvidenceRequest], concurrency: int
) -> list[Answer]:
    """Send the requests, at most `concurrency` at a time, and return the answers in the order of the requests."""
    semaphore = asyncio.Semaphore(max(1, concurrency))

    async def send_request(request: EvidenceRequest) -> Answer:
        async with semaphore:
            return Answer(request, await request_page(request.query))

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(send_request(request)) for request in requests]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def request_combinations(
    request_page: RequestPage, combinations: Sequence[Sequence[HiddenGroup]], concurrency: int
) -> dict[tuple[HiddenGroup, ...], Sequence[dict[str, Any]]]:
    """Request each combination of groups of subscribers, at most `concurrency` at a time. Return the subscribers of the
    answers, by combination. Leave out combinations that show no subscriber."""
    requests = [
        EvidenceRequest(
            RequestTarget.COMBINATION,
            ListQuery(limit=SAMPLE_ROW_COUNT, **dict(combination)),  # type: ignore[arg-type] # each value has its field's type
            groups=tuple(combination),
        )
        for combination in combinations
    ]
    return {
        answer.request.groups: answer.page.subscribers
        for answer in await send_requests_together(request_page, requests, concurrency)
        if answer.page is not None
        and answer.page.subscribers
        and have_requested_values(dict(answer.request.groups), answer.page.subscribers)
    }


def draw_absent_values(filters: Collection[str], draw_bytes: DrawBytes) -> dict[str, object]:
    """Return a value that no subscriber has, for each filter. Leave out filters whose values are all in use."""
    absent_values = {field_name: make_up_value(field_name, draw_bytes) for field_name in filters}
    return {field_name: value for field_name, value in absent_values.items() if value is not None}


def plan_requests(reading: ListReading, answers: Sequence[Answer]) -> list[EvidenceRequest]:
    """Return the next requests, or an empty list if no further request is needed. All requests for evidence together
    are at most MAX_REQUESTS.

    The order of the requests is: counts, repeated counts if the counts contradict the list, look-ups by Id, second
    look-ups of ids that exist, combinations of groups of subscribers, and look-ups of more ledger entries. The look-ups
    get the requests that remain after the counts. If the list changes, each count may be requested up to three times.
    """
    if not answers:
        requests = _plan_count_requests(reading)
        # The look-ups need not wait for the counts if the list does not change, or if TotalCount is ignored.
        if reading.is_list_unchanged or not reading.is_total_checked:
            requests += _plan_look_ups(reading, len(requests))
        return requests
    requests = _plan_recount_requests(reading, answers)
    if not requests and not select_answers(answers, *ID_LOOK_UP_TARGETS) and not contradicts_reading(reading, answers):
        requests = _plan_look_ups(reading, len(answers))
    if not requests:
        requests = _plan_second_look_ups(reading, answers)
    if not requests or len(answers) + len(requests) > MAX_REQUESTS:
        requests = _plan_combination_requests(reading, answers)
        if not requests and not contradicts_reading(reading, answers) and not find_hidden_groups(reading, answers):
            requests = _build_entry_requests(reading.unlisted_entry_ids, answers)
    return requests[: MAX_REQUESTS - len(answers)]


def _plan_count_requests(reading: ListReading) -> list[EvidenceRequest]:
    field_names = [
        field_name for field_name in PARTITIONS if field_name not in {*reading.filters, *reading.skipped_partitions}
    ]
    requests = [_build_whole_list_request(reading, 0)]
    for field_name in field_names:
        requests += [
            EvidenceRequest(
                RequestTarget.QUERY_FILTER_WITH_PART_FILTER,
                _build_part_query(reading, {other_field_name: value, field_name: PARTITIONS[field_name][0]}),
                field_name,
                other_field_name,
            )
            for other_field_name, value in reading.absent_values.items()
        ]
        requests += _build_part_requests(reading, field_name, PARTITIONS[field_name], 0)
    return [
        *requests,
        *_build_part_requests(reading, "base_id", _choose_bases(reading), 0),
        _build_whole_list_request(reading, 0),
    ]


def _choose_bases(reading: ListReading) -> list[int]:
    """Return the ids of the bases to count: first the bases of the job, then the largest bases, then bases that no
    row shows. Return no id if one base has every row."""
    if reading.filters or "base_id" in reading.skipped_partitions:
        return []
    listed_base_ids = sorted(reading.row_count_by_base_id, key=lambda base_id: -reading.row_count_by_base_id[base_id])
    base_ids = sorted(listed_base_ids, key=lambda base_id: base_id not in (reading.base_ids or ()))[:_MAX_LISTED_BASES]
    unlisted_base_ids = [
        base_id for base_id in reading.unlisted_base_ids if base_id not in reading.row_count_by_base_id
    ]
    base_ids += unlisted_base_ids[:_MAX_UNLISTED_BASES]
    return base_ids if len(base_ids) > 1 or not listed_base_ids else []


def _plan_recount_requests(reading: ListReading, answers: Sequence[Answer]) -> list[EvidenceRequest]:
    """Return requests that count the subscribers with each value of one filter again, in the opposite order. The filter
    is the first filter whose counts must be repeated. Return no request if no count must be repeated.
    """
    for field_name in GROUP_FIELDS:
        rounds = read_round_counts(reading, field_name, answers)
        if rounds and decide_partition(reading, field_name, answers) is None:
            group_values = PARTITIONS.get(field_name) or _choose_bases(reading)
            round_index = len(rounds)
            values_in_request_order = group_values if round_index % 2 == 0 else group_values[::-1]
            return [
                *_build_part_requests(reading, field_name, values_in_request_order, round_index),
                _build_whole_list_request(reading, round_index),
            ]
    return []


def _plan_combination_requests(reading: ListReading, answers: Sequence[Answer]) -> list[EvidenceRequest]:
    """Return requests for the bases of the load that no row shows, and requests for combinations of groups of
    subscribers.

    A subscriber may belong to two hidden groups, for example if it is inactive and has no gender. Only a request for
    both groups shows this subscriber. If a request has shown a hidden group, the group is combined only with bases
    without a listed row."""
    if select_answers(answers, RequestTarget.COMBINATION) or contradicts_reading(reading, answers):
        return []
    base_ids = () if "base_id" in reading.filters else reading.base_ids or ()
    unshown_groups = list_unshown_groups(reading, answers)
    groups_of_unlisted_bases: list[HiddenGroup] = [
        ("base_id", base_id) for base_id in base_ids if base_id not in reading.row_count_by_base_id
    ]
    groups_of_bases = {*groups_of_unlisted_bases, *(group for group in unshown_groups if group[0] == "base_id")}
    groups = dict.fromkeys([*unshown_groups, *find_hidden_groups(reading, answers), *groups_of_unlisted_bases])
    # A load needs only the subscribers of its bases.
    is_every_base_unlisted = 0 < len(base_ids) == len(groups_of_unlisted_bases)
    combinations = [
        combination
        for combination in combine_groups(list(groups), min_size=2)
        if not groups_of_bases.isdisjoint(combination)
        or (set(unshown_groups).issuperset(combination) and not is_every_base_unlisted)
    ]
    return [
        EvidenceRequest(RequestTarget.COMBINATION, _build_part_query(reading, dict(combination)), groups=combination)
        for combination in [*((group_of_base,) for group_of_base in groups_of_unlisted_bases), *combinations]
    ]


def combine_groups(groups: Sequence[HiddenGroup], min_size: int = 1) -> list[tuple[HiddenGroup, ...]]:
    """Return the combinations of at least `min_size` of these groups, the small combinations first. A combination has
    at most one group of each field.

    Every subscriber is active or inactive. So if `groups` has both values and `min_size` is more than one, each
    combination has one of these values: (active, male, base 7) and (inactive, male, base 7), but not (male, base 7).
    The three values of gender are treated in the same way.
    """
    field_names = list(dict.fromkeys(field_name for field_name, _ in groups))
    group_options_per_field = list[list[HiddenGroup | None]]()
    for field_name in field_names:
        groups_of_field = [group for group in groups if group[0] == field_name]
        has_all_values = len(groups_of_field) == len(PARTITIONS.get(field_name, ())) > 0
        group_options_per_field.append(
            [*groups_of_field] if has_all_values and min_size > 1 else [None, *groups_of_field]
        )
    combinations = [
        tuple(group for group in combination if group is not None) for combination in product(*group_options_per_field)
    ]
    return sorted((combination for combination in combinations if len(combination) >= min_size), key=len)


def _plan_look_ups(reading: ListReading, request_count: int) -> list[EvidenceRequest]:
    """Return look-ups of ids, and of a few ledger entries. Return no more look-ups than MAX_REQUESTS allows after
    `request_count` requests."""
    requests = _plan_id_look_ups(reading)[: MAX_REQUESTS - request_count]
    remaining_request_count = max(0, MAX_REQUESTS - _RESERVED_REQUEST_COUNT - request_count - len(requests))
    unlisted_entry_ids = reading.unlisted_entry_ids[: min(remaining_request_count, _FIRST_ENTRY_COUNT)]
    return [*_build_entry_requests(unlisted_entry_ids, ()), *requests]


def _plan_id_look_ups(reading: ListReading) -> list[EvidenceRequest]:
    """Return look-ups of a listed id, of ids beyond both ends, and of ids that are missing between listed ids."""
    ids = reading.ids
    if reading.filters or not len(ids):
        return []
    id_step, is_descending = compute_id_step(ids), reading.certificate.order is Order.ID_DESC
    smallest_id, largest_id = int(ids[0]), int(ids[-1])
    smaller_id_count, larger_id_count = _ID_COUNT_BEFORE_FIRST_ROW, ID_COUNT_AFTER_LAST_ROW
    if is_descending:
        smaller_id_count, larger_id_count = larger_id_count, smaller_id_count
    ids_beyond_ends = [
        *(largest_id + id_step * step_number for step_number in range(1, larger_id_count + 1)),
        *(smallest_id - id_step * step_number for step_number in range(1, smaller_id_count + 1)),
    ]
    return [
        _build_id_request(RequestTarget.KNOWN_SUBSCRIBER, int(ids[len(ids) // 2])),
        *(
            _build_id_request(RequestTarget.BEYOND_ID, subscriber_id)
            for subscriber_id in ids_beyond_ends
            if subscriber_id > 0
        ),
        *(
            _build_id_request(RequestTarget.MISSING_ID, subscriber_id)
            for subscriber_id in _choose_missing_ids(ids, id_step, reading.seed)
        ),
    ]


def _choose_missing_ids(ids: IdArray, id_step: int, seed: bytes) -> list[int]:
    """Return a few ids that are missing between listed ids. Each id is from another gap."""
    id_distances = np.diff(ids)
    gap_indexes, random_generator = np.flatnonzero(id_distances > id_step).tolist(), Random(seed)  # noqa: S311 - a choice, not a secret
    chosen_gap_indexes = random_generator.sample(gap_indexes, min(_ID_COUNT_BETWEEN_LISTED_IDS, len(gap_indexes)))
    return [
        int(ids[gap_index]) + id_step * random_generator.randrange(1, int(id_distances[gap_index]) // id_step)
        for gap_index in chosen_gap_indexes
    ]


def _plan_second_look_ups(reading: ListReading, answers: Sequence[Answer]) -> list[EvidenceRequest]:
    """Return requests that show whether an unlisted id belongs to a newcomer or to a hidden subscriber.

    An id between listed ids is looked up once more. For an id beyond the listed ids, the end of the list is read again.
    If the end shows the id, the subscriber is a newcomer."""
    sent_requests = [answer.request for answer in answers]
    requests = []
    for subscriber_id in sorted(find_present_ids(reading, answers, RequestTarget.MISSING_ID)):
        request = _build_id_request(RequestTarget.MISSING_ID, subscriber_id, 1)
        requests += [request] if request not in sent_requests else []
    if reading.certificate.order not in (Order.ID, Order.ID_DESC) and len(reading.ids):
        return requests
    ends_to_read = set[str]()
    if not any(request.target is RequestTarget.END for request in sent_requests):
        ends_to_read |= {
            find_list_end_of_id(reading, subscriber_id)
            for subscriber_id in find_present_ids(reading, answers, RequestTarget.BEYOND_ID)
        }
        if max(read_totals(answers), default=0) > (reading.certificate.total_last or 0):
            ends_to_read.add("above")  # the list has grown, and newcomers have the largest ids
    indexes_of_end_requests = [
        index for index, request in enumerate(sent_requests) if request.target is RequestTarget.END
    ]
    later_answers = answers[max(indexes_of_end_requests, default=-1) + 1 :]
    for answer in select_answers(later_answers, RequestTarget.PART, RequestTarget.COMBINATION):
        hidden_ids = find_hidden_ids(reading, answer, answers).tolist()
        if any(find_list_end_of_id(reading, hidden_id) == "above" for hidden_id in hidden_ids):
            ends_to_read.add("above")
    for list_end in sorted(ends_to_read):
        is_tail = list_end == ("above" if reading.certificate.order is Order.ID else "below")
        overlap_row_count = min(_OVERLAP_ROW_COUNT, reading.page_size // 2)
        offset = max(0, reading.certificate.distinct - overlap_row_count) if is_tail else 0
        query = replace(reading.query, offset=offset, limit=MAX_LIMIT - 1)
        requests += [EvidenceRequest(RequestTarget.END, query, value=list_end)] * _REQUEST_COUNT_PER_END
    return requests


def _build_whole_list_request(reading: ListReading, round_index: int) -> EvidenceRequest:
    """Return the request for the whole list. In round 0, a list of one page is read again. Otherwise, the answer has
    TotalCount and a few rows. The limit differs from the limit of the reading, so that no cache returns an old
    answer."""
    limit = reading.query.limit
    is_one_page = reading.certificate.distinct <= limit
    query = replace(
        reading.query, offset=0, limit=max(1, limit - 1) if is_one_page and not round_index else SAMPLE_ROW_COUNT
    )
    return EvidenceRequest(RequestTarget.WHOLE_LIST, query, round_index=round_index)


def _build_part_requests(
    reading: ListReading, field_name: str, values: Sequence[object], round_index: int
) -> list[EvidenceRequest]:
    return [
        EvidenceRequest(
            RequestTarget.PART, _build_part_query(reading, {field_name: value}), field_name, value, round_index
        )
        for value in values
    ]


def _build_id_request(target: RequestTarget, subscriber_id: int, round_index: int = 0) -> EvidenceRequest:
    return EvidenceRequest(
        target, ListQuery(limit=SAMPLE_ROW_COUNT, id=subscriber_id), "id", subscriber_id, round_index
    )


def _build_entry_requests(entry_ids: Sequence[int], answers: Sequence[Answer]) -> list[EvidenceRequest]:
    """Return look-ups of these ledger entries. Leave out the entries whose look-ups have an answer in `answers`."""
    looked_up_ids = {answer.request.value for answer in select_answers(answers, RequestTarget.UNLISTED_ENTRY)}
    return [
        _build_id_request(RequestTarget.UNLISTED_ENTRY, entry_id)
        for entry_id in entry_ids
        if entry_id not in looked_up_ids
    ]


def _build_part_query(reading: ListReading, values: Mapping[str, object]) -> ListQuery:
    return replace(reading.query, offset=0, limit=SAMPLE_ROW_COUNT, **values)  # type: ignore[arg-type] # each value has its field's type
