"""The requests of a simulation and the subscribers that the service stored, recorded outside the program under test."""

from collections.abc import Callable
from dataclasses import dataclass, field

from connector.service.wire import Operation


@dataclass(slots=True)
class StoredSubscriber:
    """A subscriber that the service stored or updated."""

    stored_at: float
    shown_at: float  # from this time on, the list shows the subscriber
    subscriber_id: int
    base_id: int
    person_number: int
    first_name: str
    answer_kind: str
    was_updated: bool  # whether the service updated an existing subscriber and stored no new subscriber
    call: "Call | None"  # the create of the connector, or None if another program created the subscriber
    # This subscriber before an update, or another subscriber that had this id before.
    previous_version: "StoredSubscriber | None" = None

    @property
    def has_id_of_other_subscriber(self) -> bool:
        """Whether this id belonged to another base or to another person before."""
        version = self.previous_version
        return version is not None and (version.base_id, version.person_number) != (self.base_id, self.person_number)

    @property
    def has_updated_subscriber_of_other_program(self) -> bool:
        """Whether the service updated a subscriber that another program had created."""
        return self.was_updated and self.previous_version is not None and self.previous_version.call is None


@dataclass(slots=True)
class Call:
    """One request of a process, and the times at which the request left, reached the service, and ended for the
    process."""

    number: int
    run_number: int
    operation: Operation
    person_number: int  # the person of a create, or 0 if the request is not a create
    query: str  # the query of a list request: filters and page
    sent_at: float
    add_line: Callable[[float, str], None]
    has_intent: bool = True  # whether a commit had stored the intent when the request left
    arrived_at: float | None = None
    ended_at: float | None = None
    ending: str = ""  # the end that the process sees: a status, `cut`, `time-out`, `cancelled`, `killed` or `not sent`
    is_refusal: bool = False  # whether the answer is a refusal (architecture 2)
    stored_subscribers: list[StoredSubscriber] = field(default_factory=list)

    @property
    def was_sent(self) -> bool:
        """Whether the request can reach the service."""
        return self.ending != "not sent"

    def end(self, time_s: float, ending: str) -> None:
        """Record how the request ended for the process. If an ending is already recorded, do nothing."""
        if self.ended_at is None:
            self.ended_at, self.ending = time_s, ending
            self.add_line(time_s, f"request {self.number}: ends with {ending}")


@dataclass(slots=True)
class EventRecord:
    """All events in their order. `trace_lines` are for a person who reads the trace."""

    calls: list[Call] = field(default_factory=list)
    stored_subscribers: list[StoredSubscriber] = field(default_factory=list)
    trace_lines: list[tuple[float, str]] = field(default_factory=list)

    def list_creates(self, run_number: int) -> list[Call]:
        """Return the creates of a run, even the creates that got no connection."""
        return [call for call in self.calls if (call.run_number, call.operation) == (run_number, "create")]

    def add_line(self, time_s: float, text: str) -> None:
        """Add a line to the trace."""
        self.trace_lines.append((time_s, text))
