"""What is to become of a valid row, by what the ledger says of its identity (architecture 4). Pure."""

from enum import Enum

from connector.ledger import Entry
from connector.outcomes import Outcome
from connector.states import State


class Decision(Enum):
    """The next step for a row."""

    NEW = "look, then create"
    AGAIN = "rejected before, but the row has changed: look, then create"
    FIRST_TOLD = "listed before any row told of it: note its fingerprint; it exists"
    EXISTS = "it exists"
    CHANGED = "it exists, and the source differs from what was sent"
    REJECTED = "rejected before, and nothing has changed"
    PENDING = "may or may not be there: to be settled"
    HELD = "proved absent once, or answered with another base or identity, and left to a person"


def decide_row(entry: Entry | None, fingerprint: bytes) -> Decision:
    """The step for a row with this fingerprint whose identity has this entry."""
    if entry is None:
        return Decision.NEW
    if entry.state is State.CONFIRMED:
        if entry.fingerprint is None:
            return Decision.FIRST_TOLD
        return Decision.EXISTS if entry.fingerprint == fingerprint else Decision.CHANGED
    if entry.state is State.REJECTED:
        return Decision.REJECTED if entry.fingerprint == fingerprint else Decision.AGAIN
    return Decision.HELD if entry.state is State.HELD else Decision.PENDING


def decide_found(entry: Entry, fingerprint: bytes | None) -> Outcome:
    """The outcome of a row whose identity turned out to be there, by a CONFIRMED entry (None: no row has told)."""
    is_known = entry.fingerprint is not None and fingerprint is not None
    return Outcome.CHANGED if is_known and entry.fingerprint != fingerprint else Outcome.EXISTS


def describe_held(message: str | None) -> str:
    """What a person reads of a row whose identity is HELD; `message` says what was answered, if anything was."""
    if message is None:
        return "held: it was proved absent; decide by connector retry --resend-held or --drop-held"
    return f"held: {message}; decide by connector retry --resend-held, --accept-held or --drop-held"
