"""What the ledger says of somebody, in a word and in a sentence for people."""

from connector.ledger import Entry
from connector.states import State

NO_ENTRY = "none"

_MEANINGS = {
    State.SENDING: "is being sent, or was when a run died",
    State.UNKNOWN: "was sent, and it is not known what became of it: connector retry settles it",
    State.HELD: "was sent, proved absent, and is left to you: connector retry --resend-held or --drop-held",
}


def name_state(entry: Entry | None) -> str:
    """`none`, or the name of the entry's state."""
    return NO_ENTRY if entry is None else entry.state.name.lower()


def explain_missing(entry: Entry | None, *, is_id_listed: bool) -> str:
    """Why somebody may be missing; `is_id_listed`: the id that the ledger knows of them is still on the list."""
    if entry is None:
        return "never sent"
    if entry.state is State.REJECTED:
        return f"the service rejected it ({entry.status}): {entry.message or 'no words'}"
    if entry.state is State.CONFIRMED and is_id_listed:
        return f"was there as {entry.subscriber_id}, an id that is listed under another identity or base now"
    if entry.state is State.CONFIRMED:
        return f"was there as {entry.subscriber_id}, and is not listed any more"
    return _MEANINGS[entry.state]
