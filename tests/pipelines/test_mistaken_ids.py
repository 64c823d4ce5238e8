"""If another program has changed the spelling of ids, no subscriber is created twice (architecture 4.7)."""

from collections.abc import Callable

import pytest

from connector.load.new_rows import list_other_spellings
from tests.pipelines.conftest import CommandResult, Connector
from tests.pipelines.leftovers import read_rejects
from tests.pipelines.reconciled import create_in_service

PEOPLE_NUMBERS = range(1, 11)
SpellId = Callable[[int], str]


def import_ids(connector: Connector, spell_id: SpellId) -> CommandResult:
    rows = [f"{spell_id(person_number)},Lee,true" for person_number in PEOPLE_NUMBERS]
    path = connector.write_people("client_user_id,last_name,is_active", *rows)
    return connector.import_file(path, "--identity", "client_user_id")


def check_refusal(result: CommandResult, spell_known_id: SpellId, spell_row_id: SpellId) -> None:
    result.expect(1, read=10, invalid=10)
    messages = [row["_message"] for row in read_rejects(result)]
    for number, message in zip(PEOPLE_NUMBERS, messages, strict=True):
        assert f"'{spell_row_id(number)}' looks like the known id '{spell_known_id(number)}'" in message
    assert not any(spell_row_id(7) in cause["message"] for cause in result.report["causes"])


def test_ids_in_another_spelling_than_on_the_list_are_refused(connector: Connector) -> None:
    """The list shows ids with needless decimals, for example `42.0`, as some programs write them."""
    spell_known_id, spell_row_id = "{}.0".format, "{}".format
    for number in PEOPLE_NUMBERS:
        create_in_service(connector.sandbox, None, ClientUserId=spell_known_id(number), LastName="Lee", IsActive=True)
    check_refusal(import_ids(connector, spell_row_id), spell_known_id, spell_row_id)
    assert import_ids(connector, spell_known_id).rows == {"read": 10, "exists": 10}


def test_ids_in_another_spelling_than_in_an_earlier_run_are_refused(connector: Connector) -> None:
    """The list does not show the subscribers of the first run."""
    connector.sandbox.switch(list_lag_ms=600_000)
    assert import_ids(connector, "{}".format).rows == {"read": 10, "created": 10}
    check_refusal(import_ids(connector, "{}.0".format), "{}".format, "{}.0".format)


def test_ids_in_an_unusual_spelling_are_looked_up_by_filters(connector: Connector) -> None:
    connector.sandbox.seed(2000, base_name="News")
    connector.sandbox.switch(max_limit=10)
    for person_number in (41, 42):
        create_in_service(connector.sandbox, None, ClientUserId=str(person_number))
    path = connector.write_people("client_user_id,is_active", "42.0,true", "43.0,true")
    result = connector.run_json("import", path, "--base-id", "1", "--active", "--identity", "client_user_id")
    result.expect(1, read=2, invalid=2)
    messages = [row["_message"] for row in read_rejects(result)]
    assert "'42.0' looks like the known id '42'" in messages[0]
    assert "has needless decimals" in messages[1]


def test_a_row_with_a_misspelt_id_is_counted_once_as_invalid_if_the_run_ends_early(connector: Connector) -> None:
    create_in_service(connector.sandbox, None, ClientUserId="42", IsActive=True)
    connector.sandbox.switch(stray_refusal=1, stray_statuses="403")
    path = connector.write_people("client_user_id,is_active", "42.0,true", "77,true", "78,true")
    result = connector.import_file(path, "--identity", "client_user_id")
    assert (result.exit_code, result.rows["invalid"], sum(result.rows.values())) == (3, 1, 2 * 3), result.stderr


@pytest.mark.parametrize("look_up_method", ["listing", "filters"])
def test_a_row_with_a_new_id_is_refused_if_its_email_is_in_the_base(connector: Connector, look_up_method: str) -> None:
    if look_up_method == "filters":
        connector.sandbox.seed(2000, base_name="News")
        connector.sandbox.switch(max_limit=10)
    for index in range(3):
        old_id = f"old-{index}"
        create_in_service(connector.sandbox, f"Person{index}@example.com", ClientUserId=old_id)
        create_in_service(connector.sandbox, f"person{index + 3}@example.com", {"Name": "Other"}, ClientUserId=old_id)
    rows = [f"new-{index},person{index}@example.com,true" for index in range(6)]
    path = connector.write_people("client_user_id,email,is_active", *rows)
    options = ("--base-id", "1", "--active", "--identity", "client_user_id", "--quiet-period", "200ms")
    result = connector.run_json("import", path, *options).expect(1, read=6, created=3, invalid=3)
    messages = [row["_message"] for row in read_rejects(result)]
    for index in range(3):
        assert f"'person{index}@example.com' is in the base" in messages[index]
        assert look_up_method == "filters" or f"'old-{index}'" in messages[index]
    assert "example.com" not in result.stderr
    connector.run_json("import", path, *options).expect_rows(read=6, exists=3, invalid=3)


def test_two_new_ids_may_share_an_email(connector: Connector) -> None:
    rows = [f"{index},family{index // 2}@example.com,true" for index in range(10)]
    path = connector.write_people("client_user_id,email,is_active", *rows)
    for outcome in ("created", "exists"):
        result = connector.import_file(path, "--identity", "client_user_id")
        assert (result.exit_code, result.rows) == (0, {"read": 10, outcome: 10}), result.stderr


@pytest.mark.parametrize(
    ("client_user_id", "expected_spellings"),
    [
        ("42.0", ["42", "000042"]),
        ("42.", ["42", "42.0"]),
        ("00042", ["42", "42.0", "042"]),
        ("42", ["42.0", "00042"]),
        ("1.2E+5", ["120000", "120000.0"]),
        (" 7 ", ["7.0", "07"]),
    ],
)
def test_the_other_spellings_of_a_numeric_id_are_listed(client_user_id: str, expected_spellings: list[str]) -> None:
    spellings = list_other_spellings(client_user_id)
    assert set(expected_spellings) <= set(spellings)
    assert client_user_id.strip() not in spellings


@pytest.mark.parametrize(
    "client_user_id", ["", "A42", "42a", "4.2", "-42", "1e-3", "1.25E+1", "42-1", "٤٢", "9" * 30, "1e999"]
)
def test_an_id_that_is_not_a_number_has_no_other_spelling(client_user_id: str) -> None:
    assert list_other_spellings(client_user_id) == []
