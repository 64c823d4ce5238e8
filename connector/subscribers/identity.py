"""Digests of identities and rows, the identities that a run has read, and the spellings of an identity.

The digest of an identity has 16 bytes. The digest of all values that a row would send (its fingerprint) has 8 bytes.
The ledger stores no addresses, so a stranger who reads the ledger can only recognise people whom the stranger knows.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connector.errors import ConfigurationError
from connector.fields import BY_NAME, SENT_FIELDS, Kind, normalise_email, normalise_identity
from connector.texts import count

if TYPE_CHECKING:
    import pandas as pd


IDENTITY_BYTES = 16  # 128 bits: among 10 million identities a chance collision is 1 in 10^24
FINGERPRINT_BYTES = 8  # compared only with one earlier version of the same person
FINGERPRINT_FORMAT = b"fingerprint-1"

_SPACE = "".join(chr(code) for code in range(128) if chr(code).isspace())  # the ASCII characters that str.strip removes

Digests = npt.NDArray[np.bytes_]
"""An array of dtype S16 or S8. Get single digests by `split_digests`, because NumPy's `tolist` drops trailing NULs."""


def digest_identity(field: str, value: str) -> bytes:
    """Return the digest of the normal form of one identity; `field` is email or client_user_id."""
    normal = normalise_identity(field, value).encode(errors="surrogatepass")
    return blake2b(normal, digest_size=IDENTITY_BYTES, person=field.encode()).digest()


def compute_identities(values: "pd.Series", field: str) -> Digests:
    """Return the digests (S16) of a column of identities (texts). No value may be missing."""
    texts = pa.chunked_array(pa.array(values, from_pandas=True))
    trimmed = pc.ascii_trim(texts, characters=_SPACE)  # nearly all identities are ASCII: those are normalised at once
    normal = (pc.ascii_lower(trimmed) if field == "email" else trimmed).cast(pa.binary()).to_pylist()
    for index in np.flatnonzero(~pc.string_is_ascii(texts).to_numpy()).tolist():
        normal[index] = normalise_identity(field, texts[index].as_py()).encode()
    return _digest_all(normal, IDENTITY_BYTES, field.encode())


def compute_fingerprints(subscribers: "pd.DataFrame", identity: str) -> Digests:
    """Return the digest (S8) of all values that each row of a typed frame would send.

    The base and the field `identity` are left out: fingerprints are compared only within one base and identity, and
    another spelling of an address is no change. Each value is written as `name:length:value`, so that different rows
    have different texts.
    """
    written_fields = [field for field in SENT_FIELDS if field.name in subscribers and field.name != identity]
    parts = [_write_column(field.name, subscribers[field.name], field.kind) for field in written_fields]
    empty = pa.chunked_array([pa.array([b""] * len(subscribers), pa.binary())])
    written = reduce(lambda left, right: pc.binary_join_element_wise(left, right, b""), parts, empty)
    return _digest_all(written.to_pylist(), FINGERPRINT_BYTES, FINGERPRINT_FORMAT)


def compute_field_digests(subscribers: "pd.DataFrame", names: Iterable[str]) -> "npt.NDArray[np.bytes_]":
    """Return the digest of each value: a row for each subscriber, and a column for each of the fields `names`.

    A field that the frame lacks has the digest of a missing value.
    """
    columns = []
    for name in names:
        if name in subscribers:
            written = _write_column(name, subscribers[name], BY_NAME[name].kind).to_pylist()
        else:
            written = [b""] * len(subscribers)
        columns.append(_digest_all(written, FINGERPRINT_BYTES, FINGERPRINT_FORMAT))
    return np.stack(columns, axis=1)


def _digest_all(texts: Iterable[bytes], size: int, person: bytes) -> Digests:
    """Return the digests of many texts. A copy of an empty hash state takes two thirds of the time of a new state."""
    copy_empty, digests = blake2b(digest_size=size, person=person).copy, []
    for text in texts:
        state = copy_empty()
        state.update(text)
        digests.append(state.digest())
    return join_digests(digests, size)


def separate_digests(digests: Digests, groups: Digests) -> Digests:
    """Return each digest (S16) combined with the digest of its group: equal digests in two groups become different."""
    size = digests.dtype.itemsize
    left, right = (np.ascontiguousarray(array).view(np.uint8).reshape(-1, size) for array in (digests, groups))
    return np.ascontiguousarray(left ^ right).reshape(-1).view(digests.dtype)


