"""Same account, same base (architecture 4.10): some subscribers that the ledger has long known must still exist.

An inconclusive answer does not count as gone. Only if all that are asked for are gone, the account is another one, or
the base is empty.
"""

from collections.abc import Sequence
from functools import partial

from connector.errors import ConfigurationError
from connector.fields import is_similar_base_name
from connector.ledger.entries import Known
from connector.ledger.store import Base
from connector.listing.base_list import EmptiedError, detect_hidden_base, give_time_to_show
from connector.listing.base_reader import bears_identity
from connector.listing.controls import Control, try_sample
from connector.listing.pages import fetch_page
from connector.load.candidates import describe_other
from connector.load.session import Session
from connector.service.wire import ListPage, ListQuery
from connector.subscribers.identity import IDENTITY_BYTES

_ASKED_FOR = 4  # one and, if that one is gone, three more


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
        "--resend-held"
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


async def guard_account(session: Session) -> tuple[Known, ...]:
    """Look one known subscriber up by Id and, if it is gone, three more.

    Returns the known subscribers whose look-up was inconclusive: the run's first complete sweep must show one; where
    they need not show yet, it is read again once they must. Empty when all is well. Raises EmptiedError when all are
    gone, and ListFailed when the service does not answer.
    """
    journal, start = session.journal, session.access.draw(IDENTITY_BYTES)
    base, before = journal.base, journal.run_key
    known = await journal.ask(lambda ledger: ledger.find_confirmed(base, start, _ASKED_FOR, before=before))
    session.control.activity = "looking up known subscribers"
    is_there = await _ask_for_any(session, known)
    if is_there is False and await detect_hidden_base(session.access):
        return tuple(known)  # the filter Id cannot show them
    if is_there is False and await _does_answer_by_id(session):
        await give_time_to_show(session.access, known)
        is_there = await _ask_for_any(session, known)
        if is_there is False:
            raise EmptiedError(len(known))
    return () if is_there else tuple(known)


async def _ask_for_any(session: Session, known: Sequence[Known]) -> bool | None:
    """Return whether one of `known` exists (True if `known` is empty); None when the filter by Id is inconclusive."""
    for each in known:
        is_there = await _is_there(session, each.subscriber_id, each.identity)
        if is_there is not False:
            return is_there
    return not known


async def _is_there(session: Session, subscriber_id: int, identity: bytes) -> bool | None:
    """Return, by the filter Id (service-api.md 4.3), whether the id is listed with this identity; None if the answer is
    inconclusive."""
    rows = (await _fetch(session, ListQuery(id=subscriber_id))).subscribers
    mine = [row for row in rows if row.get("Id") == subscriber_id]
    if not mine:
        return None if rows else False
    return any(bears_identity(row, identity) for row in mine)


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
