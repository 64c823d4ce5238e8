"""Two bytes for each field of what was sent, which name later the fields in which a source differs (design 4.12).

A value's digest is salted by the text of its identity, which no ledger holds: equal values of two people do not show,
and whoever reads the digests learns nothing of people whom he does not know already.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from connector.fields import BY_NAME, NAMES, Kind, normalise_identity

FIELD_BYTES = 2  # a change is missed once in 65,536 times, and then the row is told to differ without its field
_FORMAT = "1"  # of the digests and of the way a mapping is written; the ledger keeps it with each mapping
_HASH_BYTES = 8
_MISSING = 0  # the digest of no value; no value has it

Salts = npt.NDArray[np.uint64]
"""A number for each row, drawn from its identity."""


@dataclass(frozen=True, slots=True)
class MappedFields:
    """The fields that a mapping fills, identity and base left out, in the order of the field table, each with a digest
    of its rule (a word without blanks or colons). `write` and `read_mapped` are each other's inverse."""

    rules: tuple[tuple[str, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The fields alone."""
        return tuple(name for name, _ in self.rules)

    def write(self) -> str:
        """As one line."""
        return " ".join([_FORMAT, *(f"{name}:{rule}" for name, rule in self.rules)])


@dataclass(frozen=True, slots=True)
class Difference:
    """Names of fields in the order of the field table: those that `drifted`, their rule being the same, and those that
    differ `by_mapping`: mapped anew, mapped no longer, or by another rule."""

    drifted: tuple[str, ...]
    by_mapping: tuple[str, ...]


@lru_cache(maxsize=256)
def read_mapped(line: str) -> MappedFields | None:
    """What `MappedFields.write` wrote; None if another format did."""
    version, *words = line.split(" ")
    if version != _FORMAT:
        return None
    return MappedFields(tuple((name, rule) for name, _, rule in (word.partition(":") for word in words)))


def compute_salts(identities: Iterable[str], field: str) -> Salts:
    """A salt for each identity, by the normal form of its `field` (email or client_user_id)."""
    person = f"s:{field}".encode()
    texts = (normalise_identity(field, each) for each in identities)
    return np.array([_hash(text, person) for text in texts], dtype=np.uint64)


def compute_field_digests(subscribers: pd.DataFrame, mapped: MappedFields, salts: Salts) -> list[bytes]:
    """For each row of a frame of typed columns two bytes for each of the mapped fields, in their order."""
    digests = np.zeros((len(subscribers), len(mapped.rules)), dtype="<u2")
    for at, name in enumerate(mapped.names):
        digests[:, at] = _digest_column(name, subscribers[name], salts)
    whole, size = digests.tobytes(), FIELD_BYTES * len(mapped.rules)
    return [whole[row * size : (row + 1) * size] for row in range(len(subscribers))]


def digest_value(name: str, value: object, salt: np.uint64) -> bytes:
    """The same two bytes of one value of the field `name`; of None those of a missing one."""
    if value is None:
        return bytes(FIELD_BYTES)
    hashed = np.array([_hash(_write(value), name.encode())], dtype=np.uint64)
    return _mix(hashed, np.array([salt], dtype=np.uint64)).tobytes()


def compare_fields(before: MappedFields, sent: bytes, now: MappedFields, told: bytes) -> Difference:
    """In which fields what a row tells `now` differs from what was `sent`, by the digests under either mapping."""
    drifted, by_mapping = list[str](), list[str]()
    for name, is_same_rule, earlier, later in _pair(before, now):
        if _take(sent, earlier) != _take(told, later):
            (drifted if is_same_rule else by_mapping).append(name)
    return Difference(tuple(drifted), tuple(by_mapping))


def pick_field(mapped: MappedFields, digests: bytes, name: str) -> bytes:
    """The two bytes of one of the mapped fields."""
    return _take(digests, mapped.names.index(name))


@lru_cache(maxsize=256)
def _pair(before: MappedFields, now: MappedFields) -> tuple[tuple[str, bool, int | None, int | None], ...]:
    """Every field of either mapping: whether its rule is the same in both, and its place in each (None: in none)."""
    earlier = {name: (at, rule) for at, (name, rule) in enumerate(before.rules)}
    later = {name: (at, rule) for at, (name, rule) in enumerate(now.rules)}
    nowhere = (None, None)
    return tuple(
        (
            name,
            earlier.get(name, nowhere)[1] == later.get(name, nowhere)[1],
            earlier.get(name, nowhere)[0],
            later.get(name, nowhere)[0],
        )
        for name in NAMES
        if name in earlier or name in later
    )


def _take(digests: bytes, place: int | None) -> bytes:
    if place is None:
        return bytes(FIELD_BYTES)
    return digests[FIELD_BYTES * place : FIELD_BYTES * (place + 1)]


def _digest_column(name: str, column: pd.Series, salts: Salts) -> npt.NDArray[np.uint16]:
    """Each distinct text is hashed once, and salted for whomever it is of."""
    cells = pa.chunked_array(pa.array(column, from_pandas=True)).combine_chunks()
    if BY_NAME[name].kind is Kind.TAGS:
        cells = pa.array([None if tags is None else _write(tags) for tags in cells.to_pylist()], pa.string())
    coded = cells.cast(pa.string()).dictionary_encode()
    person = name.encode()
    hashes = np.array([0, *(_hash(text, person) for text in coded.dictionary.to_pylist())], dtype=np.uint64)
    places = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
    digests = _mix(hashes[places], salts)
    digests[places == 0] = _MISSING
    return digests


def _write(value: object) -> str:
    """A value as the text that is hashed, as Arrow casts it; every tag by its length."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "".join(f"{len(str(tag))}:{tag}" for tag in value)
    return str(value)


def _hash(text: str, person: bytes) -> int:
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=_HASH_BYTES, person=person).digest()
    return int.from_bytes(digest, "little")


def _mix(hashes: npt.NDArray[np.uint64], salts: Salts) -> npt.NDArray[np.uint16]:
    """Sixteen bits of each hash and its salt, by the finaliser of SplitMix64, each bit of which depends on all."""
    mixed = hashes ^ salts
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    digests = (mixed ^ (mixed >> np.uint64(31))).astype("<u2")
    digests[digests == _MISSING] = 1
    return digests
