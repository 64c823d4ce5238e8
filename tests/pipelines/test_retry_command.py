"""`connector retry` finishes the entries of earlier runs from their bodies in the ledger. A person decides about held,
rejected and suppressed entries."""

import csv
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from connector.sandbox import SandboxProcess
from connector.states import State
from tests.pipelines.conftest import (
    CommandResult,
    Connector,
    count_stored_emails,
    has_stored_subscribers,
    list_stored_subscribers,
    wait_for,
    wait_for_result,
    write_addresses,
    write_csv,
)
from tests.pipelines.leftovers import (
    SUPPRESSING_JOB,
    create_elsewhere,
    leave_three_held_creates,
    leave_three_unknown_creates,
    read_rejects,
    read_states,
    retry,
)
from tests.pipelines.planned import count_requests
from tests.pipelines.virtual_time import skip_waits

# A retry finishes a run that was lost or killed, without the source of the run


@pytest.mark.parametrize(
    ("switches", "expected_rows", "expected_settled"),
    [
        ({"drop_after": 1}, {"read": 3, "exists": 3}, {"found": 3, "absent": 0}),
        ({"drop_before": 1}, {"read": 3, "created": 3}, {"found": 0, "absent": 3}),
    ],
)
def test_unknown_entries_are_finished_without_their_source(
    connector: Connector,
    tmp_path: Path,
    switches: dict[str, Any],
    expected_rows: dict[str, int],
    expected_settled: dict[str, int],
) -> None:
    path = write_addresses(tmp_path / "people.csv", 3)
    leave_three_unknown_creates(connector, path, **switches)
    path.unlink()
    result = retry(connector)
    assert (result.exit_code, result.report["status"], result.rows) == (0, "ok", expected_rows)
    assert result.report["settled"] == expected_settled
    assert result.report["activity"] == {"active": expected_rows.get("created", 0), "inactive": 0}
    assert result.report["command"] == "retry"
    assert count_stored_emails(connector.sandbox) == {f"person{index}@example.com": 1 for index in range(3)}
    assert read_states(connector) == []


def test_a_retry_finishes_the_named_base_or_each_base_of_the_account(connector: Connector, tmp_path: Path) -> None:
    connector.run_json("import", write_addresses(tmp_path / "new.csv", 1, first_index=90), "--base-name", "Shop")
    leave_three_unknown_creates(connector, write_addresses(tmp_path / "one.csv", 3), drop_after=1)
    leave_three_unknown_creates(
        connector, write_addresses(tmp_path / "two.csv", 3, first_index=10), base="Shop", drop_before=1
    )
    assert retry(connector, "--base-name", "Shop").rows == {"read": 3, "created": 3}
    assert read_states(connector) == [State.UNKNOWN] * 3
    leave_three_unknown_creates(
        connector, write_addresses(tmp_path / "three.csv", 3, first_index=20), base="Shop", drop_before=1
    )
    assert retry(connector, "--base-id", "1").rows == {"read": 3, "created": 3}
    leave_three_unknown_creates(
        connector, write_addresses(tmp_path / "four.csv", 3, first_index=30), base="Shop", drop_before=1
    )
    result = retry(connector)
    assert (result.exit_code, result.rows) == (0, {"read": 6, "exists": 3, "created": 3})
    bases = {event["subscriber"]["Base"]["Name"] for event in connector.sandbox.truth()["events"]}
    assert bases == {"News", "Shop"}


def test_a_retry_of_a_run_finishes_only_the_entries_of_that_run(connector: Connector, tmp_path: Path) -> None:
    first_result = leave_three_unknown_creates(connector, write_addresses(tmp_path / "one.csv", 3), drop_before=1)
    connector.sandbox.switch(drop_before=1)
    lost_result = connector.import_file(write_addresses(tmp_path / "two.csv", 3, first_index=10), "--look", "none")
    connector.sandbox.switch(drop_before=0)
    assert lost_result.rows["unknown"] >= 1
    unknown_count = len(read_states(connector))
    refused_result = retry(connector, "20200101T000000-abcdef")
    assert refused_result.is_refused
    assert "connector status" in refused_result.stderr
    result = retry(connector, first_result.report["run_id"])
    assert result.rows == {"read": 3, "created": 3}
    assert read_states(connector) == [State.UNKNOWN] * (unknown_count - 3)


