"""Refused creates (architecture 4.8): each is looked up once at the end of the run."""

import signal
from pathlib import Path

import pytest

from connector.listing.evidence import MOST_REQUESTS
from tests.pipelines.conftest import Connector, Ended, count_stored, wait_for, write_addresses, write_csv
from tests.pipelines.leftovers import read_rejects


def test_a_refused_create_that_took_effect_counts_as_created(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(created_422=0.05)
    ended = connector.import_file(write_addresses(tmp_path / "people.csv", 400))
    assert (ended.code, ended.rows) == (0, {"read": 400, "created": 400}), ended.stderr
    assert set(count_stored(connector.sandbox).values()) == {1}


def test_a_corrected_row_whose_refused_create_took_effect_is_not_created_again(
    connector: Connector, tmp_path: Path
) -> None:
    """The list shows the refused subscribers only after the first run has looked."""
    sandbox, path = connector.sandbox, write_addresses(tmp_path / "people.csv", 50)
    sandbox.switch(created_422=0.2, list_lag_ms=2000)
    refused = connector.import_file(path).rows["rejected"]
    sandbox.switch(created_422=0)
    write_csv(path, "email,first_name,is_active", *(f"person{each}@example.com,Bob,true" for each in range(50)))
    corrected = connector.import_file(path, "--quiet-period", "2100ms")
    assert corrected.rows == {"read": 50, "changed": 50}, corrected.stderr
    assert corrected.report["settled"] == {"found": refused, "absent": 0}
    assert set(count_stored(sandbox).values()) == {1}


@pytest.mark.parametrize("status", [401, 402, 403, 404, 405])
def test_a_refusal_of_the_account_or_the_token_is_sent_again_though_its_row_is_not_read_again(
    status: int, connector: Connector, tmp_path: Path
) -> None:
    sandbox = connector.sandbox
    sandbox.switch(required="FirstName", error_status=status)
    path = write_csv(tmp_path / "people.csv", "email,first_name", "a@x.org,Ann", "b@x.org,")
    assert connector.import_file(path).rows == {"read": 2, "created": 1, "rejected": 1}
    sandbox.switch(required="")
    other = write_csv(tmp_path / "other.csv", "email,first_name", "c@x.org,Cem")
    ended = connector.import_file(other, "--on-unknown", "hold")
    assert (ended.code, ended.rows) == (0, {"read": 1, "created": 1}), ended.stderr
    assert count_stored(sandbox) == {"a@x.org": 1, "b@x.org": 1, "c@x.org": 1}


def test_a_create_that_took_effect_and_got_a_429_is_not_sent_again(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(created_429=0.5, duplicates="accept", retry_after="none")
    ended = connector.import_file(write_addresses(tmp_path / "people.csv", 12))
    assert (ended.code, ended.rows) == (0, {"read": 12, "created": 12}), ended.stderr
    assert connector.sandbox.stats()["faults"]["created_429"] > 0
    assert set(count_stored(connector.sandbox).values()) == {1}


def test_a_429_that_took_effect_is_not_sent_again_while_the_list_lags(connector: Connector, tmp_path: Path) -> None:
    sandbox = connector.sandbox
    sandbox.seed(3000, base_name="News")  # enough for look-ups by filter, whose controls older subscribers pass
    sandbox.switch(created_429=0.1, list_lag_ms=3000, duplicates="accept")
    ended = connector.import_file(write_addresses(tmp_path / "people.csv", 60), "--quiet-period", "4s")
    assert (ended.code, ended.rows) == (0, {"read": 60, "created": 60}), ended.stderr
    assert sandbox.stats()["faults"]["created_429"] > 0
    assert set(count_stored(sandbox).values()) == {1}


def write_mixed(folder: Path, refused: int, good: int) -> Path:
    """Rows of which so many are refused in earnest by a service that requires a first name, after a good one."""
    rows = [f"a{each}@x.org,{'' if 0 < each <= refused else 'Ann'}" for each in range(refused + good + 1)]
    return write_csv(folder / "people.csv", "email,first_name", *rows)


def test_the_next_run_looks_up_what_a_stopped_run_saw_refused(connector: Connector, tmp_path: Path) -> None:
    sandbox, path = connector.sandbox, write_mixed(tmp_path, 1, 1500)
    sandbox.switch(required="FirstName", error_status=422, error_shape="empty", latency_ms=10)
    arguments = ("import", path, "--base-name", "News", "--max-concurrency", "1", "--quiet-period", "200ms")
    with connector.start(*arguments, "--output", "json") as process:
        wait_for(lambda: sandbox.stats()["subscribers"] >= 5)
        sandbox.switch(created_422=0.2)
        wait_for(lambda: sandbox.stats()["subscribers"] >= 100)
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate()
    assert Ended(process.returncode, stdout, stderr).rows["rejected"] > 1
    sandbox.switch(created_422=0, latency_ms=0)
    stored = count_stored(sandbox)  # the next run brings nothing new, and so lists nothing
    write_csv(path, "email,first_name", "a1@x.org,", *(f"{each},Ann" for each in stored))
    again = connector.import_file(path)
    assert again.rows == {"read": len(stored) + 1, "exists": len(stored), "rejected": 1}, again.stderr
    assert set(count_stored(sandbox).values()) == {1}


def test_corrected_rows_are_created_once_by_a_service_that_creates_what_it_refuses(
    connector: Connector, tmp_path: Path
) -> None:
    sandbox, path = connector.sandbox, write_mixed(tmp_path, 30, 3)
    sandbox.switch(required="FirstName", error_status=422, error_shape="empty")
    connector.import_file(path, "--max-concurrency", "1")
    connector.import_file(path)
    write_csv(path, "email,first_name", "z@x.org,Ann", *(f"a{each}@x.org,Bob" for each in range(1, 31)))
    sandbox.switch(created_422=0.3, latency_ms=5)
    ended = connector.import_file(path, "--max-concurrency", "2")
    assert (ended.code, ended.rows) == (0, {"read": 31, "created": 31}), ended.stderr
    assert set(count_stored(sandbox).values()) == {1}


def test_refused_creates_that_took_effect_are_found_among_others_that_did_not(
    connector: Connector, tmp_path: Path
) -> None:
    sandbox = connector.sandbox
    sandbox.switch(required="FirstName", error_status=422, error_shape="empty", latency_ms=5)
    rows = [f"a{each}@x.org,{'' if 0 < each <= 10 else 'Ann'}" for each in range(200)]
    path = write_csv(tmp_path / "people.csv", "email,first_name", *rows)
    arguments = ("import", path, "--base-name", "News", "--max-concurrency", "1", "--quiet-period", "200ms")
    with connector.start(*arguments, "--output", "json") as process:
        wait_for(lambda: sandbox.stats()["subscribers"] >= 2)
        sandbox.switch(created_422=0.2)
        stdout, stderr = process.communicate(timeout=120)
    ended = Ended(process.returncode, stdout, stderr)
    stored = count_stored(sandbox)
    assert set(stored.values()) == {1}
    assert ended.rows["created"] == len(stored) >= 180


def test_refusals_with_one_cause_are_looked_up_once(connector: Connector, tmp_path: Path) -> None:
    """One sweep before the first create, and one for the hundred refused rows."""
    connector.sandbox.switch(required="FirstName")
    rows = [f"a{each}@x.org,{'Ann' if each < 20 else ''}" for each in range(120)]
    ended = connector.import_file(write_csv(tmp_path / "people.csv", "email,first_name", *rows))
    assert (ended.code, ended.rows) == (1, {"read": 120, "created": 20, "rejected": 100}), ended.stderr
    assert ended.report["requests"]["list"]["sent"] <= 12 + 2 * MOST_REQUESTS
    assert ended.report["requests"]["create"]["sent"] == 120


def test_what_a_large_file_has_rejected_is_told_in_its_order(connector: Connector, tmp_path: Path) -> None:
    """Its rows go out in the order that suits the ledger; a short one's as they come."""
    connector.sandbox.switch(required="FirstName")
    for name, number in (("short.csv", 200), ("long.csv", 2500)):
        rows = [f"{name[0]}{each}@x.org,{'' if each % 20 == 7 else 'Ann'}" for each in range(number)]
        path = write_csv(tmp_path / name, "email,first_name", *rows)
        ended = connector.import_file(path, "--max-concurrency", "1" if number == 200 else "16")
        assert ended.rows["rejected"] == number // 20
        told = [int(row["_row"]) for row in read_rejects(ended)]
        assert told == [each + 1 for each in range(number) if each % 20 == 7]
    created = [event["subscriber"]["Email"] for event in connector.sandbox.truth()["events"]]
    short = [email for email in created if email.startswith("s")]
    long = [email for email in created if email.startswith("l")]
    assert short == [f"s{each}@x.org" for each in range(200) if each % 20 != 7]
    assert long[:50] != [f"l{each}@x.org" for each in range(60) if each % 20 != 7][:50]


def test_the_same_row_again_is_rejected_without_a_request_and_a_corrected_one_is_sent(
    connector: Connector, tmp_path: Path
) -> None:
    connector.sandbox.switch(required="FirstName")
    path = write_csv(tmp_path / "people.csv", "email,first_name", "a@x.org,Ann", "b@x.org,", "c@x.org,")
    first = connector.import_file(path)
    assert (first.code, first.rows) == (1, {"read": 3, "created": 1, "rejected": 2})
    assert all("FirstName" in row["_message"] for row in read_rejects(first))
    again = connector.import_file(path)
    assert again.rows == {"read": 3, "exists": 1, "rejected": 2}
    assert again.report["requests"]["create"]["sent"] == 0
    write_csv(path, "email,first_name", "a@x.org,Ann", "b@x.org,Bob", "c@x.org,")
    assert connector.import_file(path).rows == {"read": 3, "exists": 1, "created": 1, "rejected": 1}


def test_no_row_stays_rejected_for_a_token_that_was_revoked_in_the_middle_and_mended(
    connector: Connector, tmp_path: Path
) -> None:
    connector.sandbox.switch(latency_ms=20)
    path = write_addresses(tmp_path / "people.csv", 400)
    with connector.start(
        "import", path, "--base-name", "News", "--max-concurrency", "4", "--output", "json"
    ) as running:
        wait_for(lambda: len(count_stored(connector.sandbox)) >= 20)
        connector.sandbox.switch(authorization="other {token}")
        running.communicate(timeout=60)
    connector.sandbox.switch(authorization="{token}", latency_ms=0)
    ended = connector.import_file(path)
    assert ended.rows["read"] == 400
    assert ended.rows.get("rejected", 0) == 0
    assert set(count_stored(connector.sandbox).values()) == {1}
    assert len(count_stored(connector.sandbox)) == 400


def test_rows_that_the_service_refuses_by_its_words_alone_are_rejected_and_end_no_run(
    connector: Connector, tmp_path: Path
) -> None:
    """`success: false` with status 200, at the head of the file."""
    connector.sandbox.switch(required="FirstName", error_status=200)
    rows = [f"a{each}@x.org,{'' if each < 7 else 'Ann'},true" for each in range(20)]
    path = write_csv(tmp_path / "people.csv", "email,first_name,is_active", *rows)
    ended = connector.import_file(path)
    assert (ended.code, ended.rows) == (1, {"read": 20, "created": 13, "rejected": 7}), ended.stderr
    again = connector.import_file(path)
    assert again.rows == {"read": 20, "exists": 13, "rejected": 7}
    assert again.report["requests"]["create"]["sent"] == 0
