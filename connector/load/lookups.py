"""Decides how to look subscribers up, by the list's filters or by a sweep of the list, and looks them up.

The cheaper way is first. If it is inconclusive for some subscribers, the other way follows for these. Each way has its
own proof of absence (`connector.listing.lookup`, `connector.listing.base_list`).
"""

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from connector.listing.access import KeyGroup, ListAccess, LookupKey, LookupResult
from connector.listing.base_list import sweep_for
from connector.listing.hidden import detect_hidden_base, learn_hidden_classes
from connector.listing.lookup import ASKED_TOGETHER, can_prove_absence, count_requests, look_by_filter
from connector.listing.pages import ListFailed
from connector.listing.requests import read_stats
from connector.service.wire import UNAUTHORISED

logger = logging.getLogger(__name__)

_NEVER = float("-inf")

LOOKED_UP_AS_SENT = (
    "the list could not be read whole, so each row was looked up by filters, as it would be sent and as normalised: a "
    "subscriber that exists in other capitals may be created once more"
)


class Way(StrEnum):
    """A way to look subscribers up."""

    FILTER = "filter"
    SWEEP = "sweep"
    FILTER_AS_SENT = "filter as sent"  # as sent and as normalised, the least that architecture 4.7 asks
    NONE = "none"


@dataclass(frozen=True, slots=True)
class SweepCost:
    """The cost of a sweep of the list, in requests (None: not known). `is_unusable`: the last sweep was incomplete, or
    took longer than a create may rely on a look-up."""

    requests: int | None
    is_unusable: bool = False


@dataclass(frozen=True, slots=True)
class KeysCost:
    """The cost of look-ups by filter for some keys: the requests, with controls, and the number of keys for which no
    filter is known to work. `has_other_spellings`: some keys must also be looked up in other capitals to be absent."""

    requests: int
    untellable: int = 0
    has_other_spellings: bool = False


@dataclass(frozen=True, slots=True)
class LookupProgress:
    """The progress of a look-up: the ways that were inconclusive, and the requests by filter that the run has spent on
    look-ups before creates. `needs_sweep`: only a sweep can verify the account and the name of the base."""

    tried: frozenset[Way] = frozenset()
    spent: int = 0
    needs_sweep: bool = False


@dataclass(frozen=True, slots=True)
class Lookup:
    """The way to look subscribers up next, and the reason in words for a log."""

    way: Way
    reason: str


def decide_lookup(sweep: SweepCost, keys: KeysCost, progress: LookupProgress) -> Lookup:
    """Return the way to look the keys up next; `Way.NONE` if every way was inconclusive."""
    is_sweep_left = Way.SWEEP not in progress.tried
    is_filter_left = not progress.tried & {Way.FILTER, Way.FILTER_AS_SENT}
    if is_sweep_left and progress.needs_sweep:
        return Lookup(Way.SWEEP, "the account or the base is not verified yet")
    if sweep.is_unusable and is_filter_left and not keys.untellable:
        return Lookup(Way.FILTER, "no sweep can be relied on")
    if sweep.is_unusable and keys.has_other_spellings and Way.FILTER_AS_SENT not in progress.tried:
        return Lookup(Way.FILTER_AS_SENT, "no sweep can be relied on, and filters distinguish spellings")
    if is_sweep_left and is_filter_left and not sweep.is_unusable:
        return _choose_first(sweep, keys, progress)
    if is_filter_left:
        return Lookup(Way.FILTER, "a sweep was inconclusive")
    if is_sweep_left:
        return Lookup(Way.SWEEP, "the filters were inconclusive")
    return Lookup(Way.NONE, "both the filters and a sweep were inconclusive")


def log_lookup(lookup: Lookup, groups: Sequence[KeyGroup]) -> None:
    """Log the way that was chosen for a look-up, and its reason."""
    values = {"keys": sum(len(group.keys) for group in groups), "bases": len(groups), **asdict(lookup)}
    logger.info("look-up: %(keys)d keys in %(bases)d bases, %(way)s: %(reason)s", values)


