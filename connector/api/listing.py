"""Reads the whole list, page by page, into a sink, and certifies what was read (design, section 7).

Which page comes next and what they prove is decided in connector.pages; what a row means is the sink's business.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from typing import Any

from connector.api.ahead import MOST_AHEAD, PagesAhead
from connector.api.client import Client, ParseListed
from connector.api.handing import NOBODY, Handing, PageSink, Progress
from connector.api.retries import Retrier
from connector.api.rows import WIRE, Form
from connector.errors import RunAborted
from connector.listing import FindLacking, Suspect, gather_evidence
from connector.listing.filters import Ask, Trial, find_missed, try_filters
from connector.pages import (
    DIMENSIONS,
    NO_IDS,
    Certificate,
    IdArray,
    Measures,
    Page,
    Reading,
    Reason,
    Verdict,
    build_match,
    decide_cut_off,
    may_be_cut_off,
)
from connector.protocol import (
    TOO_MANY_REQUESTS,
    Ambiguous,
    Listed,
    ListQuery,
    NotSent,
    Refused,
    Rows,
    says_limit,
)

_PAGING = frozenset({"offset", "limit"})
_UNAUTHORISED = frozenset({401, 403})
_NOT_OF_THE_OFFSET = frozenset({401, 403, 405, 408, 409, 429})
_REDIRECTS = range(300, 400)


class ListFailed(RunAborted):
    """A list request failed for good; `status` is the HTTP status (401 and 403: the token; 429: the rate, whatever
    status said so), None without an answer."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def says_no_more(self) -> bool:
        """Whether a service may answer so that there is nothing at the offset asked for: 400, 404 and their like."""
        return self.status is not None and 400 <= self.status < 500 and self.status not in _NOT_OF_THE_OFFSET


async def read_list(
    client: Client,
    retrier: Retrier,
    query: ListQuery,
    sink: PageSink[Rows],
    *,
    form: Form[Rows] = WIRE,  # type: ignore[assignment] # no other default is known for a form
    now: Callable[[], datetime],
    on_progress: Callable[[Progress], None] | None = None,
    ahead: int = MOST_AHEAD,
    is_thorough: bool = True,
    ignore_total_count: bool = False,
    accept_cut_off_possible: bool = False,
    find_lacking: FindLacking | None = None,
    draw: Callable[[int], bytes] = os.urandom,
) -> Certificate:
    """Read everyone that `query` asks for into `sink` and say whether that was everyone (api.md, section 4.3).

    `form` is that of the rows which the sink takes: wire objects, if nothing else is said. `query.limit` is the size of
    a page; `query.offset` must be 0 (ValueError). `now` gives aware times. Rows that do not match the query's filters
    are left out, whatever the service thinks that they mean, and counted in the certificate's `filters`. A page is
    handed to the sink while the next is on its way, and on a quiet list up to `ahead` more. What `is_thorough` asks for
    more than pages: the query's own filters are tried first, with somebody who is on the list and with somebody made up
    by `draw` (random bytes), and the service is asked by one of those that worked, else for the whole list; where the
    order is unstable the list is read in parts, by filters that work. With `ignore_total_count` a list whose TotalCount
    alone disagrees is complete. A long list that is complete otherwise is checked for a result window that cuts it off
    (design, section 7, rule 7), by entries of the ledger too where `find_lacking` gives them; one that may be cut off,
    with no evidence either way, is complete with `accept_cut_off_possible`. Raises ListFailed when a page cannot be
    had; what the sink raises passes through.
    """
    if query.offset:
        raise ValueError("A list is read from its beginning: the query's offset must be 0.")
    started_at, filters, ask = now(), list_filters(query), partial(try_page, client, retrier)
    trial = await try_filters(ask, filters, draw) if filters and is_thorough else None
    if trial is not None:
        query = _narrow(query, filters, trial.sent)
    handing = Handing(sink, form, build_match(filters), on_progress, trial.expected if trial is not None else NOBODY)
    reading = Reading(query.limit, _choose_measures(list_filters(query), is_thorough, ignore_total_count))
    under_way = PagesAhead(
        client,
        lambda page: fetch_page(client, retrier, _ask_for(query, page), parse=form.parse),
        lambda page: _attempt_page(client, _ask_for(query, page), form.parse),
    )
    await under_way.follow(_pages_to_ask(reading, ahead), is_calm=reading.is_calm)
    try:
        while (page := reading.decide_next()) is not None:
            try:
                listed = await under_way.take_next()
            except ListFailed as failure:
                if page.ends_at is None or not failure.says_no_more:
                    raise
                reading.take(NO_IDS, total=page.ends_at, offset=page.offset, limit=None)
                await under_way.follow(_pages_to_ask(reading, ahead), is_calm=reading.is_calm)
                continue
            ids = _read_ids(form, listed)
            kept = reading.take(
                ids,
                total=listed.total_count,
                offset=listed.offset,
                limit=listed.limit,
                is_matching=_is_matching(form, listed, page),
                bases=_read_bases(form, listed) if reading.wants_bases else (),
            )
            await under_way.follow(_pages_to_ask(reading, ahead), is_calm=reading.is_calm)
            await asyncio.sleep(0)  # lets the next request leave before this page is worked on
            if not page.is_probe:
                handing.hand_over(page.sweep, replace(listed, total_count=reading.total), ids, kept)
    finally:
        await under_way.drop_all()
    recorded = await _record_filters(ask, filters, trial, handing) if filters else {}
    certificate = reading.certify(started_at, now(), recorded)
    if certificate.is_complete and recorded.get("missed"):
        return replace(certificate, verdict=Verdict.INCOMPLETE, reason=Reason.FILTER)
    if not may_be_cut_off(certificate):
        return certificate
    suspect = Suspect(certificate, query, reading.ids)
    findings = await gather_evidence(ask, suspect, list_filters(query), draw, find_lacking)
    return decide_cut_off(replace(certificate, finished_at=now()), findings, accepts_possible=accept_cut_off_possible)


