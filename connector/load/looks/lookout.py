"""What a run has learnt of the ways to look people up: how long the list is, who is on it, which filters are of use.

Only memory: it asks nothing and decides nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from connector.fields import BY_NAME
from connector.ledger import Known
from connector.subscribers import CAPITALS, SpellingClass, classify, is_plain

_SPECIMENS_OF_A_CLASS = 3  # as many as are tried before the filter is held to fail: one or two may have vanished
_CLASSES = 500  # of all that a list of millions holds; a class beyond them has no control, and is swept for
_IDENTITIES = tuple((name, BY_NAME[name].path[0]) for name in ("email", "client_user_id"))


@dataclass(frozen=True, slots=True)
class Specimen:
    """Somebody on the list, with the text of one field as the service has it."""

    subscriber_id: int
    text: str = field(repr=False)


@dataclass(slots=True)
class Survey:
    """What was seen of the list at `taken_at` (monotonic): TotalCount, the requests that a sweep takes (each None where
    not known), and a few of those on it by the class of their identities."""

    taken_at: float
    total: int | None = None
    pages: int | None = None
    specimens: dict[SpellingClass, list[Specimen]] = field(default_factory=dict)
    _has_enough_plain: set[str] = field(default_factory=set)

    def note(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        """Keep a few of each class of these subscribers, of whatever base."""
        for wire in wire_objects:
            for name, path in _IDENTITIES:
                text = wire.get(path)
                if not isinstance(text, str) or not text or (name in self._has_enough_plain and is_plain(name, text)):
                    continue
                if type(wire.get("Id")) is int and _can_be_asked_for(text):
                    self._keep(classify(name, text), Specimen(wire["Id"], text))

    def _keep(self, spelling_class: SpellingClass, specimen: Specimen) -> None:
        kept = self.specimens.get(spelling_class)
        if kept is None and len(self.specimens) < _CLASSES:
            self.specimens[spelling_class] = [specimen]
        elif kept is not None and len(kept) < _SPECIMENS_OF_A_CLASS:
            kept.append(specimen)
        elif not spelling_class.traits:
            self._has_enough_plain.add(spelling_class.field)

    def find_with_capitals(self) -> list[Specimen]:
        """Those whose email is plain but for its capitals."""
        return [
            each
            for spelling_class, kept in self.specimens.items()
            if spelling_class.field == "email" and spelling_class.traits and spelling_class.traits <= CAPITALS
            for each in kept
        ]


@dataclass(slots=True)
class Lookout:
    """The state of one run, shared by all its looks.

    `known` are some of whom the account guard could not tell whether they are there: until a sweep has shown one of
    them, nothing that a sweep shows is recorded, and no filter is asked before a sweep. `useless` are the fields whose
    filters are ignored or cannot be asked, `tells_capitals_apart` whether the filter by email does;
    `is_list_unreadable`: the last sweep was not complete; `swept`: the witnesses that it showed.
    """

    survey: Survey | None = None
    known: tuple[Known, ...] = ()
    useless: set[str] = field(default_factory=set)
    tells_capitals_apart: bool = False
    is_list_unreadable: bool = False
    unreadable_because: str = ""
    swept: frozenset[int] = frozenset()


def _can_be_asked_for(text: str) -> bool:
    """Whether it can be written in a URL: half a character, as JSON may hold, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
