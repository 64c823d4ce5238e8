"""Decides whether the subscriber in the answer to a create is new (architecture 4.9)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from connector.listing.access import ListAccess, Sentinel
from connector.listing.base_reader import is_known
from connector.listing.pages import ListFailed
from connector.listing.requests import ask
from connector.service.wire import ListQuery, read_base
from connector.subscribers.identity import digest_identity

_LOOKS = 3  # look-ups by Id, a quiet period apart, because the list may show the subscriber late


@dataclass(frozen=True, slots=True)
class KnownSubscriber:
    """A subscriber that existed before the create whose answer names it. `base` has the Id and the name of its base,
    `text` is its email or ClientUserId (each None if not known)."""

    subscriber_id: int
    base: tuple[int | None, str | None] = (None, None)
    text: str | None = field(default=None, repr=False)


async def find_known(access: ListAccess, subscriber_id: int) -> KnownSubscriber | None:
    """Return the subscriber with this answered id if the run's look-ups have shown it, an entry of the account has it,
    or another create of the run was answered with it; else None. Record the id as known."""
    known = access.known_ids
    is_shown = known.holds(subscriber_id)
    known.add_answered(subscriber_id)
    holders = []
    if subscriber_id <= (known.largest_kept or 0):
        account = access.journal.base.account
        holders = await access.journal.ask(lambda ledger: ledger.find_holders(account, [subscriber_id]))
    state = access.state
    if is_shown and (shown := state.shown.read(subscriber_id) or state.elsewhere.read(subscriber_id)) is not None:
        return KnownSubscriber(subscriber_id, read_base(shown), shown.get("Email") or shown.get("ClientUserId"))
    if holders:
        return KnownSubscriber(subscriber_id, (holders[0].base_id, holders[0].base_name))
    return KnownSubscriber(subscriber_id) if is_shown else None


async def find_existing(access: ListAccess, found: Mapping[int, bool]) -> set[int]:
    """Return those of the found ids that are not of a create of this connector: another entry of the account has the id
    or, for a create of this run (`found` says for which), a look-up has shown the id before the run's first create."""
    if not found or access.known_ids.is_shared:
        return set()
    account, known = access.journal.base.account, access.known_ids
    holders = await access.journal.ask(lambda ledger: ledger.find_holders(account, list(found)))
    shown = {
        subscriber_id
        for subscriber_id, is_of_this_run in found.items()
        if is_of_this_run and known.was_shown_first(subscriber_id)
    }
    return shown.union(holder.subscriber_id for holder in holders)


async def is_shared(access: ListAccess, known: KnownSubscriber, new_base: int | None) -> bool:
    """Return whether the service lists one Id once for each base, and the create has put the subscriber into one more,
    `new_base`.

    The list must show the subscriber both in the old base and in the new one. It is asked until it has done so once.
    """
    old_base = known.base[0]
    if new_base is None or old_base == new_base:
        return False
    ids = access.known_ids
    if not ids.is_shared:
        bases = {read_base(row)[0] for row in await list_id(access, known.subscriber_id)}
        ids.is_shared = len(bases) > 1 and bases >= {new_base, old_base or new_base}
    return ids.is_shared


async def list_id(access: ListAccess, subscriber_id: int, *, is_waiting: bool = True) -> list[dict[str, Any]]:
    """Return the rows that the list shows for this Id; with `is_waiting`, look again for up to two quiet periods."""
    control = access.control
    for number in range(_LOOKS if is_waiting else 1):
        if number and not await control.rest(access.policy.quiet_period_s):
            break
        try:
            rows = (await control.until_stopped(ask(access, ListQuery(id=subscriber_id)))).rows
        except ListFailed:
            continue
        if mine := [row for row in rows if row["Id"] == subscriber_id]:
            return mine
    return []


async def find_ids(access: ListAccess, sentinel: Sentinel, query: ListQuery) -> tuple[set[int] | None, set[int]]:
    """Return the ids under which an answer shows a new subscriber in its base (None if the answer shows other
    subscribers and may leave this one out), and those of rows that show the base. Two of the latter are duplicates.
    Raises RunAborted."""
    try:
        listed = await access.control.until_stopped(ask(access, query))
    except ListFailed:
        return None, set()
    identities, base_id = {digest_identity(sentinel.field, sentinel.value)}, sentinel.base_id
    ours = [row for row in listed.rows if is_known(row, identities, base_id)]
    certain = {row["Id"] for row in ours if base_id is not None and read_base(row)[0] == base_id}
    ids = {row["Id"] for row in ours} | {sentinel.subscriber_id}.intersection(row["Id"] for row in listed.rows)
    if not ids and listed.rows and not listed.is_whole:
        return None, certain
    return ids, certain
