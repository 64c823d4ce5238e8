"""The digests by which the ledger knows subscribers, which of them a run has met, and how an identity is spelt.

An identity has a digest of 16 bytes, all that a row would send one of 8 bytes (the fingerprint). No address is stored:
a ledger that a stranger reads names no subscriber that the stranger does not already know.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connector.fields import BY_NAME, SENT, Kind, normalise_email, normalise_identity

if TYPE_CHECKING:
    import pandas as pd

IDENTITY_BYTES = 16  # 128 bits: among 10 million identities a chance collision is 1 in 10^24
FINGERPRINT_BYTES = 8  # compared only with one earlier version of the same person
FINGERPRINT_FORMAT = b"fingerprint-1"

_SPACE = "".join(chr(code) for code in range(128) if chr(code).isspace())  # what str.strip takes, as far as it is ASCII

Digests = npt.NDArray[np.bytes_]
"""An array of dtype S16 or S8. Take single digests out by `split_digests`: NumPy's own `tolist` drops trailing NULs."""


def digest_identity(field: str, value: str) -> bytes:
    """Return the digest of one identity, under the normal form of its `field` (email or client_user_id)."""
    normal = normalise_identity(field, value).encode(errors="surrogatepass")
    return blake2b(normal, digest_size=IDENTITY_BYTES, person=field.encode()).digest()


def compute_identities(values: "pd.Series", field: str) -> Digests:
    """Return the digests of a column of identities: text in, S16 out; no value may be missing."""
    texts = pa.chunked_array(pa.array(values, from_pandas=True))
    trimmed = pc.ascii_trim(texts, characters=_SPACE)  # nearly all identities are ASCII: those are normalised at once
    normal = (pc.ascii_lower(trimmed) if field == "email" else trimmed).cast(pa.binary()).to_pylist()
    for index in np.flatnonzero(~pc.string_is_ascii(texts).to_numpy()).tolist():
        normal[index] = normalise_identity(field, texts[index].as_py()).encode()
    return _digest_all(normal, IDENTITY_BYTES, field.encode())


def compute_fingerprints(subscribers: "pd.DataFrame", identity: str) -> Digests:
    """Return a digest of all that each row would send: a frame of typed columns in, S8 out.

    Base and `identity` (a field's name) are left out: a fingerprint is only ever compared under the same two, and how
    an address is spelt is no change. Built column by column as `name:length:value`, so that no two rows are written
    alike unless they are.
    """
    written_fields = [field for field in SENT if field.name in subscribers and field.name != identity]
    parts = [_write_column(field.name, subscribers[field.name], field.kind) for field in written_fields]
    empty = pa.chunked_array([pa.array([b""] * len(subscribers), pa.binary())])
    written = reduce(lambda left, right: pc.binary_join_element_wise(left, right, b""), parts, empty)
    return _digest_all(written.to_pylist(), FINGERPRINT_BYTES, FINGERPRINT_FORMAT)


def compute_field_digests(subscribers: "pd.DataFrame", names: Iterable[str]) -> "npt.NDArray[np.bytes_]":
    """Return a digest of each value that would be sent: a row for each subscriber, a column for each of these fields.

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
    """Return the digests of many texts. To copy an empty state takes two thirds of the time that making one takes."""
    copy_empty, digests = blake2b(digest_size=size, person=person).copy, []
    for text in texts:
        state = copy_empty()
        state.update(text)
        digests.append(state.digest())
    return join_digests(digests, size)


def separate_digests(digests: Digests, groups: Digests) -> Digests:
    """Return each digest (S16) mixed with its group's: what is equal in one group stays so, and differs in two."""
    size = digests.dtype.itemsize
    left, right = (np.ascontiguousarray(each).view(np.uint8).reshape(-1, size) for each in (digests, groups))
    return np.ascontiguousarray(left ^ right).reshape(-1).view(digests.dtype)


