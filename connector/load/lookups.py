"""Looks subscribers up by filters of the list or by a sweep (a reading of the whole list), and chooses the method.

The cheaper method is used first. If the cheaper method is inconclusive for some subscribers, the other method looks
these subscribers up. Each method has its own proof of absence (`connector.listing.lookup`,
`connector.listing.base_list`).
"""

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from connector.listing.access import KeyGroup, ListAccess, LookupKey, LookupResult, find_latest_confirmation_time
from connector.listing.base_list import look_up_by_sweep
from connector.listing.hidden import find_hidden_base, record_hidden_groups
from connector.listing.lookup import BATCH_SIZE, can_prove_absence, count_requests, look_up_by_filters
from connector.listing.pages import ListFailed
from connector.listing.requests import read_list_stats
from connector.service.wire import UNAUTHORISED_STATUSES

logger = logging.getLogger(__name__)

UNCHECKED_SPELLINGS_MESSAGE = (
    "the list could not be read whole, so each row was looked up by a filter for its identity: as sent, and in its "
    "normal form. If the service has a subscriber's identity with other capitals, the run may create the subscriber a "
    "second time"
)


class LookupMethod(StrEnum):
    """A method of looking subscribers up."""

    FILTER = "filter"
    SWEEP = "sweep"
    # By filters, with the identity as sent and in normal form. Other spellings (upper or lower case) are not looked up.
    FILTER_BY_SENT_SPELLING = "filter as sent"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class SweepCost:
    """The cost of a sweep (a reading of the whole list). `is_unusable`: the last sweep was incomplete, or took longer
    than load.fresh."""

    request_count: int | None  # number of requests of a sweep; None: not known
    is_unusable: bool = False


@dataclass(frozen=True, slots=True)
class FilterCost:
    """The cost of look-ups by filter for some keys."""

    request_count: int  # number of requests, including the trials of filters
    unprovable_count: int = 0  # number of keys whose absence the filters cannot prove
    has_other_spellings: bool = False  # whether some keys must also be looked up in upper or lower case


@dataclass(frozen=True, slots=True)
class LookupProgress:
    """The facts about earlier look-ups of the run that decide the method of the next look-up."""

    tried_methods: frozenset[LookupMethod] = frozenset()  # methods that were inconclusive
    request_count: int = 0  # requests by filter that earlier look-ups of the run have made
    needs_sweep: bool = False  # whether only a sweep can verify the account or the name of the base


@dataclass(frozen=True, slots=True)
class LookupChoice:
    """The method of the next look-up, and the reason that the log shows."""

    method: LookupMethod
    reason: str


def choose_lookup(sweep_cost: SweepCost, filter_cost: FilterCost, progress: LookupProgress) -> LookupChoice:
    """Return the method for the next look-up, or `LookupMethod.NONE` if every method was inconclusive."""
    is_sweep_untried = LookupMethod.SWEEP not in progress.tried_methods
    is_filter_untried = not progress.tried_methods & {LookupMethod.FILTER, LookupMethod.FILTER_BY_SENT_SPELLING}
    if is_sweep_untried and progress.needs_sweep:
        return LookupChoice(LookupMethod.SWEEP, "the account or the base is not verified yet")
    if sweep_cost.is_unusable and is_filter_untried and not filter_cost.unprovable_count:
        return LookupChoice(LookupMethod.FILTER, "no sweep can be relied on")
    if (
        sweep_cost.is_unusable
        and filter_cost.has_other_spellings
        and LookupMethod.FILTER_BY_SENT_SPELLING not in progress.tried_methods
    ):
        return LookupChoice(
            LookupMethod.FILTER_BY_SENT_SPELLING, "no sweep can be relied on, and filters distinguish capitals"
        )
    if is_sweep_untried and is_filter_untried and not sweep_cost.is_unusable:
        return _choose_first_method(sweep_cost, filter_cost, progress)
    if is_filter_untried:
        return LookupChoice(LookupMethod.FILTER, "a sweep was inconclusive")
    if is_sweep_untried:
        return LookupChoice(LookupMethod.SWEEP, "the filters were inconclusive")
    return LookupChoice(LookupMethod.NONE, "both the filters and a sweep were inconclusive")


def _choose_first_method(sweep_cost: SweepCost, filter_cost: FilterCost, progress: LookupProgress) -> LookupChoice:
    if filter_cost.unprovable_count:
        return LookupChoice(
            LookupMethod.SWEEP, f"no filter is known to work for {filter_cost.unprovable_count:,} of the subscribers"
        )
    if sweep_cost.request_count is None:
        return LookupChoice(LookupMethod.SWEEP, "the list has no TotalCount")
    filter_request_count = progress.request_count + filter_cost.request_count
    reason = f"{filter_request_count:,} requests by filter, {sweep_cost.request_count:,} by a sweep"
    return LookupChoice(
        LookupMethod.FILTER if filter_request_count < sweep_cost.request_count else LookupMethod.SWEEP, reason
    )


