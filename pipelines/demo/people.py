"""The demo's CSV: people as a spreadsheet holds them, some of them twice, some of them spoilt.

What each spoilt row should lead to is known here, so that the demo can say whether the import was right.
"""

import csv
import io
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from pipelines.demo.names import NOTES, REGIONS
from pipelines.demo.person import Person, draw_people, take

COLUMNS: tuple[str, ...] = (
    "Email Address", "First Name", "Last Name", "Gender", "Phone Number", "Tags", "Client User ID",
    "Country", "City", "State", "Zip", "Address Line 1", "Birthday", "Notes",
)  # fmt: skip
"""The file's header; Notes is nothing that the service knows."""

SMALLEST = 50
"""Below that there is no room for one row of each kind of dirt."""

Cells = list[str]
Spoil = Callable[[Random, Cells], bytes]
Placed = tuple[float, bytes, Person | None]
"""A record, where it stands in the file (0 to 1), and the person that it brings in."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What an import of the file should find: `rows` records, of which `invalid` and `duplicates`, and the rest
    `people`, in the file's order. `faults` counts the invalid by kind; `zips_omitted` of the people lose their zip."""

    rows: int
    invalid: int
    duplicates: int
    zips_omitted: int
    faults: Mapping[str, int]
    people: tuple[Person, ...]


def write_people(path: Path, count: int, seed: int) -> Expected:
    """Write a CSV of `count` records (UTF-8 with a BOM, CRLF) to `path`; the same count and seed give the same bytes.

    Raises ValueError for a count below `SMALLEST`.
    """
    if count < SMALLEST:
        raise ValueError(f"at least {SMALLEST} people, so that every kind of dirt is among them")
    random = Random(seed)  # noqa: S311 - made-up people need no secrets, but the same ones each time
    faults = {kind: max(1, round(count * share)) for kind, (share, _) in DIRT.items()}
    duplicates = max(1, round(count * 0.03))
    strangers = draw_people(random)
    people = take(strangers, count - duplicates - sum(faults.values()))
    originals = [(random.random(), person) for person in people]
    placed: list[Placed] = [(place, _write_cells(_vary(random, person)), person) for place, person in originals]
    placed += [_place_duplicate(random, *random.choice(originals)) for _ in range(duplicates)]
    for kind, number in faults.items():
        spoil = DIRT[kind][1]
        placed += [(random.random(), spoil(random, _cells(person)), None) for person in take(strangers, number)]
    placed.sort(key=lambda row: row[0])
    records = [record for _, record, _ in placed]
    path.write_bytes("\ufeff".encode() + _write_cells(list(COLUMNS)) + _join(records, random))
    return Expected(
        rows=count,
        invalid=sum(faults.values()),
        duplicates=duplicates,
        zips_omitted=sum(bool(person.zip) and not person.is_zip_sendable for person in people),
        faults=faults,
        people=tuple(person for _, _, person in placed if person is not None),
    )


def _join(records: list[bytes], random: Random) -> bytes:
    """The records with two blank lines among them, as an editor leaves them: they are no rows."""
    blank = {random.randrange(len(records)), len(records) - 1}
    return b"".join(record + (b"\r\n" if number in blank else b"") for number, record in enumerate(records))


def _cells(person: Person) -> Cells:
    return [
        person.email, person.first_name, person.last_name, person.gender, person.phone, ",".join(person.tags),
        person.client_user_id, person.country, person.city, person.state, person.zip, person.line1, person.birthday, "",
    ]  # fmt: skip


def _write_cells(cells: Cells) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().encode()


def _vary(random: Random, person: Person) -> Cells:
    """The person's cells as different hands type them; an import understands all of it as the same person."""
    cells = _cells(person)
    cells[-1] = random.choice(NOTES)
    habit = random.random()
    if habit < 0.05:
        cells[0] = f"  {cells[0]} "
    elif habit < 0.10:
        cells[3] = cells[3].upper()
    elif habit < 0.15:
        cells[7] = random.choice(_other_names(person.country))
    elif habit < 0.18:
        cells[5] = " , ".join(person.tags)
    return cells


def _other_names(country: str) -> tuple[str, ...]:
    return next(region.also for region in REGIONS if region.country == country)


def _place_duplicate(random: Random, place: float, person: Person) -> Placed:
    """The same person further down the file, the address in another spelling, half of them with another phone."""
    spellings = (
        person.email.upper(),
        f" {person.email}\t",
        unicodedata.normalize("NFD", person.email),
        "@".join((person.email.split("@")[0], to_a_labels(person.email.split("@")[1]))),
    )
    others = [spelling for spelling in spellings if spelling != person.email]
    phone = "+44 20 7946 0000" if random.random() < 0.5 else person.phone
    cells = _cells(replace(person, email=random.choice(others), phone=phone))
    return random.uniform(place, 1.0), _write_cells(cells), None


def to_a_labels(domain: str) -> str:
    """`bücher.example.com` as the DNS knows it, `xn--bcher-kva.example.com`."""
    return domain.encode("idna").decode("ascii")


def _replacing(column: str, *bad: str) -> Spoil:
    """Dirt that is one cell with something else in it; `{}` stands for what the cell held."""
    place = COLUMNS.index(column)

    def spoil(random: Random, cells: Cells) -> bytes:
        cells[place] = random.choice(bad).format(cells[place])
        return _write_cells(cells)

    return spoil


def _spoil_twice(random: Random, cells: Cells) -> bytes:
    cells[0], cells[12] = "nobody", "yesterday"
    return _write_cells(cells)


def _drop_cells(random: Random, cells: Cells) -> bytes:
    return _write_cells(cells[: random.randint(3, len(cells) - 1)])


def _split_a_cell(random: Random, cells: Cells) -> bytes:
    """A comma that nobody quoted: one cell too many."""
    line = _write_cells([*cells[:-1], "moved"])
    return line.replace(b",moved", b",moved, away")


def _encode_otherwise(random: Random, cells: Cells) -> bytes:
    """A line that another program added in its own encoding: its é is no UTF-8."""
    return (
        _write_cells([f"jose.munoz{cells[6]}@example.com", "José", "Muñoz", *[""] * (len(cells) - 3)])
        .decode()
        .encode("cp1252")
    )


DIRT: Mapping[str, tuple[float, Spoil]] = {
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