def digest_text(text: str) -> bytes:
    """Return a digest (16 bytes) of any text."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=IDENTITY_BYTES).digest()


def join_digests(digests: Iterable[bytes], size: int) -> Digests:
    """Return single digests of `size` bytes as one array."""
    return np.frombuffer(b"".join(digests), dtype=f"S{size}")


def split_digests(digests: Digests) -> list[bytes]:
    """Return the array's digests one by one, each at its full length."""
    size = digests.dtype.itemsize
    whole = np.ascontiguousarray(digests).tobytes()
    return [whole[start : start + size] for start in range(0, len(whole), size)]


def _write_column(name: str, column: "pd.Series", kind: Kind) -> pa.ChunkedArray:
    """The column as bytes: `name:length:value`, or nothing where the value is missing and would not be sent."""
    values = pa.chunked_array(pa.array(column, from_pandas=True))
    if kind is Kind.TAGS:  # each tag by its length, so that no tag can hold a separator
        rows = [None if row is None else "".join(f"{len(tag)}:{tag}" for tag in row) for row in values.to_pylist()]
        values = pa.chunked_array([pa.array(rows, pa.string())])
    text = values.cast(pa.string()).cast(pa.binary())
    length = pc.binary_length(text).cast(pa.string()).cast(pa.binary())
    return pc.fill_null(pc.binary_join_element_wise(name.encode(), length, text, b":"), b"")


# Which identities a run has met already, in 16 bytes each: a set of Python objects would take ten times that. Of the
# digest of an identity 12 bytes are kept, which two of ten million subscribers share once in 10^15 runs; of a
# fingerprint 4, by which one repeat in four thousand million that says something else is taken to say the same.

_IDENTITY, _FINGERPRINT = np.dtype("S12"), np.dtype("S4")
_GROWTH = 4  # identities are merged with an array that is less than four times as long: few arrays, few copies
_MOST_MERGED = 1 << 19  # a longer array stays as it is, so that no copy takes much memory

Mask = npt.NDArray[np.bool_]


