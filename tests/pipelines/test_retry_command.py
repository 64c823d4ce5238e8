"""`connector retry` finishes creates of earlier runs with the request bodies in the ledger. It reads no source.

A person decides about held, rejected and suppressed entries."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from connector.ledger.opening import open_ledger
from connector.ledger.records import list_bases
from connector.states import State
from tests.pipelines.conftest import CommandResult, Connector, wait_for_result
from tests.pipelines.leftovers import (
    create_with_other_ledger,
    produce_three_held_creates,
    produce_three_unknown_creates,
    read_rejects,
    read_states,
    retry,
)
from tests.pipelines.test_rejects import correct_rows
from tests.pipelines.virtual_time import skip_waits

SUPPRESS_LINE = "suppress: {file: {path: gone.csv, column: address}}"


def produce_lost_creates(
    connector: Connector, path: Path, first_index: int = 0, base_name: str = "News"
) -> CommandResult:
    people_path = connector.write_addresses(3, first_index=first_index, name=path)
    return produce_three_unknown_creates(connector, people_path, base=base_name, drop_before=1)


def produce_creates_with_lost_answers(connector: Connector, path: Path) -> None:
    produce_three_unknown_creates(connector, connector.write_addresses(3, name=path), drop_after=1)


def produce_held_creates(connector: Connector, path: Path) -> None:
    produce_three_held_creates(connector, connector.write_addresses(3, name=path))


def produce_one_rejected_create(connector: Connector, path: Path) -> None:
    connector.sandbox.switch(required=["Phone"])
    result = connector.import_file(connector.write_csv(path, "email,phone,tags", "a@x.org,1,", 'b@x.org,,"news,vip"'))
    result.expect_rows(read=2, created=1, rejected=1)


RESEND_OPTIONS = ("--held", "resend")


@pytest.mark.parametrize(
    ("produce_entries", "email_created_with_other_ledger", "options", "exit_code", "rows", "states"),
    [
        (produce_creates_with_lost_answers, "", (), 0, {"read": 3, "exists": 3}, []),
        (produce_lost_creates, "", (), 0, {"read": 3, "created": 3}, []),
        (produce_held_creates, "person0@example.com", (), 1, {"read": 3, "exists": 1, "unknown": 2}, [State.HELD] * 2),
        (produce_held_creates, "person0@example.com", RESEND_OPTIONS, 0, {"read": 3, "exists": 1, "created": 2}, []),
        (produce_one_rejected_create, "", (), 0, {}, [State.REJECTED]),
        (produce_one_rejected_create, "", ("--rejected",), 0, {"read": 1, "created": 1}, []),
        (produce_one_rejected_create, "b@x.org", ("--rejected",), 0, {"read": 1, "exists": 1}, []),
    ],
)
def test_a_retry_finishes_entries_without_reading_the_source(
    connector: Connector,
    produce_entries: Callable[[Connector, Path], object],
    email_created_with_other_ledger: str,
    options: tuple[str, ...],
    exit_code: int,
    rows: dict[str, int],
    states: list[State],
) -> None:
    produce_entries(connector, connector.folder / "people.csv")
    (connector.folder / "people.csv").unlink()
    connector.sandbox.switch(required=[])
    if email_created_with_other_ledger:
        create_with_other_ledger(connector, connector.write_csv("one.csv", "email", email_created_with_other_ledger))
    result = retry(connector, *options)
    assert (result.exit_code, result.rows, read_states(connector)) == (exit_code, rows, states), result.stderr
    assert set(connector.count_creates_by_email().values()) == {1}
    unknown_count = rows.get("unknown", 0)
    assert [row["_code"] for row in read_rejects(result)] == ["held"] * unknown_count if unknown_count else True
    assert len(result.find_messages("wait for your decision")) == bool(unknown_count)


def test_a_retry_finishes_the_named_base_or_each_base_of_the_account(connector: Connector) -> None:
    path = connector.folder / "people.csv"
    connector.run_json("import", connector.write_addresses(1, first_index=90, name=path), "--base-name", "Shop")
    produce_creates_with_lost_answers(connector, path)
    produce_lost_creates(connector, path, 10, "Shop")
    assert retry(connector, "--base-name", "Shop").rows == {"read": 3, "created": 3}
    assert read_states(connector) == [State.UNKNOWN] * 3
    produce_lost_creates(connector, path, 20, "Shop")
    assert retry(connector, "--base-id", "1").rows == {"read": 3, "created": 3}
    produce_lost_creates(connector, path, 30, "Shop")
    retry(connector).expect(0, read=6, exists=3, created=3)
    base_names = {event["subscriber"]["Base"]["Name"] for event in connector.sandbox.truth()["events"]}
    assert base_names == {"News", "Shop"}


def test_a_retry_of_a_run_finishes_only_the_entries_of_that_run(connector: Connector) -> None:
    first_result = produce_lost_creates(connector, connector.folder / "one.csv")
    connector.sandbox.switch(drop_before=1)
    second_result = connector.import_file(
        connector.write_addresses(3, first_index=10, name="two.csv"), "--look", "none"
    )
    connector.sandbox.switch(drop_before=0)
    assert second_result.rows["unknown"] >= 1
    unknown_count = len(read_states(connector))
    refused_result = retry(connector, "20200101T000000-abcdef")
    assert refused_result.is_refused
    assert "connector status" in refused_result.stderr
    retry(connector, first_result.report["run_id"]).expect_rows(read=3, created=3)
    assert read_states(connector) == [State.UNKNOWN] * (unknown_count - 3)


def test_open_entries_of_another_account_are_reported(connector: Connector) -> None:
    produce_lost_creates(connector, connector.folder / "people.csv")
    result = connector.run_json("retry", "--job", connector.write_job("service: {account: other}"))
    assert (result.exit_code, result.report["rows"]["read"]) == (0, 0)
    expected_text = f"The ledger also has 3 unknown or held entries of another account: {connector.sandbox.base_url}"
    assert expected_text in result.report["messages"]
    assert read_states(connector) == [State.UNKNOWN] * 3


def test_a_list_that_cannot_be_read_ends_the_retry(connector: Connector) -> None:
    produce_three_held_creates(connector, connector.write_addresses(3))
    produce_lost_creates(connector, connector.folder / "more.csv", 10, "Shop")
    connector.sandbox.switch(list_error=1)
    result = retry(connector, clock=skip_waits())
    assert (result.exit_code, result.report["status"]) == (3, "aborted")
    assert "The run ended before it could retry entries in" in result.stderr
    connector.sandbox.switch(list_error=0)
    assert retry(connector, "--held", "resend").rows == {"read": 6, "created": 6}
    assert set(connector.count_creates_by_email().values()) == {1}


def test_a_dropped_create_is_sent_only_after_a_change_of_its_row(connector: Connector) -> None:
    path = connector.write_addresses(3)
    produce_three_held_creates(connector, path)
    retry(connector, "--held", "drop", "--rejected").expect(1, read=3, rejected=3)
    for _ in range(2):
        assert retry(connector, "--rejected").rows == {}
        result = connector.import_file(path).expect(1, read=3, rejected=3)
        assert [row["_code"] for row in read_rejects(result)] == ["dropped"] * 3
        assert "--rejected" not in result.stderr  # the command does not send dropped creates
    assert (connector.sandbox.stats()["subscribers"], read_states(connector)) == (0, [State.DROPPED] * 3)
    path.write_text(path.read_text(encoding="utf-8").replace("Ann 1,", "Ann B,"), encoding="utf-8")
    assert connector.import_file(path).rows == {"read": 3, "created": 1, "rejected": 2}


def test_a_dropped_create_is_held_if_a_run_ends_before_sending_the_changed_row(connector: Connector) -> None:
    path = connector.write_addresses(3)
    produce_three_held_creates(connector, path)
    retry(connector, "--held", "drop")
    with open_ledger(connector.ledger.url) as ledger, ledger.transaction() as connection:
        # A run leaves this state if it has read the changed rows and ends before sending them.
        (base,) = list_bases(connection, connector.sandbox.base_url)
        dropped_entries = ledger.find_unfinished_entries(base, State.DROPPED)
        ledger.mark_unresolved(base, [entry.identity for entry in dropped_entries], State.DROPPED)
    path.write_text(path.read_text(encoding="utf-8").replace("Ann 1,", "Ann B,"), encoding="utf-8")
    assert connector.import_file(path).rows == {"read": 3, "created": 1, "unknown": 2}
    retry(connector).expect(1, read=2, unknown=2)
    assert read_states(connector) == [State.HELD] * 2
    (subscriber,) = connector.list_created_subscribers().values()
    assert subscriber["FirstName"] == "Ann B"
    assert retry(connector, "--held", "resend").rows == {"read": 2, "created": 2}


def test_the_rejects_of_a_retry_can_be_corrected_and_imported(connector: Connector) -> None:
    produce_one_rejected_create(connector, connector.folder / "people.csv")
    result = retry(connector, "--rejected").expect(1, read=1, rejected=1)
    rejects_path = Path(result.report["rejects_file"])
    (row,) = read_rejects(result)
    assert (row["email"], row["phone"], row["_outcome"], row["_http_status"]) == ("b@x.org", "", "rejected", "400")
    correct_rows(rejects_path, lambda _, row: row.update(phone="2"))
    # The columns of these rejects are fields, not columns of the job's source.
    connector.write_job(SUPPRESS_LINE, fields="email: mail, is_active: {value: true}")
    connector.write_csv("gone.csv", "address", "b@x.org")
    assert connector.run_json("import", rejects_path, "--job", "job.yaml").rows == {"read": 1, "suppressed": 1}
    connector.write_csv("gone.csv", "address", "c@x.org")
    connector.run_json("import", rejects_path, "--job", "job.yaml").expect(0, read=1, created=1)
    subscribers = connector.list_created_subscribers()
    assert (subscribers["b@x.org"]["Phone"], subscribers["b@x.org"]["Tags"]) == ("2", ["news", "vip"])


def test_a_stopped_retry_keeps_its_unsent_entries_in_the_ledger(connector: Connector) -> None:
    """The ledger has only the bodies of these entries, no source rows."""
    connector.sandbox.switch(required=["Phone"])
    people = (f"person{index}@example.com,{'' if index else 1}" for index in range(31))
    connector.import_file(connector.write_people("email,phone", *people)).expect_rows(read=31, created=1, rejected=30)
    time.sleep(0.5)  # after two quiet periods, the list shows each refused create that took effect
    connector.sandbox.switch(required=[], latency_ms=100)
    options = ("--quiet-period", "200ms", "--max-concurrency", "1", "--output", "json")
    with connector.start("retry", "--rejected", *options) as process:
        connector.wait_for_subscribers(5)
        process.send_signal(signal.SIGINT)
        stopped_result = wait_for_result(process)
    assert (stopped_result.exit_code, stopped_result.rows["read"]) == (130, 30)
    assert stopped_result.rows["created"] + stopped_result.rows["unsent"] == 30
    connector.sandbox.switch(latency_ms=0)
    unsent_count = stopped_result.rows["unsent"]
    retry(connector, "--rejected").expect_rows(read=unsent_count, created=unsent_count)
    assert set(connector.count_creates_by_email().values()) == {1}


def write_suppressing_job(connector: Connector) -> Path:
    connector.write_addresses(3)
    connector.write_csv("gone.csv", "address", "somebody@example.com")
    return connector.write_job(SUPPRESS_LINE)


def produce_unknown_entries_of_suppressing_job(connector: Connector) -> Path:
    """Sync a job with a suppression list. The run ends with three unknown entries."""
    job_path = write_suppressing_job(connector)
    connector.sandbox.switch(drop_before=1)
    connector.sync().expect_rows(read=3, unknown=3)
    connector.sandbox.switch(drop_before=0)
    return job_path


def test_unknown_entries_of_a_job_with_a_suppression_list_are_resent_only_with_the_list(connector: Connector) -> None:
    produce_unknown_entries_of_suppressing_job(connector)
    result = retry(connector).expect(1, read=3, unknown=3)
    assert result.find_messages("without the suppression list of the job")
    assert not result.find_messages("wait for your decision")
    assert (connector.sandbox.stats()["subscribers"], read_states(connector)) == (0, [State.UNKNOWN] * 3)
    crm_file_result = connector.import_file(connector.write_csv("crm.csv", "email", "z@x.org"))
    assert crm_file_result.report["job"] == "crm", "an import of a file is not a run of the job with the same name"
    assert connector.count_creates_by_email() == {"z@x.org": 1}
    connector.write_csv("gone.csv", "address", "person1@example.com")
    connector.run_json("retry", "--job", "job.yaml").expect(0, read=3, suppressed=1, created=2)
    assert connector.count_creates_by_email() == {"person0@example.com": 1, "person2@example.com": 1, "z@x.org": 1}
    assert read_states(connector) == []


def test_a_retry_does_not_send_rejected_subscribers_who_are_suppressed_now(connector: Connector) -> None:
    write_suppressing_job(connector)
    connector.sandbox.switch(required="Phone")
    assert connector.sync().rows == {"read": 3, "rejected": 3}
    connector.sandbox.switch(required="")
    # After two quiet periods, the list shows a subscriber whose create was refused but took effect.
    time.sleep(0.5)
    result_without_option = retry(connector, "--rejected")
    assert (result_without_option.rows, connector.sandbox.stats()["subscribers"]) == ({"read": 3, "rejected": 3}, 0)
    connector.write_csv("gone.csv", "address", "person1@example.com")
    connector.run_json("retry", "--rejected", "--job", "job.yaml").expect(0, read=3, suppressed=1, created=2)
    assert connector.count_creates_by_email() == {"person0@example.com": 1, "person2@example.com": 1}


def test_held_entries_of_a_job_with_a_suppression_list_are_resent_only_with_the_list(connector: Connector) -> None:
    produce_unknown_entries_of_suppressing_job(connector)
    connector.write_job(SUPPRESS_LINE, load="quiet_period: 200ms, on_unknown: hold")
    assert connector.run_json("retry", "--job", "job.yaml").rows == {"read": 3, "unknown": 3}
    retry(connector, "--held", "resend").expect(1, read=3, unknown=3)
    assert (connector.sandbox.stats()["subscribers"], read_states(connector)) == (0, [State.HELD] * 3)
    assert connector.run_json("retry", "--job", "job.yaml", "--held", "resend").rows == {"read": 3, "created": 3}


def test_a_retry_that_cannot_read_the_suppression_list_sends_no_request(connector: Connector) -> None:
    produce_unknown_entries_of_suppressing_job(connector)
    requests = connector.sandbox.stats()["requests"]
    connector.write_csv("gone.csv", "address,since", "person1@example.com,2020,x")
    result = connector.run_json("retry", "--job", "job.yaml")
    assert (result.exit_code, result.report["status"]) == (2, "usage")
    assert "the suppression list cannot be read" in result.stderr
    assert connector.sandbox.stats()["requests"] == requests
    assert read_states(connector) == [State.UNKNOWN] * 3
