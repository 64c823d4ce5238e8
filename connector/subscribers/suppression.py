"""Which identities a job must not create: a list of digests, 16 bytes each, and those that are inactive in the service.

Subscribers are compared under the normal form of the list's own field; a row without a value of that field is not on
the list.
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

_FEWEST_JUDGED = 10


class Suppression:
    """The suppression list of `job`; `field` (email or client_user_id) is what its entries are."""

    __slots__ = ("_digests", "field", "job", "max_shrink", "name")

    def __init__(
        self, job: str, field: str, digests: Digests | Iterable[bytes], *, name: str = "", max_shrink: float = 1.0
    ) -> None:
        """`digests` of the entries in any order, repeats allowed: S16 arrays joined into one, or single ones. `name`
        says where the list is, and `max_shrink` is the share by which the list may become smaller between two runs."""
        if not isinstance(digests, np.ndarray):
            digests = join_digests(digests, IDENTITY_BYTES)
        self.job = job
        self.field = field
        self.name, self.max_shrink = name, max_shrink
        self._digests: Digests = np.unique(digests)  # sorted, each once

    @property
    def size(self) -> int:
        """How many identities are on it."""
        return len(self._digests)

    def has_same_entries(self, other: "Suppression") -> bool:
        """Return whether the other list names the same subscribers."""
        return self.field == other.field and np.array_equal(self._digests, other._digests)

    def refuse_shrunk(self, previous_size: int | None) -> None:
        """Raise ConfigurationError if the list is smaller than `previous_size` by `max_shrink` or more: half of a list
        lets the other half be created or mailed. Lists with fewer than 10 entries are not judged."""
        if previous_size is None or previous_size < _FEWEST_JUDGED:
            return
        shrink = 1 - self.size / previous_size
        if shrink > 0 and shrink >= self.max_shrink:
            raise ConfigurationError(
                f"the suppression list {self.name} names {count(self.size, 'subscriber')}, {shrink:.1%} fewer than in "
                f"the last run ({previous_size:,}). Nothing was sent. See whether the list is whole. If it is, set "
                f"guard.max_shrink above {shrink:.1%} for one run"
            )

    def holds(self, values: Mapping[str, object]) -> bool:
        """Return whether a subscriber with these values (by field name) is on the list."""
        value = values.get(self.field)
        if not isinstance(value, str):
            return False
        return bool(self.find(join_digests([digest_identity(self.field, value)], IDENTITY_BYTES))[0])

    def build_mask(self, subscribers: pd.DataFrame) -> Mask:
        """Return which rows of a frame of typed columns are on the list, in the frame's order."""
        mask = np.zeros(len(subscribers), dtype=bool)
        if self.field in subscribers:
            is_given = subscribers[self.field].notna().to_numpy(dtype=bool)
            mask[is_given] = self.find(compute_identities(subscribers[self.field][is_given], self.field))
        return mask

    def find(self, digests: Digests) -> Mask:
        """Return which of these digests (S16, of the list's own field) are on the list."""
        return _find_among(self._digests, digests)


class InactiveIdentities:
    """The identities (S16 digests) that this run knows as inactive: by the service's list, in any base, or by rows.

    `reactivated` are those of them that rows of the run create as active, where the job does not keep them back.
    `unclear` are the identities that the list shows without an IsActive that can be read.
    """

    __slots__ = ("_known", "_noted", "reactivated", "unclear")

    def __init__(self) -> None:
        self.unclear: InactiveIdentities | None = None
        self._known: Digests = join_digests((), IDENTITY_BYTES)  # sorted, each once
        self._noted = bytearray()  # since then
        self.reactivated: set[bytes] = set()

    def note(self, identity: bytes) -> None:
        """Note an inactive identity."""
        self._noted += identity

    def note_unclear(self, identity: bytes) -> None:
        """Note an identity of which the list does not show whether it is active."""
        if self.unclear is None:
            self.unclear = InactiveIdentities()
        self.unclear.note(identity)

    def update(self, other: "InactiveIdentities") -> None:
        """Note all identities of another object."""
        self._noted += other._known.tobytes() + bytes(other._noted)

    def find(self, digests: Digests) -> Mask:
        """Return which of these digests have been noted."""
        if self._noted:
            noted = np.frombuffer(bytes(self._noted), dtype=self._known.dtype)
            self._known = np.unique(np.concatenate([self._known, noted]))
            self._noted.clear()
        return _find_among(self._known, digests)


def _find_among(known: Digests, digests: Digests) -> Mask:
    """Return which of `digests` are among the `known` ones, which are sorted."""
    index = np.searchsorted(known, digests)
    is_inside = index < len(known)
    found = np.zeros(len(digests), dtype=bool)
    found[is_inside] = known[index[is_inside]] == digests[is_inside]
    return found
