"""Temporary refusals (architecture 4.8): a limit, maintenance or a quota, answered as a refusal of each create."""

from connector.listing.evidence import MAX_REQUESTS
from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import CommandResult, Connector, count_stored_emails
from tests.pipelines.leftovers import leave_three_unknown_creates, read_rejects, retry
from tests.pipelines.lists import write_lists

SLOW_SWITCHES = {"latency_ms": 5, "duplicates": "accept"}


def has_created_each_once(sandbox: SandboxProcess, person_count: int) -> bool:
    create_counts = count_stored_emails(sandbox)
    return (len(create_counts), set(create_counts.values())) == (person_count, {1})


def count_creates(result: CommandResult) -> int:
    create_count: int = result.report["requests"]["create"]["sent"]
    return create_count


def test_a_rate_limit_answered_as_a_refusal_slows_the_load_and_rejects_no_row(connector: Connector) -> None:
    connector.sandbox.switch(rate=50, limit_status=200, retry_after="none", **SLOW_SWITCHES)
    result = connector.import_file(connector.write_addresses(200))
    result.expect(0, read=200, created=200)
    assert has_created_each_once(connector.sandbox, 200)
    assert count_creates(result) < 2 * 200


def test_a_run_sends_all_refused_rows_only_after_the_service_accepts_one(connector: Connector) -> None:
    sandbox, path = connector.sandbox, connector.write_addresses(50)
    sandbox.switch(quota=20, quota_status=200, **SLOW_SWITCHES)
    connector.import_file(path, "--time-limit", "3s")
    for _ in range(2):
        second_result = connector.import_file(path).expect(1, read=50, exists=20, rejected=30)
        assert count_creates(second_result) == 1
        assert {row["_message"] for row in read_rejects(second_result)} == {"Your plan allows 20 subscribers"}
    sandbox.switch(quota=0)
    connector.import_file(path).expect(0, read=50, exists=20, created=30)
    assert has_created_each_once(sandbox, 50)


def test_a_retry_counts_every_refused_row_that_it_creates_as_read(connector: Connector) -> None:
    """The retry has three unknown rows. The retry also sends one refused row and, when this row is accepted, the other
    refused rows."""
    connector.sandbox.switch(quota=20, quota_status=200, **SLOW_SWITCHES)
    connector.import_file(connector.write_addresses(50), "--time-limit", "3s")
    lost_path = connector.write_addresses(3, first_index=100, name="lost.csv")
    leave_three_unknown_creates(connector, lost_path, drop_before=1)
    connector.sandbox.switch(quota=0)
    retry(connector, "--base-name", "News").expect(0, read=33, created=33)
    assert has_created_each_once(connector.sandbox, 53)


def test_rows_that_lack_a_required_field_are_rejected_without_a_pause(connector: Connector) -> None:
    """The message names the field, so the refusal is about the row."""
    connector.sandbox.switch(required="FirstName", **SLOW_SWITCHES)
    rows = [f"a{index}@x.org,{'Ann' if index < 30 or index > 90 else ''}" for index in range(120)]
    path = connector.write_people("email,first_name", *rows)
    first_result = connector.import_file(path).expect(1, read=120, created=59, rejected=61)
    assert count_creates(first_result) == 120
    # One sweep looks up all refused rows.
    assert first_result.report["requests"]["list"]["sent"] <= 12 + 2 * MAX_REQUESTS
    second_result = connector.import_file(path)
    assert (second_result.rows, count_creates(second_result)) == ({"read": 120, "exists": 59, "rejected": 61}, 0)


def test_a_refused_row_is_created_by_the_next_run_even_without_rows_of_its_base(connector: Connector) -> None:
    connector.sandbox.switch(blocked_from=3, blocked_creates=1, blocked_status=404, **SLOW_SWITCHES)
    write_lists(connector, "a@x.org,news", "b@x.org,shop", "c@x.org,shop")
    connector.sync().expect(1, read=3, created=2, rejected=1)
    write_lists(connector, "a@x.org,news")
    connector.sync().expect(0, read=1, exists=1)
    assert has_created_each_once(connector.sandbox, 3)
