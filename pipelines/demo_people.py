"""The demo's data: a CSV as a spreadsheet holds it, some rows twice, some spoilt, and the same subscribers in a CRM.

What each row must lead to is known here, so that the demo can say whether import and sync were right.
"""

import csv
import io
import sqlite3
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from itertools import islice
from pathlib import Path
from random import Random

from connector.sandbox import Person, draw_people

COLUMNS: tuple[str, ...] = (
    "Email Address", "First Name", "Last Name", "Gender", "Phone Number", "Tags", "Client User ID",
    "Country", "City", "State", "Zip", "Address Line 1", "Birthday", "Notes",
)  # fmt: skip
"""The file's header; Notes is nothing that the service knows."""

_NOTES = (
    "", "", "", 'Said: "call me after 5, not before"', "prefers email; no calls",
    "moved in 2024,\nnew address confirmed", "a | b; c, d\twith a tab", "=HYPERLINK is not a formula here",
)  # fmt: skip

SMALLEST = 50
"""Below that there is no room for one row of each kind of dirt."""

_Cells = list[str]
_Spoil = Callable[[Random, _Cells], bytes]
_Placed = tuple[float, bytes, Person | None]
"""A record, where it stands in the file (0 to 1), and the person that it brings in."""


# the file


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """What an import of the file should find: `rows` records, of which `invalid` and `duplicates`, and the rest
    `people`, in the file's order. `faults` counts the invalid by kind; `zips_omitted` valid rows lose their zip."""

    rows: int
    invalid: int
    duplicates: int
    zips_omitted: int
    faults: Mapping[str, int]
    people: tuple[Person, ...]


def write_people(path: Path, count: int, seed: int) -> ExpectedFile:
    """Write a CSV of `count` records (UTF-8 with a BOM, CRLF) to `path`; the same count and seed give the same bytes.

    Raises ValueError for a count below `SMALLEST`.
    """
    if count < SMALLEST:
        raise ValueError(f"at least {SMALLEST} subscribers are needed, so that every kind of dirt is among them")
    random = Random(seed)  # noqa: S311 - made-up rows need no secrets, but the same ones each time
    faults = {kind: max(1, round(count * share)) for kind, (share, _) in DIRT.items()}
    duplicates = max(1, round(count * 0.03))
    drawn = draw_people(random)
    people = list(islice(drawn, count - duplicates - sum(faults.values())))
    originals = [(random.random(), person) for person in people]
    placed: list[_Placed] = [(where, _write_cells(_vary(random, person)), person) for where, person in originals]
    placed += [_place_duplicate(random, *random.choice(originals)) for _ in range(duplicates)]
    for kind, number in faults.items():
        spoil = DIRT[kind][1]
        placed += [(random.random(), spoil(random, _list_cells(person)), None) for person in islice(drawn, number)]
    placed.sort(key=lambda row: row[0])
    records = [record for _, record, _ in placed]
    path.write_bytes("\ufeff".encode() + _write_cells(list(COLUMNS)) + _join(records, random))
    return ExpectedFile(
        rows=count,
        invalid=sum(faults.values()),
        duplicates=duplicates,
        zips_omitted=sum(bool(person.zip) and not person.is_zip_sendable for person in people),
        faults=faults,
        people=tuple(person for _, _, person in placed if person is not None),
    )


def _join(records: list[bytes], random: Random) -> bytes:
    """Return the records with two blank lines among them, as an editor leaves them: they are no rows."""
    blank = {random.randrange(len(records)), len(records) - 1}
    return b"".join(record + (b"\r\n" if number in blank else b"") for number, record in enumerate(records))


def _list_cells(person: Person) -> _Cells:
    return [
        person.email, person.first_name, person.last_name, person.gender, person.phone, ",".join(person.tags),
        person.client_user_id, person.country, person.city, person.state, person.zip, person.line1, person.birthday, "",
    ]  # fmt: skip


def _write_cells(cells: _Cells) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().encode()


def _vary(random: Random, person: Person) -> _Cells:
    """Return the person's cells as different hands type them; an import reads all of them as the same person."""
    cells = _list_cells(person)
    cells[-1] = random.choice(_NOTES)
    habit = random.random()
    if habit < 0.05:
        cells[0] = f"  {cells[0]} "
    elif habit < 0.10:
        cells[3] = cells[3].upper()
    elif habit < 0.15:
        cells[7] = random.choice(person.country_names)
    elif habit < 0.18:
        cells[5] = " , ".join(person.tags)
    return cells


def _place_duplicate(random: Random, where: float, person: Person) -> _Placed:
    """Return the same person further down the file, the address spelt otherwise, half of them with another phone."""
    local, _, domain = person.email.partition("@")
    spellings = (
        person.email.upper(),
        f" {person.email}\t",
        unicodedata.normalize("NFD", person.email),
        f"{local}@{domain.encode('idna').decode('ascii')}",
    )
    others = [spelling for spelling in spellings if spelling != person.email]
    phone = "+44 20 7946 0000" if random.random() < 0.5 else person.phone
    cells = _list_cells(replace(person, email=random.choice(others), phone=phone))
    return random.uniform(where, 1.0), _write_cells(cells), None


# what can be wrong with a record


