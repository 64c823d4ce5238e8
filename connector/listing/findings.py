"""Requests for evidence about a complete reading, and decisions about the answers: whether the list shows every
subscriber (architecture 7, rule 7).

All functions are pure. The answer to a filter counts only if the rows of the answer match the filter.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from connector.listing.trials import PARTITIONS, have_requested_values
from connector.paging.certificate import (
    Certificate,
    EvidenceResult,
    Finding,
    HiddenGroup,
    Order,
    RoundCounts,
    TotalCountCheck,
    compare_counts,
    is_window_size,
)
from connector.paging.overlap import NO_IDS, IdArray, mark_contained_ids
from connector.service.wire import MAX_LIMIT, ListPage, ListQuery

GROUP_FIELDS = (*PARTITIONS, "base_id")
"""The fields by which subscribers are counted."""

ID_COUNT_AFTER_LAST_ROW = 3  # number of looked-up ids after the last listed id, because a list may be cut off there


class RequestTarget(Enum):
    """What a request for evidence asks for."""

    WHOLE_LIST = "whole_list"  # TotalCount and the first rows of the whole list, after the reading
    # Whether a filter of the reading's query still works together with a filter of a partition.
    QUERY_FILTER_WITH_PART_FILTER = "query_filter_with_part_filter"
    PART = "part"  # TotalCount of one group of subscribers, or of one base
    COMBINATION = "combination"  # subscribers of several groups at once, such as inactive subscribers without a gender
    KNOWN_SUBSCRIBER = "known_subscriber"  # a listed subscriber, looked up by Id to try this filter
    MISSING_ID = "missing_id"  # an id that is missing between two listed ids
    BEYOND_ID = "beyond_id"  # an id that is smaller or larger than all listed ids; newcomers may have such ids
    UNLISTED_ENTRY = "unlisted_entry"  # a subscriber that the ledger has confirmed and no page showed
    # The first or the last rows of the list, read again because a subscriber may have an id beyond all listed ids.
    END = "end"


ID_LOOK_UP_TARGETS = frozenset(
    {RequestTarget.KNOWN_SUBSCRIBER, RequestTarget.MISSING_ID, RequestTarget.BEYOND_ID, RequestTarget.UNLISTED_ENTRY}
)


@dataclass(frozen=True, slots=True)
class EvidenceRequest:
    """A request for evidence.

    - A request for a part of the list (such as all inactive subscribers) or for an id has its filter in `field_name`
      and `value`.
    - A request for a combination has its groups in `groups`.
    - A request for an end of the list has the end in `value`: "above" (ids larger than the listed ids) or "below".

    `round_index` is 0 for a first request, 1 for its first repetition, and so on.
    """

    target: RequestTarget
    query: ListQuery
    field_name: str = ""
    value: object = None
    round_index: int = 0
    groups: tuple[HiddenGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request: a page, or None if the service returned no page."""

    request: EvidenceRequest
    page: ListPage | None

    @property
    def total_count(self) -> int | None:
        """TotalCount of the answer."""
        return None if self.page is None else self.page.total_count


@dataclass(frozen=True, slots=True)
class ListReading:
    """A reading of the list that seems complete. The requests for evidence and the findings follow from its facts."""

    certificate: Certificate
    query: ListQuery
    filters: Mapping[str, object]  # the filters of the query, by field name
    ids: IdArray  # the listed ids, in ascending order
    page_size: int = MAX_LIMIT  # number of rows of a full page
    group_counts: Mapping[str, Mapping[object, int]] = field(default_factory=dict)
    """The number of listed rows of each group of subscribers: by field name, then by value."""
    base_ids: Sequence[int] | None = None  # the known Ids of a load's bases; None: the reading is for every base
    unlisted_base_ids: Sequence[int] = ()  # bases that are counted even if no row shows them
    hidden_groups: tuple[HiddenGroup, ...] = ()
    """Groups of subscribers that were read separately. Their rows are among `ids` and `group_counts`."""
    skipped_partitions: Collection[str] = ()  # fields by whose values the subscribers are not counted
    earlier_total: int | None = None  # TotalCount shortly before the reading
    unlisted_entry_ids: Sequence[int] = ()  # ids of confirmed ledger entries that the reading lacks
    seed: bytes = b""  # random bytes, which choose the missing ids to look up
    # For each filter, a random value that no subscriber has.
    absent_values: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_total_checked(self) -> bool:
        """Whether TotalCount agrees with the rows, so that the counts of the service can be used as evidence."""
        return self.certificate.total_count is TotalCountCheck.CHECKED

    @property
    def row_count_by_base_id(self) -> Mapping[int, int]:
        """The number of listed rows of each base."""
        return {
            value: row_count for value, row_count in self.group_counts.get("base_id", {}).items() if type(value) is int
        }

    @property
    def is_list_unchanged(self) -> bool:
        """Whether the list did not change during the reading, as far as the reading shows."""
        certificate = self.certificate
        is_total_unchanged = certificate.total_first == certificate.total_last
        return is_total_unchanged and not (certificate.appeared or certificate.vanished)


