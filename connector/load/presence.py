"""Looks up which subscribers exist, and decides how long a create may rely on the result (architecture 4.7).

The rows of a chunk are looked up for all their bases together, by filters or by one sweep (a reading of the account's
whole list). The result of the sweep also serves the bases of later chunks.
"""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from connector.errors import RunAborted
from connector.ledger.entries import Ledger
from connector.listing.access import KeyGroup, ListAccess, LookupKey, store_shown_subscribers
from connector.listing.base_list import MAX_SHOWN_RECORDS, Listing, read_account_list, record_base
from connector.listing.base_reader import SweptRows, build_reader
from connector.listing.hidden import find_hidden_base, record_hidden_groups
from connector.listing.lookup import count_requests
from connector.listing.pages import ListFailed
from connector.listing.renewal import extend_listing, list_newcomers
from connector.listing.requests import find_rows_by_filters
from connector.load.candidates import describe_base
from connector.load.lookups import (
    UNCHECKED_SPELLINGS_MESSAGE,
    LookupMethod,
    LookupProgress,
    choose_lookup_method,
    split_conclusive_keys,
    try_look_up_by_filters,
)
from connector.load.session import Session
from connector.paging.certificate import describe_hidden_groups
from connector.rows import PlannedChunk
from connector.states import State
from connector.subscribers.identity import digest_identity
from connector.texts import choose_form, count

_ALREADY_EXPIRED, _NEVER_EXPIRES = float("-inf"), float("inf")

_ABSENCE_CHECK_COUNT = 5
"""To check a listing, the filters look up this number of identities that the listing lacks. If the filters show exactly
one of them, the filters look up the same number of other identities."""

_ABSENCE_CHECK_ROW_COUNT = 400  # a check of a listing chooses its identities from a sample of about this many rows


