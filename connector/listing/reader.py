"""Reads the whole list, page by page, into a sink, and certifies the reading (architecture 7).

`connector.paging` decides which page comes next and what the pages prove. The sink interprets the rows.
"""

import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import partial
from typing import Any, Generic

import numpy as np

from connector.listing.controls import (
    FilterTrials,
    RequestPage,
    RowMatcher,
    build_row_matcher,
    find_still_listed_ids,
    try_filters,
)
from connector.listing.evidence import (
    FindUnlistedEntries,
    ask_unlisted_entries,
    combine_classes,
    draw_absent_values,
    gather_answers,
)
from connector.listing.findings import (
    CLASS_FIELDS,
    Answer,
    ListReading,
    Topic,
    decide_evidence,
    find_hidden_classes,
    list_unshown_classes,
)
from connector.listing.pages import (
    WIRE_FORM,
    ListFailed,
    PageFetcher,
    PageSink,
    ReadPage,
    RowForm,
    read_pages,
    try_page,
)
from connector.pace.concurrency import ConcurrencyLimit
from connector.paging.certificate import (
    Certificate,
    CertificateReason,
    CertificateVerdict,
    CutOff,
    EvidenceResult,
    Finding,
    HiddenClass,
    decide_cut_off,
)
from connector.paging.overlap import IdSet, Mask
from connector.paging.pager import Pager
from connector.service.client import Client
from connector.service.retry import Retrier
from connector.service.wire import ListQuery, Rows

_PAGING_FIELDS = frozenset({"offset", "limit"})
_NO_IDS: frozenset[int] = frozenset()

MAX_IN_FLIGHT = 32
"""The largest number of pages in flight. Each page takes about a megabyte, as bytes and as columns."""

LIST_CONNECTIONS = MAX_IN_FLIGHT + 8
"""Connections for the pages in flight, and for pages that were dropped a moment ago."""

_FIRST_IN_FLIGHT = 10
"""The number of pages in flight at the beginning. Latency alone does not reduce the number of pages below this
number."""

_MIN_PAGES_PER_ROUND = 4
"""The smallest number of pages whose mean time counts as the latency of the service."""

SMALLEST_WINDOW = 50
"""A service may cut its list off at this number of rows or more: the default limit (service-api.md 8)."""

_SEED_BYTES = 8


