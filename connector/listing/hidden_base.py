"""Finds out whether the account's list shows a base only to a request with its BaseId (architecture 4.7)."""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from connector.fields import BY_NAME
from connector.listing.access import ListAccess, ListLag, LookupState
from connector.listing.base_reader import build_reader
from connector.listing.evidence import ask_combinations, combine_classes
from connector.listing.pages import ListFailed, try_page
from connector.listing.requests import ask, look_up, read_stats
from connector.service.wire import ListQuery

_HIDDEN_SAMPLE = 50  # subscribers of a base that no listing has shown


async def detect_hidden_base(access: ListAccess, *, is_swept: bool = False) -> bool | None:
    """Return whether the account's list hides the base, or None while the Id of an unlisted base is unknown.

    If no listing of the run has shown the base, ask with its BaseId. If the list hides the base, later sweeps of
    `access` ask with the BaseId, and filters prove nothing. `is_swept`: a complete sweep has just shown nobody of the
    base; otherwise the identity filter may show that the base is not hidden. Raises ListFailed, and RunAborted if the
    base is not the intended one or the run must stop.
    """
    state, service_id = access.state, access.journal.base.service_id
    if state.base_id is not None or access.is_base_shown:
        return state.base_id is not None
    reader, stats = build_reader(access, [access.policy.identity]), await read_stats(access)
    if any(reader.is_of_base({"Id": base_id, "Name": name}) for base_id, name in stats.bases):
        access.is_base_shown = True
        return False
    if service_id is None:
        return None
    if is_swept and service_id in state.swept_bases:
        return False
    rows = await access.control.until_stopped(_ask_for_base(access, service_id))
    rows = [row for row in rows if reader.is_of_base(row.get("Base"))]
    ours = {each.subscriber_id: each for each in access.sentinels}
    others = [row for row in rows if row["Id"] not in ours]
    if not others:
        others = await access.control.until_stopped(_ask_for_classes(access, service_id))
    if not others:
        return False
    name, path = access.policy.identity, BY_NAME[access.policy.identity].path[0]
    sample = next((row for row in others if row.get(path)), None)
    if sample is not None and not is_swept:
        shown = await access.control.until_stopped(look_up(access, name, sample[path]))
        if shown.holds(sample["Id"]):
            access.is_base_shown = True
            return False
    sentinels = [ours[row["Id"]] for row in rows if row["Id"] in ours]
    for sentinel in sentinels:
        access.sentinels.remove(sentinel)
    access.lag = ListLag(deque(sentinels, maxlen=access.sentinels.maxlen), access.lag.largest_lag_s)
    access.state = LookupState(
        base_id=service_id, useless={"email", "client_user_id"}, shown=state.shown, elsewhere=state.elsewhere
    )
    return True


async def _ask_for_base(access: ListAccess, base_id: int) -> Sequence[dict[str, Any]]:
    """Return the first subscribers that the list shows with this BaseId. A service may refuse an unknown Id."""
    try:
        return (await ask(access, ListQuery(limit=_HIDDEN_SAMPLE, base_id=base_id))).rows
    except ListFailed as failure:
        if failure.status != 404:
            raise
        return ()


async def _ask_for_classes(access: ListAccess, base_id: int) -> list[dict[str, Any]]:
    """Return subscribers of the base, without those that this run has created, that the list shows only to a request
    for the base and for other classes. These are the classes that the list has not shown without such a request."""
    classes = tuple(dict.fromkeys([*access.state.hidden, *access.state.unshown]))
    base_class = "base_id", base_id
    combinations = [each for each in combine_classes([*classes, base_class], fewest=2) if base_class in each]
    ask_one = partial(try_page, access.client, access.retrier)
    shown = await ask_combinations(ask_one, combinations, access.policy.max_concurrency)
    rows = [row for part in shown.values() for row in part if type(row.get("Id")) is int]
    access.known_ids.add_shown([row["Id"] for row in rows])
    ours = {each.subscriber_id for each in access.sentinels}
    return [row for row in rows if row["Id"] not in ours]
