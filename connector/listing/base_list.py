"""Looks subscribers up by reading the whole list: all subscribers of the bases, or the subscribers of some keys.

A complete listing in id order is renewed: reading goes on from its last known row, if all new rows come after that row
(architecture 4.7).
"""

import logging
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from connector.errors import ConfigurationError, RunAborted
from connector.ledger.entries import Known, Ledger
from connector.listing.access import (
    KeyGroup,
    ListAccess,
    ListStats,
    LookupKey,
    LookupResult,
    read_activity,
    read_visibility,
)
from connector.listing.base_reader import SweptRows, build_reader, is_known
from connector.listing.pages import ListFailed, PageSink, fetch_page
from connector.listing.reader import read_list
from connector.listing.requests import try_unlisted
from connector.paging.certificate import Certificate, Order, Reason
from connector.paging.overlap import IdArray
from connector.service.wire import LARGEST_PAGE, ListPage, ListQuery
from connector.subscribers.identity import IDENTITY_BYTES
from connector.texts import count

logger = logging.getLogger(__name__)

_RECORDED_AT_ONCE = 20_000  # listed subscribers that share a commit
_KNOWN_COMPARED = 20_000  # confirmed entries that are compared with a listing: enough to notice one in a thousand
SHOWN_RECORDED = 8
"""Subscribers that a look-up shows, by which later runs know the account (architecture 4.10)."""

_DIGEST_BYTES = 8  # of each identity's digest: two collide in 1 of 400,000 listings of ten million subscribers


class EmptiedError(RunAborted):
    """The list shows none of the known subscribers that were looked up."""

    def __init__(self, number: int) -> None:
        super().__init__(
            "the ledger has confirmed subscribers in the base, and the service shows none of the "
            f"{number} that were looked up: this token sees another account, or the base was emptied. "
            "Nothing was sent. Look at the token and at the base. If the subscribers were erased on purpose, forget "
            "them (connector forget). Do not begin a new ledger while the service may only hide them, for example "
            "until they confirm: a run with a new ledger would create them again"
        )


@dataclass(frozen=True, slots=True)
class ListEnd:
    """The end of a complete listing in ascending id order: the last id, and the number of rows."""

    last_id: int
    rows: int


@dataclass(frozen=True, slots=True)
class Listing:
    """A reading of the list: its certificate, the listed subscribers, its beginning (monotonic), and the end of the
    list if the list is in ascending id order."""

    certificate: Certificate
    rows: SweptRows
    began_at: float
    end: ListEnd | None = None

    @property
    def is_complete(self) -> bool:
        """Whether every subscriber that the reading did not show was absent from the list."""
        return self.certificate.is_complete


async def list_account(
    accesses: Sequence[ListAccess],
    keys: Sequence[LookupKey] = (),
    *,
    keeps_all: bool = False,
) -> Listing:
    """Read the list once for the bases of `accesses` (architecture 4.7).

    The subscribers of `keys` are kept with their values, for a comparison. With `keeps_all` the subscribers of all
    other bases are also kept, for bases that the run meets later.

    Raises ListFailed if the service does not return its list, EmptiedError if the list shows none of the known
    subscribers of a base, and RunAborted if a base is not the intended one or the run must stop.
    """
    access, began_at = accesses[0], accesses[0].clock.monotonic()
    access.control.activity = "listing existing subscribers"
    rows = SweptRows(accesses, {key.identity for key in keys}, keeps_all=keeps_all)
    for other_access in accesses:
        await other_access.journal.flush()
    certificate, _ = await _sweep(accesses, rows, frozenset())
    # No reading from the end shows newcomers of a class that the list hides.
    is_ascending = certificate.order is Order.ID or not certificate.distinct
    is_renewable = certificate.is_complete and is_ascending and not certificate.hidden
    end = ListEnd(rows.last_id, certificate.distinct) if is_renewable else None
    return Listing(certificate, rows, began_at, end)


@dataclass(frozen=True, slots=True)
class BaseCounts:
    """Counts of a base in a reading of the list: identities with more than one id (`doubled`), and confirmed
    subscribers that the reading should show and lacks (`lacking`)."""

    doubled: int
    lacking: int