# Other reports


def test_a_retry_without_open_entries_reports_this_and_sends_no_request(connector: Connector, tmp_path: Path) -> None:
    connector.import_file(write_addresses(tmp_path / "people.csv", 3))
    requests = connector.sandbox.stats()["requests"]
    result = retry(connector)
    assert (result.exit_code, result.report["status"], result.report["rows"]["read"]) == (0, "ok", 0)
    assert any("Nothing to do: the ledger has no" in message for message in result.report["messages"])
    assert connector.sandbox.stats()["requests"] == requests


def test_open_entries_of_another_account_are_reported(connector: Connector, tmp_path: Path) -> None:
    leave_three_unknown_creates(connector, write_addresses(tmp_path / "people.csv", 3), drop_before=1)
    job = tmp_path / "job.yaml"
    job.write_text(SUPPRESSING_JOB.replace("job: news", "job: news\nservice: {account: other}"), encoding="utf-8")
    write_csv(tmp_path / "gone.csv", "address")
    result = connector.run_json("retry", "--job", job)
    assert (result.exit_code, result.report["rows"]["read"]) == (0, 0)
    expected_text = f"3 entries of another account of this ledger are unknown or held: {connector.sandbox.base_url}"
    assert expected_text in result.report["messages"]
    assert read_states(connector) == [State.UNKNOWN] * 3


def test_a_list_that_fails_ends_the_retry_and_each_entry_has_an_outcome(connector: Connector, tmp_path: Path) -> None:
    path = write_addresses(tmp_path / "people.csv", 3)
    leave_three_held_creates(connector, path)
    leave_three_unknown_creates(
        connector, write_addresses(tmp_path / "more.csv", 3, first_index=10), base="Shop", drop_before=1
    )
    connector.sandbox.switch(list_error=1)
    result = retry(connector, clock=skip_waits())
    assert (result.exit_code, result.report["status"]) == (3, "aborted")
    assert "The run ended before it retried the entries of" in result.stderr
    connector.sandbox.switch(list_error=0)
    assert retry(connector, "--held", "resend").rows == {"read": 6, "created": 6}
    assert set(count_stored_emails(connector.sandbox).values()) == {1}


def test_a_signal_while_absence_is_being_proved_ends_the_retry(connector: Connector, tmp_path: Path) -> None:
    leave_three_unknown_creates(connector, write_addresses(tmp_path / "people.csv", 3), drop_before=1)
    leave_three_unknown_creates(
        connector, write_addresses(tmp_path / "more.csv", 3, first_index=10), base="Shop", drop_before=1
    )
    list_request_count = count_requests(connector.sandbox, "list")
    with connector.start("retry", "--quiet-period", "60s", "--output", "json") as process:
        wait_for(lambda: count_requests(connector.sandbox, "list") > list_request_count)
        process.send_signal(signal.SIGINT)
        result = wait_for_result(process)
    assert (result.exit_code, result.report["status"]) == (130, "stopped")
    assert result.rows == {"read": 3, "unknown": 3}
    assert "The run ended before it retried the entries of Shop" in result.stderr
    assert read_states(connector) == [State.UNKNOWN] * 6


# Decisions about held entries


