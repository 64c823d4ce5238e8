"""Services that merge subscribers or move them between bases: an existing subscriber never counts as created
(architecture 4.9)."""

from pathlib import Path

import pytest

from tests.pipelines.conftest import CommandResult, Connector
from tests.pipelines.leftovers import read_rejects, retry
from tests.pipelines.reconciled import create_in_service
from tests.pipelines.virtual_time import skip_waits

PEOPLE_COUNT = 40
CUSTOMER_COUNT = 30


def create_customers(connector: Connector, first_customer_number: int) -> None:
    """Create 30 of the 40 people in another base of the account."""
    for index in range(first_customer_number, first_customer_number + CUSTOMER_COUNT):
        create_in_service(connector.sandbox, f"person{index}@example.com", {"Name": "Customers"})


def count_moved_subscribers(connector: Connector) -> int:
    return sum(event["kind"] == "updated" for event in connector.sandbox.truth()["events"])


def check_held_rows(result: CommandResult, connector: Connector) -> None:
    """Check that the service moved one to three subscribers, and that the report counts only these as unknown."""
    moved_count = count_moved_subscribers(connector)
    assert (result.exit_code, result.rows["unknown"]) == (3, moved_count), result.stderr
    assert 1 <= moved_count <= 3
    assert "existed before" in result.stderr
    assert "example.com" not in result.stderr
    assert result.rows.get("created", 0) == len(connector.sandbox.truth()["events"]) - CUSTOMER_COUNT - moved_count


@pytest.mark.parametrize(("filters", "new_customer_count"), [("ignored", 0), ("exact", 10)])
def test_a_load_ends_after_its_creates_have_moved_at_most_three_subscribers(
    connector: Connector, tmp_path: Path, filters: str, new_customer_count: int
) -> None:
    """`new_customer_count`: the number of rows at the start of the file whose people are not in the service."""
    create_customers(connector, first_customer_number=new_customer_count)
    connector.sandbox.switch(merge_by="Email", merge_within="account", filters=filters)
    result = connector.import_file(connector.write_addresses(PEOPLE_COUNT))
    check_held_rows(result, connector)
    reject_rows = read_rejects(result)
    assert all("Customers" in row["_message"] and row["email"] in row["_message"] for row in reject_rows)


def test_the_ledger_shows_a_move_between_bases_even_if_the_list_lags(connector: Connector) -> None:
    """The list lags, so only the ledger shows the customers."""
    connector.sandbox.switch(merge_by="Email", merge_within="account", list_lag_ms=600_000)
    customers_path = connector.write_addresses(CUSTOMER_COUNT, name="customers.csv")
    connector.run_json(
        "import", customers_path, "--base-name", "Customers", "--active", clock=skip_waits()
    ).expect_rows(read=CUSTOMER_COUNT, created=CUSTOMER_COUNT)
    result = connector.import_file(connector.write_addresses(PEOPLE_COUNT), clock=skip_waits())
    check_held_rows(result, connector)


def test_a_moved_subscriber_does_not_count_as_created_if_the_create_had_no_answer(
    connector: Connector,
) -> None:
    create_in_service(connector.sandbox, "person0@example.com", {"Name": "Customers"})
    connector.sandbox.switch(merge_by="Email", merge_within="account", drop_after=1)
    connector.import_file(connector.write_addresses(2)).expect(0, read=2, created=1, exists=1)


def test_a_create_that_overwrites_a_subscriber_does_not_stop_other_creates(connector: Connector) -> None:
    connector.sandbox.switch(merge_by="Phone")
    rows = [f"new{index}@example.com,3161234567{max(index, 1)},true" for index in range(20)]
    result = connector.import_file(connector.write_people("email,phone,is_active", *rows))
    result.expect(1, read=20, created=19, unknown=1)
    assert retry(connector, "--held", "accept").rows == {"read": 1, "exists": 1}


def test_a_run_does_not_report_another_account_if_a_subscriber_was_overwritten(connector: Connector) -> None:
    connector.sandbox.switch(merge_by="Phone")
    rows = [f"new{index}@example.com,3161234567{phone_digit},true" for index, phone_digit in enumerate("112")]
    people_path = connector.write_people("email,phone,is_active", *rows)
    assert connector.import_file(people_path).rows == {"read": 3, "created": 2, "unknown": 1}
    for _ in range(3):  # each run chooses at random which of the two subscribers it looks up first
        result = connector.import_file(people_path)
        assert (result.exit_code, result.rows["unknown"]) == (1, 1), result.stderr
