"""Refusals (architecture 4.8): believed, once the first of each kind was looked up: at once, at the end, and next
time."""

import json
import signal
from pathlib import Path
from urllib.request import Request, urlopen

from tests.pipelines.conftest import Connector, Ended, count_stored, wait_for, write_addresses, write_csv
from tests.pipelines.leftovers import read_rejects
from tests.pipelines.lists import load_here, write_parts


def test_a_422_that_created_is_found_out_at_once(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(created_422=0.05)
    ended = connector.import_file(write_addresses(tmp_path / "people.csv", 400))
    assert (ended.code, ended.rows) == (0, {"read": 400, "created": 400}), ended.stderr
    assert set(count_stored(connector.sandbox).values()) == {1}
    assert "subscribers that the service refused (422" in ended.stderr


def test_a_422_that_created_and_shows_still_later_is_found_out_by_the_next_run(
    connector: Connector, tmp_path: Path
) -> None:
    sandbox, path = connector.sandbox, write_addresses(tmp_path / "people.csv", 50)
    sandbox.switch(created_422=0.2, list_lag_ms=6000)
    first = connector.import_file(path)
    refused = first.rows["rejected"]
    assert (first.code, first.rows) == (1, {"read": 50, "created": 50 - refused, "rejected": refused})
    sandbox.switch(created_422=0)
    wait_for(lambda: count_listed(connector) == 50)
    second = connector.import_file(path)
    assert (second.code, second.rows) == (0, {"read": 50, "exists": 50}), second.stderr
    assert second.report["settled"] == {"found": refused, "absent": 0}


def test_what_a_422_created_in_one_base_is_found_out_by_what_it_created_in_another(
    connector: Connector, tmp_path: Path
) -> None:
    """A ledger knows a kind of refusal by one row, of one base; here a later run finds out by that one."""
    sandbox, path = connector.sandbox, write_addresses(tmp_path / "people.csv", 50)
    other = ("import", path, "--base-name", "Other", "--quiet-period", "200ms")
    sandbox.switch(created_422=0.2, list_lag_ms=8000)
    refused = connector.import_file(path).rows["rejected"]
    others = connector.run_json(*other).rows["rejected"]
    assert min(refused, others) > 0
    sandbox.switch(created_422=0)
    wait_for(lambda: count_listed(connector) == 100)
    assert connector.import_file(path).rows == {"read": 50, "exists": 50}
    again = connector.run_json(*other)
    assert (again.code, again.rows) == (0, {"read": 50, "exists": 50}), again.stderr
    assert again.report["settled"] == {"found": others, "absent": 0}


def write_mixed(folder: Path, refused: int, good: int) -> Path:
    """Rows of which so many are refused in earnest by a service that requires a first name, after a good one."""
    rows = [f"a{each}@x.org,{'' if 0 < each <= refused else 'Ann'}" for each in range(refused + good + 1)]
    return write_csv(folder / "people.csv", "email,first_name", *rows)


def test_rows_that_are_refused_in_earnest_settle_though_their_kind_creates(
    connector: Connector, tmp_path: Path
) -> None:
    sandbox, path = connector.sandbox, write_mixed(tmp_path, 5, 0)
    sandbox.switch(required="FirstName", error_status=422, error_shape="empty")
    assert connector.import_file(path).rows == {"read": 6, "created": 1, "rejected": 5}
    sandbox.switch(created_422=0.3)
    people = write_addresses(tmp_path / "others.csv", 60)
    connector.run_json("import", people, "--base-name", "Other", "--quiet-period", "200ms")
    sandbox.switch(created_422=0)
    first, second = connector.import_file(path), connector.import_file(path)
    assert first.report["requests"]["create"]["sent"] == 25  # five times each, and looked up each time
    assert first.rows == second.rows == {"read": 6, "exists": 1, "rejected": 5}
    assert second.report["requests"]["create"]["sent"] == 0
    (cause,) = second.report["causes"]
    assert cause["message"].startswith("422 no attempt took effect, each was looked up")


def test_what_a_run_saw_refused_that_was_stopped_is_sampled_by_the_next(connector: Connector, tmp_path: Path) -> None:
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


def test_what_one_base_finds_out_late_counts_for_the_others_of_the_run(connector: Connector, tmp_path: Path) -> None:
    """Of base 7, 149 are refused in earnest, and one that no sample has was created; base 9 finds out."""
    connector.sandbox.switch(required="FirstName", error_status=422, error_shape="empty")
    first = ("a0@x.org,7,Ann", "b0@x.org,9,Ann")
    seven = tuple(f"a{each}@x.org,7,{'Ann' if each == 54 else ''}" for each in range(1, 151))
    nine = tuple(f"b{each}@x.org,9,Ann" for each in range(1, 10))
    job = write_parts(tmp_path, first, seven, nine, columns="email,list,first_name", more=", max_concurrency: 1")

    def create_from_the_second_on(number: int) -> None:
        connector.sandbox.switch(created_422=int(number > 0))

    report = load_here(connector, job, before_chunk=create_from_the_second_on)
    stored = count_stored(connector.sandbox)
    assert "a54@x.org" in stored
    assert set(stored.values()) == {1}
    assert report.rows["rejected"] == 149


def test_rows_that_were_corrected_are_sent_though_their_kind_is_found_to_create_meanwhile(
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


def test_a_422_that_creates_now_and_then_is_found_out_among_others_that_do_not(
    connector: Connector, tmp_path: Path
) -> None:
    """The service gives no words, so all are of one kind, and the first was refused in earnest."""
    sandbox = connector.sandbox
    sandbox.switch(required="FirstName", error_status=422, error_shape="empty", latency_ms=5)
    rows = [f"a{each}@x.org,{'' if 0 < each <= 10 else 'Ann'}" for each in range(200)]
    path = write_csv(tmp_path / "people.csv", "email,first_name", *rows)
    arguments = ("import", path, "--base-name", "News", "--max-concurrency", "1", "--quiet-period", "200ms")
    with connector.start(*arguments, "--output", "json") as process:
        wait_for(lambda: sandbox.stats()["subscribers"] >= 2)
        sandbox.switch(created_422=0.2)
        stdout, stderr = process.communicate(timeout=120)
    assert "subscribers that the service refused (422" in stderr
    ended = Ended(process.returncode, stdout, stderr)
    stored = count_stored(sandbox)
    assert set(stored.values()) == {1}
    assert ended.rows["created"] == len(stored) >= 180


def test_a_429_that_creates_now_and_then_is_told_with_those_who_are_there_twice(
    connector: Connector, tmp_path: Path
) -> None:
    """The first 429 had no effect: what a client sends again after others like it may be a second one."""
    sandbox = connector.sandbox
    sandbox.switch(refuse=1, refuse_retry_after_s=1, duplicates="accept", latency_ms=5)
    path = write_addresses(tmp_path / "people.csv", 12)
    with connector.start(
        "import", path, "--base-name", "News", "--max-concurrency", "1", "--output", "json"
    ) as process:
        wait_for(lambda: sandbox.stats()["faults"].get("refuse", 0) >= 1)
        sandbox.switch(refuse=0, retry_after="none", created_429=0.3)
        stdout, stderr = process.communicate(timeout=120)
    ended = Ended(process.returncode, stdout, stderr)
    assert max(count_stored(sandbox).values()) > 1, "nothing was made twice: the test shows nothing"
    assert (ended.code, ended.report["status"]) == (1, "partial")
    assert "are in the service twice" in stderr


def count_listed(connector: Connector) -> int:
    url = f"{connector.sandbox.base_url}/api/subscribers/subscribers-list/?limit=1"
    with urlopen(Request(url, headers={"Authorization": connector.sandbox.token})) as answer:
        return int(json.load(answer)["SubscribersList"]["TotalCount"])


def test_refusals_with_one_cause_are_looked_up_once(connector: Connector, tmp_path: Path) -> None:
    """A hundred alike: one look at once, one at the end, besides the listing before the first create."""
    connector.sandbox.switch(required="FirstName")
    rows = [f"a{each}@x.org,{'Ann' if each < 20 else ''}" for each in range(120)]
    ended = connector.import_file(write_csv(tmp_path / "people.csv", "email,first_name", *rows))
    assert (ended.code, ended.rows) == (1, {"read": 120, "created": 20, "rejected": 100}), ended.stderr
    assert ended.report["requests"]["list"]["sent"] <= 12
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
