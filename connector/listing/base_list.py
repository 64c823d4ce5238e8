"""Looks subscribers up by reading the whole list. A look-up is for all subscribers of some bases, or for single
subscribers (`LookupKey`)."""

import logging
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from connector.errors import OTHER_ACCOUNT_MESSAGE, ConfigurationError, RunAborted
from connector.ledger.entries import ConfirmedEntry, Ledger
from connector.listing.access import (
    KeyGroup,
    ListAccess,
    ListStats,
    LookupKey,
    LookupResult,
    read_confirmed_create_visibility,
    read_is_active_values,
)
from connector.listing.base_reader import SweptRows, build_reader, may_be_in_base
from connector.listing.findings import MAX_COMPARED_ENTRIES
from connector.listing.pages import PageSink
from connector.listing.reader import read_list
from connector.listing.renewal import ListEnd
from connector.listing.requests import try_filters_with_unlisted_ids
from connector.paging.certificate import Certificate, CertificateReason, EvidenceResult, Order
from connector.paging.overlap import IdArray
from connector.service.wire import ListQuery
from connector.subscribers.identity import IDENTITY_BYTES
from connector.texts import count

logger = logging.getLogger(__name__)

_ROWS_PER_COMMIT = 20_000  # listed subscribers in one commit
MAX_SHOWN_RECORDS = 8
"""The largest number of subscribers that one look-up records as shown. Later runs recognise the account by these
subscribers (architecture 4.10)."""

_DIGEST_BYTES = 8  # bytes that are compared; two digests collide in 1 of 400,000 listings of ten million subscribers


class EmptiedListError(RunAborted):
    """The list shows none of the known subscribers that were looked up."""

    def __init__(self, looked_up_count: int) -> None:
        super().__init__(
            "the ledger has confirmed subscribers in the base, and the service shows none of the "
            f"{looked_up_count} that were looked up: {OTHER_ACCOUNT_MESSAGE}. "
            "Nothing was sent. Check the token and the base. If the subscribers were erased on purpose, forget them "
            "(connector forget). Keep this ledger if the service may hide the subscribers, for example because they "
            "have not confirmed their subscription. A run with a new ledger would create them again"
        )


@dataclass(frozen=True, slots=True)
class Listing:
    """A reading of the list, with its certificate and the listed subscribers. `started_at` is the start of the reading
    (monotonic). `end` is the end of the list if the list is in ascending id order."""

    certificate: Certificate
    rows: SweptRows
    started_at: float
    end: ListEnd | None = None


async def read_account_list(
    accesses: Sequence[ListAccess],
    keys: Sequence[LookupKey] = (),
    *,
    keeps_other_bases: bool = False,
) -> Listing:
    """Read the list once for the bases of `accesses` (architecture 4.7).

    The subscribers of `keys` are stored with their values, for a comparison. With `keeps_other_bases`, the subscribers
    of all other bases are also stored, because later rows may be for these bases.

    Raises ListFailed if the service does not return its list, and EmptiedListError if the list shows none of the known
    subscribers of a base. Raises RunAborted if a base is not the intended one or the run must stop.
    """
    list_access, started_at = accesses[0], accesses[0].clock.monotonic()
    list_access.stop.activity = "listing existing subscribers"
    rows = SweptRows(accesses, {key.identity for key in keys}, keeps_other_bases=keeps_other_bases)
    for other_access in accesses:
        await other_access.ledger_writer.flush()
    certificate, _ = await _sweep_list(accesses, rows, frozenset())
    # A renewal reads only the end of the list. Newcomers are there if the list is in id order, or was empty.
    are_newcomers_at_end = certificate.order is Order.ID or not certificate.distinct
    # If the list hides a group of subscribers, a renewal would miss the newcomers of this group.
    is_renewable = certificate.is_complete and are_newcomers_at_end and not certificate.hidden
    list_end = ListEnd(rows.last_id, certificate.distinct) if is_renewable else None
    return Listing(certificate, rows, started_at, list_end)


@dataclass(frozen=True, slots=True)
class BaseCounts:
    """Counts of a base in a reading of the list. `duplicate_count` is the number of identities with more than one id.
    `unlisted_count` is the number of confirmed subscribers that the reading should show and does not show."""

    duplicate_count: int
    unlisted_count: int