def select_answers(answers: Sequence[Answer], *targets: RequestTarget, field_name: str | None = None) -> list[Answer]:
    """Return the answers to requests with one of these targets. With `field_name`, the requests must also have this
    field name."""
    return [
        answer
        for answer in answers
        if answer.request.target in targets and field_name in (None, answer.request.field_name)
    ]


def read_ids(answer: Answer) -> list[int]:
    """Return the whole-number ids in the rows of the answer."""
    rows = [] if answer.page is None else answer.page.subscribers
    return [subscriber_id for row in rows if type(subscriber_id := row.get("Id")) is int]


def read_unlisted_ids(reading: ListReading, answer: Answer) -> IdArray:
    """Return the ids in the answer that the reading lacks, in ascending order."""
    ids = np.array(sorted(set(read_ids(answer))), dtype=np.int64)
    unlisted_ids: IdArray = ids[~mark_contained_ids(reading.ids, ids)]
    return unlisted_ids


def find_hidden_ids(reading: ListReading, answer: Answer, answers: Sequence[Answer]) -> IdArray:
    """Return the ids of hidden subscribers in `answer`, in ascending order. A subscriber is hidden if the reading lacks
    the subscriber, and `answers` do not show the subscriber as a newcomer.

    A newcomer has a larger id than all subscribers of the reading. In addition, a later request for the first or the
    last rows of the list shows the newcomer."""
    unlisted_ids = read_unlisted_ids(reading, answer)
    unfiltered_answers = select_answers(answers, RequestTarget.WHOLE_LIST, RequestTarget.END)
    unfiltered_ids = [read_unlisted_ids(reading, unfiltered_answer) for unfiltered_answer in unfiltered_answers]
    newcomer_ids = np.unique(np.concatenate([NO_IDS, *unfiltered_ids]))
    if len(reading.ids):
        newcomer_ids = newcomer_ids[newcomer_ids > reading.ids[-1]]
    hidden_ids: IdArray = unlisted_ids[~mark_contained_ids(newcomer_ids, unlisted_ids)]
    return hidden_ids


def read_totals(answers: Sequence[Answer]) -> list[int]:
    """Return the TotalCounts of the whole list in these answers."""
    whole_list_answers = select_answers(answers, RequestTarget.WHOLE_LIST)
    return [answer.total_count for answer in whole_list_answers if answer.total_count is not None]


def find_list_end_of_id(reading: ListReading, subscriber_id: int) -> str:
    """Return the end of the list at which the id is missing: "below" if the id is smaller than all listed ids, and
    "above" otherwise."""
    return "below" if len(reading.ids) and subscriber_id < int(reading.ids[0]) else "above"


def compute_id_step(ids: IdArray) -> int:
    """Return the largest number that divides all distances between ids; 1 for a single id."""
    return int(np.gcd.reduce(np.diff(ids))) if len(ids) > 1 else 1


_TAIL_ID_COUNT = 1000  # number of ids at the end of the list from which the density of ids is computed
_MAX_COINCIDENCE_PROBABILITY = 0.001
"""If the ids after the end of the list are unused, the list is probably not cut off. The list may still be cut off, if
these ids are unused by coincidence. Unused ids count as proof if this coincidence has at most this probability."""

# Assumed: between two requests, a list grows by less than 2 rows, or a large list by less than 1 %.
_NEW_ROW_LIMIT_BETWEEN_REQUESTS, _NEW_SHARE_LIMIT_BETWEEN_REQUESTS = 2, 0.01
# Assumed: during all requests for evidence, a list grows by less than 5 rows, or a large list by less than 3 %.
_NEW_ROW_LIMIT_DURING_EVIDENCE, _NEW_SHARE_LIMIT_DURING_EVIDENCE = 5, 0.03

