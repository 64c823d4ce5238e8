"""Finds the subscribers that are in the bases already, and knows how long a create may rely on that (architecture 4.7).

The rows of a chunk are looked up for all their bases together: by filters, or by one sweep of the account's list. The
sweep then serves every base of the run, also the bases of later chunks.
"""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from connector.errors import RunAborted
from connector.ledger.entries import Ledger
from connector.ledger.store import Base
from connector.listing.access import KeyGroup, ListAccess, LookupKey, keep_shown
from connector.listing.base_list import (
    SHOWN_RECORDED,
    Listing,
    list_account,
    list_newest,
    list_on,
    record_base,
)
from connector.listing.base_reader import SweptRows, build_reader
from connector.listing.hidden import detect_hidden_base, learn_hidden_classes
from connector.listing.lookup import count_requests
from connector.listing.pages import ListFailed
from connector.listing.requests import find_rows_by_filters
from connector.load.candidates import describe_other
from connector.load.lookups import (
    LOOKED_UP_AS_SENT,
    LookupProgress,
    Way,
    decide_lookup,
    estimate_keys,
    estimate_sweep,
    log_lookup,
    look_up_by_filter,
    split_keys,
)
from connector.load.session import Session
from connector.paging.certificate import describe_hidden
from connector.rows import PlannedChunk
from connector.states import State
from connector.subscribers.identity import digest_identity

_NEVER, _ALWAYS = float("-inf"), float("inf")
_ABSENT_ASKED = 5  # look-ups of identities that the listing lacks; 5 more if one of them exists
_ABSENT_SAMPLED = 400  # rows of a chunk, among which these are chosen


class BasePresence:
    """Records which subscribers of one base exist, and for which rows a look-up has settled that. Only covered rows are
    created."""

    def __init__(self, session: Session, account: "AccountPresence | None" = None) -> None:
        self.session = session
        self.account = AccountPresence() if account is None else account
        self.account.bases.append(self)
        self.until = _NEVER if session.policy.is_looking else _ALWAYS  # monotonic
        self._chunk: PlannedChunk | None = None  # the one chunk that is covered; None: every chunk, by a listing
        self.listed: SweptRows | None = None  # the listing that the base was recorded from
        self.lacking = 0  # confirmed subscribers of the base that the last complete listing lacks
        self._may_be_hidden = session.policy.is_looking  # until `detect_hidden_base` has an answer

    @property
    def access(self) -> ListAccess:
        """The access of look-ups in the base."""
        return self.session.access

    @property
    def needs_sweep(self) -> bool:
        """Whether the base's Id is unknown or the account is not verified: only a listing can settle both."""
        return self.session.journal.base.service_id is None or bool(self.access.unverified_entries)

    def covers(self, planned: PlannedChunk) -> bool:
        """Return whether a fresh look-up covers every row of this chunk.

        Nothing is known once the first create has taught the Id of a base that the list may hide."""
        is_unasked = self._may_be_hidden and not self.is_hidden  # another base's look-up may have shown it
        if is_unasked and self.session.journal.base.service_id is not None:
            return False
        return self.session.clock.monotonic() < self.until and (self._chunk is None or self._chunk is planned)

    def cover(self, planned: PlannedChunk | None, began_at: float) -> None:
        """Cover this chunk (None: all rows) by a look-up that began at `began_at` (monotonic). Raises RunAborted if the
        look-up is too old for a create."""
        self.until = self.session.policy.known_until(began_at, self.session.clock.monotonic())
        self._chunk = planned

    def forget(self) -> None:
        """Drop the result of the last look-up, because subscribers may have been created since."""
        if self.session.policy.is_looking:
            self.until = _NEVER

    def _record_twins_of_first(self, rows: SweptRows) -> None:
        """Record that the first new subscriber of the run was in the base before the run: the list showed the base only
        after the answer to that create had its Id."""
        first, base_id = self.session.canaries.first, self.session.journal.base.service_id
        if first is None or first.base_id != base_id:
            return
        identity = digest_identity(first.field, first.value)
        pages = [page for base in rows.bases if base[0] == base_id for page in rows.read(base)]
        self.session.tally.record_twins({number for page in pages for listed, number in page if listed == identity})

    async def record(self, listing: Listing, *, since: int = 0) -> None:
        """Record the subscribers of the base that a listing shows. With `since`, a former `size` of the rows, record
        only the later ones."""
        counts = await record_base(self.access, listing.rows, start=since)
        if since:
            return  # the pages of a renewal overlap
        self.listed = listing.rows
        if listing.is_complete:
            self.lacking = counts.lacking_count
        if counts.doubled_count:
            base = self.session.journal.base
            self._record_twins_of_first(listing.rows)
            self.session.tally.add_message(
                f"identities that are in the base {describe_other(base.service_id, base.name)} more than once already: "
                f"{counts.doubled_count:,}. The interface of the service cannot remove subscribers: remove them on the "
                "service's own pages"
            )

    @property
    def is_hidden(self) -> bool:
        """Whether the account's list shows the base only to a request with its BaseId."""
        return self.access.state.base_id is not None

    async def detect_hidden(self, *, is_swept: bool = False) -> bool:
        """Return whether the list is known to hide the base. The arguments and errors are those of
        `detect_hidden_base`."""
        if self._may_be_hidden:
            self._may_be_hidden = await detect_hidden_base(self.access, is_swept=is_swept) is None
        return self.is_hidden

    async def learn(self, planned: PlannedChunk, keys: Sequence[LookupKey]) -> None:
        """Look up the keys of a chunk's rows in this base alone. Raises as `AccountPresence.learn` does."""
        await self.account.learn([Want(self, planned, keys)])


