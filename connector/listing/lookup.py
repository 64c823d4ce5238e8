"""Looks subscribers up by the list's filters, one request a spelling, between controls that say what the answers are
worth (architecture 2).

A subscriber that a filter shows is there. One that it does not show is missed only if every answer was whole, and the
controls of each spelling's class passed before and after it. A filter that lists a made-up value is ignored by the
service, and not used in this run any more. A class passes when a subscriber of it who is on the list is found by their
own text: best a sentinel of this run by the text as it was sent, since that shows how the service treats what we send,
else one that was seen on the list. A sentinel that does not show may merely not show yet; that it shows by its id and
not by its text is what speaks against the filter. A sentinel speaks for what a look-up saw after it: so it is looked up
before the others.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from connector.fields import BY_NAME
from connector.listing.access import (
    ListAccess,
    LookupKey,
    LookupResult,
    Sentinel,
    Visibility,
    find_latest,
    keep_shown,
    measure_lag,
)
from connector.listing.base_reader import BaseReader
from connector.listing.controls import Control, are_as_asked, change_case, try_made_up, try_sample, try_samples
from connector.listing.pages import ListFailed
from connector.listing.requests import Shown, ask, ask_page, look_up, look_up_together, take_stats
from connector.service.wire import ListQuery
from connector.subscribers.identity import SpellingClass, build_spellings, classify, has_spellings_by_case_alone

logger = logging.getLogger(__name__)

_SENTINELS_AT_A_TIME = 8  # the latest: should none of them show yet, the next look is a quiet period later
_SENTINELS_TRIED = 2  # the first of the run, likeliest to show by now; another, should that one have been erased
_CLASS_SAMPLE = 50  # rows of a class that are compared with the question
_SAMPLES_TRIED = 3  # subscribers of the class that are looked up, should the first ones have vanished
_PLAIN_EMAILS = SpellingClass("email", frozenset())


@dataclass(frozen=True, slots=True)
class FilterCheck:
    """The results of controls: the classes that `passed`; those that `failed`, or whose filter is inconclusive; the
    sentinels shown; whether the filter by email finds other capitals. A class in neither set was not tried, since no
    known subscriber is of it."""

    passed: frozenset[SpellingClass] = frozenset()
    failed: frozenset[SpellingClass] = frozenset()
    shown: tuple[Sentinel, ...] = ()
    is_case_blind: bool = False


async def check_filters(
    access: ListAccess, classes: Collection[SpellingClass], *, with_case: bool = False, is_again: bool = False
) -> FilterCheck:
    """Return the results of the controls of these classes; with `with_case`, also whether the filter by email finds
    texts in other capitals.

    A filter is tried once in a run for each class, and once by a made-up value. With `is_again` those that have passed
    are tried once more: a filter may stop working in the middle of a run. Raises ListFailed.
    """
    state = access.state
    await _try_fields(access, sorted({each.field for each in classes}))
    due = [
        each
        for each in classes
        if each.field in state.checked_fields and (each not in state.controls or (state.controls[each] and is_again))
    ]
    due.sort(key=lambda each: sorted(each.traits))
    tried = await look_up_together(access, [partial(_try_class, access, each) for each in due])
    for spelling_class, (is_passed, _) in zip(due, tried, strict=True):
        if is_passed is not None:
            state.controls[spelling_class] = is_passed
    is_case_due = state.is_case_blind is None or (state.is_case_blind and is_again)
    if with_case and "email" in state.checked_fields and is_case_due:
        state.is_case_blind = await _is_case_blind(access)
    return FilterCheck(
        frozenset(each for each in classes if each.field in state.checked_fields and state.controls.get(each)),
        frozenset(
            each for each in classes if each.field not in state.checked_fields or state.controls.get(each) is False
        ),
        tuple(sentinel for _, sentinel in tried if sentinel is not None),
        is_case_blind=with_case and state.is_case_blind is True,
    )


def has_control(access: ListAccess, spelling_class: SpellingClass) -> bool:
    """Return whether the filter can be tried with a known subscriber of this class; needs a surveyed list."""
    state = access.state
    if spelling_class.field in state.useless or state.controls.get(spelling_class) is False:
        return False
    if state.stats is not None and spelling_class in state.stats.samples:
        return True
    return next(_find_sentinels(access, spelling_class), None) is not None


async def _try_fields(access: ListAccess, fields: Sequence[str]) -> None:
    """Ask for a made-up value of each field, once in a run."""
    state = access.state
    due = [each for each in fields if each not in state.useless and each not in state.checked_fields]
    made_up = [partial(try_made_up, partial(ask_page, access), each, access.draw) for each in due]
    for name, control in zip(due, await look_up_together(access, made_up), strict=True):
        if control is Control.IGNORED:
            state.useless.add(name)
        elif control is Control.EXACT:
            state.checked_fields.add(name)


async def _try_class(access: ListAccess, spelling_class: SpellingClass) -> tuple[bool | None, Sentinel | None]:
    """Try the class by sentinels first, then by listed subscribers; the first conclusive trial counts.

    Return whether the filter passed (None: no trial was conclusive), and the sentinel that showed.
    """
    page = partial(ask_page, access)
    for sentinel in islice(_find_sentinels(access, spelling_class), _SENTINELS_TRIED):
        is_passed = await _try_sentinel(access, sentinel)
        if is_passed is not None:
            return is_passed, sentinel if is_passed else None
    stats = access.state.stats
    samples = stats.samples.get(spelling_class, []) if stats is not None else []
    trial = await try_samples(page, spelling_class.field, [(each.subscriber_id, each.text) for each in samples])
    return trial.is_proof if samples else None, None


async def _try_sentinel(access: ListAccess, sentinel: Sentinel) -> bool | None:
    """Return whether the filter finds a sentinel by its text as sent; None if it does not show by its id either."""
    page, sample = partial(ask_page, access), (sentinel.subscriber_id, sentinel.value)
    if (await try_sample(page, sentinel.field, sample)).is_proof:
        return True
    if not (await ask(access, ListQuery(id=sentinel.subscriber_id))).holds(sentinel.subscriber_id):
        return None
    return (await try_sample(page, sentinel.field, sample)).is_proof  # they may have begun to show in between


def _find_sentinels(access: ListAccess, spelling_class: SpellingClass) -> Iterator[Sentinel]:
    """Yield the sentinels whose text as sent is of this class, the first confirmed first."""
    for sentinel in tuple(access.sentinels):
        if sentinel.field == spelling_class.field and classify(sentinel.field, sentinel.value) == spelling_class:
            yield sentinel


async def _is_case_blind(access: ListAccess) -> bool | None:
    """Return whether emails are found by a text in other capitals, those kept with some and plain ones; None where no
    such email is known."""
    stats = access.state.stats
    if stats is None:
        return None
    groups = [group for group in (stats.find_with_capitals(), stats.samples.get(_PLAIN_EMAILS, [])) if group]
    page = partial(ask_page, access)
    asked = [[(each.subscriber_id, change_case(each.text)) for each in group] for group in groups]
    trials = await look_up_together(access, [partial(try_samples, page, "email", samples) for samples in asked])
    return all(trial.is_proof for trial in trials) if trials else None


async def find_visibility(
    access: ListAccess, checked: FilterCheck, started_at: float, fields: Collection[str]
) -> Visibility:
    """Return the sentinels that the filters of these fields show: of the field whose latest one is the oldest.

    Raises ListFailed.
    """
    found = [await _find_by_filter(access, checked, started_at, field) for field in fields]
    return Visibility(min((each.seen for each in found), key=find_latest), max(each.lag_s for each in found))


async def _find_by_filter(access: ListAccess, checked: FilterCheck, started_at: float, field: str) -> Visibility:
    """Look for the latest sentinel of each class of the base and, if the latest of all does not show, for a few before
    it.

    A sentinel that does not show is a sign of lag only if the filter has passed for the class of its spelling.
    """
    sentinels = [each for each in access.sentinels if each.at < started_at and each.field == field]
    if not sentinels:
        return Visibility()
    base_id, newest = access.journal.base.service_id, sentinels[-1]
    of_classes = {each.is_active: each for each in sentinels if each.base_id == base_id}
    asked = dict.fromkeys([newest, *of_classes.values()])
    seen = {each for each in asked if each in checked.shown or await _is_shown(access, each)}
    if newest in seen:
        return Visibility(frozenset(seen))
    findable = [each for each in sentinels if classify(each.field, each.value) in checked.passed]
    tried = findable[-_SENTINELS_AT_A_TIME:]
    are_shown = await look_up_together(access, [partial(_is_shown, access, each) for each in tried])
    looked_up = list(zip(tried, are_shown, strict=True))
    seen |= {each for each, is_shown in looked_up if is_shown}
    missed = [each for each, is_shown in looked_up if is_shown is False]
    return Visibility(frozenset(seen), measure_lag(missed, started_at))


async def _confirm_visibility(access: ListAccess, visibility: Visibility, started_at: float) -> Visibility:
    """Return which of the sentinels the filters still show. One that is gone tells of replicas that lag."""
    tried = sorted(visibility.seen, key=lambda each: each.at)
    are_shown = await look_up_together(access, [partial(_is_shown, access, each) for each in tried])
    seen = frozenset(each for each, is_shown in zip(tried, are_shown, strict=True) if is_shown)
    missed = [each for each, is_shown in zip(tried, are_shown, strict=True) if is_shown is False]
    return Visibility(seen, max(visibility.lag_s, measure_lag(missed, started_at)))


async def is_class_shown(access: ListAccess, *, is_active: bool, by_filter: bool) -> bool | None:
    """Return whether look-ups of this kind show subscribers that are as active; None if the service does not tell.

    A listed subscriber tells. Else the list is asked for the class by its filter: an empty answer says that nobody is
    of the class, and a subscriber whom the look-ups leave out says that they hide the class.
    """
    state, field_name = access.state, access.policy.identity
    if is_active in (state.filtered_activity if by_filter else state.swept_activity):
        return True
    try:
        page = await ask_page(access, ListQuery(limit=_CLASS_SAMPLE, base_id=state.base_id, is_active=is_active))
    except ListFailed:
        return None
    if page is None or not are_as_asked({"is_active": is_active}, page.subscribers):
        return False
    if not page.subscribers:
        return page.total_count == 0
    path = BY_NAME[field_name].path[0]
    samples = [(row["Id"], row[path]) for row in page.subscribers if row.get(path)]
    return by_filter and (await try_samples(partial(ask_page, access), field_name, samples[:_SAMPLES_TRIED])).is_proof


async def _is_shown(access: ListAccess, sentinel: Sentinel) -> bool | None:
    """Return whether the sentinel shows by any spelling of what was sent, or None if an answer was not whole."""
    is_whole = True
    for text in build_spellings(sentinel.field, sentinel.value):
        shown = await look_up(access, sentinel.field, text)
        if shown.holds(sentinel.subscriber_id):
            return True
        is_whole = is_whole and shown.is_whole
    return False if is_whole else None


ASKED_TOGETHER = 300  # identities between two rounds of controls: a filter that stops working spoils no more than these


async def look_by_filter(
    access: ListAccess, keys: Sequence[LookupKey], *, number_left: int | None = None
) -> LookupResult:
    """Look the keys up by filters alone. A case-sensitive filter proves no key absent that asks for `in_any_spelling`.

    Where they are the next of many, `number_left` says how many are still looked for.

    Raises ListFailed when the service does not answer, RunAborted when the base is not the one that was meant or the
    run is to stop.
    """
    await take_stats(access)
    questions = [_build_question(key) for key in keys]
    fields = sorted({key.field for key in keys})
    reader = BaseReader(access.journal.base, access.asked_name, fields, access.inactive)
    access.control.activity = f"looking for {number_left or len(keys):,} by the list's filters"
    result = await access.control.until_stopped(_FilterLookup(access, questions, reader).carry_out())
    values = {"asked": len(keys), "present": len(result.found), "absent": len(result.missed)}
    logger.info("look-up: by filter %(asked)d asked, %(present)d present, %(absent)d absent", values)
    return result


def can_tell(access: ListAccess, key: LookupKey) -> bool:
    """Return whether a filter may prove this identity absent: a known subscriber exists for each control.

    The list's stats must be known.
    """
    question = _build_question(key)
    if question.needs_case_blind and access.state.is_case_blind is False:
        return False
    return not question.has_hidden_spellings and all(has_control(access, each) for each in question.classes)


def count_requests(keys: Sequence[LookupKey]) -> int:
    """Return the requests of `look_by_filter`, controls included, when each control passes at once and the stats are
    known."""
    questions = [_build_question(key) for key in keys]
    classes = frozenset[SpellingClass]().union(*(each.classes for each in questions))
    controls = len(classes) + 2 * any(each.needs_case_blind for each in questions)
    rounds = 1 + -(-len(questions) // ASKED_TOGETHER)
    made_up, sentinel = len({each.field for each in classes}), 1
    return sum(len(each.texts) for each in questions) + rounds * controls + made_up + sentinel


@dataclass(frozen=True, slots=True)
class _Question:
    """A key, with the texts to ask for and their classes.

    `needs_case_blind`: spellings in other capitals count, which only a filter that is blind to them finds;
    `has_hidden_spellings`: there may be some that no filter is known to find.
    """

    key: LookupKey
    texts: tuple[str, ...] = field(repr=False)
    classes: frozenset[SpellingClass]
    needs_case_blind: bool
    has_hidden_spellings: bool

    def proves_absence(self, checked: FilterCheck) -> bool:
        """Return whether the controls let an empty answer prove absence."""
        is_case_covered = checked.is_case_blind or not self.needs_case_blind
        return is_case_covered and not self.has_hidden_spellings and self.classes <= checked.passed

    def is_askable(self, checked: FilterCheck) -> bool:
        """Return whether the filter may at least find the subscriber."""
        return not self.classes & checked.failed


def _build_question(key: LookupKey) -> _Question:
    texts = build_spellings(key.field, key.value)
    return _Question(
        key,
        texts,
        frozenset(classify(key.field, text) for text in texts),
        needs_case_blind=key.in_any_spelling and key.field == "email",
        has_hidden_spellings=key.in_any_spelling and not has_spellings_by_case_alone(key.field, key.value),
    )


@dataclass(slots=True)
class _FilterLookup:
    """One look-up by filters, in progress."""

    access: ListAccess
    questions: Sequence[_Question]
    reader: BaseReader
    found: dict[bytes, set[int]] = field(default_factory=dict)
    missed: set[bytes] = field(default_factory=set)

    async def carry_out(self) -> LookupResult:
        access = self.access
        started_at = access.clock.monotonic()
        visibility, checked = Visibility(), await self._check()
        if self._is_worth_asking(checked):
            fields = sorted({each.key.field for each in self.questions})
            visibility = await find_visibility(access, checked, started_at, fields)  # before any other look-up
        for start in range(0, len(self.questions), ASKED_TOGETHER):
            if not self._is_worth_asking(checked):
                break
            batch = self.questions[start : start + ASKED_TOGETHER]
            shown = await self._ask([each for each in batch if each.is_askable(checked)])
            before, checked = checked, await self._check(is_again=True)
            for each in batch:
                answers = shown.get(each.key.identity, ())
                is_whole = bool(answers) and all(self._is_all(each.key.field, answer) for answer in answers)
                if is_whole and each.proves_absence(before) and each.proves_absence(checked):
                    self.missed.add(each.key.identity)
        found = {identity: tuple(sorted(ids)) for identity, ids in self.found.items()}
        missed = frozenset(self.missed.difference(found))
        if missed:
            visibility = await _confirm_visibility(access, visibility, started_at)
        return LookupResult(found, missed, visibility.seen, visibility.lag_s, started_at, is_by_filter=True)

    def _is_all(self, name: str, answer: Shown) -> bool:
        """Return whether the answer has all subscribers of the text, each with its base.

        An answer with one subscriber may have the first match only, until the filter has listed several together."""
        if not answer.is_whole or any(self.reader.is_unclear(row.get("Base")) for row in answer.rows):
            return False
        return len(answer.rows) != 1 or name in self.access.state.plural_filters

    async def _check(self, *, is_again: bool = False) -> FilterCheck:
        with_case = any(each.needs_case_blind for each in self.questions)
        classes = frozenset[SpellingClass]().union(*(each.classes for each in self.questions))
        return await check_filters(self.access, classes, with_case=with_case, is_again=is_again)

    def _is_worth_asking(self, checked: FilterCheck) -> bool:
        """Return whether an answer could help: to prove an identity absent, or to find an unresolved one."""
        if any(each.proves_absence(checked) for each in self.questions):
            return True
        return any(each.is_askable(checked) and not each.key.in_any_spelling for each in self.questions)

    async def _ask(self, batch: Sequence[_Question]) -> dict[bytes, list[Shown]]:
        """Ask for every spelling of these; return the answers, and keep the subscribers that they show."""
        asked = [(each.key, text) for each in batch for text in each.texts]
        lookups = [partial(look_up, self.access, key.field, text) for key, text in asked]
        answers = await look_up_together(self.access, lookups)
        shown: dict[bytes, list[Shown]] = {}
        for (key, _), answer in zip(asked, answers, strict=True):
            shown.setdefault(key.identity, []).append(answer)
        identities = {each.key.identity for each in self.questions}
        rows = [row for answer in answers for row in answer.rows]
        listed = self.reader.read(rows)
        keep_shown(self.access, rows, listed, identities)
        for identity, subscriber_id in listed:
            if identity in identities:
                self.found.setdefault(identity, set()).add(subscriber_id)
        return shown
