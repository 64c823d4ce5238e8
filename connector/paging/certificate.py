"""The verdict on a reading's completeness (architecture 7); it knows the list only by what was seen of it.

A list that a result window cuts off agrees with itself: TotalCount, pages and end all stop at the same place. Only
evidence from outside the sweep tells; `decide_cut_off` says what comes of it (rule 7).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

HiddenClass = tuple[str, object]
"""A class of subscribers: the name of a filter, and the value that a request must ask for."""

_CLASS_WORDS: Mapping[HiddenClass, str] = {
    ("is_active", True): "active subscribers",
    ("is_active", False): "inactive subscribers",
    ("gender", "male"): "male subscribers",
    ("gender", "female"): "female subscribers",
    ("gender", ""): "subscribers without a gender",
}


class Verdict(StrEnum):
    """`complete`: each subscriber that was on the list throughout the window is in the output, once."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"


class Reason(StrEnum):
    """The reason of a verdict. The first three prove completeness; the others name what prevented a proof."""

    ONE_ANSWER = "one_answer"  # the whole list came in a single answer
    ID_ORDER = "id_order"  # ids strictly monotone and every overlap matched (rule 1)
    TWO_SWEEPS = "two_sweeps"  # two successive sweeps agree with each other and with every TotalCount (rule 2)
    TOTAL_COUNT = "total_count"  # TotalCount, or the place of a page, disagrees for good with the rows received
    CHANGING = "changing"  # an order not by id, in which no two successive sweeps agreed
    UNSTABLE_ORDER = "unstable_order"  # rows change places from one request to the next
    FILTER = "filter"  # read by a filter, the list left out a subscriber that it shows without it (rule 6)
    PAGING = "paging"  # the service repeats pages instead of moving on
    CUT_OFF = "cut_off"  # the service has subscribers that the list, its TotalCount included, leaves out (rule 7)
    CUT_OFF_POSSIBLE = "cut_off_possible"  # a size that result windows have, and no evidence either way (rule 7)


PROOFS = frozenset((Reason.ONE_ANSWER, Reason.ID_ORDER, Reason.TWO_SWEEPS))
"""The reasons that a complete list may have."""


class TotalCount(StrEnum):
    """Whether TotalCount had a say in the verdict."""

    CHECKED = "checked"
    IGNORED = "ignored"  # it disagrees, and was to be left out of account


class CutOff(StrEnum):
    """What is known of a result window that would cut the list off (rule 7)."""

    UNCHECKED = "unchecked"  # not complete for another reason, or too short for a window
    EXCLUDED = "excluded"  # evidence from outside the sweep agrees with its size
    NOT_EXCLUDED = "not excluded"  # no evidence, and a size that no window has
    ACCEPTED = "accepted"  # no evidence, a size that windows have, and the job takes it


class Says(StrEnum):
    """What one piece of evidence says of a list's size."""

    AGREES = "agrees"
    CONTRADICTS = "contradicts"
    NOTHING = "nothing"


