"""`connector retry`: what earlier runs left is settled and finished, from the bodies that the ledger kept."""

import signal
from pathlib import Path
from typing import Any

import pytest

from connector.states import State
from tests.pipelines.conftest import Connector, Ended, count_stored, write_addresses, write_csv
from tests.pipelines.leftovers import LISTED_JOB, hold_three, lose_three, read_states, retry

# A run that was lost or killed, finished without its source


@pytest.mark.parametrize(
    ("losses", "rows", "settled"),
    [
        ({"drop_after": 1}, {"read": 3, "exists": 3}, {"found": 3, "absent": 0}),
        ({"drop_before": 1}, {"read": 3, "created": 3}, {"found": 0, "absent": 3}),
    ],
)
def test_what_a_run_left_unknown_is_finished_without_its_source(
    connector: Connector, tmp_path: Path, losses: dict[str, Any], rows: dict[str, int], settled: dict[str, int]
) -> None:
    path = write_addresses(tmp_path / "people.csv", 3)
    lose_three(connector, path, **losses)
    path.unlink()
    ended = retry(connector)
    assert (ended.code, ended.report["status"], ended.rows) == (0, "ok", rows)
    assert ended.report["settled"] == settled
    assert ended.report["command"] == "retry"
    assert count_stored(connector.sandbox) == {f"person{each}@example.com": 1 for each in range(3)}
    assert read_states(connector) == []


def test_every_base_of_the_account_is_finished_in_turn(connector: Connector, tmp_path: Path) -> None:
    lose_three(connector, write_addresses(tmp_path / "one.csv", 3), drop_after=1)
    lose_three(connector, write_addresses(tmp_path / "two.csv", 3, first=10), base="Shop", drop_before=1)
    ended = retry(connector)
    assert (ended.code, ended.rows) == (0, {"read": 6, "exists": 3, "created": 3})
    bases = {event["subscriber"]["Base"]["Name"] for event in connector.sandbox.truth()["events"]}
    assert bases == {"News", "Shop"}


@pytest.mark.parametrize("option", [("--base-name", "Shop"), ("--base-id", "2")])
def test_one_base_can_be_asked_for(connector: Connector, tmp_path: Path, option: tuple[str, str]) -> None:
    lose_three(connector, write_addresses(tmp_path / "one.csv", 3), drop_before=1)
    connector.run_json("import", write_addresses(tmp_path / "new.csv", 1, first=90), "--base-name", "Other")
    connector.run_json("import", write_addresses(tmp_path / "shop.csv", 1, first=91), "--base-name", "Shop")
    lose_three(connector, write_addresses(tmp_path / "two.csv", 3, first=10), base="Shop", drop_before=1)
    ended = retry(connector, *option)
    assert ended.rows == {"read": 3, "created": 3}
    assert read_states(connector) == [State.UNKNOWN] * 3


def test_a_run_can_be_asked_for_by_its_id(connector: Connector, tmp_path: Path) -> None:
    first = lose_three(connector, write_addresses(tmp_path / "one.csv", 3), drop_before=1)
    lose_three(connector, write_addresses(tmp_path / "two.csv", 3, first=10), base="Shop", drop_before=1)
    ended = retry(connector, first.report["run_id"])
    assert ended.rows == {"read": 3, "created": 3}
    assert set(count_stored(connector.sandbox)) == {f"person{each}@example.com" for each in range(3)}
    assert read_states(connector) == [State.UNKNOWN] * 3


def test_of_one_base_only_what_the_run_left_is_taken_up(connector: Connector, tmp_path: Path) -> None:
    first = lose_three(connector, write_addresses(tmp_path / "one.csv", 3), drop_before=1)
    connector.sandbox.switch(drop_before=1)
    lost = connector.import_file(write_addresses(tmp_path / "two.csv", 3, first=10), "--look", "none")
    connector.sandbox.switch(drop_before=0)
    assert lost.rows["unknown"] >= 1
    left = len(read_states(connector))
    ended = retry(connector, first.report["run_id"])
    assert ended.rows == {"read": 3, "created": 3}
    assert read_states(connector) == [State.UNKNOWN] * (left - 3)


