"""A run that is cut off, politely or not, and the one that comes after it."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector, Ended, count_stored, write_addresses

KILLS = int(os.environ.get("CONNECTOR_TEST_KILLS", "5"))
LOSSES = {"drop_before": 0.01, "drop_after": 0.01, "error_before": 0.01, "error_after": 0.01, "garbage_after": 0.01}
PEOPLE = 100 * (KILLS + 1)


def wait_until(is_so: object, *, at_most_s: float = 30.0) -> None:
    assert callable(is_so)
    deadline = time.monotonic() + at_most_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_killed_at_random_moments_nobody_is_lost_or_there_twice(connector: Connector, tmp_path: Path) -> None:
    sandbox, chance = connector.sandbox, random.Random(11)
    sandbox.switch(latency_ms=40, **LOSSES)
    path = write_addresses(tmp_path / "people.csv", PEOPLE)
    arguments = ("import", path, "--base-name", "News", "--quiet-period", "300ms", "--max-concurrency", "8")
    for kill in range(KILLS):
        with connector.start(*arguments) as process:
            target = sandbox.stats()["subscribers"] + chance.randrange(1, 100)
            wait_until(lambda target=target: sandbox.stats()["subscribers"] >= target)
            process.kill()
            process.communicate()
        assert max(count_stored(sandbox).values(), default=0) <= 1, f"after kill {kill}"
    ended = connector.run_json(*arguments)
    assert ended.code == 0
    stored = count_stored(sandbox)
    assert len(stored) == PEOPLE
    assert set(stored.values()) == {1}
    assert ended.rows["read"] == PEOPLE
    assert ended.rows["created"] + ended.rows["exists"] == PEOPLE


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_in_order_and_the_next_one_finishes(
    connector: Connector, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    sandbox = connector.sandbox
    sandbox.switch(latency_ms=50)
    path = write_addresses(tmp_path / "people.csv", 300)
    arguments = ("import", path, "--base-name", "News", "--max-concurrency", "4", "--output", "json")
    with connector.start(*arguments) as process:
        wait_until(lambda: sandbox.stats()["subscribers"] >= 20)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in stderr

    stopped = Ended(process.returncode, stdout, stderr)
    stored = count_stored(sandbox)
    assert stopped.report["status"] == "stopped"
    assert stopped.rows == {"read": 300, "created": len(stored), "unsent": 300 - len(stored)}
    sandbox.switch(latency_ms=0)
    finished = connector.run_json(*arguments)
    assert finished.rows == {"read": 300, "created": 300 - len(stored), "exists": len(stored)}


def test_a_second_signal_ends_at_once_and_safely(connector: Connector, tmp_path: Path) -> None:
    sandbox = connector.sandbox
    path = write_addresses(tmp_path / "people.csv", 100)
    arguments = ("import", path, "--base-name", "News", "--quiet-period", "300ms", "--output", "json")
    sandbox.switch(hang_after=1, list_lag_ms=3000)  # only the ledger can know of it when the next run begins
    with connector.start(*arguments) as process:
        wait_until(lambda: sandbox.stats()["subscribers"] >= 1)
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)  # two signals at once would be one to the process
        process.send_signal(signal.SIGINT)
        began_at = time.monotonic()
        process.communicate(timeout=30)
    assert process.returncode == 130
    assert time.monotonic() - began_at < 5
    sandbox.switch(hang_after=0)
    assert connector.run_json(*arguments).rows == {"read": 100, "exists": 1, "created": 99}
    assert set(count_stored(sandbox).values()) == {1}