async def record_base(access: ListAccess, rows: SweptRows, *, first_batch_index: int) -> BaseCounts:
    """Record the subscribers of the base among `rows` in the ledger, so that the run does not create them. Return
    counts of the listed subscribers.

    The reading need not be complete, because a listed subscriber exists in any case. Record only the batches from
    `first_batch_index` on, because the earlier batches are recorded already. The id of the base is recorded first,
    because another base may have the same name.
    """
    ledger_writer, identity_field, reader = access.ledger_writer, access.policy.identity_field, build_reader(access, ())
    matching_bases = [
        listed_base for listed_base in rows.bases if reader.is_of_base({"Id": listed_base[0], "Name": listed_base[1]})
    ]
    if matching_bases and ledger_writer.base.service_id is None and reader.service_id is not None:
        await ledger_writer.record_base_id(reader.service_id, access.requested_base_name or "")
    base, digests, ids = ledger_writer.base, array("Q"), array("q")
    unrecorded_identities_and_ids = list[tuple[bytes, int]]()
    for identities_and_ids in (
        identities_and_ids_of_page
        for base in matching_bases
        for identities_and_ids_of_page in rows.read(base, first_batch_index=first_batch_index)
    ):
        digests.frombytes(b"".join(digest[:_DIGEST_BYTES] for digest, _ in identities_and_ids))
        ids.extend(subscriber_id for _, subscriber_id in identities_and_ids)
        unrecorded_identities_and_ids += identities_and_ids
        if len(unrecorded_identities_and_ids) >= _ROWS_PER_COMMIT:
            await _record_listed_subscribers(access, unrecorded_identities_and_ids)
            unrecorded_identities_and_ids = []
    await _record_listed_subscribers(access, unrecorded_identities_and_ids)
    shown_identity_digests = [digest for digest, _ in unrecorded_identities_and_ids[:MAX_SHOWN_RECORDS]]
    await ledger_writer.execute(lambda ledger: ledger.record_shown_identities(base, shown_identity_digests))
    listed_digests, listed_ids = np.frombuffer(digests, dtype=np.uint64), np.frombuffer(ids, dtype=np.int64)
    unlisted_count = 0
    if not first_batch_index:
        latest_run_end = rows.started_at - access.expected_lag_s
        identities, confirmed_ids = await ledger_writer.execute(
            lambda ledger: ledger.list_confirmed_ids(base, identity_field, ledger_writer.run_key, latest_run_end)
        )
        confirmed_digests = np.frombuffer(identities, dtype=np.uint64).reshape(-1, IDENTITY_BYTES // _DIGEST_BYTES)
        unlisted_mask = ~np.isin(confirmed_digests[:, 0], listed_digests)
        unlisted_mask &= ~np.isin(np.frombuffer(confirmed_ids, np.int64), listed_ids)
        unlisted_count = int(np.count_nonzero(unlisted_mask))
    return BaseCounts(_count_duplicates(listed_digests, listed_ids), unlisted_count)


async def _record_listed_subscribers(access: ListAccess, identities_and_ids: Sequence[tuple[bytes, int]]) -> None:
    ledger_writer, identity_field = access.ledger_writer, access.policy.identity_field
    await ledger_writer.execute(
        lambda ledger: ledger.record_listed_subscribers(ledger_writer.base, identity_field, identities_and_ids)
    )


def _count_duplicates(digests: npt.NDArray[np.uint64], ids: npt.NDArray[np.int64]) -> int:
    """Return the number of digests that have more than one id. A digest may occur twice with the same id, because a
    listing may show a subscriber twice."""
    sorting_indexes = np.lexsort((ids, digests))
    digests, ids = digests[sorting_indexes], ids[sorting_indexes]
    duplicate_mask = (digests[1:] == digests[:-1]) & (ids[1:] != ids[:-1])
    return len(np.unique(digests[1:][duplicate_mask]))


async def look_up_by_sweep(key_groups: Sequence[KeyGroup]) -> list[LookupResult]:
    """Look the keys of each base up by reading the whole list once, and return a result for each base.

    Only a complete sweep proves an identity absent. Raises as `read_account_list` does.
    """
    list_access = key_groups[0].list_access
    list_access.stop.activity = (
        f"looking for {count(sum(len(key_group.keys) for key_group in key_groups), 'subscriber')} on the list"
    )
    started_at, confirmed_creates = list_access.clock.monotonic(), tuple(list_access.confirmed_creates)
    previous_seen_ids = list_access.state.swept_confirmed_create_ids
    search_sink = _SearchSink(key_groups)
    confirmed_create_ids = frozenset(create.subscriber_id for create in confirmed_creates)
    certificate, seen_ids = await _sweep_list(
        [key_group.list_access for key_group in key_groups], search_sink, confirmed_create_ids
    )
    visibility = read_confirmed_create_visibility(
        confirmed_creates, seen_ids, previous_seen_ids, certificate, started_at
    )
    results = list[LookupResult]()
    for identities, id_sets in zip(search_sink.identities, search_sink.found_ids, strict=True):
        found_ids = {identity: tuple(sorted(ids)) for identity, ids in id_sets.items()}
        absent_identities = identities.difference(found_ids) if certificate.is_complete else frozenset()
        results.append(
            LookupResult(found_ids, absent_identities, visibility.seen_confirmed_creates, visibility.lag_s, started_at)
        )
    return results


class _SearchSink:
    """A sink that looks for subscribers in some bases. `identities` has a set of wanted identities for each base.
    `found_ids` has a dict for each base: the ids that the list shows, by identity."""

    def __init__(self, key_groups: Sequence[KeyGroup]) -> None:
        self._readers = [
            build_reader(key_group.list_access, sorted({key.field for key in key_group.keys}))
            for key_group in key_groups
        ]
        self.identities = [frozenset(key.identity for key in key_group.keys) for key_group in key_groups]
        self.found_ids: list[dict[bytes, set[int]]] = [{} for _ in key_groups]

    def start_sweep(self, sweep_number: int) -> None:
        """Keep the ids that earlier sweeps found, because one sweep is enough to find a subscriber."""

    def receive_rows(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        for reader, identities, found_ids in zip(self._readers, self.identities, self.found_ids, strict=True):
            for identity, subscriber_id in reader.read(wire_objects):
                if identity in identities:
                    found_ids.setdefault(identity, set()).add(subscriber_id)


@dataclass(slots=True)
class _WatchingSink:
    """A sink that passes rows to another sink, records which `watched_ids` the last sweep shows, and collects stats.

    If a sweep shows an unverified entry of a base, the list belongs to the account of the ledger. In this case, the
    sink sets `unverified_entries` of the base's access to an empty tuple."""

    target_sink: PageSink
    accesses: Sequence[ListAccess]
    watched_ids: frozenset[int]
    list_stats: ListStats
    seen_ids: set[int] = field(default_factory=set)
    activity_values: set[bool] = field(default_factory=set)  # values of `is_active` that the last sweep showed

    def start_sweep(self, sweep_number: int) -> None:
        """Forget the previous sweep, because only the newest sweep decides which subscribers the list shows."""
        self.seen_ids.clear()
        self.activity_values.clear()
        self.target_sink.start_sweep(sweep_number)

    def receive_rows(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        for list_access in self.accesses:
            # Identities are compared, and not Ids, because the Id in the answer to a create may be provisional.
            identities = {entry.identity for entry in list_access.unverified_entries}
            base_id = list_access.ledger_writer.base.service_id
            if identities and any(may_be_in_base(wire_object, identities, base_id) for wire_object in wire_objects):
                list_access.unverified_entries = ()
        self.accesses[0].record_shown_ids([wire_object["Id"] for wire_object in wire_objects])
        self.seen_ids.update(self.watched_ids.intersection(wire_object["Id"] for wire_object in wire_objects))
        self.activity_values.update(read_is_active_values(wire_objects))
        self.list_stats.add(wire_objects)
        self.target_sink.receive_rows(wire_objects)


async def _sweep_list(
    accesses: Sequence[ListAccess], sink: PageSink, watched_ids: frozenset[int]
) -> tuple[Certificate, frozenset[int]]:
    """Read the list that the accesses share, and update their state. Return the certificate, and the `watched_ids` that
    the list showed.

    Raises EmptiedListError if a complete list shows none of the unverified entries of a base (architecture 4.10). If
    these entries may be too new for the list, first wait until the expected lag of the list has passed, and read the
    list once more.
    """
    certificate, seen_ids = await _read_list_and_record_state(accesses, sink, watched_ids)
    if certificate.is_complete:
        has_waited_flags = [
            await wait_until_listed(list_access, list_access.unverified_entries) for list_access in accesses
        ]
        if any(has_waited_flags):
            certificate, seen_ids = await _read_list_and_record_state(accesses, sink, watched_ids)
    unverified_entry_counts = [
        len(list_access.unverified_entries) for list_access in accesses if list_access.unverified_entries
    ]
    if certificate.is_complete and unverified_entry_counts:
        raise EmptiedListError(unverified_entry_counts[0])
    return certificate, seen_ids


async def _read_list_and_record_state(
    accesses: Sequence[ListAccess], sink: PageSink, watched_ids: frozenset[int]
) -> tuple[Certificate, frozenset[int]]:
    """Read the list once, and record the reading in the state that the accesses share. Return the certificate, and the
    `watched_ids` that the list showed."""
    list_access = accesses[0]
    confirmed_create_ids = frozenset(create.subscriber_id for create in list_access.confirmed_creates)
    watching_sink = _WatchingSink(
        sink, accesses, watched_ids | confirmed_create_ids, ListStats(list_access.clock.monotonic())
    )
    base_ids = [
        base_id for base_access in accesses if (base_id := base_access.ledger_writer.base.service_id) is not None
    ]
    certificate = await _read_shared_list(accesses, watching_sink, base_ids)
    if (
        list_access.policy.identity_field == "email"
        and certificate.distinct
        and "email" not in watching_sink.list_stats.shown_fields
    ):
        raise ConfigurationError(
            f"The list shows no email of its {count(certificate.distinct, 'subscriber')}, so the connector cannot find "
            "out which subscribers exist. No more rows were sent. Set `load.look: none` to create without looking, "
            "which creates existing subscribers a second time"
        )
    log_values = {"verdict": certificate.verdict, "distinct": certificate.distinct, "pages": certificate.pages}
    logger.info("look-up: the list was read, %(distinct)d subscribers in %(pages)d pages, %(verdict)s", log_values)
    await list_access.stop.wait_until_stopped(try_filters_with_unlisted_ids(list_access, certificate.unlisted_ids))
    seen_ids, state = frozenset(watching_sink.seen_ids), list_access.state
    state.swept_confirmed_create_ids = seen_ids & confirmed_create_ids
    state.activity_values_shown_by_sweep = watching_sink.activity_values
    state.unreadable_reason = describe_unreadable_list(certificate)
    state.are_groups_known |= certificate.is_complete
    state.hidden_groups = tuple(dict.fromkeys([*state.hidden_groups, *certificate.hidden]))
    state.unshown_groups = certificate.unshown_groups
    has_list_changed = certificate.total_first != certificate.total_last or certificate.appeared or certificate.vanished
    state.swept_base_ids = frozenset(base_ids if certificate.is_complete and not has_list_changed else ())
    state.list_stats = watching_sink.list_stats
    state.list_stats.total_count, state.list_stats.sweep_request_count = certificate.total_last, certificate.pages
    return certificate, seen_ids & watched_ids


async def _read_shared_list(
    accesses: Sequence[ListAccess], sink: _WatchingSink, base_ids: Sequence[int]
) -> Certificate:
    """Read the list. If the reading is incomplete and the TotalCount is 0, read the list once more."""
    list_access, list_stats = accesses[0], accesses[0].state.list_stats
    earlier_total = None  # TotalCount shortly before this reading
    if list_stats is not None and sink.list_stats.read_at <= list_stats.read_at + list_access.policy.max_lookup_age_s:
        earlier_total = list_stats.total_count
    read_whole_list = partial(
        read_list,
        list_access.client,
        list_access.retrier,
        ListQuery(base_id=list_access.state.base_id),
        sink,
        now=list_access.clock.now,
        max_concurrency=list_access.policy.max_concurrency,
        reads_ahead=False,
        ignore_total_count=list_access.policy.ignores_total_count,
        allow_truncated=list_access.policy.allow_truncated,
        find_unlisted_entries=partial(_find_unlisted_entries, accesses),
        base_ids=base_ids,
        known_hidden_groups=list_access.state.hidden_groups,
        earlier_total=earlier_total,
        draw_bytes=list_access.draw_bytes,
    )
    certificate = await list_access.stop.wait_until_stopped(read_whole_list())
    if certificate.total_last == 0 and not certificate.is_complete:
        # Either other runs have created the first subscribers meanwhile, or an answer was wrong. Read the list again.
        certificate = await list_access.stop.wait_until_stopped(read_whole_list())
    return certificate


async def wait_until_listed(access: ListAccess, entries: Sequence[ConfirmedEntry]) -> bool:
    """Wait until the list should show these entries, which an earlier run has confirmed. Return whether a wait was
    needed.

    The wait uses the wall clock, because another process confirmed the entries. The wait is at most `expected_lag_s`,
    because a clock may have been set back.
    """
    confirmed_at = max((entry.known_since or 0.0 for entry in entries), default=0.0)
    wait_s = confirmed_at + access.expected_lag_s - access.clock.now().timestamp()
    if wait_s <= 0:
        return False
    await access.stop.wait(min(wait_s, access.expected_lag_s), "the list may not show the latest subscribers yet")
    return True


async def _find_unlisted_entries(accesses: Sequence[ListAccess], ids: IdArray) -> Sequence[int]:
    """Return ids of confirmed ledger entries that are not among the listed `ids`, although the list should show them by
    now (architecture 7, rule 7)."""
    unlisted_entry_ids, max_entries = list[int](), max(1, MAX_COMPARED_ENTRIES // len(accesses))
    for list_access in accesses:
        entries = await list_access.ledger_writer.execute(partial(_find_confirmed_entries, list_access, max_entries))
        max_confirmed_at = list_access.clock.now().timestamp() - list_access.expected_lag_s
        long_known_entries = [entry for entry in entries if (entry.known_since or 0.0) <= max_confirmed_at]
        long_known_ids = np.array([entry.subscriber_id for entry in long_known_entries], dtype=np.int64)
        unlisted_entry_ids += long_known_ids[~np.isin(long_known_ids, ids)].tolist()
    return unlisted_entry_ids


def _find_confirmed_entries(access: ListAccess, max_entries: int, ledger: Ledger) -> list[ConfirmedEntry]:
    random_identity, run_key = access.draw_bytes(IDENTITY_BYTES), access.ledger_writer.run_key
    return ledger.find_confirmed_entries(
        access.ledger_writer.base, random_identity, max_entries, before_run_key=run_key
    )


def describe_unreadable_list(certificate: Certificate) -> str:
    """Return the reason why this listing proves no absence, or "" if the listing is complete."""
    if certificate.is_complete:
        return ""
    if certificate.reason is CertificateReason.CUT_OFF:
        contradiction_prefix = f"{EvidenceResult.CONTRADICTS}: "
        findings_text = "; ".join(
            finding_text.removeprefix(contradiction_prefix)
            for finding_text in certificate.evidence.values()
            if finding_text.startswith(contradiction_prefix)
        )
        return f"the list shows {certificate.distinct:,} subscribers and leaves others out ({findings_text})"
    if certificate.reason is CertificateReason.CUT_OFF_POSSIBLE:
        return (
            f"the service may cut its list off: {certificate.distinct:,} subscribers is a typical limit, and nothing "
            "proves that the list is complete (if the list is complete, run again with --allow-truncated, or with "
            "load.allow_truncated in the job)"
        )
    if certificate.reason is CertificateReason.TOTAL_COUNT:
        total_count = certificate.total_last
        total_count_text = (
            "has no TotalCount"
            if total_count is None
            else f"has a TotalCount of {total_count:,}, which is not its size"
        )
        return (
            f"the list {total_count_text} (if the list is complete, run again with --ignore-total-count, or with "
            "load.ignore_total_count in the job)"
        )
    return f"the list could not be read whole ({certificate.reason})"
