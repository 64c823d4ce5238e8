"""Distinguishes refusals that may pass (a limit, maintenance, a quota) from refusals of rows (architecture 4.8). Pure.

A *series* has refusals of one kind and no other answer in between. Refusals of the rate (429) do not count.
"""

from collections import Counter, deque
from dataclasses import dataclass
from math import inf

SERIES_LENGTH = 20
"""The length of a series of refusals that may pass: people rarely spoil so many source rows in succession."""

_SAMPLE_SIZE = 40
_SAMPLE_REFUSAL_COUNT = 30  # refusals among 40 answers: a limit refuses this many at four times its rate
_MAX_REFUSED_RETRIES = 3  # refusals of creates that were sent again: then the kind is final

_MAX_TRIAL_S = 60.0
"""Seconds that a run continues to try: a restart of the service and a window of a minute end within a minute."""


@dataclass(slots=True)
class _ReducedPaceCounts:
    """The results of the creates that left after the pace was reduced for a kind of refusal."""

    since: float
    accepted_count: int = 0
    refused_count: int = 0

    @property
    def is_no_better(self) -> bool:
        """Whether most creates are still refused while others are accepted: the refusals are about the rows."""
        return (
            self.accepted_count > 0
            and self.accepted_count + self.refused_count >= _SAMPLE_SIZE
            and self.refused_count > self.accepted_count
        )


class PassingRefusals:
    """The kinds of refusals of one run, by status and words. A kind may pass after a Retry-After, after a hint of the
    caller (`mark_passing`), or, once a create was accepted, after a series of 20 refusals or 30 of the latest 40
    answers. A kind has passed once a refused create was sent again and accepted.

    `earlier` are the kinds that an earlier run has met already. All times are monotonic, in seconds.
    """

    __slots__ = (
        "_believed", "_count", "_has_accepted", "_kind", "_latest", "_since", "_slowed", "_suspect", "_tries",
        "earlier", "passed",
    )  # fmt: skip

    def __init__(self) -> None:
        self.earlier: set[str] = set()
        self.passed: set[str] = set()
        self._suspect: set[str] = set()
        self._slowed: dict[str, _ReducedPaceCounts] = {}
        self._believed: set[str] = set()
        self._tries = Counter[str]()
        self._has_accepted = False
        self._latest: deque[str] = deque(maxlen=_SAMPLE_SIZE)  # kinds of the latest answers, "" for others
        self._kind, self._count, self._since = "", 0, inf  # the present series, and when it became 20 long

    @property
    def count(self) -> int:
        """The length of the present series of refusals."""
        return self._count

    def may_pass(self, kind: str) -> bool:
        """Return whether refusals of this kind may pass: they are about the service, and not about a row."""
        return kind in self._suspect or kind in self.passed

    def is_believed(self, kind: str) -> bool:
        """Return whether this run has tried refusals of this kind long enough to take them for final."""
        return kind in self._believed

    def record_accepted(self, sent_at: float, refused_kind: str = "") -> None:
        """Record that a create was accepted. `refused_kind` is the kind of an earlier refusal of the same create."""
        self._has_accepted = True
        for counts in self._slowed.values():
            counts.accepted_count += sent_at > counts.since
        self._latest.append("")
        self.end_series()
        if refused_kind:
            self.passed.add(refused_kind)

    def mark_passing(self, kind: str) -> None:
        """Record that refusals of this kind may pass, for example after a Retry-After, unless the kind is believed."""
        if kind not in self._believed:
            self._suspect.add(kind)

    def end_series(self) -> None:
        """End the current series of refusals."""
        self._kind, self._count, self._since = "", 0, inf

    def record_refused(self, kind: str, sent_at: float, now: float, *, is_repeated: bool = False) -> bool:
        """Record a refusal, and return whether it may pass. `is_repeated`: the same create got such a refusal before.

        A kind is believed in three cases. (a) For a minute all creates were refused, and the create was sent again or
        an earlier run has met the kind. (b) Creates were sent again and refused three times. (c) Of at
        least 40 creates at the reduced pace, more were refused than accepted. A kind that has passed is never believed.
        """
        self._latest.append(kind)
        if not self._has_accepted or kind in self._believed:
            self.end_series()
            return self.may_pass(kind)
        if kind != self._kind:
            self.end_series()
            self._kind = kind
        self._count += 1
        self._tries[kind] += is_repeated and kind in self._suspect
        if self._count >= SERIES_LENGTH:
            self._since = min(self._since, now)
        if self._count >= SERIES_LENGTH or self._latest.count(kind) >= _SAMPLE_REFUSAL_COUNT:
            self._suspect.add(kind)
            self._slowed.setdefault(kind, _ReducedPaceCounts(now))
        if kind in self._slowed:
            self._slowed[kind].refused_count += sent_at > self._slowed[kind].since
        if kind not in self.passed and self._has_failed(kind, now, is_repeated=is_repeated):
            self._suspect.discard(kind)
            self._believed.add(kind)
            self.end_series()
        return self.may_pass(kind)

    def _has_failed(self, kind: str, now: float, *, is_repeated: bool) -> bool:
        if self._count >= SERIES_LENGTH:
            return self.has_lasted(now) and (is_repeated or kind in self.earlier)
        counts = self._slowed.get(kind)
        return self._tries[kind] >= _MAX_REFUSED_RETRIES or (counts is not None and counts.is_no_better)

    def has_lasted(self, now: float) -> bool:
        """Return whether the present series has lasted for a minute since its 20th refusal."""
        return now - self._since >= _MAX_TRIAL_S