_MAX_LISTED_SHARE_OF_HIDDEN_GROUP = 0.1
"""The list may show up to a tenth of a hidden group of subscribers, because subscribers change their group. If the list
shows more than a tenth, the group is not hidden, and a result window has cut the list off."""

MAX_COMPARED_ENTRIES = 20_000
"""The largest number of ledger entries that are compared with the list. An export compares at most this many entries
for each base, and a load for all bases together. This number is enough to show a loss of one subscriber in 1,000."""

# If the list lacks a smaller share of the compared entries, people have probably deleted these subscribers.
_UNLISTED_ENTRY_SHARE_LIMIT = 0.05
_MIN_UNLISTED_COUNT = 3  # the least number of unlisted subscribers that contradicts the list; fewer may be newcomers


def decide_evidence(reading: ListReading, answers: Sequence[Answer]) -> list[Finding]:
    """Return a finding for each kind of evidence in the answers. A finding shows whether the evidence contradicts the
    size of the list."""
    findings = []
    for field_name in GROUP_FIELDS:
        if rounds := read_round_counts(reading, field_name, answers):
            evidence_result = decide_partition(reading, field_name, answers) or EvidenceResult.NOTHING
            last_round = rounds[-1]
            part_sum_text = " + ".join(f"{part_count:,}" for part_count in last_round.part_counts)
            hidden_values = (
                _find_underlisted_values(reading, field_name, answers)
                if evidence_result is EvidenceResult.CONTRADICTS
                else ()
            )
            hidden_groups = tuple((field_name, value) for value in hidden_values)
            message = (
                f"the parts of the list have {part_sum_text} subscribers, and TotalCount of the list is "
                f"{last_round.whole_list_totals[-1]:,}"
            )
            findings.append(Finding(field_name, evidence_result, message, hidden_groups))
        elif unlisted_values := _find_unlisted_values(reading, field_name, answers):
            message = f"requests for {len(unlisted_values)} groups show only unlisted subscribers"
            hidden_groups = tuple((field_name, value) for value in unlisted_values)
            findings.append(Finding(field_name, EvidenceResult.CONTRADICTS, message, hidden_groups))
    other_findings = (
        _evaluate_group_combinations(reading, answers),
        _evaluate_total_counts(reading, answers),
        _evaluate_rows(reading, answers),
        _evaluate_entry_look_ups(reading, answers),
        _evaluate_id_look_ups(reading, answers),
    )
    return [*findings, *(finding for finding in other_findings if finding is not None)]


def find_hidden_groups(reading: ListReading, answers: Sequence[Answer]) -> list[HiddenGroup]:
    """Return the groups of subscribers that the list shows only to a request for the group, according to the
    answers."""
    return [group for finding in decide_evidence(reading, answers) for group in finding.hidden_groups]


def contradicts_reading(reading: ListReading, answers: Sequence[Answer]) -> bool:
    """Return whether a finding contradicts the list and no hidden group of subscribers explains the finding."""
    findings = decide_evidence(reading, answers)
    return any(
        finding.evidence_result is EvidenceResult.CONTRADICTS and not finding.hidden_groups for finding in findings
    )


def list_unshown_groups(reading: ListReading, answers: Sequence[Answer]) -> list[HiddenGroup]:
    """Return the groups without a known subscriber: the reading and a request for the group show no subscriber of the
    group."""
    part_counts_of_rounds_by_field = {
        field_name: _read_part_counts(reading, field_name, answers) for field_name in GROUP_FIELDS
    }
    return [
        (field_name, value)
        for field_name, part_counts_of_rounds in part_counts_of_rounds_by_field.items()
        for value in (part_counts_of_rounds[-1] if part_counts_of_rounds else ())
        if not part_counts_of_rounds[-1][value] and not reading.group_counts.get(field_name, {}).get(value)
    ]