@dataclass(frozen=True, slots=True)
class ListProgress:
    """The progress of a reading: the number of the sweep (1 = first), the number of rows of the sweep so far, and the
    latest TotalCount."""

    sweep_number: int
    row_count: int
    total_count: int | None


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
    unlisted_bases: Sequence[int] = (),
    known_hidden_classes: Sequence[HiddenClass] = (),
    earlier_total: int | None = None,
    draw: Callable[[int], bytes] = os.urandom,
    monotonic: Callable[[], float] = time.monotonic,
) -> Certificate:
    """Read all subscribers that match `query` into `sink`, and certify whether the reading is complete (service-api.md
    4.3).

    Each filter of the query is tried first, with a listed subscriber and with a made-up value. One filter that works is
    sent; without such a filter, the whole list is read. Rows that do not match all filters are left out, and counted in
    the certificate's `filters`.

    A complete list is checked for subscribers that it leaves out (architecture 7, rule 7). Classes that the list shows
    only to a request for the class are read separately, and passed to the sink after the last sweep.

    - `query.limit` is the size of a page; `query.offset` must be 0 (ValueError).
    - `row_form` is the form of the sink's rows, by default wire objects.
    - `now` returns the time with its zone; `monotonic` returns seconds, which measure the latency.
    - `max_concurrency`: at most this many requests are in flight, and at most MAX_IN_FLIGHT.
    - `reads_ahead`: fetch pages ahead while the list does not change, as far as latency and refusals allow.
    - `ignore_total_count`: accept a list as complete if only its TotalCount disagrees.
    - `allow_truncated`: accept a list that may be cut off as complete if no evidence contradicts the list.
    - `find_unlisted_entries` returns ids of ledger entries that the list should show and lacks.
    - `base_ids` are the known Ids of a load's bases; None: every base.
    - `unlisted_bases` are bases that are counted even if no row shows them.
    - `known_hidden_classes`: classes that are known to be hidden.
    - `earlier_total`: TotalCount shortly before the reading.
    - `draw` returns random bytes.

    Raises ListFailed if a page cannot be read, and the errors of the sink.
    """
    if query.offset:
        raise ValueError("The query's offset must be 0, because a list is read from its beginning.")
    started_at, filters, request_page = now(), list_filters(query), partial(try_page, client, retrier)
    trials = await try_filters(request_page, filters, draw) if filters else None
    if trials is not None:
        query = replace(query, **{name: None for name in filters if name != trials.sent_filter})  # type: ignore[arg-type]
    dispatcher = PageDispatcher(
        sink, row_form, build_row_matcher(filters), on_progress, trials.expected_ids if trials is not None else _NO_IDS
    )
    concurrency_limit = ConcurrencyLimit(
        min(max_concurrency, MAX_IN_FLIGHT),
        first_limit=_FIRST_IN_FLIGHT,
        lowest_by_latency=_FIRST_IN_FLIGHT,
        fewest_in_round=_MIN_PAGES_PER_ROUND,
    )

    async def read_sweeps(query: ListQuery, dispatch: Callable[[ReadPage[Rows]], None]) -> Pager:
        pager = Pager(query.limit, ignores_total_count=ignore_total_count, reads_ahead=reads_ahead)
        async with (
            PageFetcher(client, retrier, query, row_form, concurrency_limit, monotonic) as fetcher,
            aclosing(read_pages(fetcher, pager, row_form, concurrency_limit)) as pages,
        ):
            async for page in pages:
                dispatch(page)
        return pager

    pager = await read_sweeps(query, dispatcher.dispatch)
    filter_reports = await _record_filters(request_page, filters, trials, dispatcher) if trials is not None else {}
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
        class_counts=dispatcher.class_counts,
        base_ids=base_ids,
        unlisted_bases=unlisted_bases,
        earlier_total=earlier_total,
        unlisted_entry_ids=[] if find_unlisted_entries is None else await find_unlisted_entries(pager.ids),
        seed=draw(_SEED_BYTES),
        absent_values=draw_absent_values(sent_filters, draw),
    )
    answers = await gather_answers(request_page, list_reading, concurrency_limit.allowed_count)
    certificate = replace(certificate, unshown_classes=tuple(list_unshown_classes(list_reading, answers)))
    classes = dict.fromkeys([*known_hidden_classes, *find_hidden_classes(list_reading, answers)])
    list_reading = replace(
        list_reading, hidden_classes=tuple(class_ for class_ in classes if class_[0] not in sent_filters)
    )
    problems = list[Finding]()
    if list_reading.hidden_classes:
        listed_id_set = IdSet()
        listed_id_set.add(pager.ids)
        largest_total = max((answer.total_count or 0 for answer in answers), default=0)
        pending_combinations = combine_classes(list_reading.hidden_classes)
        while pending_combinations:
            combination = dict(pending_combinations.pop(0))
            part_dispatcher = PartDispatcher(
                sink, row_form, build_row_matcher(filters), combination, listed_id_set, dispatcher.class_counts
            )
            reading = await _read_part(
                request_page,
                read_sweeps,
                list_reading,
                part_dispatcher,
                largest_total,
                concurrency_limit.allowed_count,
                now,
                draw,
            )
            certificate = replace(certificate, pages=certificate.pages + reading.page_count)
            if new_classes := [
                class_ for class_ in reading.hidden_classes if class_ not in list_reading.hidden_classes
            ]:
                list_reading = replace(list_reading, hidden_classes=(*list_reading.hidden_classes, *new_classes))
                pending_combinations, problems = (
                    combine_classes(list_reading.hidden_classes),
                    [],
                )  # if the list is read again, all combinations are also read again
                continue
            problems += [Finding("hidden", EvidenceResult.CONTRADICTS, reading.problem)] if reading.problem else []
            if (
                combination
                and not pending_combinations
                and not await _has_same_total(request_page, list_reading, answers)
            ):
                # Read the whole list again, because every reading may lack a subscriber who changed the class
                # meanwhile.
                pending_combinations.append(())
        ids = listed_id_set.to_array()
        unlisted_entry_ids = [] if find_unlisted_entries is None else await find_unlisted_entries(ids)
        answers += await ask_unlisted_entries(
            request_page, unlisted_entry_ids, answers, concurrency_limit.allowed_count
        )
        certificate = replace(certificate, distinct=len(ids), hidden=list_reading.hidden_classes)
        list_reading = replace(list_reading, certificate=certificate, ids=ids)
    findings = [*decide_evidence(list_reading, answers), *problems]
    certificate = replace(certificate, finished_at=now())
    return decide_cut_off(certificate, findings, accepts_possible_cut_off=allow_truncated)


