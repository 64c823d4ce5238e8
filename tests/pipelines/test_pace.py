"""The pace of a real import: found under a limit, kept under a ceiling, and silent while the service asks for it."""

from datetime import datetime
from pathlib import Path

from tests.pipelines.conftest import Connector, write_addresses


def test_no_request_leaves_while_the_service_asks_for_a_pause(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(rate=150, limiter="fixed_window", retry_after="seconds", latency_ms=5)
    ended = connector.import_file(write_addresses(tmp_path / "people.csv", 400))
    stats = connector.sandbox.stats()
    assert (ended.code, ended.rows) == (0, {"read": 400, "created": 400}), ended.stderr
    assert stats["limited"] > 0
    assert stats["inside_retry_after"]["told"] == 0


def test_a_limit_that_is_said_otherwise_slows_the_pace_and_loses_no_row(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(rate=150, limit_status=403, retry_after="seconds", latency_ms=5)
    ended = connector.import_file(write_addresses(tmp_path / "people.csv", 400))
    assert (ended.code, ended.rows) == (0, {"read": 400, "created": 400}), ended.stderr
    assert ended.report["requests"]["create"]["limited"] > 0
    assert ended.report["requests"]["create"]["failed"] == 0
    assert connector.sandbox.stats()["inside_retry_after"]["told"] == 0


def test_a_ceiling_is_never_exceeded(connector: Connector, tmp_path: Path) -> None:
    ended = connector.import_file(write_addresses(tmp_path / "people.csv", 120), "--max-rate", "60")
    assert (ended.code, ended.rows) == (0, {"read": 120, "created": 120}), ended.stderr
    started, finished = ended.report["started_at"], ended.report["finished_at"]
    assert measure_seconds(started, finished) >= 119 / 60


def test_no_more_than_the_job_allows_are_under_way(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(latency_ms=50)
    ended = connector.import_file(write_addresses(tmp_path / "people.csv", 200), "--max-concurrency", "3")
    assert (ended.code, ended.rows) == (0, {"read": 200, "created": 200}), ended.stderr
    assert connector.sandbox.stats()["peak_in_flight"] <= 3


def test_a_pause_that_is_absurdly_long_ends_the_run_and_says_until_when(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(refuse=1, refuse_retry_after_s=7200)
    ended = connector.import_file(write_addresses(tmp_path / "people.csv", 10))
    assert (ended.code, ended.report["status"], ended.rows) == (3, "aborted", {"read": 10, "unknown": 1, "unsent": 9})
    assert "run again after 20" in ended.stderr
    assert connector.sandbox.stats()["requests"]["create"]["received"] == 1


def measure_seconds(started: str, finished: str) -> float:
    return (datetime.fromisoformat(finished) - datetime.fromisoformat(started)).total_seconds()


def test_the_limit_that_one_run_found_is_where_the_next_begins(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(rate=60, burst=2, retry_after="seconds", latency_ms=5)
    refused = [0]
    for first in (0, 150):
        people = write_addresses(tmp_path / f"from_{first}.csv", 150, first)
        ended = connector.import_file(people)
        assert (ended.code, ended.rows) == (0, {"read": 150, "created": 150}), ended.stderr
        refused.append(connector.sandbox.stats()["limited"])
    assert refused[2] - refused[1] < refused[1]