class SeenIdentities:
    """The identities met so far, with the fingerprint of the row that is used for each, as a few sorted arrays.

    The first row of an identity is used, unless a later row says that the subscriber is inactive and the first does
    not.
    """

    def __init__(self) -> None:
        self._kept: list[_Known] = []

    def add(self, identities: Digests, fingerprints: Digests, is_inactive: Mask) -> tuple[Mask, Mask]:
        """Add one chunk, in its order (S16 and S8, of one length; `is_inactive` is true for a row that says inactive).

        Return which rows are not used, because another row of the identity is, and which rows differ from the row
        that was used until then.
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
        for known in self._kept:
            index, is_here = known.find(chunk.identities)
            is_known |= is_here
            chunk.fingerprints[is_here] = known.fingerprints[index[is_here]]
            chunk.is_inactive[is_here] = known.is_inactive[index[is_here]]
        is_repeat = ~is_first | is_known[group]
        is_different = is_repeat & (fingerprints[order] != chunk.fingerprints[group])
        places = np.flatnonzero(inactive & is_repeat & ~chunk.is_inactive[group])
        overruled, firsts = np.unique(group[places], return_index=True)
        places = places[firsts]  # the first of each identity
        chunk.fingerprints[overruled], chunk.is_inactive[overruled] = fingerprints[order[places]], True
        for known in self._kept if len(overruled) else ():
            known.replace(chunk, overruled)
        self._keep(chunk.select(~is_known))
        is_repeat[places] = False
        masks = np.empty((2, len(order)), dtype=bool)
        masks[:, order] = is_repeat, is_different
        return masks[0], masks[1]

    def _keep(self, known: "_Known") -> None:
        while self._kept and len(self._kept[-1].identities) < min(_GROWTH * len(known.identities), _MOST_MERGED):
            known = self._kept.pop().merge(known)
        if len(known.identities):
            self._kept.append(known)


@dataclass(frozen=True, slots=True)
class _Known:
    """Some identities, in order, with the fingerprint of the row that is used and whether that row says inactive."""

    identities: Digests
    fingerprints: Digests
    is_inactive: Mask

    def find(self, identities: Digests) -> tuple[npt.NDArray[np.intp], Mask]:
        """Return the index of each of these identities, and whether it is there."""
        index = np.minimum(np.searchsorted(self.identities, identities), len(self.identities) - 1)
        return index, self.identities[index] == identities

    def replace(self, other: "_Known", chosen: npt.NDArray[np.intp]) -> None:
        """Take over the chosen rows of another for the identities that are here."""
        index, is_here = self.find(other.identities[chosen])
        self.fingerprints[index[is_here]] = other.fingerprints[chosen[is_here]]
        self.is_inactive[index[is_here]] = True

    def select(self, mask: Mask) -> "_Known":
        """Return some of the identities."""
        return _Known(self.identities[mask], self.fingerprints[mask], self.is_inactive[mask])

    def merge(self, other: "_Known") -> "_Known":
        """Return both together, in order."""
        identities = np.concatenate([self.identities, other.identities])
        order = np.argsort(identities, kind="stable")
        fingerprints = np.concatenate([self.fingerprints, other.fingerprints])
        is_inactive = np.concatenate([self.is_inactive, other.is_inactive])
        return _Known(identities[order], fingerprints[order], is_inactive[order])


# How an identity is spelt when it is looked up, and to which class each spelling belongs. A service's filter may fail
# for one class of texts alone (capitals, a plus that it decodes as a blank): what is known of one spelling is known of
# its class, and of no other.

_PLAIN = {
    "email": re.compile(r"[a-z0-9._-]+@(?!xn--)[a-z0-9-]+(\.(?!xn--)[a-z0-9-]+)*"),
    "client_user_id": re.compile(r"(?!0)[0-9]*[a-z._-][a-z0-9._-]*"),
}
_PLAIN_CHARACTERS = frozenset("._-")
_LARGEST_16_BITS = "\uffff"  # what lies beyond needs four bytes in UTF-8, for which some databases have no room

CAPITALS = frozenset({"local: capitals", "domain: capitals"})
"""The traits of an email that has capitals."""


@dataclass(frozen=True, slots=True)
class SpellingClass:
    """Texts of one field that a filter is taken to treat alike; `traits` is empty for the plain ones."""

    field: str
    traits: frozenset[str]


def build_spellings(field: str, value: str) -> tuple[str, ...]:
    """Return the texts to ask for, each different: as sent, with its domain normalised, and as normalised (architecture
    4.5).

    `field` is email or client_user_id, `value` the identity as it was sent.
    """
    if field != "email":
        return tuple(dict.fromkeys((value, normalise_identity(field, value))))
    normal = normalise_email(value)
    local, at, _ = value.rpartition("@")
    half = f"{local}@{normal.rpartition('@')[2]}" if at else normal
    return tuple(dict.fromkeys((value, half, normal)))


def classify(field: str, text: str) -> SpellingClass:
    """Return the class of a text that is asked for in this field."""
    if is_plain(field, text):
        return SpellingClass(field, frozenset())
    if field != "email":
        return SpellingClass(field, describe_spelling(text))
    local, at, domain = text.rpartition("@")
    if not at:
        return SpellingClass(field, frozenset(("no @", *_find_traits(text))))
    parts = (("local", local), ("domain", domain))
    found = {f"{name}: {trait}" for name, part in parts for trait in _find_traits(part)}
    if any(label.startswith("xn--") for label in domain.lower().split(".")):
        found.add("domain: A-label")
    return SpellingClass(field, frozenset(found))


def is_plain(field: str, text: str) -> bool:
    """Return whether its class has no traits; spares finding out which, for nearly all texts."""
    return _PLAIN[field].fullmatch(text) is not None


def has_spellings_by_case_alone(field: str, value: str) -> bool:
    """Return whether all spellings of this identity differ in upper and lower case alone.

    Letters beyond ASCII have several forms that a service may keep, and so has a domain that holds them.
    """
    if field != "email":
        return True
    normal = normalise_email(value)
    return normal.isascii() and "domain: A-label" not in classify("email", normal).traits


def describe_spelling(text: str) -> frozenset[str]:
    """Return the traits of a text of any field but email; none for a plain one."""
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
    yield from {each for each in text if each.isascii() and not each.isalnum()} - _PLAIN_CHARACTERS
