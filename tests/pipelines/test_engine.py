"""dask.distributed as the engine: what becomes of tasks, of the workers that run them, and of the command's signals."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from connector.control import Stop
from connector.errors import ConfigurationError, LockedError, RunAborted
from pipelines.flows.engine import Engine, EngineOptions, open_engine
from tests.pipelines.conftest import ROOT, wait_for
from tests.pipelines.dask_processes import is_alive, read_address, run_dask
from tests.pipelines.engine_tasks import be_refused, count_up, die, fail
from tests.pipelines.forked import start_server

DEATHS = max(1, int(os.environ.get("CONNECTOR_TEST_KILLS", "5")) // 5)


def with_engine(work: Callable[[Engine], Coroutine[Any, Any, None]], workers: int = 2) -> None:
    async def run() -> None:
        async with open_engine(EngineOptions(workers=workers)) as engine:
            await work(engine)

    start_server()
    asyncio.run(run())


def test_tasks_end_in_their_order_and_those_of_a_dead_worker_are_run_again() -> None:
    pids: dict[int, list[int]] = {}

    def note(index: int, worker: str, message: Any) -> None:
        pid = int(worker.rpartition(":")[2])
        if pid not in pids.setdefault(index, []):
            pids[index].append(pid)
        if message.get("number") == 20 and index == 1 and len(pids[1]) <= DEATHS:
            os.kill(pid, signal.SIGKILL)

    async def work(engine: Engine) -> None:
        assert engine.workers == 2
        assert engine.dashboard.startswith("http://127.0.0.1:")
        ends = await engine.run(count_up, [("", index, 60) for index in range(3)], Stop(), note)
        assert [end.value[:3] for end in ends if end.value] == [[index, 60, 0] for index in range(3)]
        assert [end.deaths for end in ends] == [0, DEATHS, 0]
        assert ends[1].worker.endswith(f":{pids[1][-1]}")

    with_engine(work)
    assert len(pids[1]) == DEATHS + 1
    wait_for(lambda: not any(is_alive(pid) for each in pids.values() for pid in each))


def test_a_task_that_has_ended_is_not_run_again_when_its_worker_dies(tmp_path: Path) -> None:
    begun: list[int] = []
    pids: dict[int, int] = {}
    first, since = 0, 0  # how far the first task is, and how often the second one has counted since its last step
    is_over = tmp_path / "over"

    def note(index: int, worker: str, message: Any) -> None:
        nonlocal first, since
        pids[index] = int(worker.rpartition(":")[2])
        if not message:
            begun.append(index)
        if index == 0:
            first = message.get("number", 0)
            return
        since += first == 2
        if since == 100:  # the first one has ended for a second by then
            os.kill(pids[0], signal.SIGKILL)
        elif since == 200:
            is_over.touch()

    async def work(engine: Engine) -> None:
        ends = await engine.run(count_up, [("", 0, 2), (str(is_over), 1, 10_000)], Stop(), note)
        assert [end.deaths for end in ends] == [0, 0]
        assert ends[0].value is not None
        assert ends[0].value[1] == 2

    with_engine(work)
    assert is_over.exists(), "the first worker was killed"
    assert sorted(begun) == [0, 1]


def test_errors_of_tasks_are_errors_here_and_say_nothing_of_values() -> None:
    async def work(engine: Engine) -> None:
        (refused,) = await engine.run(be_refused, [("held by another",)], Stop())
        assert isinstance(refused.error, LockedError)
        assert str(refused.error) == "held by another"
        (failed,) = await engine.run(fail, [("hush",)], Stop())
        assert isinstance(failed.error, RunAborted)
        assert "a fault of the program: KeyError" in str(failed.error)
        assert "hush" not in str(failed.error)

    with_engine(work, workers=1)


@pytest.mark.campaign
def test_a_part_that_its_workers_die_of_is_given_up() -> None:
    async def work(engine: Engine) -> None:
        (dead,) = await engine.run(die, [()], Stop())
        assert "10 workers died of part 1 one after another" in str(dead.error)
        assert dead.deaths == 10

    with_engine(work, workers=1)


def test_a_stop_ends_tasks_in_order_and_begins_no_other() -> None:
    stop = Stop()

    def note(index: int, worker: str, message: Any) -> None:
        if index == 0 and message.get("number") == 10:  # a second one may have begun later
            stop.signal = signal.SIGTERM
            stop.event.set()

    async def work(engine: Engine) -> None:
        ends = await engine.run(count_up, [("", index, 10_000) for index in range(4)], stop, note)
        values = [end.value for end in ends if end.value is not None]
        assert 1 <= len(values) <= 2
        assert all(10 <= number < 1_000 for _, number, _, _ in values[:1])
        assert {number for _, _, number, _ in values} == {signal.SIGTERM}
        assert [end.error for end in ends] == [None] * 4

    with_engine(work)


@pytest.mark.campaign
def test_a_scheduler_that_goes_ends_its_tasks_in_words(tmp_path: Path) -> None:
    async def work(address: str, scheduler: subprocess.Popen[bytes]) -> None:
        def note(index: int, worker: str, message: Any) -> None:
            if message.get("number") == 10:
                scheduler.kill()

        async with open_engine(EngineOptions(scheduler=address)) as engine:
            (ended,) = await engine.run(count_up, [("", 0, 10_000)], Stop(), note)
            assert isinstance(ended.error, RunAborted)
            assert "the scheduler has lost part 1, or has gone" in str(ended.error)

    environ = {"PYTHONPATH": str(ROOT)}  # where the task is
    options = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    with run_dask(tmp_path, "scheduler", *options, environ=environ) as scheduler:
        address = read_address(tmp_path)
        with run_dask(tmp_path, "worker", address, "--nthreads", "1", "--no-dashboard", environ=environ):
            wait_for(lambda: "Registered to:" in (tmp_path / "worker.log").read_text())
            asyncio.run(work(address, scheduler))


def test_tasks_without_a_worker_end_in_words(tmp_path: Path) -> None:
    async def work(address: str, worker: subprocess.Popen[bytes]) -> None:
        def note(index: int, process: str, message: Any) -> None:
            if message.get("number") == 10:
                worker.kill()

        async with open_engine(EngineOptions(scheduler=address)) as engine:
            (ended,) = await engine.run(count_up, [("", 0, 10_000)], Stop(), note)
            assert isinstance(ended.error, RunAborted)
            assert "no worker is left for part 1" in str(ended.error)

    environ = {"PYTHONPATH": str(ROOT), "DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT": "1s"}
    options = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    with run_dask(tmp_path, "scheduler", *options, environ=environ):
        address = read_address(tmp_path)
        once = ("--nthreads", "1", "--no-nanny", "--no-dashboard")
        with run_dask(tmp_path, "worker", address, *once, environ=environ) as worker:
            wait_for(lambda: "Registered to:" in (tmp_path / "worker.log").read_text())
            asyncio.run(work(address, worker))


def test_local_workers_that_cannot_be_replaced_end_the_tasks_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail_to_start(*_: object) -> None:
        raise OSError("no process can be started")

    def note(index: int, worker: str, message: Any) -> None:
        if message.get("number") == 10:
            os.kill(int(worker.rpartition(":")[2]), signal.SIGKILL)

    async def work(engine: Engine) -> None:
        monkeypatch.setattr("distributed.Nanny.instantiate", fail_to_start)
        (ended,) = await engine.run(count_up, [("", 0, 10_000)], Stop(), note)
        assert "no worker is left for part 1" in str(ended.error)

    monkeypatch.setattr("pipelines.flows.engine._WITHOUT_WORKERS", "1s")
    with_engine(work, workers=1)


def test_a_scheduler_that_does_not_answer_is_refused_in_words() -> None:
    async def join(scheduler: str) -> None:
        async with open_engine(EngineOptions(scheduler=scheduler)):
            pass

    for scheduler in ("tcp://127.0.0.1:9", "nonsense://host"):
        with pytest.raises(ConfigurationError, match=f"the scheduler {scheduler} does not answer"):
            asyncio.run(join(scheduler))
