"""Evidence from outside a sweep that the list shows every subscriber (architecture 7, rule 7).

A list that a result window cuts off, or that hides a class of subscribers, looks complete: its TotalCount, its pages
and its end leave out the same subscribers. Other questions show the gap: counts of classes and bases, look-ups by Id
of subscribers that the ledger knows and the sweep lacks, and look-ups of Ids that no page showed.

`plan_questions` returns the next questions, `ask_together` asks them, and `decide_evidence` returns what the answers
mean; the first and the last are pure. `find_hidden` returns the classes that a reader must ask for separately. A filter
counts only with a control: the rows of an answer must match the question.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import product
from random import Random
from typing import Any

import numpy as np

from connector.listing.controls import Ask, Draw, are_as_asked, make_up_value
from connector.paging.certificate import (
    Certificate,
    Counts,
    Finding,
    HiddenClass,
    Order,
    Says,
    TotalCount,
    decide_counts,
    is_window_size,
)
from connector.paging.overlap import IdArray, contained
from connector.service.wire import LARGEST_PAGE, ListPage, ListQuery

MOST_REQUESTS = 25
"""The largest number of requests for evidence of one reading."""

FindLacking = Callable[[IdArray], Awaitable[Sequence[int]]]
"""Return a few Ids of confirmed ledger entries that are not among these ids (ascending)."""

_SAMPLE = 50  # rows of a part that are compared with the question
_MOST_BASES = 3  # listed bases that are counted: those of the job, then the largest
_MOST_UNLISTED = 3  # bases that are counted although no row shows them
_INSIDE = 3  # ids that are looked up between the first and the last listed one
_BEYOND = 3  # ids that are looked up beyond the end at which a window would cut the list off
_BEFORE = 1  # ids that are looked up beyond the other end
_LACKING_FIRST = 4  # ledger entries that are looked up before the combinations of classes
_RESERVE = 4  # requests that are reserved for second counts and look-ups
_END_READINGS = 2  # readings of the end at which new ids are listed: one may come from a replica that lags
_OVERLAP = 500  # rows before the end at which the list is read again; half a page, if pages are smaller
_TAIL = 1000  # ids at the end of the list from which the density of ids is computed
_CHANCE = 0.001  # the absence of ids is evidence if the chance of an accident is at most this
_JUMP_ROWS, _JUMP_SHARE = 2, 0.01  # rows, and share of the list, that do not come between two requests
_GROWTH_ROWS, _GROWTH_SHARE = 5, 0.03  # rows, and share of the list, that do not come while evidence is gathered
_SHOWN_SHARE = 0.1  # share of a hidden class that the list may show, as its subscribers change
_LEAST_UNSEEN = 3  # unlisted subscribers that contradict the list: fewer may have come meanwhile

PARTITIONS: Mapping[str, Sequence[object]] = {"gender": ("male", "female", ""), "is_active": (True, False)}
"""Filters with all of their values (service-api.md 4.3): the parts add up to the whole. The most stable one first."""

CLASS_FIELDS = (*PARTITIONS, "base_id")
"""The fields by which subscribers are counted."""


class Topic(Enum):
    """What a question is about."""

    WHOLE = "whole"  # TotalCount of the suspected query, and its first rows
    PAIR = "pair"  # whether a filter of the query still works beside a filter of a partition
    PART = "part"  # TotalCount of one class or base
    COMBINATION = "combination"  # several classes at once, if no request for one of them showed a subscriber
    KNOWN = "known"  # control of the filter Id: a listed subscriber
    MISSING = "missing"  # an id between two that were listed
    BEYOND = "beyond"  # an id below the smallest or above the largest, where newcomers may be
    LACKING = "lacking"  # a subscriber that the ledger has confirmed and no page showed
    END = "end"  # the page where ids below the smallest, or above the largest, are listed


_BY_ID = frozenset({Topic.KNOWN, Topic.MISSING, Topic.BEYOND, Topic.LACKING})


@dataclass(frozen=True, slots=True)
class Question:
    """One request for evidence; `name` and `value` are those of the part or the id, `classes` those of a combination,
    `round` counts repeated counts."""

    topic: Topic
    query: ListQuery
    name: str = ""
    value: object = None
    round: int = 0
    classes: tuple[HiddenClass, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The page that a question brought; None where the service gave none."""

    question: Question
    page: ListPage | None

    @property
    def total(self) -> int | None:
        """TotalCount of the answer."""
        return None if self.page is None else self.page.total_count


