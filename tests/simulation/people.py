"""The people of a simulation: each is a number, and their addresses and ids carry it, so that they are recognised
without the program's own idea of what makes two the same."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

_NUMBER = re.compile(r"\d+")
_LOCALS = ("{n}", "ann{n}", "{n}", "joann{n}+news", "Ann.Lee{n}", "BOB{n}", "jörg{n}", "o-hara{n}", "łukasz+{n}")
_DOMAINS = ("x.org", "x.org", "x.org", "Example.com", "bücher.example", "xx.org")
_COMPOSED = ("ö", "o\u0308")  # one letter, written in two ways


@dataclass(frozen=True, slots=True)
class Person:
    """`spellings`: ways to write the address, all of them one identity; `id` what the client's own system calls them.

    From night `accepted_from` on their rows have all that the service requires (0: always).
    """

    number: int
    spellings: tuple[str, ...]
    client_user_id: str
    accepted_from: int


@dataclass(slots=True)
class People:
    """Everybody, by number (from 1)."""

    identity: str  # the field that the job knows them by
    persons: dict[int, Person] = field(default_factory=dict)
    _by_id: dict[str, int] = field(default_factory=dict)

    def add(self, random: Random, *, accepted_from: int = 0, twin: Person | None = None) -> Person:
        """One more; a `twin` has an id that differs in its case alone."""
        number = len(self.persons) + 1
        client_user_id = f"u{number}"
        if twin is not None and twin.client_user_id.upper() not in self._by_id:
            client_user_id = twin.client_user_id.upper()
        person = Person(number, _spell(number, random), client_user_id, accepted_from)
        self.persons[number] = person
        self._by_id[client_user_id] = number
        return person

    def recognise(self, wire: Mapping[str, Any]) -> int:
        """Who a subscriber in the service's JSON is; 0 for nobody of ours."""
        if self.identity == "client_user_id":
            return self._by_id.get(str(wire.get("ClientUserId") or "").strip(), 0)
        local = str(wire.get("Email") or "").partition("@")[0]
        found = _NUMBER.search(local)
        return int(found[0]) if found and int(found[0]) in self.persons else 0


def _spell(number: int, random: Random) -> tuple[str, ...]:
    local = random.choice(_LOCALS).format(n=number)
    domain = random.choice(_DOMAINS)
    address = f"{local}@{domain}"
    spellings = [address, address.lower(), address.upper(), f" {address}"]
    if "ö" in address:
        spellings.append(address.replace(*_COMPOSED))
    if domain.startswith("bücher"):
        spellings.append(f"{local}@xn--bcher-kva.example")
    return tuple(dict.fromkeys(spellings))
