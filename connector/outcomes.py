"""What becomes of a row (architecture 4), and what is wrong with one."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """Every row read ends in exactly one of these; the order is the order of decision."""

    INVALID = "invalid"
    DUPLICATE = "duplicate"
    SUPPRESSED = "suppressed"
    EXISTS = "exists"
    CHANGED = "changed"
    CREATED = "created"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    UNSENT = "unsent"


class MailOutcome(StrEnum):
    """What becomes of a row of a mail run; each in exactly one of these, in the order of decision."""

    INVALID = "invalid"
    DUPLICATE = "duplicate"
    SUPPRESSED = "suppressed"
    ALREADY_SENT = "already_sent"
    SENT = "sent"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    UNSENT = "unsent"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with one row: `position` is the row's place in its chunk (0-based), `field` a column
    of the field table ("" when the whole row is meant), `code` a stable word, `message` for a person."""

    position: int
    field: str
    code: str
    message: str
