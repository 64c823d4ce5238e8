"""Refused creates (architecture 4.8): permanent refusals, and temporary refusals by a limit, maintenance or a quota."""

import time
from collections import Counter

from connector.listing.evidence import MAX_REQUESTS
from connector.sandbox import SandboxProcess
from tests.pipelines.bases_by_row import write_job_with_bases
from tests.pipelines.conftest import (
    NEWS_IMPORT_OPTIONS,
    CommandResult,
    Connector,
    count_creates_by_email,
    wait_for,
    wait_for_result,
)
from tests.pipelines.leftovers import create_with_other_ledger, produce_three_unknown_creates, read_rejects, retry
from tests.pipelines.reconciled import list_subscribers_by_email


def test_a_corrected_row_is_not_created_again_if_its_refused_create_took_effect(connector: Connector) -> None:
    """The list shows the refused subscribers only after the look-up of the first run."""
    sandbox, path = connector.sandbox, connector.write_addresses(50)
    sandbox.switch(created_422=0.2, list_lag_ms=2000)
    rejected_count = connector.import_file(path).rows["rejected"]
    sandbox.switch(created_422=0)
    connector.write_csv(
        path, "email,first_name,is_active", *(f"person{index}@example.com,Bob,true" for index in range(50))
    )
    corrected_result = connector.import_file(path, "--quiet-period", "2100ms")
    assert corrected_result.rows == {"read": 50, "changed": 50}, corrected_result.stderr
    assert corrected_result.report["settled"] == {"found": rejected_count, "absent": 0}
    assert set(connector.count_creates_by_email().values()) == {1}


def test_a_run_repeats_a_create_that_was_refused_because_of_the_account(connector: Connector) -> None:
    connector.sandbox.switch(required="FirstName", error_status=402)
    path = connector.write_people("email,first_name", "a@x.org,Ann", "b@x.org,")
    assert connector.import_file(path).rows == {"read": 2, "created": 1, "rejected": 1}
    connector.sandbox.switch(required="")
    other_path = connector.write_csv("other.csv", "email,first_name", "c@x.org,Cem")
    connector.import_file(other_path, "--on-unknown", "hold").expect(0, read=1, created=1)
    assert connector.count_creates_by_email() == {"a@x.org": 1, "b@x.org": 1, "c@x.org": 1}


def test_a_retry_repeats_a_create_that_was_refused_because_of_the_account(connector: Connector) -> None:
    """`status` counts the create as unresolved, and does not ask for a correction of its row."""
    connector.sandbox.switch(required="FirstName", error_status=403)
    connector.import_file(connector.write_people("email,first_name", "a@x.org,Ann", "b@x.org,"))
    status_report = connector.run_json("status").report
    (open_entry,) = status_report["open_entries"]
    assert (open_entry["state"], open_entry["entries"]) == ("unknown", 1)
    assert not any("Correct" in step for step in status_report["next"]), status_report["next"]
    connector.sandbox.switch(required="")
    connector.run_json("retry", "--quiet-period", "100ms").expect(0, read=1, created=1)
    assert connector.count_creates_by_email() == {"a@x.org": 1, "b@x.org": 1}


def test_creates_that_were_refused_at_random_are_sent_again_without_a_quiet_period(connector: Connector) -> None:
    """Three of 200 creates get a 429, and the list has several pages. The run reads the list twice, and so proves that
    the three subscribers do not exist."""
    connector.sandbox.switch(blocked_from=100, blocked_creates=3, blocked_status=429, max_limit=50)
    result = connector.import_file(connector.write_addresses(200), "--quiet-period", "10m", "--time-limit", "20s")
    result.expect(0, read=200, created=200)
    assert result.report["settled"] == {"found": 0, "absent": 3}
    assert set(connector.count_creates_by_email().values()) == {1}


