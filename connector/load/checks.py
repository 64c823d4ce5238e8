"""Checks of a load against the list: the same account and base before the load, and new subscribers after it
(architecture 4.9, 4.10).

Before: some subscribers that the ledger has long known must still exist. An inconclusive answer does not count as gone.
If all of them are gone, the account is another one, or the base is empty.

After: a service may answer creates with success and store nothing, and a proxy may repeat a request, so that a create
is executed twice. The answers alone show neither.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from connector.errors import ConfigurationError
from connector.fields import is_similar_base_name
from connector.ledger.entries import ConfirmedEntry, Ledger
from connector.ledger.store import Base
from connector.listing.access import Sentinel, shows_identity
from connector.listing.answered import find_ids
from connector.listing.base_list import list_account, wait_until_listed
from connector.listing.base_reader import may_be_in_base
from connector.listing.controls import Control, try_sample
from connector.listing.hidden import detect_hidden_base
from connector.listing.pages import ListFailed, fetch_page
from connector.listing.requests import build_query
from connector.load.candidates import describe_other
from connector.load.session import Session
from connector.service.wire import ListPage, ListQuery
from connector.subscribers.identity import IDENTITY_BYTES, digest_identity
from connector.texts import agree, count

_ASKED_FOR = 4
_SHOWN_BASES = 3
_TWINS_NAMED = 20
_LOOKS_AT = (0.0, 0.1, 1.0)  # shares of the quiet period after the answer: most lists lag by less than three seconds


def refuse_misanswered(base: Base) -> None:
    """Raise ConfigurationError if a create in this base was answered as one in another (architecture 4.9)."""
    if not base.is_misanswered:
        return
    ways = [f"its id {base.answered_id}"] if base.answered_id is not None else []
    ways += [f"its name {base.answered_name}"] if base.answered_name is not None else []
    asked = base.name if base.service_id is None else f"id {base.service_id}"
    raise ConfigurationError(
        f"the service answered a create in the base {asked} as one in another base "
        f"({describe_other(base.answered_id, base.answered_name)}), so nothing is sent to it. If that other base is "
        f"meant, give it by {' or '.join(ways) or 'its id'}; if the service has been mended, run connector retry "
        "--held resend"
    )


def refuse_similar_base(session: Session) -> None:
    """Raise ConfigurationError if the run has not seen the base that the job names, and the list shows a base with a
    similar name: a service that finds bases by such names would create in that one."""
    asked, stats = session.access.asked_name, session.access.state.stats
    if session.journal.base.service_id is not None or asked is None or stats is None:
        return
    for base_id, name in sorted(stats.bases, key=str):
        if isinstance(base_id, int) and isinstance(name, str) and is_similar_base_name(asked, name):
            raise ConfigurationError(
                f"the list shows no base {asked}, and the base {describe_other(base_id, name)} has a similar name, so "
                f"the service may take one for the other. Nothing was created in {asked}. Give the base by its id: "
                f"{base_id} if {name} is meant, else the id that the service's own pages show"
            )


async def guard_account(session: Session) -> tuple[ConfirmedEntry, ...]:
    """Look up one known subscriber by Id. If the list does not show the subscriber, look up to four that the list has
    shown before, and up to four others.

    A subscriber that the list has never shown proves nothing: a service may hide new subscribers until they confirm, or
    answer a create with a provisional Id. Return the subscribers whose look-up was inconclusive (none if all is well):
    the run's first complete sweep must show one of them. Raises EmptiedError if all are gone, by Id and by identity,
    and ListFailed if the service does not answer.
    """
    journal, start = session.journal, session.access.draw(IDENTITY_BYTES)
    base, before = journal.base, journal.run_key
    shown = await journal.ask(lambda ledger: ledger.find_shown_entries(base, start, _ASKED_FOR))
    number = 1 if shown else _ASKED_FOR
    known = await journal.ask(lambda ledger: ledger.find_confirmed_entries(base, start, number, before=before))
    session.control.activity = "looking up known subscribers"
    has_value = False
    for known_entry in known:
        rows = await _list_by_id(session, known_entry)
        is_there = _find_in(session, known_entry, rows)
        has_value |= not rows or any(shows_identity(row, session.policy.identity) for row in rows)
        if is_there and len(shown) < _ASKED_FOR:
            await journal.ask(partial(Ledger.record_shown, base=base, identities=[known_entry.identity]))
        if is_there is not False:
            return () if is_there else tuple(shown)
    if not shown and known and not has_value and session.policy.is_looking:
        raise ConfigurationError(
            f"the list shows subscriber {known[0].subscriber_id}, who was created by an earlier run, without its "
            f"{session.policy.identity}, so nothing tells who exists. Nothing was sent. Set load.look to none "
            "to create without looking, which creates existing subscribers a second time"
        )
    if not shown:
        _report_unshown(session, known)
        return ()
    more = await journal.ask(lambda ledger: ledger.find_confirmed_entries(base, start, _ASKED_FOR, before=before))
    known = list(dict.fromkeys([*shown, *more]))  # the list may show one of these as well
    is_there = await _ask_for_any(session, known)
    if is_there is False and await detect_hidden_base(session.access):
        return tuple(shown)  # the filter Id cannot show them
    if is_there is False and await _does_answer_by_id(session):
        await wait_until_listed(session.access, shown)
        is_there = await _ask_for_any(session, known)
        if is_there is False:
            session.access.unverified_entries = tuple(known)
            await list_account([session.access])  # raises EmptiedError if it shows none of them by identity either
            return session.access.unverified_entries
    return () if is_there else tuple(shown)


async def record_shown(session: Session) -> None:
    """Look up one subscriber of the base by Id, and record that the list shows the subscriber, unless the base has such
    an entry.

    Call this function after a run has created subscribers. Only the first three bases of a run are looked up."""
    if session.canaries.shown_bases == _SHOWN_BASES:
        return
    journal, start = session.journal, session.access.draw(IDENTITY_BYTES)
    base = journal.base

    def find(ledger: Ledger) -> Sequence[ConfirmedEntry]:
        return () if ledger.find_shown_entries(base, b"", 1) else ledger.find_confirmed_entries(base, start, 1)

    for known in await journal.ask(find):
        session.canaries.shown_bases += 1
        with suppress(ListFailed):
            if await _is_there(session, known):
                await journal.ask(partial(Ledger.record_shown, base=base, identities=[known.identity]))


def _report_unshown(session: Session, known: Sequence[ConfirmedEntry]) -> None:
    """Add a message if the list should show one of these subscribers by now."""
    shown_since = session.clock.now().timestamp() - session.access.shown_after_s
    if any((known_entry.known_since or 0.0) <= shown_since for known_entry in known):
        session.tally.add_message(
            f"The list shows none of {count(len(known), 'subscriber')} that earlier runs created, so this run could "
            "not check that the token sees the same account. A service that hides new subscribers until they confirm "
            "(double opt-in) does this. If yours does not, compare the token with the one of the last run"
        )


async def _ask_for_any(session: Session, known: Sequence[ConfirmedEntry]) -> bool | None:
    """Return whether one of `known` exists (True if `known` is empty); None when the filter by Id is inconclusive."""
    for known_entry in known:
        is_there = await _is_there(session, known_entry)
        if is_there is not False:
            return is_there
    return not known


async def _is_there(session: Session, known: ConfirmedEntry) -> bool | None:
    """Return whether the id is listed in the base with this identity; None if the answer is inconclusive."""
    return _find_in(session, known, await _list_by_id(session, known))


async def _list_by_id(session: Session, known: ConfirmedEntry) -> Sequence[dict[str, Any]]:
    """Return the rows that the filter Id (service-api.md 4.3) shows."""
    return (await _fetch(session, ListQuery(id=known.subscriber_id))).subscribers


def _find_in(session: Session, known: ConfirmedEntry, rows: Sequence[dict[str, Any]]) -> bool | None:
    """Return whether these rows show the id in the base with this identity; None if they are inconclusive."""
    mine = [row for row in rows if row.get("Id") == known.subscriber_id]
    if not mine:
        return None if rows else False
    return any(may_be_in_base(row, {known.identity}, session.journal.base.service_id) for row in mine)


async def _does_answer_by_id(session: Session) -> bool:
    """Return whether the filter Id finds a subscriber that is on the list; True also if the list is empty."""
    page = await _fetch(session, ListQuery(limit=1))
    if not page.subscribers:
        return page.total_count == 0
    subscriber_id = page.subscribers[0].get("Id")
    if type(subscriber_id) is not int:
        return False
    trial = await try_sample(partial(_fetch, session), "id", (subscriber_id, subscriber_id))
    return trial.control is Control.EXACT


async def _fetch(session: Session, query: ListQuery) -> ListPage:
    return await session.control.until_stopped(fetch_page(session.access.client, session.access.retrier, query))


def describe_twins(twins: Collection[tuple[int, ...]]) -> Iterator[str]:
    """Yield a message on subscribers of the run that exist twice; each tuple has the ids of one subscriber."""
    if not twins:
        return
    named = "; ".join(" and ".join(map(str, ids)) for ids in sorted(twins)[:_TWINS_NAMED])
    number = len(twins)
    more = f"; and {number - _TWINS_NAMED:,} more" if number > _TWINS_NAMED else ""
    yield (
        f"{count(number, 'subscriber')} of this run {agree(number, 'is', 'are')} in the service twice (ids "
        f"{named}{more}). A proxy or the service has executed creates twice, or another program has created the "
        "same people. Delete one of each in the service, and look for more"
    )


async def find_unseen(session: Session) -> Sentinel | None:
    """Return the last subscriber that the run has created if the list does not show the subscriber, even after a quiet
    period. Return None if the list shows the subscriber, or if the look-ups are inconclusive. Raises RunAborted and
    LedgerError."""
    access = session.access
    if not access.sentinels or not session.policy.is_looking:
        return None
    last = access.sentinels[-1]
    for share in _LOOKS_AT:
        missing_s = last.confirmed_at + share * session.policy.quiet_period_s - session.clock.monotonic()
        if share and not await session.control.wait(missing_s, "then the list should show the last new subscriber"):
            return None
        ids = await _look(session, last, is_thorough=share == _LOOKS_AT[-1])
        if ids:
            identities = [digest_identity(last.field, last.value)]
            await access.journal.ask(partial(Ledger.record_shown, base=access.journal.base, identities=identities))
        if ids is None or ids:
            return None
    return last


def describe_unseen(session: Session, last: Sentinel, created: int) -> tuple[str, bool]:
    """Return a message on `created` rows of which the list does not show the `last` one, and whether a person must look
    at the service. Nobody must while the lag on record has not passed."""
    age_s = session.clock.monotonic() - last.confirmed_at
    words = (
        f"The service answered {count(created, 'create')} with an Id, and the list does not show the last new "
        f"subscriber (Id {last.subscriber_id}) {age_s:.0f} s after that answer."
    )
    if age_s < session.access.lag.largest_lag_s:
        return f"{words} The list has lagged for longer before, so the newest rows are answered and not yet seen", False
    message = (
        f"{words} So such rows are answered and not yet seen: the answers alone say that the subscribers exist. The "
        "list may lag, the service may hide new subscribers until they confirm (double opt-in), or the service does "
        f"not store what it answers. Look for subscriber {last.subscriber_id} in the service. If the list lags, make "
        "load.quiet_period longer than the lag"
    )
    return message, True


async def _look(session: Session, sentinel: Sentinel, *, is_thorough: bool) -> set[int] | None:
    """Return the ids under which the list shows the subscriber, or None if the look-ups are inconclusive. Ask by the
    identity, then by the Id. If `is_thorough`, ask also by the Id, the base and the activity, because the list may hide
    a class."""
    base_id = session.access.state.base_id
    queries = [build_query(sentinel.field, sentinel.value), ListQuery(id=sentinel.subscriber_id, base_id=base_id)]
    if is_thorough:
        queries.append(ListQuery(id=sentinel.subscriber_id, base_id=sentinel.base_id, is_active=sentinel.is_active))
    is_inconclusive = bool(session.access.state.hidden_classes)  # the list may show the subscriber to no single request
    for query in queries:
        ids, twins = await find_ids(session.access, sentinel, query)
        session.tally.record_twins(twins)
        if ids:
            return ids
        is_inconclusive |= ids is None
    return None if is_inconclusive else set()
