"""The limit that a run found, kept for the account's next run and read by it, beside a run that holds the ledger."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from connector.ledger.beside import keep_limit, read_limit
from connector.ledger.opening import open_ledger
from connector.ledger.records import read_found_limit
from connector.pace.rate import Found
from tests.ledger.places import url_of
from tests.ledger.test_versions import write_meta

FIRST, SECOND = Found(5.0, 6.0, 2.0, 1.0, 0.0), Found(50.0, 60.0, 2.0, 1.0, 0.5)
NOTHING = (None, 0.0)


def test_what_was_found_last_is_read_with_its_age_of_its_account_alone(ledger_url: str) -> None:
    with open_ledger(ledger_url):
        assert read_limit(ledger_url, "main", 0.0) == NOTHING
    keep_limit(ledger_url, "main", FIRST, 100.0)
    keep_limit(ledger_url, "main", SECOND, 200.0)
    assert read_limit(ledger_url, "main", 260.0) == (SECOND, 60.0)
    assert read_limit(ledger_url, "other", 260.0) == NOTHING
    with open_ledger(ledger_url) as ledger, ledger.transaction() as connection:
        assert read_found_limit(connection, "main") == (SECOND, 200.0)


def test_beside_a_run_that_holds_the_ledger_it_is_read_and_not_kept(ledger_url: str) -> None:
    with open_ledger(ledger_url):
        pass
    keep_limit(ledger_url, "main", FIRST, 100.0)
    with open_ledger(ledger_url):
        keep_limit(ledger_url, "main", SECOND, 200.0)
        assert read_limit(ledger_url, "main", 100.0) == (FIRST, 0.0)
    assert read_limit(ledger_url, "main", 100.0) == (FIRST, 0.0)


@pytest.mark.parametrize(("name", "value"), [("schema_version", "2"), ("identity_rule", "0")])
def test_a_ledger_of_another_version_gives_none_and_is_left_as_it_was(ledger_url: str, name: str, value: str) -> None:
    with open_ledger(ledger_url):
        pass
    keep_limit(ledger_url, "main", FIRST, 100.0)
    write_meta(ledger_url, name, value)
    keep_limit(ledger_url, "main", SECOND, 200.0)
    assert read_limit(ledger_url, "main", 100.0) == NOTHING
    if name == "schema_version" and ledger_url.startswith("sqlite"):
        with closing(sqlite3.connect(ledger_url.removeprefix("sqlite:///"))) as file:
            assert file.execute("SELECT limit_low FROM account").fetchall() == [(FIRST.low,)]


def test_where_there_is_no_ledger_none_is_made_nor_its_folder(tmp_path: Path, postgres_url: str) -> None:
    for url in (url_of(tmp_path / "ledger.db"), url_of(tmp_path / "folder" / "ledger.db"), postgres_url):
        keep_limit(url, "main", FIRST, 100.0)
        assert read_limit(url, "main", 100.0) == NOTHING
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_database", [True, False])
def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path, is_database: bool) -> None:
    path = tmp_path / "other.db"
    if is_database:
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE people (name TEXT)")
    else:
        path.write_text("no database", encoding="utf-8")
    before = path.read_bytes()
    keep_limit(url_of(path), "main", FIRST, 100.0)
    assert read_limit(url_of(path), "main", 100.0) == NOTHING
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (before, [path])


def test_a_path_with_signs_that_a_url_quotes_is_the_ledgers_own(tmp_path: Path) -> None:
    (folder := tmp_path / "a b#c?%41").mkdir()
    url = f"sqlite:///{tmp_path}/a%20b%23c%3F%2541/ledger.db"
    with open_ledger(url):
        pass
    keep_limit(url, "main", FIRST, 100.0)
    assert (folder / "ledger.db").exists()
    assert read_limit(url, "main", 100.0) == (FIRST, 0.0)


@pytest.mark.parametrize(
    "url", ["postgresql://u:secret@127.0.0.1:1/x", "postgresql://u@h:port/x", "nonsense", "sqlite://"]
)
def test_a_place_that_cannot_be_reached_is_passed_by(url: str) -> None:
    begun = time.monotonic()
    keep_limit(url, "main", FIRST, 100.0)
    assert read_limit(url, "main", 100.0) == NOTHING
    assert time.monotonic() - begun < 30