class BasePresence:
    """Records which subscribers of one base exist, and which rows a fresh look-up covers. Only covered rows are
    created."""

    def __init__(self, session: Session, account: "AccountPresence | None" = None) -> None:
        self.session = session
        self.account = AccountPresence() if account is None else account
        self.account.presences.append(self)
        # The time (monotonic) until which a create may rely on the look-up.
        self.valid_until = _ALREADY_EXPIRED if session.policy.looks_up_first else _NEVER_EXPIRES
        # The chunk that the last look-up covers; None: a listing covers every chunk.
        self._chunk: PlannedChunk | None = None
        self.listing_rows: SweptRows | None = None  # the listing whose subscribers were recorded
        self.unlisted_count = 0  # confirmed subscribers of the base that the last complete listing lacks
        # Whether the list may hide the base; false after `find_hidden_base` had a result.
        self._may_be_hidden = session.policy.looks_up_first

    @property
    def list_access(self) -> ListAccess:
        """The objects and settings that look-ups in the base need."""
        return self.session.list_access

    @property
    def needs_sweep(self) -> bool:
        """Whether the base's Id is unknown, or the account is not verified. Only a listing can show the Id and verify
        the account."""
        return self.session.ledger_writer.base.service_id is None or bool(self.list_access.unverified_entries)

    def covers_chunk(self, planned_chunk: PlannedChunk) -> bool:
        """Return whether a fresh look-up covers every row of this chunk.

        The list may hide a base. So after the answer to a create has shown the base's Id, no look-up covers a row until
        the run has asked the list for this Id."""
        is_visibility_undecided = self._may_be_hidden and not self.is_hidden
        if is_visibility_undecided and self.session.ledger_writer.base.service_id is not None:
            return False
        return self.session.clock.monotonic() < self.valid_until and (
            self._chunk is None or self._chunk is planned_chunk
        )

    def cover_rows(self, planned_chunk: PlannedChunk | None, started_at: float) -> None:
        """Record that a look-up which started at `started_at` (monotonic) covers this chunk (None: all rows). Raises
        RunAborted if the look-up is too old for a create."""
        self.valid_until = self.session.policy.compute_valid_until(started_at, self.session.clock.monotonic())
        self._chunk = planned_chunk

    def forget_look_up(self) -> None:
        """Drop the result of the last look-up, because the run may have created subscribers after this look-up."""
        if self.session.policy.looks_up_first:
            self.valid_until = _ALREADY_EXPIRED

    def _record_ids_of_first_create(self, rows: SweptRows) -> None:
        """If a listing shows the first new subscriber of the run twice, record the ids of this subscriber. If the base
        is hidden, only a listing of the base shows this subscriber."""
        first_confirmed_create = self.session.canaries.first_confirmed_create
        base_id = self.session.ledger_writer.base.service_id
        if first_confirmed_create is None or first_confirmed_create.base_id != base_id:
            return
        identity = digest_identity(first_confirmed_create.field, first_confirmed_create.identity_text)
        pages = [page for base in rows.bases if base[0] == base_id for page in rows.read(base)]
        ids = {
            subscriber_id for page in pages for listed_identity, subscriber_id in page if listed_identity == identity
        }
        self.session.tally.record_duplicates(ids)

    async def record_listing(self, listing: Listing, *, first_batch_index: int = 0) -> None:
        """Record the subscribers of the base that a listing shows. If the listing was renewed, `first_batch_index` is
        the index of its first new batch, and only the new batches are recorded."""
        subscriber_counts = await record_base(self.list_access, listing.rows, first_batch_index=first_batch_index)
        if first_batch_index:
            return  # a renewed listing contains some subscribers twice, so its counts are wrong
        self.listing_rows = listing.rows
        if listing.certificate.is_complete:
            self.unlisted_count = subscriber_counts.unlisted_count
        if subscriber_counts.duplicate_count:
            base = self.session.ledger_writer.base
            self._record_ids_of_first_create(listing.rows)
            self.session.tally.add_message(
                f"{count(subscriber_counts.duplicate_count, 'identity', 'identities')} "
                f"{choose_form(subscriber_counts.duplicate_count, 'has', 'have')} more than one subscriber in the base "
                f"{describe_base(base.service_id, base.name)}. The interface of the service cannot remove subscribers: "
                "remove the duplicates on the service's own pages"
            )

    @property
    def is_hidden(self) -> bool:
        """Whether the account's list shows the base only to a request with its BaseId."""
        return self.list_access.state.base_id is not None

    async def detect_hidden_base(self, *, has_read_list: bool = False) -> bool:
        """Return whether the list is known to hide the base. The arguments and errors are those of
        `find_hidden_base`."""
        if self._may_be_hidden:
            self._may_be_hidden = await find_hidden_base(self.list_access, has_read_list=has_read_list) is None
        return self.is_hidden


@dataclass(frozen=True, slots=True)
class LookupTask:
    """A look-up to make: the keys of a chunk's rows in one base."""

    presence: BasePresence
    planned_chunk: PlannedChunk
    keys: Sequence[LookupKey]
    started_at: float | None = None  # the beginning of the first look-up of these keys (monotonic); None: not begun


