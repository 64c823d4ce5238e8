"""The people of a simulation. Each person has a number, and the person's addresses contain the number.

So the checks recognise a person without the code of the product that compares identities.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

_NUMBER_PATTERN = re.compile(r"\d+")
_LOCAL_PARTS = ("{n}", "ann{n}", "{n}", "joann{n}+news", "Ann.Lee{n}", "BOB{n}", "jörg{n}", "o-hara{n}", "łukasz+{n}")
_DOMAINS = ("x.org", "x.org", "x.org", "Example.com", "bücher.example", "xx.org")
_SPELLINGS_OF_O = ("ö", "o\u0308")  # two encodings of one letter


@dataclass(frozen=True, slots=True)
class Person:
    """A person, and the values that the rows of the person may have."""

    number: int
    spellings: tuple[str, ...]  # ways to write the email address, which all mean the same address
    client_user_id: str
    first_run_number_with_required_fields: int  # earlier rows of the person lack a required field


@dataclass(slots=True)
class People:
    """All people of a scenario."""

    identity_field: str  # the field that identifies a subscriber in the job
    person_by_number: dict[int, Person] = field(default_factory=dict)  # by number, from 1
    _number_by_client_user_id: dict[str, int] = field(default_factory=dict)

    def add(
        self,
        rng: Random,
        *,
        first_run_number_with_required_fields: int = 0,
        person_with_similar_id: Person | None = None,
    ) -> Person:
        """Add and return a person. The ids of the person and of `person_with_similar_id` differ only in their case."""
        person_number = len(self.person_by_number) + 1
        client_user_id = f"u{person_number}"
        if (
            person_with_similar_id is not None
            and person_with_similar_id.client_user_id.upper() not in self._number_by_client_user_id
        ):
            client_user_id = person_with_similar_id.client_user_id.upper()
        person = Person(
            person_number, _draw_spellings(person_number, rng), client_user_id, first_run_number_with_required_fields
        )
        self.person_by_number[person_number] = person
        self._number_by_client_user_id[client_user_id] = person_number
        return person

    def find_person_number(self, subscriber_object: Mapping[str, Any]) -> int:
        """Return the number of the person to whom a subscriber in the service's JSON belongs, or 0 for anybody else."""
        if self.identity_field == "client_user_id":
            return self._number_by_client_user_id.get(str(subscriber_object.get("ClientUserId") or "").strip(), 0)
        local_part = str(subscriber_object.get("Email") or "").partition("@")[0]
        match = _NUMBER_PATTERN.search(local_part)
        return int(match[0]) if match and int(match[0]) in self.person_by_number else 0


def _draw_spellings(person_number: int, rng: Random) -> tuple[str, ...]:
    local_part = rng.choice(_LOCAL_PARTS).format(n=person_number)
    domain = rng.choice(_DOMAINS)
    address = f"{local_part}@{domain}"
    spellings = [address, address.lower(), address.upper(), f" {address}"]
    if "ö" in address:
        spellings.append(address.replace(*_SPELLINGS_OF_O))
    if domain.startswith("bücher"):
        spellings.append(f"{local_part}@xn--bcher-kva.example")
    return tuple(dict.fromkeys(spellings))
