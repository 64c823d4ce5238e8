"""A base given by its name: a service may store another spelling, and match names in its own way."""

import unicodedata
from pathlib import Path

import pytest

from tests.pipelines.conftest import CommandResult, Connector, count_stored_emails, write_addresses
from tests.pipelines.planned import count_creates


def import_people(connector: Connector, path: Path, state_name: str, *base_options: str) -> CommandResult:
    """Import the file into the base as active, with the ledger of this state folder."""
    environ = {"CONNECTOR_STATE_DIR": str(connector.folder / state_name)}
    return connector.run_json("import", path, *base_options, "--active", "--quiet-period", "200ms", environ=environ)


DECOMPOSED_NAME = unicodedata.normalize("NFD", "Café Zürich")


@pytest.mark.parametrize(
    ("spelling", "first_spelling", "second_spelling"),
    [
        ("nfd", DECOMPOSED_NAME, "café zürich"),
        ("collapsed", "Our  News", "our News"),
        ("escaped", 'R&D "North" <1>', "r&d  &quot;North&quot; <1>"),
    ],
)
def test_a_base_is_found_by_any_spelling_of_its_name(
    connector: Connector, tmp_path: Path, spelling: str, first_spelling: str, second_spelling: str
) -> None:
    connector.sandbox.switch(base_names=spelling)
    assert (
        import_people(connector, write_addresses(tmp_path / "a.csv", 3), "one", "--base-name", first_spelling).exit_code
        == 0
    )
    people_path = write_addresses(tmp_path / "b.csv", 5)
    result = import_people(connector, people_path, "two", "--base-name", second_spelling)
    assert (result.exit_code, result.rows) == (0, {"read": 5, "exists": 3, "created": 2}), result.stderr
    assert import_people(connector, people_path, "two", "--base-name", first_spelling).rows == {"read": 5, "exists": 5}
    assert import_people(connector, people_path, "one", "--base-name", second_spelling).rows == {"read": 5, "exists": 5}
    assert set(count_stored_emails(connector.sandbox).values()) == {1}


SIMILAR_NAMES = [
    ("accent_blind", "Cafe Zurich", "Café Zürich"),
    ("cut", "Kunden und Partner 2", "Kunden und Partner 2025 alle"),
]


@pytest.mark.parametrize(("spelling", "listed_name", "requested_name"), SIMILAR_NAMES)
def test_a_name_that_the_service_may_take_for_another_base_is_refused_before_the_first_create(
    connector: Connector, tmp_path: Path, spelling: str, listed_name: str, requested_name: str
) -> None:
    connector.sandbox.switch(base_names=spelling)
    people_path = write_addresses(tmp_path / "people.csv", 3)
    import_people(connector, people_path, "one", "--base-name", listed_name)
    create_count = count_creates(connector.sandbox)
    result = import_people(connector, people_path, "two", "--base-name", requested_name)
    assert result.is_refused, result.stdout
    assert "Give the base by its id: 1 if " in result.stderr
    assert requested_name.strip() in result.stderr
    assert " ".join(listed_name.split()) in result.stderr
    assert count_creates(connector.sandbox) == create_count
    assert import_people(connector, people_path, "two", "--base-id", "1").rows == {"read": 3, "exists": 3}


@pytest.mark.parametrize(
    ("listed_name", "requested_name"),
    [("News", "Newsletter"), ("Kunden", "Kunden 2025"), ("Newsletter Nord", "Newsletter Süd")],
)
def test_a_new_base_is_created_beside_a_base_whose_name_is_not_similar(
    connector: Connector, tmp_path: Path, listed_name: str, requested_name: str
) -> None:
    people_path = write_addresses(tmp_path / "people.csv", 3)
    import_people(connector, people_path, "one", "--base-name", listed_name)
    result = import_people(connector, people_path, "two", "--base-name", requested_name)
    assert (result.exit_code, result.rows) == (0, {"read": 3, "created": 3}), result.stderr
