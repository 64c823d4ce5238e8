"""A result window caps TotalCount and pages alike: no create, and no forgetting, rests on a list that it cuts off."""

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.pipelines.conftest import Connector, Ended, count_stored, write_csv
from tests.pipelines.planned import write_job

EXISTING = 1040


def import_anew(connector: Connector, path: Path, *options: str) -> Ended:
    """Import with a new ledger, as somebody does who begins with the connector."""
    state = {"CONNECTOR_STATE_DIR": mkdtemp(dir=connector.folder)}
    return connector.import_file(path, *options, environ=state)


@pytest.fixture
def people(connector: Connector, tmp_path: Path) -> Path:
    """A job's file of subscribers who are in the service already, all alike: counts of parts tell nothing of them."""
    path = tmp_path / "people.csv"
    write_csv(path, "email,name", *(f"person{each}@x.org,Ann" for each in range(EXISTING)))
    assert connector.run_json("sync", write_job(tmp_path)).rows == {"read": EXISTING, "created": EXISTING}
    return path


def test_no_subscriber_beyond_a_window_is_created_again_or_forgotten(connector: Connector, people: Path) -> None:
    sandbox = connector.sandbox
    all_there = {"read": EXISTING, "exists": EXISTING}

    sandbox.switch(result_window=1000)  # ids beyond the last exist: each row is looked up by its filter
    ended = import_anew(connector, people)
    assert (ended.code, ended.rows) == (0, all_there), ended.stderr

    sandbox.switch(result_window=1013, order="email")  # ids between the first and the last exist
    ended = import_anew(connector, people)
    assert (ended.code, ended.rows) == (0, all_there), ended.stderr

    ended = connector.run_json("reconcile", people.parent / "job.yaml", "--forget-missing")
    assert (ended.report["forgotten"], ended.report["certificate"]["reason"]) == (0, "cut_off")

    sandbox.switch(result_window=1000, filters="ignored")  # nothing tells
    ended = import_anew(connector, people)
    assert (ended.code, ended.rows) == (3, {"read": EXISTING, "unsent": EXISTING})
    assert "--allow-truncated" in ended.stderr
    assert set(count_stored(sandbox).values()) == {1}


def test_rows_beyond_a_window_are_created_once_each_is_looked_up(connector: Connector, people: Path) -> None:
    path = connector.folder / "new.csv"
    connector.sandbox.switch(result_window=1013, order="email")
    write_csv(path, "email,name", *(f"new{each}@x.org,Ann" for each in range(1100)))

    ended = import_anew(connector, path)
    assert (ended.code, ended.rows) == (0, {"read": 1100, "created": 1100}), ended.stderr
    assert set(count_stored(connector.sandbox).values()) == {1}


def test_a_size_that_a_person_knows_to_be_right_is_taken(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.seed(1000, base_name="News")
    connector.sandbox.switch(filters="ignored")
    write_csv(tmp_path / "new.csv", "email,name", "new@x.org,Ann", "newer@x.org,Bea")

    ended = import_anew(connector, tmp_path / "new.csv", "--allow-truncated")

    assert (ended.code, ended.rows) == (0, {"read": 2, "created": 2}), ended.stderr


def test_an_export_does_not_certify_a_list_that_lacks_what_the_ledger_has_confirmed(
    connector: Connector, people: Path
) -> None:
    connector.sandbox.switch(result_window=1013, order="email")
    export = "export", "out.csv", "--allow-incomplete"

    ended = connector.run_json(*export)
    assert "ledger" not in ended.report["certificate"]["evidence"]  # confirmed a moment ago: it need not show yet

    with closing(sqlite3.connect(connector.folder / "state" / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE run SET started_at = started_at - 3600, finished_at = finished_at - 3600")
    ended = connector.run_json(*export)
    assert (ended.code, ended.report["certificate"]["reason"]) == (1, "cut_off")
    assert ended.report["certificate"]["evidence"]["ledger"].startswith("contradicts")

    for filters in (("--active",), ("--gender", "unspecified"), ("--first-name", "Ann", "--active")):
        ended = connector.run_json(*export, *filters)
        assert (ended.code, ended.report["certificate"]["reason"]) == (1, "cut_off"), filters


def test_entries_of_the_ledger_that_a_filter_leaves_out_speak_against_no_list(
    connector: Connector, people: Path
) -> None:
    beas = write_csv(connector.folder / "beas.csv", "email,name", *(f"bea{each}@x.org,Bea" for each in range(30)))
    assert connector.import_file(beas, "--map", "first_name=name").rows == {"read": 30, "created": 30}
    with closing(sqlite3.connect(connector.folder / "state" / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE run SET started_at = started_at - 3600, finished_at = finished_at - 3600")
    ended = connector.run_json("export", "out.csv", "--first-name", "Ann")
    assert (ended.code, ended.report["rows"]["written"]) == (0, EXISTING)
    assert ended.report["certificate"]["evidence"]["ledger"] == "nothing: 0 of 14 that the list lacks are there"
