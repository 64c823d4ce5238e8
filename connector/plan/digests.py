"""The digests that the ledger knows people by: of an identity (16 bytes) and of all that a row would send (8 bytes).

No address leaves this module: a ledger that is read by a stranger names nobody that he does not already know.
"""

from collections.abc import Iterable
from functools import reduce
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from connector.fields import SENT, Kind, normalise_identity

IDENTITY_BYTES = 16  # 128 bits: among 10 million identities a chance collision is 1 in 10^24
FINGERPRINT_BYTES = 8  # compared only with one earlier version of the same person
FINGERPRINT_FORMAT = b"fingerprint-1"

_SPACE = "".join(chr(code) for code in range(128) if chr(code).isspace())  # what str.strip takes, as far as it is ASCII

Digests = npt.NDArray[np.bytes_]
"""An array of dtype S16 or S8. Take single digests out by `split_digests`: NumPy's own `tolist` drops trailing NULs."""


def digest_identity(field: str, value: str) -> bytes:
    """The digest of one identity, under the normal form of its `field` (email or client_user_id)."""
    return _digest(normalise_identity(field, value), field)


def compute_identities(values: pd.Series, field: str) -> Digests:
    """The digests of a column of identities: text in, S16 out; no value may be missing."""
    person = field.encode()
    normal = _normalise_column(pa.chunked_array(pa.array(values, from_pandas=True)), field)
    return join_digests(
        [blake2b(each, digest_size=IDENTITY_BYTES, person=person).digest() for each in normal], IDENTITY_BYTES
    )


def compute_fingerprints(subscribers: pd.DataFrame, identity: str) -> Digests:
    """A digest of all that each row would send: a frame of typed columns in, S8 out.

    Base and `identity` (a field's name) are left out: a fingerprint is only ever compared under the same two, and how
    an address is spelt is no change. Built column by column as `name:length:value`, so that no two rows are written
    alike unless they are.
    """
    told = [field for field in SENT if field.name in subscribers and field.name != identity]
    parts = [_write_column(field.name, subscribers[field.name], field.kind) for field in told]
    empty = pa.chunked_array([pa.array([b""] * len(subscribers), pa.binary())])
    written = reduce(lambda left, right: pc.binary_join_element_wise(left, right, b""), parts, empty)
    digests = [
        blake2b(row, digest_size=FINGERPRINT_BYTES, person=FINGERPRINT_FORMAT).digest() for row in written.to_pylist()
    ]
    return join_digests(digests, FINGERPRINT_BYTES)


def separate_digests(digests: Digests, groups: Digests) -> Digests:
    """Each digest (S16) mixed with its group's: what is equal in one group stays so, and differs in two."""
    size = digests.dtype.itemsize
    left, right = (np.ascontiguousarray(each).view(np.uint8).reshape(-1, size) for each in (digests, groups))
    return np.ascontiguousarray(left ^ right).reshape(-1).view(digests.dtype)


def digest_text(text: str) -> bytes:
    """A digest (16 bytes) of any text."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=IDENTITY_BYTES).digest()


def join_digests(digests: Iterable[bytes], size: int) -> Digests:
    """Single digests of `size` bytes as one array."""
    return np.frombuffer(b"".join(digests), dtype=f"S{size}")


def find_among(known: Digests, digests: Digests) -> npt.NDArray[np.bool_]:
    """Which of `digests` are among the `known` ones, which are sorted."""
    place = np.searchsorted(known, digests)
    is_inside = place < len(known)
    found = np.zeros(len(digests), dtype=bool)
    found[is_inside] = known[place[is_inside]] == digests[is_inside]
    return found


def split_digests(digests: Digests) -> list[bytes]:
    """The array's digests one by one, each at its full length."""
    size = digests.dtype.itemsize
    whole = np.ascontiguousarray(digests).tobytes()
    return [whole[start : start + size] for start in range(0, len(whole), size)]


def _normalise_column(values: pa.ChunkedArray, field: str) -> list[bytes]:
    """The identities of a column in normal form; what is ASCII, and that is nearly everybody, all at once."""
    trimmed = pc.ascii_trim(values, characters=_SPACE)
    normal = (pc.ascii_lower(trimmed) if field == "email" else trimmed).cast(pa.binary()).to_pylist()
    for place in np.flatnonzero(~pc.string_is_ascii(values).to_numpy()).tolist():
        normal[place] = normalise_identity(field, values[place].as_py()).encode()
    return normal  # type: ignore[no-any-return] # of an untyped library


def _digest(normal: str, field: str) -> bytes:
    return blake2b(normal.encode(errors="surrogatepass"), digest_size=IDENTITY_BYTES, person=field.encode()).digest()


def _write_column(name: str, column: pd.Series, kind: Kind) -> pa.ChunkedArray:
    """The column as bytes: `name:length:value`, or nothing where the value is missing and would not be sent."""
    values = pa.chunked_array(pa.array(column, from_pandas=True))
    if kind is Kind.TAGS:
        values = _write_tags(values)
    text = values.cast(pa.string()).cast(pa.binary())
    length = pc.binary_length(text).cast(pa.string()).cast(pa.binary())
    return pc.fill_null(pc.binary_join_element_wise(name.encode(), length, text, b":"), b"")


def _write_tags(tags: pa.ChunkedArray) -> pa.ChunkedArray:
    """Lists of text as one text each; every tag by its length, so that no tag can hold a separator."""
    written = [None if row is None else "".join(f"{len(tag)}:{tag}" for tag in row) for row in tags.to_pylist()]
    return pa.chunked_array([pa.array(written, pa.string())])
