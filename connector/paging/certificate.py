"""The decision whether a run has read the complete list (architecture 7).

If a result window cuts a list off, TotalCount, the pages and the end of the list still agree. Only other evidence
shows that the list is cut off. `decide_cut_off` applies this evidence to the verdict (rule 7).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, TypedDict

HiddenGroup = tuple[str, object]
"""A group of subscribers that a list may hide: the name and the value of the filter that shows the group."""

_GROUP_NAMES: Mapping[HiddenGroup, str] = {
    ("is_active", True): "active subscribers",
    ("is_active", False): "inactive subscribers",
    ("gender", "male"): "male subscribers",
    ("gender", "female"): "female subscribers",
    ("gender", ""): "subscribers without a gender",
}


class CertificateVerdict(StrEnum):
    """Whether the list was read completely. Then the output has each subscriber, once, that was on the list from the
    start to the end of the reading."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"


class CertificateReason(StrEnum):
    """The reason for the verdict of a certificate. The first three reasons prove completeness. The other reasons
    prevent a proof."""

    ONE_ANSWER = "one_answer"  # a single answer had the whole list
    ID_ORDER = "id_order"  # the ids only rise, or only fall, and every overlap matched (rule 1)
    TWO_SWEEPS = "two_sweeps"  # two successive sweeps agree with each other and with every TotalCount (rule 2)
    TOTAL_COUNT = "total_count"  # in every attempt, TotalCount or the offset of a page contradicts the rows
    CHANGING = "changing"  # the list is not in id order, and no two successive sweeps agreed
    UNSTABLE_ORDER = "unstable_order"  # rows change their places from one request to the next
    FILTER = "filter"  # the filtered list left out a subscriber that the unfiltered list shows (rule 6)
    PAGING = "paging"  # the service repeats pages instead of moving on
    CUT_OFF = "cut_off"  # the service has subscribers that the list and its TotalCount leave out (rule 7)
    # There is no evidence that the list is complete. The list has the size of a result window, or lacks many
    # subscribers that the ledger has confirmed (rule 7).
    CUT_OFF_POSSIBLE = "cut_off_possible"


PROVING_REASONS = frozenset((CertificateReason.ONE_ANSWER, CertificateReason.ID_ORDER, CertificateReason.TWO_SWEEPS))
"""The reasons that prove that the complete list was read."""


class TotalCountCheck(StrEnum):
    """Whether TotalCount was compared with the rows that were read."""

    CHECKED = "checked"
    IGNORED = "ignored"  # TotalCount contradicts the proof, and the job ignores TotalCount


class CutOff(StrEnum):
    """Whether a result window may cut the list off (rule 7)."""

    # The list was not read completely. If the list is or may be cut off, `reason` is CUT_OFF or CUT_OFF_POSSIBLE.
    UNCHECKED = "unchecked"
    EXCLUDED = "excluded"  # no result window cuts the list off, because other evidence agrees with the size of the list
    # There is no evidence that the list is complete. The size of the list is not typical for a result window.
    NOT_EXCLUDED = "not excluded"
    # There is no evidence that the list is complete. The size of the list is typical for a result window, or the list
    # lacks many subscribers that the ledger has confirmed. The job accepts the list.
    ACCEPTED = "accepted"


class EvidenceResult(StrEnum):
    """The result of one piece of evidence about the size of the list."""

    AGREES = "agrees"
    CONTRADICTS = "contradicts"
    NOTHING = "nothing"  # the evidence does not show whether the size of the list is right
    UNCLEAR = "unclear"  # the ledger has confirmed many subscribers that the list lacks, and no look-up can find them


class Order(StrEnum):
    """The order in which the service listed the subscribers."""

    ID = "id"
    ID_DESC = "id_desc"
    OTHER = "other"
    UNSTABLE = "unstable"


class FiltersReport(TypedDict, total=False):
    """The `filters` of a certificate."""

    asked: Annotated[dict[str, Any], "Filters that the command or the job requested, each with its value."]
    dropped: Annotated[int, "Number of received rows that do not match the filters."]
    controls: Annotated[
        dict[str, str],
        "Result of the trial of each filter. `exact`: lists only matching subscribers; `partial`: also lists other "
        "subscribers; `ignored`: does not filter; `by_case`: distinguishes capitals; `broken`: leaves out matching "
        "subscribers; `untold`: the trial was inconclusive.",
    ]
    sent: Annotated[str | None, "Filter that was sent. Null if the whole list was read."]
    missed: Annotated[int, "Number of matching subscribers that the filtered list leaves out and the whole list shows."]


