"""Lists of identities that a load must not create as active: the suppression list of a job, and the inactive
identities."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from connector.errors import ConfigurationError
from connector.subscribers.identity import (
    IDENTITY_BYTES,
    Digests,
    Mask,
    compute_identities,
    digest_identity,
    join_digests,
)
from connector.texts import count

if TYPE_CHECKING:
    import pandas as pd

_MIN_COMPARED_SIZE = 10  # entries; two sizes are compared only if the earlier list had at least this many entries


class Suppression:
    """The suppression list of `job`. Its entries are identities of `field` (email or client_user_id)."""

    __slots__ = ("_digests", "field", "job", "max_shrink", "name")

    def __init__(
        self, job: str, field: str, digests: Digests | Iterable[bytes], *, name: str = "", max_shrink: float = 1.0
    ) -> None:
        """`digests` are the digests of the entries, as an S16 array or as single digests. The digests may be in any
        order, and may have duplicates. `name` is the path of the list, and `max_shrink` the share by which the list may
        shrink between two runs."""
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

    def refuse_shrunk_list(self, previous_size: int | None) -> None:
        """Raise ConfigurationError if the list is smaller than `previous_size` by `max_shrink` or more. With an
        incomplete list, the run would create or mail suppressed people. If `previous_size` is below 10, the sizes are
        not compared."""
        if previous_size is None or previous_size < _MIN_COMPARED_SIZE:
            return
        shrink_share = 1 - self.size / previous_size
        if shrink_share > 0 and shrink_share >= self.max_shrink:
            raise ConfigurationError(
                f"the suppression list {self.name} names {count(self.size, 'subscriber')}, {shrink_share:.1%} fewer "
                f"than in the last run ({previous_size:,}). Nothing was sent. Check whether the list is complete. If "
                f"the list is complete, set guard.max_shrink above {shrink_share:.1%} for one run"
            )

    def has_subscriber(self, values: Mapping[str, object]) -> bool:
        """Return whether a subscriber with these values (by field name) is on the list."""
        identity_text = values.get(self.field)
        if not isinstance(identity_text, str):
            return False
        return bool(
            self.build_digest_mask(join_digests([digest_identity(self.field, identity_text)], IDENTITY_BYTES))[0]
        )

    def build_row_mask(self, subscribers: "pd.DataFrame") -> Mask:
        """Return the mask of the rows of a typed frame that are on the list."""
        suppressed_mask = np.zeros(len(subscribers), dtype=bool)
        if self.field in subscribers:
            present_mask = subscribers[self.field].notna().to_numpy(dtype=bool)
            suppressed_mask[present_mask] = self.build_digest_mask(
                compute_identities(subscribers[self.field][present_mask], self.field)
            )
        return suppressed_mask

    def build_digest_mask(self, digests: Digests) -> Mask:
        """Return the mask of the digests (S16, of the list's field) that are on the list."""
        return _build_member_mask(self._digests, digests)


class InactiveIdentities:
    """The identities (S16 digests) that are inactive in a base of the service's list, or in rows of the run.

    `reactivated` are inactive identities that the run creates as active, because the job does not suppress inactive
    people.
    """

    __slots__ = ("_sorted_digests", "_unsorted_digests", "reactivated")

    def __init__(self) -> None:
        self._sorted_digests: Digests = join_digests((), IDENTITY_BYTES)  # sorted, without duplicates
        self._unsorted_digests = bytearray()  # digests that are not in `_sorted_digests` yet
        self.reactivated: set[bytes] = set()

    def add(self, identity: bytes) -> None:
        """Add an inactive identity."""
        self._unsorted_digests += identity

    def build_digest_mask(self, digests: Digests) -> Mask:
        """Return the mask of the digests that were added."""
        if self._unsorted_digests:
            added_digests = np.frombuffer(bytes(self._unsorted_digests), dtype=self._sorted_digests.dtype)
            self._sorted_digests = np.unique(np.concatenate([self._sorted_digests, added_digests]))
            self._unsorted_digests.clear()
        return _build_member_mask(self._sorted_digests, digests)


def _build_member_mask(sorted_digests: Digests, digests: Digests) -> Mask:
    """Return the mask of the `digests` that are in the array `sorted_digests`."""
    indices = np.searchsorted(sorted_digests, digests)
    in_range_mask = indices < len(sorted_digests)
    member_mask = np.zeros(len(digests), dtype=bool)
    member_mask[in_range_mask] = sorted_digests[indices[in_range_mask]] == digests[in_range_mask]
    return member_mask