def test_a_create_is_not_sent_again_if_it_took_effect_despite_a_429(connector: Connector) -> None:
    sandbox, path = connector.sandbox, connector.write_addresses(60)
    sandbox.seed(3000, base_name="News")
    sandbox.switch(created_429=1, list_lag_ms=3_000, duplicates="accept", retry_after="none")
    arguments = ("import", path, "--base-name", "News", "--quiet-period", "2500ms", "--output", "json")
    with connector.start(*arguments) as process:
        connector.wait_for_subscribers(3002)
        sandbox.switch(created_429=0)
        result = wait_for_result(process)
    result.expect_rows(read=60, created=60)
    # On a loaded machine the look-up at the end of the run may come before the list shows the last new subscriber.
    assert result.exit_code == 0 or "the list does not show the last new subscriber" in result.stderr, result.stderr
    assert set(connector.count_creates_by_email().values()) == {1}


def test_a_create_of_another_program_after_a_429_is_not_reported_as_created(connector: Connector) -> None:
    connector.sandbox.switch(refuse=1, retry_after="seconds")
    path = connector.write_people("email,first_name", "ann@x.org,Ann", "bob@x.org,Bob")
    other_path = connector.write_csv("other.csv", "email,first_name", "ann@x.org,Anna")
    arguments = ("import", path, *NEWS_IMPORT_OPTIONS, "--quiet-period", "2s", "--output", "json")
    with connector.start(*arguments) as process:
        wait_for(lambda: connector.sandbox.stats()["faults"].get("refuse", 0) >= 2)
        connector.sandbox.switch(refuse=0)
        create_with_other_ledger(connector, other_path)
        result = wait_for_result(process)
    result.expect(0, read=2, created=1, changed=1)
    assert connector.import_file(path).rows == {"read": 2, "exists": 1, "changed": 1}


def test_the_next_run_creates_the_remaining_rows_if_the_token_is_revoked_during_a_run(connector: Connector) -> None:
    sandbox, path = connector.sandbox, connector.write_addresses(300)
    sandbox.switch(latency_ms=20)
    with connector.start("import", path, *NEWS_IMPORT_OPTIONS, "--max-concurrency", "4", "--output", "json") as process:
        connector.wait_for_subscribers(20)
        sandbox.switch(authorization="other {token}")
        result = wait_for_result(process)
    assert (result.exit_code, result.rows["unsent"] > 0) == (3, True), result.stderr
    sandbox.switch(authorization="{token}", latency_ms=0)
    second_result = connector.import_file(path)
    assert second_result.exit_code == 0, second_result.stderr
    assert second_result.rows["created"] + second_result.rows["exists"] == 300
    assert Counter(connector.count_creates_by_email().values()) == {1: 300}


def test_the_rejects_file_has_the_order_of_the_source(connector: Connector) -> None:
    """The rows of a long file are sent in the order of their digests, because the ledger then works faster."""
    connector.sandbox.switch(required="FirstName")
    rows = [f"a{index}@x.org,{'' if index % 20 == 7 else 'Ann'}" for index in range(2500)]
    result = connector.import_file(connector.write_people("email,first_name", *rows))
    assert [int(row["_row"]) for row in read_rejects(result)] == list(range(9, 2502, 20))


def test_a_later_run_finds_the_subscriber_of_a_refused_create_that_took_effect(connector: Connector) -> None:
    """The first run looks the subscribers up before the list shows them."""
    sandbox, path = connector.sandbox, connector.write_addresses(5)
    sandbox.switch(executed_status=1, executed_statuses=["422"], list_lag_ms=2000)
    assert connector.import_file(path).rows == {"read": 5, "rejected": 5}
    sandbox.switch(executed_status=0)
    # This look-up comes within the quiet period and proves nothing, so a later run must look the rows up again.
    early_result = connector.import_file(path, "--quiet-period", "2s")
    assert early_result.rows == {"read": 5, "rejected": 5}, early_result.stderr
    wait_until_listed(sandbox, 5)
    connector.import_file(path).expect(0, read=5, exists=5)
    assert set(connector.count_creates_by_email().values()) == {1}


def test_a_refused_row_is_looked_up_by_only_one_later_run(connector: Connector) -> None:
    connector.sandbox.switch(required="FirstName", error_status=422)
    path = connector.write_people("email,first_name", "a@x.org,Ann", "b@x.org,")
    assert connector.import_file(path).rows == {"read": 2, "created": 1, "rejected": 1}
    time.sleep(0.5)  # two quiet periods
    list_request_counts = [connector.import_file(path).report["requests"]["list"]["sent"] for _ in range(3)]
    assert list_request_counts[0] > list_request_counts[1] == list_request_counts[2] <= 1, list_request_counts


