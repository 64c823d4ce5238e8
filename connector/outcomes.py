"""The outcomes of a row (architecture 4), and the faults of a row."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """The outcome of a row of a load. Each row has exactly one outcome. The first outcome that applies counts."""

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
    """The outcome of a row of a mail run. Each row has exactly one outcome. The first outcome that applies counts."""

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
    """A fault of a row."""

    position: int  # the position of the row in its chunk (0 = first)
    field: str  # the name of the field (connector/fields.py); "": the whole row
    code: str  # the kind of the fault, which programs can rely on
    message: str  # for a person
