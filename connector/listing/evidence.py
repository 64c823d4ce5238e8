"""Evidence from outside a sweep that the list shows every subscriber (architecture 7, rule 7).

A list that a result window cuts off, or that hides a class of subscribers, looks complete. Its TotalCount, its pages
and its end leave out the same subscribers. Other questions show these missing subscribers: counts of classes and bases,
and look-ups by Id. The looked-up Ids are of subscribers that the ledger has and the sweep lacks, or are Ids that no
page showed.

`plan_questions` returns the next questions, and `ask_questions_together` asks them. `connector.listing.findings`
decides what the answers prove. The plan and the decision are pure functions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import numpy as np

from connector.listing.controls import DrawBytes, RequestPage, have_requested_values, make_up_value
from connector.listing.findings import (
    BEYOND_ID_COUNT,
    CLASS_FIELDS,
    PARTITIONS,
    TOPICS_BY_ID,
    Answer,
    ListReading,
    Question,
    Topic,
    compute_id_step,
    contradicts_reading,
    decide_partition,
    find_hidden_classes,
    find_hidden_ids,
    find_present_ids,
    find_side,
    list_unshown_classes,
    read_rounds,
    read_totals,
)
from connector.paging.certificate import HiddenClass, Order
from connector.paging.overlap import IdArray
from connector.service.wire import MAX_LIMIT, ListQuery

MAX_REQUESTS = 25
"""The largest number of requests for evidence of one reading."""

FindUnlistedEntries = Callable[[IdArray], Awaitable[Sequence[int]]]
"""A function with one argument: the listed ids, in ascending order. It returns Ids of confirmed ledger entries that are
not among the listed ids."""

# The largest number of rows in an answer. The rows show whether the service has applied the filter.
_SAMPLE_ROW_COUNT = 50
_MAX_LISTED_BASES = 3  # number of listed bases that are counted: first the bases of the job, then the largest bases
_MAX_UNLISTED_BASES = 3  # number of bases that are counted although no row shows them
_INSIDE_ID_COUNT = 3  # number of look-ups of ids that are missing between the first and the last listed id
_OTHER_END_ID_COUNT = 1  # number of looked-up ids before the first row, which no result window cuts off
_FIRST_ENTRY_COUNT = 4  # number of ledger entries that are looked up before the combinations of classes
_RESERVED_REQUEST_COUNT = 4  # number of requests that are kept for repeated counts and repeated look-ups
# An end of the list is requested this many times, because one answer may come from a replica that lags.
_END_READING_COUNT = 2

_OVERLAP_ROW_COUNT = 500
"""A request for the end of the list begins this many rows before the end. If pages are small, the request begins half a
page before the end."""


async def gather_answers(request_page: RequestPage, reading: ListReading, concurrency: int) -> list[Answer]:
    """Ask all questions about the reading, at most `concurrency` at a time, until `plan_questions` returns no question.
    Return the answers."""
    answers: list[Answer] = []
    while questions := plan_questions(reading, answers):
        answers += await ask_questions_together(request_page, questions, concurrency)
    return answers


async def ask_unlisted_entries(
    request_page: RequestPage, unlisted_entry_ids: Sequence[int], answers: Sequence[Answer], concurrency: int
) -> list[Answer]:
    """Look up ledger entries that the reading still lacks after the hidden classes were read separately. `answers` are
    the answers to the earlier requests for evidence. All requests together are at most MAX_REQUESTS."""
    requested_ids = {answer.question.value for answer in answers if answer.question.topic is Topic.UNLISTED_ENTRY}
    questions = [
        _build_id_question(Topic.UNLISTED_ENTRY, subscriber_id)
        for subscriber_id in unlisted_entry_ids
        if subscriber_id not in requested_ids
    ]
    return await ask_questions_together(request_page, questions[: max(0, MAX_REQUESTS - len(answers))], concurrency)


async def ask_questions_together(
    request_page: RequestPage, questions: Sequence[Question], concurrency: int
) -> list[Answer]:
    """Ask the questions, at most `concurrency` at a time, and return the answers in the order of the questions."""
    semaphore = asyncio.Semaphore(max(1, concurrency))

    async def ask_question(question: Question) -> Answer:
        async with semaphore:
            return Answer(question, await request_page(question.query))

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask_question(question)) for question in questions]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def ask_combinations(
    request_page: RequestPage, combinations: Sequence[Sequence[HiddenClass]], concurrency: int
) -> dict[tuple[HiddenClass, ...], Sequence[dict[str, Any]]]:
    """Ask for each combination of classes, `concurrency` questions at a time. Return the subscribers of the answers, by
    combination, without combinations that show no subscriber."""
    questions = [
        Question(
            Topic.COMBINATION,
            ListQuery(limit=_SAMPLE_ROW_COUNT, **dict(combination)),  # type: ignore[arg-type] # each value has its field's type
            classes=tuple(combination),
        )
        for combination in combinations
    ]
    answers = await ask_questions_together(request_page, questions, concurrency)
    rows_by_combination = {
        answer.question.classes: () if answer.page is None else answer.page.subscribers for answer in answers
    }
    return {
        classes: rows
        for classes, rows in rows_by_combination.items()
        if rows and have_requested_values(dict(classes), rows)
    }


def draw_absent_values(filters: Collection[str], draw_bytes: DrawBytes) -> dict[str, object]:
    """Return a value that no subscriber has, for each filter. Leave out filters whose values are all in use."""
    absent_values = {field_name: make_up_value(field_name, draw_bytes) for field_name in filters}
    return {field_name: value for field_name, value in absent_values.items() if value is not None}


def plan_questions(reading: ListReading, answers: Sequence[Answer]) -> list[Question]:
    """Return the next questions, or no question if the answers decide. Return no more questions than MAX_REQUESTS
    allows.

    The order of the questions is: counts, repeated counts if the counts contradict the list, look-ups by Id, second
    look-ups of ids that exist, combinations of classes, and look-ups of more ledger entries. If the list changes,
    counts may have to be repeated twice, so look-ups come after the counts.
    """
    if not answers:
        questions = _plan_count_questions(reading)
        # If TotalCount is ignored, only the rows of the answers are evidence.
        if reading.is_list_quiet or not reading.is_total_checked:
            questions += _plan_look_ups(reading, len(questions))
        return questions
    questions = _plan_recount_questions(reading, answers)
    has_looked_up = any(answer.question.topic in TOPICS_BY_ID for answer in answers)
    if not questions and not has_looked_up and not contradicts_reading(reading, answers):
        questions = _plan_look_ups(reading, len(answers))
    if not questions:
        questions = _plan_second_look_ups(reading, answers)
    if not questions or len(answers) + len(questions) > MAX_REQUESTS:
        questions = _plan_combination_questions(reading, answers) or _plan_entry_look_ups(reading, answers)
    return questions[: MAX_REQUESTS - len(answers)]


def _plan_count_questions(reading: ListReading) -> list[Question]:
    field_names = [
        field_name for field_name in PARTITIONS if field_name not in {*reading.filters, *reading.skipped_partitions}
    ]
    questions = [_build_whole_list_question(reading, 0)]
    for field_name in field_names:
        questions += [
            Question(
                Topic.FILTER_PAIR,
                _build_part_query(reading, {other_field_name: value, field_name: PARTITIONS[field_name][0]}),
                field_name,
                other_field_name,
            )
            for other_field_name, value in reading.absent_values.items()
        ]
        questions += _build_part_questions(reading, field_name, PARTITIONS[field_name], 0)
    return [
        *questions,
        *_build_part_questions(reading, "base_id", _choose_bases(reading), 0),
        _build_whole_list_question(reading, 0),
    ]


def _choose_bases(reading: ListReading) -> list[int]:
    """Return the bases to count: first the bases of the job, then the largest bases, then bases that no row shows.
    Return no base if one base has every row."""
    if reading.filters or "base_id" in reading.skipped_partitions:
        return []
    listed_bases = sorted(reading.base_counts, key=lambda base_id: -reading.base_counts[base_id])
    bases = sorted(listed_bases, key=lambda base_id: base_id not in (reading.base_ids or ()))[:_MAX_LISTED_BASES]
    unlisted_base_ids = [base_id for base_id in reading.unlisted_base_ids if base_id not in reading.base_counts]
    bases += unlisted_base_ids[:_MAX_UNLISTED_BASES]
    return bases if len(bases) > 1 or not listed_bases else []


def _plan_recount_questions(reading: ListReading, answers: Sequence[Answer]) -> list[Question]:
    """Return questions that count the parts of one partition again, in the opposite order. This is the first
    partition whose counts must be repeated. Return no question if no partition needs another count.
    """
    for field_name in CLASS_FIELDS:
        rounds = read_rounds(reading, field_name, answers)
        if rounds and decide_partition(reading, field_name, answers) is None:
            class_values = PARTITIONS.get(field_name) or _choose_bases(reading)
            round_index = len(rounds)
            ordered_values = class_values if round_index % 2 == 0 else class_values[::-1]
            return [
                *_build_part_questions(reading, field_name, ordered_values, round_index),
                _build_whole_list_question(reading, round_index),
            ]
    return []


def _plan_combination_questions(reading: ListReading, answers: Sequence[Answer]) -> list[Question]:
    """Return questions for the bases of the load that no row shows, and questions for combinations of classes.

    A subscriber may belong to two hidden classes, for example if it is inactive and has no gender. Only a request for
    both classes shows this subscriber. A class that a request has shown is combined only with bases that no row
    shows."""
    has_asked_combinations = any(answer.question.topic is Topic.COMBINATION for answer in answers)
    if has_asked_combinations or contradicts_reading(reading, answers):
        return []
    base_ids = () if "base_id" in reading.filters else reading.base_ids or ()
    unshown_classes = list_unshown_classes(reading, answers)
    load_base_classes: list[HiddenClass] = [
        ("base_id", base_id) for base_id in base_ids if base_id not in reading.base_counts
    ]
    base_classes = {*load_base_classes, *(class_ for class_ in unshown_classes if class_[0] == "base_id")}
    classes = dict.fromkeys([*unshown_classes, *find_hidden_classes(reading, answers), *load_base_classes])
    # A load needs only the subscribers of its bases.
    needs_load_base = 0 < len(base_ids) == len(load_base_classes)
    combinations = [
        combination
        for combination in combine_classes(list(classes), min_size=2)
        if not base_classes.isdisjoint(combination)
        or (set(unshown_classes).issuperset(combination) and not needs_load_base)
    ]
    return [
        Question(Topic.COMBINATION, _build_part_query(reading, dict(combination)), classes=combination)
        for combination in [*((load_base_class,) for load_base_class in load_base_classes), *combinations]
    ]


def combine_classes(classes: Sequence[HiddenClass], min_size: int = 1) -> list[tuple[HiddenClass, ...]]:
    """Return the combinations of at least `min_size` of these classes, the small combinations first. A combination has
    at most one class of each field.

    Every subscriber is active or inactive. So if both classes are in `classes` and `min_size` is more than one, the
    combination (male, base 7) is left out, and the combination (active, male, base 7) is returned. The three values of
    gender are treated in the same way.
    """
    field_names = list(dict.fromkeys(field_name for field_name, _ in classes))
    class_choices = list[list[HiddenClass | None]]()
    for field_name in field_names:
        classes_of_field = [class_ for class_ in classes if class_[0] == field_name]
        has_all_values = len(classes_of_field) == len(PARTITIONS.get(field_name, ())) > 0
        class_choices.append([*classes_of_field] if has_all_values and min_size > 1 else [None, *classes_of_field])
    combinations = [
        tuple(class_ for class_ in combination if class_ is not None) for combination in product(*class_choices)
    ]
    return sorted((combination for combination in combinations if len(combination) >= min_size), key=len)


def _plan_look_ups(reading: ListReading, request_count: int) -> list[Question]:
    """Return look-ups of ids, and of a few ledger entries. Return no more look-ups than MAX_REQUESTS allows after
    `request_count` requests."""
    questions = _plan_id_look_ups(reading)[: MAX_REQUESTS - request_count]
    remaining_count = max(0, MAX_REQUESTS - _RESERVED_REQUEST_COUNT - request_count - len(questions))
    unlisted_entry_ids = reading.unlisted_entry_ids[: min(remaining_count, _FIRST_ENTRY_COUNT)]
    return [
        *(_build_id_question(Topic.UNLISTED_ENTRY, subscriber_id) for subscriber_id in unlisted_entry_ids),
        *questions,
    ]


def _plan_entry_look_ups(reading: ListReading, answers: Sequence[Answer]) -> list[Question]:
    """Return look-ups of the ledger entries that were not looked up yet. Return no look-up if the answers already
    contradict the list."""
    if contradicts_reading(reading, answers) or find_hidden_classes(reading, answers):
        return []
    requested_ids = {answer.question.value for answer in answers if answer.question.topic is Topic.UNLISTED_ENTRY}
    unlisted_entry_ids = [
        subscriber_id for subscriber_id in reading.unlisted_entry_ids if subscriber_id not in requested_ids
    ]
    return [_build_id_question(Topic.UNLISTED_ENTRY, subscriber_id) for subscriber_id in unlisted_entry_ids]


def _plan_id_look_ups(reading: ListReading) -> list[Question]:
    """Return look-ups of a listed id, of ids beyond both ends, and of ids that are missing between listed ids."""
    ids = reading.ids
    if reading.filters or not len(ids):
        return []
    id_step, is_descending = compute_id_step(ids), reading.certificate.order is Order.ID_DESC
    smallest_id, largest_id = int(ids[0]), int(ids[-1])
    beyond_id_counts = BEYOND_ID_COUNT, _OTHER_END_ID_COUNT
    below_id_count, above_id_count = beyond_id_counts if is_descending else beyond_id_counts[::-1]
    beyond_ids = [
        *(largest_id + id_step * step_number for step_number in range(1, above_id_count + 1)),
        *(smallest_id - id_step * step_number for step_number in range(1, below_id_count + 1)),
    ]
    return [
        _build_id_question(Topic.KNOWN_SUBSCRIBER, int(ids[len(ids) // 2])),
        *(_build_id_question(Topic.BEYOND_ID, subscriber_id) for subscriber_id in beyond_ids if subscriber_id > 0),
        *(
            _build_id_question(Topic.MISSING_ID, subscriber_id)
            for subscriber_id in _choose_missing_ids(ids, id_step, reading.seed)
        ),
    ]


def _choose_missing_ids(ids: IdArray, id_step: int, seed: bytes) -> list[int]:
    """Return a few ids that are missing between listed ids. Each id is from another gap."""
    id_distances = np.diff(ids)
    gap_indexes, random_generator = np.flatnonzero(id_distances > id_step).tolist(), Random(seed)  # noqa: S311 - a choice, not a secret
    chosen_gap_indexes = random_generator.sample(gap_indexes, min(_INSIDE_ID_COUNT, len(gap_indexes)))
    return [
        int(ids[gap_index]) + id_step * random_generator.randrange(1, int(id_distances[gap_index]) // id_step)
        for gap_index in chosen_gap_indexes
    ]


def _plan_second_look_ups(reading: ListReading, answers: Sequence[Answer]) -> list[Question]:
    """Return questions that show whether an unlisted id belongs to a newcomer or to a hidden subscriber.

    An id between listed ids is looked up once more. For an id beyond the listed ids, the end of the list is read again.
    If the end shows the id, the subscriber is a newcomer."""
    asked_questions = [answer.question for answer in answers]
    questions = []
    for subscriber_id in sorted(find_present_ids(reading, answers, Topic.MISSING_ID)):
        question = _build_id_question(Topic.MISSING_ID, subscriber_id, 1)
        questions += [question] if question not in asked_questions else []
    if reading.certificate.order not in (Order.ID, Order.ID_DESC) and len(reading.ids):
        return questions
    sides = set[str]()
    if not any(question.topic is Topic.END for question in asked_questions):
        sides |= {
            find_side(reading, subscriber_id) for subscriber_id in find_present_ids(reading, answers, Topic.BEYOND_ID)
        }
        if max(read_totals(answers), default=0) > (reading.certificate.total_last or 0):
            sides.add("above")  # the list has grown, and newcomers have the largest ids
    end_indexes = [index for index, question in enumerate(asked_questions) if question.topic is Topic.END]
    later_answers = answers[max(end_indexes, default=-1) + 1 :]
    hidden_ids = {
        subscriber_id
        for answer in later_answers
        if answer.question.topic in (Topic.PART, Topic.COMBINATION)
        for subscriber_id in find_hidden_ids(reading, answer, answers).tolist()
    }
    if any(find_side(reading, hidden_id) == "above" for hidden_id in hidden_ids):
        sides.add("above")
    for side in sorted(sides):
        is_tail = side == ("above" if reading.certificate.order is Order.ID else "below")
        overlap_rows = min(_OVERLAP_ROW_COUNT, reading.page_size // 2)
        offset = max(0, reading.certificate.distinct - overlap_rows) if is_tail else 0
        query = replace(reading.query, offset=offset, limit=MAX_LIMIT - 1)
        questions += [Question(Topic.END, query, value=side)] * _END_READING_COUNT
    return questions


def _build_whole_list_question(reading: ListReading, round_index: int) -> Question:
    """Return the question for the whole list. In round 0, a list of one page is read again. Otherwise, the answer has
    TotalCount and a few rows. The limit differs from the limit of the reading, so that no cache returns an old
    answer."""
    limit = reading.query.limit
    is_one_page = reading.certificate.distinct <= limit
    query = replace(
        reading.query, offset=0, limit=max(1, limit - 1) if is_one_page and not round_index else _SAMPLE_ROW_COUNT
    )
    return Question(Topic.WHOLE_LIST, query, round_index=round_index)


def _build_part_questions(
    reading: ListReading, field_name: str, values: Sequence[object], round_index: int
) -> list[Question]:
    return [
        Question(Topic.PART, _build_part_query(reading, {field_name: value}), field_name, value, round_index)
        for value in values
    ]


def _build_id_question(topic: Topic, subscriber_id: int, round_index: int = 0) -> Question:
    return Question(topic, ListQuery(limit=_SAMPLE_ROW_COUNT, id=subscriber_id), "id", subscriber_id, round_index)


def _build_part_query(reading: ListReading, values: Mapping[str, object]) -> ListQuery:
    return replace(reading.query, offset=0, limit=_SAMPLE_ROW_COUNT, **values)  # type: ignore[arg-type] # each value has its field's type
