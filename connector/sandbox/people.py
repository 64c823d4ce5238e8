"""Synthetic subscribers in many scripts, drawn by chance from the common names, towns and streets of people.csv.

A row of that file is a part of the world, a cell a list with `; ` between. A name is written `native|latin`, a family
name with two forms `his/hers|latin`, a town `city|state`; a # stands for a digit, in a street for a house number.
"""

import csv
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from itertools import count
from pathlib import Path
from random import Random

_HOSTS = ("mail.example.com", "post.example.org", "inbox.example.net", "example.com", "example.org")
"""Reserved by RFC 2606: no letter can reach a person."""
_WORDED_HOSTS = ("bücher.example.com", "почта.example.org", "例え.example.net")
"""Domains beyond ASCII, each also known by its A-label."""
_TAGS = ("newsletter", "vip", "shop", "Frühbuchung", "loyalty 2026", "événements", "秋のセール", "🎂 birthday club")
_FIRST_BIRTHDAY = date(1931, 1, 1)
_BIRTHDAYS = 75 * 365  # days: the youngest is nearly a grown-up

Region = dict[str, tuple[str, ...]]
"""A row of people.csv: from the column to the entries of its cell."""


@dataclass(frozen=True, slots=True)
class Person:
    """One subscriber as an import understands it: every value clean, "" where nothing is known."""

    email: str
    first_name: str
    last_name: str
    gender: str  # "female", "male" or ""
    phone: str
    tags: tuple[str, ...]
    client_user_id: str
    country: str
    city: str
    state: str
    zip: str  # as it is written: "02134", "SW1A 1AA"
    line1: str
    birthday: str  # YYYY-MM-DD or ""
    latin_name: str  # "given.family"


@cache
def _read_regions() -> tuple[Region, ...]:
    lines = Path(__file__).with_name("people.csv").read_text(encoding="utf-8").splitlines()
    return tuple({name: tuple(cell.split("; ")) for name, cell in row.items()} for row in csv.DictReader(lines))


def draw_people(random: Random) -> Iterator[Person]:
    """Yield persons without end, no two with the same email in any spelling; the same seed yields the same persons.

    Their own keys count from 1.
    """
    taken: set[str] = set()
    for number in count(1):
        yield _draw_person(random, number, taken)


def _draw_person(random: Random, number: int, taken: set[str]) -> Person:
    region = random.choice(_read_regions())
    gender = random.choice(("female", "female", "male", "male", ""))
    is_woman = gender == "female" or (not gender and random.random() < 0.5)
    first, _, given = random.choice(region["women" if is_woman else "men"]).partition("|")
    name, _, family = random.choice(region["families"]).partition("|")
    his, _, hers = name.partition("/")
    city, _, state = random.choice(region["towns"]).partition("|")
    return Person(
        email=_draw_email(random, first, given, family, number, taken),
        first_name=first,
        last_name=(hers or his) if is_woman else his,
        gender=gender,
        phone=_fill(random, region["phone"][0]) if random.random() < 0.7 else "",
        tags=tuple(random.sample(_TAGS, random.choice((0, 0, 1, 1, 2, 3)))),
        client_user_id=f"{number:07d}",
        country=region["country"][0],
        city=city,
        state=state,
        zip=_fill(random, random.choice(region["zips"])),
        line1=_draw_street(random, region),
        birthday=_draw_birthday(random) if random.random() < 0.6 else "",
        latin_name=f"{given}.{family}",
    )


def _draw_email(random: Random, first: str, given: str, family: str, number: int, taken: set[str]) -> str:
    """Return an address in one of the usual forms; a number makes it unique when it is taken."""
    habit = random.random()
    host = random.choice(_HOSTS)
    if habit < 0.02 and all(character.isalpha() for character in first):
        local, host = unicodedata.normalize("NFC", first), random.choice(_WORDED_HOSTS)  # SMTPUTF8 (RFC 6531)
    elif habit < 0.06:
        local, host = f"{given}.{family}", random.choice(_WORDED_HOSTS)
    elif habit < 0.14:
        local = f"{given}.{family}+{random.choice(('news', 'shop', '2026'))}"
    elif habit < 0.22:
        local = f"{given.capitalize()}.{family.capitalize()}"  # sent as written, compared without case
    else:
        local = random.choice((f"{given}.{family}", f"{given[0]}{family}", f"{family}_{given}", f"{given}{family}"))
    email = f"{local}@{host}"
    if _fold(email) in taken:
        name, plus, label = local.partition("+")
        email = f"{name}{number}{plus}{label}@{host}"
    taken.add(_fold(email))
    return email


def _fold(email: str) -> str:
    return unicodedata.normalize("NFC", email).lower()


def _draw_street(random: Random, region: Region) -> str:
    street = random.choice(region["streets"]).replace("#", str(random.randint(1, 180)))
    return f"c/o Example House\n{street}" if random.random() < 0.03 else street  # two lines in one cell


def _draw_birthday(random: Random) -> str:
    return (_FIRST_BIRTHDAY + timedelta(days=random.randrange(_BIRTHDAYS))).isoformat()


def _fill(random: Random, pattern: str) -> str:
    return "".join(str(random.randint(0, 9)) if character == "#" else character for character in pattern)
