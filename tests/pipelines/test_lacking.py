"""Messages about subscribers of earlier runs that a complete list does not show."""

from pathlib import Path

from tests.pipelines.conftest import CommandResult, Connector, write_addresses, write_csv
from tests.pipelines.lists import write_lists
from tests.pipelines.reconciled import erase_oldest


def find_missing_messages(result: CommandResult) -> list[str]:
    return [message for message in result.report["messages"] if "the list is complete and lacks" in message]


def test_a_load_reports_the_number_of_confirmed_subscribers_that_its_list_lacks(
    connector: Connector, tmp_path: Path
) -> None:
    # The account guard looks four subscribers up, and must find one.
    people_path = write_addresses(tmp_path / "people.csv", 300)
    # A subscriber younger than the quiet period may not be on the list yet.
    short_quiet_period_options = ("--quiet-period", "1ms")
    assert find_missing_messages(connector.import_file(people_path, *short_quiet_period_options)) == []
    erase_oldest(connector.sandbox, 30)
    # Without new rows the run reads no list.
    assert find_missing_messages(connector.import_file(people_path, *short_quiet_period_options)) == []
    write_addresses(people_path, 301)
    plan_result = connector.import_file(people_path, "--dry-run", *short_quiet_period_options)
    result = connector.import_file(people_path, *short_quiet_period_options)
    assert (result.exit_code, result.rows) == (0, {"read": 301, "exists": 300, "created": 1})
    (message,) = find_missing_messages(result)
    assert "News (id 1): the list is complete and lacks 30 subscribers" in message
    assert message.endswith("To list them, run connector reconcile with a job file")
    assert find_missing_messages(plan_result) == [message]


def test_a_load_into_several_bases_names_the_base_whose_subscribers_are_missing(
    connector: Connector, tmp_path: Path
) -> None:
    rows = [*(f"a{index}@x.org,news" for index in range(20)), *(f"b{index}@x.org,shop" for index in range(20))]
    job = write_lists(tmp_path, *rows)
    job.write_text(job.read_text().replace("200ms", "1ms"))  # a younger subscriber may not be on the list yet
    assert connector.run_json("sync", job).rows == {"read": 40, "created": 40}
    erase_oldest(connector.sandbox, 5)
    write_csv(tmp_path / "people.csv", "email,list", *rows, "new@x.org,news", "new@x.org,shop")
    result = connector.run_json("sync", job)
    assert result.rows == {"read": 42, "exists": 40, "created": 2}
    (message,) = find_missing_messages(result)
    assert "(id 7): the list is complete and lacks 5 subscribers" in message
    assert message.endswith(f"To list them, run: connector reconcile {job}")


def test_subscribers_younger_than_the_quiet_period_are_not_reported_as_missing(
    connector: Connector, tmp_path: Path
) -> None:
    connector.sandbox.switch(list_lag_ms=1_000)
    people_path = write_addresses(tmp_path / "people.csv", 50)
    connector.import_file(people_path, "--quiet-period", "1200ms")
    write_addresses(people_path, 51)
    result = connector.import_file(people_path, "--quiet-period", "1200ms")
    assert result.rows == {"read": 51, "exists": 50, "created": 1}, result.stderr
    assert find_missing_messages(result) == []


def test_subscribers_that_the_list_shows_with_other_ids_are_not_reported_as_missing(
    connector: Connector, tmp_path: Path
) -> None:
    connector.sandbox.switch(provisional_ids=True)
    people_path = write_addresses(tmp_path / "people.csv", 20)
    connector.import_file(people_path)
    write_addresses(people_path, 22)
    result = connector.import_file(people_path)
    assert result.rows["exists"] == 20, result.stderr
    assert find_missing_messages(result) == []