@dataclass(frozen=True, slots=True)
class Suspect:
    """A reading of the list that seems complete: its certificate, its query, the filters of the query by name, and the
    ids of the listed subscribers (ascending).

    `page_rows` is the number of rows of a full page. `listed` has the number of rows of each class: by the name of a
    field, then by value. `base_ids` are the bases of a load, as far as their Ids are known (None: the reading is for
    every base). `unlisted_bases` are bases that are counted even if no row shows them. `hidden` has the classes that
    were read separately; their rows are among `ids` and `listed`. Partitions in `skipped` are not counted.
    `earlier_total` is the TotalCount that the run saw shortly before the reading. `lacking` has the ids of confirmed
    ledger entries that are not among the listed ids. `seed` is random. `absent_values` has, for each filter, a random
    value that no subscriber has.
    """

    certificate: Certificate
    query: ListQuery
    filters: Mapping[str, object]
    ids: IdArray
    page_rows: int = LARGEST_PAGE
    listed: Mapping[str, Mapping[object, int]] = field(default_factory=dict)
    base_ids: Sequence[int] | None = None
    unlisted_bases: Sequence[int] = ()
    hidden: tuple[HiddenClass, ...] = ()
    skipped: Collection[str] = ()
    earlier_total: int | None = None
    lacking: Sequence[int] = ()
    seed: bytes = b""
    absent_values: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_counted(self) -> bool:
        """Whether TotalCount is checked, so that the counts of the service can be compared."""
        return self.certificate.total_count is TotalCount.CHECKED

    @property
    def bases(self) -> Mapping[int, int]:
        """The number of listed rows of each base."""
        return {each: rows for each, rows in self.listed.get("base_id", {}).items() if type(each) is int}

    @property
    def is_quiet(self) -> bool:
        """Whether the reading noticed no change."""
        certificate = self.certificate
        is_still = certificate.total_first == certificate.total_last
        return is_still and not (certificate.appeared or certificate.vanished)


async def gather_answers(ask: Ask, suspect: Suspect, at_once: int) -> list[Answer]:
    """Ask for evidence, at most `at_once` questions at a time, until no question is left; return the answers."""
    answers: list[Answer] = []
    while questions := plan_questions(suspect, answers):
        answers += await ask_together(ask, questions, at_once)
    return answers


async def ask_lacking(ask: Ask, lacking: Sequence[int], answers: Sequence[Answer], at_once: int) -> list[Answer]:
    """Look up some of the ledger's subscribers that a reading with separate classes still lacks, as far as the requests
    reach after `answers`."""
    asked = {each.question.value for each in answers if each.question.topic is Topic.LACKING}
    room = MOST_REQUESTS - len(answers)
    questions = [_ask_id(Topic.LACKING, each) for each in lacking if each not in asked][: max(0, room)]
    return await ask_together(ask, questions, at_once)


async def ask_together(ask: Ask, questions: Sequence[Question], at_once: int) -> list[Answer]:
    """Ask the questions, at most `at_once` at a time, and return the answers in the order of the questions."""
    places = asyncio.Semaphore(max(1, at_once))

    async def ask_one(question: Question) -> Answer:
        async with places:
            return Answer(question, await ask(question.query))

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask_one(each)) for each in questions]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [each.result() for each in tasks]


async def ask_combinations(
    ask: Ask, combinations: Sequence[Sequence[HiddenClass]], at_once: int
) -> dict[tuple[HiddenClass, ...], Sequence[dict[str, Any]]]:
    """Return the subscribers that a request for several classes at once shows, by combination. Combinations of which no
    subscriber is shown are left out. Ask `at_once` questions at a time."""
    questions = [
        Question(
            Topic.COMBINATION,
            ListQuery(limit=_SAMPLE, **dict(each)),  # type: ignore[arg-type] # each is of its field's type
            classes=tuple(each),
        )
        for each in combinations
    ]
    answers = await ask_together(ask, questions, at_once)
    rows = {each.question.classes: () if each.page is None else each.page.subscribers for each in answers}
    return {classes: shown for classes, shown in rows.items() if shown and are_as_asked(dict(classes), shown)}


def draw_absent_values(filters: Collection[str], draw: Draw) -> dict[str, object]:
    """Return a value of each filter that no subscriber has, as far as the filter has such values."""
    values = {name: make_up_value(name, draw) for name in filters}
    return {name: value for name, value in values.items() if value is not None}


# Questions


