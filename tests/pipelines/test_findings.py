"""A load reports subscribers that the list lacks, that the service has twice, or that another program has created."""

import os
import signal
from pathlib import Path

import pytest

from tests.pipelines.bases_by_row import write_job_with_bases
from tests.pipelines.conftest import NEWS_IMPORT_OPTIONS, CommandResult, Connector, wait_for_result
from tests.pipelines.leftovers import create_with_other_ledger, produce_three_unknown_creates, record_lag_of_list
from tests.pipelines.planned import count_requests
from tests.pipelines.reconciled import erase_oldest

UNLISTED_MESSAGE = "does not show the last new subscriber"


@pytest.mark.parametrize("seeded_people_count", [0, 30])
def test_a_service_that_stores_nothing_makes_the_run_partial(connector: Connector, seeded_people_count: int) -> None:
    if seeded_people_count:
        connector.sandbox.seed(seeded_people_count, base_name="News")
    connector.sandbox.switch(discard=1)
    result = connector.import_file(connector.write_addresses(20)).expect(1, read=20, created=20)
    (message,) = result.find_messages(UNLISTED_MESSAGE)
    assert message.startswith(f"The service answered 20 creates with an Id, and the list {UNLISTED_MESSAGE}")


def test_a_run_waits_for_a_list_that_lags_less_than_the_quiet_period(connector: Connector) -> None:
    connector.sandbox.switch(list_lag_ms=700)
    result = connector.import_file(connector.write_addresses(5), "--quiet-period", "1500ms")
    assert (result.exit_code, result.find_messages(UNLISTED_MESSAGE)) == (0, []), result.stderr


def test_the_exit_code_is_0_if_the_list_lags_less_than_in_an_earlier_run(connector: Connector) -> None:
    path = connector.folder / "people.csv"
    assert connector.import_file(connector.write_addresses(2, name=path)).exit_code == 0
    record_lag_of_list(connector, 900.0)
    connector.sandbox.switch(list_lag_ms=600_000)
    result = connector.import_file(connector.write_addresses(5, name=path))
    (message,) = result.find_messages(UNLISTED_MESSAGE)
    assert (result.exit_code, "The list has already had a longer lag" in message) == (0, True), result.stderr


@pytest.mark.parametrize(
    "switches",
    [
        {"provisional_ids": True},
        {"hide": "no_email,old_ids"},
        {"filters": "ignored"},
        {"combine": "last", "filters": "partial"},
    ],
)
def test_a_run_has_no_warning_if_the_list_shows_its_last_new_subscriber(
    connector: Connector, switches: dict[str, object]
) -> None:
    connector.sandbox.seed(30, base_name="News")
    connector.sandbox.switch(**switches)
    result = connector.import_file(connector.write_addresses(20)).expect(0, read=20, created=20)
    assert result.find_messages(UNLISTED_MESSAGE) == []


LACKING_TEXT = "the list is complete and lacks"


def test_a_load_counts_the_confirmed_subscribers_that_the_list_of_a_base_lacks(connector: Connector) -> None:
    # A load ends early if the list shows none of a few known subscribers. So only 20 of 220 subscribers are erased.
    rows = [*(f"a{index}@x.org,news" for index in range(200)), *(f"b{index}@x.org,shop" for index in range(20))]
    # The message does not count subscribers that were created within the quiet period.
    job_path = write_job_with_bases(connector, *rows, load="quiet_period: 1ms")
    first_result = connector.sync()
    assert (first_result.rows, first_result.find_messages(LACKING_TEXT)) == ({"read": 220, "created": 220}, [])
    erase_oldest(connector.sandbox, 20)
    # Without new rows the run reads no list.
    assert connector.sync().find_messages(LACKING_TEXT) == []
    connector.write_people("email,list", *rows, "new@x.org,news", "new@x.org,shop")
    plan_result = connector.sync("job.yaml", "--dry-run")
    result = connector.sync().expect(0, read=222, exists=220, created=2)
    (message,) = result.find_messages(LACKING_TEXT)
    assert "(id 7): the list is complete and lacks 20 subscribers" in message
    assert message.endswith(f"To list the subscribers, run: connector reconcile {job_path}")
    assert plan_result.find_messages(LACKING_TEXT) == [message]


@pytest.mark.parametrize(
    ("switches", "quiet_period", "row_count"),
    [({"list_lag_ms": 1_000}, "1200ms", 51), ({"provisional_ids": True}, "200ms", 52)],
    ids=["created within the quiet period", "listed with other ids"],
)
def test_subscribers_are_not_reported_as_missing_if_the_list_shows_them_late_or_with_other_ids(
    connector: Connector, switches: dict[str, object], quiet_period: str, row_count: int
) -> None:
    connector.sandbox.switch(**switches)
    people_path = connector.write_addresses(50)
    connector.import_file(people_path, "--quiet-period", quiet_period)
    connector.write_addresses(row_count, name=people_path)
    result = connector.import_file(people_path, "--quiet-period", quiet_period)
    assert result.rows["exists"] == 50, result.stderr
    assert result.find_messages(LACKING_TEXT) == []


