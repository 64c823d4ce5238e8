"""Finds the bases and groups of subscribers that the list hides. The list shows a hidden group only to a request for
the group (architecture 4.7).

A load that looks subscribers up by filters alone never reads the list. Filters leave out the same groups as the list.
So the load counts the subscribers of each group before it uses filters. Without these counts, a filter does not prove
absence.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from connector.fields import FIELD_BY_NAME
from connector.listing.access import ListAccess, LookupState
from connector.listing.base_reader import BaseReader, build_reader
from connector.listing.evidence import combine_groups, request_combinations, send_requests_together
from connector.listing.findings import EvidenceRequest, RequestTarget
from connector.listing.pages import ListFailed, try_fetch_page
from connector.listing.requests import look_up, read_list_stats, request_rows, try_filters_with_unlisted_ids
from connector.listing.trials import PARTITIONS, SAMPLE_ROW_COUNT, RequestPage, have_requested_values
from connector.paging.certificate import EvidenceResult, HiddenGroup, RoundCounts, compare_counts
from connector.service.wire import MAX_LIMIT, ListQuery, read_field


async def find_hidden_base(access: ListAccess, *, has_read_list: bool = False) -> bool | None:
    """Return whether the list shows the base only to a request with its BaseId. Return None if the list has not shown
    the base and the Id of the base is not known.

    If the list hides the base, change the state of `access`: later sweeps send the BaseId, and filters are not used.

    Set `has_read_list` if a complete sweep has just shown no subscriber of the base. Otherwise, the identity filter is
    tried, too. If the filter finds a subscriber of the base, the base is not hidden. Raises ListFailed, and RunAborted
    if the base is not the intended base or the run must stop.
    """
    state, base_id = access.state, access.ledger_writer.base.service_id
    if state.base_id is not None or access.is_base_shown:
        return state.base_id is not None
    reader, list_stats = build_reader(access, [access.policy.identity_field]), await read_list_stats(access)
    if any(reader.is_of_base({"Id": listed_id, "Name": name}) for listed_id, name in list_stats.bases):
        access.is_base_shown = True
        return False
    if base_id is None:
        return None
    if has_read_list and base_id in state.swept_base_ids:
        return False
    rows = await access.stop.wait_until_stopped(_request_base_rows(access, base_id))
    rows = [row for row in rows if reader.is_of_base(row.get("Base"))]
    confirmed_creates_by_id = {create.subscriber_id: create for create in access.confirmed_creates}
    rows_not_created_by_run = [row for row in rows if row["Id"] not in confirmed_creates_by_id]
    if not rows_not_created_by_run:
        rows_not_created_by_run = await access.stop.wait_until_stopped(_request_group_rows(access, base_id))
    if not rows_not_created_by_run or (has_read_list and await _shows_base(access, reader)):
        return False
    field_name, identity_key = access.policy.identity_field, FIELD_BY_NAME[access.policy.identity_field].path[0]
    sample = next((row for row in rows_not_created_by_run if row.get(identity_key)), None)
    if sample is not None and not has_read_list:
        answer = await access.stop.wait_until_stopped(look_up(access, field_name, sample[identity_key]))
        if answer.has_subscriber(sample["Id"]):
            access.is_base_shown = True
            return False
    confirmed_creates = [confirmed_creates_by_id[row["Id"]] for row in rows if row["Id"] in confirmed_creates_by_id]
    for confirmed_create in confirmed_creates:
        access.confirmed_creates.remove(confirmed_create)
    access.state = LookupState(
        confirmed_creates=deque(confirmed_creates, maxlen=access.confirmed_creates.maxlen),
        largest_lag_s=state.largest_lag_s,
        base_id=base_id,
        unusable_fields={"email", "client_user_id"},
        shown_subscribers=state.shown_subscribers,
        subscribers_of_other_bases=state.subscribers_of_other_bases,
    )
    return True


async def _shows_base(access: ListAccess, reader: BaseReader) -> bool:
    """Return whether the first or the last page of the list shows a subscriber of the base. Other runs may have created
    the first subscribers of the base after the sweep. Record the result."""
    access.state.list_stats = None  # the stats of the sweep are out of date
    list_stats = await read_list_stats(access)
    last_rows_query = ListQuery(offset=max(0, (list_stats.total_count or 0) - SAMPLE_ROW_COUNT), limit=SAMPLE_ROW_COUNT)
    rows = (await access.stop.wait_until_stopped(request_rows(access, last_rows_query))).rows
    bases = [*({"Id": base_id, "Name": name} for base_id, name in list_stats.bases), *(row.get("Base") for row in rows)]
    access.is_base_shown = any(reader.is_of_base(base) for base in bases)
    return access.is_base_shown


async def _request_base_rows(access: ListAccess, base_id: int) -> Sequence[dict[str, Any]]:
    """Return the first subscribers that the list shows with this BaseId. Return no subscriber after a 404, because a
    service may refuse an unknown Id."""
    try:
        return (await request_rows(access, ListQuery(limit=SAMPLE_ROW_COUNT, base_id=base_id))).rows
    except ListFailed as failure:
        if failure.status != 404:
            raise
        return ()


async def _request_group_rows(access: ListAccess, base_id: int) -> list[dict[str, Any]]:
    """Return subscribers of the base that the list shows only to a request for both the base and a hidden group. Leave
    out the subscribers that this run has created.
    """
    groups = tuple(dict.fromkeys([*access.state.hidden_groups, *access.state.unshown_groups]))
    group_of_base = "base_id", base_id
    combinations = [
        combination
        for combination in combine_groups([*groups, group_of_base], min_size=2)
        if group_of_base in combination
    ]
    request_first_page = partial(try_fetch_page, access.client, access.retrier)
    rows_by_combination = await request_combinations(request_first_page, combinations, access.policy.max_concurrency)
    rows = [
        row
        for combination_rows in rows_by_combination.values()
        for row in combination_rows
        if type(row.get("Id")) is int
    ]
    access.record_shown_ids([row["Id"] for row in rows])
    confirmed_create_ids = {create.subscriber_id for create in access.confirmed_creates}
    return [row for row in rows if row["Id"] not in confirmed_create_ids]


async def record_hidden_groups(access: ListAccess, *, is_repeated: bool = False) -> tuple[HiddenGroup, ...]:
    """Return the groups of subscribers that the list hides, and record these groups in the state of the look-ups. A run
    counts the subscribers of each group once. With `is_repeated`, the run counts the subscribers again, because a
    create of this run may be the first create of its group."""
    state = access.state
    if not state.are_groups_known or (is_repeated and not state.hidden_groups):
        request_page = partial(try_fetch_page, access.client, access.retrier)
        concurrency = access.policy.max_concurrency
        group_counts = await access.stop.wait_until_stopped(count_groups(request_page, concurrency))
        hidden_groups = await access.stop.wait_until_stopped(
            find_hidden_groups(request_page, group_counts, concurrency)
        )
        unlisted_ids = await access.stop.wait_until_stopped(_find_older_ids(request_page, group_counts.ids))
        await access.stop.wait_until_stopped(try_filters_with_unlisted_ids(access, unlisted_ids))
        state.hidden_groups = tuple(dict.fromkeys([*state.hidden_groups, *hidden_groups]))
        state.unshown_groups = group_counts.unshown_groups
        state.are_groups_known = True
    return state.hidden_groups


async def find_hidden_groups(
    request_page: RequestPage, group_counts: "GroupCounts", concurrency: int
) -> list[HiddenGroup]:
    """Return the groups of subscribers that the list shows only to a request for one or several groups.

    A group is hidden if the first page has none of its subscribers, and if the counts of all groups of the same field
    add up to more than the count of the whole list. If the list has no TotalCount, only the rows of the first page
    decide."""
    hidden_groups = list[HiddenGroup]()
    for field_name, count_by_value in group_counts.part_totals.items():
        totals = group_counts.whole_list_totals
        if len(totals) < 2 or sum(count_by_value.values()) > min(totals):
            hidden_groups += [
                (field_name, value)
                for value, count in count_by_value.items()
                if count and value not in group_counts.shown_values[field_name]
            ]
    rows_by_combination = await request_combinations(
        request_page, combine_groups(group_counts.unshown_groups, min_size=2), concurrency
    )
    return list(dict.fromkeys([*hidden_groups, *(group for groups in rows_by_combination for group in groups)]))


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """Counts of the whole list and of its groups of subscribers."""

    whole_list_totals: Sequence[int] = ()  # TotalCount of the whole list, before and after the counts of its groups
    part_totals: Mapping[str, Mapping[object, int]] = field(default_factory=dict)
    """TotalCount of each group of subscribers, by filter and value. Answers whose rows do not match the filter are left
    out."""
    # The values that the rows of the first page have, by filter.
    shown_values: Mapping[str, Collection[object]] = field(default_factory=dict)
    ids: Sequence[object] = ()  # the Ids on the first page

    @property
    def unshown_groups(self) -> tuple[HiddenGroup, ...]:
        """The groups without a known subscriber: neither the first page nor a request for the group shows a subscriber
        of the group."""
        return tuple(
            (field_name, value)
            for field_name, count_by_value in self.part_totals.items()
            for value, count in count_by_value.items()
            if not count and value not in self.shown_values[field_name]
        )

    def compare_with_total(self, field_name: str) -> EvidenceResult:
        """Compare the counts of one filter's values with the size of the list, and return the result. The list is
        assumed to be unchanged."""
        if len(self.whole_list_totals) < 2 or len(self.part_totals.get(field_name, {})) < len(PARTITIONS[field_name]):
            return EvidenceResult.NOTHING
        total_before_parts, total_after_parts = self.whole_list_totals
        part_counts = list(self.part_totals[field_name].values())
        round_counts = RoundCounts(part_counts, (total_before_parts, total_after_parts))
        return compare_counts([round_counts], True, ()) or EvidenceResult.CONTRADICTS


async def count_groups(request_page: RequestPage, concurrency: int) -> GroupCounts:
    """Count the subscribers of each group and of the whole list with seven requests, at most `concurrency` at a
    time."""
    requests = [
        EvidenceRequest(RequestTarget.WHOLE_LIST, ListQuery(limit=MAX_LIMIT - 1)),
        *(
            EvidenceRequest(
                RequestTarget.PART,
                ListQuery(limit=SAMPLE_ROW_COUNT, **{field_name: value}),  # type: ignore[arg-type]
                field_name,
                value,
            )
            for field_name, values in PARTITIONS.items()
            for value in values
        ),
        EvidenceRequest(RequestTarget.WHOLE_LIST, ListQuery(limit=SAMPLE_ROW_COUNT)),
    ]
    first_whole_list_answer, *part_answers, last_whole_list_answer = await send_requests_together(
        request_page, requests, concurrency
    )
    if first_whole_list_answer.page is None:
        return GroupCounts()
    part_totals: dict[str, dict[object, int]] = {field_name: {} for field_name in PARTITIONS}
    for part_answer in part_answers:
        field_name, value = part_answer.request.field_name, part_answer.request.value
        if part_answer.page is not None and have_requested_values({field_name: value}, part_answer.page.subscribers):
            part_totals[field_name][value] = (
                (part_answer.total_count or len(part_answer.page.subscribers)) if part_answer.page.subscribers else 0
            )
    rows = first_whole_list_answer.page.subscribers
    shown_values = {
        field_name: {read_field(row, field_name) or ("" if field_name == "gender" else False) for row in rows}
        for field_name in PARTITIONS
    }
    whole_list_totals = [
        total_count
        for total_count in (first_whole_list_answer.total_count, last_whole_list_answer.total_count)
        if total_count is not None
    ]
    return GroupCounts(whole_list_totals, part_totals, shown_values, [row.get("Id") for row in rows])


async def _find_older_ids(request_page: RequestPage, ids: Sequence[object]) -> list[int]:
    """Look up the id just before the first of these ids, such as 41 for [42, 50]. Return a list with this id, or an
    empty list if no subscriber has the id. If the ids are not in ascending order, or the first id is 1, return an empty
    list without a look-up."""
    integer_ids = [subscriber_id for subscriber_id in ids if type(subscriber_id) is int]
    if not integer_ids or integer_ids != sorted(integer_ids) or integer_ids[0] <= 1:
        return []
    older_id = integer_ids[0] - 1
    page = await request_page(ListQuery(limit=SAMPLE_ROW_COUNT, id=older_id))
    return [older_id] if page is not None and [row.get("Id") for row in page.subscribers] == [older_id] else []
