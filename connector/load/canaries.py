"""What the first creates have come to (design 4.9): unknown, or refused."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Canaries:
    """Of a run until one create of it is answered, whichever base that is in; then of each base by itself.

    `unknown`: those who are (different ones: one alone is sent again as often as anybody); `refused`: how many in which
    way; `lost`: how many answers in a row, of a canary or not, have told nothing.
    """

    unknown: set[tuple[int, bytes]] = field(default_factory=set)  # key of the base, identity
    refused: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    is_answered: bool = False
