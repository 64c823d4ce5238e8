"""The subscriber ids that a run knows to be in use. If a create is answered with such an id, it has created nobody: the
service has merged or moved an existing subscriber (architecture 4.9)."""

from collections.abc import Collection

import numpy as np

from connector.paging.overlap import IdArray, IdSet

_ADDED_AT_ONCE = 1024  # answered ids that are kept as Python numbers before they are added to an array together


class KnownIds:
    """The ids that the run's look-ups have shown, in every base, and those in the answers to its creates: 8 bytes each.

    An id that a look-up first shows after the run's first create may belong to an unresolved create of the run.
    `largest_kept` is the largest id that the ledger had before the run's first create (None: not read yet).
    `is_shared`: the list has shown one id in several bases, so the id of a new subscriber may exist in another base.
    """

    def __init__(self) -> None:
        self.largest_kept: int | None = None
        self.is_shared = False
        self._shown_first = IdSet()  # ids shown before the run's first create
        self._others = IdSet()
        self._answered: set[int] = set()  # answered ids that are not in an array yet
        self._largest_added = 0  # the largest id in the two arrays; a new id is nearly always larger
        self._is_creating = False

    def add_shown(self, ids: Collection[int]) -> None:
        """Add ids that a look-up shows."""
        self._add(self._others if self._is_creating else self._shown_first, ids)

    def add_answered(self, subscriber_id: int) -> None:
        """Add the id in the answer to a create."""
        self._is_creating = True
        self._answered.add(subscriber_id)
        if len(self._answered) >= _ADDED_AT_ONCE:
            self._add(self._others, self._answered)
            self._answered.clear()

    def begin_creating(self) -> None:
        """Record that the run's first create leaves."""
        self._is_creating = True

    @property
    def has_earlier(self) -> bool:
        """Whether the run knows of subscribers before its first create."""
        return bool(self.largest_kept) or len(self._shown_first) > 0

    def holds(self, subscriber_id: int) -> bool:
        """Return whether a look-up has shown the id, or an answer has had it."""
        if subscriber_id in self._answered:
            return True
        if subscriber_id > self._largest_added:
            return False
        wanted = np.array([subscriber_id], dtype=np.int64)
        return bool(self._shown_first.holds(wanted)[0] or self._others.holds(wanted)[0])

    def was_shown_first(self, subscriber_id: int) -> bool:
        """Return whether a look-up has shown the id before the run's first create."""
        return bool(self._shown_first.holds(np.array([subscriber_id], dtype=np.int64))[0])

    def _add(self, known: IdSet, ids: Collection[int]) -> None:
        added: IdArray = np.unique(np.fromiter(ids, dtype=np.int64, count=len(ids)))
        known.add(added[~known.holds(added)])
        self._largest_added = max(self._largest_added, max(ids, default=0))
