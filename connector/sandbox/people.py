"""Synthetic subscribers in many scripts, drawn at random from the common names, towns and streets of people.csv.

A row of people.csv is a part of the world, and a cell is a list with `; ` between its entries. A name is written
`native|latin`, a family name with two forms `his/hers|latin`, a town `city|state`. A # stands for a digit, in a street
for a house number.
"""

import csv
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from itertools import compress, count, cycle, islice
from pathlib import Path
from random import Random
from typing import Any

import orjson

_HOSTS = ("mail.example.com", "post.example.org", "inbox.example.net", "example.com", "example.org")
"""Reserved by RFC 2606: no email can reach a person."""
_WORDED_HOSTS = ("bücher.example.com", "почта.example.org", "例え.example.net")
"""Domains beyond ASCII, each also known by its A-label."""
_TAGS = ("newsletter", "vip", "shop", "Frühbuchung", "loyalty 2026", "événements", "秋のセール", "🎂 birthday club")
_FIRST_BIRTHDAY = date(1931, 1, 1)
_BIRTHDAYS = 75 * 365  # days: the youngest is nearly an adult


@dataclass(frozen=True, slots=True)
class Person:
    """One subscriber as an import understands the row: every value is clean, and "" where nothing is known."""

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
    latin_name: str  # "given.family"


def draw_people(random: Random) -> Iterator[Person]:
    """Yield persons without end, no two with the same email in any spelling. The same seed yields the same persons.

    ClientUserIds count from 1.
    """
    taken: set[str] = set()
    for number in count(1):
        yield _draw_person(random, number, taken)


@cache
def _read_regions() -> tuple[dict[str, tuple[str, ...]], ...]:
    """Return the rows of people.csv: from the column to the entries of its cell."""
    lines = Path(__file__).with_name("people.csv").read_text(encoding="utf-8").splitlines()
    return tuple({name: tuple(cell.split("; ")) for name, cell in row.items()} for row in csv.DictReader(lines))


def _draw_person(random: Random, number: int, taken: set[str]) -> Person:
    region = random.choice(_read_regions())
    gender = random.choice(("female", "female", "male", "male", ""))
    is_woman = gender == "female" or (not gender and random.random() < 0.5)
    first, _, given = random.choice(region["women" if is_woman else "men"]).partition("|")
    name, _, family = random.choice(region["families"]).partition("|")
    his, _, hers = name.partition("/")
    city, _, state = random.choice(region["towns"]).partition("|")
    email = _draw_email(random, first, given, family, number, taken)
    phone = _fill_digits(random, region["phone"][0]) if random.random() < 0.7 else ""
    tags = tuple(random.sample(_TAGS, random.choice((0, 0, 1, 1, 2, 3))))
    zip_code = _fill_digits(random, random.choice(region["zips"]))
    street = random.choice(region["streets"]).replace("#", str(random.randint(1, 180)))
    if random.random() < 0.03:
        street = f"c/o Example House\n{street}"  # two lines in one cell
    birthday = ""
    if random.random() < 0.6:
        birthday = (_FIRST_BIRTHDAY + timedelta(days=random.randrange(_BIRTHDAYS))).isoformat()
    return Person(
        email=email,
        first_name=first,
        last_name=(hers or his) if is_woman else his,
        gender=gender,
        phone=phone,
        tags=tags,
        client_user_id=f"{number:07d}",
        country=region["country"][0],
        city=city,
        state=state,
        zip=zip_code,
        line1=street,
        birthday=birthday,
        latin_name=f"{given}.{family}",
    )


def _draw_email(random: Random, first: str, given: str, family: str, number: int, taken: set[str]) -> str:
    """Return an address in one of the usual forms. The number makes the address unique if `taken` has the address."""
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
    if unicodedata.normalize("NFC", f"{local}@{host}").lower() in taken:
        name, plus, label = local.partition("+")
        local = f"{name}{number}{plus}{label}"
    email = f"{local}@{host}"
    taken.add(unicodedata.normalize("NFC", email).lower())
    return email


def _fill_digits(random: Random, pattern: str) -> str:
    return "".join(str(random.randint(0, 9)) if character == "#" else character for character in pattern)