def test_a_retry_confirms_held_entries_that_the_list_shows(connector: Connector, tmp_path: Path) -> None:
    sandbox, path = connector.sandbox, write_addresses(tmp_path / "people.csv", 3)
    held_result = leave_three_held_creates(connector, path)
    assert {(row["_outcome"], row["_code"], row["email"]) for row in read_rejects(held_result)} == {
        ("unknown", "held", f"person{index}@example.com") for index in range(3)
    }
    assert sandbox.stats()["subscribers"] == 0
    second_result = connector.import_file(path, "--on-unknown", "hold")
    assert second_result.rows == {"read": 3, "unknown": 3}
    create_elsewhere(connector, write_addresses(tmp_path / "one.csv", 1))
    result = retry(connector)
    assert (result.exit_code, result.rows) == (1, {"read": 3, "exists": 1, "unknown": 2})
    assert result.report["settled"]["found"] == 1
    assert {(row["_code"], row["email"]) for row in read_rejects(result)} == {
        ("held", f"person{person_number}@example.com") for person_number in (1, 2)
    }
    assert any("wait for your decision" in message for message in result.report["messages"])
    assert count_stored_emails(sandbox) == {"person0@example.com": 1}
    assert read_states(connector) == [State.HELD] * 2


def test_held_entries_are_sent_again_with_the_option_held_resend(connector: Connector, tmp_path: Path) -> None:
    sandbox = connector.sandbox
    leave_three_held_creates(connector, write_addresses(tmp_path / "people.csv", 3))
    create_elsewhere(connector, write_addresses(tmp_path / "one.csv", 1))
    job = tmp_path / "job.yaml"
    job.write_text(
        SUPPRESSING_JOB.replace("200ms", "200ms, on_unknown: hold").replace("suppress", "#"), encoding="utf-8"
    )
    assert connector.run_json("retry", "--job", job).rows == {"read": 3, "exists": 1, "unknown": 2}
    result = connector.run_json("retry", "--job", job, "--held", "resend")  # has precedence over on_unknown of the job
    assert (result.exit_code, result.rows) == (0, {"read": 2, "created": 2})
    assert set(count_stored_emails(sandbox).values()) == {1}
    assert read_states(connector) == []


def test_held_entries_are_rejected_with_the_option_held_drop(connector: Connector, tmp_path: Path) -> None:
    sandbox, path = connector.sandbox, write_addresses(tmp_path / "people.csv", 3)
    leave_three_held_creates(connector, path)
    result = retry(connector, "--held", "drop")
    assert (result.exit_code, result.rows) == (1, {"read": 3, "rejected": 3})
    assert (sandbox.stats()["subscribers"], read_states(connector)) == (0, [State.REJECTED] * 3)
    assert connector.import_file(path).rows == {"read": 3, "rejected": 3}
    path.write_text(path.read_text(encoding="utf-8").replace("Ann 1,", "Ann B,"), encoding="utf-8")
    assert connector.import_file(path).rows == {"read": 3, "created": 1, "rejected": 2}


# Rejected entries


def leave_one_rejected_create(connector: Connector, path: Path) -> CommandResult:
    connector.sandbox.switch(required=["Phone"])
    result = connector.import_file(write_csv(path, "email,phone,tags", "a@x.org,1,", 'b@x.org,,"news,vip"'))
    assert result.rows == {"read": 2, "created": 1, "rejected": 1}
    return result


def test_rejected_entries_are_sent_again_only_with_the_option_rejected(connector: Connector, tmp_path: Path) -> None:
    leave_one_rejected_create(connector, tmp_path / "people.csv")
    connector.sandbox.switch(required=[])
    result = retry(connector)
    assert (result.exit_code, result.rows) == (0, {"read": 0} if "read" in result.rows else {})
    assert read_states(connector) == [State.REJECTED]
    second_result = retry(connector, "--rejected")
    assert (second_result.exit_code, second_result.rows) == (0, {"read": 1, "created": 1})
    assert count_stored_emails(connector.sandbox) == {"a@x.org": 1, "b@x.org": 1}
    assert read_states(connector) == []


def test_a_rejected_subscriber_that_exists_now_is_not_sent_again(connector: Connector, tmp_path: Path) -> None:
    leave_one_rejected_create(connector, tmp_path / "people.csv")
    connector.sandbox.switch(required=[])
    create_elsewhere(connector, write_csv(tmp_path / "one.csv", "email", "b@x.org"))
    result = retry(connector, "--rejected")
    assert (result.exit_code, result.rows) == (0, {"read": 1, "exists": 1})
    assert count_stored_emails(connector.sandbox) == {"a@x.org": 1, "b@x.org": 1}


