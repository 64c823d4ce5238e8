"""Lists whose rows do not show the identity as it was sent: these rows cause no second create."""

import pytest

from tests.pipelines.conftest import CommandResult, Connector, count_stored_emails, write_csv

SMALL_OTHER_PERSON_COUNT, LARGE_OTHER_PERSON_COUNT = 30, 1_500
EXISTING_PERSON_NUMBERS, ALL_PERSON_NUMBERS = range(100, 120), range(100, 130)
ROWS_WITHOUT_EMAIL, MASKED_EMAILS = {"rows_omit": "Email"}, {"emails_in_rows": "masked"}


def import_people(connector: Connector, person_numbers: range, identity: str, *options: str) -> CommandResult:
    """Import people whose only value is the identity."""
    value_template = "person{}@example.com" if identity == "email" else "{}"
    path = write_csv(
        connector.folder / "people.csv",
        identity,
        *(value_template.format(person_number) for person_number in person_numbers),
    )
    return connector.run_json(
        "import", path, "--base-id", "7", "--active", "--identity", identity, "--quiet-period", "200ms", *options
    )


def fill_base(connector: Connector, identity: str, other_person_count: int) -> None:
    """Create the existing people with a ledger that no test uses, and add others to another base. For a large
    number, use small pages, so that filters need fewer requests than a sweep."""
    assert import_people(connector, EXISTING_PERSON_NUMBERS, identity).rows == {"read": 20, "created": 20}
    for path in (connector.folder / "state").glob("ledger*"):
        path.unlink()
    if other_person_count:
        connector.sandbox.seed(other_person_count, base_id=50)
    connector.sandbox.switch(filters="icase", max_limit=10 if other_person_count == LARGE_OTHER_PERSON_COUNT else 1000)


@pytest.mark.parametrize(
    ("switches", "other_person_count"),
    [(ROWS_WITHOUT_EMAIL, 0), (MASKED_EMAILS, LARGE_OTHER_PERSON_COUNT)],
    ids=["none", "masked"],
)
def test_a_list_that_shows_no_email_ends_a_load_before_its_first_create(
    connector: Connector, switches: dict[str, str], other_person_count: int
) -> None:
    fill_base(connector, "email", other_person_count)
    connector.sandbox.switch(**switches)
    for options in ((), ("--dry-run",)):
        result = import_people(connector, ALL_PERSON_NUMBERS, "email", *options)
        assert result.exit_code == 2, result.stdout
        assert "The list shows no email of its" in result.stderr
    assert set(count_stored_emails(connector.sandbox).values()) == {1}
    assert count_stored_emails(connector.sandbox).total() == len(EXISTING_PERSON_NUMBERS)


@pytest.mark.parametrize("switches", [ROWS_WITHOUT_EMAIL, MASKED_EMAILS], ids=["none", "masked"])
def test_a_load_into_an_empty_list_that_shows_no_email_ends_after_one_create(
    connector: Connector, switches: dict[str, str]
) -> None:
    connector.sandbox.switch(**switches)
    result = import_people(connector, ALL_PERSON_NUMBERS, "email")
    assert (result.exit_code, result.rows) == (3, {"read": 30, "created": 1, "unsent": 29})
    assert any("without the email that was sent" in message for message in result.report["messages"])
    assert import_people(connector, ALL_PERSON_NUMBERS, "email").exit_code == 2
    assert count_stored_emails(connector.sandbox).total() == 1


@pytest.mark.parametrize("other_person_count", [0, SMALL_OTHER_PERSON_COUNT], ids=["alone", "beside others"])
def test_a_load_ends_after_one_create_if_the_list_shows_no_client_user_id(
    connector: Connector, other_person_count: int
) -> None:
    fill_base(connector, "client_user_id", other_person_count)
    connector.sandbox.switch(rows_omit="ClientUserId")
    result = import_people(connector, ALL_PERSON_NUMBERS, "client_user_id")
    assert (result.exit_code, result.rows) == (3, {"read": 30, "created": 1, "unsent": 29}), result.stdout
    assert any("without the client_user_id that was sent" in message for message in result.report["messages"])
    second_result = import_people(connector, ALL_PERSON_NUMBERS, "client_user_id")
    assert second_result.exit_code == 2, second_result.stdout
    assert "without its client_user_id" in second_result.stderr
    create_events = [event for event in connector.sandbox.truth()["events"] if event["kind"] == "created"]
    assert len(create_events) == len(EXISTING_PERSON_NUMBERS) + 1


@pytest.mark.parametrize("other_person_count", [0, LARGE_OTHER_PERSON_COUNT], ids=["sweep", "filters"])
def test_a_client_user_id_that_the_service_shows_as_a_number_is_the_same_identity(
    connector: Connector, other_person_count: int
) -> None:
    fill_base(connector, "client_user_id", other_person_count)
    connector.sandbox.switch(client_user_ids="number")
    result = import_people(connector, ALL_PERSON_NUMBERS, "client_user_id")
    assert (result.exit_code, result.rows) == (0, {"read": 30, "exists": 20, "created": 10}), result.report["messages"]
    second_result = import_people(connector, ALL_PERSON_NUMBERS, "client_user_id")
    assert (second_result.exit_code, second_result.rows) == (0, {"read": 30, "exists": 30}), second_result.report[
        "messages"
    ]


def test_a_create_answered_with_another_identity_does_not_count_as_an_arrival(connector: Connector) -> None:
    rows = [f"person{index}{'+tag' if index % 2 else ''}@example.com" for index in range(200, 210)]
    connector.sandbox.seed(SMALL_OTHER_PERSON_COUNT, base_id=7)
    connector.sandbox.switch(alter_identity=True)
    path = write_csv(connector.folder / "people.csv", "email", *rows)
    result = connector.run_json("import", path, "--base-id", "7", "--active", "--quiet-period", "200ms")
    assert result.rows == {"read": 10, "created": 5, "unknown": 5}, result.report["messages"]
    assert not any("appeared in the base" in message for message in result.report["messages"])