def decide_partition(reading: ListReading, field_name: str, answers: Sequence[Answer]) -> EvidenceResult | None:
    """Return whether the counts of a partition contradict the size of the list, or None if the counts must be repeated.
    A partition is all values of one filter, such as the three genders."""
    certificate = reading.certificate
    known_totals = {
        total_count for total_count in (certificate.total_first, certificate.total_last) if total_count is not None
    }
    rounds = read_round_counts(reading, field_name, answers)
    if any(hidden_field_name == field_name for hidden_field_name, _ in reading.hidden_groups):
        return (
            EvidenceResult.CONTRADICTS
            if _find_underlisted_values(reading, field_name, answers)
            else EvidenceResult.NOTHING
        )
    if _find_unlisted_values(reading, field_name, answers):
        return EvidenceResult.CONTRADICTS
    evidence_result = compare_counts(rounds, reading.is_list_unchanged, known_totals)
    if field_name != "base_id":
        return evidence_result
    # Only some bases are counted. A sum that equals TotalCount proves nothing, because both may leave out a base that
    # no page showed. A small difference proves nothing either, because a base that is not counted may have changed.
    is_sum_clearly_larger = all(
        sum(counts_of_round.part_counts) - counts_of_round.whole_list_totals[-1]
        >= _compute_growth_limit_between_requests(counts_of_round.whole_list_totals[-1])
        for counts_of_round in rounds
    )
    part_counts_of_rounds = _read_part_counts(reading, field_name, answers)
    counted_bases = part_counts_of_rounds[0] if part_counts_of_rounds else {}
    has_unlisted_base = any(
        all(part_counts[base] for part_counts in part_counts_of_rounds)
        and not reading.row_count_by_base_id.get(int(str(base)))
        for base in counted_bases
    )
    return (
        evidence_result
        if evidence_result is not EvidenceResult.AGREES and (is_sum_clearly_larger or has_unlisted_base)
        else EvidenceResult.NOTHING
    )


def _find_underlisted_values(reading: ListReading, field_name: str, answers: Sequence[Answer]) -> list[object]:
    """Return the values of a filter whose subscribers the list hides: a request for the value counts more subscribers
    than the reading shows. A small difference does not count while the list changes, or after a group was read
    separately.

    If the reading shows more than a tenth of such a group, a result window has cut the list off. Then no group is
    hidden, and no value is returned. This rule does not apply after a group was read separately."""
    if unlisted_values := _find_unlisted_values(reading, field_name, answers):
        return unlisted_values
    count_by_value = _read_part_counts(reading, field_name, answers)[-1]
    listed_count_by_value = reading.group_counts.get(field_name, {})
    tolerated_difference = (
        _compute_growth_limit_between_requests(reading.certificate.distinct)
        if reading.hidden_groups or not reading.is_list_unchanged
        else 0
    )
    hidden_values = [
        value
        for value, count in count_by_value.items()
        if count - listed_count_by_value.get(value, 0) > tolerated_difference
    ]
    is_list_cut_off = any(
        listed_count_by_value.get(value, 0) > _MAX_LISTED_SHARE_OF_HIDDEN_GROUP * count_by_value[value]
        for value in hidden_values
    )
    return [] if is_list_cut_off and not reading.hidden_groups else hidden_values


def _find_unlisted_values(reading: ListReading, field_name: str, answers: Sequence[Answer]) -> list[object]:
    """Return the values of a filter that no listed row has, although requests for the value show subscribers.

    Missing answers for other values do not matter, because one answer is enough to show that the list hides a group of
    subscribers.
    """
    listed_count_by_value = reading.group_counts.get(field_name, {})
    part_answers = select_answers(answers, RequestTarget.PART, field_name=field_name)
    unlisted_values = list[object]()
    for value in dict.fromkeys(answer.request.value for answer in part_answers):
        answers_for_value = [answer for answer in part_answers if answer.request.value == value]
        is_unlisted = all(
            _read_count(reading, answer) is not None and _shows_only_hidden_groups(reading, answer, answers)
            for answer in answers_for_value
        )
        unlisted_values += [value] if is_unlisted and not listed_count_by_value.get(value) else []
    return unlisted_values


def _shows_only_hidden_groups(reading: ListReading, answer: Answer, answers: Sequence[Answer]) -> bool:
    """Return whether the list hides all subscribers in the answer for a group of subscribers or a base. One or two
    unlisted subscribers may be newcomers. So the answer must have at least three, or a subscriber with an id between
    listed ids."""
    hidden_ids, ids = find_hidden_ids(reading, answer, answers), reading.ids
    if not len(hidden_ids) or len(hidden_ids) < len(read_ids(answer)):
        return False
    is_between_listed_ids = len(ids) > 1 and bool(((hidden_ids > ids[0]) & (hidden_ids < ids[-1])).any())
    return is_between_listed_ids or len(hidden_ids) >= _MIN_UNLISTED_COUNT