# seeded subscribers

_PEOPLE = 2_000  # seeded subscribers that differ in more than id and phone; a multiple of 10, by which IsActive recurs
_MARK = "\ue000"  # of private use: no text of people.csv has this character


@cache
def _list_people() -> list[Person]:
    return list(islice(draw_people(Random(1)), _PEOPLE))  # noqa: S311 - the same people each time


@cache
def _list_templates() -> list[tuple[bytes, bytes, bytes, bytes]]:
    """Return, for each person, the JSON between base, id, number of the phone, id again, and the end.

    The templates exist because a list of a million subscribers is read page by page.
    """
    templates = []
    for number, person in enumerate(_list_people()):
        subscriber = {
            "IsActive": number % 10 > 0,
            "Email": f"{person.latin_name}.{_MARK}@example.net",
            "FirstName": person.first_name,
            "LastName": person.last_name,
            "Gender": person.gender,
            "Phone": f"+31{_MARK}",
            "Tags": person.tags,
            "ClientUserId": f"seed-{_MARK}",
            "CustomField1": f"level {number % 9}",
            "Address": {
                "Country": person.country,
                "City": person.city,
                "State": person.state,
                "Zip": str(10_000 + 20 * number),
                "Line1": f"Main Street {number % 997}",
                "Line3": "",
            },
            "Birthday": f"{1940 + number % 67}-{1 + number % 12:02}-{1 + number % 28:02}",
        }
        first, second, third, last = orjson.dumps(subscriber).split(_MARK.encode())
        templates.append((b"," + first[1:], second, third, last))
    return templates


@dataclass(frozen=True, slots=True)
class SyntheticSubscribers:
    """`count` plausible subscribers of one base with the ids `first_id`, `first_id + step`, and so on.

    They take no memory: each is written from its id when it is read. A list of a million is ready at once.
    """

    first_id: int
    count: int
    step: int
    base_id: int
    base_name: str

    @property
    def ids(self) -> range:
        """The ids of all of them; some may have been removed since."""
        return range(self.first_id, self.first_id + self.count * self.step, self.step)

    def email(self, subscriber_id: int) -> str:
        """Return the email of one of them, in lower case, different for each id."""
        person = _list_people()[(subscriber_id - self.first_id) // self.step % _PEOPLE]
        return f"{person.latin_name}.{subscriber_id}@example.net"

    def find_email(self, email: str) -> int | None:
        """Return the id of the subscriber with this email (trimmed, lower case), or None."""
        found = self._find_digits(email.partition("@")[0].rpartition(".")[2])
        return found if found is not None and self.email(found) == email else None

    def find_client_user_id(self, key: str) -> int | None:
        """Return the id of the subscriber whose ClientUserId is `key` in lower case, or None."""
        found = self._find_digits(key.removeprefix("seed-"))
        return found if f"seed-{found}" == key else None

    def _find_digits(self, digits: str) -> int | None:
        is_number = digits.isascii() and digits.isdigit() and len(digits) < 19
        return int(digits) if is_number and int(digits) in self.ids else None

    def select(self, matches: Callable[[dict[str, Any]], bool]) -> Iterator[int]:
        """Yield the ids of all that match. `matches` must not read Id, Email, ClientUserId or Phone: the other fields
        recur."""
        mask = [matches(orjson.loads(wire)) for wire in self.write(self.ids[:_PEOPLE])]
        return compress(self.ids, cycle(mask))

    def write(self, subscriber_ids: Iterable[int]) -> list[bytes]:
        """Return the JSON of these subscribers, as the service writes it."""
        base = b',"Base":' + orjson.dumps({"Id": self.base_id, "Name": self.base_name})
        templates = _list_templates()
        wires = []
        for subscriber_id in subscriber_ids:
            index = (subscriber_id - self.first_id) // self.step
            active, names, tags, end = templates[index % _PEOPLE]
            digits, phone = b"%d" % subscriber_id, b"%d" % (200_000_000 + index % 99_999_989)
            wires.append(b"".join((b'{"Id":', digits, base, active, digits, names, phone, tags, digits, end)))
        return wires
