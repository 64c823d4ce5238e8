"""A signal ends an export within seconds also while it opens its target, or waits for a lock to publish."""

import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector

SOON_S = 15.0
"""A lock is waited for 30 seconds: an export that ends before has heard the signal. Alone it takes about one."""


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        yield other


def wait_for_number(other: sqlite3.Connection, number: int) -> None:
    """Until an export has taken this number, which it does before it reads the list."""
    for _ in range(400):
        if other.execute("select max(number) from _connector_runs").fetchone() == (number,):
            return
        time.sleep(0.05)
    raise AssertionError("no export took the number")


@pytest.mark.parametrize(("number", "moment"), [(signal.SIGINT, "opens"), (signal.SIGTERM, "publishes")])
def test_a_signal_ends_an_export_that_waits_for_a_lock(
    connector: Connector, tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    connector.sandbox.seed(3, base_name="News")
    connector.run_json("export", "sqlite:///w.db")
    with locked(tmp_path / "w.db") as other:
        if moment == "publishes":
            other.execute("commit")
            connector.sandbox.switch(latency_ms=1500)  # of its first request: time to lock the file meanwhile
        with connector.start("export", "sqlite:///w.db", "--output", "json") as process:
            if moment == "publishes":
                wait_for_number(other, 2)
                other.execute("begin immediate")  # while the list is read
                connector.sandbox.switch(latency_ms=0)
            time.sleep(3)  # it waits by then, at the latest; a signal that comes earlier ends it as well
            begun = time.monotonic()
            process.send_signal(number)
            process.communicate()
        assert process.returncode == 128 + number
        assert time.monotonic() - begun < SOON_S
        rows = other.execute("select count(*) from subscribers").fetchall()
    assert rows == [(3,)]