def read_round_counts(reading: ListReading, field_name: str, answers: Sequence[Answer]) -> list[RoundCounts]:
    """Return the counts of subscribers for all values of a filter, one `RoundCounts` for each round of requests. Return
    an empty list if any answer is missing or does not match its request."""
    whole_list_answers = select_answers(answers, RequestTarget.WHOLE_LIST) if reading.is_total_checked else []
    rounds: list[RoundCounts] = []
    for round_index, count_by_value in enumerate(_read_part_counts(reading, field_name, answers)):
        answered_totals = [
            answer.total_count
            for answer in whole_list_answers
            if answer.request.round_index in (round_index - 1, round_index)
        ]
        totals = [total_count for total_count in answered_totals if total_count is not None]
        if len(totals) < len(answered_totals) or len(totals) < 2:
            return []
        part_counts = list(count_by_value.values())
        # Assumed: the bases that are not counted still have as many rows as the reading showed.
        if field_name == "base_id":
            part_counts.append(
                reading.certificate.distinct
                - sum(reading.row_count_by_base_id.get(int(str(base_id)), 0) for base_id in count_by_value)
            )
        rounds.append(RoundCounts(part_counts, (totals[0], totals[-1])))
    return rounds


def _read_part_counts(reading: ListReading, field_name: str, answers: Sequence[Answer]) -> list[dict[object, int]]:
    """Return the counts of subscribers by value of a filter, one mapping for each round of requests. Return an empty
    list if any answer is missing or does not match its request."""
    filter_trial_answers = select_answers(answers, RequestTarget.QUERY_FILTER_WITH_PART_FILTER, field_name=field_name)
    if len(filter_trial_answers) < len(reading.absent_values) or any(
        answer.page is None or answer.page.subscribers or answer.page.total_count for answer in filter_trial_answers
    ):
        return []
    part_answers = select_answers(answers, RequestTarget.PART, field_name=field_name)
    rounds = list[dict[object, int]]()
    for round_index in sorted({answer.request.round_index for answer in part_answers}):
        answers_of_round = [answer for answer in part_answers if answer.request.round_index == round_index]
        count_by_value = {answer.request.value: _read_count(reading, answer) for answer in answers_of_round}
        valid_count_by_value = {value: count for value, count in count_by_value.items() if count is not None}
        if len(valid_count_by_value) < len(count_by_value):
            return []
        rounds.append(valid_count_by_value)
    return rounds


def _read_count(reading: ListReading, answer: Answer) -> int | None:
    """Return the number of subscribers with the requested value of a filter, from the answer. The number is TotalCount
    or, if TotalCount is ignored, the number of rows. Return None if the rows do not match the request."""
    page = answer.page
    total_count = None if page is None else page.total_count if reading.is_total_checked else len(page.subscribers)
    if page is None or total_count is None or bool(page.subscribers) != bool(total_count):
        return None
    requested_values = {**reading.filters, answer.request.field_name: answer.request.value}
    return total_count if have_requested_values(requested_values, page.subscribers) else None


def _evaluate_group_combinations(reading: ListReading, answers: Sequence[Answer]) -> Finding | None:
    """Return the finding of the requests for combinations of groups of subscribers, or None if the requests prove
    nothing.

    An unlisted subscriber in an answer is a newcomer, or the list hides its groups. Three such subscribers prove that
    the list hides groups. If the list did not change and no group was read separately, one subscriber is enough."""
    combinations, unlisted_count = list[tuple[HiddenGroup, ...]](), 0
    for answer in answers:  # requests for fewer groups come first
        groups, page = answer.request.groups, answer.page
        is_combination_covered = any(set(combination) <= set(groups) for combination in combinations)
        if is_combination_covered or not groups or page is None:
            continue
        unlisted_ids = find_hidden_ids(reading, answer, answers)
        if len(unlisted_ids) and have_requested_values({**reading.filters, **dict(groups)}, page.subscribers):
            unlisted_count += len(unlisted_ids)
            combinations.append(groups)
    if unlisted_count < (1 if reading.is_list_unchanged and not reading.hidden_groups else _MIN_UNLISTED_COUNT):
        return None
    hidden_groups = dict.fromkeys(group for groups in combinations for group in groups)
    field_names_text = " and ".join(field_name for field_name, _ in combinations[0])
    message = f"{unlisted_count:,} subscribers are only in the answers to requests for {field_names_text}"
    return Finding("classes", EvidenceResult.CONTRADICTS, message, tuple(hidden_groups))


