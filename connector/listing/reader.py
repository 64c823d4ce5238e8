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

from connector.listing.controls import Ask, FilterTrials, Match, build_match, find_missed, try_filters
from connector.listing.evidence import FindLacking, ask_lacking, combine_classes, draw_absent_values, gather_answers
from connector.listing.findings import CLASS_FIELDS, Answer, Suspect, Topic, decide_evidence, find_hidden, list_unshown
from connector.listing.pages import WIRE, Form, ListFailed, PageFetcher, PageSink, ReadPage, read_pages, try_page
from connector.pace.concurrency import ConcurrencyLimit
from connector.paging.certificate import (
    Certificate,
    CutOff,
    Finding,
    HiddenClass,
    Reason,
    Says,
    Verdict,
    decide_cut_off,
)
from connector.paging.overlap import IdSet, Mask
from connector.paging.pager import Pager
from connector.service.client import Client
from connector.service.retry import Retrier
from connector.service.wire import ListQuery, Rows

_PAGING = frozenset({"offset", "limit"})
_NONE: frozenset[int] = frozenset()

MOST_IN_FLIGHT = 32
"""The largest number of pages in flight. Each page takes about a megabyte, as bytes and as columns."""

LIST_CONNECTIONS = MOST_IN_FLIGHT + 8
"""Connections for the pages in flight, and for pages that were dropped a moment ago."""

_FIRST_IN_FLIGHT = 10
"""Pages in flight at the beginning, and the number below which latency alone does not reduce them."""

_FEWEST_IN_ROUND = 4
"""The smallest number of pages whose mean time measures the latency of the service."""

SMALLEST_WINDOW = 50
"""The smallest number of rows at which a service may cut off its list: the default limit (service-api.md 8)."""

_SEED_BYTES = 8


@dataclass(frozen=True, slots=True)
class ListProgress:
    """The progress of a reading: the sweep (1 = first), its rows so far, and the latest TotalCount."""

    sweep: int
    rows: int
    total: int | None