async def _has_same_total(request_page: RequestPage, reading: ListReading, answers: Sequence[Answer]) -> bool:
    """Return whether the list still has the TotalCount of the reading and of the answers after the reading."""
    page = await request_page(replace(reading.query, limit=1))
    totals = {answer.total_count for answer in answers if answer.question.topic is Topic.WHOLE}
    totals |= {reading.certificate.total_first, None if page is None else page.total_count}
    return totals == {reading.certificate.total_last}


@dataclass(frozen=True, slots=True)
class _PartReading:
    """The result of a separate reading of hidden classes."""

    page_count: int
    problem: str = ""  # the reason why the reading proves nothing, or "" for a complete reading
    hidden_classes: Sequence[HiddenClass] = ()
    """Further classes that this reading does not show: the list hides subscribers of two classes at once."""


async def _read_part(
    request_page: RequestPage,
    read_sweeps: Callable[[ListQuery, Callable[[ReadPage[Rows]], None]], Awaitable[Pager]],
    reading: ListReading,
    part_dispatcher: "PartDispatcher[Rows]",
    largest_total: int,
    concurrency: int,
    now: Callable[[], datetime],
    draw: Callable[[int], bytes],
) -> _PartReading:
    """Read the subscribers of hidden classes by the filters of `part_dispatcher`, or the whole list without filters
    (architecture 7, rule 7)."""
    query = replace(reading.query, **part_dispatcher.filters)  # type: ignore[arg-type] # each value has its field's type
    started_at, name = now(), ", ".join(f"{name}={value}" for name, value in part_dispatcher.filters.items())
    try:
        pager = await read_sweeps(query, part_dispatcher.dispatch)
    except ListFailed as failure:
        if not failure.is_query_refused:
            raise
        return _PartReading(0, f"the service refused the filter {name}")
    certificate, hidden_classes = pager.certify(started_at, now()), list[HiddenClass]()
    if part_dispatcher.has_other_classes:
        return _PartReading(certificate.pages, f"the filter {name} lists other subscribers as well")
    if certificate.is_complete and part_dispatcher.filters:
        filters = {**reading.filters, **part_dispatcher.filters}
        part_reading = ListReading(
            certificate,
            query,
            filters,
            pager.ids,
            page_size=pager.page_size,
            class_counts=part_dispatcher.part_counts,
            skipped_partitions={name for name, _ in reading.hidden_classes},
            seed=draw(_SEED_BYTES),
            absent_values=draw_absent_values(filters, draw),
        )
        answers = await gather_answers(request_page, part_reading, concurrency)
        hidden_classes = find_hidden_classes(part_reading, answers)
        certificate = decide_cut_off(
            certificate, decide_evidence(part_reading, answers), accepts_possible_cut_off=False
        )
    if not certificate.is_complete:
        problem = f"the reading with {name} is incomplete ({certificate.reason})"
        return _PartReading(certificate.pages, problem, hidden_classes)
    # If a window cuts off both the list and the class, both have the same number of rows, and no TotalCount is larger.
    has_same_size = certificate.distinct == reading.certificate.distinct >= max(SMALLEST_WINDOW, largest_total)
    may_be_cut_off = has_same_size and bool(part_dispatcher.filters) and certificate.cut_off is not CutOff.EXCLUDED
    return _PartReading(certificate.pages, f"the reading with {name} may be cut off" if may_be_cut_off else "")


async def _record_filters(
    request_page: RequestPage, filters: Mapping[str, object], trials: FilterTrials, dispatcher: "PageDispatcher[Rows]"
) -> dict[str, Any]:
    """Return the certificate's `filters`."""
    filter_record: dict[str, Any] = {
        "asked": filters,
        "dropped": dispatcher.dropped_count,
        "sent": trials.sent_filter,
        "controls": trials.controls,
    }
    # If the list no longer shows a missing subscriber, the subscriber has vanished, and the reading has not missed it.
    still_listed_ids = (
        await find_still_listed_ids(request_page, filters, dispatcher.missing_ids)
        if trials.sent_filter is not None
        else _NO_IDS
    )
    return filter_record | ({"missed": len(still_listed_ids)} if still_listed_ids else {})


def list_filters(query: ListQuery) -> dict[str, object]:
    """Return the values of the query's filters, by field name (connector/fields.py)."""
    values = {
        query_field.name: getattr(query, query_field.name)
        for query_field in fields(query)
        if query_field.name not in _PAGING_FIELDS
    }
    return {name: value for name, value in values.items() if value is not None}