class AccountPresence:
    """Looks up the rows of all bases of a run together. With `has_many_bases`, a listing keeps the subscribers of every
    base, because later chunks may have rows for other bases."""

    def __init__(self, *, has_many_bases: bool = False) -> None:
        self.presences: list[BasePresence] = []
        self._has_many_bases = has_many_bases
        self._listing: Listing | None = None  # the last complete listing; None if no listing can be used or renewed
        # Number of requests of all look-ups by filter of the run. If a sweep needs fewer requests, a sweep is chosen.
        self._filter_request_count = 0
        # The duration of a listing that took longer than `load.fresh`; None: no listing took so long.
        self._listing_duration_s: float | None = None

    async def look_up(self, tasks: Sequence[LookupTask]) -> None:
        """Look up the keys of a chunk's rows for all their bases together, and record the subscribers that exist.

        Raises RunAborted (ListFailed included) if a key stays inconclusive, or the result comes too late.
        """
        tasks = [task for task in tasks if not task.presence.covers_chunk(task.planned_chunk)]
        for task in tasks:
            if task.presence.is_hidden:
                await self._read_hidden_base(task)
        tasks = [task for task in tasks if not task.presence.is_hidden]
        if not tasks:
            return
        if not self._is_listing_fresh(tasks):
            await self._renew_listing(tasks[0].presence.session)
        tasks = await self._cover_by_listing(tasks)
        progress = LookupProgress(
            request_count=self._filter_request_count, needs_sweep=any(task.presence.needs_sweep for task in tasks)
        )
        while tasks:
            groups = [KeyGroup(task.presence.list_access, task.keys) for task in tasks]
            method = await choose_lookup_method(
                groups, progress, is_sweep_too_slow=self._listing_duration_s is not None
            )
            if method is LookupMethod.NONE:
                raise RunAborted(self._explain_inconclusive_look_up(tasks))
            tasks = await (
                self._read_listing(tasks) if method is LookupMethod.SWEEP else self._look_up_by_filter(tasks, method)
            )
            progress = replace(progress, tried_methods=progress.tried_methods | {method})

    # Look-ups by filters

    async def _look_up_by_filter(self, tasks: Sequence[LookupTask], method: LookupMethod) -> list[LookupTask]:
        """Make the look-ups by filters. Return a task for each base whose look-up is inconclusive for some keys, with
        only these keys."""
        if await record_hidden_groups(tasks[0].presence.list_access):
            return list(tasks)  # filters hide the same subscribers as the list, so no filter proves absence
        remaining_tasks = list[LookupTask]()
        looks_up_only_sent_spellings = method is LookupMethod.FILTER_BY_SENT_SPELLING
        for task in tasks:
            session = task.presence.session
            started_at = session.clock.monotonic() if task.started_at is None else task.started_at
            keys = (
                [replace(key, ignores_case=False) for key in task.keys] if looks_up_only_sent_spellings else task.keys
            )
            self._filter_request_count += count_requests(keys)
            result = await try_look_up_by_filters(session.list_access, keys, len(keys))
            await self._record_found_subscribers(
                task.presence, [(identity, ids[0]) for identity, ids in result.found_ids.items()]
            )
            if looks_up_only_sent_spellings and result.absent_identities:
                session.tally.add_message(UNCHECKED_SPELLINGS_MESSAGE)
            inconclusive_keys = split_conclusive_keys(task.keys, result)[1]
            if inconclusive_keys:
                remaining_tasks.append(replace(task, keys=inconclusive_keys, started_at=started_at))
            elif await task.presence.detect_hidden_base():
                await self._read_hidden_base(task)
            else:
                task.presence.cover_rows(task.planned_chunk, started_at)
        return remaining_tasks

    async def _record_found_subscribers(
        self, presence: BasePresence, found_identities_and_ids: Sequence[tuple[bytes, int]]
    ) -> None:
        ledger_base, field = presence.session.ledger_writer.base, presence.session.policy.identity_field

        def record_identities_and_ids(ledger: Ledger) -> None:
            ledger.record_listed_subscribers(ledger_base, field, found_identities_and_ids)
            ledger.record_shown_identities(
                ledger_base, [identity for identity, _ in found_identities_and_ids[:MAX_SHOWN_RECORDS]]
            )

        await presence.session.ledger_writer.execute(record_identities_and_ids)

    # Look-ups by a listing

    def _is_listing_fresh(self, tasks: Sequence[LookupTask]) -> bool:
        """Return whether all these bases can use the listing without a renewal. A base that has used the listing
        before needs a newer listing."""
        listing = self._listing
        if listing is None or any(task.presence.listing_rows is listing.rows for task in tasks):
            return False
        return not _is_look_up_too_old(tasks[0].presence.session, listing.started_at)

    async def _renew_listing(self, session: Session) -> None:
        """Renew the listing: read the subscribers that follow the last row of the listing. Drop the listing if the
        renewal fails."""
        listing, self._listing = self._listing, None
        if (
            listing is None
            or listing.end is None
            or any(presence.list_access.unverified_entries for presence in self.presences)
        ):
            return
        started_at, first_batch_index = session.clock.monotonic(), listing.rows.batch_count
        end = await extend_listing(self._visible_base_accesses, listing.end, listing.rows)
        if end is None:
            return
        self._listing = replace(listing, end=end, started_at=started_at)
        for presence in self.presences:
            if presence.listing_rows is listing.rows:
                await presence.record_listing(listing, first_batch_index=first_batch_index)
                presence.cover_rows(None, started_at)

    async def _read_listing(self, tasks: Sequence[LookupTask]) -> list[LookupTask]:
        """Read the whole list for all bases, and use the listing as the look-up of each task. Return the tasks for
        which the listing cannot be used."""
        session = tasks[0].presence.session
        keys = [key for task in tasks for key in task.keys]
        listing = await read_account_list(self._visible_base_accesses, keys, keeps_other_bases=self._has_many_bases)
        if listing.certificate.hidden:
            session.tally.add_message(describe_hidden_groups(listing.certificate))
        for task in tasks:
            if not task.presence.list_access.unverified_entries:
                await task.presence.record_listing(listing)
        if not listing.certificate.is_complete or await self._contradicts_absence(tasks, listing.certificate.distinct):
            return list(tasks)
        self._listing = listing
        if _is_look_up_too_old(session, listing.started_at):
            self._listing_duration_s = session.clock.monotonic() - listing.started_at
            await self._renew_listing(session)
        return await self._cover_by_listing(tasks)

    async def _cover_by_listing(self, tasks: Sequence[LookupTask]) -> list[LookupTask]:
        """Use the last listing as the look-up of each task. Return the tasks for which no listing can be used."""
        remaining_tasks = list[LookupTask]()
        for task in tasks:
            presence, listing = task.presence, self._listing
            if listing is None or presence.list_access.unverified_entries:
                remaining_tasks.append(task)
                continue
            if presence.listing_rows is not listing.rows:
                await presence.record_listing(listing)
            if await presence.detect_hidden_base(has_read_list=True):
                await self._read_hidden_base(task)
            else:
                presence.cover_rows(None, listing.started_at)
        return remaining_tasks

    async def count_newcomers(self) -> int:
        """Return the number of subscribers in the run's bases that another program has created since the listing.

        Read one page after the end of the run's listing, and count the subscribers that this ledger has not sent.
        Raises RunAborted if the run must stop."""
        listing, newcomer_count = self._listing, 0
        presences = [presence for presence in self.presences if not presence.is_hidden]
        if listing is None or listing.end is None or not presences:
            return 0
        rows = await list_newcomers(presences[0].list_access, listing.end)
        for presence in presences:
            list_access, ledger_writer = presence.list_access, presence.list_access.ledger_writer
            identities_and_ids = build_reader(list_access, [list_access.policy.identity_field]).read(rows)
            entries = await ledger_writer.find_entries([identity for identity, _ in identities_and_ids])
            ids_by_identity = defaultdict[bytes, set[int]](set)
            for identity, subscriber_id in identities_and_ids:
                ids_by_identity[identity].add(subscriber_id)
            listed_ids = [subscriber_id for _, subscriber_id in identities_and_ids]
            known_entries = await ledger_writer.execute(
                partial(Ledger.find_entries_with_ids, account=ledger_writer.base.account, subscriber_ids=listed_ids)
            )
            # The subscribers for whom a run with this ledger has sent a create.
            answered_ids = {entry.subscriber_id for entry in known_entries if entry.run_key is not None}
            for identity, ids in ids_by_identity.items():
                entry = entries.get(identity)
                if entry is not None and entry.attempt_count > 0:
                    presence.session.tally.record_duplicates(ids)
                    newcomer_count += len(ids) - 1
                else:
                    newcomer_count += len(ids - answered_ids)
        return newcomer_count

    # Bases that the list hides

    @property
    def _visible_base_accesses(self) -> list[ListAccess]:
        return [presence.list_access for presence in self.presences if not presence.is_hidden]

    async def _read_hidden_base(self, task: LookupTask) -> None:
        """Read a hidden base separately, and use the reading as the look-up of all rows of the base. Raises RunAborted
        if the reading is incomplete."""
        presence = task.presence
        listing = await read_account_list([presence.list_access], task.keys)
        await presence.record_listing(listing)
        if not listing.certificate.is_complete:
            raise RunAborted(self._explain_inconclusive_look_up([task]))
        presence.session.tally.add_message(
            f"The list showed no subscriber of the base {presence.list_access.state.base_id} until a request had its "
            "BaseId. The base was read separately."
        )
        presence.cover_rows(None, listing.started_at)

    # A list that is cut off (architecture 7, rule 7)

    async def _contradicts_absence(self, tasks: Sequence[LookupTask], listed_count: int) -> bool:
        """Return whether look-ups find at least two subscribers that the listing lacks."""
        absent_keys, found_count = await self._choose_absent_keys(tasks), 0
        for start_index in (0, _ABSENCE_CHECK_COUNT):
            batch = absent_keys[start_index : start_index + _ABSENCE_CHECK_COUNT]
            found_count += await self._record_subscribers_shown_by_filters(batch)
            if found_count != 1:  # another program may have created a single subscriber during the listing
                break
        if found_count < 2:
            return False
        state = tasks[0].presence.list_access.state
        state.unreadable_reason = (
            f"the list shows {listed_count:,} subscribers and leaves others out (look-ups found {found_count} of them)"
        )
        return True

    async def _choose_absent_keys(self, tasks: Sequence[LookupTask]) -> list[tuple[BasePresence, LookupKey]]:
        """Return some keys, evenly spread over the chunk, whose subscribers the listing did not show."""
        keys = [(task.presence, key) for task in tasks for key in task.keys]
        sample_keys = keys[:: max(1, len(keys) // _ABSENCE_CHECK_ROW_COUNT)]
        absent_keys = list[tuple[BasePresence, LookupKey]]()
        for presence in {id(presence): presence for presence, _ in sample_keys}.values():
            presence_keys = [key for sample_presence, key in sample_keys if sample_presence is presence]
            entries = await presence.session.ledger_writer.find_entries([key.identity for key in presence_keys])
            confirmed_identities = {identity for identity, entry in entries.items() if entry.state is State.CONFIRMED}
            absent_keys += [(presence, key) for key in presence_keys if key.identity not in confirmed_identities]
        return absent_keys[:: max(1, len(absent_keys) // (2 * _ABSENCE_CHECK_COUNT))]

    async def _record_subscribers_shown_by_filters(self, keys: Sequence[tuple[BasePresence, LookupKey]]) -> int:
        """Look the keys up by filters, record the subscribers that the filters show, and return their number. Return 0
        if the service refuses the filter."""
        if not keys:
            return 0
        session, rows, shown_count = keys[0][0].session, list[dict[str, Any]](), 0
        with suppress(ListFailed):
            identity_texts = [(key.field, key.identity_text) for _, key in keys]
            rows = await session.stop.wait_until_stopped(find_rows_by_filters(session.list_access, identity_texts))
        for presence in {id(presence): presence for presence, _ in keys}.values():
            identities = {key.identity for key_presence, key in keys if key_presence is presence}
            identities_and_ids = build_reader(presence.list_access, [presence.session.policy.identity_field]).read(rows)
            store_shown_subscribers(presence.list_access, rows, identities_and_ids, identities)
            shown_ids = {
                identity: subscriber_id for identity, subscriber_id in identities_and_ids if identity in identities
            }
            await self._record_found_subscribers(presence, list(shown_ids.items()))
            shown_count += len(shown_ids)
        return shown_count

    def _explain_inconclusive_look_up(self, tasks: Sequence[LookupTask]) -> str:
        """Return the reason to end the run if neither the list nor its filters show which subscribers exist."""
        session, key_count = tasks[0].presence.session, sum(len(task.keys) for task in tasks)
        subscribers_text = "one subscriber exists" if key_count == 1 else f"{key_count:,} subscribers exist"
        if self._listing_duration_s is not None:
            return (
                f"reading the list took {self._listing_duration_s:,.0f} s, longer than load.fresh "
                f"({session.policy.max_lookup_age_s:g} s) allows. The list's filters do not show whether "
                f"{subscribers_text}, so no more rows were sent. Set load.fresh longer than a listing takes, then run "
                "again"
            )
        reason = session.list_access.state.unreadable_reason or "the list could not be read whole"
        return (
            f"{reason}, and its filters do not show whether {subscribers_text}, so no more rows were sent. Run again, "
            "or set `load.look: none` to create without looking, which creates existing subscribers a second time"
        )


def _is_look_up_too_old(session: Session, started_at: float) -> bool:
    """Return whether a look-up that started at `started_at` (monotonic) is too old for a create."""
    return session.policy.compute_expiry(started_at) <= session.clock.monotonic()
