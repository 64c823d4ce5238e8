"""Columns that the connector maps to is_active by their headers are read in eight languages by each command."""

from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector, list_stored, write_csv

COLUMNS = {
    "Subscribed": ("yes", "no"),
    "Angemeldet": ("Ja", "Nein"),
    "Inscrit": ("oui", "non"),
    "Abonné": ("OUI", "NON"),
    "Suscrito": ("sí", "no"),
    "Iscritto": ("Sì", "No"),
    "Inscrito": ("sim", "não"),
    "Ingeschreven": ("ja", "nee"),
    "Zapisany": ("tak", "nie"),
}
BASE = ("--base-id", "7")


@pytest.mark.parametrize("header", COLUMNS)
def test_yes_and_no_of_a_language_are_read_by_import_sync_init_and_validate(
    connector: Connector, tmp_path: Path, header: str
) -> None:
    yes, no = COLUMNS[header]
    people = write_csv(tmp_path / "people.csv", f"email,{header}", f"ann@x.org,{yes}", f"bob@x.org,{no}")
    validated = connector.run_json("validate", people)
    assert (validated.code, validated.rows) == (0, {"read": 2, "valid": 2}), validated.stderr
    planned = connector.run_json("plan", people, *BASE)
    assert planned.report["activity"] == {"active": 1, "inactive": 1}, planned.stderr
    imported = connector.run_json("import", people, *BASE)
    assert (imported.code, imported.rows) == (0, {"read": 2, "created": 2}), imported.stderr
    drafted = connector.run("init", people, "--base-id", "8", "-o", "job.yaml")
    assert drafted.code == 0, drafted.stderr
    assert connector.run_json("validate", "job.yaml").code == 0
    synced = connector.run_json("sync", "job.yaml")
    assert (synced.code, synced.rows) == (0, {"read": 2, "created": 2}), synced.stderr
    stored = list_stored(connector.sandbox)
    assert {email: each["IsActive"] for email, each in stored.items()} == {"ann@x.org": True, "bob@x.org": False}
