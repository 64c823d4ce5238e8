"""Checks of the account and the base before a load, and of the new subscribers after the load (architecture 4.9, 4.10).

Before the load, some subscribers that the ledger has long known must still exist. A subscriber whose look-up is
inconclusive does not count as gone. If all looked-up subscribers are gone, the token sees another account, or the base
was emptied.

After the load, the list must show the new subscribers. A service may answer creates with success and store nothing, or
a proxy may repeat a request, so that a create is executed twice. The answers alone do not show these faults.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from connector.errors import ConfigurationError
from connector.fields import is_similar_base_name
from connector.ledger.entries import ConfirmedEntry, Ledger
from connector.ledger.store import Base
from connector.listing.access import ConfirmedCreate, shows_identity
from connector.listing.answered import find_ids_of_confirmed_create
from connector.listing.base_list import read_account_list, wait_until_listed
from connector.listing.base_reader import may_be_in_base
from connector.listing.hidden import find_hidden_base
from connector.listing.pages import ListFailed, fetch_page
from connector.listing.requests import build_query
from connector.listing.trials import TrialResult, try_sample
from connector.load.candidates import describe_base
from connector.load.session import Session
from connector.service.wire import ListPage, ListQuery
from connector.subscribers.identity import IDENTITY_BYTES, digest_identity
from connector.texts import choose_form, count

_VERIFIED_ENTRY_COUNT = 4  # known subscribers that are looked up to verify the account
_MAX_CHECKED_BASES = 3  # at the end of a run, one created subscriber is looked up in each of at most this many bases
# Ids of at most this number of subscribers are in the message about subscribers that exist twice.
_MAX_SHOWN_DUPLICATES = 20
_QUIET_PERIOD_SHARES = (0.0, 0.1, 1.0)
"""Times of the look-ups of the last new subscriber, as shares of the quiet period after the answer. Most lists lag by
less than three seconds.
"""


def refuse_misanswered_base(base: Base) -> None:
    """Raise ConfigurationError if the service has answered a create in this base with another base (architecture
    4.9)."""
    if not base.has_wrong_answer:
        return
    base_references = [f"its id {base.answered_id}"] if base.answered_id is not None else []
    base_references += [f"its name {base.answered_name}"] if base.answered_name is not None else []
    requested_base_text = base.name if base.service_id is None else f"id {base.service_id}"
    raise ConfigurationError(
        f"the service answered a create for the base {requested_base_text} with another base "
        f"({describe_base(base.answered_id, base.answered_name)}), so nothing is sent to the base "
        f"{requested_base_text}. If "
        f"you mean the other base, give it by {' or '.join(base_references) or 'its id'}. If the service was repaired, "
        "run connector retry "
        "--held resend"
    )


def refuse_similar_base(session: Session) -> None:
    """Raise ConfigurationError if the list shows a base with a similar name, and not the base that the job names. A
    service that confuses the names would create subscribers in the wrong base.
    """
    requested_base_name, list_stats = session.list_access.requested_base_name, session.list_access.state.list_stats
    if session.ledger_writer.base.service_id is not None or requested_base_name is None or list_stats is None:
        return
    for base_id, name in sorted(list_stats.bases, key=str):
        if isinstance(base_id, int) and isinstance(name, str) and is_similar_base_name(requested_base_name, name):
            raise ConfigurationError(
                f"the list shows no base {requested_base_name}, and the base {describe_base(base_id, name)} has a "
                f"similar name, so the service may confuse the two. Nothing was created in {requested_base_name}. Give "
                f"the base by its id: {base_id} if {name} is meant, otherwise the id on the service's own pages"
            )


async def verify_account(session: Session) -> tuple[ConfirmedEntry, ...]:
    """Look one known subscriber up by Id. If the list does not show this subscriber, look up more known subscribers by
    Id: up to four that the list has shown before, and up to four others.

    A subscriber that the list has never shown proves nothing: a service may hide new subscribers until they confirm, or
    answer a create with a provisional Id.

    Return the subscribers whose look-up was inconclusive: the run's first complete sweep must show one of them. Return
    an empty tuple if the account is verified. Raises EmptiedListError if look-ups by Id and by identity show none of
    the subscribers, and ListFailed if the service does not answer.
    """
    ledger_writer, random_identity = session.ledger_writer, session.list_access.draw_bytes(IDENTITY_BYTES)
    base, run_key = ledger_writer.base, ledger_writer.run_key
    shown_entries = await ledger_writer.execute(
        lambda ledger: ledger.find_shown_entries(base, random_identity, _VERIFIED_ENTRY_COUNT)
    )
    max_entries = 1 if shown_entries else _VERIFIED_ENTRY_COUNT
    known_entries = await ledger_writer.execute(
        lambda ledger: ledger.find_confirmed_entries(base, random_identity, max_entries, before_run_key=run_key)
    )
    session.stop.activity = "looking up known subscribers"
    has_listed_identity = False
    for known_entry in known_entries:
        rows = (await _fetch_page(session, ListQuery(id=known_entry.subscriber_id))).subscribers
        is_listed = _is_in_rows(session, known_entry, rows)
        has_listed_identity |= not rows or any(shows_identity(row, session.policy.identity_field) for row in rows)
        if is_listed and len(shown_entries) < _VERIFIED_ENTRY_COUNT:
            await ledger_writer.execute(
                partial(Ledger.record_shown_identities, base=base, identities=[known_entry.identity])
            )
        if is_listed is not False:
            return () if is_listed else tuple(shown_entries)
    if not shown_entries and known_entries and not has_listed_identity and session.policy.looks_up_first:
        raise ConfigurationError(
            f"the list shows subscriber {known_entries[0].subscriber_id}, which an earlier run created, without its "
            f"{session.policy.identity_field}, so the connector cannot find out which subscribers exist. Nothing was "
            "sent. Set `load.look: none` to create without looking, which creates existing subscribers a second time"
        )
    if not shown_entries:
        _report_unshown_entries(session, known_entries)
        return ()
    additional_entries = await ledger_writer.execute(
        lambda ledger: ledger.find_confirmed_entries(
            base, random_identity, _VERIFIED_ENTRY_COUNT, before_run_key=run_key
        )
    )
    known_entries = list(dict.fromkeys([*shown_entries, *additional_entries]))
    is_listed = await _is_any_listed(session, known_entries)
    if is_listed is False and await find_hidden_base(session.list_access):
        return tuple(shown_entries)  # if the list hides the base, the filter Id also hides its subscribers
    if is_listed is False and await _is_id_filter_working(session):
        await wait_until_listed(session.list_access, shown_entries)
        is_listed = await _is_any_listed(session, known_entries)
        if is_listed is False:
            session.list_access.unverified_entries = tuple(known_entries)
            # Raises EmptiedListError if the list has none of the identities of `known_entries`.
            await read_account_list([session.list_access])
            return session.list_access.unverified_entries
    return () if is_listed else tuple(shown_entries)


async def record_shown_subscriber(session: Session) -> None:
    """Look up one subscriber of the base by Id, and record that the list shows the subscriber. Do nothing if the ledger
    already has a subscriber of the base that the list has shown.

    Call this function after a run has created subscribers. Only the first three bases of a run are looked up."""
    if session.canaries.checked_base_count == _MAX_CHECKED_BASES:
        return
    ledger_writer, random_identity = session.ledger_writer, session.list_access.draw_bytes(IDENTITY_BYTES)
    base = ledger_writer.base

    def find_entry_to_look_up(ledger: Ledger) -> Sequence[ConfirmedEntry]:
        return (
            () if ledger.find_shown_entries(base, b"", 1) else ledger.find_confirmed_entries(base, random_identity, 1)
        )

    for known_entry in await ledger_writer.execute(find_entry_to_look_up):
        session.canaries.checked_base_count += 1
        with suppress(ListFailed):
            if await _is_listed(session, known_entry):
                await ledger_writer.execute(
                    partial(Ledger.record_shown_identities, base=base, identities=[known_entry.identity])
                )


def _report_unshown_entries(session: Session, known_entries: Sequence[ConfirmedEntry]) -> None:
    """Add a message that the list shows none of these subscribers. Add no message if all of them are so new that the
    list may not show them yet."""
    max_confirmed_at = session.clock.now().timestamp() - session.list_access.expected_lag_s
    if any((known_entry.known_since or 0.0) <= max_confirmed_at for known_entry in known_entries):
        session.tally.add_message(
            f"The list shows none of {count(len(known_entries), 'subscriber')} that earlier runs created, so this run "
            "could not check that the token sees the same account. The service may hide new subscribers until they "
            "confirm (double opt-in). If your service does not hide new subscribers, compare the token with the token "
            "of the last run"
        )


async def _is_any_listed(session: Session, known_entries: Sequence[ConfirmedEntry]) -> bool | None:
    """Return whether the list shows one of `known_entries`, or None if the filter by Id is inconclusive. Return True if
    `known_entries` is empty."""
    for known_entry in known_entries:
        is_listed = await _is_listed(session, known_entry)
        if is_listed is not False:
            return is_listed
    return not known_entries


async def _is_listed(session: Session, known_entry: ConfirmedEntry) -> bool | None:
    """Return whether the list shows the subscriber with its id and identity in the base. Return None if the answer is
    inconclusive."""
    page = await _fetch_page(session, ListQuery(id=known_entry.subscriber_id))
    return _is_in_rows(session, known_entry, page.subscribers)


def _is_in_rows(session: Session, known_entry: ConfirmedEntry, rows: Sequence[dict[str, Any]]) -> bool | None:
    """Return whether these rows of the list show the subscriber with its id and identity in the base. Return None if
    the rows are inconclusive."""
    matching_rows = [row for row in rows if row.get("Id") == known_entry.subscriber_id]
    if not matching_rows:
        return None if rows else False
    return any(
        may_be_in_base(row, {known_entry.identity}, session.ledger_writer.base.service_id) for row in matching_rows
    )


async def _is_id_filter_working(session: Session) -> bool:
    """Return whether the filter Id finds a subscriber of the list. Return True if the list is empty."""
    page = await _fetch_page(session, ListQuery(limit=1))
    if not page.subscribers:
        return page.total_count == 0
    subscriber_id = page.subscribers[0].get("Id")
    if type(subscriber_id) is not int:
        return False
    trial = await try_sample(partial(_fetch_page, session), "id", (subscriber_id, subscriber_id))
    return trial.result is TrialResult.EXACT


async def _fetch_page(session: Session, query: ListQuery) -> ListPage:
    return await session.stop.wait_until_stopped(
        fetch_page(session.list_access.client, session.list_access.retrier, query)
    )


def describe_duplicates(duplicate_ids: Collection[tuple[int, ...]]) -> Iterator[str]:
    """Yield a message about subscribers of the run that exist twice. Each tuple of `duplicate_ids` contains the ids of
    one subscriber."""
    if not duplicate_ids:
        return
    ids_text = "; ".join(" and ".join(map(str, ids)) for ids in sorted(duplicate_ids)[:_MAX_SHOWN_DUPLICATES])
    duplicate_count = len(duplicate_ids)
    additional_text = (
        f"; and {duplicate_count - _MAX_SHOWN_DUPLICATES:,} more" if duplicate_count > _MAX_SHOWN_DUPLICATES else ""
    )
    yield (
        f"{count(duplicate_count, 'subscriber')} of this run {choose_form(duplicate_count, 'is', 'are')} in the "
        f"service twice (ids {ids_text}{additional_text}). A proxy or the service has executed creates twice, or "
        "another program has "
        "created the same people. Delete one subscriber of each pair in the service, and look for further pairs"
    )


async def find_unlisted_create(session: Session) -> ConfirmedCreate | None:
    """Return the last subscriber that the run has created, if the list does not show the subscriber even after a quiet
    period. Return None if the list shows the subscriber, or if the look-ups are inconclusive. Raises RunAborted and
    LedgerError."""
    list_access = session.list_access
    if not list_access.confirmed_creates or not session.policy.looks_up_first:
        return None
    last_confirmed_create = list_access.confirmed_creates[-1]
    for quiet_period_share in _QUIET_PERIOD_SHARES:
        wait_s = (
            last_confirmed_create.confirmed_at
            + quiet_period_share * session.policy.quiet_period_s
            - session.clock.monotonic()
        )
        if quiet_period_share and not await session.stop.wait(
            wait_s, "until the list should show the last new subscriber"
        ):
            return None
        ids = await _look_up_confirmed_create(
            session, last_confirmed_create, asks_for_group=quiet_period_share == _QUIET_PERIOD_SHARES[-1]
        )
        if ids:
            identities = [digest_identity(last_confirmed_create.field, last_confirmed_create.identity_text)]
            await list_access.ledger_writer.execute(
                partial(Ledger.record_shown_identities, base=list_access.ledger_writer.base, identities=identities)
            )
        if ids is None or ids:
            return None
    return last_confirmed_create


def describe_unlisted_create(
    session: Session, unlisted_create: ConfirmedCreate, created_count: int
) -> tuple[str, bool]:
    """Return a message about the last new subscriber of the run, because the list lacks this subscriber. Also return
    whether a person must look at the service. A person must look if the largest recorded lag of the list has passed.
    """
    age_s = session.clock.monotonic() - unlisted_create.confirmed_at
    first_sentence = (
        f"The service answered {count(created_count, 'create')} with an Id, and the list does not show the last new "
        f"subscriber (Id {unlisted_create.subscriber_id}) {age_s:.0f} s after the answer to its create."
    )
    if age_s < session.list_access.state.largest_lag_s:
        last_sentence = "The list has already had a longer lag, so the list may show the newest subscribers later"
        return f"{first_sentence} {last_sentence}", False
    message = (
        f"{first_sentence} So only the answers show that these subscribers exist. "
        "The list may lag, the service may hide new subscribers until they confirm (double opt-in), or the service "
        f"does not store the subscribers. Look for subscriber {unlisted_create.subscriber_id} in the service. If the "
        "list lags, set load.quiet_period longer than the lag"
    )
    return message, True


async def _look_up_confirmed_create(
    session: Session, confirmed_create: ConfirmedCreate, *, asks_for_group: bool
) -> set[int] | None:
    """Look the subscriber up by the identity, then by the Id. Return the ids under which the list shows the subscriber,
    or None if the look-ups are inconclusive.

    With `asks_for_group`, also send a query with the Id, the base and the activity, because the list may hide a group
    of subscribers."""
    base_id = session.list_access.state.base_id
    queries = [
        build_query(confirmed_create.field, confirmed_create.identity_text),
        ListQuery(id=confirmed_create.subscriber_id, base_id=base_id),
    ]
    if asks_for_group:
        queries.append(
            ListQuery(
                id=confirmed_create.subscriber_id,
                base_id=confirmed_create.base_id,
                is_active=confirmed_create.is_active,
            )
        )
    is_inconclusive = bool(session.list_access.state.hidden_groups)  # these queries may miss a hidden subscriber
    for query in queries:
        ids, ids_shown_in_base = await find_ids_of_confirmed_create(session.list_access, confirmed_create, query)
        session.tally.record_duplicates(ids_shown_in_base)
        if ids:
            return ids
        is_inconclusive |= ids is None
    return None if is_inconclusive else set()
