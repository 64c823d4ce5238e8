"""Reads a list by ranges of ids, as several workers do at once (architecture 7, rule 8).

The coordinator has it divided (`survey_list`), each worker reads a range (`read_range`), and the coordinator certifies
all of it (`certify_list`). Where the list cannot be divided, or the ranges prove nothing together, Undivided is raised,
and the list is to be read by `read_list`.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

import numpy as np

from connector.listing.evidence import FindLacking, Suspect, gather_evidence
from connector.listing.pages import WIRE, Form, PageSink, fetch_page, try_page
from connector.listing.reader import MOST_AHEAD, ListProgress, PageDispatcher, list_filters, read_ids, read_pages
from connector.paging.certificate import Certificate, decide_cut_off, may_be_cut_off
from connector.paging.overlap import PageAnswer, contained
from connector.paging.ranges import (
    SURVEYED,
    ListDivision,
    RangeReader,
    RangeReading,
    certify_ranges,
    choose_looks,
    choose_survey,
    divide_list,
    join_ids,
)
from connector.paging.sweep import IdRange
from connector.service.client import Client
from connector.service.retry import Retrier
from connector.service.wire import ListQuery, Rows

LEAST_PAGES = 8
"""Full pages of a range, at least: the survey, the steps to its beginning and both looks cost four."""

MOST_ROWS = 1_000_000
"""Rows of a range, at most: what a worker that dies has read is read again."""


class Undivided(Exception):  # noqa: N818 - a state of knowledge, not a fault
    """The list cannot be read by ranges, for this reason: one process is to read it."""


async def survey_list(client: Client, retrier: Retrier, query: ListQuery, workers: int) -> ListDivision:
    """Return ranges for so many workers, by a few pages of the list (service-api.md 4.3).

    Raises Undivided for one worker, and for a list that is filtered, short, or in no order of its ids; ListFailed.
    """
    if list_filters(query):
        raise Undivided("it is filtered, and the filter is to be tried first")
    head = await _ask(client, retrier, replace(query, limit=SURVEYED))
    if head.total is None:
        raise Undivided("the service gives no TotalCount")
    parts = min(max(workers, -(-head.total // MOST_ROWS)), head.total // (LEAST_PAGES * query.limit))
    if workers < 2 and head.total <= MOST_ROWS:
        raise Undivided("there is one worker")
    if parts < 2:
        raise Undivided(f"its {head.total:,} subscribers are too few")
    *heads, end = choose_survey(head.total, parts)
    queries = [replace(query, offset=each, limit=SURVEYED) for each in heads[1:]]
    queries.append(replace(query, offset=end))  # a long page, in case that others came meanwhile
    pages = [head]
    for first in range(0, len(queries), MOST_AHEAD):
        together = queries[first : first + MOST_AHEAD]
        pages += await asyncio.gather(*(_ask(client, retrier, each) for each in together))
    division = divide_list(pages)
    if division is None:
        raise Undivided("it is in no order of its ids, or its TotalCount is not that of its end")
    return division


async def read_range(
    client: Client,
    retrier: Retrier,
    query: ListQuery,
    within: IdRange,
    number: int,
    sink: PageSink[Rows],
    *,
    form: Form[Rows] = WIRE,  # type: ignore[assignment] # no other default is known for a form
    on_progress: Callable[[ListProgress], None] | None = None,
    ahead: int = MOST_AHEAD,
) -> RangeReading:
    """Read the subscribers of one range into `sink`, and return what that shows. Raises ListFailed."""
    reader = RangeReader(query.limit, within)
    dispatcher = PageDispatcher(sink, form, None, on_progress, frozenset())
    await read_pages(client, retrier, query, reader, dispatcher, form, ahead)
    return reader.describe(number)


async def certify_list(
    client: Client,
    retrier: Retrier,
    query: ListQuery,
    division: ListDivision,
    readings: Sequence[RangeReading],
    *,
    started_at: datetime,
    now: Callable[[], datetime],
    accept_cut_off_possible: bool = False,
    find_lacking: FindLacking | None = None,
    draw: Callable[[int], bytes] = os.urandom,
) -> Certificate:
    """Look at the list's end and head once more, and return the certificate over all ranges, with the evidence of rule
    7. Raises Undivided if they prove nothing together, and ListFailed."""
    ids = join_ids(readings)
    looks = choose_looks(division, ids, readings[-1].total)
    if looks is None or not all(each.is_in_id_order for each in readings):
        raise Undivided("its pages did not join in the order of their ids")
    at_end, at_head = [await _look(client, retrier, query, each) for each in looks]
    certificate = certify_ranges(division, readings, (at_end, at_head), ids, started_at, now())
    if certificate is None:
        raise Undivided("its ranges did not agree with each other and with TotalCount")
    if not may_be_cut_off(certificate):
        return certificate
    looked_at = join_ids((at_end, at_head))
    came = looked_at[~contained(ids, looked_at)]
    suspect = Suspect(certificate, query, np.sort(np.concatenate((ids, came)), kind="stable") if len(came) else ids)
    findings = await gather_evidence(partial(try_page, client, retrier), suspect, (), draw, find_lacking)
    return decide_cut_off(replace(certificate, finished_at=now()), findings, accepts_possible=accept_cut_off_possible)


async def _look(client: Client, retrier: Retrier, query: ListQuery, within: IdRange) -> RangeReading:
    reader = RangeReader(query.limit, within)
    await read_pages(client, retrier, query, reader, None, WIRE, 0)
    return reader.describe(0, has_neighbours=True)


async def _ask(client: Client, retrier: Retrier, query: ListQuery) -> PageAnswer:
    page = await fetch_page(client, retrier, query)
    return PageAnswer(query.offset, read_ids(WIRE, page), page.total_count, page.offset, page.limit)