@dataclass(frozen=True, slots=True)
class Certificate:
    """The facts that a run found while it read the list. All fields except `unlisted_ids` and `unshown_groups` are keys
    of the report's `certificate`.

    The annotation of each of these keys has the type of the field, the description in the reference, and sometimes the
    type in JSON. Times have a time zone.
    """

    verdict: Annotated[CertificateVerdict, "Whether it is proved that the run read the complete list."]
    reason: Annotated[CertificateReason, "The proof of completeness, or the obstacle to a proof."]
    order: Annotated[Order, "Order in which the service listed the subscribers."]
    sweeps: Annotated[int, "How often the run read the list from its start to its end (sweeps)."]
    pages: Annotated[int, "Number of pages. Pages that were fetched ahead of time and not used do not count."]
    distinct: Annotated[int, "Number of different subscriber ids that the run found when it last read the list."]
    total_first: Annotated[int | None, "TotalCount of the first answer. Null if the answer has no TotalCount."]
    total_last: Annotated[int | None, "TotalCount of the last answer. Null if the answer has no TotalCount."]
    appeared: Annotated[int, "At least this many subscribers appeared on the list while the run read it."]
    vanished: Annotated[int, "At least this many subscribers vanished from the list while the run read it."]
    filters: Annotated[Mapping[str, Any], "Filters of the export. Empty if the export had no filters.", FiltersReport]
    started_at: Annotated[
        datetime, "Time when the run began to read the list. The service sent each row at this time or later."
    ]
    finished_at: Annotated[datetime, "Time when the run finished reading the list."]
    total_count: Annotated[TotalCountCheck, "Whether the verdict depends on TotalCount."] = TotalCountCheck.CHECKED
    cut_off: Annotated[CutOff, "Whether the service may have cut off the list."] = CutOff.UNCHECKED
    evidence: Annotated[
        Mapping[str, str],
        "Result of each kind of evidence about the size of the list (`agrees`, `contradicts`, `unclear` or "
        "`nothing`), with figures.",
    ] = field(default_factory=dict)
    hidden: Annotated[
        tuple[HiddenGroup, ...],
        "Hidden values of each filter. The list shows the subscribers with a hidden value only to a request that "
        "filters by this value. If the verdict is `complete`, the run read these subscribers separately.",
        dict[str, list[Any]],
    ] = ()
    unlisted_ids: tuple[int, ...] = ()  # the list did not show these subscribers, but a look-up by Id did
    unshown_groups: tuple[HiddenGroup, ...] = ()
    """Groups without a known subscriber: the list and a request for the group show no subscriber of the group."""

    @property
    def is_complete(self) -> bool:
        """Whether the output has each subscriber that was on the list from the start to the end of the reading."""
        return self.verdict is CertificateVerdict.COMPLETE

    def as_report(self) -> dict[str, Any]:
        """Return the report's `certificate` object: plain JSON values, with times as ISO 8601."""
        time_texts = {name: getattr(self, name).isoformat() for name in ("started_at", "finished_at")}
        enum_texts = {
            name: str(getattr(self, name)) for name in ("verdict", "reason", "order", "total_count", "cut_off")
        }
        hidden_values = {
            name: [value for other_name, value in self.hidden if other_name == name] for name, _ in self.hidden
        }
        values = asdict(self) | enum_texts | time_texts | {"hidden": hidden_values}
        del values["unlisted_ids"], values["unshown_groups"]
        return values


_SMALLEST_TYPICAL_WINDOW = 1000
"""The smallest size that counts as a typical size of a result window. Shorter lists have round sizes by chance too
often."""

_ROUND_COUNT_OF_UNCHANGED_LIST, _ROUND_COUNT_OF_CHANGING_LIST = 2, 3
"""The number of rounds in which the counts must contradict the list: 2 for a list that did not change, and 3 for any
other list. A round counts each part of the list, such as the active and the inactive subscribers. One round is not
enough, because a subscriber that moves to another part of the list during a round is counted twice in this round."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One piece of evidence for or against the size of the list, from other sources than its pages."""

    topic: str
    evidence_result: EvidenceResult
    message: str  # a description of the evidence, with its figures
    hidden_groups: tuple[HiddenGroup, ...] = ()
    """Groups of which the list shows too few subscribers, although the list shows enough of the other groups."""
    unlisted_ids: tuple[int, ...] = ()  # the list lacks these subscribers, although they exist


@dataclass(frozen=True, slots=True)
class RoundCounts:
    """The counts of one round. The round requests TotalCount of the whole list, then of each part of the list, and
    then of the whole list again. Parts are, for example, the active and the inactive subscribers."""

    part_counts: Sequence[int]
    whole_list_totals: tuple[int, int]

    @property
    def is_consistent(self) -> bool:
        """Whether the sum of the parts lies between the two TotalCounts of the whole list."""
        return min(self.whole_list_totals) <= sum(self.part_counts) <= max(self.whole_list_totals)