async def record_base(access: ListAccess, rows: SweptRows, *, since: int = 0) -> BaseCounts:
    """Record the subscribers of the base among `rows` in the ledger, so that none of them is created. Return counts of
    the listed subscribers.

    Presence needs no certificate. `since` is a former `size` of the rows: earlier rows are recorded already. The id of
    the base is recorded first, because another base may have the same name.
    """
    journal, identity, reader = access.journal, access.policy.identity, build_reader(access, ())
    ours = [
        listed_base for listed_base in rows.bases if reader.is_of_base({"Id": listed_base[0], "Name": listed_base[1]})
    ]
    if ours and journal.base.service_id is None and reader.service_id is not None:
        await journal.learn_base(reader.service_id, access.asked_name or "")
    base, digests, ids, waiting = journal.base, array("Q"), array("q"), list[tuple[bytes, int]]()
    for listed in (part for base in ours for part in rows.read(base, since=since)):
        digests.frombytes(b"".join(subscriber[:_DIGEST_BYTES] for subscriber, _ in listed))
        ids.extend(subscriber_id for _, subscriber_id in listed)
        waiting += listed
        if len(waiting) >= _RECORDED_AT_ONCE:
            await _record_listed(access, waiting)
            waiting = []
    await _record_listed(access, waiting)
    shown = [identity for identity, _ in waiting[:SHOWN_RECORDED]]
    await journal.ask(lambda ledger: ledger.record_shown(base, shown))
    listed_digests, listed_ids = np.frombuffer(digests, dtype=np.uint64), np.frombuffer(ids, dtype=np.int64)
    lacking = 0
    if not since:
        shown_by = rows.began_at - access.shown_after_s
        identities, confirmed_ids = await journal.ask(
            lambda ledger: ledger.list_confirmed(base, identity, journal.run_key, shown_by)
        )
        whole = np.frombuffer(identities, dtype=np.uint64).reshape(-1, IDENTITY_BYTES // _DIGEST_BYTES)
        is_unlisted = ~np.isin(whole[:, 0], listed_digests)
        lacking = int(np.count_nonzero(is_unlisted & ~np.isin(np.frombuffer(confirmed_ids, np.int64), listed_ids)))
    return BaseCounts(_count_doubled(listed_digests, listed_ids), lacking)


async def _record_listed(access: ListAccess, listed: Sequence[tuple[bytes, int]]) -> None:
    journal, identity = access.journal, access.policy.identity
    await journal.ask(lambda ledger: ledger.record_listed(journal.base, identity, listed))


def _count_doubled(digests: npt.NDArray[np.uint64], ids: npt.NDArray[np.int64]) -> int:
    """Return the number of digests that have more than one id. A listing may have shown a subscriber twice."""
    order = np.lexsort((ids, digests))
    digests, ids = digests[order], ids[order]
    is_doubled = (digests[1:] == digests[:-1]) & (ids[1:] != ids[:-1])
    return len(np.unique(digests[1:][is_doubled]))


async def sweep_for(groups: Sequence[KeyGroup]) -> list[LookupResult]:
    """Look the keys of each base up by reading the whole list once, and return a result for each base.

    Keys are `missed` only if the sweep was complete. Raises as `list_account` does.
    """
    access = groups[0].access
    access.control.activity = f"looking for {count(sum(len(group.keys) for group in groups), 'subscriber')} on the list"
    started_at, sentinels = access.clock.monotonic(), tuple(access.sentinels)
    seen_before = access.state.swept
    search = _Search(groups)
    watched = frozenset(sentinel.subscriber_id for sentinel in sentinels)
    certificate, seen = await _sweep([group.access for group in groups], search, watched)
    visibility = read_visibility(sentinels, seen, seen_before, certificate, started_at)
    results = list[LookupResult]()
    for identities, ids_of, unclear in zip(search.identities, search.found, search.unclear, strict=True):
        found = {identity: tuple(sorted(ids)) for identity, ids in ids_of.items()}
        missed = identities.difference(found, unclear) if certificate.is_complete else frozenset()
        results.append(LookupResult(found, missed, visibility.seen, visibility.lag_s, started_at))
    return results


class _Search:
    """A sink that looks for `identities` in some bases; `found` has the ids that the listing shows for each."""

    def __init__(self, groups: Sequence[KeyGroup]) -> None:
        self._readers = [build_reader(group.access, sorted({key.field for key in group.keys})) for group in groups]
        self.identities = [frozenset(key.identity for key in group.keys) for group in groups]
        self.found: list[dict[bytes, set[int]]] = [{} for _ in groups]
        self.unclear: list[set[bytes]] = [set() for _ in groups]  # shown in a row that does not tell the base

    def start_sweep(self, number: int) -> None:
        """Do nothing: presence counts in every sweep."""

    def take(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        for reader, identities, unclear in zip(self._readers, self.identities, self.unclear, strict=True):
            rows = [wire for wire in wire_objects if reader.is_unclear(wire.get("Base"))]
            unclear |= {identity for wire in rows for identity, _ in reader.read_one(wire) if identity in identities}
        for reader, identities, found in zip(self._readers, self.identities, self.found, strict=True):
            for identity, subscriber_id in reader.read(wire_objects):
                if identity in identities:
                    found.setdefault(identity, set()).add(subscriber_id)


@dataclass(slots=True)
class _Watching:
    """A sink that passes rows to another sink, records which `watched` ids the last sweep shows, and collects stats.

    When a sweep shows a known subscriber of a base, the account is verified, and `known` of its access is emptied.
    """

    sink: PageSink
    accesses: Sequence[ListAccess]
    watched: frozenset[int]
    stats: ListStats
    seen: set[int] = field(default_factory=set)
    activity: set[bool] = field(default_factory=set)

    def start_sweep(self, number: int) -> None:
        """Forget the last sweep: only the newest decides which subscribers show."""
        self.seen.clear()
        self.activity.clear()
        self.sink.start_sweep(number)

    def take(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        for access in self.accesses:
            # By identity, because the Id in the answer to a create may be provisional.
            known = {known_entry.identity for known_entry in access.known}
            if known and any(is_known(wire, known, access.journal.base.service_id) for wire in wire_objects):
                access.known = ()
        self.accesses[0].known_ids.add_shown([wire["Id"] for wire in wire_objects])
        self.seen.update(self.watched.intersection(wire["Id"] for wire in wire_objects))
        self.activity.update(read_activity(wire_objects))
        self.stats.add(wire_objects)
        self.sink.take(wire_objects)


async def _sweep(
    accesses: Sequence[ListAccess],
    sink: PageSink,
    watched: frozenset[int],
    *,
    is_again: bool = False,
) -> tuple[Certificate, frozenset[int]]:
    """Read the list that the accesses share, and update their state. Return the certificate, and the watched ids that
    it showed.

    Raises EmptiedError if a complete list shows none of the known subscribers of a base (architecture 4.10). If the
    list may not show them yet, it is read once more when they must show.
    """
    access = accesses[0]
    state, sentinels = access.state, frozenset(sentinel.subscriber_id for sentinel in access.sentinels)
    now, earlier_total = access.clock.monotonic(), None  # the TotalCount that the run saw shortly before
    if state.stats is not None and now <= state.stats.taken_at + access.policy.fresh_s:
        earlier_total = state.stats.total
    watching = _Watching(sink, accesses, watched | sentinels, ListStats(now))
    base_ids = [
        other_access.journal.base.service_id
        for other_access in accesses
        if other_access.journal.base.service_id is not None
    ]
    read = partial(
        read_list,
        access.client,
        access.retrier,
        ListQuery(base_id=state.base_id),
        watching,
        now=access.clock.now,
        max_concurrency=access.policy.max_concurrency,
        reads_ahead=False,
        ignore_total_count=access.policy.ignores_total_count,
        allow_truncated=access.policy.allow_truncated,
        find_lacking=partial(_find_lacking, accesses),
        base_ids=base_ids,
        hidden=state.hidden,
        earlier_total=earlier_total,
        draw=access.draw,
    )
    certificate = await access.control.until_stopped(read())
    if certificate.total_last == 0 and not certificate.is_complete:
        # Other runs have created the first subscribers meanwhile, or an answer was wrong. Another reading shows which.
        certificate = await access.control.until_stopped(read())
    if access.policy.identity == "email" and certificate.distinct and "email" not in watching.stats.shown_fields:
        raise ConfigurationError(
            f"The list shows the email of none of {count(certificate.distinct, 'subscriber')}, so nothing tells who "
            "exists. No more rows were sent. Set load.look to none to create without looking, which creates existing "
            "subscribers a second time"
        )
    values = {"verdict": certificate.verdict, "distinct": certificate.distinct, "pages": certificate.pages}
    logger.info("look-up: the list was read, %(distinct)d subscribers in %(pages)d pages, %(verdict)s", values)
    await access.control.until_stopped(try_unlisted(access, certificate.unlisted))
    seen = frozenset(watching.seen)
    state.swept, state.is_list_unreadable = seen & sentinels, not certificate.is_complete
    state.swept_activity = watching.activity
    state.unreadable_because = describe_unreadable(certificate)
    state.are_classes_known |= certificate.is_complete
    state.hidden = tuple(dict.fromkeys([*state.hidden, *certificate.hidden]))
    state.unshown = certificate.unshown
    is_still = certificate.total_first == certificate.total_last and not (certificate.appeared or certificate.vanished)
    state.swept_bases = frozenset(base_ids if certificate.is_complete and is_still else ())
    watching.stats.total, watching.stats.pages = certificate.total_last, certificate.pages
    state.stats = watching.stats
    missing = [other_access for other_access in accesses if other_access.known]
    if certificate.is_complete and missing:
        is_late = not is_again and any(
            [await give_time_to_show(other_access, other_access.known) for other_access in missing]
        )
        if not is_late:
            raise EmptiedError(len(missing[0].known))
        return await _sweep(accesses, sink, watched, is_again=True)
    return certificate, seen & watched


async def give_time_to_show(access: ListAccess, known: Sequence[Known]) -> bool:
    """Wait until the list must show subscribers that an earlier run has just confirmed, and return whether it had to.

    By the wall clock, since another process confirmed them; no longer than `shown_after_s`, since a clock may have been
    set back.
    """
    confirmed_at = max((known_entry.known_since or 0.0 for known_entry in known), default=0.0)
    missing_s = confirmed_at + access.shown_after_s - access.clock.now().timestamp()
    if missing_s <= 0:
        return False
    await access.control.wait(min(missing_s, access.shown_after_s), "then the list must show known subscribers")
    return True


async def _find_lacking(accesses: Sequence[ListAccess], ids: IdArray) -> Sequence[int]:
    """Return ids of confirmed entries of the bases that should be listed by now and are not among these ids
    (architecture 7, rule 7)."""
    lacking, compared = list[int](), max(1, _KNOWN_COMPARED // len(accesses))
    for access in accesses:
        known = await access.journal.ask(partial(_find_confirmed, access, compared))
        shown_since = access.clock.now().timestamp() - access.shown_after_s
        old = [known_entry.subscriber_id for known_entry in known if (known_entry.known_since or 0.0) <= shown_since]
        asked = np.array(old, dtype=np.int64)
        lacking += asked[~np.isin(asked, ids)].tolist()
    return lacking


def _find_confirmed(access: ListAccess, number: int, ledger: Ledger) -> list[Known]:
    start, before = access.draw(IDENTITY_BYTES), access.journal.run_key
    return ledger.find_confirmed(access.journal.base, start, number, before=before)


def describe_unreadable(certificate: Certificate) -> str:
    """Return why this listing proves nothing; "" if it does."""
    if certificate.is_complete:
        return ""
    if certificate.reason is Reason.CUT_OFF:
        evidence = "; ".join(f"{kind} {words}" for kind, words in certificate.evidence.items())
        return f"the list shows {certificate.distinct:,} subscribers and leaves others out ({evidence})"
    if certificate.reason is Reason.CUT_OFF_POSSIBLE:
        return (
            f"the service may cut its list off: it ends after {certificate.distinct:,} subscribers, a "
            "size that result windows have, and the service shows no evidence either way (if that is "
            "how many there are, run again with --allow-truncated, or "
            "load.allow_truncated in the job)"
        )
    if certificate.reason is Reason.TOTAL_COUNT:
        total = certificate.total_last
        counted = "has no TotalCount" if total is None else f"has a TotalCount of {total:,}, which is not its size"
        return (
            f"the list {counted} (if the list is whole, run again with --ignore-total-count, or with "
            "load.ignore_total_count in the job)"
        )
    return f"the list could not be read whole ({certificate.reason})"


_OVERLAP = 16  # rows before the end that the first page repeats
_OVERLAP_SHARE = 20  # a page repeats 1/20 of the page before (connector.paging)
_STEPS_BACK = 8  # steps of doubling length: if more than 2,000 rows vanished meanwhile, the whole list is read again


async def list_on(accesses: Sequence[ListAccess], end: ListEnd, rows: PageSink) -> ListEnd | None:
    """Add to `rows` the subscribers that come after the end of a listing in ascending id order. Return the new end, or
    None if the new end is unknown. Raises as `list_account` does."""
    access = accesses[0]
    access.control.activity = "reading on for new subscribers"
    for other_access in accesses:
        await other_access.journal.flush()
    return await read_on(access, end, rows)


async def list_newest(access: ListAccess, end: ListEnd) -> Sequence[dict[str, Any]]:
    """Return the subscribers that one page shows after the end of a listing in ascending id order. Return none if the
    service returns no such page. Raises RunAborted if the run must stop."""
    access.control.activity = "looking for subscribers of other programs"
    page = None
    with suppress(ListFailed):
        page = await _fetch_offset(access, max(0, end.rows - _OVERLAP))
    ids = _read_ascending(page)
    is_joined = page is not None and ids is not None and len(ids) and ids[0] <= end.last_id
    return [row for row in page.subscribers if row["Id"] > end.last_id] if page is not None and is_joined else []


async def read_on(access: ListAccess, end: ListEnd, sink: PageSink) -> ListEnd | None:
    """Pass the rows from shortly before the end to `sink`, and return the new end, or None if the end is not certain.

    The end is not certain if the pages do not join, are not in ascending order, or lack the latest subscriber of this
    run that should show by now. Neither is it certain if the list has grown by more subscribers than come after its
    end: the others have smaller ids, and only a full reading shows them. Raises RunAborted if the run must stop, and
    ListFailed.
    """
    offset, page = await _find_joint(access, end)
    seen, last_id = set[int](), end.last_id
    while page is not None:
        ids = _read_ascending(page)
        if ids is None or (end.rows and (not len(ids) or ids[0] > last_id)):
            return None
        sink.take(page.subscribers)
        access.known_ids.add_shown(ids.tolist())
        seen.update(ids.tolist())
        is_full = len(ids) >= (page.limit or LARGEST_PAGE)
        if (not len(ids) or ids[-1] <= last_id) and not is_full:
            is_whole = page.total_count is not None and page.total_count <= offset + len(ids)
            newcomers, rows = sum(subscriber_id > end.last_id for subscriber_id in seen), offset + len(ids)
            is_all = rows - end.rows <= newcomers  # otherwise some were inserted before the end
            return ListEnd(last_id, rows) if is_whole and is_all and _shows_ours(access, end, seen) else None
        last_id = max(last_id, int(ids[-1]))
        offset += max(1, len(ids) - max(1, len(ids) // _OVERLAP_SHARE))
        page = await _fetch_offset(access, offset)
    return None


async def _find_joint(access: ListAccess, end: ListEnd) -> tuple[int, ListPage | None]:
    """Return an offset and its page that begins with a known row, or (0, None) if there is none: rows before the end
    may have vanished. The first page of a list that was empty always joins."""
    for number in range(_STEPS_BACK):
        offset = max(0, end.rows - (_OVERLAP << number))
        page = await _fetch_offset(access, offset)
        ids = _read_ascending(page)
        if not end.rows or (ids is not None and len(ids) and ids[0] <= end.last_id):
            return offset, page
        if not offset:
            break
    return 0, None


def _shows_ours(access: ListAccess, end: ListEnd, seen: set[int]) -> bool:
    """Return whether `seen` has the latest sentinel after the end that the list must show by now, if there is one."""
    shown_by = access.clock.monotonic() - access.shown_after_s
    ours = [
        sentinel.subscriber_id
        for sentinel in access.sentinels
        if sentinel.confirmed_at < shown_by and sentinel.subscriber_id > end.last_id
    ]
    return not ours or ours[-1] in seen


async def _fetch_offset(access: ListAccess, offset: int) -> ListPage | None:
    """Return the page, or None if the service refuses the offset, as some do past the end."""
    query = ListQuery(offset=offset, base_id=access.state.base_id)
    try:
        return await access.control.until_stopped(fetch_page(access.client, access.retrier, query))
    except ListFailed as failure:
        if failure.says_no_more:
            return None
        raise


def _read_ascending(page: ListPage | None) -> IdArray | None:
    """Return the ids of a page, or None if they do not ascend or are not whole numbers."""
    ids = [] if page is None else [row.get("Id") for row in page.subscribers]
    if not all(type(subscriber_id) is int for subscriber_id in ids):
        return None
    numbers = np.array(ids, dtype=np.int64)
    return numbers if (np.diff(numbers) > 0).all() else None
