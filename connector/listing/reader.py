"""Reads the whole list, page by page, into a sink, and certifies the reading (architecture 7).

`connector.paging` decides which page comes next and what the pages prove. The sink interprets the rows.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Generic

from connector.listing.dispatching import GroupDispatcher, ListProgress, PageDispatcher
from connector.listing.evidence import (
    FindUnlistedEntries,
    combine_groups,
    draw_absent_values,
    gather_answers,
    look_up_unlisted_entries,
)
from connector.listing.findings import (
    Answer,
    ListReading,
    RequestTarget,
    decide_evidence,
    find_hidden_groups,
    list_unshown_groups,
    select_answers,
)
from connector.listing.pages import (
    WIRE_FORM,
    ListFailed,
    PageFetcher,
    PageSink,
    ReceivedPage,
    RowForm,
    read_pages,
    try_fetch_page,
)
from connector.listing.trials import (
    FilterTrials,
    RequestPage,
    RowMatcher,
    build_row_matcher,
    find_still_listed_ids,
    try_filters,
)
from connector.pace.concurrency import ConcurrencyLimit
from connector.paging.certificate import (
    Certificate,
    CertificateReason,
    CertificateVerdict,
    CutOff,
    EvidenceResult,
    Finding,
    HiddenGroup,
    decide_cut_off,
)
from connector.paging.overlap import IdSet
from connector.paging.pager import Pager
from connector.service.client import Client
from connector.service.retry import Retrier
from connector.service.wire import ListQuery, Rows

MAX_IN_FLIGHT = 32
"""The largest number of pages in flight. Each page takes about a megabyte, as bytes and as columns."""

LIST_CONNECTION_COUNT = MAX_IN_FLIGHT + 8
"""Connections for the pages in flight, and for pages that were dropped a moment ago."""

_FIRST_REQUESTS_IN_FLIGHT = 10
"""The number of pages in flight at the beginning. Latency alone does not reduce the number of pages below this
number."""

_MIN_PAGES_PER_ROUND = 4
"""The latency of the service is the mean time of at least this number of pages."""

SMALLEST_WINDOW = 50
"""The smallest number of rows at which a service may cut its list off. The number is the default limit of a page
(service-api.md 8)."""

_SEED_BYTES = 8


async def read_list(
    client: Client,
    retrier: Retrier,
    query: ListQuery,
    sink: PageSink[Rows],
    *,
    row_form: RowForm[Rows] = WIRE_FORM,  # type: ignore[assignment] # no other default is known for a form
    now: Callable[[], datetime],
    on_progress: Callable[[ListProgress], None] | None = None,
    max_concurrency: int = MAX_IN_FLIGHT,
    reads_ahead: bool = True,
    ignore_total_count: bool = False,
    allow_truncated: bool = False,
    find_unlisted_entries: FindUnlistedEntries | None = None,
    base_ids: Sequence[int] | None = None,
    unlisted_base_ids: Sequence[int] = (),
    known_hidden_groups: Sequence[HiddenGroup] = (),
    earlier_total: int | None = None,
    draw_bytes: Callable[[int], bytes] = os.urandom,
    monotonic: Callable[[], float] = time.monotonic,
) -> Certificate:
    """Read all subscribers that match `query` into `sink`, and certify whether the reading is complete (service-api.md
    4.3).

    Each filter of the query is tried first, with a listed subscriber and with a made-up value. One filter that works is
    sent; without such a filter, the whole list is read. Rows that do not match all filters are left out, and counted in
    the certificate's `filters`.

    If the sweeps prove a complete reading, further requests check whether the service hides subscribers (architecture
    7, rule 7). Hidden groups are read separately, and passed to the sink after the last sweep.

    - `query.limit` is the size of a page; `query.offset` must be 0 (ValueError).
    - `row_form` is the form of the sink's rows, by default wire objects.
    - `now` returns the time with its zone; `monotonic` returns seconds, which measure the latency.
    - `max_concurrency`: at most this many requests are in flight, and at most MAX_IN_FLIGHT.
    - `reads_ahead`: fetch pages ahead while the list does not change, as far as latency and refusals allow.
    - `ignore_total_count`: accept a list as complete if only its TotalCount disagrees.
    - `allow_truncated`: accept a list that may be cut off as complete if no evidence contradicts the list.
    - `find_unlisted_entries` returns ids of ledger entries that the list should show and lacks.
    - `base_ids` are the known Ids of a load's bases; None: every base.
    - `unlisted_base_ids` are bases that are counted even if no row shows them.
    - `known_hidden_groups`: groups that are known to be hidden.
    - `earlier_total`: TotalCount shortly before the reading.
    - `draw_bytes` returns random bytes.

    Raises ListFailed if a page cannot be read, and the errors of the sink.
    """
    if query.offset:
        raise ValueError("The query's offset must be 0, because a list is read from its beginning.")
    started_at, filters, request_page = now(), list_filters(query), partial(try_fetch_page, client, retrier)
    filter_trials = FilterTrials({}, None, frozenset())
    if filters:
        filter_trials = await try_filters(request_page, filters, draw_bytes)
        query = replace(query, **{name: None for name in filters if name != filter_trials.sent_filter_name})  # type: ignore[arg-type]
    row_matcher = build_row_matcher(filters)
    concurrency_limit = ConcurrencyLimit(
        min(max_concurrency, MAX_IN_FLIGHT),
        first_limit=_FIRST_REQUESTS_IN_FLIGHT,
        min_limit_in_slow_rounds=_FIRST_REQUESTS_IN_FLIGHT,
        min_answers_in_round=_MIN_PAGES_PER_ROUND,
    )
    reader = _SweepReader(
        client,
        retrier,
        request_page,
        sink,
        row_form,
        row_matcher,
        concurrency_limit,
        now,
        monotonic,
        draw_bytes,
        reads_ahead=reads_ahead,
        ignores_total_count=ignore_total_count,
    )
    dispatcher = PageDispatcher(sink, row_form, row_matcher, on_progress, filter_trials.expected_ids)
    pager = await reader.read_sweeps(query, dispatcher.dispatch)
    filter_reports = await _record_filters(request_page, filters, filter_trials, dispatcher) if filters else {}
    certificate = pager.certify(started_at, now(), filter_reports)
    if certificate.is_complete and filter_reports.get("missed"):
        return replace(certificate, verdict=CertificateVerdict.INCOMPLETE, reason=CertificateReason.FILTER)
    if not certificate.is_complete:
        return certificate
    sent_filters = list_filters(query)
    list_reading = ListReading(
        certificate,
        query,
        sent_filters,
        pager.ids,
        page_size=pager.page_size,
        group_counts=dispatcher.group_counts,
        base_ids=base_ids,
        unlisted_base_ids=unlisted_base_ids,
        earlier_total=earlier_total,
        unlisted_entry_ids=[] if find_unlisted_entries is None else await find_unlisted_entries(pager.ids),
        seed=draw_bytes(_SEED_BYTES),
        absent_values=draw_absent_values(sent_filters, draw_bytes),
    )
    answers = await gather_answers(request_page, list_reading, concurrency_limit.allowed_count)
    groups = dict.fromkeys([*known_hidden_groups, *find_hidden_groups(list_reading, answers)])
    list_reading = replace(
        list_reading,
        certificate=replace(certificate, unshown_groups=tuple(list_unshown_groups(list_reading, answers))),
        hidden_groups=tuple(group for group in groups if group[0] not in sent_filters),
    )
    hidden_group_findings = list[Finding]()
    if list_reading.hidden_groups:
        list_reading, hidden_group_findings = await reader.read_hidden_groups(
            list_reading, answers, dispatcher.group_counts
        )
        unlisted_entry_ids = [] if find_unlisted_entries is None else await find_unlisted_entries(list_reading.ids)
        answers += await look_up_unlisted_entries(
            request_page, unlisted_entry_ids, answers, concurrency_limit.allowed_count
        )
    findings = [*decide_evidence(list_reading, answers), *hidden_group_findings]
    certificate = replace(list_reading.certificate, finished_at=now())
    return decide_cut_off(certificate, findings, accepts_possible_cut_off=allow_truncated)


async def _has_same_total(request_page: RequestPage, reading: ListReading, answers: Sequence[Answer]) -> bool:
    """Request TotalCount once more. Return whether TotalCount is still the same as in the reading and in the `answers`
    for the whole list."""
    page = await request_page(replace(reading.query, limit=1))
    totals = {answer.total_count for answer in select_answers(answers, RequestTarget.WHOLE_LIST)}
    totals |= {reading.certificate.total_first, None if page is None else page.total_count}
    return totals == {reading.certificate.total_last}


@dataclass(frozen=True, slots=True)
class _GroupsResult:
    """The result of a separate reading of hidden groups of subscribers."""

    page_count: int
    problem: str = ""  # the reason why the reading proves nothing, or "" for a complete reading
    hidden_groups: Sequence[HiddenGroup] = ()
    """Groups that this reading does not show either. Some subscribers belong to two hidden groups, and only a request
    for both groups shows them."""


@dataclass(frozen=True, slots=True)
class _SweepReader(Generic[Rows]):
    """Reads a list into one sink: one or several sweeps (readings of the whole list), then the groups of subscribers
    that the list hides."""

    client: Client
    retrier: Retrier
    request_page: RequestPage
    sink: PageSink[Rows]
    row_form: RowForm[Rows]
    row_matcher: RowMatcher | None
    concurrency_limit: ConcurrencyLimit
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    draw_bytes: Callable[[int], bytes]
    reads_ahead: bool
    ignores_total_count: bool

    async def read_sweeps(self, query: ListQuery, dispatch: Callable[[ReceivedPage[Rows]], None]) -> Pager:
        """Read the list until the pager has a verdict, and pass each page to `dispatch`."""
        pager = Pager(query.limit, ignores_total_count=self.ignores_total_count, reads_ahead=self.reads_ahead)
        async with (
            PageFetcher(
                self.client, self.retrier, query, self.row_form, self.concurrency_limit, self.monotonic
            ) as fetcher,
            aclosing(read_pages(fetcher, pager, self.row_form, self.concurrency_limit)) as pages,
        ):
            async for page in pages:
                dispatch(page)
        return pager

    async def read_hidden_groups(
        self, reading: ListReading, answers: Sequence[Answer], group_counts: dict[str, Counter[object]]
    ) -> tuple[ListReading, list[Finding]]:
        """Read each hidden group of subscribers, and each combination of hidden groups, separately (architecture 7,
        rule 7). Return the reading with all subscribers, and a finding for each separate reading that may be
        incomplete."""
        listed_id_set = IdSet()
        listed_id_set.add(reading.ids)
        largest_total = max((answer.total_count or 0 for answer in answers), default=0)
        pending_combinations = combine_groups(reading.hidden_groups)
        hidden_group_findings = list[Finding]()
        while pending_combinations:
            group_filters = dict(pending_combinations.pop(0))
            group_dispatcher = GroupDispatcher(
                self.sink, self.row_form, self.row_matcher, group_filters, listed_id_set, group_counts
            )
            groups_result = await self._read_groups(reading, group_dispatcher, largest_total)
            certificate = replace(reading.certificate, pages=reading.certificate.pages + groups_result.page_count)
            new_groups = [group for group in groups_result.hidden_groups if group not in reading.hidden_groups]
            hidden_groups = (*reading.hidden_groups, *new_groups)
            reading = replace(reading, certificate=certificate, hidden_groups=hidden_groups)
            if new_groups:  # the new groups of subscribers make new combinations, so all combinations are read again
                pending_combinations, hidden_group_findings = combine_groups(hidden_groups), []
                continue
            if groups_result.problem:
                hidden_group_findings.append(Finding("hidden", EvidenceResult.CONTRADICTS, groups_result.problem))
            is_last_reading = bool(group_filters) and not pending_combinations
            if is_last_reading and not await _has_same_total(self.request_page, reading, answers):
                # A subscriber may have changed the group between two readings, so the whole list is read again.
                pending_combinations.append(())
        ids = listed_id_set.to_array()
        certificate = replace(reading.certificate, distinct=len(ids), hidden=reading.hidden_groups)
        return replace(reading, certificate=certificate, ids=ids), hidden_group_findings

    async def _read_groups(
        self, reading: ListReading, group_dispatcher: GroupDispatcher[Rows], largest_total: int
    ) -> _GroupsResult:
        """Read the subscribers of hidden groups by the filters of `group_dispatcher`, or the whole list without filters
        (architecture 7, rule 7)."""
        query = replace(reading.query, **group_dispatcher.filters)  # type: ignore[arg-type] # each value has its field's type
        started_at = self.now()
        filters_text = ", ".join(f"{name}={value}" for name, value in group_dispatcher.filters.items())
        try:
            pager = await self.read_sweeps(query, group_dispatcher.dispatch)
        except ListFailed as failure:
            if not failure.is_query_refused:
                raise
            return _GroupsResult(0, f"the service refused the filter {filters_text}")
        certificate, hidden_groups = pager.certify(started_at, self.now()), list[HiddenGroup]()
        if group_dispatcher.has_other_groups:
            return _GroupsResult(certificate.pages, f"the filter {filters_text} lists other subscribers as well")
        if certificate.is_complete and group_dispatcher.filters:
            filters = {**reading.filters, **group_dispatcher.filters}
            groups_reading = ListReading(
                certificate,
                query,
                filters,
                pager.ids,
                page_size=pager.page_size,
                group_counts=group_dispatcher.group_counts_of_this_reading,
                skipped_partitions={name for name, _ in reading.hidden_groups},
                seed=self.draw_bytes(_SEED_BYTES),
                absent_values=draw_absent_values(filters, self.draw_bytes),
            )
            answers = await gather_answers(self.request_page, groups_reading, self.concurrency_limit.allowed_count)
            hidden_groups = find_hidden_groups(groups_reading, answers)
            certificate = decide_cut_off(
                certificate, decide_evidence(groups_reading, answers), accepts_possible_cut_off=False
            )
        if not certificate.is_complete:
            problem = f"the list with {filters_text} was not read completely ({certificate.reason})"
            return _GroupsResult(certificate.pages, problem, hidden_groups)
        # A result window may cut off both the list and the group of subscribers.
        # In this case, both have the same number of rows, and no TotalCount is larger.
        has_size_of_list = certificate.distinct == reading.certificate.distinct >= max(SMALLEST_WINDOW, largest_total)
        may_be_cut_off = (
            has_size_of_list and bool(group_dispatcher.filters) and certificate.cut_off is not CutOff.EXCLUDED
        )
        return _GroupsResult(
            certificate.pages, f"the list with {filters_text} may be cut off" if may_be_cut_off else ""
        )


async def _record_filters(
    request_page: RequestPage,
    filters: Mapping[str, object],
    filter_trials: FilterTrials,
    dispatcher: PageDispatcher[Rows],
) -> dict[str, Any]:
    """Return the value of `filters` in the certificate: the results of the filters of a reading."""
    filter_record: dict[str, Any] = {
        "asked": filters,
        "dropped": dispatcher.dropped_row_count,
        "sent": filter_trials.sent_filter_name,
        "controls": filter_trials.trial_result_by_field,
    }
    # A subscriber that the filter did not list may have left the list. So the filter counts as having missed only
    # subscribers that the list still shows.
    if filter_trials.sent_filter_name is not None and (
        still_listed_ids := await find_still_listed_ids(request_page, filters, dispatcher.missing_ids)
    ):
        filter_record["missed"] = len(still_listed_ids)
    return filter_record


def list_filters(query: ListQuery) -> dict[str, object]:
    """Return the values of the query's filters, by field name (connector/fields.py)."""
    return {
        name: value for name, value in asdict(query).items() if value is not None and name not in ("offset", "limit")
    }