def plan_questions(suspect: Suspect, answers: Sequence[Answer]) -> list[Question]:
    """Return the next questions: counts, repeated counts if the counts contradict, look-ups by Id, second look-ups of
    the found ids, combinations of classes, and look-ups of more ledger entries. Return none if the answers decide.
    Return no more than MOST_REQUESTS allow.

    If the list changes, counts may have to be repeated twice, so look-ups wait until the counts agree.
    """
    if not answers:
        counts = _plan_counts(suspect)  # if TotalCount is ignored, for the rows alone
        is_one_wave = suspect.is_quiet or not suspect.is_counted
        return [*counts, *_plan_look_ups(suspect, len(counts))] if is_one_wave else counts
    questions = _plan_recount(suspect, answers)
    has_looked_up = any(each.question.topic in _BY_ID for each in answers)
    if not questions and not has_looked_up and not _contradicts(suspect, answers):
        questions = _plan_look_ups(suspect, len(answers))
    if not questions:
        questions = _plan_second_looks(suspect, answers)
    if not questions or len(answers) + len(questions) > MOST_REQUESTS:
        questions = _plan_combinations(suspect, answers) or _plan_lacking(suspect, answers)
    return questions[: MOST_REQUESTS - len(answers)]


def _plan_counts(suspect: Suspect) -> list[Question]:
    names = [name for name in PARTITIONS if name not in {*suspect.filters, *suspect.skipped}]
    questions = [_ask_whole(suspect, 0)]
    for name in names:
        questions += [
            Question(Topic.PAIR, _narrow(suspect, {other: value, name: PARTITIONS[name][0]}), name, other)
            for other, value in suspect.absent_values.items()
        ]
        questions += _ask_parts(suspect, name, PARTITIONS[name], 0)
    return [*questions, *_ask_parts(suspect, "base_id", _choose_bases(suspect), 0), _ask_whole(suspect, 0)]


def _choose_bases(suspect: Suspect) -> list[int]:
    """Return the bases to count: those of the job first, then the largest, then those that no row shows.

    A single base that holds every row is not counted."""
    if suspect.filters or "base_id" in suspect.skipped:
        return []
    largest = sorted(suspect.bases, key=lambda base: -suspect.bases[base])
    chosen = sorted(largest, key=lambda base: base not in (suspect.base_ids or ()))[:_MOST_BASES]
    chosen += [each for each in suspect.unlisted_bases if each not in suspect.bases][:_MOST_UNLISTED]
    return chosen if len(chosen) > 1 or not largest else []


def _plan_recount(suspect: Suspect, answers: Sequence[Answer]) -> list[Question]:
    """Return the counts of the first partition whose parts exceed the whole, once more and in the other order."""
    for name in CLASS_FIELDS:
        rounds = _read_rounds(suspect, name, answers)
        if rounds and _decide_partition(suspect, name, answers) is None:
            values = PARTITIONS.get(name) or _choose_bases(suspect)
            number = len(rounds)
            in_turn = values if number % 2 == 0 else values[::-1]
            return [*_ask_parts(suspect, name, in_turn, number), _ask_whole(suspect, number)]
    return []


def _plan_combinations(suspect: Suspect, answers: Sequence[Answer]) -> list[Question]:
    """Return questions for the bases of the load that no row shows, and for several classes at once.

    The list may hide two classes, and every subscriber of one may be of the other as well. Then no request for one
    class shows a subscriber. A class that a request has shown is of interest beside a base that nothing has shown."""
    is_asked = any(each.question.topic is Topic.COMBINATION for each in answers)
    if is_asked or _contradicts(suspect, answers):
        return []
    base_ids = () if "base_id" in suspect.filters else suspect.base_ids or ()
    unshown = list_unshown(suspect, answers)
    ours: list[HiddenClass] = [("base_id", each) for each in base_ids if each not in suspect.bases]
    bases = {*ours, *(each for each in unshown if each[0] == "base_id")}
    classes = dict.fromkeys([*unshown, *find_hidden(suspect, answers), *ours])
    is_elsewhere = 0 < len(base_ids) == len(ours)  # a subscriber without one of our bases does not concern the load
    combinations = [
        each
        for each in combine_classes(list(classes), fewest=2)
        if not bases.isdisjoint(each) or (set(unshown).issuperset(each) and not is_elsewhere)
    ]
    asked = [*((each,) for each in ours), *combinations]
    return [Question(Topic.COMBINATION, _narrow(suspect, dict(each)), classes=each) for each in asked]


def list_unshown(suspect: Suspect, answers: Sequence[Answer]) -> list[HiddenClass]:
    """Return the classes of which neither the reading nor a request for the class showed a subscriber."""
    rounds = {name: _read_parts(suspect, name, answers) for name in CLASS_FIELDS}
    return [
        (name, value)
        for name, counts in rounds.items()
        for value in (counts[-1] if counts else ())
        if not counts[-1][value] and not suspect.listed.get(name, {}).get(value)
    ]


