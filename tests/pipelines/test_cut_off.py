"""Result windows, which limit both TotalCount and pages: no create and no certificate relies on a list that is cut
off."""

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.pipelines.conftest import CommandResult, Connector, count_stored_emails, write_csv
from tests.pipelines.planned import write_job

EXISTING_COUNT = 1040


def import_with_new_ledger(connector: Connector, path: Path, *options: str) -> CommandResult:
    """Import with a new ledger, as a first-time user does."""
    new_ledger_environ = {"CONNECTOR_STATE_DIR": mkdtemp(dir=connector.folder)}
    return connector.import_file(path, *options, environ=new_ledger_environ)


@pytest.fixture
def people_path(connector: Connector, tmp_path: Path) -> Path:
    """A file of subscribers that exist in the service. All have the same classes, so that counts of classes prove
    nothing."""
    path = tmp_path / "people.csv"
    write_csv(path, "email,name", *(f"person{index}@x.org,Ann" for index in range(EXISTING_COUNT)))
    assert connector.run_json("sync", write_job(tmp_path)).rows == {"read": EXISTING_COUNT, "created": EXISTING_COUNT}
    return path


def test_no_subscriber_beyond_a_window_is_created_again(connector: Connector, people_path: Path) -> None:
    sandbox = connector.sandbox
    expected_counts = {"read": EXISTING_COUNT, "exists": EXISTING_COUNT}

    sandbox.switch(result_window=1000)  # the list ends before its last ids: a filter looks each row up
    result = import_with_new_ledger(connector, people_path)
    assert (result.exit_code, result.rows) == (0, expected_counts), result.stderr

    sandbox.switch(result_window=1013, order="email")  # ids are missing in the middle of the list
    result = import_with_new_ledger(connector, people_path)
    assert (result.exit_code, result.rows) == (0, expected_counts), result.stderr

    result = connector.run_json("reconcile", people_path.parent / "job.yaml")
    assert result.report["certificate"]["reason"] == "cut_off"

    sandbox.switch(result_window=1000, filters="ignored")  # nothing shows that the list is cut off
    result = import_with_new_ledger(connector, people_path)
    assert (result.exit_code, result.rows) == (3, {"read": EXISTING_COUNT, "unsent": EXISTING_COUNT})
    assert "--allow-truncated" in result.stderr
    assert set(count_stored_emails(sandbox).values()) == {1}


def test_a_new_row_is_looked_up_and_then_created_if_the_list_is_cut_off(
    connector: Connector, people_path: Path
) -> None:
    path = connector.folder / "new.csv"
    connector.sandbox.switch(result_window=1013, order="email")
    write_csv(path, "email,name", *(f"new{index}@x.org,Ann" for index in range(100)))

    result = import_with_new_ledger(connector, path)
    assert (result.exit_code, result.rows) == (0, {"read": 100, "created": 100}), result.stderr
    assert set(count_stored_emails(connector.sandbox).values()) == {1}


def test_a_list_of_a_suspicious_size_is_accepted_with_the_option_allow_truncated(
    connector: Connector, tmp_path: Path
) -> None:
    connector.sandbox.seed(1000, base_name="News")
    connector.sandbox.switch(filters="ignored")
    write_csv(tmp_path / "new.csv", "email,name", "new@x.org,Ann", "newer@x.org,Bea")

    result = import_with_new_ledger(connector, tmp_path / "new.csv", "--allow-truncated")

    assert (result.exit_code, result.rows) == (0, {"read": 2, "created": 2}), result.stderr


def test_an_export_does_not_certify_a_list_that_lacks_confirmed_subscribers(
    connector: Connector, people_path: Path
) -> None:
    connector.sandbox.switch(result_window=1013, order="email")
    arguments = "export", "out.csv", "--allow-incomplete"

    result = connector.run_json(*arguments)
    assert "ledger" not in result.report["certificate"]["evidence"]  # the list may not show a new subscriber yet

    with closing(sqlite3.connect(connector.folder / "state" / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE run SET started_at = started_at - 3600, finished_at = finished_at - 3600")
    result = connector.run_json(*arguments)
    assert (result.exit_code, result.report["certificate"]["reason"]) == (1, "cut_off")
    assert result.report["certificate"]["evidence"]["ledger"].startswith("contradicts")

    for filters in (("--active",), ("--gender", "unspecified"), ("--first-name", "Ann", "--active")):
        result = connector.run_json(*arguments, *filters)
        assert (result.exit_code, result.report["certificate"]["reason"]) == (1, "cut_off"), filters


def test_subscribers_that_a_filter_leaves_out_do_not_contradict_the_list(
    connector: Connector, people_path: Path
) -> None:
    path_of_people_named_bea = write_csv(
        connector.folder / "beas.csv", "email,name", *(f"bea{index}@x.org,Bea" for index in range(30))
    )
    assert connector.import_file(path_of_people_named_bea, "--map", "first_name=name").rows == {
        "read": 30,
        "created": 30,
    }
    with closing(sqlite3.connect(connector.folder / "state" / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE run SET started_at = started_at - 3600, finished_at = finished_at - 3600")
    result = connector.run_json("export", "out.csv", "--first-name", "Ann")
    assert (result.exit_code, result.report["rows"]["written"]) == (0, EXISTING_COUNT)
    assert (
        result.report["certificate"]["evidence"]["ledger"] == "nothing: 0 of 14 subscribers that the list lacks exist"
    )
