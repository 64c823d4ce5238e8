"""The meaning of an answer to a create (architecture 2; service-api.md 4.2). Pure.

`classify_answer` is the only function that recognises success.
"""

from dataclasses import replace

from connector.fields import fold_base_name, normalise_identity
from connector.ledger.entries import Move
from connector.ledger.store import Base
from connector.load.candidates import Candidate, describe_other
from connector.service.wire import Ambiguous, Created, NotSent, Refused, altered_fields, read_base
from connector.states import Event, State

CreateAnswer = Created | Refused | Ambiguous | NotSent


def classify_answer(
    answer: CreateAnswer,
    candidate: Candidate,
    base: Base,
    asked_name: str | None = None,
) -> Move:
    """Return what this answer to this candidate's create means (architecture 2; service-api.md 4.2).

    Success is a Subscriber.Id with the base and the identity that were sent (and the base's name that the job gave, if
    it gave one, trimmed and case-folded). A success with another base or identity, or without one of them, is
    MISANSWERED. Every other answer except a refusal is LOST.
    """
    if isinstance(answer, Refused):
        return Move(Event.REFUSED, status=answer.status, message=answer.message, may_pass=answer.may_pass)
    if isinstance(answer, Ambiguous):
        return Move(Event.LOST, status=answer.status, message=answer.message)
    if isinstance(answer, NotSent):
        return Move(Event.NOT_SENT, message=answer.message)
    is_of_base, is_asked_for = _is_of_base(answer, base, asked_name), _is_asked_for(answer, candidate)
    if is_of_base is False:
        other = read_base(answer.subscriber)
        words = f"the service answered with subscriber {answer.subscriber_id} of another base: {describe_other(*other)}"
        return Move(Event.MISANSWERED, answer.subscriber_id, answer.status, words, answered_base=other)
    if is_asked_for is False:
        words = (
            f"the service answered with subscriber {answer.subscriber_id}, whose {candidate.intent.field} is another "
            "one than was sent"
        )
        return Move(Event.MISANSWERED, answer.subscriber_id, answer.status, words)
    if is_of_base is None or is_asked_for is None:
        lacking = "base" if is_of_base is None else candidate.intent.field
        words = (
            f"the service answered with subscriber {answer.subscriber_id} without its {lacking} (service-api.md 4.2)"
        )
        return Move(Event.MISANSWERED, answer.subscriber_id, answer.status, words)
    altered = altered_fields(candidate.sent, answer.subscriber)
    return Move(Event.ANSWERED, answer.subscriber_id, answer.status, altered=altered)


def _is_of_base(answer: Created, base: Base, asked_name: str | None) -> bool | None:
    """Return whether the answer has the base of the request, or None if the answer has neither its Id nor its name.

    Compare the Id if it is known, and the name if the job gives a name. A base with another name is another base.
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


def _is_asked_for(answer: Created, candidate: Candidate) -> bool | None:
    """Return whether the answer has the identity that was sent, or None if the answer lacks the identity."""
    identity = candidate.intent.field
    answered = answer.read(identity)
    if answered is None or answered == candidate.sent[identity]:  # nearly always; spares the normal form
        return None if answered is None else True
    return isinstance(answered, str) and normalise_identity(identity, answered) == candidate.name


def choose_recorded_move(candidate: Candidate, move: Move) -> Move:
    """Return the move to record. A create that never left has no entry afterwards, unless the entry may be the only
    record of a subscriber: then it goes back to its earlier state, with its body, for a later run (architecture
    4.4)."""
    if move.event is Event.NOT_SENT and candidate.entry_state is State.UNKNOWN:
        return replace(move, event=Event.LOST)
    if move.event is Event.NOT_SENT and candidate.refused is not None:
        status, words = candidate.refused
        return Move(Event.REFUSED, status=status, message=words)
    return move
