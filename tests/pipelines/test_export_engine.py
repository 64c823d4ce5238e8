"""`export --engine dask`: several processes read the list, and what becomes of it when they die or are stopped."""

import asyncio
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

from connector.errors import ConfigurationError
from connector.export import PartOrder
from connector.paging.sweep import IdRange
from connector.settings import SettingOptions
from pipelines.flows.engine import EngineOptions, open_engine
from pipelines.flows.export_parts import PartPace, open_readers
from pipelines.flows.export_plan import ExportRecipe, plan_export_job, repeat_plan
from pipelines.jobs.reader import load_job
from pipelines.jobs.settings import read_settings
from tests.databases import Database, open_postgres
from tests.paging.times import FINISHED
from tests.pipelines.conftest import Connector, wait_for

KILLS = max(1, int(os.environ.get("CONNECTOR_TEST_KILLS", "5")) // 5)
ROWS = 16_000


@pytest.fixture
def postgres() -> Iterator[Database]:
    with open_postgres() as database:
        yield database


def list_workers(pid: int) -> list[int]:
    """The processes that this one's fork server has started to work, those that are dead not."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            is_forked = b"forkserver" in (path / "cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
        if state != "Z" and is_forked:
            parents[int(path.name)] = int(parent)
    return sorted(each for each, parent in parents.items() if parents.get(parent) == pid)


def read_ids(folder: Path) -> list[int]:
    """Of the files that the manifest names, which are all that are there."""
    if not folder.exists():
        return []
    manifest = json.loads((folder / "_connector.json").read_text())
    assert sorted(each["path"] for each in manifest["files"]) == sorted(each.name for each in folder.glob("*.parquet"))
    tables = [pq.read_table(folder / each["path"], columns=["id"]) for each in manifest["files"]]
    return sorted(row for table in tables for row in table["id"].to_pylist())


def read_table(database: Database) -> list[int]:
    """Of the table, where there is one; parts of a run that ended well are gone."""
    with database.begin() as other:
        names = other.exec_driver_sql("select tablename from pg_tables where schemaname = 'public'").scalars().all()
        return sorted(other.exec_driver_sql("select id from subscribers").scalars()) if "subscribers" in names else []


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
    """And when it is the command itself that is killed, as every third time, all is as before or as after."""
    chance = random.Random(KILLS)
    first = connector.sandbox.seed(ROWS, base_name="News")["first_id"]
    rows, shown = ROWS, {"list": 0, postgres.url: 0}
    for number in range(KILLS):
        to = postgres.url if number % 2 else "list"
        process = start(connector, to)
        time.sleep(chance.uniform(0, 2))
        workers = list_workers(process.pid)
        is_command = number % 3 == 2
        for pid in [process.pid] if is_command else workers[-1:]:  # or they have just ended
            os.kill(pid, signal.SIGKILL)
        if is_command:
            process.communicate()
            wait_for(lambda: not any(Path(f"/proc/{each}").exists() for each in workers))  # noqa: B023 - at once
        else:
            report = end(process)
            assert (report["status"], report["rows"]) == ("ok", {"read": rows, "written": rows}), report["messages"]
            assert (report["certificate"]["verdict"], report["certificate"]["ranges"]) == ("complete", 2)
            assert report["requests"]["list"]["sent"] >= rows // 1000, "those of the workers are counted"
            shown[to] = rows
        ids = read_table(postgres) if number % 2 else read_ids(tmp_path / "list")
        assert ids in (list(range(first, first + shown[to])), list(range(first, first + rows)))
        rows += connector.sandbox.seed(10, base_name="News")["count"]
        shown[to] = len(ids)


@pytest.mark.campaign
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_stops_all_workers_and_nothing_is_published(
    connector: Connector, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """A terminal sends SIGINT to the workers, too."""
    connector.sandbox.seed(ROWS, base_name="News")
    process = start(connector, "list")
    workers = list_workers(process.pid)
    for pid in (process.pid, *(workers if number == signal.SIGINT else [])):
        os.kill(pid, number)
    stdout, stderr = process.communicate(timeout=300)
    report = json.loads(stdout)
    assert (process.returncode, report["status"], report["rows"]["written"]) == (code, "stopped", 0)
    assert "Traceback" not in stderr, stderr
    assert len(workers) == 2
    assert not [each for each in workers if Path(f"/proc/{each}").exists()]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state"]


REFUSED = [
    (("a.parquet", "--engine", "dask"), "export to a folder"),
    (("list", "--workers", "2"), "add --engine dask"),
    (("list", "--engine", "dask", "--workers", "2", "--scheduler", "tcp://127.0.0.1:9"), "give one of them"),
    (("list", "--engine", "dask", "--record", "r.jsonl"), "--record is of one process"),
    (("postgresql://me:hush@127.0.0.1/w", "--engine", "dask"), "belongs in a job file"),
    (("postgresql://me@127.0.0.1/w?password=hush", "--engine", "dask"), "belongs in a job file"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_several_workers_cannot_do_is_refused(
    connector: Connector, arguments: tuple[str, ...], message: str
) -> None:
    ended = connector.run("export", *arguments)
    assert ended.is_refused
    assert message in ended.stderr
    assert "hush" not in ended.stderr


def test_the_threads_of_a_worker_keep_the_rate_together(
    connector: Connector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import LocalCluster

    first = connector.sandbox.seed(12_000, base_name="News")["first_id"]
    for name, value in connector.environ.items():
        monkeypatch.setenv(name, value)
    bounds = [None, first + 4000, first + 8000, None]
    orders = [
        PartOrder(number + 1, IdRange(1, bounds[number], bounds[number + 1], 4000 * number), "run", "run", FINISHED)
        for number in range(3)
    ]

    async def read(scheduler: str) -> tuple[int, float]:
        requests: dict[str, dict[str, int]] = {}
        recipe = ExportRecipe(connector.sandbox.base_url, None, str(tmp_path / "list"))
        async with open_engine(EngineOptions(scheduler=scheduler)) as engine:
            readers = await open_readers(engine, recipe, PartPace(max_rate=3.0), lambda _: None, requests)
            assert (engine.workers, readers.workers) == (1, 3)
            began = time.monotonic()
            done = await readers.read(orders)
            assert sum(each.reading.rows for each in done) == 12_000
            return requests["list"]["sent"], time.monotonic() - began

    with LocalCluster(n_workers=1, threads_per_worker=3, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        sent, took_s = asyncio.run(read(cluster.scheduler_address))
    assert sent >= 12
    assert sent / took_s < 6.0, "each begins with a request; with 3/s for each it would be about 10"


def test_a_worker_whose_job_file_says_other_rows_is_refused(connector: Connector, tmp_path: Path) -> None:
    path, environ = tmp_path / "job.yaml", connector.environ

    def write(columns: str) -> None:
        path.write_text(f"job: nightly\nservice: {{account: main}}\nexport: {{to: list, columns: [{columns}]}}\n")

    write("id, email")
    job = load_job(path, environ)
    plan = plan_export_job(job, read_settings(environ, job, SettingOptions(), is_writing=False), workers_read=path)
    assert plan.recipe is not None
    assert repeat_plan(plan.recipe, environ).destination == plan.destination
    write("id")
    with pytest.raises(ConfigurationError, match=r"job.yaml is not the command's: bring the same one"):
        repeat_plan(plan.recipe, environ)
