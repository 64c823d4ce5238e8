"""Questions about a list that a reading shows as complete, and what their answers prove: whether the list shows every
subscriber (architecture 7, rule 7).

All functions are pure. A filter counts only with a control: the rows of an answer must match the question.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from connector.listing.controls import are_as_asked
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

PARTITIONS: Mapping[str, Sequence[object]] = {"gender": ("male", "female", ""), "is_active": (True, False)}
"""Filters with all of their values (service-api.md 4.3): the parts add up to the whole. The most stable one first."""

CLASS_FIELDS = (*PARTITIONS, "base_id")
"""The fields by which subscribers are counted."""

IDS_BEYOND = 3  # ids that are looked up beyond the end at which a window would cut the list off


class Topic(Enum):
    """The topic of a question."""

    WHOLE = "whole"  # TotalCount of the suspected query, and its first rows
    PAIR = "pair"  # whether a filter of the query still works beside a filter of a partition
    PART = "part"  # TotalCount of one class or base
    COMBINATION = "combination"  # several classes at once, if no request for one of them showed a subscriber
    KNOWN = "known"  # control of the filter Id: a listed subscriber
    MISSING = "missing"  # an id between two that were listed
    BEYOND = "beyond"  # an id below the smallest or above the largest, where newcomers may be
    LACKING = "lacking"  # a subscriber that the ledger has confirmed and no page showed
    END = "end"  # the page where ids below the smallest, or above the largest, are listed


TOPICS_BY_ID = frozenset({Topic.KNOWN, Topic.MISSING, Topic.BEYOND, Topic.LACKING})


@dataclass(frozen=True, slots=True)
class Question:
    """One request for evidence. `name` and `value` describe the part or the id, `classes` the combination. `round` is
    the number of the repetition of a count (0 = first)."""

    topic: Topic
    query: ListQuery
    name: str = ""
    value: object = None
    round: int = 0
    classes: tuple[HiddenClass, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question: a page, or None if the service returned no page."""

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
        return {value: rows for value, rows in self.listed.get("base_id", {}).items() if type(value) is int}

    @property
    def is_quiet(self) -> bool:
        """Whether the reading noticed no change."""
        certificate = self.certificate
        is_still = certificate.total_first == certificate.total_last
        return is_still and not (certificate.appeared or certificate.vanished)


def read_ids(answer: Answer) -> list[int]:
    rows = [] if answer.page is None else answer.page.subscribers
    return [subscriber_id for row in rows if type(subscriber_id := row.get("Id")) is int]


def read_unseen(suspect: Suspect, answer: Answer) -> IdArray:
    shown = np.array(sorted(set(read_ids(answer))), dtype=np.int64)
    unseen: IdArray = shown[~contained(suspect.ids, shown)]
    return unseen


def read_totals(answers: Sequence[Answer]) -> list[int]:
    """Return the TotalCounts of the whole list."""
    wholes = [answer for answer in answers if answer.question.topic is Topic.WHOLE]
    return [answer.total for answer in wholes if answer.total is not None]


def find_side(suspect: Suspect, subscriber_id: int) -> str:
    """Return the side of the listed ids on which an id lies."""
    return "below" if subscriber_id < int(suspect.ids[0]) else "above"


def compute_step(ids: IdArray) -> int:
    """Return the largest number that divides all distances between ids; 1 for a single id."""
    return int(np.gcd.reduce(np.diff(ids))) if len(ids) > 1 else 1


_TAIL = 1000  # ids at the end of the list from which the density of ids is computed
_CHANCE = 0.001  # the absence of ids is evidence if the chance of an accident is at most this
_JUMP_ROWS, _JUMP_SHARE = 2, 0.01  # rows, and share of the list, that do not come between two requests
_GROWTH_ROWS, _GROWTH_SHARE = 5, 0.03  # rows, and share of the list, that do not come while evidence is gathered
_SHOWN_SHARE = 0.1  # share of a hidden class that the list may show, as its subscribers change
_LEAST_UNSEEN = 3  # unlisted subscribers that contradict the list: fewer may have come meanwhile