def test_a_run_that_the_ledger_does_not_know_is_refused_with_the_latest(connector: Connector, tmp_path: Path) -> None:
    known = lose_three(connector, write_addresses(tmp_path / "one.csv", 3), drop_before=1)
    ended = retry(connector, "20200101T000000-abcdef")
    assert ended.is_refused
    assert known.report["run_id"] in ended.stderr
    assert "import one" in ended.stderr
    assert read_states(connector) == [State.UNKNOWN] * 3


# What else is told


def test_nothing_to_do_is_said_and_sends_nothing(connector: Connector, tmp_path: Path) -> None:
    connector.import_file(write_addresses(tmp_path / "people.csv", 3))
    requests = connector.sandbox.stats()["requests"]
    ended = retry(connector)
    assert (ended.code, ended.report["status"], ended.report["rows"]["read"]) == (0, "ok", 0)
    assert any("nothing is unknown" in message for message in ended.report["messages"])
    assert connector.sandbox.stats()["requests"] == requests


def test_what_another_account_of_the_ledger_holds_is_mentioned(connector: Connector, tmp_path: Path) -> None:
    lose_three(connector, write_addresses(tmp_path / "people.csv", 3), drop_before=1)
    job = tmp_path / "job.yaml"
    job.write_text(LISTED_JOB.replace("job: news", "job: news\nservice: {account: other}"), encoding="utf-8")
    write_csv(tmp_path / "gone.csv", "address")
    ended = connector.run_json("retry", "--job", job)
    assert (ended.code, ended.report["rows"]["read"]) == (0, 0)
    words = f"entries that are unknown or held in another account of this ledger, {connector.sandbox.base_url}: 3"
    assert words in ended.report["messages"]
    assert read_states(connector) == [State.UNKNOWN] * 3


def test_a_list_that_fails_ends_the_retry_with_every_entry_accounted_for(connector: Connector, tmp_path: Path) -> None:
    path = write_addresses(tmp_path / "people.csv", 3)
    hold_three(connector, path)
    lose_three(connector, write_addresses(tmp_path / "more.csv", 3, first=10), base="Shop", drop_before=1)
    connector.sandbox.switch(list_error=1)
    ended = retry(connector)
    assert (ended.code, ended.report["status"]) == (3, "aborted")
    assert "not taken up" in ended.stderr
    connector.sandbox.switch(list_error=0)
    assert retry(connector, "--resend-held").rows == {"read": 6, "created": 6}
    assert set(count_stored(connector.sandbox).values()) == {1}


def test_a_wrong_token_burns_nothing(connector: Connector, tmp_path: Path) -> None:
    lose_three(connector, write_addresses(tmp_path / "people.csv", 3), drop_before=1)
    wrong = connector.run_json("retry", environ={"CONNECTOR_TOKEN": "not-the-token-at-all"})
    assert wrong.is_refused
    assert read_states(connector) == [State.UNKNOWN] * 3
    assert retry(connector).rows == {"read": 3, "created": 3}


def test_a_signal_while_absence_is_being_proved_ends_the_retry(connector: Connector, tmp_path: Path) -> None:
    lose_three(connector, write_addresses(tmp_path / "people.csv", 3), drop_before=1)
    lose_three(connector, write_addresses(tmp_path / "more.csv", 3, first=10), base="Shop", drop_before=1)
    asked = connector.sandbox.stats()["requests"]["list"]["received"]
    with connector.start("retry", "--quiet-period", "60s", "--output", "json") as process:
        while connector.sandbox.stats()["requests"]["list"]["received"] == asked:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=20)
    ended = Ended(process.returncode, stdout, stderr)
    assert (ended.code, ended.report["status"]) == (130, "stopped")
    assert ended.rows == {"read": 3, "unknown": 3}
    assert "not taken up, since the run ended before: Shop" in stderr
    assert read_states(connector) == [State.UNKNOWN] * 6