def test_the_rejects_of_a_retry_can_be_corrected_and_imported(connector: Connector, tmp_path: Path) -> None:
    leave_one_rejected_create(connector, tmp_path / "people.csv")
    result = retry(connector, "--rejected")
    assert (result.exit_code, result.rows) == (1, {"read": 1, "rejected": 1})
    rejects_path = Path(result.report["rejects_file"])
    (row,) = read_rejects(result)
    assert (row["email"], row["phone"], row["_outcome"], row["_http_status"]) == ("b@x.org", "", "rejected", "400")
    header, cells = csv.reader(rejects_path.read_text(encoding="utf-8").splitlines())
    with rejects_path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(
            [header, ["2" if name == "phone" else value for name, value in zip(header, cells, strict=True)]]
        )
    job = tmp_path / "job.yaml"  # the columns of these rejects are fields, not columns of the job's source
    fields = "{name: News}, fields: {email: mail, is_active: {value: true}}"
    job.write_text(SUPPRESSING_JOB.replace("{name: News}", fields), encoding="utf-8")
    write_csv(tmp_path / "gone.csv", "address", "b@x.org")
    assert connector.run_json("import", rejects_path, "--job", job).rows == {"read": 1, "suppressed": 1}
    write_csv(tmp_path / "gone.csv", "address", "c@x.org")
    second_result = connector.run_json("import", rejects_path, "--job", job)
    assert (second_result.exit_code, second_result.rows) == (0, {"read": 1, "created": 1})
    subscribers = list_stored_subscribers(connector.sandbox)
    assert (subscribers["b@x.org"]["Phone"], subscribers["b@x.org"]["Tags"]) == ("2", ["news", "vip"])


def test_rejected_entries_that_a_stopped_retry_did_not_reach_stay_in_the_ledger(
    connector: Connector, tmp_path: Path
) -> None:
    """The ledger has only the bodies of these entries, no source rows."""
    sandbox = connector.sandbox
    sandbox.switch(required=["Phone"])
    people = (f"person{index}@example.com,{'' if index else 1}" for index in range(31))
    first_result = connector.import_file(write_csv(tmp_path / "people.csv", "email,phone", *people))
    assert first_result.rows == {"read": 31, "created": 1, "rejected": 30}
    time.sleep(0.5)  # two quiet periods: the list would show refused creates that took effect
    sandbox.switch(required=[], latency_ms=100)
    options = ("--quiet-period", "200ms", "--max-concurrency", "1", "--output", "json")
    with connector.start("retry", "--rejected", *options) as process:
        wait_for(lambda: has_stored_subscribers(sandbox, 5))
        process.send_signal(signal.SIGINT)
        stopped_result = wait_for_result(process)
    assert (stopped_result.exit_code, stopped_result.rows["read"]) == (130, 30)
    assert stopped_result.rows["created"] + stopped_result.rows["unsent"] == 30
    sandbox.switch(latency_ms=0)
    assert retry(connector, "--rejected").rows == {
        "read": stopped_result.rows["unsent"],
        "created": stopped_result.rows["unsent"],
    }
    assert set(count_stored_emails(sandbox).values()) == {1}


# Suppression


def write_suppressing_job(folder: Path) -> Path:
    write_addresses(folder / "people.csv", 3)
    write_csv(folder / "gone.csv", "address", "somebody@example.com")
    job = folder / "job.yaml"
    job.write_text(SUPPRESSING_JOB, encoding="utf-8")
    return job


def leave_unknown_entries_of_suppressing_job(connector: Connector, sandbox: SandboxProcess, folder: Path) -> Path:
    """Leave three unknown entries of a job with a suppression list."""
    job = write_suppressing_job(folder)
    sandbox.switch(drop_before=1)
    assert connector.run_json("sync", job).rows == {"read": 3, "unknown": 3}
    sandbox.switch(drop_before=0)
    return job


