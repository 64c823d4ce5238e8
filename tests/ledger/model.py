"""What a ledger ought to hold, as a dictionary: the store's model, written from architecture 4 and knowing no SQL."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from connector.ledger import Base, Intent, Ledger
from connector.states import ENTRY, Event, State

CREATED, SETTLED, FOUND, ACCEPTED = 1, 2, 3, 4  # how an entry came to be confirmed


@dataclass(frozen=True)
class Line:
    """One entry."""

    state: State
    how: int | None = None
    subscriber_id: int | None = None
    fingerprint: bytes | None = None
    body: bytes | None = None
    status: int | None = None
    message: str | None = None
    attempts: int = 0
    run_key: int | None = None
    reported: bytes | None = None
    reported_at: float | None = None


@dataclass(frozen=True)
class Telling:
    """What a move tells of each person it names, besides the person."""

    run_key: int
    body: bytes
    fingerprint: bytes
    subscriber_id: int
    words: str


Entries = Mapping[tuple[int, bytes], Line]
"""By base and identity."""


class StaleError(Exception):
    """The model's word for a move that must not be made."""


@dataclass(frozen=True)
class Step:
    """One move of the store, and what it makes of a line (None: the line goes)."""

    event: Event
    left: State
    make: Callable[[Ledger, Base, Sequence[bytes], Telling], object]
    change: Callable[[Line, Telling], Line | None]


def send(line: Line, told: Telling) -> Line:
    return Line(
        State.SENDING,
        fingerprint=told.fingerprint,
        body=told.body,
        attempts=line.attempts + 1,
        run_key=told.run_key,
    )


def confirm(how: int) -> Callable[[Line, Telling], Line]:
    def change(line: Line, told: Telling) -> Line:
        return replace(
            line,
            state=State.CONFIRMED,
            how=how,
            subscriber_id=told.subscriber_id,
            body=None,
            status=None,
            message=None,
        )

    return change


def confirm_other(how: int) -> Callable[[Line, Telling], Line]:
    """The subscriber may have come by another way: what was sent is not what it is."""
    return lambda line, told: replace(confirm(how)(line, told), fingerprint=None)


def refuse(line: Line, told: Telling) -> Line:
    return replace(line, state=State.REJECTED, status=422, message=told.words)


def go_to(state: State) -> Callable[[Line, Telling], Line]:
    return lambda line, _told: replace(line, state=state, subscriber_id=None, status=None, message=None)


def hold(line: Line, told: Telling) -> Line:
    return replace(line, state=State.HELD, subscriber_id=told.subscriber_id, message=told.words)


def drop(line: Line, _told: Telling) -> Line:
    return replace(line, state=State.REJECTED, subscriber_id=None, status=0, message="no")


def go(_line: Line, _told: Telling) -> None:
    return None


def intents(people: Sequence[bytes], told: Telling) -> list[Intent]:
    return [Intent(each, told.fingerprint, told.body) for each in people]


def ids(people: Sequence[bytes], told: Telling) -> list[tuple[bytes, int]]:
    return [(each, told.subscriber_id) for each in people]


def misanswers(people: Sequence[bytes], told: Telling) -> list[tuple[bytes, int, str]]:
    return [(each, told.subscriber_id, told.words) for each in people]


def refusals(people: Sequence[bytes], told: Telling) -> list[tuple[bytes, int, str]]:
    return [(each, 422, told.words) for each in people]