async def read_list(
    client: Client,
    retrier: Retrier,
    query: ListQuery,
    sink: PageSink[Rows],
    *,
    form: Form[Rows] = WIRE,  # type: ignore[assignment] # no other default is known for a form
    now: Callable[[], datetime],
    on_progress: Callable[[ListProgress], None] | None = None,
    max_concurrency: int = MOST_IN_FLIGHT,
    reads_ahead: bool = True,
    ignore_total_count: bool = False,
    allow_truncated: bool = False,
    find_lacking: FindLacking | None = None,
    base_ids: Sequence[int] | None = None,
    unlisted_bases: Sequence[int] = (),
    hidden: Sequence[HiddenClass] = (),
    earlier_total: int | None = None,
    draw: Callable[[int], bytes] = os.urandom,
    monotonic: Callable[[], float] = time.monotonic,
) -> Certificate:
    """Read all subscribers that match `query` into `sink`, and certify whether the reading is complete (service-api.md
    4.3).

    `form` is the form of the sink's rows, by default wire objects. `query.limit` is the size of a page; `query.offset`
    must be 0 (ValueError). `now` returns aware times, `monotonic` seconds that measure the latency.

    Rows that do not match the query's filters are left out, and counted in the certificate's `filters`. Each filter is
    tried first, with a listed subscriber and with a value made up by `draw` (random bytes). One filter that worked is
    sent; without such a filter, the whole list is read. At most `max_concurrency` and MOST_IN_FLIGHT requests are in
    flight. With `reads_ahead`, pages are fetched ahead while the list does not change, as far as the service's latency
    and refusals allow.

    With `ignore_total_count`, a list is complete even if its TotalCount, and nothing else, disagrees. A complete list
    is checked for subscribers that it leaves out (architecture 7, rule 7). The evidence is: counts; `base_ids` (the
    known Ids of a load's bases; None: every base); `earlier_total` (the TotalCount that the run saw shortly before);
    and entries of the ledger, if `find_lacking` returns them. `unlisted_bases` are counted even if no row shows them.
    Classes that the list shows only to a request for one or several classes are read separately, and passed to the sink
    after the last sweep; `hidden` has classes that are known already. With `allow_truncated`, a list that may be cut
    off is complete if there is no evidence either way. Raises ListFailed if a page cannot be read, and the errors of
    the sink.
    """
    if query.offset:
        raise ValueError("A list is read from its beginning: the query's offset must be 0.")
    started_at, filters, ask = now(), list_filters(query), partial(try_page, client, retrier)
    trial = await try_filters(ask, filters, draw) if filters else None
    if trial is not None:
        query = _narrow(query, filters, trial.sent)
    dispatcher = PageDispatcher(
        sink, form, build_match(filters), on_progress, trial.expected if trial is not None else _NONE
    )
    limit = ConcurrencyLimit(
        min(max_concurrency, MOST_IN_FLIGHT),
        first=_FIRST_IN_FLIGHT,
        least=_FIRST_IN_FLIGHT,
        fewest_in_round=_FEWEST_IN_ROUND,
    )

    async def read_sweeps(query: ListQuery, dispatch: Callable[[ReadPage[Rows]], None]) -> Pager:
        pager = Pager(query.limit, ignores_total_count=ignore_total_count, reads_ahead=reads_ahead)
        async with (
            PageFetcher(client, retrier, query, form, limit, monotonic) as fetcher,
            aclosing(read_pages(fetcher, pager, form, limit)) as pages,
        ):
            async for page in pages:
                dispatch(page)
        return pager

    pager = await read_sweeps(query, dispatcher.dispatch)
    recorded = await _record_filters(ask, filters, trial, dispatcher) if trial is not None else {}
    certificate = pager.certify(started_at, now(), recorded)
    if certificate.is_complete and recorded.get("missed"):
        return replace(certificate, verdict=Verdict.INCOMPLETE, reason=Reason.FILTER)
    if not certificate.is_complete:
        return certificate
    sent_filters = list_filters(query)
    suspect = Suspect(
        certificate,
        query,
        sent_filters,
        pager.ids,
        page_rows=pager.page_rows,
        listed=dispatcher.listed,
        base_ids=base_ids,
        unlisted_bases=unlisted_bases,
        earlier_total=earlier_total,
        lacking=[] if find_lacking is None else await find_lacking(pager.ids),
        seed=draw(_SEED_BYTES),
        absent_values=draw_absent_values(sent_filters, draw),
    )
    answers = await gather_answers(ask, suspect, limit.allowed)
    certificate = replace(certificate, unshown=tuple(list_unshown(suspect, answers)))
    classes = dict.fromkeys([*hidden, *find_hidden(suspect, answers)])
    suspect = replace(suspect, hidden=tuple(class_ for class_ in classes if class_[0] not in sent_filters))
    problems = list[Finding]()
    if suspect.hidden:
        seen = IdSet()
        seen.add(pager.ids)
        largest_total = max((answer.total or 0 for answer in answers), default=0)
        waiting = combine_classes(suspect.hidden)
        while waiting:
            combination = dict(waiting.pop(0))
            part = PartDispatcher(sink, form, build_match(filters), combination, seen, dispatcher.listed)
            reading = await _read_part(ask, read_sweeps, suspect, part, largest_total, limit.allowed, now, draw)
            certificate = replace(certificate, pages=certificate.pages + reading.pages)
            if found := [class_ for class_ in reading.hidden if class_ not in suspect.hidden]:
                suspect = replace(suspect, hidden=(*suspect.hidden, *found))
                waiting, problems = combine_classes(suspect.hidden), []  # all parts are read again
                continue
            problems += [Finding("hidden", Says.CONTRADICTS, reading.problem)] if reading.problem else []
            if combination and not waiting and not await _is_still(ask, suspect, answers):
                waiting.append(())  # a subscriber who has left a hidden class meanwhile may be in no reading
        ids = seen.to_array()
        lacking = [] if find_lacking is None else await find_lacking(ids)
        answers += await ask_lacking(ask, lacking, answers, limit.allowed)
        certificate = replace(certificate, distinct=len(ids), hidden=suspect.hidden)
        suspect = replace(suspect, certificate=certificate, ids=ids)
    findings = [*decide_evidence(suspect, answers), *problems]
    certificate = replace(certificate, finished_at=now())
    return decide_cut_off(certificate, findings, accepts_possible=allow_truncated)


