"""Decides how to look subscribers up, and does it: by the list's filters, or by a sweep of the list.

The cheaper way goes first. Where it is inconclusive for some subscribers, the other way follows for these. Each way
decides what makes its answer certain (`connector.listing.lookup`, `connector.listing.base_list`).
"""

import logging
from collections.abc import Sequence
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
    return SweepCost(stats.pages, access.state.is_list_unreadable)


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


class KeyLookup:
    """A look-up in one or several bases, by the cheaper way first. Call `read_next` until it returns None."""

    def __init__(self, groups: Sequence[KeyGroup]) -> None:
        self._inconclusive = [group for group in groups if group.keys]  # after all ways that were tried
        self._unasked: list[KeyGroup] = []  # to be looked up by the present way
        self._parts: list[LookedUp] = []  # looked up, but not returned yet
        self._way = Way.NONE
        self._progress = LookupProgress(needs_sweep=any(group.access.known for group in groups))

    async def read_next(self) -> LookedUp | None:
        """Return some keys of one base, with their result, or None after the last key. Each key is returned once.

        A sweep gives the results of all keys together. Filters give them in parts, so that a run that is killed among
        thousands of look-ups has settled most of them. Keys for which every way is inconclusive come last.

        Raises ListFailed if the service does not return its list, and RunAborted if a base is not the intended one or
        the run must stop.
        """
        while self._parts or self._unasked or self._inconclusive:
            if not (self._parts or self._unasked):
                await self._choose_way()
            if not self._parts:
                self._parts = await self._look_up_some()
            part = self._parts.pop(0)
            if self._way is Way.NONE:
                return part
            conclusive, inconclusive = split_keys(part.keys, part.result)
            if inconclusive:
                self._inconclusive.append(KeyGroup(part.access, inconclusive))
            if conclusive:
                return replace(part, keys=conclusive)
        return None

    async def _choose_way(self) -> None:
        self._unasked, self._inconclusive = self._inconclusive, []
        for group in self._unasked:
            await detect_hidden_base(group.access)
        state = self._unasked[0].access.state
        if state.hidden:  # filters leave out the same classes as the list
            self._progress = replace(self._progress, tried=self._progress.tried | {Way.FILTER, Way.FILTER_AS_SENT})
        sweep = await estimate_sweep(self._unasked[0].access)
        keys = estimate_keys(self._unasked, sweep)
        lookup = decide_lookup(sweep, keys, self._progress)
        by_filter = {Way.FILTER, Way.FILTER_AS_SENT}
        if lookup.way in by_filter and await learn_hidden_classes(self._unasked[0].access, is_again=True):
            # Filters leave out the same classes as the list.
            self._progress = replace(self._progress, tried=self._progress.tried | by_filter)
            lookup = decide_lookup(sweep, keys, self._progress)
        log_lookup(lookup, self._unasked)
        self._way = lookup.way
        self._progress = replace(self._progress, tried=self._progress.tried | {lookup.way})

    async def _look_up_some(self) -> list[LookedUp]:
        if self._way in (Way.SWEEP, Way.NONE):
            state = self._unasked[0].access.state  # a base that the list hides has a list of its own
            groups = [group for group in self._unasked if group.access.state is state]
            self._unasked = [group for group in self._unasked if group.access.state is not state]
            is_sweep = self._way is Way.SWEEP
            results = await sweep_for(groups) if is_sweep else [build_inconclusive(group.access) for group in groups]
            return [LookedUp(group.access, group.keys, result) for group, result in zip(groups, results, strict=True)]
        access, keys = self._unasked[0].access, self._unasked[0].keys[:ASKED_TOGETHER]
        number_left = sum(len(group.keys) for group in self._unasked)
        remaining = self._unasked[0].keys[ASKED_TOGETHER:]
        self._unasked = [*([KeyGroup(access, remaining)] if remaining else []), *self._unasked[1:]]
        if self._way is Way.FILTER_AS_SENT:
            as_sent = [replace(key, in_any_spelling=False) for key in keys]
            result = await look_up_by_filter(access, as_sent, number_left)
            return [LookedUp(access, keys, result, is_as_sent=any(key.in_any_spelling for key in keys))]
        result = await look_up_by_filter(access, keys, number_left)
        if self._progress.tried == {Way.FILTER} and not _shows_what_we_send(access, result):
            result = replace(result, missed=frozenset())
        return [LookedUp(access, keys, result)]


async def look_for(access: ListAccess, keys: Sequence[LookupKey]) -> LookupResult:
    """Look the keys up, and return one result for all. Raises as `KeyLookup.read_next` does."""
    lookup, joined = KeyLookup([KeyGroup(access, keys)]), build_inconclusive(access)
    if (part := await lookup.read_next()) is not None:
        joined = part.result
    while (part := await lookup.read_next()) is not None:
        joined = _join(joined, part.result)
    return joined


async def look_up_by_filter(access: ListAccess, keys: Sequence[LookupKey], number_left: int) -> LookupResult:
    """Look the keys up by filters; they are the next ones of `number_left` keys.

    After a failure the result is inconclusive, and the filters of these fields are not used again: a service may fail
    at one unusual text."""
    started_at = access.clock.monotonic()
    try:
        return await look_by_filter(access, keys, remaining_count=number_left)
    except ListFailed as failure:
        if failure.status in UNAUTHORISED:
            raise
        access.state.useless.update(key.field for key in keys)
        return LookupResult({}, frozenset(), frozenset(), 0.0, started_at)


def split_keys(keys: Sequence[LookupKey], result: LookupResult) -> tuple[list[LookupKey], list[LookupKey]]:
    """Return the keys of which the result tells, and those of which it is inconclusive."""
    known = result.found.keys() | result.missed
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
    seen = [result.seen for result in (first, second) if result.missed]
    return LookupResult(
        {**first.found, **second.found},
        first.missed | second.missed,
        frozenset.intersection(*seen) if seen else first.seen | second.seen,
        max(first.lag_s, second.lag_s),
        min(first.started_at, second.started_at),
    )