def decide_evidence(suspect: Suspect, answers: Sequence[Answer]) -> list[Finding]:
    """Return a finding for each kind of evidence: whether it contradicts the size of the list."""
    findings = []
    for name in CLASS_FIELDS:
        if rounds := read_rounds(suspect, name, answers):
            says = decide_partition(suspect, name, answers) or Says.NOTHING
            last = rounds[-1]
            words = f"{' + '.join(f'{part_count:,}' for part_count in last.parts)} of {last.after:,}"
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
    """Return the classes that the list shows only to a request that asks for them, according to the answers."""
    return [class_ for finding in decide_evidence(suspect, answers) for class_ in finding.hidden]


def contradicts(suspect: Suspect, answers: Sequence[Answer]) -> bool:
    findings = decide_evidence(suspect, answers)
    return any(finding.says is Says.CONTRADICTS and not finding.hidden for finding in findings)


def list_unshown(suspect: Suspect, answers: Sequence[Answer]) -> list[HiddenClass]:
    """Return the classes of which neither the reading nor a request for the class showed a subscriber."""
    rounds = {name: _read_parts(suspect, name, answers) for name in CLASS_FIELDS}
    return [
        (name, value)
        for name, counts in rounds.items()
        for value in (counts[-1] if counts else ())
        if not counts[-1][value] and not suspect.listed.get(name, {}).get(value)
    ]


def decide_partition(suspect: Suspect, name: str, answers: Sequence[Answer]) -> Says | None:
    """Return the meaning of the counts of a partition, or None if the counts must be repeated."""
    certificate = suspect.certificate
    known = {total for total in (certificate.total_first, certificate.total_last) if total is not None}
    rounds = read_rounds(suspect, name, answers)
    if any(hidden_name == name for hidden_name, _ in suspect.hidden):
        return Says.CONTRADICTS if _find_too_few(suspect, name, answers) else Says.NOTHING
    if _find_unshown(suspect, name, answers):
        return Says.CONTRADICTS
    says = decide_counts(rounds, suspect.is_quiet, known)
    if name != "base_id":
        return says
    # Bases that no page showed may be missing in both sums, and the bases that are not counted may have changed since.
    is_large = all(
        sum(counts_of_round.parts) - counts_of_round.after >= _compute_jump(counts_of_round.after)
        for counts_of_round in rounds
    )
    parts = _read_parts(suspect, name, answers)
    asked = parts[0] if parts else {}
    has_unlisted = any(all(part[base] for part in parts) and not suspect.bases.get(int(str(base))) for base in asked)
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
    is_read = bool(read_rounds(suspect, name, answers)) or not suspect.is_counted
    for value in (_read_parts(suspect, name, answers) or [{}])[-1] if is_read else ():
        parts = [answer for answer in answers if answer.question.topic is Topic.PART and answer.question.name == name]
        shown = [part for part in parts if part.question.value == value]
        is_unseen = all(_shows_unlisted_alone(suspect, answer) for answer in shown)
        unshown += [value] if is_unseen and not listed.get(value) else []
    return unshown


def _shows_unlisted_alone(suspect: Suspect, answer: Answer) -> bool:
    """Return whether all rows of a part are unlisted, and cannot all be of newcomers: they are several, or one has an
    id between the listed ones."""
    unseen, ids = read_unseen(suspect, answer), suspect.ids
    if not len(unseen) or len(unseen) < len(read_ids(answer)):
        return False
    is_inside = len(ids) > 1 and bool(((unseen > ids[0]) & (unseen < ids[-1])).any())
    return is_inside or len(unseen) >= _LEAST_UNSEEN


