"""The identities that a job must not create: those of a suppression list, and those that are inactive in the service.

Both are stored as digests of 16 bytes. A row is compared by the normal form of the list's field. A row without a value
of this field is not on the list.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from connector.errors import ConfigurationError
from connector.plurals import count
from connector.subscribers.identity import (
    IDENTITY_BYTES,
    Digests,
    Mask,
    compute_identities,
    digest_identity,
    join_digests,
)

_MIN_COMPARED_SIZE = 10  # smaller lists are not compared


class Suppression:
    """The suppression list of `job`. Its entries are identities of `field` (email or client_user_id)."""

    __slots__ = ("_digests", "field", "job", "max_shrink", "name")

    def __init__(
        self, job: str, field: str, digests: Digests | Iterable[bytes], *, name: str = "", max_shrink: float = 1.0
    ) -> None:
        """`digests` are the entries' digests in any order, with duplicates: an S16 array, or single digests. `name` is
        the path of the list, and `max_shrink` the share by which the list may shrink between two runs."""
        if not isinstance(digests, np.ndarray):
            digests = join_digests(digests, IDENTITY_BYTES)
        self.job = job
        self.field = field
        self.name, self.max_shrink = name, max_shrink
        self._digests: Digests = np.unique(digests)  # sorted, without duplicates

    @property
    def size(self) -> int:
        """The number of identities on the list."""
        return len(self._digests)

    def has_same_entries(self, other: "Suppression") -> bool:
        """Return whether the other list has the same field and identities."""
        return self.field == other.field and np.array_equal(self._digests, other._digests)

    def refuse_shrunk(self, previous_size: int | None) -> None:
        """Raise ConfigurationError if the list is smaller than `previous_size` by `max_shrink` or more. A list that
        lost entries would let people be created or mailed. A list that had fewer than 10 entries is not compared."""
        if previous_size is None or previous_size < _MIN_COMPARED_SIZE:
            return
        shrink = 1 - self.size / previous_size
        if shrink > 0 and shrink >= self.max_shrink:
            raise ConfigurationError(
                f"the suppression list {self.name} names {count(self.size, 'subscriber')}, {shrink:.1%} fewer than in "
                f"the last run ({previous_size:,}). Nothing was sent. Check whether the list is complete. If so, set "
                f"guard.max_shrink above {shrink:.1%} for one run"
            )

    def holds(self, values: Mapping[str, object]) -> bool:
        """Return whether a subscriber with these values (by field name) is on the list."""
        value = values.get(self.field)
        if not isinstance(value, str):
            return False
        return bool(self.find(join_digests([digest_identity(self.field, value)], IDENTITY_BYTES))[0])

    def build_mask(self, subscribers: pd.DataFrame) -> Mask:
        """Return the mask of the rows of a typed frame that are on the list."""
        mask = np.zeros(len(subscribers), dtype=bool)
        if self.field in subscribers:
            is_present = subscribers[self.field].notna().to_numpy(dtype=bool)
            mask[is_present] = self.find(compute_identities(subscribers[self.field][is_present], self.field))
        return mask

    def find(self, digests: Digests) -> Mask:
        """Return the mask of the digests (S16, of the list's field) that are on the list."""
        return _find_among(self._digests, digests)


class InactiveIdentities:
    """The identities (S16 digests) that are inactive in a base of the service's list, or in rows of the run.

    `reactivated` are inactive identities that the run creates as active, because the job does not suppress them.
    `unclear` are identities that the list shows without a valid IsActive.
    """

    __slots__ = ("_added", "_known", "reactivated", "unclear")

    def __init__(self) -> None:
        self.unclear: InactiveIdentities | None = None
        self._known: Digests = join_digests((), IDENTITY_BYTES)  # sorted, without duplicates
        self._added = bytearray()  # digests that are not in `_known` yet
        self.reactivated: set[bytes] = set()

    def add(self, identity: bytes) -> None:
        """Add an inactive identity."""
        self._added += identity

    def add_unclear(self, identity: bytes) -> None:
        """Add an identity that the list shows without a valid IsActive."""
        if self.unclear is None:
            self.unclear = InactiveIdentities()
        self.unclear.add(identity)

    def update(self, other: "InactiveIdentities") -> None:
        """Add all identities of another object."""
        self._added += other._known.tobytes() + bytes(other._added)

    def find(self, digests: Digests) -> Mask:
        """Return the mask of the digests that were added."""
        if self._added:
            added = np.frombuffer(bytes(self._added), dtype=self._known.dtype)
            self._known = np.unique(np.concatenate([self._known, added]))
            self._added.clear()
        return _find_among(self._known, digests)


def _find_among(known: Digests, digests: Digests) -> Mask:
    """Return the mask of the `digests` that are in the sorted array `known`."""
    index = np.searchsorted(known, digests)
    is_inside = index < len(known)
    is_known = np.zeros(len(digests), dtype=bool)
    is_known[is_inside] = known[index[is_inside]] == digests[is_inside]
    return is_known
