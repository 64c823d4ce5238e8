"""Counts what became of the rows, and hands on those that a person must see."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from connector.load.candidates import Row
from connector.outcomes import Outcome


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


@dataclass(slots=True)
class Tally:
    """The sums of a run; `settled` counts unknowns by what they turned out to be."""

    on_problem: Callable[[Problem], None]
    read: int = 0  # rows of a source, or entries taken up by a retry
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    settled_found: int = 0
    settled_absent: int = 0
    leftovers: Counter[str] = field(default_factory=Counter)  # of earlier runs, with no row in this one
    altered: Counter[str] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)
    has_doubled: bool = False  # whether somebody whom this run sent is known to be there twice

    def count(self, outcome: Outcome, number: int = 1) -> None:
        """So many rows ended so."""
        self.outcomes[outcome] += number

    def report(self, problem: Problem) -> None:
        """One row ended so, and a person must see it."""
        self.outcomes[problem.outcome] += 1
        self.on_problem(problem)

    def note_twice(self, message: str) -> None:
        """Somebody is there twice through this run: a person must know."""
        self.has_doubled = True
        self.say(message)

    def say(self, message: str) -> None:
        """Something for the report's messages, once."""
        if message not in self.messages:
            self.messages.append(message)