def test_unknown_entries_of_a_job_with_a_suppression_list_are_sent_again_only_with_the_list(
    connector: Connector, tmp_path: Path
) -> None:
    sandbox = connector.sandbox
    job = leave_unknown_entries_of_suppressing_job(connector, sandbox, tmp_path)
    result = retry(connector)
    assert (result.exit_code, result.rows) == (1, {"read": 3, "unknown": 3})
    assert any("without the suppression list of the job" in message for message in result.report["messages"])
    assert not any("wait for your decision" in message for message in result.report["messages"])
    assert (sandbox.stats()["subscribers"], read_states(connector)) == (0, [State.UNKNOWN] * 3)
    namesake_result = connector.import_file(write_csv(tmp_path / "news.csv", "email", "z@x.org"))
    assert (namesake_result.report["job"], count_stored_emails(sandbox)) == ("news", {"z@x.org": 1}), (
        "an import of a file is not a run of the job with the same name"
    )
    write_csv(tmp_path / "gone.csv", "address", "person1@example.com")
    job_result = connector.run_json("retry", "--job", job)
    assert (job_result.exit_code, job_result.rows) == (0, {"read": 3, "suppressed": 1, "created": 2})
    assert count_stored_emails(sandbox) == {"person0@example.com": 1, "person2@example.com": 1, "z@x.org": 1}
    assert read_states(connector) == []


def test_rejected_subscribers_that_the_suppression_list_names_later_are_not_sent_again(
    connector: Connector, tmp_path: Path
) -> None:
    sandbox, job = connector.sandbox, write_suppressing_job(tmp_path)
    sandbox.switch(required="Phone")
    assert connector.run_json("sync", job).rows == {"read": 3, "rejected": 3}
    sandbox.switch(required="")
    time.sleep(0.5)  # two quiet periods: the list would show refused creates that took effect
    result_without_option = retry(connector, "--rejected")
    assert (result_without_option.rows, sandbox.stats()["subscribers"]) == ({"read": 3, "rejected": 3}, 0)
    write_csv(tmp_path / "gone.csv", "address", "person1@example.com")
    result = connector.run_json("retry", "--rejected", "--job", job)
    assert (result.exit_code, result.rows) == (0, {"read": 3, "suppressed": 1, "created": 2})
    assert count_stored_emails(sandbox) == {"person0@example.com": 1, "person2@example.com": 1}


def test_held_entries_of_a_job_with_a_suppression_list_are_sent_again_only_with_the_list(
    connector: Connector, tmp_path: Path
) -> None:
    job = leave_unknown_entries_of_suppressing_job(connector, connector.sandbox, tmp_path)
    held_result = connector.run_json("retry", "--job", job, "--on-unknown", "hold")
    assert held_result.rows == {"read": 3, "unknown": 3}
    result = retry(connector, "--held", "resend")
    assert (result.exit_code, result.rows) == (1, {"read": 3, "unknown": 3})
    assert (connector.sandbox.stats()["subscribers"], read_states(connector)) == (0, [State.HELD] * 3)
    assert connector.run_json("retry", "--job", job, "--held", "resend").rows == {"read": 3, "created": 3}


def test_a_retry_that_cannot_read_the_suppression_list_sends_no_request(connector: Connector, tmp_path: Path) -> None:
    job = leave_unknown_entries_of_suppressing_job(connector, connector.sandbox, tmp_path)
    requests = connector.sandbox.stats()["requests"]
    write_csv(tmp_path / "gone.csv", "address,since", "person1@example.com,2020,x")
    result = connector.run_json("retry", "--job", job)
    assert (result.exit_code, result.report["status"]) == (2, "usage")
    assert "the suppression list cannot be read" in result.stderr
    assert connector.sandbox.stats()["requests"] == requests
    assert read_states(connector) == [State.UNKNOWN] * 3
