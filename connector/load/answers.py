"""The meaning of an answer to a create (architecture 2; service-api.md 4.2). All functions are pure. Only
`classify_answer` recognises success.
"""

from dataclasses import replace

from connector.fields import fold_base_name, normalise_identity
from connector.ledger.entries import Move
from connector.ledger.store import Base
from connector.load.candidates import Candidate, describe_other
from connector.service.wire import Ambiguous, Created, NotSent, Refused, find_altered_fields, read_base
from connector.states import Event, State

CreateAnswer = Created | Refused | Ambiguous | NotSent


def classify_answer(
    answer: CreateAnswer,
    candidate: Candidate,
    base: Base,
    asked_name: str | None = None,
) -> Move:
    """Return the move of an entry after this answer to its create (architecture 2; service-api.md 4.2).

    - ANSWERED: the answer has a Subscriber.Id, and the base and identity that were sent. If the job gives the base by
      name, the name must be the same, too (trimmed and case-folded).
    - MISANSWERED: the answer has another base or identity, or lacks the base or the identity.
    - REFUSED and NOT_SENT: as the answer says.
    - LOST: every other answer.
    """
    if isinstance(answer, Refused):
        return Move(Event.REFUSED, status=answer.status, message=answer.message, may_pass=answer.may_pass)
    if isinstance(answer, Ambiguous):
        return Move(Event.LOST, status=answer.status, message=answer.message)
    if isinstance(answer, NotSent):
        return Move(Event.NOT_SENT, message=answer.message)
    has_same_base, has_same_identity = _has_same_base(answer, base, asked_name), _has_same_identity(answer, candidate)
    beginning = f"the service answered with subscriber {answer.subscriber_id}"
    if has_same_base is False:
        other_base = read_base(answer.subscriber)
        message = f"{beginning} of another base: {describe_other(*other_base)}"
        return Move(Event.MISANSWERED, answer.subscriber_id, answer.status, message, answered_base=other_base)
    if has_same_identity is False:
        message = f"{beginning}, whose {candidate.intent.field} differs from the one that was sent"
        return Move(Event.MISANSWERED, answer.subscriber_id, answer.status, message)
    if has_same_base is None or has_same_identity is None:
        lacking_field = "base" if has_same_base is None else candidate.intent.field
        message = f"{beginning} without its {lacking_field} (service-api.md 4.2)"
        return Move(Event.MISANSWERED, answer.subscriber_id, answer.status, message)
    altered_fields = find_altered_fields(candidate.sent, answer.subscriber)
    return Move(Event.ANSWERED, answer.subscriber_id, answer.status, altered_fields=altered_fields)


def _has_same_base(answer: Created, base: Base, asked_name: str | None) -> bool | None:
    """Return whether the answer has the base of the request, or None if the answer shows no base to compare.

    Compare the Id if the run knows it, and the name if the job gives a name. A base with another name is another base.
    """
    service_id, name = answer.read("base_id"), answer.read("base_name")
    is_same_id = is_same_name = None
    if base.service_id is not None and service_id is not None:
        is_same_id = type(service_id) is int and service_id == base.service_id
    if asked_name is not None and name is not None:
        is_same_name = isinstance(name, str) and fold_base_name(name) == fold_base_name(asked_name)
    if False in (is_same_id, is_same_name):
        return False
    is_compared = base.service_id is not None or asked_name is not None
    return True if True in (is_same_id, is_same_name) or not is_compared else None


def _has_same_identity(answer: Created, candidate: Candidate) -> bool | None:
    """Return whether the answer has the identity that was sent, or None if the answer lacks the identity."""
    field = candidate.intent.field
    text = answer.read(field)
    if text is None or text == candidate.sent[field]:  # in nearly all cases, no normal form is needed
        return None if text is None else True
    return isinstance(text, str) and normalise_identity(field, text) == candidate.name


def choose_recorded_move(candidate: Candidate, move: Move) -> Move:
    """Return the move to record. After a create that never left, the entry usually goes. An entry that was UNKNOWN or
    REJECTED before goes back to this state, with its body, for a later run (architecture 4.4)."""
    if move.event is Event.NOT_SENT and candidate.entry_state is State.UNKNOWN:
        return replace(move, event=Event.LOST)
    if move.event is Event.NOT_SENT and candidate.earlier_refusal is not None:
        status, message = candidate.earlier_refusal
        return Move(Event.REFUSED, status=status, message=message)
    return move