class Order(StrEnum):
    """How the list was ordered, as far as the last sweep could see."""

    ID = "id"
    ID_DESC = "id_desc"
    OTHER = "other"
    UNSTABLE = "unstable"


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is known of one reading of the list: the keys of the report's `certificate`, in its order.

    `sweeps` and `pages` count all that was taken (pages that were asked for ahead and dropped, and questions for
    evidence, are in the report's requests alone); `distinct` the different ids of the last
    sweep, the one that decides; `total_first` and `total_last` the first and last TotalCount seen (None: never given).
    `appeared` and `vanished` count the changes that were noticed during the window, at least. `filters` is empty, or
    has `asked` (what is wanted), `dropped` (rows that came and do not match, left out) and, where filters were tried,
    `controls` (each as it behaved: exact, partial, ignored, by_case, broken or untold), `sent` (the one that the
    service was asked by; None: the whole list was read) and `missed` (subscribers that the list shows without it).
    Times are aware; knowledge taken from the list is as old as `started_at`. `cut_off` and `evidence` (kind to what it
    says) are those of rule 7. `hidden` has the classes, each as a filter's name and value, that the list shows only to
    a request that asks for the class. In a complete reading they were read separately and are among the rows.
    `unlisted` has ids of subscribers that a look-up by Id showed and the reading lacks. `unshown` has the classes of
    which neither the reading nor a request for the class showed a subscriber. The report leaves both out.
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
    total_count: TotalCount = TotalCount.CHECKED
    cut_off: CutOff = CutOff.UNCHECKED
    evidence: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[HiddenClass, ...] = ()
    unlisted: tuple[int, ...] = ()
    unshown: tuple[HiddenClass, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether each subscriber that was on the list throughout the window is in the output."""
        return self.verdict is Verdict.COMPLETE

    def as_report(self) -> dict[str, Any]:
        """Return the report's `certificate` object: plain JSON values, times as ISO 8601."""
        times = {name: getattr(self, name).isoformat() for name in ("started_at", "finished_at")}
        words = {name: str(getattr(self, name)) for name in ("verdict", "reason", "order", "total_count", "cut_off")}
        hidden = {name: [value for other, value in self.hidden if other == name] for name, _ in self.hidden}
        values = asdict(self) | words | times | {"hidden": hidden}
        del values["unlisted"], values["unshown"]
        return values


SMALLEST_WINDOW = 1000
"""The size of the smallest window that a round number gives away: shorter lists have such sizes by chance too often."""

_ROUNDS_OF_QUIET, _ROUNDS = 2, 3
"""Rounds whose counts must all contradict, in a quiet list and in any other: a subscriber that moves to another part
during a round is counted twice in that round."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One piece of evidence from outside the sweep: its kind, what it says, and the figures in words. `hidden` has the
    classes of which the list shows too few subscribers, if it shows enough of the other classes. `unlisted` has ids of
    subscribers that exist and are not listed."""

    kind: str
    says: Says
    words: str
    hidden: tuple[HiddenClass, ...] = ()
    unlisted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """One round through the parts of the list: the TotalCounts of the whole before and after, and of each part."""

    before: int
    parts: Sequence[int]
    after: int

    @property
    def is_agreeing(self) -> bool:
        """Whether the parts come to the whole, as it was before them or as it changed up to now."""
        return min(self.before, self.after) <= sum(self.parts) <= max(self.before, self.after)


def decide_counts(rounds: Sequence[Counts], is_quiet: bool, totals: Collection[int]) -> Says | None:
    """Return what the counts of several rounds say, or None if another round is needed.

    The parts exceed the whole if a window cuts off the whole list, because each part has a window of its own. They also
    exceed the whole if the list hides a class of subscribers. A list that changes is contradicted if, in every round,
    the parts exceed every TotalCount by more than the TotalCounts differ. `totals` has TotalCounts from outside the
    rounds. `is_quiet`: no row came or went during the sweep.
    """
    if not rounds:
        return Says.NOTHING
    last = rounds[-1]
    if sum(1 for each in last.parts if each) < 2 and sum(last.parts) <= max(last.before, last.after, *totals):
        return Says.NOTHING  # the one part is cut off where the whole is
    if all(each.is_agreeing for each in rounds):
        return Says.AGREES
    known = [*totals, *(each.before for each in rounds), *(each.after for each in rounds)]
    least = 2 * max(known) - min(known)
    if not all(sum(each.parts) > least for each in rounds):
        return Says.NOTHING
    return Says.CONTRADICTS if len(rounds) >= (_ROUNDS_OF_QUIET if is_quiet else _ROUNDS) else None


def decide_cut_off(certificate: Certificate, findings: Sequence[Finding], *, accepts_possible: bool) -> Certificate:
    """Return the certificate of a complete reading after the evidence of rule 7 was heard."""
    heard = replace(
        certificate,
        evidence={each.kind: f"{each.says}: {each.words}" if each.words else str(each.says) for each in findings},
        unlisted=tuple(subscriber_id for each in findings for subscriber_id in each.unlisted),
    )
    says = {each.says for each in findings}
    if Says.CONTRADICTS in says:
        return replace(heard, verdict=Verdict.INCOMPLETE, reason=Reason.CUT_OFF)
    if Says.AGREES in says:
        return replace(heard, cut_off=CutOff.EXCLUDED)
    counted = heard.total_last if heard.total_count is TotalCount.CHECKED else None
    if not any(is_window_size(each) for each in (heard.distinct, counted or 0)):
        return replace(heard, cut_off=CutOff.NOT_EXCLUDED)
    if accepts_possible:
        return replace(heard, cut_off=CutOff.ACCEPTED)
    return replace(heard, verdict=Verdict.INCOMPLETE, reason=Reason.CUT_OFF_POSSIBLE)


def describe_hidden(certificate: Certificate) -> str:
    """Return the sentence that names the classes that the list hides; "" if the list hides none."""
    if not certificate.hidden:
        return ""
    names = [
        f"subscribers of the base {value}" if name == "base_id" else _CLASS_WORDS[name, value]
        for name, value in certificate.hidden
    ]
    end = "They were read separately." if certificate.is_complete else "They could not all be read."
    return f"The list shows no {' and no '.join(names)} unless a request asks for them. {end}"


def is_window_size(rows: int) -> bool:
    """Return whether result windows have this size: a multiple of 1,000, 2ⁿ, 2ⁿ - 1 or 10ⁿ - 1."""
    if rows < SMALLEST_WINDOW - 1:
        return False
    is_power_of_ten = str(rows + 1).strip("0") == "1"
    return rows % 1000 == 0 or rows & (rows - 1) == 0 or rows & (rows + 1) == 0 or is_power_of_ten
