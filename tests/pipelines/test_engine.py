"""dask.distributed as the engine: what becomes of tasks, of the workers that run them, and of the command's signals."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from connector.control import Stop
from connector.errors import ConfigurationError, LockedError, RunAborted
from pipelines.flows import Engine, EngineOptions, open_engine
from tests.pipelines.conftest import wait_for
from tests.pipelines.engine_tasks import be_refused, count_up, die, fail

DEATHS = max(1, int(os.environ.get("CONNECTOR_TEST_KILLS", "5")) // 5)


def is_alive(pid: int) -> bool:
    """Whether this process goes on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def with_engine(work: Callable[[Engine], Coroutine[Any, Any, None]], workers: int = 2) -> None:
    async def run() -> None:
        async with open_engine(EngineOptions(workers=workers)) as engine:
            await work(engine)

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


def test_errors_of_tasks_are_errors_here_and_say_nothing_of_values() -> None:
    async def work(engine: Engine) -> None:
        (refused,) = await engine.run(be_refused, [("held by another",)], Stop())
        assert isinstance(refused.error, LockedError)
        assert str(refused.error) == "held by another"
        (failed,) = await engine.run(fail, [("hush",)], Stop())
        assert isinstance(failed.error, RunAborted)
        assert "a fault of the program: KeyError" in str(failed.error)
        assert "hush" not in str(failed.error)
        (dead,) = await engine.run(die, [()], Stop())
        assert "5 workers died of part 1 one after another" in str(dead.error)
        assert dead.deaths == 5

    with_engine(work, workers=1)


def test_a_stop_ends_tasks_in_order_and_begins_no_other() -> None:
    stop = Stop()

    def note(index: int, worker: str, message: Any) -> None:
        if message.get("number") == 10:
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


def test_a_scheduler_that_does_not_answer_is_refused_in_words() -> None:
    async def join(scheduler: str) -> None:
        async with open_engine(EngineOptions(scheduler=scheduler)):
            pass

    for scheduler in ("tcp://127.0.0.1:9", "nonsense://host"):
        with pytest.raises(ConfigurationError, match=f"the scheduler {scheduler} does not answer"):
            asyncio.run(join(scheduler))
