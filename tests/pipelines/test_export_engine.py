"""`export --engine dask`: several processes read the list, and what becomes of it when they die or are stopped."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.databases import Database, open_postgres
from tests.pipelines.conftest import Connector

KILLS = max(1, int(os.environ.get("CONNECTOR_TEST_KILLS", "5")) // 5)
ROWS = 16_000


@pytest.fixture
def postgres() -> Iterator[Database]:
    with open_postgres() as database:
        yield database


def list_workers(pid: int) -> list[int]:
    """The processes below this one that Dask has started to work, those that are dead not."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            is_worker = b"spawn_main" in (path / "cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
        if state != "Z" and is_worker:
            parents[int(path.name)] = int(parent)
    return sorted(each for each, parent in parents.items() if parent == pid or parents.get(parent) == pid)


def read_ids(folder: Path) -> list[int]:
    """Of the files that the manifest names."""
    manifest = json.loads((folder / "_connector.json").read_text())
    assert sorted(each["path"] for each in manifest["files"]) == sorted(each.name for each in folder.glob("*.parquet"))
    tables = [pq.read_table(folder / each["path"], columns=["id"]) for each in manifest["files"]]
    return sorted(row for table in tables for row in table["id"].to_pylist())


def end(process: "subprocess.Popen[str]") -> dict[str, Any]:
    stdout, stderr = process.communicate(timeout=300)
    assert stdout, stderr
    report: dict[str, Any] = json.loads(stdout)
    return report


def count_received(connector: Connector) -> int:
    return int(connector.sandbox.stats()["requests"].get("list", {"received": 0})["received"])


def start(connector: Connector, to: str) -> "subprocess.Popen[str]":
    """An export by two workers that are reading by now."""
    connector.sandbox.switch(latency_ms=150)
    before = count_received(connector)
    process = connector.start_anew("export", to, "--engine", "dask", "--workers", "2", "--output", "json")
    deadline = time.monotonic() + 300  # Dask takes a second to start, where nothing else runs
    while count_received(connector) < before + 8:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def test_workers_export_the_list_though_one_is_killed(connector: Connector, tmp_path: Path, postgres: Database) -> None:
    first = connector.sandbox.seed(ROWS, base_name="News")["first_id"]
    for number in range(KILLS):
        to = postgres.url if number % 2 else "list"
        process = start(connector, to)
        time.sleep(random.Random(number).uniform(0, 1.5))
        for pid in list_workers(process.pid)[-1:]:  # or they have just ended
            os.kill(pid, signal.SIGKILL)
        report = end(process)
        assert (report["status"], report["rows"]) == ("ok", {"read": ROWS, "written": ROWS}), report["messages"]
        assert (report["certificate"]["verdict"], report["certificate"]["ranges"]) == ("complete", 2)
        assert report["requests"].get("list", 0)["sent"] >= ROWS // 1000, "those of the workers are counted"
        if number % 2:
            with postgres.begin() as other:
                ids = sorted(other.exec_driver_sql("select id from subscribers").scalars())
        else:
            ids = read_ids(tmp_path / "list")
        assert ids == list(range(first, first + ROWS))


def test_a_signal_stops_all_workers_and_nothing_is_published(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.seed(ROWS, base_name="News")
    process = start(connector, "list")
    workers = list_workers(process.pid)
    process.send_signal(signal.SIGTERM)
    report = end(process)
    assert (process.returncode, report["status"], report["rows"]["written"]) == (143, "stopped", 0)
    assert len(workers) == 2
    assert not [each for each in workers if Path(f"/proc/{each}").exists()]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state"]


REFUSED = [
    (("a.parquet", "--engine", "dask"), "export to a folder"),
    (("list", "--workers", "2"), "add --engine dask"),
    (("list", "--engine", "dask", "--workers", "2", "--scheduler", "tcp://127.0.0.1:9"), "give one of them"),
    (("list", "--engine", "dask", "--record", "r.jsonl"), "--record is of one process"),
    (("postgresql://me:hush@127.0.0.1/w", "--engine", "dask"), "belongs in a job file"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_several_workers_cannot_do_is_refused(
    connector: Connector, arguments: tuple[str, ...], message: str
) -> None:
    ended = connector.run("export", *arguments)
    assert ended.is_refused
    assert message in ended.stderr
    assert "hush" not in ended.stderr
