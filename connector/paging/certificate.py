"""The verdict on the completeness of a reading of the list (architecture 7).

If a result window cuts a list off, TotalCount, the pages and the end still agree. Only evidence from outside the sweep
shows the cut; `decide_cut_off` applies that evidence to the verdict (rule 7).
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
    TOTAL_COUNT = "total_count"  # TotalCount, or the offset of a page, contradicts the rows in every attempt
    CHANGING = "changing"  # the list is not in id order, and no two successive sweeps agreed
    UNSTABLE_ORDER = "unstable_order"  # rows move from one request to the next
    FILTER = "filter"  # the filtered list left out a subscriber that the unfiltered list shows (rule 6)
    PAGING = "paging"  # the service repeats pages instead of moving on
    CUT_OFF = "cut_off"  # the service has subscribers that the list, its TotalCount included, leaves out (rule 7)
    CUT_OFF_POSSIBLE = "cut_off_possible"  # the list has the size of a result window, and evidence is lacking (rule 7)


PROOFS = frozenset((Reason.ONE_ANSWER, Reason.ID_ORDER, Reason.TWO_SWEEPS))
"""The reasons that a complete list may have."""


class TotalCount(StrEnum):
    """Whether TotalCount counts in the verdict."""

    CHECKED = "checked"
    IGNORED = "ignored"  # TotalCount contradicts the proof, and the job ignores TotalCount


class CutOff(StrEnum):
    """Whether a result window may cut the list off (rule 7)."""

    UNCHECKED = "unchecked"  # the reading is incomplete for another reason, or the list is too short for a window
    EXCLUDED = "excluded"  # evidence from outside the sweep agrees with the size of the list
    NOT_EXCLUDED = "not excluded"  # no evidence, and a size that no window has
    ACCEPTED = "accepted"  # no evidence, a size that windows have, and the job accepts the list


class Says(StrEnum):
    """The meaning of one piece of evidence for the size of the list."""

    AGREES = "agrees"
    CONTRADICTS = "contradicts"
    NOTHING = "nothing"


class Order(StrEnum):
    """The order of the list, as the last sweep showed it."""

    ID = "id"
    ID_DESC = "id_desc"
    OTHER = "other"
    UNSTABLE = "unstable"


@dataclass(frozen=True, slots=True)
class Certificate:
    """The facts about one reading of the list: the keys of the report's `certificate`, in the order of the report.

    `sweeps` and `pages` count the sweeps and the pages that were used. Pages that were asked for ahead and dropped, and
    questions for evidence, are counted only in the report's requests. `distinct` is the number of different ids of the
    last sweep, which decides. `total_first` and `total_last` are the TotalCounts of the first and the last answer, or
    None. `appeared` and `vanished` are lower bounds of the changes during the reading.

    `filters` is empty, or has `asked` (the requested values) and `dropped` (received rows that do not match). If
    filters were tried, it also has `controls` (how each filter behaved: exact, partial, ignored, by_case, broken or
    untold), `sent` (the filter that was sent; None: the whole list was read) and `missed` (subscribers that only the
    list without the filter shows).

    Times are aware; the rows are as old as `started_at`. `cut_off` and `evidence` (by kind) follow rule 7. `hidden` has
    the classes, each as a filter's name and value, that the list shows only to a request that asks for the class. In a
    complete reading they were read separately and are among the rows. `unlisted` has ids of subscribers that a look-up
    by Id showed and the reading lacks. `unshown` has the classes of which neither the reading nor a request for the
    class showed a subscriber. The report leaves `unlisted` and `unshown` out.
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
"""The smallest size that is taken for a result window: shorter lists have round sizes by chance too often."""

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
        """Whether the sum of the parts lies between the two TotalCounts of the whole."""
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
    if sum(1 for part in last.parts if part) < 2 and sum(last.parts) <= max(last.before, last.after, *totals):
        return Says.NOTHING  # a single part is cut off at the same size as the whole
    if all(question.is_agreeing for question in rounds):
        return Says.AGREES
    known = [*totals, *(question.before for question in rounds), *(question.after for question in rounds)]
    least = 2 * max(known) - min(known)
    if not all(sum(question.parts) > least for question in rounds):
        return Says.NOTHING
    return Says.CONTRADICTS if len(rounds) >= (_ROUNDS_OF_QUIET if is_quiet else _ROUNDS) else None


def decide_cut_off(certificate: Certificate, findings: Sequence[Finding], *, accepts_possible: bool) -> Certificate:
    """Return the certificate of a complete reading, changed by the evidence of rule 7."""
    with_evidence = replace(
        certificate,
        evidence={
            finding.kind: f"{finding.says}: {finding.words}" if finding.words else str(finding.says)
            for finding in findings
        },
        unlisted=tuple(subscriber_id for finding in findings for subscriber_id in finding.unlisted),
    )
    says = {finding.says for finding in findings}
    if Says.CONTRADICTS in says:
        return replace(with_evidence, verdict=Verdict.INCOMPLETE, reason=Reason.CUT_OFF)
    if Says.AGREES in says:
        return replace(with_evidence, cut_off=CutOff.EXCLUDED)
    checked_total = with_evidence.total_last if with_evidence.total_count is TotalCount.CHECKED else None
    if not any(is_window_size(rows) for rows in (with_evidence.distinct, checked_total or 0)):
        return replace(with_evidence, cut_off=CutOff.NOT_EXCLUDED)
    if accepts_possible:
        return replace(with_evidence, cut_off=CutOff.ACCEPTED)
    return replace(with_evidence, verdict=Verdict.INCOMPLETE, reason=Reason.CUT_OFF_POSSIBLE)


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
    """Return whether this is a typical size of a result window: a multiple of 1,000, 2ⁿ, 2ⁿ - 1 or 10ⁿ - 1."""
    if rows < SMALLEST_WINDOW - 1:
        return False
    is_power_of_ten = str(rows + 1).strip("0") == "1"
    return rows % 1000 == 0 or rows & (rows - 1) == 0 or rows & (rows + 1) == 0 or is_power_of_ten
