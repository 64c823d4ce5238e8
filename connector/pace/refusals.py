"""Distinguishes refusals that may be temporary from refusals of rows (architecture 4.8). The code is pure.

A refusal may be temporary if its cause is the service and not the row: a limit, maintenance or a quota. The same create
may be accepted later. A *series* is a sequence of refusals of one kind without other answers. Refusals because of the
rate (429) are not part of a series.
"""

from collections import Counter, deque
from dataclasses import dataclass
from math import inf

SERIES_LENGTH = 20
"""After this many refusals of one kind in a row, the kind may be temporary, because 20 rows rarely have the same
fault."""

_SAMPLE_SIZE = 40

_SAMPLE_REFUSAL_COUNT = 30
"""If at least this many of the latest 40 answers are refusals of one kind, the kind may be temporary. If requests leave
at four times the limit, the service refuses 30 of 40."""

# For this many seconds after a reduction, the pace is still above the limit, and the service refuses most creates.
_PACE_SETTLING_S = 2.0
_MAX_REFUSED_RETRIES = 3  # a kind of refusal is final after this many refusals of repeated creates

_MIN_FINAL_SERIES_S = 60.0
"""If all creates are refused for this many seconds after the 20th refusal in a row, the refusals may be final. A
restart of the service takes less time."""


@dataclass(slots=True)
class _ReducedPaceCounts:
    """Counts of the creates at the reduced pace, for one kind of refusal. Creates of the first two seconds after the
    reduction do not count, because the pace is still above the limit."""

    count_begins_at: float
    accepted_count: int = 0
    refused_count: int = 0

    @property
    def are_most_creates_refused(self) -> bool:
        """Whether the service still refuses most creates and accepts others. In this case, the rows cause the
        refusals."""
        return (
            self.accepted_count > 0
            and self.accepted_count + self.refused_count >= _SAMPLE_SIZE
            and self.refused_count > self.accepted_count
        )


class TemporaryRefusals:
    """The kinds of refusals of one run. A kind is a status with a message.

    A kind may be temporary in two cases. The caller marks the kind (`mark_temporary`), for example after a Retry-After.
    Or the service accepts creates, and later refuses 20 creates in a row, or 30 of 40 creates, with this kind.

    `accepted_kinds` are the kinds that were temporary: a refused create was sent again and accepted. `earlier_kinds`
    are the kinds that an earlier run has met. All times are monotonic, in seconds.
    """

    def __init__(self) -> None:
        self.earlier_kinds: set[str] = set()
        self.accepted_kinds: set[str] = set()
        self._suspect_kinds: set[str] = set()
        self._reduced_pace_counts: dict[str, _ReducedPaceCounts] = {}
        self._final_kinds: set[str] = set()
        self._refused_retry_counts = Counter[str]()
        self._has_accepted_create = False
        # Kinds of the latest refusals; "" for each accepted create.
        self._latest_kinds: deque[str] = deque(maxlen=_SAMPLE_SIZE)
        # The kind and the number of refusals of the present series, and the time of its 20th refusal.
        self._series_kind, self.series_length, self._long_series_began_at = "", 0, inf

    def may_be_temporary(self, kind: str) -> bool:
        """Return whether refusals of this kind may be temporary, because their cause is the service and not a row."""
        return kind in self._suspect_kinds or kind in self.accepted_kinds

    def is_final_kind(self, kind: str) -> bool:
        """Return whether this run has decided that refusals of this kind are final, and not temporary."""
        return kind in self._final_kinds

    def record_accepted_create(self, sent_at: float, earlier_kind: str = "") -> None:
        """Record that a create was accepted. `earlier_kind` is the kind of an earlier refusal of the same create."""
        self._has_accepted_create = True
        for counts in self._reduced_pace_counts.values():
            counts.accepted_count += sent_at > counts.count_begins_at
        self._latest_kinds.append("")
        self.end_series()
        if earlier_kind:
            self.accepted_kinds.add(earlier_kind)

    def mark_temporary(self, kind: str) -> None:
        """Record that refusals of this kind may be temporary, for example after a Retry-After. Do nothing if the
        refusals of this kind are final."""
        if kind not in self._final_kinds:
            self._suspect_kinds.add(kind)

    def end_series(self) -> None:
        """End the current series of refusals, because a create got another answer."""
        self._series_kind, self.series_length, self._long_series_began_at = "", 0, inf

    def record_refusal(self, kind: str, sent_at: float, now: float, *, is_repeated: bool = False) -> bool:
        """Record that the service refused a create with the status and message `kind`. Return whether refusals of this
        kind may be temporary. After many refusals, the kind becomes final (architecture 4.8). With `is_repeated`, the
        same create got a refusal of this kind before.
        """
        self._latest_kinds.append(kind)
        if not self._has_accepted_create or kind in self._final_kinds:
            self.end_series()
            return self.may_be_temporary(kind)
        if kind != self._series_kind:
            self.end_series()
            self._series_kind = kind
        self.series_length += 1
        self._refused_retry_counts[kind] += is_repeated and kind in self._suspect_kinds
        if self.series_length >= SERIES_LENGTH:
            self._long_series_began_at = min(self._long_series_began_at, now)
        if self.series_length >= SERIES_LENGTH or self._latest_kinds.count(kind) >= _SAMPLE_REFUSAL_COUNT:
            self._suspect_kinds.add(kind)
            self._reduced_pace_counts.setdefault(kind, _ReducedPaceCounts(now + _PACE_SETTLING_S))
        if kind in self._reduced_pace_counts:
            self._reduced_pace_counts[kind].refused_count += sent_at > self._reduced_pace_counts[kind].count_begins_at
        if kind not in self.accepted_kinds and self._is_kind_final_now(kind, now, is_repeated=is_repeated):
            self._suspect_kinds.discard(kind)
            self._final_kinds.add(kind)
            self.end_series()
        return self.may_be_temporary(kind)

    def _is_kind_final_now(self, kind: str, now: float, *, is_repeated: bool) -> bool:
        if self.series_length >= SERIES_LENGTH:
            return self.has_series_lasted_a_minute(now) and (is_repeated or kind in self.earlier_kinds)
        counts = self._reduced_pace_counts.get(kind)
        return self._refused_retry_counts[kind] >= _MAX_REFUSED_RETRIES or (
            counts is not None and counts.are_most_creates_refused
        )

    def has_series_lasted_a_minute(self, now: float) -> bool:
        """Return whether the present series has lasted for a minute since its 20th refusal."""
        return now - self._long_series_began_at >= _MIN_FINAL_SERIES_S
