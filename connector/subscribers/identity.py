"""Digests of identities and rows, and sets of identities: the identities that a run has read, the suppression list of a
job, and the inactive identities.

The digest of an identity has 16 bytes. The fingerprint of a row is a digest of all values that the row would send, and
has 8 bytes. The ledger stores digests instead of addresses. So a reader of the ledger can find only people whose
address the reader already knows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connector.errors import ConfigurationError
from connector.fields import FIELD_BY_NAME, SENT_FIELDS, FieldKind, normalise_identity
from connector.texts import count

if TYPE_CHECKING:
    import pandas as pd


IDENTITY_BYTES = 16  # with 128 bits, the chance that two of 10 million identities collide is 1 in 10^24
FINGERPRINT_BYTES = 8  # enough bytes: a fingerprint is compared only with earlier fingerprints of its subscriber
FINGERPRINT_FORMAT = b"fingerprint-1"  # if this text changes, each row is compared with the service once

# All ASCII characters that str.strip removes.
_ASCII_WHITE_SPACE = "".join(chr(code) for code in range(128) if chr(code).isspace())

Digests = npt.NDArray[np.bytes_]
"""An array of dtype S16 or S8. Get single digests by `split_digests`, because NumPy's `tolist` drops trailing NULs."""

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]


def digest_identity(field: str, identity_text: str) -> bytes:
    """Return the digest of the normal form of one identity. `field` is email or client_user_id."""
    normal_form = normalise_identity(field, identity_text).encode(errors="surrogatepass")
    return blake2b(normal_form, digest_size=IDENTITY_BYTES, person=field.encode()).digest()


def compute_identities(identity_texts: "pd.Series", field: str) -> Digests:
    """Return the digests (S16) of a column of identities (texts). No value may be missing."""
    texts = pa.chunked_array(pa.array(identity_texts, from_pandas=True))
    # First, all identities are normalised as one column by rules for ASCII. Identities with other characters are few,
    # and are normalised again below.
    trimmed_texts = pc.ascii_trim(texts, characters=_ASCII_WHITE_SPACE)
    normal_forms = (pc.ascii_lower(trimmed_texts) if field == "email" else trimmed_texts).cast(pa.binary()).to_pylist()
    for index in np.flatnonzero(~pc.string_is_ascii(texts).to_numpy()).tolist():
        normal_forms[index] = normalise_identity(field, texts[index].as_py()).encode()
    return _digest_texts(normal_forms, IDENTITY_BYTES, field.encode())


def compute_fingerprints(subscribers: "pd.DataFrame", identity_field: str) -> Digests:
    """Return the digest (S8) of all values that each row of a typed frame would send.

    The base and the `identity_field` are left out, because fingerprints are compared only within one base and identity.
    So another spelling of the same identity is not a change. Each value is written as `name:length:value`, so that
    different rows have different texts.
    """
    fingerprinted_fields = [
        field for field in SENT_FIELDS if field.name in subscribers and field.name != identity_field
    ]
    column_texts = [_format_column(field.name, subscribers[field.name], field.kind) for field in fingerprinted_fields]
    empty_texts = pa.chunked_array([pa.array([b""] * len(subscribers), pa.binary())])
    texts = pc.binary_join_element_wise(empty_texts, *column_texts, b"")
    return _digest_texts(texts.to_pylist(), FINGERPRINT_BYTES, FINGERPRINT_FORMAT)


def compute_field_digests(subscribers: "pd.DataFrame", field_names: Iterable[str]) -> "npt.NDArray[np.bytes_]":
    """Return the digest of each value: a row for each subscriber, and a column for each of the fields
    `field_names`.

    A field that the frame lacks has the digest of a missing value.
    """
    digest_columns = []
    for name in field_names:
        if name in subscribers:
            texts = _format_column(name, subscribers[name], FIELD_BY_NAME[name].kind).to_pylist()
        else:
            texts = [b""] * len(subscribers)
        digest_columns.append(_digest_texts(texts, FINGERPRINT_BYTES, FINGERPRINT_FORMAT))
    return np.stack(digest_columns, axis=1)