async def _is_still(ask: Ask, suspect: Suspect, answers: Sequence[Answer]) -> bool:
    """Return whether the list has the TotalCount that it had during the reading and in the answers since."""
    page = await ask(replace(suspect.query, limit=1))
    totals = {answer.total for answer in answers if answer.question.topic is Topic.WHOLE}
    totals |= {suspect.certificate.total_first, None if page is None else page.total_count}
    return totals == {suspect.certificate.total_last}


@dataclass(frozen=True, slots=True)
class _PartReading:
    """The number of pages of a reading of hidden classes, and why the reading proves nothing ("" if it is complete).
    `hidden` has classes that this reading hides: the list hides subscribers of two classes at once."""

    pages: int
    problem: str = ""
    hidden: Sequence[HiddenClass] = ()


async def _read_part(
    ask: Ask,
    read_sweeps: Callable[[ListQuery, Callable[[ReadPage[Rows]], None]], Awaitable[Pager]],
    suspect: Suspect,
    part: "PartDispatcher[Rows]",
    largest_total: int,
    at_once: int,
    now: Callable[[], datetime],
    draw: Callable[[int], bytes],
) -> _PartReading:
    """Read the subscribers of hidden classes by the filters of `part`, or all again without filters (rule 7)."""
    query = replace(suspect.query, **part.wanted)  # type: ignore[arg-type] # each is of its field's type
    started_at, name = now(), ", ".join(f"{name}={value}" for name, value in part.wanted.items())
    try:
        pager = await read_sweeps(query, part.dispatch)
    except ListFailed as failure:
        if not failure.says_no_more:
            raise
        return _PartReading(0, f"the service refused the filter {name}")
    certificate, hidden = pager.certify(started_at, now()), list[HiddenClass]()
    if part.has_others:
        return _PartReading(certificate.pages, f"the filter {name} lists other subscribers as well")
    if certificate.is_complete and part.wanted:
        filters = {**suspect.filters, **part.wanted}
        part_suspect = Suspect(
            certificate,
            query,
            filters,
            pager.ids,
            page_rows=pager.page_rows,
            listed=part.part_listed,
            skipped={name for name, _ in suspect.hidden},
            seed=draw(_SEED_BYTES),
            absent_values=draw_absent_values(filters, draw),
        )
        answers = await gather_answers(ask, part_suspect, at_once)
        hidden = find_hidden(part_suspect, answers)
        certificate = decide_cut_off(certificate, decide_evidence(part_suspect, answers), accepts_possible=False)
    if not certificate.is_complete:
        problem = f"the reading with {name} is incomplete ({certificate.reason})"
        return _PartReading(certificate.pages, problem, hidden)
    # A window that cuts off both the list and a class shows equally many rows of both, and no TotalCount is larger.
    is_as_long = certificate.distinct == suspect.certificate.distinct >= max(SMALLEST_WINDOW, largest_total)
    is_as_long = is_as_long and bool(part.wanted)
    is_capped = is_as_long and certificate.cut_off is not CutOff.EXCLUDED
    return _PartReading(certificate.pages, f"the reading with {name} may be cut off" if is_capped else "")


def _narrow(query: ListQuery, filters: Mapping[str, object], sent: str | None) -> ListQuery:
    """Return the query with the filter `sent` alone, or without filters."""
    removed: dict[str, Any] = {name: None for name in filters if name != sent}
    return replace(query, **removed)


async def _record_filters(
    ask: Ask, filters: Mapping[str, object], trial: FilterTrials, dispatcher: "PageDispatcher[Rows]"
) -> dict[str, Any]:
    """Return the `filters` of the certificate."""
    recorded: dict[str, Any] = {
        "asked": filters,
        "dropped": dispatcher.dropped,
        "sent": trial.sent,
        "controls": trial.controls,
    }
    # A missing subscriber whom the list no longer shows has vanished meanwhile, and was not missed.
    missed = await find_missed(ask, filters, dispatcher.missing) if trial.sent is not None else _NONE
    return recorded | ({"missed": len(missed)} if missed else {})


