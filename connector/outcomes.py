"""The outcomes of a row (architecture 4), and the faults of a row."""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never


class Outcome(StrEnum):
    """The outcome of a row of a load. If several outcomes apply, the row gets the first of them in this order."""

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
    """The outcome of a row of a mail run. If several outcomes apply, the row gets the first of them in this order."""

    INVALID = "invalid"
    DUPLICATE = "duplicate"
    SUPPRESSED = "suppressed"
    ALREADY_SENT = "already_sent"
    SENT = "sent"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    UNSENT = "unsent"


def needs_person(outcome: Outcome | MailOutcome) -> bool:
    """Return whether a person must look at rows with this outcome. A row that a person must look at makes the run
    partial, and is in the rejects file and in alerts."""
    match outcome:
        case Outcome.INVALID | Outcome.REJECTED | Outcome.UNKNOWN:
            return True
        case MailOutcome.INVALID | MailOutcome.REJECTED | MailOutcome.UNKNOWN:
            return True
        case Outcome.DUPLICATE | Outcome.SUPPRESSED | Outcome.EXISTS | Outcome.CHANGED | Outcome.CREATED:
            return False
        case MailOutcome.DUPLICATE | MailOutcome.SUPPRESSED | MailOutcome.ALREADY_SENT | MailOutcome.SENT:
            return False
        case Outcome.UNSENT | MailOutcome.UNSENT:
            return False
    assert_never(outcome)


OUTCOMES_FOR_A_PERSON: tuple[str, ...] = tuple(
    dict.fromkeys(str(outcome) for outcome in (*Outcome, *MailOutcome) if needs_person(outcome))
)
"""The names of the outcomes that need a person, in reports of loads and of mail runs."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a row."""

    position: int  # the position of the row in its chunk (0 = first)
    field: str  # the name of the field (connector/fields.py); "": the whole row
    code: str  # the kind of the fault; a code never changes its meaning, so that programs can use the code
    message: str  # explains the fault to a person
