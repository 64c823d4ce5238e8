"""Counts what became of the rows, hands on those that a person must see, and keeps those that wait to be compared."""

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from connector.kept_values import KeptValues
from connector.outcomes import Outcome
from connector.rows import Chunk, Omission, Row, Told
from connector.subscribers import FINGERPRINT_BYTES, IDENTITY_BYTES


@dataclass(frozen=True, slots=True)
class Problem:
    """A row that did not get through: its outcome, the service's or our words, and how often it was sent."""

    row: Row
    outcome: Outcome
    field: str
    code: str
    message: str
    http_status: int | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A row of a subscriber who is there, and of whom the source says something else.

    `identity` is its text as the source has it. `fields` are those that differ: name, the service's value, the
    source's. `reason` is why it could not be compared ("": it was); `is_known`: an earlier run has reported the same.
    """

    row: Row
    identity: str = field(repr=False)
    fields: tuple[tuple[str, object, object], ...] = field(default=(), repr=False)
    reason: str = ""
    is_known: bool = False


class Since(IntEnum):
    """Why a row is to be compared with the service."""

    CHANGED = 0  # it is another than the one that was sent
    REPORTED = 1  # it differs as an earlier run has reported
    FIRST = 2  # it is the first to tell of a subscriber who was there before


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A row that waits: `owner` is what it was handed in with."""

    owner: object
    row: Row
    told: Told
    since: Since


class WaitingRows:
    """The rows of a run, all its bases together, that wait to be compared: 30 bytes each in memory, the rest in a
    temporary file without a name."""

    def __init__(self) -> None:
        self._owners: list[object] = []
        self._owner_of: array[int] = array("H")
        self._since = bytearray()
        self._digests = bytearray()  # identity and fingerprint
        self._values: KeptValues | None = None
        self.ended = 0  # of the first so many the outcome has been told

    def __len__(self) -> int:
        return len(self._owner_of)

    @property
    def unknown(self) -> list[int]:
        """The places of those that no earlier run has reported."""
        return [place for place, since in enumerate(self._since) if since != Since.REPORTED]

    def add(self, owner: object, rows: Sequence[tuple[Row, Told, Since]]) -> None:
        """Have these wait. Raises RunAborted for want of room."""
        if self._values is None:
            self._values = KeptValues()
        if not any(each is owner for each in self._owners):
            self._owners.append(owner)
        number = next(place for place, each in enumerate(self._owners) if each is owner)
        self._values.add([[row.number, row.file, told.name, dict(told.values)] for row, told, _ in rows])
        for _, told, since in rows:
            self._owner_of.append(number)
            self._since.append(since)
            self._digests += told.identity + told.fingerprint

    def read(self, place: int) -> WaitingRow:
        """One of them, by its place (0-based)."""
        if self._values is None:
            raise IndexError(place)
        number, file, name, values = self._values.read(place)
        begin = place * (IDENTITY_BYTES + FINGERPRINT_BYTES)
        identity = bytes(self._digests[begin : begin + IDENTITY_BYTES])
        fingerprint = bytes(self._digests[begin + IDENTITY_BYTES : begin + IDENTITY_BYTES + FINGERPRINT_BYTES])
        told = Told(identity, name, fingerprint, values)
        owner = self._owners[self._owner_of[place]]
        return WaitingRow(owner, Row(number, file, (), ()), told, Since(self._since[place]))

    def clear(self) -> None:
        """Forget them all."""
        if self._values is not None:
            self._values.close()
        self._values, self._owners, self._owner_of = None, [], array("H")
        self._since, self._digests, self.ended = bytearray(), bytearray(), 0


def _ignore(_: object) -> None:
    """Nobody wants to hear of it."""


@dataclass(slots=True)
class Tally:
    """The sums of a run; `settled` counts unknowns by what they turned out to be.

    `on_problem` hears of each row that a person must see, `on_change` of each that has changed, `on_omission` of each
    zip that was left out of a create, `on_rows` of all other rows: outcome, file, numbers.
    """

    on_problem: Callable[[Problem], None]
    on_change: Callable[[Change], None] = _ignore
    on_omission: Callable[[Omission], None] = _ignore
    on_rows: Callable[[Outcome, str, Sequence[int]], None] | None = None
    read: int = 0  # rows of a source, or entries taken up by a retry
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    settled_found: int = 0
    settled_absent: int = 0
    leftovers: Counter[str] = field(default_factory=Counter)  # of earlier runs, with no row in this one
    reactivated: int = 0  # rows created as active whose identities the list shows as inactive
    altered: Counter[str] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)
    foretold: list[str] = field(default_factory=list)  # messages of a plan about what a load will do
    has_doubled: bool = False  # whether somebody whom this run sent is known to be there twice

    def count(self, outcome: Outcome, number: int = 1) -> None:
        """So many rows ended so."""
        self.outcomes[outcome] += number

    def count_positions(self, outcome: Outcome, chunk: Chunk, positions: npt.NDArray[np.int64]) -> None:
        """The rows at these positions of a chunk ended so."""
        self.outcomes[outcome] += len(positions)
        if self.on_rows is not None and len(positions):
            self.on_rows(outcome, chunk.name, chunk.numbers[positions].tolist())

    def count_row(self, outcome: Outcome, take_row: Callable[[], Row]) -> None:
        """One row ended so; it is taken out of its columns only if anybody wants to hear of it."""
        self.outcomes[outcome] += 1
        if self.on_rows is not None:
            row = take_row()
            self.on_rows(outcome, row.file, [row.number])

    def begin_anew(self) -> None:
        """Forget the rows, which are read again; what was found out besides stays."""
        self.read = 0
        self.reactivated = 0
        self.outcomes.clear()
        self.leftovers.clear()
        self.foretold.clear()

    def report(self, problem: Problem) -> None:
        """One row ended so, and a person must see it."""
        self.outcomes[problem.outcome] += 1
        self.on_problem(problem)

    def report_change(self, change: Change) -> None:
        """One row ended CHANGED."""
        self.outcomes[Outcome.CHANGED] += 1
        self.on_change(change)

    def report_created(self, take_row: Callable[[], Row], omission: Omission | None) -> None:
        """One row ended CREATED, perhaps without its zip."""
        self.count_row(Outcome.CREATED, take_row)
        if omission is not None:
            self.on_omission(omission)

    def note_twice(self, message: str) -> None:
        """Somebody is there twice through this run: a person must know."""
        self.has_doubled = True
        self.say(message)

    def say(self, message: str) -> None:
        """Something for the report's messages, once."""
        if message not in self.messages:
            self.messages.append(message)

    def foretell(self, message: str) -> None:
        """What a load will do that is planned here, once; it is not said by the load that follows its survey."""
        if message not in self.foretold:
            self.foretold.append(message)