def test_a_first_create_that_the_service_executes_twice_ends_the_run(connector: Connector) -> None:
    connector.sandbox.seed(30, base_name="News")
    connector.sandbox.switch(repeat=1, filters="icase")
    result = connector.import_file(connector.write_addresses(40))
    result.expect(3, read=40, created=1, unsent=39)
    first_id, second_id = (event["id"] for event in connector.sandbox.truth()["events"] if event["kind"] == "created")
    assert f"1 subscriber of this run is in the service twice (ids {first_id} and {second_id})" in result.stderr


def test_a_few_creates_that_the_service_executes_twice_are_reported_at_the_end(connector: Connector) -> None:
    path = connector.folder / "people.csv"
    assert connector.import_file(connector.write_addresses(5, name=path)).exit_code == 0
    connector.sandbox.switch(repeat=0.2, seed=3)
    result = connector.import_file(connector.write_addresses(60, name=path))
    duplicate_count = sum(create_count == 2 for create_count in connector.count_creates_by_email().values())
    assert (result.exit_code, duplicate_count > 1) == (1, True), result.stderr
    assert f"{duplicate_count} subscribers of this run are in the service twice" in result.stderr


def test_creates_that_the_service_executes_twice_are_reported_although_the_list_lags(connector: Connector) -> None:
    connector.sandbox.switch(repeat=1, list_lag_ms=500)
    result = connector.import_file(connector.write_addresses(5), "--quiet-period", "1s")
    assert result.exit_code == 1, result.stderr
    assert "in the service twice" in result.stderr


@pytest.mark.parametrize("other_create_count", [0, 3])
def test_an_unknown_create_is_reported_if_the_base_has_the_subscriber_twice(
    connector: Connector, other_create_count: int
) -> None:
    path = connector.write_addresses(3)
    produce_three_unknown_creates(connector, path, drop_after=1)
    if other_create_count:
        create_with_other_ledger(connector, path, "--base-name", "News", "--active", "--look", "none")
    result = connector.import_file(path).expect_rows(read=3, exists=3)
    assert len(result.find_messages("is in the base 2 times: ids")) == other_create_count, result.stderr
    assert len(result.find_messages("is in the base")) == other_create_count, result.stderr


FOREIGN_SUBSCRIBERS_TEXT = "this run did not create"


def import_during_another_import(connector: Connector, other_path: Path) -> tuple[CommandResult, CommandResult]:
    """Import 40 people, and import another file with another ledger while the first import is paused."""
    connector.import_file(connector.write_addresses(5, name="first.csv"))
    people_path = connector.write_addresses(40, first_index=5)
    connector.sandbox.switch(latency_ms=20)
    options = (*NEWS_IMPORT_OPTIONS, "--max-rate", "20", "--output", "json")
    with connector.start("import", people_path, *options) as process:
        connector.wait_for_subscribers(9)
        os.kill(process.pid, signal.SIGSTOP)
        environ = {"CONNECTOR_STATE_DIR": str(connector.folder / "another")}
        other_result = connector.import_file(other_path, environ=environ)
        os.kill(process.pid, signal.SIGCONT)
        return wait_for_result(process), other_result


def test_a_load_reports_all_subscribers_that_another_program_created_meanwhile(connector: Connector) -> None:
    other_path = connector.write_addresses(10, first_index=43, name="other.csv")
    result, other_result = import_during_another_import(connector, other_path)
    assert (result.rows, other_result.rows["created"]) == ({"read": 40, "created": 40}, 10)
    assert sorted(connector.count_creates_by_email().values())[-3:] == [1, 2, 2]
    (message,) = result.find_messages(FOREIGN_SUBSCRIBERS_TEXT)
    assert message.startswith("10 subscribers appeared in the base during this run")


def test_a_load_does_not_report_subscribers_of_earlier_loads_as_created_by_others(connector: Connector) -> None:
    people_path = connector.write_addresses(30)
    assert connector.import_file(people_path).find_messages(FOREIGN_SUBSCRIBERS_TEXT) == []
    connector.write_addresses(60, name=people_path)
    assert connector.import_file(people_path).find_messages(FOREIGN_SUBSCRIBERS_TEXT) == []
    request_count = count_requests(connector.sandbox, "list")
    connector.import_file(people_path)
    assert count_requests(connector.sandbox, "list") <= request_count + 1  # the request that checks the account
