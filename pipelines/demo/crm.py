"""The demo's CRM: the people of the file a while later, in a SQLite database with columns and habits of its own."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from random import Random

from pipelines.demo.person import Person, draw_people, take

_FIRST_NUMBER = 5_000_000  # customers that the CRM added: keys that no file of the demo reaches

_CREATE = """
create table customers (
    customer_number text primary key, email_address text not null, fname text, lname text, sex text, phone text,
    segments text, country_code text, town text, region text, postcode text, street text, dob text,
    account_manager text, updated_at text not null
)
"""

_SEX = {"female": "F", "male": "M", "": None}


@dataclass(frozen=True, slots=True)
class ExpectedCrm:
    """What a sync should find after the file was imported: `rows` in all, of which `added` are new, `changed` differ
    from what was sent and `unchanged` do not."""

    rows: int
    unchanged: int
    changed: tuple[Person, ...]
    added: tuple[Person, ...]


def write_crm(path: Path, people: Sequence[Person], *, added: int, changed: int, seed: int) -> ExpectedCrm:
    """Write `people` to a new SQLite database at `path`, `changed` of them changed and `added` others among them.

    Raises ValueError when more are to be changed than there are, FileExistsError when there is a file already.
    """
    if changed > len(people):
        raise ValueError(f"{changed} of {len(people)} people cannot be changed")
    if path.exists():
        raise FileExistsError(f"{path} is there already")
    random = Random(seed)  # noqa: S311 - made-up people need no secrets, but the same ones each time
    moved = {place: _change(random, people[place]) for place in random.sample(range(len(people)), changed)}
    new = _draw_new(random, people, added)
    everyone = [moved.get(place, person) for place, person in enumerate(people)] + new
    random.shuffle(everyone)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(_CREATE)
        marks = ", ".join("?" * 15)
        database.executemany(f"insert into customers values ({marks})", [_row(random, person) for person in everyone])  # noqa: S608 - only question marks
    return ExpectedCrm(len(everyone), len(people) - changed, tuple(moved.values()), tuple(new))


def _draw_new(random: Random, people: Sequence[Person], count: int) -> list[Person]:
    known = {person.email.lower() for person in people}
    strangers = (
        person for person in draw_people(random, first_number=_FIRST_NUMBER) if person.email.lower() not in known
    )
    return list(take(strangers, count))


def _change(random: Random, person: Person) -> Person:
    """The person after something happened: a wedding, a move, a new phone, or an interest."""
    happened: Callable[[Person], Person] = random.choice((_marry, _move, _get_phone, _join_club))
    return happened(person)


def _marry(person: Person) -> Person:
    return replace(person, last_name=f"{person.last_name}-Example")


def _move(person: Person) -> Person:
    return replace(person, country="IS", city="Ísafjörður", state="", zip="400", line1="Aðalstræti 1")


def _get_phone(person: Person) -> Person:
    return replace(person, phone="+44 20 7946 0123")  # reserved for fiction by Ofcom


def _join_club(person: Person) -> Person:
    return replace(person, tags=(*person.tags, "club 2027"))


def _row(random: Random, person: Person) -> tuple[str | None, ...]:
    return (
        person.client_user_id,
        person.email,
        person.first_name,
        person.last_name,
        _SEX[person.gender],
        person.phone or None,
        "|".join(person.tags),
        person.country,
        person.city,
        person.state or None,
        person.zip,
        person.line1,
        date.fromisoformat(person.birthday).strftime("%d/%m/%Y") if person.birthday else None,
        random.choice(("Avery", "Blake", "Casey")),
        f"2026-{random.randint(1, 9):02d}-{random.randint(1, 28):02d} 08:30:00",
    )