def _narrow(query: ListQuery, filters: Mapping[str, object], sent: str | None) -> ListQuery:
    """The query by one of its filters, or by none."""
    others: dict[str, Any] = {name: None for name in filters if name != sent}
    return replace(query, **others)


async def _record_filters(
    ask: Ask, filters: Mapping[str, object], trial: Trial | None, handing: "Handing[Rows]"
) -> dict[str, Any]:
    """The certificate's `filters`."""
    recorded: dict[str, Any] = {"asked": filters, "dropped": handing.dropped}
    if trial is None:
        return recorded
    recorded |= {"sent": trial.sent, "controls": trial.controls}
    # Who is missing has gone meanwhile, if the list no longer shows them.
    missed = await find_missed(ask, filters, handing.missing) if trial.sent is not None else NOBODY
    return recorded | ({"missed": len(missed)} if missed else {})


def _pages_to_ask(reading: Reading, ahead: int) -> list[Page]:
    page = reading.decide_next()
    return [] if page is None else [page, *reading.decide_ahead(ahead)]


def _ask_for(query: ListQuery, page: Page) -> ListQuery:
    filters: dict[str, Any] = dict(page.filters)
    return replace(query, offset=page.offset, limit=page.limit, **filters)


def _choose_measures(filters: Mapping[str, object], is_thorough: bool, ignore_total_count: bool) -> Measures:
    """The filters that are asked for already cannot split the list."""
    splits_by = tuple(name for name in DIMENSIONS if is_thorough and name not in filters)
    return Measures(splits_by, ignore_total_count)


def _is_matching(form: Form[Rows], listed: Listed[Rows], page: Page) -> bool:
    """Whether every row is as the page's own filters ask."""
    match = build_match(dict(page.filters))
    return match is None or bool(match(partial(form.read_values, listed.subscribers)).all())


def _read_bases(form: Form[Rows], listed: Listed[Rows]) -> set[int]:
    """The Ids of the bases that its rows are of."""
    return {each for each in form.read_values(listed.subscribers, "base_id") if type(each) is int}


async def try_page(client: Client, retrier: Retrier, query: ListQuery) -> Listed | None:
    """A page that can be done without: the service may refuse a question that it has no answer to."""
    answer = await retrier.read(client, query)
    return answer if isinstance(answer, Listed) else None


async def _attempt_page(client: Client, query: ListQuery, parse: ParseListed[Rows]) -> Listed[Rows] | None:
    """A page that may be asked for once more, later and with patience."""
    answer = await client.list_subscribers(query, parse)
    return answer if isinstance(answer, Listed) else None


async def fetch_page(
    client: Client,
    retrier: Retrier,
    query: ListQuery,
    *,
    parse: ParseListed[Rows] = WIRE.parse,  # type: ignore[assignment] # as the client's
) -> Listed[Rows]:
    """One page of the list (api.md, section 4.3), tried again where that may help; raises ListFailed."""
    answer = await retrier.read(client, query, parse)
    if isinstance(answer, Listed):
        return answer
    raise _explain(answer)


def _explain(answer: Refused | Ambiguous | NotSent) -> ListFailed:
    """The failure in words: what, and what to do next."""
    if not isinstance(answer, NotSent) and says_limit(answer.status, answer.retry_after_s):
        words = f"The service refuses requests for its list for their rate ({answer.status}). Run it again later."
        return ListFailed(words, status=TOO_MANY_REQUESTS)
    if isinstance(answer, NotSent):
        return ListFailed(f"The service cannot be reached for its list: {answer.message}. Check the base URL.")
    is_page = answer.status is not None and 200 <= answer.status < 300
    # A page that cannot be read holds people: none of it is shown.
    words = "an answer that is no page of the list" if is_page else answer.message or "no words"
    if isinstance(answer, Refused):
        hint = "Check the token." if answer.status in _UNAUTHORISED else "Check the base URL, or run it again later."
        return ListFailed(f"The service refused its list ({answer.status}: {words}). {hint}", status=answer.status)
    status = f"status {answer.status}, " if answer.status is not None else ""
    # A redirect is the same at every attempt: the address is another one, or asks for a login.
    hint = "Check the base URL." if answer.status in _REDIRECTS else "Run it again later."
    return ListFailed(f"The service did not give its list ({status}{words}). {hint}", status=answer.status)


def list_filters(query: ListQuery) -> dict[str, object]:
    """The filters that are asked for, by field name (those of the query are the field table's)."""
    values = {each.name: getattr(query, each.name) for each in fields(query) if each.name not in _PAGING}
    return {name: value for name, value in values.items() if value is not None}


def _read_ids(form: Form[Rows], listed: Listed[Rows]) -> IdArray:
    """The subscribers' ids; without them no page can be told from another."""
    ids = form.read_ids(listed.subscribers)
    if ids is None:
        raise ListFailed("The service listed a subscriber without a whole number as its Id: the list cannot be read.")
    return ids
