"""Questions about a list that a reading shows as complete, and their answers (architecture 7, rule 7)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from connector.paging.certificate import Certificate, HiddenClass, TotalCount
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
        return {each: rows for each, rows in self.listed.get("base_id", {}).items() if type(each) is int}

    @property
    def is_quiet(self) -> bool:
        """Whether the reading noticed no change."""
        certificate = self.certificate
        is_still = certificate.total_first == certificate.total_last
        return is_still and not (certificate.appeared or certificate.vanished)


def read_ids(answer: Answer) -> list[int]:
    rows = [] if answer.page is None else answer.page.subscribers
    return [each for row in rows if type(each := row.get("Id")) is int]


def read_unseen(suspect: Suspect, answer: Answer) -> IdArray:
    shown = np.array(sorted(set(read_ids(answer))), dtype=np.int64)
    unseen: IdArray = shown[~contained(suspect.ids, shown)]
    return unseen


def read_totals(answers: Sequence[Answer]) -> list[int]:
    """Return the TotalCounts of the whole list."""
    wholes = [each for each in answers if each.question.topic is Topic.WHOLE]
    return [each.total for each in wholes if each.total is not None]


def find_side(suspect: Suspect, subscriber_id: int) -> str:
    """Return the side of the listed ids on which an id lies."""
    return "below" if subscriber_id < int(suspect.ids[0]) else "above"


def compute_step(ids: IdArray) -> int:
    """Return the largest number that divides all distances between ids; 1 for a single id."""
    return int(np.gcd.reduce(np.diff(ids))) if len(ids) > 1 else 1