def wait_until_listed(sandbox: SandboxProcess, subscriber_count: int) -> None:
    wait_for(lambda: len(list_subscribers_by_email(sandbox)) == subscriber_count)


SLOW_SWITCHES = {"latency_ms": 5, "duplicates": "accept"}


def is_each_person_created_once(sandbox: SandboxProcess, person_count: int) -> bool:
    create_counts = count_creates_by_email(sandbox)
    return (len(create_counts), set(create_counts.values())) == (person_count, {1})


def count_creates(result: CommandResult) -> int:
    create_count: int = result.report["requests"]["create"]["sent"]
    return create_count


def test_rows_are_not_rejected_if_a_rate_limit_looks_like_a_refusal(connector: Connector) -> None:
    connector.sandbox.switch(rate=50, limit_status=200, retry_after="none", **SLOW_SWITCHES)
    result = connector.import_file(connector.write_addresses(200))
    result.expect(0, read=200, created=200)
    assert is_each_person_created_once(connector.sandbox, 200)
    assert count_creates(result) < 2 * 200


def test_a_run_sends_the_other_refused_rows_only_after_the_service_accepts_one_of_them(connector: Connector) -> None:
    sandbox, path = connector.sandbox, connector.write_addresses(50)
    sandbox.switch(quota=20, quota_status=200, **SLOW_SWITCHES)
    connector.import_file(path, "--time-limit", "3s")
    for _ in range(2):
        second_result = connector.import_file(path).expect(1, read=50, exists=20, rejected=30)
        assert count_creates(second_result) == 1
        assert {row["_message"] for row in read_rejects(second_result)} == {"Your plan allows 20 subscribers"}
    sandbox.switch(quota=0)
    connector.import_file(path).expect(0, read=50, exists=20, created=30)
    assert is_each_person_created_once(sandbox, 50)


def test_every_refused_row_that_a_retry_creates_counts_as_read(connector: Connector) -> None:
    """The retry has three unknown rows. The retry also sends one refused row and, when this row is accepted, the other
    refused rows."""
    connector.sandbox.switch(quota=20, quota_status=200, **SLOW_SWITCHES)
    connector.import_file(connector.write_addresses(50), "--time-limit", "3s")
    lost_rows_path = connector.write_addresses(3, first_index=100, name="lost.csv")
    produce_three_unknown_creates(connector, lost_rows_path, drop_before=1)
    connector.sandbox.switch(quota=0)
    retry(connector, "--base-name", "News").expect(0, read=33, created=33)
    assert is_each_person_created_once(connector.sandbox, 53)


def test_rows_that_lack_a_required_field_are_rejected_without_a_pause(connector: Connector) -> None:
    """The message names the field, so the refusal is about the row."""
    connector.sandbox.switch(required="FirstName", **SLOW_SWITCHES)
    rows = [f"a{index}@x.org,{'Ann' if index < 30 or index > 90 else ''}" for index in range(120)]
    path = connector.write_people("email,first_name", *rows)
    first_result = connector.import_file(path).expect(1, read=120, created=59, rejected=61)
    assert count_creates(first_result) == 120
    # The run reads the whole list once to look up all refused rows.
    assert first_result.report["requests"]["list"]["sent"] <= 12 + 2 * MAX_REQUESTS
    second_result = connector.import_file(path)
    assert (second_result.rows, count_creates(second_result)) == ({"read": 120, "exists": 59, "rejected": 61}, 0)


def test_a_run_sends_a_refused_create_again_even_if_the_source_has_lost_the_row(connector: Connector) -> None:
    connector.sandbox.switch(blocked_from=3, blocked_creates=1, blocked_status=404, **SLOW_SWITCHES)
    write_job_with_bases(connector, "a@x.org,news", "b@x.org,shop", "c@x.org,shop")
    connector.sync().expect(1, read=3, created=2, rejected=1)
    write_job_with_bases(connector, "a@x.org,news")
    connector.sync().expect(0, read=1, exists=1)
    assert is_each_person_created_once(connector.sandbox, 3)