def digest_text(text: str) -> bytes:
    """Return the digest (16 bytes) of any text."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=IDENTITY_BYTES).digest()


def join_digests(digests: Iterable[bytes], size: int) -> Digests:
    """Return an array of single digests, which have `size` bytes each."""
    return np.frombuffer(b"".join(digests), dtype=f"S{size}")


def split_digests(digests: Digests) -> list[bytes]:
    """Return the single digests of an array, each with all its bytes."""
    size = digests.dtype.itemsize
    whole = np.ascontiguousarray(digests).tobytes()
    return [whole[start : start + size] for start in range(0, len(whole), size)]


def _write_column(name: str, column: "pd.Series", kind: Kind) -> pa.ChunkedArray:
    """Return the column as bytes: `name:length:value`, or nothing for a missing value, which would not be sent."""
    values = pa.chunked_array(pa.array(column, from_pandas=True))
    if kind is Kind.TAGS:  # each tag has its length before it, because a tag may contain any separator
        rows = [None if row is None else "".join(f"{len(tag)}:{tag}" for tag in row) for row in values.to_pylist()]
        values = pa.chunked_array([pa.array(rows, pa.string())])
    text = values.cast(pa.string()).cast(pa.binary())
    length = pc.binary_length(text).cast(pa.string()).cast(pa.binary())
    return pc.fill_null(pc.binary_join_element_wise(name.encode(), length, text, b":"), b"")


# The identities that a run has read, in 16 bytes each: a set of Python objects would take ten times as much memory. An
# identity keeps 12 bytes of its digest, which two of ten million subscribers share once in 10^15 runs. A fingerprint
# keeps 4 bytes, so one of four thousand million different repeats counts as equal.

_IDENTITY, _FINGERPRINT = np.dtype("S12"), np.dtype("S4")
_GROWTH = 4  # arrays are merged if one is less than four times as long: this keeps few arrays and makes few copies
_MAX_MERGED = 1 << 19  # identities; a longer array is not copied, which would take much memory

Mask = npt.NDArray[np.bool_]


class SeenIdentities:
    """The identities that were read, with the fingerprints of their used rows, as a few sorted arrays.

    The first row of an identity is used, unless only a later row says that the subscriber is inactive.
    """

    def __init__(self) -> None:
        self._arrays: list[_Known] = []

    def add(self, identities: Digests, fingerprints: Digests, is_inactive: Mask) -> tuple[Mask, Mask]:
        """Add the rows of one chunk in their order; `is_inactive` is the mask of rows that say inactive.

        Return two masks: the rows that are not used, because another row of the identity is used, and the rows that
        differ from the row that was used before.
        """
        identities, fingerprints = identities.astype(_IDENTITY), fingerprints.astype(_FINGERPRINT)
        order = np.argsort(identities, kind="stable")
        ordered, inactive = identities[order], is_inactive[order]
        is_first = np.ones(len(ordered), dtype=bool)
        is_first[1:] = ordered[1:] != ordered[:-1]
        begins = np.flatnonzero(is_first)
        group = np.cumsum(is_first) - 1
        chunk = _Known(ordered[is_first], fingerprints[order[is_first]], inactive[is_first])
        is_known = np.zeros(len(begins), dtype=bool)
        for known in self._arrays:
            index, is_here = known.find(chunk.identities)
            is_known |= is_here
            chunk.fingerprints[is_here] = known.fingerprints[index[is_here]]
            chunk.is_inactive[is_here] = known.is_inactive[index[is_here]]
        is_repeat = ~is_first | is_known[group]
        is_different = is_repeat & (fingerprints[order] != chunk.fingerprints[group])
        overruling = np.flatnonzero(inactive & is_repeat & ~chunk.is_inactive[group])
        overruled, firsts = np.unique(group[overruling], return_index=True)
        overruling = overruling[firsts]  # the first such row of each identity
        chunk.fingerprints[overruled], chunk.is_inactive[overruled] = fingerprints[order[overruling]], True
        for known in self._arrays if len(overruled) else ():
            known.replace(chunk, overruled)
        self._append(chunk.select(~is_known))
        is_repeat[overruling] = False
        masks = np.empty((2, len(order)), dtype=bool)
        masks[:, order] = is_repeat, is_different
        return masks[0], masks[1]

    def _append(self, known: "_Known") -> None:
        while self._arrays and len(self._arrays[-1].identities) < min(_GROWTH * len(known.identities), _MAX_MERGED):
            known = self._arrays.pop().merge(known)
        if len(known.identities):
            self._arrays.append(known)


@dataclass(frozen=True, slots=True)
class _Known:
    """Sorted identities, with the fingerprint of each used row, and whether that row says inactive."""

    identities: Digests
    fingerprints: Digests
    is_inactive: Mask

    def find(self, identities: Digests) -> tuple[npt.NDArray[np.intp], Mask]:
        """Return an index for each of these identities, and the mask of the identities that are in this array."""
        index = np.minimum(np.searchsorted(self.identities, identities), len(self.identities) - 1)
        return index, self.identities[index] == identities

    def replace(self, other: "_Known", indices: npt.NDArray[np.intp]) -> None:
        """Replace rows by inactive rows of `other` at these indices, for identities that are in this array."""
        index, is_here = self.find(other.identities[indices])
        self.fingerprints[index[is_here]] = other.fingerprints[indices[is_here]]
        self.is_inactive[index[is_here]] = True

    def select(self, mask: Mask) -> "_Known":
        """Return the identities of a mask."""
        return _Known(self.identities[mask], self.fingerprints[mask], self.is_inactive[mask])

    def merge(self, other: "_Known") -> "_Known":
        """Return the sorted identities of both."""
        identities = np.concatenate([self.identities, other.identities])
        order = np.argsort(identities, kind="stable")
        fingerprints = np.concatenate([self.fingerprints, other.fingerprints])
        is_inactive = np.concatenate([self.is_inactive, other.is_inactive])
        return _Known(identities[order], fingerprints[order], is_inactive[order])


# The spellings of an identity in look-ups, and the class of each spelling. A service's filter may fail for one class of
# texts only (capitals, a plus that is decoded as a blank). So a proof for one spelling holds for its class only.

_PLAIN = {
    "email": re.compile(r"[a-z0-9._-]+@(?!xn--)[a-z0-9-]+(\.(?!xn--)[a-z0-9-]+)*"),
    "client_user_id": re.compile(r"(?!0)[0-9]*[a-z._-][a-z0-9._-]*"),
}
_PLAIN_CHARACTERS = frozenset("._-")
_LARGEST_16_BITS = "\uffff"  # characters beyond need four bytes in UTF-8, which some databases cannot store

CAPITALS = frozenset({"local: capitals", "domain: capitals"})
"""The traits of an email with capitals."""


@dataclass(frozen=True, slots=True)
class SpellingClass:
    """A class of texts of one field that a filter should treat alike. Plain texts have no `traits`."""

    field: str
    traits: frozenset[str]


def build_spellings(field: str, value: str) -> tuple[str, ...]:
    """Return the different texts to look up: as sent, with a normalised domain, and normalised (architecture 4.5).

    `field` is email or client_user_id, and `value` is the identity as it was sent.
    """
    if field != "email":
        return tuple(dict.fromkeys((value, normalise_identity(field, value))))
    normal = normalise_email(value)
    local, at, _ = value.rpartition("@")
    half = f"{local}@{normal.rpartition('@')[2]}" if at else normal
    return tuple(dict.fromkeys((value, half, normal)))


def classify(field: str, text: str) -> SpellingClass:
    """Return the class of a text that is looked up in this field."""
    if is_plain(field, text):
        return SpellingClass(field, frozenset())
    if field != "email":
        return SpellingClass(field, describe_spelling(text))
    local, at, domain = text.rpartition("@")
    if not at:
        return SpellingClass(field, frozenset(("no @", *_find_traits(text))))
    parts = (("local", local), ("domain", domain))
    traits = {f"{name}: {trait}" for name, part in parts for trait in _find_traits(part)}
    if any(label.startswith("xn--") for label in domain.lower().split(".")):
        traits.add("domain: A-label")
    return SpellingClass(field, frozenset(traits))


def is_plain(field: str, text: str) -> bool:
    """Return whether the class of a text has no traits. This test is fast, and nearly all texts pass it."""
    return _PLAIN[field].fullmatch(text) is not None


def has_spellings_by_case_alone(field: str, value: str) -> bool:
    """Return whether all spellings of this identity differ only in upper and lower case.

    A letter beyond ASCII, and a domain with such letters, has several forms that a service may store.
    """
    if field != "email":
        return True
    normal = normalise_email(value)
    return normal.isascii() and "domain: A-label" not in classify("email", normal).traits


def describe_spelling(text: str) -> frozenset[str]:
    """Return the traits of a text that is not an email; a plain text has none."""
    traits = set(_find_traits(text))
    if text.isascii() and text.isdigit():
        traits.add("digits only")
    if text.startswith("0"):
        traits.add("leading zero")
    return frozenset(traits)


def _find_traits(text: str) -> Iterator[str]:
    if text != text.lower():
        yield "capitals"
    if not text.isascii():
        yield "beyond ASCII"
        if unicodedata.normalize("NFC", text) != text:
            yield "not composed"
        if max(text) > _LARGEST_16_BITS:
            yield "beyond 16 bits"
    yield from {sign for sign in text if sign.isascii() and not sign.isalnum()} - _PLAIN_CHARACTERS


# The suppression list


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

    def build_mask(self, subscribers: "pd.DataFrame") -> Mask:
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
