"""`connector ledger backup FILE` and `restore`: copies of the ledger and of its emails."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from connector.errors import ConfigurationError
from connector.ledger.opening import open_emails
from connector.ledger.schema import SCHEMA_VERSION
from tests.pipelines.conftest import Connector, count_stored_emails, write_addresses


def test_a_backup_is_a_ledger_with_the_same_entries(connector: Connector, tmp_path: Path) -> None:
    path, copy_path = write_addresses(tmp_path / "people.csv", 5), tmp_path / "copy.db"
    connector.import_file(path)
    result = connector.run_json(
        "ledger", "backup", copy_path, environ={"CONNECTOR_TOKEN": None, "CONNECTOR_BASE_URL": None}
    )
    assert (result.exit_code, result.report["status"]) == (0, "ok")
    assert (result.report["target"], result.report["entries"]) == (str(copy_path), 5)
    assert f"{copy_path}: 5 entries" in result.stderr
    assert copy_path.stat().st_mode & 0o777 == 0o600
    environ = {"CONNECTOR_LEDGER": f"sqlite:///{copy_path}"}
    second_result = connector.run_json("import", path, "--base-name", "News", environ=environ)
    assert second_result.rows == {"read": 5, "exists": 5}
    assert second_result.report["requests"]["create"]["sent"] == 0


def test_a_ledger_of_a_newer_version_is_refused_by_every_command(connector: Connector, tmp_path: Path) -> None:
    path = write_addresses(tmp_path / "people.csv", 3)
    connector.import_file(path)
    with closing(sqlite3.connect(tmp_path / "state" / "ledger.db")) as ledger, ledger:
        ledger.execute("ALTER TABLE account DROP COLUMN limit_low")
        ledger.execute("UPDATE meta SET value = ? WHERE name = 'schema_version'", (SCHEMA_VERSION + 1,))
    base_options = "--base-name", "News"
    for command in (
        ("import", path, *base_options),
        ("plan", path, *base_options, "--active"),
        ("retry",),
        ("forget", "ann@example.com"),
    ):
        result = connector.run_json(*command)
        assert result.is_refused, (command, result.stderr)
        assert f"schema_version {SCHEMA_VERSION + 1}" in result.stderr
        assert "name a new ledger (CONNECTOR_LEDGER)" in result.stderr


def move_ledger_away(folder: Path) -> None:
    for path in (folder / "state").glob("ledger*"):
        path.unlink()


def test_a_restored_backup_takes_the_place_of_a_missing_ledger(connector: Connector, tmp_path: Path) -> None:
    path = write_addresses(tmp_path / "people.csv", 5)
    connector.import_file(path)
    connector.run_json("ledger", "backup", "copy.db")
    connector.import_file(write_addresses(tmp_path / "more.csv", 8))

    refused_result = connector.run_json("ledger", "restore", "copy.db")
    assert refused_result.is_refused
    assert "ledger.db exists already, and was not overwritten" in refused_result.stderr
    move_ledger_away(tmp_path)
    result = connector.run_json("ledger", "restore", "copy.db")
    assert (result.exit_code, result.report["status"], result.report["entries"]) == (0, "ok", 5)
    assert (tmp_path / "state" / "ledger.db").stat().st_mode & 0o777 == 0o600
    second_result = connector.import_file(tmp_path / "more.csv")
    assert (second_result.exit_code, second_result.rows) == (0, {"read": 8, "exists": 8})
    assert set(count_stored_emails(connector.sandbox).values()) == {1}


@pytest.mark.parametrize(
    "file_content", [None, b"no database" * 500, "a pipe", "another application's", "another version's"]
)
def test_a_file_that_is_not_a_backup_is_refused_and_no_ledger_is_made(
    connector: Connector, tmp_path: Path, file_content: bytes | str | None
) -> None:
    copy_path, ledger = tmp_path / "copy.db", tmp_path / "state" / "ledger.db"
    if isinstance(file_content, bytes):
        copy_path.write_bytes(file_content)
    elif file_content == "a pipe":
        os.mkfifo(copy_path)
    elif file_content is not None:
        with closing(sqlite3.connect(copy_path)) as database:
            database.execute(
                "CREATE TABLE meta (name, value)" if "version" in file_content else "CREATE TABLE other (x)"
            )
            database.execute("CREATE TABLE entry (x)")
            database.commit()
    refused_result = connector.run_json("ledger", "restore", copy_path)
    assert refused_result.is_refused
    assert str(copy_path) in refused_result.stderr
    assert not ledger.exists()


@pytest.mark.parametrize("has_emails", [True, False])
def test_a_restore_closes_campaigns_also_without_a_backup_of_emails(
    connector: Connector, tmp_path: Path, has_emails: bool
) -> None:
    connector.import_file(write_addresses(tmp_path / "people.csv", 3))
    url = f"sqlite:///{tmp_path}/state/ledger.db"
    if has_emails:
        with open_emails(url) as email_log, email_log.hold_campaign("account", "welcome"):
            pass
    connector.run_json("ledger", "backup", "copy.db")
    move_ledger_away(tmp_path)
    assert connector.run_json("ledger", "restore", "copy.db").exit_code == 0
    with open_emails(url) as email_log:
        with email_log.transaction(), pytest.raises(ConfigurationError, match="--reopen"):
            email_log.find_campaign("account", "welcome")
        with email_log.hold_campaign("account", "welcome", is_reopening=True) as campaign, email_log.transaction():
            assert email_log.find_campaign("account", "welcome") == campaign