def _evaluate_total_counts(reading: ListReading, answers: Sequence[Answer]) -> Finding | None:
    """Return the finding about the TotalCounts of the run, or None if the TotalCounts prove nothing. If another
    answer has a much larger TotalCount, although the list did not change, the list has left subscribers out.
    """
    certificate = reading.certificate
    last_total = certificate.total_last
    totals = read_totals(answers)
    if last_total is None or not reading.is_total_checked:
        return None
    largest_total = max([certificate.total_first or 0, *totals])
    if _has_grown_at_end(reading, answers):
        return Finding(
            "total_count",
            EvidenceResult.NOTHING,
            f"TotalCount was {largest_total:,} in another answer, and {last_total:,} when the run had read the list "
            "(new subscribers at the end of the list explain the difference)",
        )
    largest_id = int(reading.ids[-1]) if len(reading.ids) else math.inf  # newcomers have larger ids
    unlisted_counts = [
        int(np.count_nonzero(read_unlisted_ids(reading, answer) < largest_id))
        for answer in select_answers(answers, RequestTarget.WHOLE_LIST)
    ]
    unlisted_count = max(unlisted_counts, default=0)
    growth_limit = _compute_growth_limit_between_requests(last_total)
    is_unchanged = reading.is_list_unchanged and len(set(totals)) == 1
    if is_unchanged and max(totals[0] - last_total, unlisted_count) >= growth_limit:
        message = (
            f"TotalCount of later answers is {totals[0]:,}, and a later answer shows {unlisted_count:,} unlisted ids "
            "between the listed ids"
        )
    elif (
        reading.is_list_unchanged
        and reading.earlier_total is not None
        and reading.earlier_total - last_total >= growth_limit
    ):
        message = (
            f"TotalCount was {reading.earlier_total:,} shortly before the run read the list, and then {last_total:,}"
        )
    elif reading.is_list_unchanged and largest_total - last_total >= max(
        _NEW_ROW_LIMIT_DURING_EVIDENCE, _NEW_SHARE_LIMIT_DURING_EVIDENCE * last_total
    ):
        message = (
            f"TotalCount was {last_total:,} when the run had read the list, and {largest_total:,} in another answer"
        )
    elif largest_total - certificate.distinct >= max(
        2 * _NEW_ROW_LIMIT_DURING_EVIDENCE, _NEW_SHARE_LIMIT_DURING_EVIDENCE * largest_total
    ):
        message = (
            f"the largest TotalCount was {largest_total:,}, and the list showed {certificate.distinct:,} subscribers"
        )
    elif largest_total > last_total:
        message = (
            f"TotalCount was {largest_total:,} in another answer, and {last_total:,} when the run had read the list"
        )
        return Finding("total_count", EvidenceResult.AGREES, message)
    else:
        return None
    return Finding("total_count", EvidenceResult.CONTRADICTS, message)


def _has_grown_at_end(reading: ListReading, answers: Sequence[Answer]) -> bool:
    """Return whether the list has grown only by newcomers: all new subscribers have larger ids than the listed
    subscribers.

    For a list of one page, a second reading shows all ids. In a longer list in id order, the position of the largest
    listed id shows that no subscriber with a smaller id was added.
    """
    if not len(reading.ids):
        return False
    largest_id, order, id_count = int(reading.ids[-1]), reading.certificate.order, len(reading.ids)
    for answer in answers:
        answered_ids, offset = read_ids(answer), answer.request.query.offset
        has_newcomers = any(subscriber_id > largest_id for subscriber_id in answered_ids)
        if answer.page is None or answer.total_count is None or not has_newcomers:
            continue
        if answer.request.target is RequestTarget.WHOLE_LIST and len(answered_ids) >= answer.total_count:
            older_ids = sorted(subscriber_id for subscriber_id in set(answered_ids) if subscriber_id <= largest_id)
            if np.array_equal(np.array(older_ids, dtype=np.int64), reading.ids):
                return True
        if answer.request.target is RequestTarget.END and largest_id in answered_ids:
            largest_id_rank = offset + answered_ids.index(largest_id)
            if largest_id_rank == (id_count - 1 if order is Order.ID else answer.total_count - id_count):
                return True
    return False


