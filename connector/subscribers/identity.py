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

from connector.fields import SENT, Kind, normalise_email, normalise_identity

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
    person = field.encode()
    digests = [blake2b(text, digest_size=IDENTITY_BYTES, person=person).digest() for text in normal]
    return join_digests(digests, IDENTITY_BYTES)


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
    digests = [
        blake2b(row, digest_size=FINGERPRINT_BYTES, person=FINGERPRINT_FORMAT).digest() for row in written.to_pylist()
    ]
    return join_digests(digests, FINGERPRINT_BYTES)


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
    """The identities met so far, with the fingerprint each was first met with, as a few sorted arrays."""

    def __init__(self) -> None:
        self._kept: list[tuple[Digests, Digests]] = []

    def add(self, identities: Digests, fingerprints: Digests) -> tuple[Mask, Mask]:
        """Add one chunk, in its order (S16 and S8, of one length).

        Return which rows have an identity that was met before, and which of these rows say something else.
        """
        identities, fingerprints = identities.astype(_IDENTITY), fingerprints.astype(_FINGERPRINT)
        order = np.argsort(identities, kind="stable")
        ordered = identities[order]
        is_first = np.ones(len(ordered), dtype=bool)
        is_first[1:] = ordered[1:] != ordered[:-1]
        group = np.cumsum(is_first) - 1
        firsts, known_as = ordered[is_first], fingerprints[order[is_first]]
        is_known = np.zeros(len(firsts), dtype=bool)
        for known, first_as in self._kept:
            index = np.minimum(np.searchsorted(known, firsts), len(known) - 1)
            is_here = known[index] == firsts
            is_known |= is_here
            known_as[is_here] = first_as[index[is_here]]
        self._keep(firsts[~is_known], known_as[~is_known])
        is_duplicate, is_different = np.empty(len(order), dtype=bool), np.empty(len(order), dtype=bool)
        is_duplicate[order] = ~is_first | is_known[group]
        is_different[order] = fingerprints[order] != known_as[group]
        return is_duplicate, is_duplicate & is_different

    def _keep(self, identities: Digests, fingerprints: Digests) -> None:
        while self._kept and len(self._kept[-1][0]) < min(_GROWTH * len(identities), _MOST_MERGED):
            known, first_as = self._kept.pop()
            identities, fingerprints = np.concatenate([known, identities]), np.concatenate([first_as, fingerprints])
            order = np.argsort(identities, kind="stable")
            identities, fingerprints = identities[order], fingerprints[order]
        if len(identities):
            self._kept.append((identities, fingerprints))


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