@dataclass(frozen=True, slots=True)
class Want:
    """The keys to be looked up for a chunk's rows in one base; `began_at` is when the first look-up of them began."""

    base: BasePresence
    planned: PlannedChunk
    keys: Sequence[LookupKey]
    began_at: float | None = None


class AccountPresence:
    """Looks up the rows of all bases of a run together. With `has_many_bases`, a listing keeps the subscribers of every
    base, because later chunks may have rows for other bases."""

    def __init__(self, *, has_many_bases: bool = False) -> None:
        self.bases: list[BasePresence] = []
        self._has_many_bases = has_many_bases
        self._listing: Listing | None = None  # the last complete listing, until it can be neither used nor renewed
        self._spent = 0  # requests by filter; once a listing would have cost as many, the list is read
        self._listing_took_s: float | None = None  # set if a listing took longer than `load.fresh`

    async def learn(self, wants: Sequence[Want]) -> None:
        """Look up the keys of a chunk's rows, in all their bases together, and record the subscribers that exist.

        Raises RunAborted (ListFailed included) if a key stays inconclusive, or the result comes too late.
        """
        wants = [want for want in wants if not want.base.covers(want.planned)]
        for want in wants:
            if want.base.is_hidden:
                await self._list_hidden(want)
        wants = [want for want in wants if not want.base.is_hidden]
        if not wants:
            return
        if not self._is_listing_fresh(wants):
            await self._read_on(wants[0].base.session)
        wants = await self._rely_on_listing(wants)
        progress = LookupProgress(spent=self._spent, needs_sweep=any(want.base.needs_sweep for want in wants))
        while wants:
            way = await self._decide(wants, progress)
            if way is Way.NONE:
                raise RunAborted(self._explain_inconclusive(wants))
            wants = await (self._list(wants) if way is Way.SWEEP else self._look_up_by_filter(wants, way))
            progress = replace(progress, tried=progress.tried | {way})

    async def _decide(self, wants: Sequence[Want], progress: LookupProgress) -> Way:
        sweep = await estimate_sweep(wants[0].base.access)
        sweep = replace(sweep, is_unusable=sweep.is_unusable or self._listing_took_s is not None)
        groups = [KeyGroup(want.base.access, want.keys) for want in wants]
        lookup = decide_lookup(sweep, estimate_keys(groups, sweep), progress)
        log_lookup(lookup, groups)
        return lookup.way

    # By filters

    async def _look_up_by_filter(self, wants: Sequence[Want], way: Way) -> list[Want]:
        """Look the wants up by filters. Return the wants that keep inconclusive keys."""
        if await learn_hidden_classes(wants[0].base.access):
            return list(wants)  # filters leave out the same classes as the list
        remaining = list[Want]()
        for want in wants:
            session, is_as_sent = want.base.session, way is Way.FILTER_AS_SENT
            began_at = session.clock.monotonic() if want.began_at is None else want.began_at
            asked = [replace(key, in_any_spelling=False) for key in want.keys] if is_as_sent else want.keys
            self._spent += count_requests(asked)
            result = await look_up_by_filter(session.access, asked, len(asked))
            await self._record_found(want.base, [(identity, ids[0]) for identity, ids in result.found_ids.items()])
            if is_as_sent and result.absent_identities:
                session.tally.add_message(LOOKED_UP_AS_SENT)
            inconclusive = split_keys(want.keys, result)[1]
            if inconclusive:
                remaining.append(replace(want, keys=inconclusive, began_at=began_at))
            elif await want.base.detect_hidden():
                await self._list_hidden(want)
            else:
                want.base.cover(want.planned, began_at)
        return remaining

    async def _record_found(self, base: BasePresence, found: Sequence[tuple[bytes, int]]) -> None:
        line, identity = base.session.journal.base, base.session.policy.identity

        def record(ledger: Ledger) -> None:
            ledger.record_listed(line, identity, found)
            ledger.record_shown(line, [identity for identity, _ in found[:SHOWN_RECORDED]])

        await base.session.journal.ask(record)

    # By a listing

    def _is_listing_fresh(self, wants: Sequence[Want]) -> bool:
        """Return whether the listing can serve these bases without a renewal: it is fresh, and none of them has used it
        before."""
        listing = self._listing
        if listing is None or any(want.base.listed is listing.rows for want in wants):
            return False
        return not _is_too_old(wants[0].base.session, listing.began_at)

    async def _read_on(self, session: Session) -> None:
        """Read on from the end of the listing, to renew it. Forget the listing if that is impossible."""
        listing, self._listing = self._listing, None
        if listing is None or listing.end is None or any(base.access.unverified_entries for base in self.bases):
            return
        began_at, since = session.clock.monotonic(), listing.rows.size
        end = await list_on(self._shown_accesses, listing.end, listing.rows)
        if end is None:
            return
        self._listing = replace(listing, end=end, began_at=began_at)
        for base in self.bases:
            if base.listed is listing.rows:
                await base.record(listing, since=since)
                base.cover(None, began_at)

    async def _list(self, wants: Sequence[Want]) -> list[Want]:
        """Read the list for all bases. Return the wants that it does not cover."""
        session = wants[0].base.session
        keys = [key for want in wants for key in want.keys]
        listing = await list_account(self._shown_accesses, keys, keeps_all=self._has_many_bases)
        if listing.certificate.hidden:
            session.tally.add_message(describe_hidden(listing.certificate))
        for want in wants:
            if not want.base.access.unverified_entries:
                await want.base.record(listing)
        distinct = listing.certificate.distinct
        if not listing.is_complete or await self._contradicts_absence(wants, distinct):
            return list(wants)
        self._listing = listing
        if _is_too_old(session, listing.began_at):
            self._listing_took_s = session.clock.monotonic() - listing.began_at
            await self._read_on(session)
        return await self._rely_on_listing(wants)

    async def _rely_on_listing(self, wants: Sequence[Want]) -> list[Want]:
        """Cover the bases that the listing serves. Return the wants that the listing does not cover."""
        remaining = list[Want]()
        for want in wants:
            base, listing = want.base, self._listing
            if listing is None or base.access.unverified_entries:
                remaining.append(want)
                continue
            if base.listed is not listing.rows:
                await base.record(listing)
            if await base.detect_hidden(is_swept=True):
                await self._list_hidden(want)
            else:
                base.cover(None, listing.began_at)
        return remaining

    async def count_newcomers(self) -> int:
        """Return how many subscribers of the run's bases one page after the end of the run's listing shows that this
        ledger has not sent: another program has created them. Raises RunAborted when the run is to stop."""
        listing, bases, count = self._listing, [base for base in self.bases if not base.is_hidden], 0
        if listing is None or listing.end is None or not bases:
            return 0
        rows = await list_newest(bases[0].access, listing.end)
        for base in bases:
            access = base.access
            listed = build_reader(access, [access.policy.identity]).read(rows)
            entries = await access.journal.find_entries([identity for identity, _ in listed])
            ids_of = defaultdict[bytes, set[int]](set)
            for identity, subscriber_id in listed:
                ids_of[identity].add(subscriber_id)
            shown = [subscriber_id for _, subscriber_id in listed]
            answered = await access.journal.ask(partial(_find_answered, access.journal.base, shown))
            for identity, ids in ids_of.items():
                entry = entries.get(identity)
                if entry is not None and entry.attempts > 0:
                    base.session.tally.record_twins(ids)
                    count += len(ids) - 1
                else:
                    count += len(ids - answered)
        return count

    # Bases that the list hides

    @property
    def _shown_accesses(self) -> list[ListAccess]:
        return [base.access for base in self.bases if not base.is_hidden]

    async def _list_hidden(self, want: Want) -> None:
        """Read a hidden base by itself, and cover the base. Raises RunAborted if the reading is incomplete."""
        base = want.base
        listing = await list_account([base.access], want.keys)
        await base.record(listing)
        if not listing.is_complete:
            raise RunAborted(self._explain_inconclusive([want]))
        base.session.tally.add_message(
            f"The list showed no subscriber of the base {base.access.state.base_id} until a request had its BaseId. "
            "The base was read separately."
        )
        base.cover(None, listing.began_at)

    # A list that is cut off (architecture 7, rule 7)

    async def _contradicts_absence(self, wants: Sequence[Want], listed: int) -> bool:
        """Return whether two subscribers that a listing lacks are found by look-ups of their own."""
        absent, found = await self._find_absent(wants), 0
        for part in (absent[:_ABSENT_ASKED], absent[_ABSENT_ASKED : 2 * _ABSENT_ASKED]):
            found += await self._record_shown(part)
            if found != 1:  # one may have come meanwhile
                break
        if found < 2:
            return False
        state = wants[0].base.access.state
        state.is_list_unreadable = True
        state.unreadable_reason = (
            f"the list shows {listed:,} subscribers and leaves others out (look-ups found {found} of them)"
        )
        return True

    async def _find_absent(self, wants: Sequence[Want]) -> list[tuple[BasePresence, LookupKey]]:
        """Return some keys, from all over the chunk, whose subscribers the listing did not show."""
        keys = [(want.base, key) for want in wants for key in want.keys]
        sample, absent = keys[:: max(1, len(keys) // _ABSENT_SAMPLED)], list[tuple[BasePresence, LookupKey]]()
        for base in {id(base): base for base, _ in sample}.values():
            ours = [key for of, key in sample if of is base]
            entries = await base.session.journal.find_entries([key.identity for key in ours])
            there = {identity for identity, entry in entries.items() if entry.state is State.CONFIRMED}
            absent += [(base, key) for key in ours if key.identity not in there]
        return absent[:: max(1, len(absent) // (2 * _ABSENT_ASKED))]

    async def _record_shown(self, asked: Sequence[tuple[BasePresence, LookupKey]]) -> int:
        """Record the subscribers that the filters show, and return their number. If the service refuses the filter,
        return 0."""
        if not asked:
            return 0
        session, rows, count = asked[0][0].session, list[dict[str, Any]](), 0
        with suppress(ListFailed):
            texts = [(key.field, key.value) for _, key in asked]
            rows = await session.control.until_stopped(find_rows_by_filters(session.access, texts))
        for base in {id(base): base for base, _ in asked}.values():
            identities = {key.identity for of, key in asked if of is base}
            listed = build_reader(base.access, [base.session.policy.identity]).read(rows)
            keep_shown(base.access, rows, listed, identities)
            shown = {identity: number for identity, number in listed if identity in identities}
            await self._record_found(base, list(shown.items()))
            count += len(shown)
        return count

    def _explain_inconclusive(self, wants: Sequence[Want]) -> str:
        """Return the reason to end the run if neither the list nor its filters show who exists."""
        session, number = wants[0].base.session, sum(len(want.keys) for want in wants)
        whether = "one subscriber exists" if number == 1 else f"{number:,} subscribers exist"
        if self._listing_took_s is not None:
            return (
                f"reading the list took {self._listing_took_s:,.0f} s, and load.fresh lets a create rely on it for "
                f"{session.policy.fresh_s:g} s. The list's filters do not show whether {whether}, so no more rows were "
                "sent. Make load.fresh longer than a listing takes, then run again"
            )
        because = session.access.state.unreadable_reason or "the list could not be read whole"
        return (
            f"{because}, and its filters do not show whether {whether}, so no more rows were sent. Run again, or set "
            "load.look to none to create without looking, which creates existing subscribers a second time"
        )


def _is_too_old(session: Session, began_at: float) -> bool:
    """Return whether a look-up that began then is too old to rely on."""
    return session.policy.expires_at(began_at) <= session.clock.monotonic()


def _find_answered(base: Base, ids: Sequence[int], ledger: Ledger) -> set[int]:
    """Return the ids with which the service has answered creates of this ledger, of any identity."""
    return {holder.subscriber_id for holder in ledger.find_holders(base.account, ids) if holder.run_key is not None}
