"""The account guard (architecture 4.10): a run that finds another account, or an emptied base, sends nothing."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.conftest import CommandResult, Connector
from tests.pipelines.leftovers import record_lag_of_list
from tests.pipelines.reconciled import create_in_service


def has_found_another_account(result: CommandResult) -> bool:
    """Return whether the run ended before its first create because the list shows no known subscriber."""
    assert result.report["requests"]["create"]["sent"] == 0
    return result.exit_code == 3 and "this token sees another account" in result.stderr


@pytest.mark.parametrize(
    ("other_person_count", "filters"),
    [(0, "exact"), (60, "ignored")],
    ids=["an emptied base", "another account with the same ids"],
)
def test_another_account_or_an_emptied_base_ends_the_run_before_its_first_create(
    connector: Connector, tmp_path: Path, other_person_count: int, filters: str
) -> None:
    """If filters do not work, the run reads the whole list, and the list has no subscriber of the ledger."""
    assert connector.import_file(connector.write_addresses(30)).exit_code == 0
    connector.sandbox.reset()
    connector.sandbox.switch(filters=filters, max_limit=10)
    if other_person_count:
        connector.sandbox.seed(other_person_count, base_name="News")
    more_people_path = connector.write_addresses(40, name="more.csv")
    assert has_found_another_account(connector.import_file(more_people_path))
    # Shortly after the previous run, the list may not show the subscribers yet. So the run waits.
    assert has_found_another_account(connector.import_file(more_people_path, "--quiet-period", "1500ms"))
    assert connector.sandbox.truth()["subscribers"] == other_person_count


def test_the_next_steps_in_another_account_mention_the_token_and_the_address(connector: Connector) -> None:
    connector.write_addresses(2)
    connector.write_job()
    assert connector.run("sync", "job.yaml").exit_code == 0
    connector.sandbox.switch(drop_before=1)
    connector.write_addresses(3)
    assert connector.run("sync", "job.yaml").exit_code == 1  # this run leaves an unresolved create
    connector.sandbox.reset()
    commands = ["sync job.yaml", "retry --job job.yaml", "status", "explain person0@example.com"]
    for command in [*commands, "explain person2@example.com"]:
        output = connector.run(*command.split()).stdout
        next_step = output[max(output.find("Next: "), output.find("  next ")) :]
        check_command = f"connector check {connector.folder}/job.yaml"
        for expected_text in ("token", connector.sandbox.base_url, "connector forget", check_command):
            assert expected_text in next_step, (command, output)
        for wrong_text in ("connector retry", "again", "connector sync", "Nothing to do"):
            assert wrong_text not in next_step, (command, output)


def test_an_unknown_create_is_not_sent_again_into_another_account(connector: Connector) -> None:
    """The run has no new rows, and the service ignores the filter by Id. So the run reads the list to find the unknown
    creates, and notices the other account."""
    assert connector.import_file(connector.write_addresses(30)).exit_code == 0
    connector.sandbox.switch(drop_before=1)
    path = connector.write_addresses(33, name="more.csv")
    assert connector.import_file(path).rows == {"read": 33, "exists": 30, "unknown": 3}
    connector.sandbox.reset()
    connector.sandbox.switch(filters="ignored", max_limit=10)
    connector.sandbox.seed(60, base_name="News")
    assert has_found_another_account(connector.import_file(path))
    assert has_found_another_account(connector.run_json("retry", "--quiet-period", "200ms"))
    assert connector.sandbox.truth()["subscribers"] == 60


@pytest.mark.parametrize(
    ("switches", "recorded_lag_s", "quiet_period"),
    [
        ({"list_lag_ms": 1000, "filters": "ignored", "max_limit": 10}, 0.0, "1500ms"),
        ({"list_lag_ms": 2500}, 2.7, "200ms"),
    ],
    ids=["the list lags and filters do not work", "the lag of the list is the same as in an earlier run"],
)
def test_a_run_waits_until_the_list_shows_the_subscribers_of_the_previous_run(
    connector: Connector, tmp_path: Path, switches: dict[str, Any], recorded_lag_s: float, quiet_period: str
) -> None:
    connector.sandbox.switch(**switches)
    connector.import_file(connector.write_addresses(30)).expect_rows(read=30, created=30)
    if "filters" in switches:
        connector.sandbox.seed(60, base_name="News")
    if recorded_lag_s:
        record_lag_of_list(connector, recorded_lag_s)
    result = connector.import_file(connector.write_addresses(31, name="more.csv"), "--quiet-period", quiet_period)
    result.expect(0, read=31, exists=30, created=1)


def test_a_run_waits_until_the_list_shows_the_subscribers_of_a_killed_run(connector: Connector) -> None:
    connector.sandbox.switch(list_lag_ms=1500, latency_ms=50)
    path = connector.write_addresses(100)
    with connector.start("import", path, "--base-name", "News") as process:
        connector.wait_for_subscribers(50)
        process.kill()
    connector.sandbox.switch(latency_ms=0)
    result = connector.import_file(path, "--quiet-period", "2s")
    assert (result.exit_code, result.rows["read"]) in ((0, 100), (1, 100)), result.stderr
    assert set(connector.count_creates_by_email().values()) == {1}


@pytest.mark.parametrize(
    ("old_person_count", "switches", "filters"),
    [
        (30, {"hide": "unconfirmed"}, "exact"),
        (0, {"hide": "unconfirmed"}, "exact"),
        (30, {"provisional_ids": True}, "ignored"),
    ],
)
def test_a_run_does_not_report_another_account_if_the_list_hides_new_subscribers(
    connector: Connector, old_person_count: int, switches: dict[str, Any], filters: str
) -> None:
    """Double opt-in: the list shows the old subscribers, but new subscribers only after a confirmation."""
    if old_person_count:
        connector.sandbox.seed(old_person_count, base_name="News")
    connector.sandbox.switch(**switches, filters=filters, max_limit=10)
    is_warning_expected = "hide" in switches and filters == "exact"
    assert connector.import_file(connector.write_addresses(20)).exit_code == int(is_warning_expected)
    time.sleep(0.3)  # the pause is longer than the quiet period
    for person_count in (21, 22, 22):
        count_before = connector.sandbox.stats()["subscribers"]
        result = connector.import_file(connector.write_addresses(person_count))
        created_count = connector.sandbox.stats()["subscribers"] - count_before
        expected_code = int(is_warning_expected and created_count > 0)
        assert (result.exit_code, result.rows.get("created", 0)) == (expected_code, created_count), result.stderr
        assert connector.sandbox.stats()["subscribers"] == old_person_count + person_count
        assert expected_code == 0 or "double opt-in" in result.stderr, result.stderr


def test_a_move_of_all_subscribers_to_another_base_ends_the_run(connector: Connector) -> None:
    path = connector.write_addresses(20)
    assert connector.import_file(path).exit_code == 0
    connector.sandbox.switch(merge_by="Email", merge_within="account")
    for index in range(20):
        create_in_service(connector.sandbox, f"person{index}@example.com", {"Name": "Other"})
    assert has_found_another_account(connector.import_file(path))
