"""What an answer to a create says of its entry. Pure: no clock, no I/O; the one place where success is recognised."""

from connector.fields import fold_base_name, normalise_identity
from connector.ledger import Base
from connector.load.candidates import Candidate
from connector.service import TOO_MANY_REQUESTS, Ambiguous, Created, NotSent, Refused, altered_fields, echoes
from connector.states import Event
from connector.values import hot_value

ENDS_A_RUN = frozenset({401, 403, 404, 405})
"""Refusals that say something of the token or the address rather than of a row, when the first create meets them."""

NOT_FINAL = ENDS_A_RUN | {408, 409, TOO_MANY_REQUESTS}
"""Refusals that speak of the token, the address or the pace, or follow creates that took effect: the next run looks the
entry up, and sends it again once it is proved absent (architecture 4.8)."""


@hot_value
class Verdict:
    """The event for the ledger, and what goes with it.

    `answered_base` are Id and name of the base that was answered, where it is another one than was meant; `is_stale`:
    not sent, and to be looked for anew.
    """

    event: Event
    subscriber_id: int | None = None
    status: int | None = None
    message: str = ""
    altered: tuple[str, ...] = ()
    answered_base: tuple[int | None, str | None] | None = None
    is_stale: bool = False


def judge_answer(
    answer: Created | Refused | Ambiguous | NotSent,
    candidate: Candidate,
    base: Base,
    asked_name: str | None = None,
) -> Verdict:
    """What this answer to this candidate's create means (architecture 2; service-api.md 4.2).

    Success is a Subscriber.Id with the base and the identity that were sent (and the base's name that the job gave, if
    it gave one, trimmed and case-folded). A success with another base or identity is MISANSWERED; anything else that is
    no refusal leaves it unknown.
    """
    if isinstance(answer, Refused):
        return Verdict(Event.REFUSED, status=answer.status, message=answer.message)
    if isinstance(answer, Ambiguous):
        return Verdict(Event.LOST, status=answer.status, message=answer.message)
    if isinstance(answer, NotSent):
        return Verdict(Event.NOT_SENT, message=answer.message)
    is_echo = echoes(candidate.sent, answer.subscriber)
    if not _is_of_base(answer, base, asked_name):
        other = read_base(answer)
        words = f"the service answered with subscriber {answer.subscriber_id} of another base: {describe_other(*other)}"
        return Verdict(Event.MISANSWERED, answer.subscriber_id, answer.status, words, answered_base=other)
    if not (is_echo or _is_asked_for(answer, candidate)):
        words = (
            f"the service answered with subscriber {answer.subscriber_id}, whose {candidate.intent.field} is another "
            "one than was sent"
        )
        return Verdict(Event.MISANSWERED, answer.subscriber_id, answer.status, words)
    altered = () if is_echo else altered_fields(candidate.sent, answer.read_all())
    return Verdict(Event.ANSWERED, answer.subscriber_id, answer.status, altered=altered)


def _is_of_base(answer: Created, base: Base, asked_name: str | None) -> bool:
    """By Id where that is known; by name where the job gave it: a base that bears another name now is another base."""
    service_id = answer.read("base_id")
    if base.service_id is not None and (type(service_id) is not int or service_id != base.service_id):
        return False
    answered = answer.read("base_name")
    return asked_name is None or (isinstance(answered, str) and fold_base_name(answered) == fold_base_name(asked_name))


def read_base(answer: Created) -> tuple[int | None, str | None]:
    """Id and name of the answered base; None for what is missing or of another type."""
    service_id, name = answer.read("base_id"), answer.read("base_name")
    return service_id if type(service_id) is int else None, name if isinstance(name, str) else None


def describe_other(service_id: int | None, name: str | None) -> str:
    """A base that was answered, for a person: `Newsletter (id 9)`."""
    if service_id is None:
        return name or "none"
    return f"id {service_id}" if name is None else f"{name} (id {service_id})"


def _is_asked_for(answer: Created, candidate: Candidate) -> bool:
    identity = candidate.intent.field
    answered = answer.read(identity)
    if answered == candidate.sent[identity]:  # nearly always; spares the normal form
        return True
    return isinstance(answered, str) and normalise_identity(identity, answered) == candidate.name