def combine_classes(classes: Sequence[HiddenClass], fewest: int = 1) -> list[tuple[HiddenClass, ...]]:
    """Return each combination of at least `fewest` of these classes of different filters, the small ones first.

    If all values of a filter are among the classes, each combination has one of the values: a subscriber of a
    combination without the filter has one of the values, too."""
    names = list(dict.fromkeys(name for name, _ in classes))
    choices = list[list[HiddenClass | None]]()
    for name in names:
        chosen = [each for each in classes if each[0] == name]
        is_whole = len(chosen) == len(PARTITIONS.get(name, ())) > 0
        choices.append([*chosen] if is_whole and fewest > 1 else [None, *chosen])
    combinations = [tuple(each for each in combination if each is not None) for combination in product(*choices)]
    return sorted((each for each in combinations if len(each) >= fewest), key=len)


def _plan_look_ups(suspect: Suspect, spent: int) -> list[Question]:
    """Return look-ups by Id, and of a few ledger entries, as far as the requests reach after `spent` requests."""
    questions = _plan_ids(suspect)[: MOST_REQUESTS - spent]
    room = max(0, MOST_REQUESTS - _RESERVE - spent - len(questions))
    return [*(_ask_id(Topic.LACKING, each) for each in suspect.lacking[: min(room, _LACKING_FIRST)]), *questions]


def _plan_lacking(suspect: Suspect, answers: Sequence[Answer]) -> list[Question]:
    """Return look-ups of the ledger entries that were not looked up yet. Return none if the answers contradict."""
    if _contradicts(suspect, answers) or find_hidden(suspect, answers):
        return []
    asked = {each.question.value for each in answers if each.question.topic is Topic.LACKING}
    return [_ask_id(Topic.LACKING, each) for each in suspect.lacking if each not in asked]