def read_rounds(suspect: Suspect, name: str, answers: Sequence[Answer]) -> list[Counts]:
    """Return the counts of a partition, round by round; none where an answer is missing or is not as asked."""
    wholes = [answer for answer in answers if answer.question.topic is Topic.WHOLE] if suspect.is_counted else []
    rounds: list[Counts] = []
    for number, counts in enumerate(_read_parts(suspect, name, answers)):
        around = [answer.total for answer in wholes if answer.question.round in (number - 1, number)]
        totals = [total for total in around if total is not None]
        if len(totals) < len(around) or len(totals) < 2:
            return []
        known = list(counts.values())
        if name == "base_id":  # the bases that are not counted keep the rows that the reading showed
            known.append(
                suspect.certificate.distinct - sum(suspect.bases.get(int(str(base_id)), 0) for base_id in counts)
            )
        rounds.append(Counts(totals[0], known, totals[-1]))
    return rounds


def _read_parts(suspect: Suspect, name: str, answers: Sequence[Answer]) -> list[dict[object, int]]:
    """Return the counts of a partition by value, round by round; none where an answer is missing or not as asked."""
    pairs = [answer for answer in answers if answer.question.topic is Topic.PAIR and answer.question.name == name]
    if len(pairs) < len(suspect.absent_values) or not all(_is_empty(answer) for answer in pairs):
        return []
    parts = [answer for answer in answers if answer.question.topic is Topic.PART and answer.question.name == name]
    rounds = list[dict[object, int]]()
    for number in sorted({part.question.round for part in parts}):
        counts = {part.question.value: _read_count(suspect, part) for part in parts if part.question.round == number}
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
        if any(set(shown_classes) <= set(classes) for shown_classes in shown) or not classes or page is None:
            continue
        unseen = len(read_unseen(suspect, answer))
        if unseen and are_as_asked({**suspect.filters, **dict(classes)}, page.subscribers):
            number += unseen
            shown.append(classes)
    if number < (1 if suspect.is_quiet and not suspect.hidden else _LEAST_UNSEEN):
        return None
    hidden = dict.fromkeys(class_ for classes in shown for class_ in classes)
    words = f"{number:,} subscribers are shown only to a request for {' and '.join(name for name, _ in shown[0])}"
    return Finding("classes", Says.CONTRADICTS, words, tuple(hidden))


def _decide_totals(suspect: Suspect, answers: Sequence[Answer]) -> Finding | None:
    """Compare the TotalCounts of the run.

    If nothing changes, a list whose TotalCount is much larger at another time has left subscribers out."""
    certificate = suspect.certificate
    last = certificate.total_last
    wholes = [answer for answer in answers if answer.question.topic is Topic.WHOLE]
    totals = read_totals(answers)
    if last is None or not suspect.is_counted:
        return None
    highest = max([certificate.total_first or 0, *totals])
    if _has_grown_at_end(suspect, answers):
        return Finding("total_count", Says.NOTHING, f"{highest:,} at another time than {last:,}, new ids at the end")
    largest = int(suspect.ids[-1]) if len(suspect.ids) else math.inf  # newcomers have larger ids
    unseen = max((int(np.count_nonzero(read_unseen(suspect, answer) < largest)) for answer in wholes), default=0)
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
        shown, offset = read_ids(answer), answer.question.query.offset
        newer = sum(subscriber_id > largest for subscriber_id in shown)
        if answer.page is None or answer.total is None or not newer:
            continue
        if answer.question.topic is Topic.WHOLE and len(shown) >= answer.total:
            older = np.array(
                sorted(subscriber_id for subscriber_id in set(shown) if subscriber_id <= largest), dtype=np.int64
            )
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
        unseen = read_unseen(suspect, answer)
        inside = int(np.count_nonzero((unseen > low) & (unseen < high)))
        if inside >= max(_LEAST_UNSEEN, _JUMP_SHARE * len(read_ids(answer))):
            return Finding("rows", Says.CONTRADICTS, f"{inside:,} rows of another answer are not on the list")
    return None


def _compute_jump(total: int) -> float:
    """Return the change of TotalCount that is too large to happen between two requests if the list seems unchanged."""
    return max(_JUMP_ROWS, _JUMP_SHARE * total)