def compare_counts(
    rounds: Sequence[RoundCounts], is_list_unchanged: bool, totals: Collection[int]
) -> EvidenceResult | None:
    """Compare the TotalCounts of the parts of the list with the TotalCount of the whole list, in one or more rounds.
    Return the result, or None if another round is needed.

    If a result window cuts the list off, or the list hides a group of subscribers, the parts together have more
    subscribers than the list. Because the list may change, a difference counts only above a tolerance, and in every
    round. Example: if the TotalCounts are 1,000 to 1,003, the tolerance is 3. A sum of the parts above 1,006
    contradicts the list.

    `totals` has other TotalCounts of the list. With `is_list_unchanged`, no row appeared or vanished while the list was
    read.
    """
    if not rounds:
        return EvidenceResult.NOTHING
    last_round = rounds[-1]
    nonempty_part_count = sum(1 for part_count in last_round.part_counts if part_count)
    if nonempty_part_count < 2 and sum(last_round.part_counts) <= max(*last_round.whole_list_totals, *totals):
        return EvidenceResult.NOTHING  # the only part is the whole list, so a result window cuts both to the same size
    if all(round_counts.is_consistent for round_counts in rounds):
        return EvidenceResult.AGREES
    all_totals = [*totals, *(total for round_counts in rounds for total in round_counts.whole_list_totals)]
    largest_expected_sum = 2 * max(all_totals) - min(all_totals)
    if not all(sum(round_counts.part_counts) > largest_expected_sum for round_counts in rounds):
        return EvidenceResult.NOTHING
    return (
        EvidenceResult.CONTRADICTS
        if len(rounds) >= (_ROUND_COUNT_OF_UNCHANGED_LIST if is_list_unchanged else _ROUND_COUNT_OF_CHANGING_LIST)
        else None
    )


def decide_cut_off(
    certificate: Certificate, findings: Sequence[Finding], *, accepts_possible_cut_off: bool
) -> Certificate:
    """Add the findings of rule 7 to the certificate of a list that was read to its end. Return the certificate with the
    verdict that follows from the findings."""
    checked_certificate = replace(
        certificate,
        evidence={
            finding.topic: f"{finding.evidence_result}: {finding.message}"
            if finding.message
            else str(finding.evidence_result)
            for finding in findings
        },
        unlisted_ids=tuple(subscriber_id for finding in findings for subscriber_id in finding.unlisted_ids),
    )
    evidence_results = {finding.evidence_result for finding in findings}
    if EvidenceResult.CONTRADICTS in evidence_results:
        return replace(checked_certificate, verdict=CertificateVerdict.INCOMPLETE, reason=CertificateReason.CUT_OFF)
    if EvidenceResult.AGREES in evidence_results and EvidenceResult.UNCLEAR not in evidence_results:
        return replace(checked_certificate, cut_off=CutOff.EXCLUDED)
    total_count_to_check = (
        checked_certificate.total_last if checked_certificate.total_count is TotalCountCheck.CHECKED else None
    )
    if EvidenceResult.UNCLEAR not in evidence_results and not any(
        is_window_size(row_count) for row_count in (checked_certificate.distinct, total_count_to_check or 0)
    ):
        return replace(checked_certificate, cut_off=CutOff.NOT_EXCLUDED)
    if accepts_possible_cut_off:
        return replace(checked_certificate, cut_off=CutOff.ACCEPTED)
    return replace(
        checked_certificate, verdict=CertificateVerdict.INCOMPLETE, reason=CertificateReason.CUT_OFF_POSSIBLE
    )


def describe_hidden_groups(certificate: Certificate) -> str:
    """Return the sentence that names the groups of subscribers that the list hides, or "" if the list hides no
    group."""
    if not certificate.hidden:
        return ""
    names = [
        f"subscribers of the base {value}" if name == "base_id" else _GROUP_NAMES[name, value]
        for name, value in certificate.hidden
    ]
    last_sentence = (
        "The hidden subscribers were read by separate requests."
        if certificate.is_complete
        else "Not all of the hidden subscribers could be read."
    )
    return f"The list shows no {' and no '.join(names)} unless a request asks for them. {last_sentence}"


def is_window_size(row_count: int) -> bool:
    """Return whether this is a typical size of a result window: 2ⁿ, 2ⁿ - 1, 10ⁿ - 1 or a multiple of 1,000. Typical
    sizes begin at 999."""
    if row_count < _SMALLEST_TYPICAL_WINDOW - 1:
        return False
    is_below_power_of_ten = str(row_count + 1).strip("0") == "1"
    return (
        row_count % 1000 == 0
        or row_count & (row_count - 1) == 0
        or row_count & (row_count + 1) == 0
        or is_below_power_of_ten
    )