def estimate_filter_cost(groups: Sequence[KeyGroup], sweep_cost: SweepCost) -> FilterCost:
    """Return the cost of look-ups by filter for the keys of these bases.

    If a sweep needs fewer requests than there are keys, the result is one request for each key. The exact cost does not
    matter then, because the sweep is cheaper."""
    key_count = sum(len(group.keys) for group in groups)
    has_other_spellings = any(key.ignores_case for group in groups for key in group.keys)
    if sweep_cost.request_count is not None and key_count >= sweep_cost.request_count and not sweep_cost.is_unusable:
        return FilterCost(key_count, 0, has_other_spellings)
    unprovable_count = sum(not can_prove_absence(group.list_access, key) for group in groups for key in group.keys)
    return FilterCost(sum(count_requests(group.keys) for group in groups), unprovable_count, has_other_spellings)


async def choose_lookup_method(
    groups: Sequence[KeyGroup], progress: LookupProgress, *, is_sweep_too_slow: bool = False
) -> LookupMethod:
    """Return the method for the next look-up of these keys, and log the method with its reason. Read one page of the
    list first, unless the stats of the list are fresh. Raises ListFailed, and RunAborted if the run must stop."""
    list_access = groups[0].list_access
    list_stats = await read_list_stats(list_access)
    sweep_cost = SweepCost(
        list_stats.sweep_request_count, bool(list_access.state.unreadable_reason) or is_sweep_too_slow
    )
    lookup_choice = choose_lookup(sweep_cost, estimate_filter_cost(groups, sweep_cost), progress)
    log_values = {"keys": sum(len(group.keys) for group in groups), "bases": len(groups), **asdict(lookup_choice)}
    logger.info("look-up: %(keys)d subscribers in %(bases)d bases, %(method)s: %(reason)s", log_values)
    return lookup_choice.method


@dataclass(frozen=True, slots=True)
class LookupPart:
    """A part of a look-up: subscribers (`keys`) in one base, with their result. With `has_unchecked_spellings`, they
    were looked up only in the spelling of this connector, although another program may have created some of the
    subscribers with other capitals.
    """

    list_access: ListAccess
    keys: Sequence[LookupKey]
    result: LookupResult
    has_unchecked_spellings: bool = False


async def look_up_keys(groups: Sequence[KeyGroup]) -> AsyncIterator[LookupPart]:
    """Look subscribers (`LookupKey`) up in one or several bases, by the cheaper method first. Yield parts of the
    subscribers with their results. Each subscriber is in one part.

    The results of a sweep are one part. The results of filters are many parts, so that a run that is killed during
    thousands of look-ups has settled most of the subscribers. Subscribers for whom every method is inconclusive come
    last.

    Raises ListFailed if the service does not return its list, and RunAborted if a base is not the intended one or the
    run must stop.
    """
    groups_for_next_method = [group for group in groups if group.keys]
    progress = LookupProgress(needs_sweep=any(group.list_access.unverified_entries for group in groups))
    while groups_for_next_method:
        remaining_groups, groups_for_next_method = groups_for_next_method, []
        method, progress = await _choose_next_method(remaining_groups, progress)
        while remaining_groups:
            lookup_parts, remaining_groups = await _look_up_next_groups(
                remaining_groups, method, progress.tried_methods
            )
            for lookup_part in lookup_parts:
                conclusive_keys, inconclusive_keys = split_conclusive_keys(lookup_part.keys, lookup_part.result)
                if method is LookupMethod.NONE:
                    yield lookup_part
                    continue
                if inconclusive_keys:
                    groups_for_next_method.append(KeyGroup(lookup_part.list_access, inconclusive_keys))
                if conclusive_keys:
                    yield replace(lookup_part, keys=conclusive_keys)


async def _choose_next_method(
    groups: Sequence[KeyGroup], progress: LookupProgress
) -> tuple[LookupMethod, LookupProgress]:
    """Return the method for the next look-up of the subscribers in `groups`, and the progress with this method."""
    for group in groups:
        await find_hidden_base(group.list_access)
    list_access, filter_methods = (
        groups[0].list_access,
        frozenset({LookupMethod.FILTER, LookupMethod.FILTER_BY_SENT_SPELLING}),
    )
    if list_access.state.hidden_groups:  # filters leave out the same groups of subscribers as the list
        progress = replace(progress, tried_methods=progress.tried_methods | filter_methods)
    method = await choose_lookup_method(groups, progress)
    if method in filter_methods and await record_hidden_groups(list_access, is_repeated=True):
        progress = replace(progress, tried_methods=progress.tried_methods | filter_methods)
        method = await choose_lookup_method(groups, progress)
    return method, replace(progress, tried_methods=progress.tried_methods | {method})


