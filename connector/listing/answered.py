"""Decides whether the subscriber in the answer to a create is new (architecture 4.9)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from connector.listing.access import ConfirmedCreate, ListAccess
from connector.listing.base_reader import may_be_in_base
from connector.listing.pages import ListFailed
from connector.listing.requests import request_rows
from connector.service.wire import ListQuery, read_base
from connector.subscribers.identity import digest_identity

# Largest number of look-ups by Id of one subscriber. A quiet period lies between two look-ups, because the list may
# show the subscriber late.
_MAX_LOOK_UPS = 3


@dataclass(frozen=True, slots=True)
class KnownSubscriber:
    """A subscriber that existed before a create, although the answer to the create has its Id."""

    subscriber_id: int
    base: tuple[int | None, str | None] = (None, None)  # the Id and the name of the base; None: not known
    identity_text: str | None = field(default=None, repr=False)  # the email or ClientUserId; None: not known


async def find_known_subscriber(access: ListAccess, subscriber_id: int, sent_at: float) -> KnownSubscriber | None:
    """Return the subscriber whose id the answer to a create contains, if the subscriber existed before the create.
    Otherwise return None. `sent_at` is the time of the create (monotonic). Record the id as known.

    The subscriber existed before the create in one of these cases:

    - A look-up of the run had shown the id before the create was sent.
    - An entry of the account has the id.
    - The answer to another create of the run contained the id."""
    known_ids = access.known_ids
    is_id_known = known_ids.has_id(subscriber_id, sent_at)
    known_ids.add_answered_id(subscriber_id)
    known_entries = []
    if subscriber_id <= (known_ids.largest_ledger_id or 0):
        account = access.ledger_writer.base.account
        known_entries = await access.ledger_writer.execute(
            lambda ledger: ledger.find_entries_with_ids(account, [subscriber_id])
        )
    state = access.state
    wire_object = state.shown_subscribers.read(subscriber_id) or state.subscribers_of_other_bases.read(subscriber_id)
    if is_id_known and wire_object is not None:
        return KnownSubscriber(
            subscriber_id, read_base(wire_object), wire_object.get("Email") or wire_object.get("ClientUserId")
        )
    if known_entries:
        return KnownSubscriber(subscriber_id, (known_entries[0].base_id, known_entries[0].base_name))
    return KnownSubscriber(subscriber_id) if is_id_known else None


async def find_existing_ids(access: ListAccess, is_of_this_run_by_id: Mapping[int, bool]) -> set[int]:
    """Look-ups of unresolved creates have found some ids. Return the ids whose subscribers existed before the create.

    `is_of_this_run_by_id` has the found ids as keys. A value is True if this run sent the create. A subscriber existed
    before the create in two cases:

    - This run sent the create, and a look-up showed the id before the run's first create.
    - Another entry of the account has the id."""
    if not is_of_this_run_by_id:
        return set()
    account, known_ids = access.ledger_writer.base.account, access.known_ids
    known_entries = await access.ledger_writer.execute(
        lambda ledger: ledger.find_entries_with_ids(account, list(is_of_this_run_by_id))
    )
    ids_before_creates = {
        subscriber_id
        for subscriber_id, is_of_this_run in is_of_this_run_by_id.items()
        if is_of_this_run and known_ids.was_shown_before_creates(subscriber_id)
    }
    return ids_before_creates.union(entry.subscriber_id for entry in known_entries)


async def find_rows_by_id(access: ListAccess, subscriber_id: int, *, can_wait: bool) -> list[dict[str, Any]]:
    """Return the rows that the list shows for this Id. With `can_wait`, repeat the look-up for up to two quiet
    periods if the list shows no row."""
    stop = access.stop
    for attempt in range(_MAX_LOOK_UPS if can_wait else 1):
        if attempt and not await stop.sleep(access.policy.quiet_period_s):
            break
        try:
            rows = (await stop.wait_until_stopped(request_rows(access, ListQuery(id=subscriber_id)))).rows
        except ListFailed:
            continue
        if matching_rows := [row for row in rows if row["Id"] == subscriber_id]:
            return matching_rows
    return []


async def find_ids_of_confirmed_create(
    access: ListAccess, confirmed_create: ConfirmedCreate, query: ListQuery
) -> tuple[set[int] | None, set[int]]:
    """Return two sets of ids that the list shows for a new subscriber. The first set has the ids of all matching rows.
    The second set has the ids of the matching rows that show the base of the subscriber.

    The function sends `query` to the list once. The first set is None if the answer shows only other subscribers and
    may be incomplete. Two ids in the second set prove a duplicate. Raises RunAborted."""
    try:
        answer = await access.stop.wait_until_stopped(request_rows(access, query))
    except ListFailed:
        return None, set()
    identities = {digest_identity(confirmed_create.field, confirmed_create.identity_text)}
    base_id = confirmed_create.base_id
    matching_rows = [row for row in answer.rows if may_be_in_base(row, identities, base_id)]
    ids_shown_in_base = {row["Id"] for row in matching_rows if base_id is not None and read_base(row)[0] == base_id}
    ids = {row["Id"] for row in matching_rows} | {confirmed_create.subscriber_id}.intersection(
        row["Id"] for row in answer.rows
    )
    if not ids and answer.rows and not answer.has_all_matches:
        return None, ids_shown_in_base
    return ids, ids_shown_in_base