def _digest_texts(texts: Iterable[bytes], digest_size: int, purpose: bytes) -> Digests:
    """Return the digests of many texts. Each hash begins as a copy of an empty state, which takes two thirds of the
    time of a new state."""
    copy_empty_state, digests = blake2b(digest_size=digest_size, person=purpose).copy, []
    for text in texts:
        hash_state = copy_empty_state()
        hash_state.update(text)
        digests.append(hash_state.digest())
    return join_digests(digests, digest_size)


def combine_digests(digests: Digests, group_digests: Digests) -> Digests:
    """Return each digest (S16) combined with the digest of its group. Equal digests of different groups have different
    results."""
    numbers, group_numbers = (np.ascontiguousarray(array).view(np.uint64) for array in (digests, group_digests))
    return (numbers ^ group_numbers).view(digests.dtype)


def digest_text(text: str) -> bytes:
    """Return the digest (16 bytes) of any text."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=IDENTITY_BYTES).digest()


def join_digests(digests: Iterable[bytes], size: int) -> Digests:
    """Return these digests as one array. Each digest has `size` bytes."""
    return np.frombuffer(b"".join(digests), dtype=f"S{size}")


def split_digests(digests: Digests) -> list[bytes]:
    """Return the single digests of an array. Each digest has all its bytes, also trailing NULs."""
    size = digests.dtype.itemsize
    all_bytes = np.ascontiguousarray(digests).tobytes()
    return [all_bytes[start : start + size] for start in range(0, len(all_bytes), size)]


def _format_column(name: str, column: "pd.Series", kind: FieldKind) -> pa.ChunkedArray:
    """Return the column as bytes: `name:length:value`, or empty bytes for a missing value, which would not be sent."""
    values = pa.chunked_array(pa.array(column, from_pandas=True))
    if kind is FieldKind.TAGS:  # each tag has its length before it, because a tag may contain any separator
        tag_texts = [
            None if tags is None else "".join(f"{len(tag)}:{tag}" for tag in tags) for tags in values.to_pylist()
        ]
        values = pa.chunked_array([pa.array(tag_texts, pa.string())])
    value_bytes = values.cast(pa.string()).cast(pa.binary())
    value_lengths = pc.binary_length(value_bytes).cast(pa.string()).cast(pa.binary())
    return pc.fill_null(pc.binary_join_element_wise(name.encode(), value_lengths, value_bytes, b":"), b"")


# The identities that a run has read. Each identity takes 16 bytes in two arrays: the first 12 bytes of its digest, and
# the first 4 bytes of the fingerprint. A set of Python objects would take ten times as much memory.
#
# In one of 10^15 runs with ten million subscribers, two subscribers have the same 12 bytes.
# Of 4 * 10^9 rows that differ from an earlier row, one row has the same 4 bytes and counts as equal.

_IDENTITY_PREFIX_TYPE, _FINGERPRINT_PREFIX_TYPE = np.dtype("S12"), np.dtype("S4")
# A new array is merged with the last array if the last length divided by the new length is below this ratio.
# So the number of arrays stays small, and each identity is copied only a few times.
_MIN_LENGTH_RATIO_OF_LAST_TO_NEW_ARRAY = 4
_MAX_MERGED_IDENTITIES = 1 << 19  # identities; a longer array is not merged, because the copy would take much memory


class SeenIdentities:
    """The identities that a run has read, with the fingerprint of the used row of each identity, in a few sorted
    arrays.

    For each identity, the first row that says inactive is used. If no row of the identity says inactive, the first row
    is used.
    """

    def __init__(self) -> None:
        self._arrays: list[_KnownIdentities] = []

    def add(self, identities: Digests, fingerprints: Digests, inactive_mask: Mask) -> tuple[Mask, Mask]:
        """Add the rows of one chunk in their order. `inactive_mask` is the mask of rows that say that the subscriber is
        inactive.

        Return two masks. The first mask has the rows that are not used, because another row of the identity is used.
        The second mask has the rows whose fingerprint differs from the known fingerprint of their identity.
        """
        identities = identities.astype(_IDENTITY_PREFIX_TYPE)
        fingerprints = fingerprints.astype(_FINGERPRINT_PREFIX_TYPE)
        sort_order = np.argsort(identities, kind="stable")
        sorted_identities, sorted_inactive_mask = identities[sort_order], inactive_mask[sort_order]
        group_start_mask = np.ones(len(sorted_identities), dtype=bool)
        group_start_mask[1:] = sorted_identities[1:] != sorted_identities[:-1]
        group_starts = np.flatnonzero(group_start_mask)
        group_indices = np.cumsum(group_start_mask) - 1
        chunk_identities = _KnownIdentities(
            sorted_identities[group_start_mask],
            fingerprints[sort_order[group_start_mask]],
            sorted_inactive_mask[group_start_mask],
        )
        known_mask = np.zeros(len(group_starts), dtype=bool)
        for known_identities in self._arrays:
            known_indices, found_mask = known_identities.find(chunk_identities.identities)
            known_mask |= found_mask
            chunk_identities.fingerprints[found_mask] = known_identities.fingerprints[known_indices[found_mask]]
            chunk_identities.inactive_mask[found_mask] = known_identities.inactive_mask[known_indices[found_mask]]
        repeat_mask = ~group_start_mask | known_mask[group_indices]
        different_row_mask = repeat_mask & (fingerprints[sort_order] != chunk_identities.fingerprints[group_indices])
        overruling_indices = np.flatnonzero(
            sorted_inactive_mask & repeat_mask & ~chunk_identities.inactive_mask[group_indices]
        )
        overruled_groups, first_indices = np.unique(group_indices[overruling_indices], return_index=True)
        overruling_indices = overruling_indices[first_indices]  # only the first overruling row of each identity
        chunk_identities.fingerprints[overruled_groups] = fingerprints[sort_order[overruling_indices]]
        chunk_identities.inactive_mask[overruled_groups] = True
        for known_identities in self._arrays if len(overruled_groups) else ():
            known_identities.replace(chunk_identities, overruled_groups)
        self._append_identities(chunk_identities.select(~known_mask))
        repeat_mask[overruling_indices] = False
        masks = np.empty((2, len(sort_order)), dtype=bool)
        masks[:, sort_order] = repeat_mask, different_row_mask
        return masks[0], masks[1]

    def _append_identities(self, new_identities: "_KnownIdentities") -> None:
        while self._arrays and len(self._arrays[-1].identities) < min(
            _MIN_LENGTH_RATIO_OF_LAST_TO_NEW_ARRAY * len(new_identities.identities), _MAX_MERGED_IDENTITIES
        ):
            new_identities = self._arrays.pop().merge(new_identities)
        if len(new_identities.identities):
            self._arrays.append(new_identities)


@dataclass(frozen=True, slots=True)
class _KnownIdentities:
    """Sorted identities. For each identity: the fingerprint of the row that the run uses, and whether this row says
    that the subscriber is inactive."""

    identities: Digests
    fingerprints: Digests
    inactive_mask: Mask

    def find(self, identities: Digests) -> tuple[npt.NDArray[np.intp], Mask]:
        """Return two arrays for `identities`: the index of each identity in this object, and a mask of the identities
        that this object has. If this object does not have an identity, its index has no meaning."""
        indices = np.minimum(np.searchsorted(self.identities, identities), len(self.identities) - 1)
        return indices, self.identities[indices] == identities

    def replace(self, other: "_KnownIdentities", other_indices: npt.NDArray[np.intp]) -> None:
        """Replace the used rows of some identities by the rows of `other` at `other_indices`. These rows say that the
        subscriber is inactive. Skip the identities that this object does not have."""
        own_indices, found_mask = self.find(other.identities[other_indices])
        self.fingerprints[own_indices[found_mask]] = other.fingerprints[other_indices[found_mask]]
        self.inactive_mask[own_indices[found_mask]] = True

    def select(self, mask: Mask) -> "_KnownIdentities":
        """Return the identities that the mask selects."""
        return _KnownIdentities(self.identities[mask], self.fingerprints[mask], self.inactive_mask[mask])

    def merge(self, other: "_KnownIdentities") -> "_KnownIdentities":
        """Return the identities of both objects, sorted."""
        identities = np.concatenate([self.identities, other.identities])
        sort_order = np.argsort(identities, kind="stable")
        fingerprints = np.concatenate([self.fingerprints, other.fingerprints])
        inactive_mask = np.concatenate([self.inactive_mask, other.inactive_mask])
        return _KnownIdentities(identities[sort_order], fingerprints[sort_order], inactive_mask[sort_order])


# Identities that a load must not create as active

_MIN_COMPARED_SIZE = 10  # identities; if the last run had a shorter suppression list, the sizes are not compared


class Suppression:
    """The suppression list of `job`: a set of identities of `field` (email or client_user_id)."""

    __slots__ = ("_digests", "field", "job", "max_shrink", "name")

    def __init__(self, job: str, field: str, digests: Digests, *, name: str = "", max_shrink: float = 1.0) -> None:
        """`digests` are the digests (S16) of the identities, in any order and with any duplicates. `name` is the path
        of the list, and `max_shrink` the share by which the list may shrink between two runs."""
        self.job, self.field, self.name, self.max_shrink = job, field, name, max_shrink
        self._digests: Digests = np.unique(digests)  # sorted, without duplicates

    @property
    def size(self) -> int:
        """The number of identities on the suppression list."""
        return len(self._digests)

    def has_same_entries(self, other: "Suppression") -> bool:
        """Return whether the other list has the same field and identities."""
        return self.field == other.field and np.array_equal(self._digests, other._digests)

    def refuse_shrunk_list(self, previous_size: int | None) -> None:
        """Raise ConfigurationError if the list is smaller than `previous_size` by the share `max_shrink` or more. With
        an incomplete list, the run would create or mail suppressed people. If `previous_size` is below 10, the sizes
        are not compared."""
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
        """Return whether a subscriber with these values (by field name) is on the suppression list."""
        identity_text = values.get(self.field)
        if not isinstance(identity_text, str):
            return False
        digests = join_digests([digest_identity(self.field, identity_text)], IDENTITY_BYTES)
        return bool(self.build_digest_mask(digests)[0])

    def build_row_mask(self, subscribers: "pd.DataFrame") -> Mask:
        """Return a mask: true for each row of a typed frame that is on the suppression list."""
        suppressed_mask = np.zeros(len(subscribers), dtype=bool)
        if self.field in subscribers:
            present_mask = subscribers[self.field].notna().to_numpy(dtype=bool)
            suppressed_mask[present_mask] = self.build_digest_mask(
                compute_identities(subscribers[self.field][present_mask], self.field)
            )
        return suppressed_mask

    def build_digest_mask(self, digests: Digests) -> Mask:
        """Return a mask: true for each digest (S16) that is on the suppression list. The digests must be digests of
        values of the field `self.field`."""
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
        """Return a mask: true for each of `digests` that was added."""
        if self._unsorted_digests:
            added_digests = np.frombuffer(bytes(self._unsorted_digests), dtype=self._sorted_digests.dtype)
            self._sorted_digests = np.unique(np.concatenate([self._sorted_digests, added_digests]))
            self._unsorted_digests.clear()
        return _build_member_mask(self._sorted_digests, digests)


def _build_member_mask(sorted_digests: Digests, digests: Digests) -> Mask:
    if not len(sorted_digests):
        return np.zeros(len(digests), dtype=bool)
    indices = np.minimum(np.searchsorted(sorted_digests, digests), len(sorted_digests) - 1)
    member_mask: Mask = sorted_digests[indices] == digests
    return member_mask