def _replacing(column: str, *bad: str) -> _Spoil:
    """Return dirt that is one cell with something else in it; `{}` stands for what the cell held."""
    index = COLUMNS.index(column)

    def spoil(random: Random, cells: _Cells) -> bytes:
        cells[index] = random.choice(bad).format(cells[index])
        return _write_cells(cells)

    return spoil


def _spoil_twice(random: Random, cells: _Cells) -> bytes:
    cells[0], cells[12] = "nobody", "yesterday"
    return _write_cells(cells)


def _drop_cells(random: Random, cells: _Cells) -> bytes:
    return _write_cells(cells[: random.randint(3, len(cells) - 1)])


def _split_a_cell(random: Random, cells: _Cells) -> bytes:
    """Return a record with a comma that was not quoted: one cell too many."""
    return _write_cells([*cells[:-1], "moved"]).replace(b",moved", b",moved, away")


def _encode_otherwise(random: Random, cells: _Cells) -> bytes:
    """Return a line that another program added in its own encoding: its é is no UTF-8."""
    record = _write_cells([f"jose.munoz{cells[6]}@example.com", "José", "Muñoz", *[""] * (len(cells) - 3)])
    return record.decode().encode("cp1252")


DIRT: Mapping[str, tuple[float, _Spoil]] = {
    "email": (0.02, _replacing("Email Address", "n/a", "{}@", "at.example.com", ".{}", "two {}", "a..b@example.com")),
    "no_email": (0.005, _replacing("Email Address", "", "   ")),
    "birthday": (0.01, _replacing("Birthday", "1990-02-30", "0000-00-00", "unknown", "31.12.1985", "2190-05-01")),
    "gender": (0.004, _replacing("Gender", "x", "f/m", "0")),
    "country": (0.004, _replacing("Country", "ZZ", "Atlantis", "Bavaria")),
    "control_character": (0.002, _replacing("City", "Bad\x07 Homburg", "{}\x1b[0m")),
    "email_and_birthday": (0.002, _spoil_twice),
    "too_few_cells": (0.005, _drop_cells),
    "too_many_cells": (0.003, _split_a_cell),
    "encoding": (0.002, _encode_otherwise),
}
"""What can be wrong with a record: its share of the file, and how it comes about."""


# the CRM

_FIRST_NUMBER = 5_000_000  # customers that the CRM added: keys that no file of the demo reaches

_CREATE = """
create table customers (
    customer_number text primary key, email_address text not null, fname text, lname text, sex text, phone text,
    segments text, country_code text, town text, region text, postcode text, street text, dob text,
    account_manager text, updated_at text not null
)
"""

DRIFTING = {"last_name": "last_name", "phone": "phone", "address_city": "city"}
"""From a field of the service to the attribute of a person."""
_SEX = {"female": "F", "male": "M", "": None}


@dataclass(frozen=True, slots=True)
class ExpectedCrm:
    """What a sync should find after the file was imported: `rows` in all, of which `added` are new, `changed` differ
    from what was sent and `unchanged` do not. `drifted` has (email, field, before, after) of each name, phone and city
    that changed."""

    rows: int
    unchanged: int
    changed: tuple[Person, ...]
    added: tuple[Person, ...]
    drifted: frozenset[tuple[str, str, str, str]]


def write_crm(path: Path, people: Sequence[Person], *, added: int, changed: int, seed: int) -> ExpectedCrm:
    """Write `people` to a new SQLite database at `path`, `changed` of them changed and `added` others among them.

    Raises ValueError when more are to be changed than there are, FileExistsError when there is a file already.
    """
    if changed > len(people):
        raise ValueError(f"{changed} of {len(people)} subscribers cannot be changed")
    if path.exists():
        raise FileExistsError(f"{path} is there already")
    random = Random(seed)  # noqa: S311 - made-up rows need no secrets, but the same ones each time
    moved = {index: _change(random, people[index]) for index in random.sample(range(len(people)), changed)}
    known = {person.email.lower() for person in people}
    drawn = (person for person in draw_people(random, first_number=_FIRST_NUMBER) if person.email.lower() not in known)
    new = list(islice(drawn, added))
    customers = [moved.get(index, person) for index, person in enumerate(people)] + new
    random.shuffle(customers)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(_CREATE)
        marks = ", ".join("?" * 15)
        database.executemany(f"insert into customers values ({marks})", [_row(random, person) for person in customers])  # noqa: S608 - only question marks
    drifted = frozenset(
        (after.email, field, getattr(people[index], name), getattr(after, name))
        for index, after in moved.items()
        for field, name in DRIFTING.items()
        if getattr(after, name) != getattr(people[index], name)
    )
    return ExpectedCrm(len(customers), len(people) - changed, tuple(moved.values()), tuple(new), drifted)


def _change(random: Random, person: Person) -> Person:
    """Return the person after a wedding, a move, a new phone or a new interest."""
    happened = random.choice(("wedding", "move", "phone", "interest"))
    if happened == "wedding":
        return replace(person, last_name=f"{person.last_name}-Example")
    if happened == "move":
        return replace(person, country="IS", city="Ísafjörður", state="", zip="400", line1="Aðalstræti 1")
    if happened == "phone":
        return replace(person, phone="+44 20 7946 0123")  # reserved for fiction by Ofcom
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
