"""Tells refusals that may pass (a limit, maintenance, a quota) from refusals of rows (architecture 4.8). Pure."""

from math import inf

LEAST_IN_A_ROW = 20
"""Refusals of one kind without another answer between them that may pass: more rows than a person spoils by chance."""

_LONGEST_S = 60.0
"""Seconds that a run tries on: a restart and a window of a minute end within them, as with a service that is down."""


class PassingRefusals:
    """The kinds of refusals of one run, by status and words. A kind may pass once a row of 20 refusals has followed an
    accepted create. A kind has passed once a refused create was sent again and accepted.

    `earlier` are the kinds that an earlier run has met already.
    """

    __slots__ = ("_believed", "_count", "_has_accepted", "_kind", "_since", "_suspect", "earlier", "passed")

    def __init__(self) -> None:
        self.earlier: set[str] = set()
        self.passed: set[str] = set()
        self._suspect: set[str] = set()
        self._believed: set[str] = set()
        self._has_accepted = False
        self._kind, self._count, self._since = "", 0, inf  # of the row of refusals; since when it is 20 long

    @property
    def count(self) -> int:
        """The length of the present row of refusals of one kind."""
        return self._count

    def may_pass(self, kind: str) -> bool:
        """Return whether refusals of this kind may pass: they are about the service, and not about a row."""
        return kind in self._suspect or kind in self.passed

    def is_believed(self, kind: str) -> bool:
        """Return whether this run has tried refusals of this kind long enough to take them for final."""
        return kind in self._believed

    def note_accepted(self, refused: str = "") -> None:
        """Note an accepted create; `refused` is the kind that refused the same create before."""
        self._has_accepted = True
        self.break_row()
        if refused:
            self.passed.add(refused)

    def note_limit(self, kind: str) -> None:
        """Note a refusal that names a time to come back (Retry-After): the kind may pass."""
        if kind not in self._believed:
            self._suspect.add(kind)

    def break_row(self) -> None:
        """Note an answer of another kind."""
        self._kind, self._count, self._since = "", 0, inf

    def note_refused(self, kind: str, now: float, *, is_again: bool = False) -> bool:
        """Note a refusal; return whether the refusal may pass. `is_again`: the same create was refused so before.

        A kind is believed once the last chance has failed: a kind that an earlier run has met, and one whose creates
        were sent again.
        """
        if not self._has_accepted or kind in self._believed:
            self.break_row()
            return self.may_pass(kind)
        if kind != self._kind:
            self.break_row()
            self._kind = kind
        self._count += 1
        if is_again and self.may_pass(kind):
            self._count = max(self._count, LEAST_IN_A_ROW)
        if self._count >= LEAST_IN_A_ROW:
            self._suspect.add(kind)
            self._since = min(self._since, now)
        if self.has_lasted(now) and kind not in self.passed and (is_again or kind in self.earlier):
            self._suspect.discard(kind)
            self._believed.add(kind)
            self.break_row()
        return self.may_pass(kind)

    def has_lasted(self, now: float) -> bool:
        """Return whether nothing but refusals of one kind has come for a minute."""
        return now - self._since >= _LONGEST_S
