"""Counts what became of the rows, and hands on those that a person must see."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from connector.load.candidates import Omission, Planned, Row
from connector.load.drift import Change
from connector.outcomes import Outcome
from connector.rows import Chunk


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

    def count_places(self, outcome: Outcome, planned: Planned, places: Sequence[int]) -> None:
        """The rows at these places of `planned.subscribers` ended so."""
        if self.on_rows is None:
            self.count(outcome, len(places))
        else:
            self.count_positions(outcome, planned.chunk, planned.subscribers.index[list(places)].to_numpy())

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