async def _look_up_next_groups(
    groups: Sequence[KeyGroup], method: LookupMethod, tried_methods: frozenset[LookupMethod]
) -> tuple[list[LookupPart], list[KeyGroup]]:
    """Look up some keys of the first groups with this method. Return the results, and the groups of keys that
    remain."""
    list_access, group_keys = groups[0].list_access, groups[0].keys
    if method in (LookupMethod.SWEEP, LookupMethod.NONE):
        groups_with_same_state = [group for group in groups if group.list_access.state is list_access.state]
        # A base that the account's list hides has its own state, and its own list.
        remaining_groups = [group for group in groups if group.list_access.state is not list_access.state]
        if method is LookupMethod.SWEEP:
            results = await look_up_by_sweep(groups_with_same_state)
        else:
            results = [build_inconclusive_result(group.list_access) for group in groups_with_same_state]
        groups_and_results = zip(groups_with_same_state, results, strict=True)
        return [
            LookupPart(group.list_access, group.keys, result) for group, result in groups_and_results
        ], remaining_groups
    remaining_key_count, keys = sum(len(group.keys) for group in groups), group_keys[:BATCH_SIZE]
    remaining_groups = [*groups[1:]]
    if later_keys := group_keys[BATCH_SIZE:]:
        remaining_groups = [KeyGroup(list_access, later_keys), *remaining_groups]
    filter_keys, has_unchecked_spellings = keys, False
    if method is LookupMethod.FILTER_BY_SENT_SPELLING:
        filter_keys = [replace(key, ignores_case=False) for key in keys]
        has_unchecked_spellings = any(key.ignores_case for key in keys)
    result = await try_look_up_by_filters(list_access, filter_keys, remaining_key_count)
    # Filters that do not find the latest confirmed create prove no absence, so the next look-up is a sweep.
    if tried_methods == {LookupMethod.FILTER} and not _shows_latest_confirmed_create(list_access, result):
        result = replace(result, absent_identities=frozenset())
    return [LookupPart(list_access, keys, result, has_unchecked_spellings)], remaining_groups


async def look_up_all(access: ListAccess, keys: Sequence[LookupKey]) -> LookupResult:
    """Look the keys up, and return one result for all keys. Raises as `look_up_keys` does."""
    result: LookupResult | None = None
    async for lookup_part in look_up_keys([KeyGroup(access, keys)]):
        result = lookup_part.result if result is None else _join_results(result, lookup_part.result)
    return build_inconclusive_result(access) if result is None else result


async def try_look_up_by_filters(
    access: ListAccess, keys: Sequence[LookupKey], remaining_key_count: int
) -> LookupResult:
    """Look up the keys by filters. `remaining_key_count` is the number of keys that remain to be looked up, including
    `keys`.

    If the look-up fails, return an inconclusive result. In this case, the run no longer uses filters by the fields of
    these keys. The service may fail each time that it gets the same unusual text."""
    started_at = access.clock.monotonic()
    try:
        return await look_up_by_filters(access, keys, remaining_key_count=remaining_key_count)
    except ListFailed as failure:
        if failure.status in UNAUTHORISED_STATUSES:
            raise
        access.state.unusable_fields.update(key.field for key in keys)
        return LookupResult({}, frozenset(), frozenset(), 0.0, started_at)


def split_conclusive_keys(keys: Sequence[LookupKey], result: LookupResult) -> tuple[list[LookupKey], list[LookupKey]]:
    """Return the keys with a conclusive result, and the keys with an inconclusive result."""
    conclusive_identities = result.found_ids.keys() | result.absent_identities
    return [key for key in keys if key.identity in conclusive_identities], [
        key for key in keys if key.identity not in conclusive_identities
    ]


def build_inconclusive_result(access: ListAccess) -> LookupResult:
    """Return a result that shows neither the presence nor the absence of any subscriber."""
    return LookupResult({}, frozenset(), frozenset(), 0.0, access.clock.monotonic())


def _shows_latest_confirmed_create(access: ListAccess, result: LookupResult) -> bool:
    """Return whether the filters showed this run's latest confirmed create. Also return True if the list lags, because
    then the list itself may lack the confirmed create."""
    earlier_confirmed_creates = [
        create for create in access.confirmed_creates if create.confirmed_at < result.started_at
    ]
    return (
        result.latest_confirmed_create_at >= find_latest_confirmation_time(earlier_confirmed_creates)
        or result.lag_s > 0
    )


def _join_results(first_result: LookupResult, second_result: LookupResult) -> LookupResult:
    """Join two results. If both results prove identities absent, keep only the confirmed creates that both look-ups
    showed."""
    confirmed_create_sets = [
        result.seen_confirmed_creates for result in (first_result, second_result) if result.absent_identities
    ]
    return LookupResult(
        {**first_result.found_ids, **second_result.found_ids},
        first_result.absent_identities | second_result.absent_identities,
        frozenset.intersection(*confirmed_create_sets)
        if confirmed_create_sets
        else first_result.seen_confirmed_creates | second_result.seen_confirmed_creates,
        max(first_result.lag_s, second_result.lag_s),
        min(first_result.started_at, second_result.started_at),
    )
