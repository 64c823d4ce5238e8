"""The outcomes of a row (architecture 4), and the faults of a row."""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never


class Outcome(StrEnum):
    """The outcome of a row of a load. If several outcomes apply, the row gets the first of them in this list."""

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
    """The outcome of a row of a mail run. If several outcomes apply, the row gets the first of them in this list."""

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
"""The names of the outcomes whose rows a person must look at, in reports of loads and of mail runs."""


class ProblemKind(StrEnum):
    """The kind of a problem: a row that a person must look at, or an opt-out. Ledgers store the texts, so a text never
    changes its meaning."""

    INVALID = "invalid"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    HELD = "held"  # an unknown row whose create waits for a person's decision
    OPTED_OUT = "opted_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemTraits:
    """The properties of a kind of problem. `outcome` is the outcome of the row (None: an opt-out may have any outcome).
    `ends_if_confirmed` means that the problem ends when the ledger confirms the subscriber."""

    outcome: Outcome | None
    ends_if_confirmed: bool


def find_problem_traits(kind: ProblemKind) -> ProblemTraits:
    """Return the properties of a kind of problem."""
    match kind:
        case ProblemKind.INVALID:
            return ProblemTraits(outcome=Outcome.INVALID, ends_if_confirmed=False)
        case ProblemKind.REJECTED:
            return ProblemTraits(outcome=Outcome.REJECTED, ends_if_confirmed=True)
        case ProblemKind.UNKNOWN | ProblemKind.HELD:
            return ProblemTraits(outcome=Outcome.UNKNOWN, ends_if_confirmed=True)
        case ProblemKind.OPTED_OUT:
            return ProblemTraits(outcome=None, ends_if_confirmed=False)
    assert_never(kind)


def list_problem_kinds(outcome: str) -> list[ProblemKind]:
    """Return the kinds that the problem of a row with this outcome can have."""
    return [kind for kind in ProblemKind if find_problem_traits(kind).outcome == outcome]


def find_problem_kind(outcome: Outcome, code: str) -> ProblemKind:
    """Return the kind of a row's problem. The code of an unknown row names the kind. Raises ValueError if no kind has
    this name."""
    return ProblemKind(code if outcome is Outcome.UNKNOWN else outcome)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a row."""

    position: int  # the position of the row in its chunk (0 = first)
    field: str  # the name of the field (connector/fields.py); "": the whole row
    code: str  # the kind of the fault; a code never changes its meaning, so that programs can use the code
    message: str  # explains the fault to a person
