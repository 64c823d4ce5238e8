"""Rows on their way to become requests: columns until the last moment, then objects for those to be created."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from connector.extract import Chunk
from connector.fields import BY_NAME, normalise_identity
from connector.ledger import Base, Intent
from connector.plan.digests import Digests, split_digests
from connector.protocol.wire import encode_subscriber
from connector.states import State

_BUILT_AT_ONCE = 512  # rows made into objects together: enough that column access costs nothing, few enough to hold


@dataclass(frozen=True, slots=True)
class Row:
    """A row as its source gave it, for a person who looks for it: record number (from 1), file, cells as they came."""

    number: int
    file: str
    columns: tuple[str, ...]
    cells: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """The rows of one chunk that are to be loaded: `subscribers` is indexed by position in the chunk.

    `identities` (S16) and `fingerprints` (S8) are in the order of `subscribers`; no identity occurs twice in a run.
    """

    chunk: Chunk
    subscribers: pd.DataFrame
    identities: Digests
    fingerprints: Digests


@dataclass(frozen=True, slots=True)
class Candidate:
    """One subscriber to be created; `name` is its identity in normal form, `sent` the values that its body holds."""

    intent: Intent
    name: str
    sent: dict[str, object]
    take_row: Callable[[], Row] | None = None  # None: no row of this run, but an unknown that an earlier one left
    left: State = State.NONE  # what its entry is before it is sent: NONE, REJECTED, or UNKNOWN and proved absent
    refused: tuple[int, str] | None = None  # status and words of a refusal that stands again if this is never sent
    known_until: float = float("inf")  # monotonic: until then what a look said of them may be relied on (design 4.7)


def take_row(chunk: Chunk, position: int) -> Row:
    """One row of a chunk, as a value of its own."""
    cells = chunk.frame.iloc[position].tolist()
    return Row(
        int(chunk.numbers[position]),
        chunk.name,
        tuple(chunk.frame.columns),
        tuple(None if pd.isna(cell) else str(cell) for cell in cells),
    )


class CandidateStream:
    """The chosen rows of a chunk, made into candidates a few at a time, with the base as it is known by then."""

    def __init__(self, planned: Planned, chosen: Sequence[int], left: Mapping[int, State], identity: str) -> None:
        """`chosen` are places in `planned.subscribers` (0-based), `left` the state of each one's entry."""
        self._planned, self._chosen, self._left, self._identity = planned, chosen, left, identity
        self._next = 0

    @property
    def rest(self) -> Sequence[int]:
        """The places that have not been taken."""
        return self._chosen[self._next :]

    def take(self, number: int, base: Base, known_until: float = float("inf")) -> list[Candidate]:
        """The next candidates, at most `number`, to be sent by `known_until` (monotonic); empty at the end."""
        places = self._chosen[self._next : self._next + min(number, _BUILT_AT_ONCE)]
        self._next += len(places)
        return list(self._build(places, base, known_until)) if places else []

    def _build(self, places: Sequence[int], base: Base, known_until: float) -> Iterator[Candidate]:
        part = self._planned.subscribers.iloc[list(places)]
        identities = split_digests(self._planned.identities[list(places)])
        fingerprints = split_digests(self._planned.fingerprints[list(places)])
        reference = {"base_id": base.service_id} if base.service_id is not None else {"base_name": base.name}
        columns = [name for name in part.columns if name in BY_NAME]
        values = [pa.array(part[name], from_pandas=True).to_pylist() for name in columns]
        positions: npt.NDArray[np.int64] = part.index.to_numpy()
        for order, cells in enumerate(zip(*values, strict=True)):
            sent = reference | {name: cell for name, cell in zip(columns, cells, strict=True) if cell is not None}
            intent = Intent(identities[order], fingerprints[order], encode_subscriber(sent), self._identity)
            name = normalise_identity(self._identity, str(sent[self._identity]))
            position = int(positions[order])
            find_row = partial(take_row, self._planned.chunk, position)
            left = self._left[places[order]]
            yield Candidate(intent, name, sent, find_row, left, known_until=known_until)


class CandidateList:
    """Candidates of no chunk, to be taken for as long as what is known of them may be relied on."""

    def __init__(self, candidates: Sequence[Candidate], monotonic: Callable[[], float]) -> None:
        self._candidates, self._monotonic = candidates, monotonic
        self._next = 0

    @property
    def rest(self) -> Sequence[Candidate]:
        """Those that have not been taken."""
        return self._candidates[self._next :]

    def take(self, number: int) -> list[Candidate]:
        """The next ones, at most `number`; empty at the end, or once they are to be looked for anew."""
        taken = self._candidates[self._next : self._next + number]
        if taken and self._monotonic() > taken[0].known_until:
            return []
        self._next += len(taken)
        return list(taken)
