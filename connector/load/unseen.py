"""The look at the end of a run that has created subscribers: does the list show one of them (architecture 4.10)?

A service may answer creates with success and store nothing, or store the subscribers where nobody sees them. The
answers alone do not tell.
"""

from functools import partial

from connector.ledger.entries import Ledger
from connector.listing.access import ListAccess, Sentinel
from connector.listing.base_reader import is_known
from connector.listing.pages import ListFailed
from connector.listing.requests import ask, build_query
from connector.load.session import Session
from connector.plurals import count
from connector.service.wire import ListQuery
from connector.subscribers.identity import digest_identity

_LOOKS_AT = (0.0, 0.1, 1.0)  # shares of the quiet period after the answer: most lists lag by less than three seconds


async def find_unseen(session: Session) -> Sentinel | None:
    """Return the last subscriber that the run has created if the list does not show the subscriber, even after a quiet
    period. Return None if the list shows the subscriber, or if nothing tells. Raises RunAborted and LedgerError."""
    access = session.access
    if not access.sentinels or not session.policy.is_looking:
        return None
    last = access.sentinels[-1]
    for share in _LOOKS_AT:
        missing_s = last.at + share * session.policy.quiet_period_s - session.clock.monotonic()
        if share and not await session.control.wait(missing_s, "then the list should show the last new subscriber"):
            return None
        is_shown = await _is_shown(access, last, is_thorough=share == _LOOKS_AT[-1])
        if is_shown:
            identities = [digest_identity(last.field, last.value)]
            await access.journal.ask(partial(Ledger.record_shown, base=access.journal.base, identities=identities))
        if is_shown is not False:
            return None
    return last


async def describe_unseen(session: Session, last: Sentinel, created: int) -> tuple[str, bool]:
    """Return a message on `created` rows of which the list does not show the `last` one, and whether a person must look
    at the service. Nobody must if the list lags: the list shows the first subscriber of the run, or the lag on record
    has not passed yet. Raises RunAborted."""
    access, first = session.access, session.canaries.first
    age_s = session.clock.monotonic() - last.at
    words = (
        f"The service answered {count(created, 'create')} with an Id, and the list does not show the last new "
        f"subscriber (Id {last.subscriber_id}) {age_s:.0f} s after that answer."
    )
    is_first_shown = first is not None and first != last and await _is_shown(access, first, is_thorough=False)
    if is_first_shown or age_s < access.lag.largest_lag_s:
        return f"{words} The list lags, so the newest rows are answered and not yet seen", False
    message = (
        f"{words} So these rows are answered and not yet seen: the answers alone say that the subscribers exist. The "
        "list may lag, the service may hide new subscribers until they confirm (double opt-in), or the service does "
        f"not store what it answers. Look for subscriber {last.subscriber_id} in the service. If the list lags, make "
        "load.quiet_period longer than the lag"
    )
    return message, True


async def _is_shown(access: ListAccess, sentinel: Sentinel, *, is_thorough: bool) -> bool | None:
    """Return whether the filter Id shows the subscriber; None if the service lists others. If `is_thorough`, ask also
    by the identity, because the answered Id may be provisional, and together with the activity, because the list may
    hide a class."""
    base_id, by_value = access.state.base_id, build_query(sentinel.field, sentinel.value)
    queries = [ListQuery(id=sentinel.subscriber_id, base_id=base_id)]
    if is_thorough:
        queries += [by_value, ListQuery(id=sentinel.subscriber_id, base_id=base_id, is_active=sentinel.is_active)]
    identities, is_inconclusive = {digest_identity(sentinel.field, sentinel.value)}, False
    for query in queries:
        try:
            listed = await access.control.until_stopped(ask(access, query))
        except ListFailed:
            is_inconclusive = True
            continue
        if any(
            row["Id"] == sentinel.subscriber_id or is_known(row, identities, sentinel.base_id) for row in listed.rows
        ):
            return True
        is_inconclusive |= bool(listed.rows) and not listed.is_whole
    return None if is_inconclusive else False