def _decide_lacking(suspect: Suspect, answers: Sequence[Answer]) -> Finding | None:
    """Return the finding of the look-ups of confirmed subscribers that the list lacks, or None without such look-ups.

    If one of these subscribers exists, the finding contradicts the list. If the query has a filter besides the base,
    two must exist, because the values of one may have changed."""
    asked = [answer for answer in answers if answer.question.topic is Topic.LACKING]
    if not asked:
        return None
    found = find_present(suspect, answers, Topic.LACKING)
    is_by_filter = bool(set(suspect.filters) - {"base_id"})
    says = Says.CONTRADICTS if len(found) > is_by_filter else Says.NOTHING
    words = f"{len(found)} of {len(asked)} that the list lacks are there"
    return Finding("ledger", says, words, unlisted=tuple(sorted(found)))


def _decide_ids(suspect: Suspect, answers: Sequence[Answer]) -> Finding | None:
    """Return the finding of the look-ups of ids that the list lacks, or None without such look-ups.

    An id that exists contradicts the list, unless its subscriber was created meanwhile. If the ids at the end are dense
    and no id exists beyond the end, the list is not cut off there."""
    asked = [answer for answer in answers if answer.question.topic in (Topic.MISSING, Topic.BEYOND)]
    if not asked:
        return None
    missing = find_present(suspect, answers, Topic.MISSING)
    beyond = find_present(suspect, answers, Topic.BEYOND)
    again = [answer for answer in asked if answer.question.round]
    hidden = missing.intersection(answer.question.value for answer in again if _is_present(suspect, answer))
    for subscriber_id in beyond:
        side = find_side(suspect, subscriber_id)
        ends = [answer for answer in answers if answer.question.topic is Topic.END and answer.question.name == side]
        shown = [set(read_ids(answer)) for answer in ends if answer.page is not None]
        if shown and not any(subscriber_id in end_ids for end_ids in shown):
            hidden.add(subscriber_id)
    total = max(read_totals(answers), default=0)
    is_window = suspect.is_counted and total == len(suspect.ids) and (total % 100 == 0 or is_window_size(total))
    if is_window and len(beyond) >= _JUMP_ROWS:
        hidden |= beyond  # newcomers change TotalCount, unless a window caps it at a round number
    number = len({answer.question.value for answer in asked})
    words = f"{len(missing | beyond) or 'none'} of {number} ids that the list lacks exist"
    if hidden:
        return Finding("ids", Says.CONTRADICTS, words, unlisted=tuple(sorted(hidden)))
    is_known = any(answer.question.topic is Topic.KNOWN and _is_present(suspect, answer) for answer in answers)
    is_proof = is_known and not missing and not beyond and _compute_chance(suspect) <= _CHANCE
    return Finding("ids", Says.AGREES if is_proof else Says.NOTHING, words)


def _compute_chance(suspect: Suspect) -> float:
    """Return the chance that all ids asked for beyond the end are unused although subscribers follow beyond the end."""
    order, ids = suspect.certificate.order, suspect.ids
    if order not in (Order.ID, Order.ID_DESC) or len(ids) < 2:
        return 1.0
    step = compute_step(ids)
    tail = ids[-_TAIL:] if order is Order.ID else ids[:_TAIL]
    density = (len(tail) - 1) * step / int(tail[-1] - tail[0])
    end = IDS_BEYOND if order is Order.ID else min(IDS_BEYOND, int(ids[0] - 1) // step)
    return float((1 - density) ** end)


def find_present(suspect: Suspect, answers: Sequence[Answer], topic: Topic) -> set[int]:
    """Return the ids of this topic that exist and were not listed."""
    present = [answer for answer in answers if answer.question.topic is topic and _is_present(suspect, answer)]
    return {subscriber_id for answer in present for subscriber_id in read_unseen(suspect, answer).tolist()}


def _is_present(suspect: Suspect, answer: Answer) -> bool:
    """Return whether the service shows this subscriber alone for the Id, and the subscriber matches the filters of the
    suspected query."""
    if answer.page is None or read_ids(answer) != [answer.question.value]:
        return False
    return are_as_asked(suspect.filters, answer.page.subscribers)
