"""Evidence from outside a sweep that the list shows every subscriber (architecture 7, rule 7).

A list that a result window cuts off, or that hides a class of subscribers, looks complete: its TotalCount, its pages
and its end leave out the same subscribers. Other questions show the gap: counts of classes and bases, look-ups by Id
of subscribers that the ledger knows and the sweep lacks, and look-ups of Ids that no page showed.

`plan_questions` returns the next questions, and `ask_together` asks them. `connector.listing.findings` decides what the
answers mean. Both decisions are pure.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import numpy as np

from connector.listing.controls import Ask, Draw, are_as_asked, make_up_value
from connector.listing.findings import (
    CLASS_FIELDS,
    IDS_BEYOND,
    PARTITIONS,
    TOPICS_BY_ID,
    Answer,
    Question,
    Suspect,
    Topic,
    compute_step,
    contradicts,
    decide_partition,
    find_hidden,
    find_present,
    find_side,
    list_unshown,
    read_rounds,
    read_totals,
)
from connector.paging.certificate import (
    HiddenClass,
    Order,
)
from connector.paging.overlap import IdArray
from connector.service.wire import LARGEST_PAGE, ListQuery

MOST_REQUESTS = 25
"""The largest number of requests for evidence of one reading."""

FindLacking = Callable[[IdArray], Awaitable[Sequence[int]]]
"""Return a few Ids of confirmed ledger entries that are not among these ids (ascending)."""

_SAMPLE = 50  # rows of a part that are compared with the question
_MOST_BASES = 3  # listed bases that are counted: those of the job, then the largest
_MOST_UNLISTED = 3  # bases that are counted although no row shows them
_INSIDE = 3  # ids that are looked up between the first and the last listed one
_BEFORE = 1  # ids that are looked up beyond the other end
_LACKING_FIRST = 4  # ledger entries that are looked up before the combinations of classes
_RESERVE = 4  # requests that are reserved for second counts and look-ups
_END_READINGS = 2  # readings of the end at which new ids are listed: one may come from a replica that lags
_OVERLAP = 500  # rows before the end at which the list is read again; half a page, if pages are smaller


async def gather_answers(ask: Ask, suspect: Suspect, at_once: int) -> list[Answer]:
    """Ask for evidence, at most `at_once` questions at a time, until no question is left; return the answers."""
    answers: list[Answer] = []
    while questions := plan_questions(suspect, answers):
        answers += await ask_together(ask, questions, at_once)
    return answers


async def ask_lacking(ask: Ask, lacking: Sequence[int], answers: Sequence[Answer], at_once: int) -> list[Answer]:
    """Look up some of the ledger's subscribers that a reading with separate classes still lacks, as far as the requests
    reach after `answers`."""
    asked = {answer.question.value for answer in answers if answer.question.topic is Topic.LACKING}
    room = MOST_REQUESTS - len(answers)
    questions = [_ask_id(Topic.LACKING, subscriber_id) for subscriber_id in lacking if subscriber_id not in asked][
        : max(0, room)
    ]
    return await ask_together(ask, questions, at_once)


async def ask_together(ask: Ask, questions: Sequence[Question], at_once: int) -> list[Answer]:
    """Ask the questions, at most `at_once` at a time, and return the answers in the order of the questions."""
    slots = asyncio.Semaphore(max(1, at_once))

    async def ask_one(question: Question) -> Answer:
        async with slots:
            return Answer(question, await ask(question.query))

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask_one(question)) for question in questions]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def ask_combinations(
    ask: Ask, combinations: Sequence[Sequence[HiddenClass]], at_once: int
) -> dict[tuple[HiddenClass, ...], Sequence[dict[str, Any]]]:
    """Return the subscribers that a request for several classes at once shows, by combination. Combinations of which no
    subscriber is shown are left out. Ask `at_once` questions at a time."""
    questions = [
        Question(
            Topic.COMBINATION,
            ListQuery(limit=_SAMPLE, **dict(combination)),  # type: ignore[arg-type] # each is of its field's type
            classes=tuple(combination),
        )
        for combination in combinations
    ]
    answers = await ask_together(ask, questions, at_once)
    rows = {answer.question.classes: () if answer.page is None else answer.page.subscribers for answer in answers}
    return {classes: shown for classes, shown in rows.items() if shown and are_as_asked(dict(classes), shown)}


def draw_absent_values(filters: Collection[str], draw: Draw) -> dict[str, object]:
    """Return a value of each filter that no subscriber has, as far as the filter has such values."""
    values = {name: make_up_value(name, draw) for name in filters}
    return {name: value for name, value in values.items() if value is not None}


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
    has_looked_up = any(answer.question.topic in TOPICS_BY_ID for answer in answers)
    if not questions and not has_looked_up and not contradicts(suspect, answers):
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
    chosen += [base_id for base_id in suspect.unlisted_bases if base_id not in suspect.bases][:_MOST_UNLISTED]
    return chosen if len(chosen) > 1 or not largest else []


def _plan_recount(suspect: Suspect, answers: Sequence[Answer]) -> list[Question]:
    """Return the counts of the first partition whose parts exceed the whole, once more and in the other order."""
    for name in CLASS_FIELDS:
        rounds = read_rounds(suspect, name, answers)
        if rounds and decide_partition(suspect, name, answers) is None:
            values = PARTITIONS.get(name) or _choose_bases(suspect)
            number = len(rounds)
            in_turn = values if number % 2 == 0 else values[::-1]
            return [*_ask_parts(suspect, name, in_turn, number), _ask_whole(suspect, number)]
    return []


def _plan_combinations(suspect: Suspect, answers: Sequence[Answer]) -> list[Question]:
    """Return questions for the bases of the load that no row shows, and for several classes at once.

    The list may hide two classes, and every subscriber of one may be of the other as well. Then no request for one
    class shows a subscriber. A class that a request has shown is of interest beside a base that nothing has shown."""
    is_asked = any(answer.question.topic is Topic.COMBINATION for answer in answers)
    if is_asked or contradicts(suspect, answers):
        return []
    base_ids = () if "base_id" in suspect.filters else suspect.base_ids or ()
    unshown = list_unshown(suspect, answers)
    ours: list[HiddenClass] = [("base_id", base_id) for base_id in base_ids if base_id not in suspect.bases]
    bases = {*ours, *(class_ for class_ in unshown if class_[0] == "base_id")}
    classes = dict.fromkeys([*unshown, *find_hidden(suspect, answers), *ours])
    is_elsewhere = 0 < len(base_ids) == len(ours)  # a subscriber without one of our bases does not concern the load
    combinations = [
        combination
        for combination in combine_classes(list(classes), fewest=2)
        if not bases.isdisjoint(combination) or (set(unshown).issuperset(combination) and not is_elsewhere)
    ]
    asked = [*((own_class,) for own_class in ours), *combinations]
    return [
        Question(Topic.COMBINATION, _narrow(suspect, dict(combination)), classes=combination) for combination in asked
    ]


def combine_classes(classes: Sequence[HiddenClass], fewest: int = 1) -> list[tuple[HiddenClass, ...]]:
    """Return each combination of at least `fewest` of these classes of different filters, the small ones first.

    If all values of a filter are among the classes, each combination has one of the values: a subscriber of a
    combination without the filter has one of the values, too."""
    names = list(dict.fromkeys(name for name, _ in classes))
    choices = list[list[HiddenClass | None]]()
    for name in names:
        chosen = [class_ for class_ in classes if class_[0] == name]
        is_whole = len(chosen) == len(PARTITIONS.get(name, ())) > 0
        choices.append([*chosen] if is_whole and fewest > 1 else [None, *chosen])
    combinations = [tuple(class_ for class_ in combination if class_ is not None) for combination in product(*choices)]
    return sorted((combination for combination in combinations if len(combination) >= fewest), key=len)


def _plan_look_ups(suspect: Suspect, spent: int) -> list[Question]:
    """Return look-ups by Id, and of a few ledger entries, as far as the requests reach after `spent` requests."""
    questions = _plan_ids(suspect)[: MOST_REQUESTS - spent]
    room = max(0, MOST_REQUESTS - _RESERVE - spent - len(questions))
    return [
        *(_ask_id(Topic.LACKING, subscriber_id) for subscriber_id in suspect.lacking[: min(room, _LACKING_FIRST)]),
        *questions,
    ]


def _plan_lacking(suspect: Suspect, answers: Sequence[Answer]) -> list[Question]:
    """Return look-ups of the ledger entries that were not looked up yet. Return none if the answers contradict."""
    if contradicts(suspect, answers) or find_hidden(suspect, answers):
        return []
    asked = {answer.question.value for answer in answers if answer.question.topic is Topic.LACKING}
    return [_ask_id(Topic.LACKING, subscriber_id) for subscriber_id in suspect.lacking if subscriber_id not in asked]


def _plan_ids(suspect: Suspect) -> list[Question]:
    """Return look-ups of a listed id, of ids beyond both ends, and of missing ids in between."""
    ids = suspect.ids
    if suspect.filters or not len(ids):
        return []
    step, is_descending = compute_step(ids), suspect.certificate.order is Order.ID_DESC
    low, high = int(ids[0]), int(ids[-1])
    below, above = (IDS_BEYOND, _BEFORE) if is_descending else (_BEFORE, IDS_BEYOND)
    beyond = [
        *(high + step * step_number for step_number in range(1, above + 1)),
        *(low - step * step_number for step_number in range(1, below + 1)),
    ]
    return [
        _ask_id(Topic.KNOWN, int(ids[len(ids) // 2])),
        *(_ask_id(Topic.BEYOND, subscriber_id) for subscriber_id in beyond if subscriber_id > 0),
        *(_ask_id(Topic.MISSING, subscriber_id) for subscriber_id in _choose_inside(ids, step, suspect.seed)),
    ]


def _choose_inside(ids: IdArray, step: int, seed: bytes) -> list[int]:
    """Return a few ids that are missing between the first and the last listed id, each from another gap."""
    distances = np.diff(ids)
    gaps, random = np.flatnonzero(distances > step).tolist(), Random(seed)  # noqa: S311 - a choice, not a secret
    chosen = random.sample(gaps, min(_INSIDE, len(gaps)))
    return [int(ids[gap]) + step * random.randrange(1, int(distances[gap]) // step) for gap in chosen]


def _plan_second_looks(suspect: Suspect, answers: Sequence[Answer]) -> list[Question]:
    """Return second look-ups of unlisted ids that exist, and readings of the ends beyond which ids exist."""
    asked = [answer.question for answer in answers]
    questions = []
    for subscriber_id in sorted(find_present(suspect, answers, Topic.MISSING)):
        question = _ask_id(Topic.MISSING, subscriber_id, 1)
        questions += [question] if question not in asked else []
    if suspect.certificate.order in (Order.ID, Order.ID_DESC) and not any(
        question.topic is Topic.END for question in asked
    ):
        sides = {find_side(suspect, subscriber_id) for subscriber_id in find_present(suspect, answers, Topic.BEYOND)}
        if max(read_totals(answers), default=0) > (suspect.certificate.total_last or 0):
            sides.add("above")  # where newcomers are, if the list has grown
        for side in sorted(sides):
            is_tail = side == ("above" if suspect.certificate.order is Order.ID else "below")
            overlap = min(_OVERLAP, suspect.page_rows // 2)
            offset = max(0, suspect.certificate.distinct - overlap) if is_tail else 0
            query = replace(suspect.query, offset=offset, limit=LARGEST_PAGE - 1)
            questions += [Question(Topic.END, query, side)] * _END_READINGS
    return questions


def _ask_whole(suspect: Suspect, number: int) -> Question:
    """Return the question that reads a list of one page a second time, or counts a longer list.

    The limit differs from the limit of the reading, so that no cache repeats an answer."""
    limit = suspect.query.limit
    is_one_page = suspect.certificate.distinct <= limit
    query = replace(suspect.query, offset=0, limit=max(1, limit - 1) if is_one_page and not number else _SAMPLE)
    return Question(Topic.WHOLE, query, round=number)


def _ask_parts(suspect: Suspect, name: str, values: Sequence[object], number: int) -> list[Question]:
    return [Question(Topic.PART, _narrow(suspect, {name: value}), name, value, number) for value in values]


def _ask_id(topic: Topic, subscriber_id: int, number: int = 0) -> Question:
    return Question(topic, ListQuery(limit=_SAMPLE, id=subscriber_id), "id", subscriber_id, number)


def _narrow(suspect: Suspect, values: Mapping[str, object]) -> ListQuery:
    return replace(suspect.query, offset=0, limit=_SAMPLE, **values)  # type: ignore[arg-type] # each is of its field's type
