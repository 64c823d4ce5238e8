"""Jobs that give their base by its name. The service may store another spelling of the name, or match names by other
rules. tests/test_base_names.py tests more names."""

from pathlib import Path

from tests.pipelines.conftest import CommandResult, Connector
from tests.pipelines.planned import count_creates


def import_people(connector: Connector, path: Path, state_folder_name: str, *base: str) -> CommandResult:
    """Import the file into the base as active, with the ledger of this state folder."""
    environ = {"CONNECTOR_STATE_DIR": str(connector.folder / state_folder_name)}
    return connector.run_json("import", path, *base, "--active", "--quiet-period", "200ms", environ=environ)


def test_a_base_is_found_by_any_spelling_of_its_name(connector: Connector) -> None:
    first_spelling, second_spelling = 'R&D "North" <1>', "r&d  &quot;North&quot; <1>"
    connector.sandbox.switch(base_names="escaped")
    people_path = connector.write_addresses(3, name="a.csv")
    assert import_people(connector, people_path, "one", "--base-name", first_spelling).exit_code == 0
    people_path = connector.write_addresses(5, name="b.csv")
    import_people(connector, people_path, "two", "--base-name", second_spelling).expect(0, read=5, exists=3, created=2)
    assert import_people(connector, people_path, "one", "--base-name", second_spelling).rows == {"read": 5, "exists": 5}
    assert set(connector.count_creates_by_email().values()) == {1}


def test_a_base_name_that_the_service_may_confuse_with_another_is_refused(connector: Connector) -> None:
    listed_name, requested_name = "Cafe Zurich", "Café Zürich"
    connector.sandbox.switch(base_names="accent_blind")
    people_path = connector.write_addresses(3)
    import_people(connector, people_path, "one", "--base-name", listed_name)
    create_count = count_creates(connector.sandbox)
    result = import_people(connector, people_path, "two", "--base-name", requested_name)
    assert result.is_refused, result.stdout
    for expected_text in (f"Give the base by its id: 1 if {listed_name} is meant", requested_name):
        assert expected_text in result.stderr
    assert count_creates(connector.sandbox) == create_count
    assert import_people(connector, people_path, "two", "--base-id", "1").rows == {"read": 3, "exists": 3}


def test_a_name_that_two_bases_have_is_refused_and_the_id_is_accepted(connector: Connector) -> None:
    first_path = connector.write_addresses(3, name="one.csv")
    second_path = connector.write_addresses(3, first_index=2, name="other.csv")
    connector.run_json("import", first_path, "--base-name", "Base 2")  # the first base: the sandbox gives it the id 1
    connector.run_json("import", second_path, "--base-id", "2")  # a second base, which the sandbox also calls "Base 2"
    result_of_base_name = connector.run_json("import", first_path, "--base-name", "Base 2")
    assert result_of_base_name.is_refused
    assert "ids 1, 2" in result_of_base_name.stderr
    import_people(connector, first_path, "fresh", "--base-id", "2").expect_rows(read=3, exists=1, created=2)
