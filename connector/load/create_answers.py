"""Decides which state transition of an entry follows from the answer to its create (architecture 2; service-api.md
4.2). The functions are pure."""

from dataclasses import replace

from connector.fields import fold_base_name, normalise_identity
from connector.ledger.entries import Transition
from connector.ledger.store import Base
from connector.load.candidates import Candidate, describe_base
from connector.service.wire import AmbiguousResult, CreatedAnswer, NotSent, Refused, find_altered_fields, read_base
from connector.states import Event, State

CreateAnswer = CreatedAnswer | Refused | AmbiguousResult | NotSent


def classify_answer(
    answer: CreateAnswer, candidate: Candidate, base: Base, requested_base_name: str | None
) -> Transition:
    """Return the state transition of an entry after this answer to its create (architecture 2; service-api.md 4.2).

    - ANSWERED: the answer has a Subscriber.Id, and the base and identity that were sent. If the job gives the base by
      name, the name must be the same, too (trimmed and case-folded).
    - MISANSWERED: the answer has another base or identity, or lacks the base or the identity.
    - REFUSED: the service refused the create. NOT_SENT: the request did not leave.
    - LOST: every other answer.
    """
    if isinstance(answer, Refused):
        return Transition(
            Event.REFUSED,
            status=answer.status,
            message=answer.message,
            is_refusal_possibly_temporary=answer.may_be_temporary,
        )
    if isinstance(answer, AmbiguousResult):
        return Transition(Event.LOST, status=answer.status, message=answer.message)
    if isinstance(answer, NotSent):
        return Transition(Event.NOT_SENT, message=answer.message)
    has_same_base = _has_same_base(answer, base, requested_base_name)
    has_same_identity = _has_same_identity(answer, candidate)
    message_beginning = f"the service answered with subscriber {answer.subscriber_id}"
    if has_same_base is False:
        other_base = read_base(answer.subscriber)
        message = f"{message_beginning} of another base: {describe_base(*other_base)}"
        return Transition(Event.MISANSWERED, answer.subscriber_id, answer.status, message, answered_base=other_base)
    if has_same_identity is False:
        message = f"{message_beginning}, whose {candidate.intent.identity_field} differs from the one that was sent"
        return Transition(Event.MISANSWERED, answer.subscriber_id, answer.status, message)
    if has_same_base is None or has_same_identity is None:
        missing_field = "base" if has_same_base is None else candidate.intent.identity_field
        message = f"{message_beginning} without its {missing_field} (service-api.md 4.2)"
        return Transition(Event.MISANSWERED, answer.subscriber_id, answer.status, message)
    altered_fields = find_altered_fields(candidate.sent_values, answer.subscriber)
    return Transition(Event.ANSWERED, answer.subscriber_id, answer.status, altered_fields=altered_fields)


def _has_same_base(answer: CreatedAnswer, base: Base, requested_base_name: str | None) -> bool | None:
    """Return whether the answer has the base of the request, or None if the answer shows no base to compare.

    Compare the Id if the run knows the Id of the base, and the name if the job names the base.
    """
    base_id, base_name = answer.read("base_id"), answer.read("base_name")
    is_same_id = is_same_name = None
    if base.service_id is not None and base_id is not None:
        is_same_id = type(base_id) is int and base_id == base.service_id
    if requested_base_name is not None and base_name is not None:
        is_same_name = isinstance(base_name, str) and fold_base_name(base_name) == fold_base_name(requested_base_name)
    if False in (is_same_id, is_same_name):
        return False
    is_base_comparable = base.service_id is not None or requested_base_name is not None
    return True if True in (is_same_id, is_same_name) or not is_base_comparable else None


def _has_same_identity(answer: CreatedAnswer, candidate: Candidate) -> bool | None:
    """Return whether the answer has the identity that was sent, or None if the answer lacks the identity."""
    field = candidate.intent.identity_field
    text = answer.read(field)
    if text is None or text == candidate.sent_values[field]:  # in nearly all cases, no normal form is needed
        return None if text is None else True
    return isinstance(text, str) and normalise_identity(field, text) == candidate.normal_identity


def choose_recorded_transition(candidate: Candidate, transition: Transition) -> Transition:
    """Return the state transition to record. If a create never left, its entry is usually deleted. If the entry was
    UNKNOWN or REJECTED before this create, the entry gets its old state again and keeps its body for a later run
    (architecture 4.4).
    """
    if transition.event is Event.NOT_SENT and candidate.entry_state is State.UNKNOWN:
        return replace(transition, event=Event.LOST)
    if transition.event is Event.NOT_SENT and candidate.earlier_refusal is not None:
        status, message = candidate.earlier_refusal
        return Transition(Event.REFUSED, status=status, message=message)
    return transition