def list_filters(query: ListQuery) -> dict[str, object]:
    """Return the filters of the query, by the field names of the field table."""
    values = {
        query_field.name: getattr(query, query_field.name)
        for query_field in fields(query)
        if query_field.name not in _PAGING
    }
    return {name: value for name, value in values.items() if value is not None}


@dataclass(slots=True)
class PageDispatcher(Generic[Rows]):
    """Passes the rows that match to `sink`, in `form`. `missing` has the `expected` Ids that no row of this sweep had.
    `listed` has the number of rows of each class, whether the rows match or not."""

    sink: PageSink[Rows]
    form: Form[Rows]
    match: Match | None
    on_progress: Callable[[ListProgress], None] | None
    expected: frozenset[int]
    missing: frozenset[int] = _NONE
    sweep: int = 0
    rows: int = 0
    dropped: int = 0
    listed: dict[str, Counter[object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.missing = self.expected

    def dispatch(self, page: ReadPage[Rows]) -> None:
        """Pass the page's rows to the sink. The first page of another sweep starts over."""
        if page.sweep != self.sweep:
            self.sweep, self.rows, self.dropped, self.missing = page.sweep, 0, 0, self.expected
            self.listed.clear()
            self.sink.start_sweep(page.sweep)
        if self.missing:
            self.missing = self.missing.difference(page.ids.tolist())
        new_count, match_count = _hand_over(page.rows, page.kept, self.sink, self.form, self.match, self.listed)
        self.dropped += new_count - match_count
        self.rows += match_count
        if self.on_progress is not None:
            self.on_progress(ListProgress(page.sweep, self.rows, page.total))


def _hand_over(
    rows: Rows,
    kept: Mask,
    sink: PageSink[Rows],
    form: Form[Rows],
    match: Match | None,
    listed: dict[str, Counter[object]],
) -> tuple[int, int]:
    """Count the `kept` rows by class in `listed`, and pass the rows that match to the sink. Return both counts."""
    new_count = int(np.count_nonzero(kept))
    if not new_count:
        return 0, 0
    rows = rows if kept.all() else form.keep(rows, kept)
    _count_classes(rows, form, listed)
    if match is not None:
        match_mask = match(partial(form.read_values, rows))
        if not match_mask.any():
            return new_count, 0
        rows = rows if match_mask.all() else form.keep(rows, match_mask)
        sink.take(rows)
        return new_count, int(np.count_nonzero(match_mask))
    sink.take(rows)
    return new_count, new_count


def _count_classes(rows: Rows, form: Form[Rows], listed: dict[str, Counter[object]]) -> None:
    """Add the rows to `listed`, class by class."""
    for name in CLASS_FIELDS:
        counts = listed.setdefault(name, Counter())
        for value, count in form.count_values(rows, name).items():
            counts["" if name == "gender" and value is None else value] += count


@dataclass(slots=True)
class PartDispatcher(Generic[Rows]):
    """Passes the rows of hidden classes that match to `sink`, each subscriber once. `wanted` are the filters of the
    classes, and `seen` has the ids that were read before. `listed` and `part_listed` have the number of rows of each
    class, of the whole reading and of this part. `has_others`: the filters listed other subscribers."""

    sink: PageSink[Rows]
    form: Form[Rows]
    match: Match | None
    wanted: Mapping[str, object]
    seen: IdSet
    listed: dict[str, Counter[object]]
    part_listed: dict[str, Counter[object]] = field(default_factory=dict)
    has_others: bool = False
    sweep: int = 0

    def dispatch(self, page: ReadPage[Rows]) -> None:
        """Pass the page's new rows to the sink. A second sweep adds to the first."""
        if page.sweep != self.sweep:
            self.sweep = page.sweep
            self.part_listed.clear()
        is_wanted = build_match(self.wanted)
        if is_wanted is not None and not is_wanted(partial(self.form.read_values, page.rows)).all():
            self.has_others = True
            return
        if page.kept.any():
            _count_classes(self.form.keep(page.rows, page.kept), self.form, self.part_listed)
        kept = page.kept & ~self.seen.holds(page.ids)
        self.seen.add(page.ids[kept])
        _hand_over(page.rows, kept, self.sink, self.form, self.match, self.listed)