def _evaluate_rows(reading: ListReading, answers: Sequence[Answer]) -> Finding | None:
    """Return the finding of the rows in the answers for the whole list, a group of subscribers or a base. Return None
    if the rows prove nothing. Several unlisted ids between listed ids show that the list leaves subscribers out,
    because newcomers have larger ids.
    """
    if len(reading.ids) < 2:
        return None
    smallest_id, largest_id = int(reading.ids[0]), int(reading.ids[-1])
    hidden_groups = {
        (field_name, value)
        for field_name in GROUP_FIELDS
        for value in _find_unlisted_values(reading, field_name, answers)
    }
    for answer in select_answers(answers, RequestTarget.WHOLE_LIST, RequestTarget.PART):
        if (answer.request.field_name, answer.request.value) in hidden_groups:
            continue
        if answer.page is None or not have_requested_values(reading.filters, answer.page.subscribers):
            continue
        unlisted_ids = read_unlisted_ids(reading, answer)
        unlisted_count_between_ids = int(np.count_nonzero((unlisted_ids > smallest_id) & (unlisted_ids < largest_id)))
        if unlisted_count_between_ids >= max(
            _MIN_UNLISTED_COUNT, _NEW_SHARE_LIMIT_BETWEEN_REQUESTS * len(read_ids(answer))
        ):
            message = f"another answer shows {unlisted_count_between_ids:,} unlisted ids between the listed ids"
            return Finding("rows", EvidenceResult.CONTRADICTS, message)
    return None


def _compute_growth_limit_between_requests(total_count: int) -> float:
    """Return the limit of growth between two requests. If TotalCount grows by this number or more, newcomers do not
    explain the growth."""
    return max(_NEW_ROW_LIMIT_BETWEEN_REQUESTS, _NEW_SHARE_LIMIT_BETWEEN_REQUESTS * total_count)


def _evaluate_entry_look_ups(reading: ListReading, answers: Sequence[Answer]) -> Finding | None:
    """Return the finding of the look-ups of confirmed subscribers that the list lacks, or None if no such subscriber
    was looked up.

    One existing subscriber contradicts the list. If the query has a filter besides the base, two subscribers must
    exist, because the values of one subscriber may have changed."""
    lookup_answers = select_answers(answers, RequestTarget.UNLISTED_ENTRY)
    if not lookup_answers:
        return None
    present_ids = find_present_ids(reading, answers, RequestTarget.UNLISTED_ENTRY)
    has_value_filter = bool(set(reading.filters) - {"base_id"})
    min_present_count = 2 if has_value_filter else 1
    evidence_result = EvidenceResult.CONTRADICTS if len(present_ids) >= min_present_count else EvidenceResult.NOTHING
    message = f"look-ups by Id find {len(present_ids)} of {len(lookup_answers)} subscribers that the list lacks"
    unlisted_count, compared_count = len(reading.unlisted_entry_ids), min(len(reading.ids), MAX_COMPARED_ENTRIES)
    if (
        reading.base_ids is None  # no load has read the list; a load checks its known subscribers itself
        and not has_value_filter  # with such a filter, the unlisted subscribers may no longer match
        and unlisted_count >= max(_MIN_UNLISTED_COUNT, _UNLISTED_ENTRY_SHARE_LIMIT * compared_count)
        and not present_ids
        and not _is_id_filter_working(reading, answers)
        and not any(
            decide_partition(reading, field_name, answers) is EvidenceResult.AGREES
            for field_name in GROUP_FIELDS
            if read_round_counts(reading, field_name, answers)
        )
    ):
        evidence_result = EvidenceResult.UNCLEAR
        message = (
            f"the list lacks at least {unlisted_count:,} subscribers that the ledger has confirmed, and the filter Id "
            "does not work"
        )
    return Finding("ledger", evidence_result, message, unlisted_ids=tuple(sorted(present_ids)))


def _is_id_filter_working(reading: ListReading, answers: Sequence[Answer]) -> bool:
    """Return whether the answers show that the filter by Id works. The filter works if a look-up of a listed subscriber
    finds the subscriber. If no listed subscriber was looked up, the filter works if a look-up of an unlisted subscriber
    lists nobody. (An ignored filter would list other subscribers.)"""
    if known_subscriber_answers := select_answers(answers, RequestTarget.KNOWN_SUBSCRIBER):
        return any(_is_present(reading, answer) for answer in known_subscriber_answers)
    lookup_answers = select_answers(answers, RequestTarget.UNLISTED_ENTRY)
    return any(answer.page is not None and not read_ids(answer) for answer in lookup_answers)


