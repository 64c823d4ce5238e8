"""An export's verdict on its own completeness (design, section 7); it knows the list only by what was seen of it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """`complete`: everyone on the list throughout the window is in the output, once."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"


class Reason(StrEnum):
    """Why the verdict is what it is; the first four prove completeness, the others say what stood in the way."""

    ONE_ANSWER = "one_answer"  # the whole list came in a single answer
    ID_ORDER = "id_order"  # ids strictly monotone and every joint matched (rule 1)
    TWO_SWEEPS = "two_sweeps"  # two successive sweeps agree with each other and with every TotalCount (rule 2)
    PARTITIONS = "partitions"  # parts by filters that work, each whole in one answer, in two rounds that agree (rule 3)
    TOTAL_COUNT = "total_count"  # TotalCount, or the place of a page, disagrees for good with the rows received
    CHANGING = "changing"  # an order not by id, in which no two successive sweeps agreed
    UNSTABLE_ORDER = "unstable_order"  # rows change places from one request to the next
    FILTER = "filter"  # read by a filter, the list left out somebody whom it shows without it (rule 6)
    PAGING = "paging"  # the service repeats pages instead of moving on


PROOFS = frozenset((Reason.ONE_ANSWER, Reason.ID_ORDER, Reason.TWO_SWEEPS, Reason.PARTITIONS))
"""The reasons that a complete list may have."""


class TotalCount(StrEnum):
    """Whether TotalCount had a say in the verdict."""

    CHECKED = "checked"
    IGNORED = "ignored"  # it disagrees, and was to be left out of account


class Order(StrEnum):
    """How the list was ordered, as far as the last sweep could see."""

    ID = "id"
    ID_DESC = "id_desc"
    OTHER = "other"
    UNSTABLE = "unstable"


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is known of one reading of the list: the keys of the report's `certificate`, in its order.

    `sweeps` and `pages` count all that was taken (a round of parts is a sweep; pages that were asked for ahead and
    dropped, and counts and controls, are in the report's requests alone); `distinct` the different ids of the last
    sweep, the one that decides; `total_first` and `total_last` the first and last TotalCount seen (None: never given).
    `appeared` and `vanished` count the changes that were noticed during the window, at least. `filters` is empty, or
    has `asked` (what is wanted), `dropped` (rows that came and do not match, left out) and, where filters were tried,
    `controls` (each as it behaved: exact, partial, ignored, by_case, broken or untold), `sent` (the one that the
    service was asked by; None: the whole list was read) and `missed` (people whom the list shows without it). Times are
    aware; knowledge taken from the list is as old as `started_at`. `total_active` and `total_inactive` are the counts
    of the IsActive filter (None: not asked, or it tells nothing).
    """

    verdict: Verdict
    reason: Reason
    order: Order
    sweeps: int
    pages: int
    distinct: int
    total_first: int | None
    total_last: int | None
    appeared: int
    vanished: int
    filters: Mapping[str, Any]
    started_at: datetime
    finished_at: datetime
    total_active: int | None = None
    total_inactive: int | None = None
    total_count: TotalCount = TotalCount.CHECKED

    @property
    def is_complete(self) -> bool:
        """Whether everyone on the list throughout the window is in the output."""
        return self.verdict is Verdict.COMPLETE

    def as_report(self) -> dict[str, Any]:
        """The report's `certificate` object: plain JSON values, times as ISO 8601."""
        times = {name: getattr(self, name).isoformat() for name in ("started_at", "finished_at")}
        words = {name: str(getattr(self, name)) for name in ("verdict", "reason", "order", "total_count")}
        return asdict(self) | words | times
