"""The facts of every request and of every stored subscriber, from outside: the truth for the checks."""

from collections.abc import Callable
from dataclasses import dataclass, field

from connector.service.wire import Operation


@dataclass(slots=True)
class Stored:
    """Somebody whom the service stored `at` that time and shows from `shown_at` on; `by` None: by another way.

    `previous` is what the service had under the id before.
    """

    at: float
    shown_at: float
    subscriber_id: int
    base_id: int
    person: int
    first_name: str
    fate: str
    is_update: bool
    by: "Call | None"
    previous: "Stored | None" = None

    @property
    def is_taken(self) -> bool:
        """Whether the subscriber was in another base before, or somebody else."""
        before = self.previous
        return before is not None and (before.base_id, before.person) != (self.base_id, self.person)


@dataclass(slots=True)
class Call:
    """One request of a process: when it left, reached the service, and ended as far as the process can tell.

    `seen` is what the process saw of the end: a status, `cut`, `time-out`, `cancelled`, `died`, `not sent`.
    """

    number: int
    night: int
    operation: Operation
    person: int  # 0: of no one
    about: str  # filters and page of a list request
    sent_at: float
    tell: Callable[[float, str], None]
    is_intended: bool = True  # whether the ledger held it as being sent, durably, when it left
    arrived_at: float | None = None
    ended_at: float | None = None
    seen: str = ""
    is_refusal: bool = False  # whether what was seen is a refusal by the words of architecture 2
    stored: list[Stored] = field(default_factory=list)

    @property
    def has_left(self) -> bool:
        """Whether it may ever reach the service."""
        return self.seen != "not sent"

    def end(self, at: float, seen: str) -> None:
        """The process knows no more of it than this; the first word counts."""
        if self.ended_at is None:
            self.ended_at, self.seen = at, seen
            self.tell(at, f"request {self.number}: ends with {seen}")


@dataclass(slots=True)
class Record:
    """All that happened, in its order; `story` is for a person."""

    calls: list[Call] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    story: list[tuple[float, str]] = field(default_factory=list)

    def tell(self, at: float, words: str) -> None:
        """One line of the story."""
        self.story.append((at, words))
