"""The demo's people, made from a seed: the same seed, the same people. It knows neither files nor dirt."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

from pipelines.demo.names import HOSTS, REGIONS, TAGS, WORDED_HOSTS, Region

_FIRST_BIRTHDAY = date(1931, 1, 1)
_BIRTHDAYS = 75 * 365  # days: the youngest is nearly a grown-up


@dataclass(frozen=True, slots=True)
class Person:
    """One subscriber as the import understands it: every value clean, "" where nothing is known."""

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
    zip: str  # as people write it: "02134", "SW1A 1AA"
    line1: str
    birthday: str  # YYYY-MM-DD or ""

    @property
    def is_zip_sendable(self) -> bool:
        """Whether the zip is a number that keeps its digits (api.md 2.1: sent as a number)."""
        return self.zip.isascii() and self.zip.isdigit() and not self.zip.startswith("0")


def draw_people(random: Random, *, first_number: int = 1) -> Iterator[Person]:
    """People without end, no two with the same email in any spelling; their own keys count from `first_number`."""
    taken: set[str] = set()
    number = first_number
    while True:
        yield _draw_person(random, number, taken)
        number += 1


def _draw_person(random: Random, number: int, taken: set[str]) -> Person:
    region = random.choice(REGIONS)
    gender = random.choice(("female", "female", "male", "male", ""))
    is_woman = gender == "female" or (not gender and random.random() < 0.5)
    first, _, first_latin = random.choice(region.women if is_woman else region.men).partition("|")
    family, _, family_latin = random.choice(region.families).partition("|")
    his, _, hers = family.partition("/")
    city, _, state = random.choice(region.towns).partition("|")
    return Person(
        email=_draw_email(random, first, first_latin, family_latin, number, taken),
        first_name=first,
        last_name=(hers or his) if is_woman else his,
        gender=gender,
        phone=_fill(random, region.phone) if random.random() < 0.7 else "",
        tags=tuple(random.sample(TAGS, random.choice((0, 0, 1, 1, 2, 3)))),
        client_user_id=f"{number:07d}",
        country=region.country,
        city=city,
        state=state,
        zip=_fill(random, random.choice(region.zips)),
        line1=_draw_street(random, region),
        birthday=_draw_birthday(random) if random.random() < 0.6 else "",
    )


def _draw_email(random: Random, first: str, given: str, family: str, number: int, taken: set[str]) -> str:
    """An address by one of the habits people have; a number makes it one of its own when it is taken."""
    habit = random.random()
    host = random.choice(HOSTS)
    if habit < 0.02 and all(character.isalpha() for character in first):
        local, host = unicodedata.normalize("NFC", first), random.choice(WORDED_HOSTS)  # SMTPUTF8 (RFC 6531)
    elif habit < 0.06:
        local, host = f"{given}.{family}", random.choice(WORDED_HOSTS)
    elif habit < 0.14:
        local = f"{given}.{family}+{random.choice(('news', 'shop', '2026'))}"
    elif habit < 0.22:
        local = f"{given.capitalize()}.{family.capitalize()}"  # sent as written, told apart without case
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
    street = random.choice(region.streets).replace("#", str(random.randint(1, 180)))
    return f"c/o Example House\n{street}" if random.random() < 0.03 else street  # two lines in one cell


def _draw_birthday(random: Random) -> str:
    return (_FIRST_BIRTHDAY + timedelta(days=random.randrange(_BIRTHDAYS))).isoformat()


def _fill(random: Random, pattern: str) -> str:
    return "".join(str(random.randint(0, 9)) if character == "#" else character for character in pattern)


def take(people: Iterator[Person], count: int) -> Sequence[Person]:
    """The next `count` of them."""
    return [next(people) for _ in range(count)]
