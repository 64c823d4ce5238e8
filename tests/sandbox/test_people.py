"""The made-up people: the same for a seed, in many scripts, and with the problems of real data."""

import unicodedata
from itertools import islice
from random import Random

import pytest

from connector.fields import normalise_email
from connector.sandbox.people import Person, draw_people


@pytest.fixture(scope="module")
def people() -> list[Person]:
    return list(islice(draw_people(Random(7)), 3000))


def test_the_same_seed_draws_the_same_people_and_another_does_not(people: list[Person]) -> None:
    assert list(islice(draw_people(Random(7)), 3000)) == people
    assert list(islice(draw_people(Random(8)), 3000)) != people


def test_no_two_people_share_an_address_in_any_spelling_and_all_are_in_reserved_domains(people: list[Person]) -> None:
    assert len({normalise_email(person.email) for person in people}) == len(people)
    assert len({person.client_user_id for person in people}) == len(people)
    hosts = {person.email.rpartition("@")[2] for person in people}
    assert all(f".{host}".endswith((".example.com", ".example.org", ".example.net")) for host in hosts)


def test_names_come_in_many_scripts(people: list[Person]) -> None:
    names = "".join(person.first_name + person.last_name for person in people)
    scripts = {unicodedata.name(character, "").split()[0] for character in names if character.isalpha()}
    wanted = "LATIN CYRILLIC GREEK CJK HIRAGANA KATAKANA HANGUL ARABIC HEBREW DEVANAGARI THAI GEORGIAN"
    assert scripts >= set(wanted.split())


def test_values_have_the_troubles_of_real_data(people: list[Person]) -> None:
    assert any("\n" in person.line1 for person in people)
    assert any("," in person.last_name for person in people)
    assert any('"' in person.first_name for person in people)
    assert any(person.zip.startswith("0") for person in people)
    assert any("+" in person.email for person in people)
    assert any(not person.email.isascii() for person in people)
    assert any(person.email != person.email.lower() for person in people)
