"""Looks subscribers up by the filters of the list, one request for each spelling. The filters are tried before and
after the look-ups (architecture 2).

- A subscriber that a filter shows is present.
- A subscriber that a filter does not show is absent only if every answer had all matches of its request. In addition, a
  trial with similar texts must have passed before and after the look-up.
- If a filter lists subscribers for a made-up value, the service ignores the filter, and the run no longer uses it.
- Texts are similar if they have the same traits: the same unusual characters, such as a plus. A trial looks up a known
  subscriber with a similar text, and passes if the filter finds this subscriber. The best subscriber for a trial is a
  confirmed create of this run, because this run has sent the text. Without such a confirmed create, another listed
  subscriber is used.
- If the list shows a confirmed create by its id and not by its text, the filter fails. If the list does not show the
  confirmed create by its id either, the list may lag.
- A confirmed create proves that later look-ups see a fresh list. So the confirmed creates are looked up first.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from connector.fields import FIELD_BY_NAME
from connector.listing.access import (
    ConfirmedCreate,
    ConfirmedCreateVisibility,
    ListAccess,
    LookupKey,
    LookupResult,
    find_latest_confirmation_time,
    measure_lag,
    store_shown_subscribers,
)
from connector.listing.base_reader import BaseReader
from connector.listing.pages import ListFailed
from connector.listing.requests import (
    AnswerRows,
    look_up,
    look_up_together,
    read_list_stats,
    request_first_page,
    request_rows,
)
from connector.listing.trials import (
    SAMPLE_ROW_COUNT,
    TrialResult,
    change_case,
    have_requested_values,
    try_made_up_value,
    try_sample,
    try_samples,
)
from connector.service.wire import ListQuery
from connector.subscribers.spellings import (
    TextTraits,
    build_spellings,
    find_text_traits,
    spellings_differ_only_in_case,
)
from connector.texts import count

logger = logging.getLogger(__name__)

_LATEST_CONFIRMED_CREATE_COUNT = 8
"""How many of the latest confirmed creates are looked up. If the filter shows none of these confirmed creates, a quiet
period follows."""

_OLDEST_CONFIRMED_CREATE_COUNT = 2
"""How many of the run's oldest confirmed creates are looked up to check a filter. The list most likely shows the oldest
confirmed create, but this confirmed create may have been erased."""

# The identity filter is tried with this many subscribers of a group, because the first may have vanished.
_SAMPLE_COUNT = 3
_PLAIN_EMAIL_TRAITS = TextTraits("email", frozenset())


@dataclass(frozen=True, slots=True)
class FilterCheck:
    """The results of the trials for texts with certain traits, such as a plus. If no subscriber was known for a trial,
    or if no trial was conclusive, the traits are in no set."""

    traits_that_passed: frozenset[TextTraits] = frozenset()
    # If the filter of a field is not usable, the trials of this field have failed for all traits.
    traits_that_failed: frozenset[TextTraits] = frozenset()
    seen_confirmed_creates: tuple[ConfirmedCreate, ...] = ()
    is_case_insensitive: bool = False  # whether the filter by email is case-insensitive


async def check_filters(
    access: ListAccess,
    traits_of_texts: Collection[TextTraits],
    *,
    checks_case: bool = False,
    is_repeated: bool = False,
) -> FilterCheck:
    """Return the results of the trials for texts with these traits. With `checks_case`, also try whether the filter by
    email is case-insensitive.

    In a run, a filter is tried once for texts with the same traits, and once with a made-up value. With `is_repeated`,
    the trials that have passed are repeated, because a filter may stop working in the middle of a run. Raises
    ListFailed.
    """
    state = access.state
    await _try_fields(access, sorted({text_traits.field for text_traits in traits_of_texts}))
    traits_to_try = [
        text_traits
        for text_traits in traits_of_texts
        if text_traits.field in state.usable_fields
        and (text_traits not in state.trial_results or (state.trial_results[text_traits] and is_repeated))
    ]
    traits_to_try.sort(key=lambda text_traits: sorted(text_traits.traits))
    results = await look_up_together(
        access, [partial(_try_text_traits, access, text_traits) for text_traits in traits_to_try]
    )
    for text_traits, (has_passed, _) in zip(traits_to_try, results, strict=True):
        if has_passed is not None:
            state.trial_results[text_traits] = has_passed
    is_letter_case_trial_due = state.is_case_insensitive is None or (state.is_case_insensitive and is_repeated)
    if checks_case and "email" in state.usable_fields and is_letter_case_trial_due:
        state.is_case_insensitive = await _is_email_filter_case_insensitive(access)
    return FilterCheck(
        frozenset(
            text_traits
            for text_traits in traits_of_texts
            if text_traits.field in state.usable_fields and state.trial_results.get(text_traits)
        ),
        frozenset(
            text_traits
            for text_traits in traits_of_texts
            if text_traits.field not in state.usable_fields or state.trial_results.get(text_traits) is False
        ),
        tuple(create for _, create in results if create is not None),
        is_case_insensitive=checks_case and state.is_case_insensitive is True,
    )


def can_try_filter(access: ListAccess, text_traits: TextTraits) -> bool:
    """Return whether the filter can be tried with a known subscriber whose text has these traits. The caller must read
    the stats of the list first."""
    state = access.state
    if text_traits.field in state.unusable_fields or state.trial_results.get(text_traits) is False:
        return False
    if state.list_stats is not None and text_traits in state.list_stats.samples_by_traits:
        return True
    return next(_find_confirmed_creates(access, text_traits), None) is not None


async def _try_fields(access: ListAccess, fields: Sequence[str]) -> None:
    """Try the filter of each field with a made-up value, once in a run."""
    state = access.state
    fields_to_try = [name for name in fields if name not in state.unusable_fields and name not in state.usable_fields]
    trial_functions = [
        partial(try_made_up_value, partial(request_first_page, access), name, access.draw_bytes)
        for name in fields_to_try
    ]
    for name, trial_result in zip(fields_to_try, await look_up_together(access, trial_functions), strict=True):
        if trial_result is TrialResult.IGNORED:
            state.unusable_fields.add(name)
        elif trial_result is TrialResult.EXACT:
            state.usable_fields.add(name)


async def _try_text_traits(access: ListAccess, text_traits: TextTraits) -> tuple[bool | None, ConfirmedCreate | None]:
    """Try the filter for texts with these traits: first with confirmed creates of this run, then with listed
    subscribers. The first conclusive trial counts.

    Return whether the filter passed (None: no trial was conclusive), and the confirmed create that the filter found.
    """
    request_page = partial(request_first_page, access)
    for confirmed_create in islice(_find_confirmed_creates(access, text_traits), _OLDEST_CONFIRMED_CREATE_COUNT):
        has_passed = await _try_confirmed_create(access, confirmed_create)
        if has_passed is not None:
            return has_passed, confirmed_create if has_passed else None
    list_stats = access.state.list_stats
    samples = list_stats.samples_by_traits.get(text_traits, []) if list_stats is not None else []
    trial = await try_samples(
        request_page, text_traits.field, [(sample.subscriber_id, sample.identity_text) for sample in samples]
    )
    return trial.is_proof if samples else None, None


async def _try_confirmed_create(access: ListAccess, confirmed_create: ConfirmedCreate) -> bool | None:
    """Return whether the filter finds a confirmed create by the identity that the run has sent. Return None if the list
    does not show the subscriber by its Id either."""
    request_page = partial(request_first_page, access)
    sample = confirmed_create.subscriber_id, confirmed_create.identity_text
    if (await try_sample(request_page, confirmed_create.field, sample)).is_proof:
        return True
    answer = await request_rows(access, ListQuery(id=confirmed_create.subscriber_id))
    if not answer.has_subscriber(confirmed_create.subscriber_id):
        return None
    # The list may have begun to show the confirmed create meanwhile.
    return (await try_sample(request_page, confirmed_create.field, sample)).is_proof


def _find_confirmed_creates(access: ListAccess, text_traits: TextTraits) -> Iterator[ConfirmedCreate]:
    """Yield the confirmed creates whose sent text has these traits, in the order of their confirmation."""
    for confirmed_create in tuple(access.confirmed_creates):
        if (
            confirmed_create.field == text_traits.field
            and find_text_traits(confirmed_create.field, confirmed_create.identity_text) == text_traits
        ):
            yield confirmed_create


async def _is_email_filter_case_insensitive(access: ListAccess) -> bool | None:
    """Return whether the filter by email is case-insensitive. The filter must find a listed Ann@x.org by ann@x.org, and
    a listed bob@x.org by BOB@X.ORG. Return None if no listed email is known for the trial.
    """
    list_stats = access.state.list_stats
    if list_stats is None:
        return None
    sample_groups = [
        samples
        for samples in (
            list_stats.find_samples_with_capitals(),
            list_stats.samples_by_traits.get(_PLAIN_EMAIL_TRAITS, []),
        )
        if samples
    ]
    request_page = partial(request_first_page, access)
    groups_of_samples_in_other_letter_case = [
        [(sample.subscriber_id, change_case(sample.identity_text)) for sample in samples] for samples in sample_groups
    ]
    trial_results = await look_up_together(
        access,
        [partial(try_samples, request_page, "email", samples) for samples in groups_of_samples_in_other_letter_case],
    )
    return all(result.is_proof for result in trial_results) if trial_results else None


async def find_visible_confirmed_creates(
    access: ListAccess, filter_check: FilterCheck, started_at: float, fields: Collection[str]
) -> ConfirmedCreateVisibility:
    """Look up confirmed creates by the filter of each field. Return the confirmed creates that the slowest filter
    shows, and the largest lag of all filters. The slowest filter is the filter that does not show the newest confirmed
    creates. Raises ListFailed.
    """
    visibilities = [
        await _find_confirmed_creates_by_filter(access, filter_check, started_at, field) for field in fields
    ]
    return ConfirmedCreateVisibility(
        min((visibility.seen_confirmed_creates for visibility in visibilities), key=find_latest_confirmation_time),
        max(visibility.lag_s for visibility in visibilities),
    )


async def _find_confirmed_creates_by_filter(
    access: ListAccess, filter_check: FilterCheck, started_at: float, field: str
) -> ConfirmedCreateVisibility:
    """Look up the latest confirmed create, and the latest confirmed create of each group (`is_active`) of the base. If
    the filter does not show the latest confirmed create, look a few earlier confirmed creates up.

    A confirmed create that the filter does not show proves a lag only if a trial with a similar text has passed.
    """
    confirmed_creates = [
        create for create in access.confirmed_creates if create.confirmed_at < started_at and create.field == field
    ]
    if not confirmed_creates:
        return ConfirmedCreateVisibility()
    base_id, newest_confirmed_create = access.ledger_writer.base.service_id, confirmed_creates[-1]
    latest_confirmed_create_by_is_active = {
        create.is_active: create for create in confirmed_creates if create.base_id == base_id
    }
    latest_confirmed_creates = dict.fromkeys([newest_confirmed_create, *latest_confirmed_create_by_is_active.values()])
    seen_confirmed_creates = {
        create
        for create in latest_confirmed_creates
        if create in filter_check.seen_confirmed_creates or await _is_confirmed_create_shown(access, create)
    }
    if newest_confirmed_create in seen_confirmed_creates:
        return ConfirmedCreateVisibility(frozenset(seen_confirmed_creates))
    findable_confirmed_creates = [
        create
        for create in confirmed_creates
        if find_text_traits(create.field, create.identity_text) in filter_check.traits_that_passed
    ]
    visibility = await _look_up_confirmed_creates(
        access, findable_confirmed_creates[-_LATEST_CONFIRMED_CREATE_COUNT:], started_at
    )
    return ConfirmedCreateVisibility(visibility.seen_confirmed_creates | seen_confirmed_creates, visibility.lag_s)


async def _look_up_confirmed_creates(
    access: ListAccess, confirmed_creates: Sequence[ConfirmedCreate], started_at: float
) -> ConfirmedCreateVisibility:
    """Look these confirmed creates up by filters. Return the confirmed creates that the filters show, and the lag that
    the other confirmed creates prove."""
    look_ups = [partial(_is_confirmed_create_shown, access, create) for create in confirmed_creates]
    results = list(zip(confirmed_creates, await look_up_together(access, look_ups), strict=True))
    missed_confirmed_creates = [create for create, is_shown in results if is_shown is False]
    return ConfirmedCreateVisibility(
        frozenset(create for create, is_shown in results if is_shown), measure_lag(missed_confirmed_creates, started_at)
    )


async def is_group_shown(access: ListAccess, *, is_active: bool, uses_filters: bool) -> bool | None:
    """Return whether look-ups show subscribers with this `is_active`. The look-ups are by filters (`uses_filters`), or
    by sweeps. If no look-up has shown such a subscriber yet, request the list with the filter `is_active`:

    - The request fails: return None.
    - The service refuses or ignores the filter: return False.
    - The answer is empty, so no such subscriber exists: return True.
    - The answer has subscribers, so sweeps hide the group: return False for sweeps. For filters, return whether the
      identity filter finds one of these subscribers.
    """
    state, field_name = access.state, access.policy.identity_field
    if is_active in (state.activity_values_shown_by_filters if uses_filters else state.activity_values_shown_by_sweep):
        return True
    try:
        page = await request_first_page(
            access, ListQuery(limit=SAMPLE_ROW_COUNT, base_id=state.base_id, is_active=is_active)
        )
    except ListFailed:
        return None
    if page is None or not have_requested_values({"is_active": is_active}, page.subscribers):
        return False
    if not page.subscribers:
        return page.total_count == 0
    identity_key = FIELD_BY_NAME[field_name].path[0]
    samples = [(row["Id"], row[identity_key]) for row in page.subscribers if row.get(identity_key)]
    return (
        uses_filters
        and (await try_samples(partial(request_first_page, access), field_name, samples[:_SAMPLE_COUNT])).is_proof
    )


async def _is_confirmed_create_shown(access: ListAccess, confirmed_create: ConfirmedCreate) -> bool | None:
    """Look up the confirmed create by each spelling of its identity. Return whether an answer shows its subscriber.
    Return None if no answer shows the subscriber, and at least one answer may be incomplete."""
    have_all_matches = True
    for text in build_spellings(confirmed_create.field, confirmed_create.identity_text):
        answer = await look_up(access, confirmed_create.field, text)
        if answer.has_subscriber(confirmed_create.subscriber_id):
            return True
        have_all_matches = have_all_matches and answer.has_all_matches
    return False if have_all_matches else None


# Number of identities between two trials of a filter; if the filter stops working, only these identities are
# inconclusive.
BATCH_SIZE = 300


async def look_up_by_filters(
    access: ListAccess, keys: Sequence[LookupKey], *, remaining_key_count: int | None = None
) -> LookupResult:
    """Look the keys up by filters alone. A case-sensitive filter does not prove the absence of a key with
    `ignores_case`.

    `remaining_key_count` is the number of keys that the run still has to look up, including `keys`, for the progress
    line.

    Raises ListFailed if the service does not answer, and RunAborted if the base is not the intended one or the run must
    stop.
    """
    await read_list_stats(access)
    key_look_ups = [_build_key_look_up(key) for key in keys]
    fields = sorted({key.field for key in keys})
    reader = BaseReader(access.ledger_writer.base, access.requested_base_name, fields, access.inactive_identities)
    access.stop.activity = f"looking for {count(remaining_key_count or len(keys), 'subscriber')} by the list's filters"
    result = await access.stop.wait_until_stopped(_FilterLookup(access, key_look_ups, reader).execute())
    log_values = {"asked": len(keys), "present": len(result.found_ids), "absent": len(result.absent_identities)}
    logger.info("look-up: by filter %(asked)d asked, %(present)d present, %(absent)d absent", log_values)
    return result


def can_prove_absence(access: ListAccess, key: LookupKey) -> bool:
    """Return whether filters may be able to prove this identity absent. For each spelling of the identity, a listed
    subscriber with the same traits must be known. The caller must read the stats of the list first.
    """
    key_look_up = _build_key_look_up(key)
    if key_look_up.needs_case_insensitive_filter and access.state.is_case_insensitive is False:
        return False
    return not key_look_up.may_have_unrequested_spellings and all(
        can_try_filter(access, text_traits) for text_traits in key_look_up.traits_of_texts
    )


def count_requests(keys: Sequence[LookupKey]) -> int:
    """Return the number of requests of `look_up_by_filters`, including the trials. Assume that each first trial passes,
    and that the stats of the list are known."""
    key_look_ups = [_build_key_look_up(key) for key in keys]
    traits_of_texts = frozenset[TextTraits]().union(*(key_look_up.traits_of_texts for key_look_up in key_look_ups))
    trial_count = len(traits_of_texts) + 2 * any(
        key_look_up.needs_case_insensitive_filter for key_look_up in key_look_ups
    )
    round_count = 1 + -(-len(key_look_ups) // BATCH_SIZE)
    made_up_value_count, confirmed_create_count = len({text_traits.field for text_traits in traits_of_texts}), 1
    text_count = sum(len(key_look_up.requested_texts) for key_look_up in key_look_ups)
    return text_count + round_count * trial_count + made_up_value_count + confirmed_create_count


@dataclass(frozen=True, slots=True)
class _KeyLookUp:
    """The look-up of a key: the texts that its requests ask for, and the traits of these texts.

    With `needs_case_insensitive_filter`, the email counts in any upper or lower case, so only a case-insensitive filter
    can prove absence. With `may_have_unrequested_spellings`, the service may store a spelling that differs from
    `requested_texts` in more than upper and lower case, so no filter can prove absence.
    """

    key: LookupKey
    requested_texts: tuple[str, ...] = field(repr=False)
    traits_of_texts: frozenset[TextTraits]
    needs_case_insensitive_filter: bool
    may_have_unrequested_spellings: bool

    def proves_absence(self, filter_check: FilterCheck) -> bool:
        """Return whether an empty answer proves absence, according to the results of the trials."""
        is_case_covered = filter_check.is_case_insensitive or not self.needs_case_insensitive_filter
        return (
            is_case_covered
            and not self.may_have_unrequested_spellings
            and self.traits_of_texts <= filter_check.traits_that_passed
        )

    def may_find_subscriber(self, filter_check: FilterCheck) -> bool:
        """Return whether the filter may find the subscriber, even if the filter cannot prove absence."""
        return not self.traits_of_texts & filter_check.traits_that_failed


def _build_key_look_up(key: LookupKey) -> _KeyLookUp:
    texts = build_spellings(key.field, key.identity_text)
    return _KeyLookUp(
        key,
        texts,
        frozenset(find_text_traits(key.field, text) for text in texts),
        needs_case_insensitive_filter=key.ignores_case and key.field == "email",
        may_have_unrequested_spellings=key.ignores_case
        and not spellings_differ_only_in_case(key.field, key.identity_text),
    )


@dataclass(slots=True)
class _FilterLookup:
    """A look-up by filters, with the results that it has until now."""

    list_access: ListAccess
    key_look_ups: Sequence[_KeyLookUp]
    reader: BaseReader
    found_ids: dict[bytes, set[int]] = field(default_factory=dict)
    absent_identities: set[bytes] = field(default_factory=set)

    async def execute(self) -> LookupResult:
        list_access = self.list_access
        started_at = list_access.clock.monotonic()
        visibility, filter_check = ConfirmedCreateVisibility(), await self._run_trials()
        if self._can_be_conclusive(filter_check):
            fields = sorted({key_look_up.key.field for key_look_up in self.key_look_ups})
            # Confirmed creates are looked up before the keys, so that the answers about the keys are at least as
            # recent.
            visibility = await find_visible_confirmed_creates(list_access, filter_check, started_at, fields)
        for batch_start in range(0, len(self.key_look_ups), BATCH_SIZE):
            if not self._can_be_conclusive(filter_check):
                break
            batch = self.key_look_ups[batch_start : batch_start + BATCH_SIZE]
            answers_by_identity = await self._look_up_batch(
                [key_look_up for key_look_up in batch if key_look_up.may_find_subscriber(filter_check)]
            )
            previous_check, filter_check = filter_check, await self._run_trials(is_repeated=True)
            for key_look_up in batch:
                answers = answers_by_identity.get(key_look_up.key.identity, ())
                # An answer with one subscriber may contain only the first match, unless the filter has listed several
                # subscribers in another answer.
                lists_several_matches = key_look_up.key.field in list_access.state.multiple_match_fields
                has_all_matches = bool(answers) and all(
                    answer.has_all_matches and (len(answer.rows) != 1 or lists_several_matches) for answer in answers
                )
                if (
                    has_all_matches
                    and key_look_up.proves_absence(previous_check)
                    and key_look_up.proves_absence(filter_check)
                ):
                    self.absent_identities.add(key_look_up.key.identity)
        found_ids = {identity: tuple(sorted(ids)) for identity, ids in self.found_ids.items()}
        absent_identities = frozenset(self.absent_identities.difference(found_ids))
        seen_confirmed_creates, lag_s = visibility.seen_confirmed_creates, visibility.lag_s
        if absent_identities:
            # One replica may lag, so the confirmed creates are looked up again. Only confirmed creates that are shown
            # again count.
            confirmed_creates = sorted(
                seen_confirmed_creates, key=lambda confirmed_create: confirmed_create.confirmed_at
            )
            later_visibility = await _look_up_confirmed_creates(list_access, confirmed_creates, started_at)
            seen_confirmed_creates, lag_s = later_visibility.seen_confirmed_creates, max(lag_s, later_visibility.lag_s)
        return LookupResult(
            found_ids, absent_identities, seen_confirmed_creates, lag_s, started_at, is_filter_result=True
        )

    async def _run_trials(self, *, is_repeated: bool = False) -> FilterCheck:
        checks_case = any(key_look_up.needs_case_insensitive_filter for key_look_up in self.key_look_ups)
        traits_of_texts = frozenset[TextTraits]().union(
            *(key_look_up.traits_of_texts for key_look_up in self.key_look_ups)
        )
        return await check_filters(self.list_access, traits_of_texts, checks_case=checks_case, is_repeated=is_repeated)

    def _can_be_conclusive(self, filter_check: FilterCheck) -> bool:
        """Return whether an answer could prove an identity absent, or find the subscriber of an unresolved create."""
        if any(key_look_up.proves_absence(filter_check) for key_look_up in self.key_look_ups):
            return True
        return any(
            key_look_up.may_find_subscriber(filter_check) and not key_look_up.key.ignores_case
            for key_look_up in self.key_look_ups
        )

    async def _look_up_batch(self, batch: Sequence[_KeyLookUp]) -> dict[bytes, list[AnswerRows]]:
        """Look up every spelling of the batch. Return the answers by identity. Store the found subscribers, and add
        their ids to `found_ids`."""
        spellings = [(key_look_up.key, text) for key_look_up in batch for text in key_look_up.requested_texts]
        look_ups = [partial(look_up, self.list_access, key.field, text) for key, text in spellings]
        answers = await look_up_together(self.list_access, look_ups)
        answers_by_identity: dict[bytes, list[AnswerRows]] = {}
        for (key, _), answer in zip(spellings, answers, strict=True):
            answers_by_identity.setdefault(key.identity, []).append(answer)
        identities = {key_look_up.key.identity for key_look_up in self.key_look_ups}
        rows = [row for answer in answers for row in answer.rows]
        identities_and_ids = self.reader.read(rows)
        store_shown_subscribers(self.list_access, rows, identities_and_ids, identities)
        for identity, subscriber_id in identities_and_ids:
            if identity in identities:
                self.found_ids.setdefault(identity, set()).add(subscriber_id)
        return answers_by_identity
