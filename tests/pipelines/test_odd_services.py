"""Services whose list has no TotalCount, and services with UUIDs as ids."""

import pytest

from tests.pipelines.conftest import CommandResult, Connector
from tests.pipelines.leftovers import create_with_other_ledger
from tests.pipelines.planned import count_creates

LOAD_WITHOUT_TOTAL_COUNT = "quiet_period: 200ms, ignore_total_count: true"


def fill_service(connector: Connector, person_count: int, *options: str) -> None:
    """Create people in the base News, with another ledger."""
    people_path = connector.write_addresses(person_count, name="before.csv")
    create_with_other_ledger(connector, people_path, "--base-name", "News", "--map", "first_name=first_name", *options)


@pytest.mark.parametrize("person_count", [0, 1200])
def test_ignore_total_count_accepts_a_list_without_total_count(connector: Connector, person_count: int) -> None:
    if person_count:
        fill_service(connector, person_count, "--active")
    connector.sandbox.switch(list_omits="TotalCount")
    connector.write_job(load=LOAD_WITHOUT_TOTAL_COUNT)
    connector.write_addresses(person_count + 2)
    expected_exists_rows = {"exists": person_count} if person_count else {}
    assert connector.sync().rows == {"read": person_count + 2, **expected_exists_rows, "created": 2}
    reconcile_result = connector.run_json("reconcile", "job.yaml")
    assert (reconcile_result.exit_code, reconcile_result.report["certificate"]["total_count"]) == (0, "ignored")
    assert set(connector.count_creates_by_email().values()) == {1}


def test_a_list_without_total_count_is_refused_with_the_next_step(connector: Connector) -> None:
    fill_service(connector, 5, "--active")
    connector.sandbox.switch(list_omits="TotalCount")
    people_path, create_count = connector.write_addresses(7), count_creates(connector.sandbox)
    result = connector.import_file(people_path).expect(3, read=7, unsent=7)
    assert "the list has no TotalCount (if the list is complete, run again with --ignore-total-count" in result.stderr
    assert "--ignore-total-count" in connector.run("check").stdout
    export_result = connector.run_json("export", "out.csv")
    assert (export_result.exit_code, "run again with --ignore-total-count" in export_result.stderr) == (1, True)
    assert connector.run_json("export", "out.csv", "--ignore-total-count").exit_code == 0
    assert count_creates(connector.sandbox) == create_count
    assert connector.import_file(people_path, "--ignore-total-count").rows == {"read": 7, "exists": 5, "created": 2}


@pytest.mark.parametrize("switches", [{"hide": "inactive"}, {"result_window": 20}, {"lost_shard": 1}])
def test_a_subscriber_is_not_created_twice_if_the_list_is_partial_and_lacks_total_count(
    connector: Connector, switches: dict[str, object]
) -> None:
    fill_service(connector, 20, "--active")
    people_path = connector.write_addresses(20, first_index=20, name="inactive.csv")
    connector.run_json("import", people_path, "--base-name", "News", "--inactive", "--quiet-period", "200ms")
    connector.sandbox.switch(list_omits="TotalCount", **switches)
    connector.write_addresses(40)
    environ = {"CONNECTOR_STATE_DIR": str(connector.folder / "another")}
    connector.sync(connector.write_job(load=LOAD_WITHOUT_TOTAL_COUNT), environ=environ)
    assert set(connector.count_creates_by_email().values()) == {1}


def has_uuid_message(result: CommandResult) -> bool:
    return result.exit_code in (2, 3) and "a UUID" in result.stdout + result.stderr


def test_a_service_with_uuids_is_refused_before_the_first_create(connector: Connector) -> None:
    fill_service(connector, 5, "--active")
    connector.sandbox.switch(uuids=True)
    connector.write_addresses(7)
    create_count = count_creates(connector.sandbox)
    for command in (("sync", connector.write_job(load=LOAD_WITHOUT_TOTAL_COUNT)), ("export", "out.csv"), ("check",)):
        assert has_uuid_message(connector.run(*command)), command
    assert count_creates(connector.sandbox) == create_count


def test_a_uuid_in_the_answer_to_the_first_create_ends_the_run(connector: Connector) -> None:
    connector.sandbox.switch(uuids=True)
    connector.write_addresses(5)
    result = connector.sync(connector.write_job(load=LOAD_WITHOUT_TOTAL_COUNT))
    assert has_uuid_message(result)
    assert (result.rows, count_creates(connector.sandbox)) == ({"read": 5, "unknown": 1, "unsent": 4}, 1)
    assert "person0@" not in result.report["messages"][0]
