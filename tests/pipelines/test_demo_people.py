"""The demo's people: the same for a seed, in many scripts, and an import finds what the generator says it should."""

import csv
import sqlite3
import unicodedata
from contextlib import closing
from dataclasses import replace
from datetime import date
from itertools import islice, pairwise
from pathlib import Path
from random import Random

import pytest

from connector.fields import normalise_email
from connector.sandbox import draw_people
from connector.sources.files import open_file
from connector.subscribers.headers import guess_mapping
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.rules import ValidationRules
from connector.subscribers.validation import validate_rows
from pipelines.demo_people import COLUMNS, DIRT, ExpectedFile, write_crm, write_people


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ExpectedFile]:
    path = tmp_path_factory.mktemp("demo") / "people.csv"
    return path, write_people(path, 3000, seed=7)


def test_the_same_seed_writes_the_same_bytes_and_another_does_not(tmp_path: Path) -> None:
    first, again, other = (tmp_path / name for name in ("a.csv", "b.csv", "c.csv"))
    assert write_people(first, 200, seed=1) == write_people(again, 200, seed=1)
    write_people(other, 200, seed=2)
    assert first.read_bytes() == again.read_bytes() != other.read_bytes()


@pytest.mark.parametrize("count", [50, 51, 999, 3000])
def test_the_sums_are_those_of_the_file(tmp_path: Path, count: int) -> None:
    expected = write_people(tmp_path / "people.csv", count, seed=3)
    assert expected.rows == count == expected.invalid + expected.duplicates + len(expected.people)
    assert expected.invalid == sum(expected.faults.values())
    assert set(expected.faults) == set(DIRT)
    assert min(expected.faults.values()) >= 1
    assert expected.duplicates >= 1
    with (tmp_path / "people.csv").open(encoding="utf-8-sig", errors="replace", newline="") as file:
        assert sum(1 for record in csv.reader(file) if record) == count + 1


def test_too_few_people_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 50"):
        write_people(tmp_path / "people.csv", 49, seed=1)


def test_no_two_people_share_an_address_in_any_spelling(written: tuple[Path, ExpectedFile]) -> None:
    people = written[1].people
    assert len({normalise_email(person.email) for person in people}) == len(people)
    assert len({person.client_user_id for person in people}) == len(people)


def test_no_letter_can_reach_anyone(written: tuple[Path, ExpectedFile]) -> None:
    hosts = {person.email.rpartition("@")[2] for person in written[1].people}
    assert all(f".{host}".endswith((".example.com", ".example.org", ".example.net")) for host in hosts)


def test_names_come_in_many_scripts(written: tuple[Path, ExpectedFile]) -> None:
    names = "".join(person.first_name + person.last_name for person in written[1].people)
    scripts = {unicodedata.name(character, "").split()[0] for character in names if character.isalpha()}
    wanted = "LATIN CYRILLIC GREEK CJK HIRAGANA KATAKANA HANGUL ARABIC HEBREW DEVANAGARI THAI GEORGIAN"
    assert scripts >= set(wanted.split())


def test_the_file_holds_the_troubles_of_real_files(written: tuple[Path, ExpectedFile]) -> None:
    content = written[0].read_bytes()
    people = written[1].people
    assert content.startswith(b"\xef\xbb\xbfEmail Address,")
    assert b"\r\n\r\n" in content  # a blank line
    assert any("\n" in person.line1 for person in people)
    assert any("," in person.last_name for person in people)
    assert any('"' in person.first_name for person in people)
    assert any(person.zip.startswith("0") for person in people)
    assert any("+" in person.email for person in people)
    assert any(not person.email.isascii() for person in people)
    assert any(person.email != person.email.lower() for person in people)
    with pytest.raises(UnicodeDecodeError):
        content.decode()


def test_the_people_are_named_in_the_order_of_the_file(written: tuple[Path, ExpectedFile]) -> None:
    text = written[0].read_bytes().decode("utf-8", "replace")
    keys = [text.index(f",{person.client_user_id},") for person in written[1].people]
    assert all(first < second for first, second in pairwise(keys))


@pytest.mark.parametrize("seed", [7, 8, 9])
def test_an_import_finds_what_the_generator_says_it_should(tmp_path: Path, seed: int) -> None:
    expected = write_people(tmp_path / "people.csv", 1000, seed=seed)
    rows = invalid = omitted = 0
    emails: list[str] = []
    with open_file(tmp_path / "people.csv") as source:
        mapping = guess_mapping(source.columns)
        assert set(source.columns) - set(mapping.columns) == {"Notes"}
        assert source.columns == COLUMNS
        for chunk in source.chunks():
            valid = validate_rows(
                apply_mapping(chunk.frame, mapping).frame, ValidationRules(), today=date(2026, 11, 21)
            )
            rows += len(chunk.frame) + len(chunk.malformed)
            invalid += len({fault.position for fault in valid.faults}) + len(chunk.malformed)
            omitted += len(valid.omitted_zips)
            emails += [normalise_email(email) for email in valid.subscribers["email"]]
    assert (rows, invalid) == (expected.rows, expected.invalid)
    assert list(dict.fromkeys(emails)) == [normalise_email(person.email) for person in expected.people]
    assert len(emails) - len(set(emails)) == expected.duplicates
    assert expected.zips_omitted <= omitted <= expected.zips_omitted + expected.duplicates


def read_customers(path: Path) -> dict[str, dict[str, str | None]]:
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        rows = database.execute("select * from customers").fetchall()
    return {row["customer_number"]: dict(row) for row in rows}


def test_a_crm_holds_the_people_some_changed_and_some_new(tmp_path: Path) -> None:
    people = list(islice(draw_people(Random(1)), 300))
    expected = write_crm(tmp_path / "crm.db", people, added=40, changed=25, seed=2)
    customers = read_customers(tmp_path / "crm.db")
    assert expected.rows == len(customers) == 340
    assert (expected.unchanged, len(expected.changed), len(expected.added)) == (275, 25, 40)
    known = {person.email.lower() for person in people}
    assert not known & {person.email.lower() for person in expected.added}
    before = {person.client_user_id: person for person in people}
    for person in expected.changed:
        assert person != before[person.client_user_id] == replace(before[person.client_user_id], email=person.email)
    for person in (*expected.changed, *expected.added):
        assert customers[person.client_user_id]["lname"] == person.last_name
        assert customers[person.client_user_id]["segments"] == "|".join(person.tags)


def test_the_same_seed_makes_the_same_crm(tmp_path: Path) -> None:
    people = list(islice(draw_people(Random(1)), 60))
    for name in ("a.db", "b.db"):
        write_crm(tmp_path / name, people, added=5, changed=5, seed=2)
    assert read_customers(tmp_path / "a.db") == read_customers(tmp_path / "b.db")


def test_a_crm_takes_the_place_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "crm.db").write_text("mine")
    with pytest.raises(FileExistsError):
        write_crm(tmp_path / "crm.db", [], added=1, changed=0, seed=1)
    with pytest.raises(ValueError, match="cannot be changed"):
        write_crm(tmp_path / "new.db", [], added=1, changed=1, seed=1)