def _plan_ids(suspect: Suspect) -> list[Question]:
    """Return look-ups of a listed id, of ids beyond both ends, and of missing ids in between."""
    ids = suspect.ids
    if suspect.filters or not len(ids):
        return []
    step, is_descending = _compute_step(ids), suspect.certificate.order is Order.ID_DESC
    low, high = int(ids[0]), int(ids[-1])
    below, above = (_BEYOND, _BEFORE) if is_descending else (_BEFORE, _BEYOND)
    beyond = [
        *(high + step * each for each in range(1, above + 1)),
        *(low - step * each for each in range(1, below + 1)),
    ]
    return [
        _ask_id(Topic.KNOWN, int(ids[len(ids) // 2])),
        *(_ask_id(Topic.BEYOND, each) for each in beyond if each > 0),
        *(_ask_id(Topic.MISSING, each) for each in _choose_inside(ids, step, suspect.seed)),
    ]


def _compute_step(ids: IdArray) -> int:
    """Return the largest number that divides all distances between ids; 1 for a single id."""
    return int(np.gcd.reduce(np.diff(ids))) if len(ids) > 1 else 1


def _choose_inside(ids: IdArray, step: int, seed: bytes) -> list[int]:
    """Return a few ids that are missing between the first and the last listed id, each from another gap."""
    distances = np.diff(ids)
    gaps, random = np.flatnonzero(distances > step).tolist(), Random(seed)  # noqa: S311 - a choice, not a secret
    chosen = random.sample(gaps, min(_INSIDE, len(gaps)))
    return [int(ids[gap]) + step * random.randrange(1, int(distances[gap]) // step) for gap in chosen]


def _plan_second_looks(suspect: Suspect, answers: Sequence[Answer]) -> list[Question]:
    """Return second look-ups of unlisted ids that exist, and readings of the ends beyond which ids exist."""
    asked = [each.question for each in answers]
    questions = []
    for each in sorted(_find_present(suspect, answers, Topic.MISSING)):
        question = _ask_id(Topic.MISSING, each, 1)
        questions += [question] if question not in asked else []
    if suspect.certificate.order in (Order.ID, Order.ID_DESC) and not any(each.topic is Topic.END for each in asked):
        sides = {_find_side(suspect, each) for each in _find_present(suspect, answers, Topic.BEYOND)}
        if max(_read_totals(answers), default=0) > (suspect.certificate.total_last or 0):
            sides.add("above")  # where newcomers are, if the list has grown
        for side in sorted(sides):
            is_tail = side == ("above" if suspect.certificate.order is Order.ID else "below")
            overlap = min(_OVERLAP, suspect.page_rows // 2)
            offset = max(0, suspect.certificate.distinct - overlap) if is_tail else 0
            query = replace(suspect.query, offset=offset, limit=LARGEST_PAGE - 1)
            questions += [Question(Topic.END, query, side)] * _END_READINGS
    return questions


def _find_side(suspect: Suspect, subscriber_id: int) -> str:
    """Return the side of the listed ids on which an id lies."""
    return "below" if subscriber_id < int(suspect.ids[0]) else "above"


def _ask_whole(suspect: Suspect, number: int) -> Question:
    """Return the question that reads a list of one page a second time, or counts a longer list.

    The limit differs from the limit of the reading, so that no cache repeats an answer."""
    limit = suspect.query.limit
    is_one_page = suspect.certificate.distinct <= limit
    query = replace(suspect.query, offset=0, limit=max(1, limit - 1) if is_one_page and not number else _SAMPLE)
    return Question(Topic.WHOLE, query, round=number)


def _ask_parts(suspect: Suspect, name: str, values: Sequence[object], number: int) -> list[Question]:
    return [Question(Topic.PART, _narrow(suspect, {name: each}), name, each, number) for each in values]


def _ask_id(topic: Topic, subscriber_id: int, number: int = 0) -> Question:
    return Question(topic, ListQuery(limit=_SAMPLE, id=subscriber_id), "id", subscriber_id, number)


def _narrow(suspect: Suspect, values: Mapping[str, object]) -> ListQuery:
    return replace(suspect.query, offset=0, limit=_SAMPLE, **values)  # type: ignore[arg-type] # each is of its field's type


# What the answers mean


def decide_evidence(suspect: Suspect, answers: Sequence[Answer]) -> list[Finding]:
    """Return a finding for each kind of evidence: whether it contradicts the size of the list."""
    findings = []
    for name in CLASS_FIELDS:
        if rounds := _read_rounds(suspect, name, answers):
            says = _decide_partition(suspect, name, answers) or Says.NOTHING
            last = rounds[-1]
            words = f"{' + '.join(f'{each:,}' for each in last.parts)} of {last.after:,}"
            hidden = _find_too_few(suspect, name, answers) if says is Says.CONTRADICTS else ()
            findings.append(Finding(name, says, words, tuple((name, value) for value in hidden)))
        elif not suspect.is_counted and (unshown := _find_unshown(suspect, name, answers)):
            words = f"{len(unshown)} classes of which only unlisted subscribers are shown"
            findings.append(Finding(name, Says.CONTRADICTS, words, tuple((name, value) for value in unshown)))
    for finding in (
        _decide_combinations(suspect, answers),
        _decide_totals(suspect, answers),
        _decide_rows(suspect, answers),
        _decide_lacking(suspect, answers),
        _decide_ids(suspect, answers),
    ):
        findings += [finding] if finding is not None else []
    return findings


def find_hidden(suspect: Suspect, answers: Sequence[Answer]) -> list[HiddenClass]:
    """Return the classes that the list shows only to a request that asks for them, as far as the answers tell."""
    return [each for finding in decide_evidence(suspect, answers) for each in finding.hidden]


def _contradicts(suspect: Suspect, answers: Sequence[Answer]) -> bool:
    findings = decide_evidence(suspect, answers)
    return any(each.says is Says.CONTRADICTS and not each.hidden for each in findings)


def _decide_partition(suspect: Suspect, name: str, answers: Sequence[Answer]) -> Says | None:
    """Return what the counts of a partition say, or None if they must be asked for once more."""
    certificate = suspect.certificate
    known = {each for each in (certificate.total_first, certificate.total_last) if each is not None}
    rounds = _read_rounds(suspect, name, answers)
    if any(each == name for each, _ in suspect.hidden):
        return Says.CONTRADICTS if _find_too_few(suspect, name, answers) else Says.NOTHING
    if _find_unshown(suspect, name, answers):
        return Says.CONTRADICTS
    says = decide_counts(rounds, suspect.is_quiet, known)
    if name != "base_id":
        return says
    # Bases that no page showed may be missing in both sums, and the bases that are not counted may have changed since.
    is_large = all(sum(each.parts) - each.after >= _compute_jump(each.after) for each in rounds)
    parts = _read_parts(suspect, name, answers)
    asked = parts[0] if parts else {}
    has_unlisted = any(all(each[base] for each in parts) and not suspect.bases.get(int(str(base))) for base in asked)
    return says if says is not Says.AGREES and (is_large or has_unlisted) else Says.NOTHING


def _find_too_few(suspect: Suspect, name: str, answers: Sequence[Answer]) -> list[object]:
    """Return the values of a partition of which the reading has too few rows. Before classes were read separately,
    return none if the reading has more than a few rows of such a value: then a window cuts the list off."""
    if unshown := _find_unshown(suspect, name, answers):
        return unshown
    counts, listed = _read_parts(suspect, name, answers)[-1], suspect.listed.get(name, {})
    slack = _compute_jump(suspect.certificate.distinct) if suspect.hidden or not suspect.is_quiet else 0
    too_few = [value for value, count in counts.items() if count - listed.get(value, 0) > slack]
    is_window = any(listed.get(value, 0) > _SHOWN_SHARE * counts[value] for value in too_few)
    return [] if is_window and not suspect.hidden else too_few


def _find_unshown(suspect: Suspect, name: str, answers: Sequence[Answer]) -> list[object]:
    """Return the values of a partition of which no row was listed, although several subscribers have the value and all
    that an answer shows of them are unlisted."""
    listed = suspect.listed.get(name, {})
    unshown = list[object]()
    is_read = bool(_read_rounds(suspect, name, answers)) or not suspect.is_counted
    for value in (_read_parts(suspect, name, answers) or [{}])[-1] if is_read else ():
        parts = [each for each in answers if each.question.topic is Topic.PART and each.question.name == name]
        shown = [each for each in parts if each.question.value == value]
        is_unseen = all(_shows_unlisted_alone(suspect, each) for each in shown)
        unshown += [value] if is_unseen and not listed.get(value) else []
    return unshown


def _shows_unlisted_alone(suspect: Suspect, answer: Answer) -> bool:
    """Return whether all rows of a part are unlisted, and cannot all be of newcomers: they are several, or one has an
    id between the listed ones."""
    unseen, ids = _read_unseen(suspect, answer), suspect.ids
    if not len(unseen) or len(unseen) < len(_read_ids(answer)):
        return False
    is_inside = len(ids) > 1 and bool(((unseen > ids[0]) & (unseen < ids[-1])).any())
    return is_inside or len(unseen) >= _LEAST_UNSEEN


def _read_rounds(suspect: Suspect, name: str, answers: Sequence[Answer]) -> list[Counts]:
    """Return the counts of a partition, round by round; none where an answer is missing or is not as asked."""
    wholes = [each for each in answers if each.question.topic is Topic.WHOLE] if suspect.is_counted else []
    rounds: list[Counts] = []
    for number, counts in enumerate(_read_parts(suspect, name, answers)):
        around = [each.total for each in wholes if each.question.round in (number - 1, number)]
        totals = [each for each in around if each is not None]
        if len(totals) < len(around) or len(totals) < 2:
            return []
        known = list(counts.values())
        if name == "base_id":  # the bases that are not counted keep the rows that the reading showed
            known.append(suspect.certificate.distinct - sum(suspect.bases.get(int(str(each)), 0) for each in counts))
        rounds.append(Counts(totals[0], known, totals[-1]))
    return rounds


def _read_parts(suspect: Suspect, name: str, answers: Sequence[Answer]) -> list[dict[object, int]]:
    """Return the counts of a partition by value, round by round; none where an answer is missing or not as asked."""
    pairs = [each for each in answers if each.question.topic is Topic.PAIR and each.question.name == name]
    if len(pairs) < len(suspect.absent_values) or not all(_is_empty(each) for each in pairs):
        return []
    parts = [each for each in answers if each.question.topic is Topic.PART and each.question.name == name]
    rounds = list[dict[object, int]]()
    for number in sorted({each.question.round for each in parts}):
        counts = {each.question.value: _read_count(suspect, each) for each in parts if each.question.round == number}
        known = {value: count for value, count in counts.items() if count is not None}
        if len(known) < len(counts):
            return []
        rounds.append(known)
    return rounds


def _read_count(suspect: Suspect, answer: Answer) -> int | None:
    """Return TotalCount of a part; if TotalCount is ignored, the number of rows that the answer shows. Return None if
    the rows are not as asked."""
    page = answer.page
    total = None if page is None else page.total_count if suspect.is_counted else len(page.subscribers)
    if page is None or total is None or bool(page.subscribers) != bool(total):
        return None
    asked = {**suspect.filters, answer.question.name: answer.question.value}
    return total if are_as_asked(asked, page.subscribers) else None


def _is_empty(answer: Answer) -> bool:
    return answer.page is not None and not answer.page.subscribers and not answer.page.total_count


def _decide_combinations(suspect: Suspect, answers: Sequence[Answer]) -> Finding | None:
    """Return what requests for several classes at once say; None if none shows a subscriber that is not listed.

    No request for one of the classes has shown a subscriber. So the list hides the classes, or a newcomer is of them.
    One subscriber contradicts a quiet list before the classes are read separately."""
    shown, number = list[tuple[HiddenClass, ...]](), 0
    for answer in answers:  # the small combinations first
        classes, page = answer.question.classes, answer.page
        if any(set(each) <= set(classes) for each in shown) or not classes or page is None:
            continue
        unseen = len(_read_unseen(suspect, answer))
        if unseen and are_as_asked({**suspect.filters, **dict(classes)}, page.subscribers):
            number += unseen
            shown.append(classes)
    if number < (1 if suspect.is_quiet and not suspect.hidden else _LEAST_UNSEEN):
        return None
    hidden = dict.fromkeys(each for classes in shown for each in classes)
    words = f"{number:,} subscribers are shown only to a request for {' and '.join(name for name, _ in shown[0])}"
    return Finding("classes", Says.CONTRADICTS, words, tuple(hidden))


def _decide_totals(suspect: Suspect, answers: Sequence[Answer]) -> Finding | None:
    """Compare the TotalCounts of the run.

    If nothing changes, a list whose TotalCount is much larger at another time has left subscribers out."""
    certificate = suspect.certificate
    last = certificate.total_last
    wholes = [each for each in answers if each.question.topic is Topic.WHOLE]
    totals = _read_totals(answers)
    if last is None or not suspect.is_counted:
        return None
    highest = max([certificate.total_first or 0, *totals])
    if _has_grown_at_end(suspect, answers):
        return Finding("total_count", Says.NOTHING, f"{highest:,} at another time than {last:,}, new ids at the end")
    largest = int(suspect.ids[-1]) if len(suspect.ids) else math.inf  # newcomers have larger ids
    unseen = max((int(np.count_nonzero(_read_unseen(suspect, each) < largest)) for each in wholes), default=0)
    least = _compute_jump(last)
    is_still = suspect.is_quiet and len(set(totals)) == 1
    if is_still and max(totals[0] - last, unseen) >= least:
        words = f"{totals[0]:,} in a second reading, {unseen:,} of them with ids between the listed ones"
        return Finding("total_count", Says.CONTRADICTS, words)
    if suspect.is_quiet and suspect.earlier_total is not None and suspect.earlier_total - last >= least:
        return Finding("total_count", Says.CONTRADICTS, f"{suspect.earlier_total:,} shortly before, then {last:,}")
    if suspect.is_quiet and highest - last >= max(_GROWTH_ROWS, _GROWTH_SHARE * last):
        return Finding("total_count", Says.CONTRADICTS, f"{last:,} in the reading, then {highest:,}")
    if highest - certificate.distinct >= max(2 * _GROWTH_ROWS, _GROWTH_SHARE * highest):
        return Finding("total_count", Says.CONTRADICTS, f"{highest:,} at one time, and {certificate.distinct:,} rows")
    if highest > last:
        return Finding("total_count", Says.AGREES, f"{highest:,} at another time than {last:,}")
    return None


def _read_totals(answers: Sequence[Answer]) -> list[int]:
    """Return the TotalCounts of the whole list."""
    wholes = [each for each in answers if each.question.topic is Topic.WHOLE]
    return [each.total for each in wholes if each.total is not None]


def _has_grown_at_end(suspect: Suspect, answers: Sequence[Answer]) -> bool:
    """Return whether subscribers were added to the list, and all of them beyond its largest id: other runs create
    subscribers.

    A second reading of a list of one page shows all ids. In a longer list in id order, the largest listed id still has
    the rank that it had, counted from the end where no newcomers are.
    """
    if not len(suspect.ids):
        return False
    largest, order, distinct = int(suspect.ids[-1]), suspect.certificate.order, len(suspect.ids)
    for answer in answers:
        shown, offset = _read_ids(answer), answer.question.query.offset
        newer = sum(each > largest for each in shown)
        if answer.page is None or answer.total is None or not newer:
            continue
        if answer.question.topic is Topic.WHOLE and len(shown) >= answer.total:
            older = np.array(sorted(each for each in set(shown) if each <= largest), dtype=np.int64)
            if np.array_equal(older, suspect.ids):
                return True
        if answer.question.topic is Topic.END and largest in shown:
            rank = offset + shown.index(largest)
            if rank == (distinct - 1 if order is Order.ID else answer.total - distinct):
                return True
    return False


def _decide_rows(suspect: Suspect, answers: Sequence[Answer]) -> Finding | None:
    """Compare the rows of counts with the listed rows: unlisted ids between listed ones contradict the list, because
    newcomers have ids beyond the end."""
    if len(suspect.ids) < 2:
        return None
    low, high = int(suspect.ids[0]), int(suspect.ids[-1])
    hidden = {(name, value) for name in CLASS_FIELDS for value in _find_unshown(suspect, name, answers)}
    for answer in answers:
        question = answer.question
        if question.topic not in (Topic.WHOLE, Topic.PART) or (question.name, question.value) in hidden:
            continue
        if answer.page is None or not are_as_asked(suspect.filters, answer.page.subscribers):
            continue
        unseen = _read_unseen(suspect, answer)
        inside = int(np.count_nonzero((unseen > low) & (unseen < high)))
        if inside >= max(_LEAST_UNSEEN, _JUMP_SHARE * len(_read_ids(answer))):
            return Finding("rows", Says.CONTRADICTS, f"{inside:,} rows of another answer are not on the list")
    return None


def _compute_jump(total: int) -> float:
    """Return the change of TotalCount that is too large to happen between two requests if the list seems unchanged."""
    return max(_JUMP_ROWS, _JUMP_SHARE * total)


def _read_unseen(suspect: Suspect, answer: Answer) -> IdArray:
    shown = np.array(sorted(set(_read_ids(answer))), dtype=np.int64)
    unseen: IdArray = shown[~contained(suspect.ids, shown)]
    return unseen


def _decide_lacking(suspect: Suspect, answers: Sequence[Answer]) -> Finding | None:
    """Return what look-ups of confirmed subscribers that the list lacks say; None without such look-ups.

    One of them that exists contradicts the list. If the query has a filter besides the base, two must exist: the values
    of one may have changed."""
    asked = [each for each in answers if each.question.topic is Topic.LACKING]
    if not asked:
        return None
    found = _find_present(suspect, answers, Topic.LACKING)
    is_by_filter = bool(set(suspect.filters) - {"base_id"})
    says = Says.CONTRADICTS if len(found) > is_by_filter else Says.NOTHING
    words = f"{len(found)} of {len(asked)} that the list lacks are there"
    return Finding("ledger", says, words, unlisted=tuple(sorted(found)))


def _decide_ids(suspect: Suspect, answers: Sequence[Answer]) -> Finding | None:
    """Return what look-ups of ids that the list lacks say; None without such look-ups.

    An id that exists contradicts the list, unless its subscriber came meanwhile. If the ids at the end are dense and no
    id exists beyond the end, the list is not cut off there."""
    asked = [each for each in answers if each.question.topic in (Topic.MISSING, Topic.BEYOND)]
    if not asked:
        return None
    missing = _find_present(suspect, answers, Topic.MISSING)
    beyond = _find_present(suspect, answers, Topic.BEYOND)
    again = [each for each in asked if each.question.round]
    hidden = missing.intersection(each.question.value for each in again if _is_present(suspect, each))
    for subscriber_id in beyond:
        side = _find_side(suspect, subscriber_id)
        ends = [each for each in answers if each.question.topic is Topic.END and each.question.name == side]
        shown = [set(_read_ids(each)) for each in ends if each.page is not None]
        if shown and not any(subscriber_id in each for each in shown):
            hidden.add(subscriber_id)
    total = max(_read_totals(answers), default=0)
    is_window = suspect.is_counted and total == len(suspect.ids) and (total % 100 == 0 or is_window_size(total))
    if is_window and len(beyond) >= _JUMP_ROWS:
        hidden |= beyond  # newcomers change TotalCount, unless a window caps it at a round number
    number = len({each.question.value for each in asked})
    words = f"{len(missing | beyond) or 'none'} of {number} ids that the list lacks exist"
    if hidden:
        return Finding("ids", Says.CONTRADICTS, words, unlisted=tuple(sorted(hidden)))
    is_known = any(each.question.topic is Topic.KNOWN and _is_present(suspect, each) for each in answers)
    is_proof = is_known and not missing and not beyond and _compute_chance(suspect) <= _CHANCE
    return Finding("ids", Says.AGREES if is_proof else Says.NOTHING, words)


def _compute_chance(suspect: Suspect) -> float:
    """Return the chance that all ids asked for beyond the end are unused although subscribers follow beyond the end."""
    order, ids = suspect.certificate.order, suspect.ids
    if order not in (Order.ID, Order.ID_DESC) or len(ids) < 2:
        return 1.0
    step = _compute_step(ids)
    tail = ids[-_TAIL:] if order is Order.ID else ids[:_TAIL]
    density = (len(tail) - 1) * step / int(tail[-1] - tail[0])
    end = _BEYOND if order is Order.ID else min(_BEYOND, int(ids[0] - 1) // step)
    return float((1 - density) ** end)


def _find_present(suspect: Suspect, answers: Sequence[Answer], topic: Topic) -> set[int]:
    """Return the ids of this topic that exist and were not listed."""
    present = [each for each in answers if each.question.topic is topic and _is_present(suspect, each)]
    return {subscriber_id for each in present for subscriber_id in _read_unseen(suspect, each).tolist()}


def _is_present(suspect: Suspect, answer: Answer) -> bool:
    """Return whether the service shows this subscriber alone for the Id, and the subscriber matches the filters of the
    suspected query."""
    if answer.page is None or _read_ids(answer) != [answer.question.value]:
        return False
    return are_as_asked(suspect.filters, answer.page.subscribers)


def _read_ids(answer: Answer) -> list[int]:
    rows = [] if answer.page is None else answer.page.subscribers
    return [each for row in rows if type(each := row.get("Id")) is int]