@dataclass(slots=True)
class PageDispatcher(Generic[Rows]):
    """Passes the rows that match to `sink`, in `row_form`."""

    sink: PageSink[Rows]
    row_form: RowForm[Rows]
    row_matcher: RowMatcher | None
    on_progress: Callable[[ListProgress], None] | None
    expected_ids: frozenset[int]
    missing_ids: frozenset[int] = _NO_IDS  # expected ids that no row of this sweep has
    sweep_number: int = 0  # number of the sweep
    row_count: int = 0
    dropped_count: int = 0
    class_counts: dict[str, Counter[object]] = field(default_factory=dict)
    """The number of rows of each class, by field name and value. Rows that the filters leave out also count."""

    def __post_init__(self) -> None:
        self.missing_ids = self.expected_ids

    def dispatch(self, page: ReadPage[Rows]) -> None:
        """Pass the page's rows to the sink. The first page of another sweep resets the counts."""
        if page.sweep_number != self.sweep_number:
            self.sweep_number, self.row_count, self.dropped_count, self.missing_ids = (
                page.sweep_number,
                0,
                0,
                self.expected_ids,
            )
            self.class_counts.clear()
            self.sink.start_sweep(page.sweep_number)
        if self.missing_ids:
            self.missing_ids = self.missing_ids.difference(page.ids.tolist())
        new_count, match_count = _dispatch_new_rows(
            page.rows, page.new_mask, self.sink, self.row_form, self.row_matcher, self.class_counts
        )
        self.dropped_count += new_count - match_count
        self.row_count += match_count
        if self.on_progress is not None:
            self.on_progress(ListProgress(page.sweep_number, self.row_count, page.total_count))


def _dispatch_new_rows(
    rows: Rows,
    new_mask: Mask,
    sink: PageSink[Rows],
    row_form: RowForm[Rows],
    row_matcher: RowMatcher | None,
    class_counts: dict[str, Counter[object]],
) -> tuple[int, int]:
    """Count the new rows by class, and pass the new rows that match to the sink. Return the number of new rows, and of
    rows that match."""
    new_count = int(np.count_nonzero(new_mask))
    if not new_count:
        return 0, 0
    rows = rows if new_mask.all() else row_form.select_rows(rows, new_mask)
    _count_classes(rows, row_form, class_counts)
    if row_matcher is not None:
        match_mask = row_matcher(partial(row_form.read_values, rows))
        if not match_mask.any():
            return new_count, 0
        rows = rows if match_mask.all() else row_form.select_rows(rows, match_mask)
        sink.receive_rows(rows)
        return new_count, int(np.count_nonzero(match_mask))
    sink.receive_rows(rows)
    return new_count, new_count


def _count_classes(rows: Rows, row_form: RowForm[Rows], class_counts: dict[str, Counter[object]]) -> None:
    """Add the number of rows of each class to `class_counts`."""
    for name in CLASS_FIELDS:
        counts = class_counts.setdefault(name, Counter())
        for value, count in row_form.count_values(rows, name).items():
            counts["" if name == "gender" and value is None else value] += count


@dataclass(slots=True)
class PartDispatcher(Generic[Rows]):
    """Passes the matching rows of a reading of hidden classes to `sink`, each subscriber once."""

    sink: PageSink[Rows]
    row_form: RowForm[Rows]
    row_matcher: RowMatcher | None
    filters: Mapping[str, object]  # the filters of the hidden classes
    earlier_ids: IdSet  # the ids of subscribers that were read before
    class_counts: dict[str, Counter[object]]  # the number of rows of each class in all readings together
    part_counts: dict[str, Counter[object]] = field(default_factory=dict)  # the same numbers for this reading
    has_other_classes: bool = False  # whether a page has a subscriber of another class
    sweep_number: int = 0  # number of the sweep

    def dispatch(self, page: ReadPage[Rows]) -> None:
        """Pass the page's new rows to the sink. A second sweep adds rows that the first sweep lacks."""
        if page.sweep_number != self.sweep_number:
            self.sweep_number = page.sweep_number
            self.part_counts.clear()
        match_filters = build_row_matcher(self.filters)
        if match_filters is not None and not match_filters(partial(self.row_form.read_values, page.rows)).all():
            self.has_other_classes = True
            return
        if page.new_mask.any():
            _count_classes(self.row_form.select_rows(page.rows, page.new_mask), self.row_form, self.part_counts)
        new_mask = page.new_mask & ~self.earlier_ids.mark_contained(page.ids)
        self.earlier_ids.add(page.ids[new_mask])
        _dispatch_new_rows(page.rows, new_mask, self.sink, self.row_form, self.row_matcher, self.class_counts)
