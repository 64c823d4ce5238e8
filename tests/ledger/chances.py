"""What Hypothesis may do to a ledger: whom its moves name, and what they tell."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.ledger.model import STEPS, Step, Telling

PEOPLE = [bytes([number]) * 16 for number in (0, 1, 2, 254, 255)]
KINDS = ["422 no", "400 a\0b"]

people = st.lists(st.sampled_from(PEOPLE), min_size=1, max_size=3, unique=True)
tellings = st.builds(
    Telling,
    run_key=st.just(0),
    body=st.binary(max_size=20),
    fingerprint=st.binary(min_size=8, max_size=8),
    subscriber_id=st.sampled_from([0, 7, 2**31, 2**63 - 1]),
    words=st.text(alphabet=st.characters(exclude_characters="\0"), max_size=20),
)
names = st.sampled_from(["News", "Shop"])
service_ids = st.sampled_from([1, 2])


@dataclass
class Planned:
    """One move that a transaction is to make: over whom, and whether they are chosen to fit."""

    step: Step
    base: int
    people: Sequence[bytes]
    is_aimed: bool
    telling: Telling


planned = st.builds(Planned, st.sampled_from(STEPS), st.integers(0, 9), people, st.booleans(), tellings)