def _evaluate_id_look_ups(reading: ListReading, answers: Sequence[Answer]) -> Finding | None:
    """Return the finding of the look-ups of ids that the list lacks, or None if no such id was looked up.

    If an id exists, the list leaves a subscriber out, or the subscriber is a newcomer. If the last listed ids have few
    gaps, and the next ids do not exist, the list is not cut off."""
    lookup_answers = select_answers(answers, RequestTarget.MISSING_ID, RequestTarget.BEYOND_ID)
    if not lookup_answers:
        return None
    found_ids_in_gaps = find_present_ids(reading, answers, RequestTarget.MISSING_ID)
    found_ids_beyond_ends = find_present_ids(reading, answers, RequestTarget.BEYOND_ID)
    second_lookup_answers = [answer for answer in lookup_answers if answer.request.round_index]
    unlisted_ids = found_ids_in_gaps.intersection(
        answer.request.value for answer in second_lookup_answers if _is_present(reading, answer)
    )
    for subscriber_id in found_ids_beyond_ends:
        list_end = find_list_end_of_id(reading, subscriber_id)
        ids_at_end = [
            read_ids(answer)
            for answer in select_answers(answers, RequestTarget.END)
            if answer.request.value == list_end and answer.page is not None
        ]
        if ids_at_end and not any(subscriber_id in ids_of_answer for ids_of_answer in ids_at_end):
            unlisted_ids.add(subscriber_id)
    total_count = max(read_totals(answers), default=0)
    is_list_cut_off = (
        reading.is_total_checked
        and total_count == len(reading.ids)
        and (total_count % 100 == 0 or is_window_size(total_count))
    )
    if is_list_cut_off and len(found_ids_beyond_ends) >= _NEW_ROW_LIMIT_BETWEEN_REQUESTS:
        unlisted_ids |= found_ids_beyond_ends  # these subscribers are not newcomers, because TotalCount has not grown
    requested_count = len({answer.request.value for answer in lookup_answers})
    found_count = len(found_ids_in_gaps | found_ids_beyond_ends)
    message = f"look-ups by Id find {found_count or 'none'} of {requested_count} ids that the list lacks"
    if unlisted_ids:
        return Finding("ids", EvidenceResult.CONTRADICTS, message, unlisted_ids=tuple(sorted(unlisted_ids)))
    known_subscriber_answers = select_answers(answers, RequestTarget.KNOWN_SUBSCRIBER)
    has_found_known_subscriber = any(_is_present(reading, answer) for answer in known_subscriber_answers)
    is_proof = (
        has_found_known_subscriber
        and not found_ids_in_gaps
        and not found_ids_beyond_ends
        and _compute_coincidence_probability(reading) <= _MAX_COINCIDENCE_PROBABILITY
    )
    return Finding("ids", EvidenceResult.AGREES if is_proof else EvidenceResult.NOTHING, message)


def _compute_coincidence_probability(reading: ListReading) -> float:
    """Return the probability of a coincidence: the list is cut off, and the looked-up ids after its end happen to be
    unused. The probability is small if the last listed ids have few gaps."""
    order, ids = reading.certificate.order, reading.ids
    if order not in (Order.ID, Order.ID_DESC) or len(ids) < 2:
        return 1.0
    id_step = compute_id_step(ids)
    tail_ids = ids[-_TAIL_ID_COUNT:] if order is Order.ID else ids[:_TAIL_ID_COUNT]
    id_density = (len(tail_ids) - 1) * id_step / int(tail_ids[-1] - tail_ids[0])
    lookup_count = (
        ID_COUNT_AFTER_LAST_ROW if order is Order.ID else min(ID_COUNT_AFTER_LAST_ROW, int(ids[0] - 1) // id_step)
    )
    return float((1 - id_density) ** lookup_count)


def find_present_ids(reading: ListReading, answers: Sequence[Answer], target: RequestTarget) -> set[int]:
    """Return the ids that requests with this target have found, and that the reading lacks."""
    return {
        subscriber_id
        for answer in select_answers(answers, target)
        if _is_present(reading, answer)
        for subscriber_id in read_unlisted_ids(reading, answer).tolist()
    }


def _is_present(reading: ListReading, answer: Answer) -> bool:
    """Return whether the answer to a look-up by Id has only the subscriber with this Id, and the subscriber matches the
    filters of the reading's query."""
    if answer.page is None or read_ids(answer) != [answer.request.value]:
        return False
    return have_requested_values(reading.filters, answer.page.subscribers)
