"""What the list shows of the subscribers that a run has created: all of them once, some twice, or none (architecture
4.9, 4.10).

A service may answer creates with success and store nothing, and a proxy may repeat a request, so that a create is
executed twice. The answers alone do not show either.
"""

from collections.abc import Collection, Iterator
from functools import partial

from connector.ledger.entries import Ledger
from connector.listing.access import Sentinel
from connector.listing.answered import find_ids
from connector.listing.requests import build_query
from connector.load.session import Session
from connector.plurals import agree, count
from connector.service.wire import ListQuery
from connector.subscribers.identity import digest_identity

_TWINS_NAMED = 20
_LOOKS_AT = (0.0, 0.1, 1.0)  # shares of the quiet period after the answer: most lists lag by less than three seconds


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
    period. Return None if the list shows the subscriber, or if nothing tells. Raises RunAborted and LedgerError."""
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
    """Return the ids under which the list shows the subscriber, or None if nothing tells. Ask by the identity, then by
    the Id. If `is_thorough`, ask also by the Id, the base and the activity, because the list may hide a class."""
    base_id = session.access.state.base_id
    queries = [build_query(sentinel.field, sentinel.value), ListQuery(id=sentinel.subscriber_id, base_id=base_id)]
    if is_thorough:
        queries.append(ListQuery(id=sentinel.subscriber_id, base_id=sentinel.base_id, is_active=sentinel.is_active))
    is_inconclusive = bool(session.access.state.hidden)  # the list may show the subscriber to no single request
    for query in queries:
        ids, twins = await find_ids(session.access, sentinel, query)
        session.tally.note_twins(twins)
        if ids:
            return ids
        is_inconclusive |= ids is None
    return None if is_inconclusive else set()