S, E = State, Event
STEPS = (
    Step(E.INTENDED, S.NONE, lambda at, b, p, t: at.mark_intended(b, t.run_key, intents(p, t)), send),
    Step(E.INTENDED, S.REJECTED, lambda at, b, p, t: at.mark_intended_again(b, t.run_key, intents(p, t)), send),
    Step(E.ABSENT, S.UNKNOWN, lambda at, b, p, t: at.mark_absent(b, t.run_key, intents(p, t)), send),
    Step(E.ANSWERED, S.SENDING, lambda at, b, p, t: at.mark_answered(b, ids(p, t)), confirm(CREATED)),
    Step(E.REFUSED, S.SENDING, lambda at, b, p, t: at.mark_refused(b, S.SENDING, refusals(p, t)), refuse),
    Step(E.REFUSED, S.UNKNOWN, lambda at, b, p, t: at.mark_refused(b, S.UNKNOWN, refusals(p, t)), refuse),
    Step(E.NOT_SENT, S.SENDING, lambda at, b, p, t: at.mark_not_sent(b, p), go),
    Step(E.LOST, S.SENDING, lambda at, b, p, t: at.mark_lost(b, p), go_to(S.UNKNOWN)),
    Step(E.FOUND, S.UNKNOWN, lambda at, b, p, t: at.mark_found(b, S.UNKNOWN, ids(p, t)), confirm(SETTLED)),
    Step(E.FOUND, S.HELD, lambda at, b, p, t: at.mark_found(b, S.HELD, ids(p, t)), confirm_other(SETTLED)),
    Step(E.FOUND, S.REJECTED, lambda at, b, p, t: at.mark_found(b, S.REJECTED, ids(p, t)), confirm_other(FOUND)),
    Step(E.WITHHELD, S.UNKNOWN, lambda at, b, p, t: at.mark_withheld(b, p), go_to(S.HELD)),
    Step(E.SUPPRESSED, S.UNKNOWN, lambda at, b, p, t: at.mark_suppressed(b, p), go),
    Step(E.DOUBTED, S.REJECTED, lambda at, b, p, t: at.mark_doubted(b, p), go_to(S.UNKNOWN)),
    Step(E.REOPENED, S.HELD, lambda at, b, p, t: at.mark_reopened(b, p), go_to(S.UNKNOWN)),
    Step(E.DROPPED, S.HELD, lambda at, b, p, t: at.mark_dropped(b, p, "no"), drop),
    Step(E.MISANSWERED, S.SENDING, lambda at, b, p, t: at.mark_misanswered(b, misanswers(p, t)), hold),
    Step(E.ACCEPTED, S.HELD, lambda at, b, p, t: at.mark_accepted(b, ids(p, t)), confirm(ACCEPTED)),
    Step(E.FORGOTTEN, S.HELD, lambda at, b, p, t: at.mark_forgotten(b, S.HELD, p), go),
    Step(E.FORGOTTEN, S.REJECTED, lambda at, b, p, t: at.mark_forgotten(b, S.REJECTED, p), go),
    Step(E.FORGOTTEN, S.CONFIRMED, lambda at, b, p, t: at.mark_forgotten(b, S.CONFIRMED, p), go),
)
BY_THEMSELVES = {(S.NONE, E.FOUND), (S.SENDING, E.DIED)}  # a listing and a death, which speak of whoever it fits


def take(entries: Entries, step: Step, key: int, people: Sequence[bytes], told: Telling) -> Entries:
    """The entries after a step over these people; StaleError when one of them is not where it leaves from."""
    after = dict(entries)
    for identity in people:
        line = after.pop((key, identity), Line(State.NONE))
        if line.state is not step.left:
            raise StaleError
        changed = step.change(line, told)
        assert (changed.state if changed else State.NONE) is ENTRY.transitions[step.left, step.event]
        if changed is not None:
            after[key, identity] = changed
    return after


def list_people(entries: Entries, key: int, listed: Sequence[tuple[bytes, int]]) -> Entries:
    """After a listing has shown these people: whoever is not in doubt, and not known to be there, is now."""
    after = dict(entries)
    for identity, subscriber_id in listed:
        line = after.get((key, identity), Line(State.NONE))
        if line.state in (State.NONE, State.REJECTED, State.HELD):
            after[key, identity] = confirm_other(FOUND)(line, Telling(0, b"", b"", subscriber_id, ""))
    return after


def die(entries: Entries) -> Entries:
    """After the process that sent them has died."""
    return {at: replace(line, state=S.UNKNOWN) if line.state is S.SENDING else line for at, line in entries.items()}


def merge(entries: Entries, old: int, new: int) -> Entries:
    """After base `old` turned out to be `new`: who is there for certain counts first, then who is in doubt."""
    after = {at: line for at, line in entries.items() if at[0] != old}
    for (key, identity), line in entries.items():
        other = after.get((new, identity)) if key == old else None
        if key == old and (other is None or outranks(line, other)):
            after[new, identity] = line
    return after


def outranks(old: Line, new: Line) -> bool:
    if S.CONFIRMED in (old.state, new.state):
        return new.state is not S.CONFIRMED
    return old.state is not S.REJECTED
