"""What is to become of a row, by its entry."""

import pytest

from connector.ledger import Entry
from connector.load.candidates import Decision, decide_row
from connector.states import State

SAME, OTHER = b"s" * 8, b"o" * 8


def entry(state: State, fingerprint: bytes | None = SAME) -> Entry:
    return Entry(state, 5 if state is State.CONFIRMED else None, fingerprint, None, None, 1)


@pytest.mark.parametrize(
    ("known", "decision"),
    [
        (None, Decision.NEW),
        (entry(State.CONFIRMED), Decision.EXISTS),
        (entry(State.CONFIRMED, OTHER), Decision.COMPARE),
        (entry(State.CONFIRMED, None), Decision.COMPARE),
        (entry(State.REJECTED), Decision.REJECTED),
        (entry(State.REJECTED, OTHER), Decision.AGAIN),
        (entry(State.UNKNOWN), Decision.PENDING),
        (entry(State.SENDING), Decision.PENDING),
        (entry(State.HELD), Decision.HELD),
    ],
)
def test_the_entry_and_the_fingerprint_decide(known: Entry | None, decision: Decision) -> None:
    assert decide_row(known, SAME) is decision