def _choose_first(sweep: SweepCost, keys: KeysCost, progress: LookupProgress) -> Lookup:
    if keys.untellable:
        return Lookup(Way.SWEEP, f"no filter is known to work for {keys.untellable:,} of the keys")
    if sweep.requests is None:
        return Lookup(Way.SWEEP, "the list has no TotalCount")
    costs = f"{progress.spent + keys.requests:,} requests by filter, {sweep.requests:,} by a sweep"
    return Lookup(Way.FILTER if progress.spent + keys.requests < sweep.requests else Way.SWEEP, costs)


async def estimate_sweep(access: ListAccess) -> SweepCost:
    """Return the cost of a sweep. Read one page of the list unless its stats are fresh. Raises ListFailed, and
    RunAborted when the run is to stop."""
    stats = await read_stats(access)
    return SweepCost(stats.request_count, access.state.is_list_unreadable)


def estimate_keys(groups: Sequence[KeyGroup], sweep: SweepCost) -> KeysCost:
    """Return the cost of look-ups by filter for the keys of these bases.

    If the keys are more than the requests of a sweep, count one request for each key without looking at the keys."""
    number = sum(len(group.keys) for group in groups)
    has_other_spellings = any(key.in_any_spelling for group in groups for key in group.keys)
    if sweep.requests is not None and number >= sweep.requests and not sweep.is_unusable:
        return KeysCost(number, 0, has_other_spellings)
    untellable = sum(not can_prove_absence(group.access, key) for group in groups for key in group.keys)
    return KeysCost(sum(count_requests(group.keys) for group in groups), untellable, has_other_spellings)


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Some keys of a look-up in one base, with the result. `is_as_sent`: some of them were not looked up in other
    capitals, although a proof of their absence needs that."""

    access: ListAccess
    keys: Sequence[LookupKey]
    result: LookupResult
    is_as_sent: bool = False


async def look_up_keys(groups: Sequence[KeyGroup]) -> AsyncIterator[LookedUp]:
    """Look keys up in one or several bases, by the cheaper way first. Yield parts with their results, each key once.

    A sweep gives the results of all keys together. Filters give them in parts, so that a run that is killed among
    thousands of look-ups has settled most of them. Keys for which every way is inconclusive come last.

    Raises ListFailed if the service does not return its list, and RunAborted if a base is not the intended one or the
    run must stop.
    """
    inconclusive = [group for group in groups if group.keys]
    progress = LookupProgress(needs_sweep=any(group.access.unverified_entries for group in groups))
    while inconclusive:
        unasked, inconclusive = inconclusive, []
        way, progress = await _choose_way(unasked, progress)
        while unasked:
            parts, unasked = await _look_up_some(unasked, way, progress.tried)
            for part in parts:
                conclusive, remaining = split_keys(part.keys, part.result)
                if way is Way.NONE:
                    yield part
                    continue
                if remaining:
                    inconclusive.append(KeyGroup(part.access, remaining))
                if conclusive:
                    yield replace(part, keys=conclusive)


async def _choose_way(groups: Sequence[KeyGroup], progress: LookupProgress) -> tuple[Way, LookupProgress]:
    """Return the way to look the keys up next, and the progress with this way."""
    for group in groups:
        await detect_hidden_base(group.access)
    access, by_filter = groups[0].access, frozenset({Way.FILTER, Way.FILTER_AS_SENT})
    if access.state.hidden_classes:  # filters leave out the same classes as the list
        progress = replace(progress, tried=progress.tried | by_filter)
    sweep = await estimate_sweep(access)
    keys = estimate_keys(groups, sweep)
    lookup = decide_lookup(sweep, keys, progress)
    if lookup.way in by_filter and await learn_hidden_classes(access, is_again=True):
        progress = replace(progress, tried=progress.tried | by_filter)
        lookup = decide_lookup(sweep, keys, progress)
    log_lookup(lookup, groups)
    return lookup.way, replace(progress, tried=progress.tried | {lookup.way})


async def _look_up_some(
    groups: Sequence[KeyGroup], way: Way, tried: frozenset[Way]
) -> tuple[list[LookedUp], list[KeyGroup]]:
    """Look some of the keys up, and return the results and the remaining keys."""
    access, keys = groups[0].access, groups[0].keys
    if way in (Way.SWEEP, Way.NONE):
        together = [group for group in groups if group.access.state is access.state]
        remaining = [group for group in groups if group.access.state is not access.state]  # lists of hidden bases
        if way is Way.SWEEP:
            results = await sweep_for(together)
        else:
            results = [build_inconclusive(group.access) for group in together]
        pairs = zip(together, results, strict=True)
        return [LookedUp(group.access, group.keys, result) for group, result in pairs], remaining
    number_left, part = sum(len(group.keys) for group in groups), keys[:ASKED_TOGETHER]
    remaining = [KeyGroup(access, keys[ASKED_TOGETHER:]), *groups[1:]] if keys[ASKED_TOGETHER:] else [*groups[1:]]
    if way is Way.FILTER_AS_SENT:
        as_sent = [replace(key, in_any_spelling=False) for key in part]
        result = await look_up_by_filter(access, as_sent, number_left)
        return [LookedUp(access, part, result, is_as_sent=any(key.in_any_spelling for key in part))], remaining
    result = await look_up_by_filter(access, part, number_left)
    if tried == {Way.FILTER} and not _shows_what_we_send(access, result):
        result = replace(result, absent_identities=frozenset())
    return [LookedUp(access, part, result)], remaining


async def look_for(access: ListAccess, keys: Sequence[LookupKey]) -> LookupResult:
    """Look the keys up, and return one result for all. Raises as `look_up_keys` does."""
    joined: LookupResult | None = None
    async for part in look_up_keys([KeyGroup(access, keys)]):
        joined = part.result if joined is None else _join(joined, part.result)
    return build_inconclusive(access) if joined is None else joined


async def look_up_by_filter(access: ListAccess, keys: Sequence[LookupKey], number_left: int) -> LookupResult:
    """Look the keys up by filters; `number_left` keys remain to be looked up, these included.

    After a failure the result is inconclusive, and the filters of these fields are not used again: a service may fail
    at one unusual text."""
    started_at = access.clock.monotonic()
    try:
        return await look_by_filter(access, keys, remaining_count=number_left)
    except ListFailed as failure:
        if failure.status in UNAUTHORISED:
            raise
        access.state.useless_fields.update(key.field for key in keys)
        return LookupResult({}, frozenset(), frozenset(), 0.0, started_at)


def split_keys(keys: Sequence[LookupKey], result: LookupResult) -> tuple[list[LookupKey], list[LookupKey]]:
    """Return the keys for which the result is conclusive, and the keys for which it is inconclusive."""
    known = result.found_ids.keys() | result.absent_identities
    return [key for key in keys if key.identity in known], [key for key in keys if key.identity not in known]


def build_inconclusive(access: ListAccess) -> LookupResult:
    """Return an inconclusive result."""
    return LookupResult({}, frozenset(), frozenset(), 0.0, access.clock.monotonic())


def _shows_what_we_send(access: ListAccess, result: LookupResult) -> bool:
    """Return whether the filters showed this run's latest sentinel, or proved a lag; otherwise their absences prove
    nothing."""
    latest = max(
        (sentinel.confirmed_at for sentinel in access.sentinels if sentinel.confirmed_at < result.started_at),
        default=_NEVER,
    )
    return result.latest_seen_at >= latest or result.lag_s > 0


def _join(first: LookupResult, second: LookupResult) -> LookupResult:
    """Join both results. A sentinel counts only if each look-up that missed an identity showed it."""
    seen = [result.seen_sentinels for result in (first, second) if result.absent_identities]
    return LookupResult(
        {**first.found_ids, **second.found_ids},
        first.absent_identities | second.absent_identities,
        frozenset.intersection(*seen) if seen else first.seen_sentinels | second.seen_sentinels,
        max(first.lag_s, second.lag_s),
        min(first.started_at, second.started_at),
    )
