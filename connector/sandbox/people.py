"""Synthetic subscribers in many writing systems, drawn at random from the names, towns and streets of people.csv.

A row of people.csv is for one region of the world. A cell is a list, with `; ` between the entries. A name is written
`native|latin`, a last name with two forms `male/female|latin`, and a town `city|state`. A # stands for a digit, and in
a street for a house number.
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
"""Domains that RFC 2606 reserves, so that no email can reach a person."""
_NON_ASCII_HOSTS = ("bücher.example.com", "почта.example.org", "例え.example.net")
"""Domains with characters beyond ASCII."""
_TAGS = ("newsletter", "vip", "shop", "Frühbuchung", "loyalty 2026", "événements", "秋のセール", "🎂 birthday club")
_FIRST_BIRTHDAY = date(1931, 1, 1)
_BIRTHDAY_COUNT = 75 * 365  # number of possible birthdays; the youngest person was born in December 2005


@dataclass(frozen=True, slots=True)
class Person:
    """One subscriber with the values that an import must find in a row. A value is valid, or "" if the person has no
    value for the field."""

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
    latin_name: str  # "first.last" in Latin letters


def draw_people(random: Random) -> Iterator[Person]:
    """Yield persons without end. No two persons have the same email in any spelling. The same seed yields the same
    persons.

    ClientUserIds count from 1.
    """
    taken_emails: set[str] = set()
    for index in count(1):
        yield _draw_person(random, index, taken_emails)


@cache
def _read_regions() -> tuple[dict[str, tuple[str, ...]], ...]:
    """Return the rows of people.csv. A row maps each column to the entries of the cell."""
    lines = Path(__file__).with_name("people.csv").read_text(encoding="utf-8").splitlines()
    return tuple({name: tuple(cell.split("; ")) for name, cell in row.items()} for row in csv.DictReader(lines))


def _draw_person(random: Random, person_number: int, taken_emails: set[str]) -> Person:
    region = random.choice(_read_regions())
    gender = random.choice(("female", "female", "male", "male", ""))
    is_female = gender == "female" or (not gender and random.random() < 0.5)
    first_name, _, latin_first_name = random.choice(region["women" if is_female else "men"]).partition("|")
    last_name_forms, _, latin_last_name = random.choice(region["families"]).partition("|")
    male_last_name, _, female_last_name = last_name_forms.partition("/")
    city, _, state = random.choice(region["towns"]).partition("|")
    email = _create_email(random, first_name, latin_first_name, latin_last_name, person_number, taken_emails)
    phone = _replace_digit_signs(random, region["phone"][0]) if random.random() < 0.7 else ""
    tags = tuple(random.sample(_TAGS, random.choice((0, 0, 1, 1, 2, 3))))
    zip_code = _replace_digit_signs(random, random.choice(region["zips"]))
    street = random.choice(region["streets"]).replace("#", str(random.randint(1, 180)))
    if random.random() < 0.03:
        street = f"c/o Example House\n{street}"  # two lines in one cell
    birthday = ""
    if random.random() < 0.6:
        birthday = (_FIRST_BIRTHDAY + timedelta(days=random.randrange(_BIRTHDAY_COUNT))).isoformat()
    return Person(
        email=email,
        first_name=first_name,
        last_name=(female_last_name or male_last_name) if is_female else male_last_name,
        gender=gender,
        phone=phone,
        tags=tags,
        client_user_id=f"{person_number:07d}",
        country=region["country"][0],
        city=city,
        state=state,
        zip=zip_code,
        line1=street,
        birthday=birthday,
        latin_name=f"{latin_first_name}.{latin_last_name}",
    )


def _create_email(
    random: Random,
    first_name: str,
    latin_first_name: str,
    latin_last_name: str,
    person_number: int,
    taken_emails: set[str],
) -> str:
    """Return an address in one of the usual forms. If `taken_emails` already has the address, add `person_number` to
    the local part."""
    random_number = random.random()
    host = random.choice(_HOSTS)
    if random_number < 0.02 and all(character.isalpha() for character in first_name):
        # Only a mail server with SMTPUTF8 (RFC 6531) accepts this address.
        local_part, host = unicodedata.normalize("NFC", first_name), random.choice(_NON_ASCII_HOSTS)
    elif random_number < 0.06:
        local_part, host = f"{latin_first_name}.{latin_last_name}", random.choice(_NON_ASCII_HOSTS)
    elif random_number < 0.14:
        local_part = f"{latin_first_name}.{latin_last_name}+{random.choice(('news', 'shop', '2026'))}"
    elif random_number < 0.22:
        # Capitals test that the connector sends an address unchanged, and compares addresses without case.
        local_part = f"{latin_first_name.capitalize()}.{latin_last_name.capitalize()}"
    else:
        local_part = random.choice(
            (
                f"{latin_first_name}.{latin_last_name}",
                f"{latin_first_name[0]}{latin_last_name}",
                f"{latin_last_name}_{latin_first_name}",
                f"{latin_first_name}{latin_last_name}",
            )
        )
    if unicodedata.normalize("NFC", f"{local_part}@{host}").lower() in taken_emails:
        local_name, plus_sign, tag = local_part.partition("+")
        local_part = f"{local_name}{person_number}{plus_sign}{tag}"
    email = f"{local_part}@{host}"
    taken_emails.add(unicodedata.normalize("NFC", email).lower())
    return email


def _replace_digit_signs(random: Random, pattern: str) -> str:
    return "".join(str(random.randint(0, 9)) if character == "#" else character for character in pattern)


# Seeded subscribers

# Number of different persons among seeded subscribers. A multiple of 10, because every tenth person is inactive.
_PERSON_COUNT = 2_000
_PLACEHOLDER = "\ue000"  # a private-use character, which no text of people.csv has


@cache
def _list_people() -> list[Person]:
    return list(islice(draw_people(Random(1)), _PERSON_COUNT))  # noqa: S311 - the same people each time


@cache
def _list_templates() -> list[tuple[bytes, bytes, bytes, bytes]]:
    """Return a template for each person: the JSON of a subscriber after its base, cut into four parts. To build the
    JSON, write the id, the phone number, and again the id between the parts.

    The templates make it fast to write the pages of a list with a million subscribers.
    """
    templates = []
    for index, person in enumerate(_list_people()):
        subscriber = {
            "IsActive": index % 10 > 0,
            "Email": f"{person.latin_name}.{_PLACEHOLDER}@example.net",
            "FirstName": person.first_name,
            "LastName": person.last_name,
            "Gender": person.gender,
            "Phone": f"+31{_PLACEHOLDER}",
            "Tags": person.tags,
            "ClientUserId": f"seed-{_PLACEHOLDER}",
            "CustomField1": f"level {index % 9}",
            "Address": {
                "Country": person.country,
                "City": person.city,
                "State": person.state,
                "Zip": str(10_000 + 20 * index),
                "Line1": f"Main Street {index % 997}",
                "Line3": "",
            },
            "Birthday": f"{1940 + index % 67}-{1 + index % 12:02}-{1 + index % 28:02}",
        }
        json_before_email_digits, json_before_phone, json_before_client_user_id, json_ending = orjson.dumps(
            subscriber
        ).split(_PLACEHOLDER.encode())
        templates.append(
            (b"," + json_before_email_digits[1:], json_before_phone, json_before_client_user_id, json_ending)
        )
    return templates


@dataclass(frozen=True, slots=True)
class SyntheticSubscribers:
    """A block of `count` plausible subscribers of one base. Their ids are `first_id`, `first_id + step`, and so on.

    The block takes no memory, because each read computes the subscriber from the id. So a list of a million
    subscribers is ready immediately.
    """

    first_id: int
    count: int
    step: int
    base_id: int
    base_name: str

    @property
    def ids(self) -> range:
        """The ids of all subscribers of the block, including removed subscribers."""
        return range(self.first_id, self.first_id + self.count * self.step, self.step)

    def build_email(self, subscriber_id: int) -> str:
        """Return the email of a subscriber in lower case. The email is different for each id."""
        person = _list_people()[(subscriber_id - self.first_id) // self.step % _PERSON_COUNT]
        return f"{person.latin_name}.{subscriber_id}@example.net"

    def find_id_by_email(self, email: str) -> int | None:
        """Return the id of the subscriber with this email, or None. `email` is in lower case."""
        subscriber_id = self._parse_id(email.partition("@")[0].rpartition(".")[2])
        return subscriber_id if subscriber_id is not None and self.build_email(subscriber_id) == email else None

    def find_id_by_client_user_id(self, key: str) -> int | None:
        """Return the id of the subscriber with this ClientUserId, or None. `key` is in lower case."""
        subscriber_id = self._parse_id(key.removeprefix("seed-"))
        return subscriber_id if f"seed-{subscriber_id}" == key else None

    def _parse_id(self, digits: str) -> int | None:
        is_number = digits.isascii() and digits.isdigit() and len(digits) < 19
        return int(digits) if is_number and int(digits) in self.ids else None

    def select(self, matches: Callable[[dict[str, Any]], bool]) -> Iterator[int]:
        """Yield the ids of all subscribers that match. Many subscribers are copies of one person. `matches` is called
        once for each person, and must not read Id, Email, ClientUserId or Phone, which differ between copies."""
        matching_person_mask = [
            matches(orjson.loads(subscriber_json)) for subscriber_json in self.build_jsons(self.ids[:_PERSON_COUNT])
        ]
        return compress(self.ids, cycle(matching_person_mask))

    def build_jsons(self, subscriber_ids: Iterable[int]) -> list[bytes]:
        """Return the JSON of these subscribers, as the service writes it."""
        base_json = b',"Base":' + orjson.dumps({"Id": self.base_id, "Name": self.base_name})
        templates = _list_templates()
        subscriber_jsons = []
        for subscriber_id in subscriber_ids:
            index = (subscriber_id - self.first_id) // self.step
            json_before_email_digits, json_before_phone, json_before_client_user_id, json_ending = templates[
                index % _PERSON_COUNT
            ]
            id_digits, phone_digits = b"%d" % subscriber_id, b"%d" % (200_000_000 + index % 99_999_989)
            json_beginning = (
                b'{"Id":',
                id_digits,
                base_json,
                json_before_email_digits,
                id_digits,
                json_before_phone,
                phone_digits,
            )
            subscriber_jsons.append(b"".join((*json_beginning, json_before_client_user_id, id_digits, json_ending)))
        return subscriber_jsons
