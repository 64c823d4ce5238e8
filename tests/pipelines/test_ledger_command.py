"""`connector ledger backup FILE` and `restore`: copies of the ledger and of its emails."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from connector.errors import ConfigurationError
from connector.ledger.opening import open_email_log
from tests.pipelines.conftest import Connector


def move_ledger_away(folder: Path) -> None:
    for path in (folder / "state").glob("ledger*"):
        path.unlink()


def test_a_restored_backup_replaces_a_missing_ledger(connector: Connector) -> None:
    connector.import_file(connector.write_addresses(5))
    environ = {"CONNECTOR_TOKEN": None, "CONNECTOR_BASE_URL": None}  # a backup sends no request
    assert connector.run_json("ledger", "backup", "copy.db", environ=environ).report["entries"] == 5
    connector.import_file(connector.write_addresses(8, name="more.csv"))
    refused_result = connector.run_json("ledger", "restore", "copy.db")
    assert refused_result.is_refused
    assert "ledger.db exists already, and was not overwritten" in refused_result.stderr
    move_ledger_away(connector.folder)
    result = connector.run_json("ledger", "restore", "copy.db")
    assert (result.exit_code, result.report["status"], result.report["entries"]) == (0, "ok", 5)
    assert (connector.folder / "state" / "ledger.db").stat().st_mode & 0o777 == 0o600
    connector.import_file(connector.folder / "more.csv").expect(0, read=8, exists=8)
    assert set(connector.count_creates_by_email().values()) == {1}


@pytest.mark.parametrize("file_content", [None, b"no database" * 500, "another version's"])
def test_a_restore_from_a_file_that_is_not_a_backup_creates_no_ledger(
    connector: Connector, file_content: bytes | str | None
) -> None:
    copy_path, ledger_path = connector.folder / "copy.db", connector.folder / "state" / "ledger.db"
    if isinstance(file_content, bytes):
        copy_path.write_bytes(file_content)
    elif file_content is not None:
        with closing(sqlite3.connect(copy_path)) as database:
            database.execute("CREATE TABLE meta (name, value)")
            database.execute("CREATE TABLE entry (x)")
            database.commit()
    refused_result = connector.run_json("ledger", "restore", copy_path)
    assert refused_result.is_refused
    assert str(copy_path) in refused_result.stderr
    assert not ledger_path.exists()


def test_a_restore_closes_campaigns_even_if_the_backup_has_no_emails(connector: Connector) -> None:
    connector.import_file(connector.write_addresses(3))
    url = f"sqlite:///{connector.folder}/state/ledger.db"
    connector.run_json("ledger", "backup", "copy.db")
    move_ledger_away(connector.folder)
    assert connector.run_json("ledger", "restore", "copy.db").exit_code == 0
    with open_email_log(url) as email_log:
        with email_log.transaction(), pytest.raises(ConfigurationError, match="--reopen"):
            email_log.find_campaign("account", "welcome")
        with email_log.hold_campaign("account", "welcome", is_reopening=True) as campaign, email_log.transaction():
            assert email_log.find_campaign("account", "welcome") == campaign
