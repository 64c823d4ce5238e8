"""dask.distributed as the engine of a run in parts: one task for each part, on processes of this machine or of others.

Theory of operation. The command is the coordinator. It opens a cluster of its own, or joins a scheduler that runs
already, and submits one task for each part: a function of a module, and arguments without a secret. Token, addresses
and files come from each worker's own environment and disk. A worker that dies takes its task with it, and the task is
begun again on another one; so a task must be one that can be begun again, as every run is. Tasks end in a value or an
error that is itself a value, so that no traceback leaves a worker.

While a task runs it says how far it is, and the coordinator says one word in return: stop. It says so to each
process in which a task has begun, and to those in which one begins afterwards. A task ends in order by itself when the
coordinator has gone.

Dask lives in threads of its own. They hear neither SIGINT nor SIGTERM, and nor do the processes that they start: these
end when the coordinator lets them go, or when it is gone.
"""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing import resource_tracker
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import connector
from connector.control import Stop, stay_alive
from connector.errors import ConfigurationError, ConnectorError, LedgerError, LockedError, RunAborted, SourceError
from connector.plurals import count
from connector.report import describe_fault

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

T = TypeVar("T")

_ANSWER_S = 5.0  # a scheduler that does not answer for so long is not there
_FETCHED_S = 1.0  # a value that has come to a worker that lives is there at once
_CLOSING_S = 5.0  # for a worker to end when all tasks have; then it is killed
_GIVEN_UP_S = 0.5  # the same when tasks are still under way, after a second signal
_WATCHED_S = 1.0
"""So often a task looks whether it is still wanted."""

_WITHOUT_WORKERS = "60s"
"""A worker that dies is back within seconds; when none has been there for so long, none comes back."""

_MOST_DEATHS = 10
"""So many workers in a row may die of a part that does not advance; then it is the part that they die of."""

_PRELOADED = ["distributed", "pipelines.flows.joint_load", "psycopg", "pandera.pandas", "uvloop"]
"""What workers are forked with: imported once for all of them, and a worker that dies is replaced within a second."""

_TOPIC = "subscriber-connector"
_LIBRARIES = ("distributed", "bokeh", "cryptography")
_KINDS: tuple[type[ConnectorError], ...] = (ConfigurationError, SourceError, LockedError, LedgerError, RunAborted)

Message = Mapping[str, Any]
"""What a task says: values that msgpack can carry."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Where the tasks run: on the workers of a `scheduler` (its address), or in so many processes of this machine."""

    scheduler: str | None = None
    workers: int | None = None


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What a task has of its worker: `stop` ends it in order, `say` tells the coordinator how far it is; `has_advanced`
    when something is done that an attempt after this one need not do again."""

    stop: Stop
    worker: str
    _say: Callable[[dict[str, Any]], None] = field(repr=False)

    def say(self, message: Message, *, has_advanced: bool = False) -> None:
        """Say this to the coordinator, soon."""
        self._say({"message": dict(message), "has_advanced": has_advanced})


Task = Callable[..., Awaitable[T]]
"""`task(context, *arguments)`: a function of a module, by whose name a worker finds it; arguments and value are
pickled."""


@dataclass(slots=True)
class TaskEnd(Generic[T]):
    """What became of one task: its `value`, or its `error`; neither: it was stopped before it had begun or ended.

    `worker` is the process that it ran in last (machine and number), `deaths` how often a worker died of it.
    """

    value: T | None = None
    error: ConnectorError | None = None
    worker: str = ""
    deaths: int = 0


OnMessage = Callable[[int, str, Message], None]
"""Hears what a task says: the task's index, its worker, the message; `{}` when it begins."""


@asynccontextmanager
async def open_engine(options: EngineOptions) -> AsyncIterator[Engine]:
    """Open a cluster of this machine, or join a scheduler; let the workers go at the end.

    Raises ConfigurationError: the extra is missing, the scheduler does not answer or has no workers, or a worker runs
    another version.
    """
    if lacking := [name for name in _LIBRARIES if find_spec(name) is None]:
        raise ConfigurationError(
            f"--engine dask needs {' and '.join(lacking)}: pip install 'subscriber-connector[dask]', and run it again"
        )
    loop = asyncio.get_running_loop()
    pool = ThreadPoolExecutor(1, "engine", _hear_no_signals)
    with ExitStack() as at_end:  # what is opened, however far that came
        at_end.callback(pool.shutdown, wait=False)
        opened = ExitStack()
        try:
            yield await loop.run_in_executor(pool, _open, options, opened, pool)
        finally:
            await asyncio.shield(loop.run_in_executor(pool, opened.close))


def _open(options: EngineOptions, opened: ExitStack, pool: ThreadPoolExecutor) -> Engine:
    """Open or join, in Dask's own thread; raises as `open_engine`."""
    import dask

    folder = opened.enter_context(TemporaryDirectory(prefix="connector-engine-", ignore_cleanup_errors=True))
    dask.config.set(_configure(folder))  # before distributed is imported, which begins to log
    engine = Engine(pool)
    opened.callback(engine.close)
    if options.scheduler is None:
        engine.start(options.workers or 1)
    else:
        engine.join(options.scheduler)
    if not engine.workers:
        raise ConfigurationError(
            f"the scheduler {options.scheduler} has no workers: start some, such as: dask worker {options.scheduler}"
        )
    _check_versions(engine.client)
    return engine


def _check_versions(client: Client) -> None:
    try:
        said = {"the scheduler": client.run_on_scheduler(_say_version)}  # it reads what a task is, too
        of_workers = client.run(_say_version, on_error="return")
        said |= {f"the worker {address}": version for address, version in of_workers.items()}
    except Exception as error:  # noqa: BLE001 - whatever a foreign scheduler does
        raise ConfigurationError(
            f"the scheduler or its workers cannot be asked for their version ({type(error).__name__}): install the "
            f"connector {connector.__version__} on all their machines"
        ) from None
    for process, version in said.items():
        if version != connector.__version__:
            theirs = version if isinstance(version, str) else "none, or one that cannot be asked"
            raise ConfigurationError(_describe_other_version(process, theirs, connector.__version__))


def _describe_other_version(process: str, theirs: str, ours: str) -> str:
    return (
        f"{process} has another version of the connector ({theirs}) than this command ({ours}): install the "
        "same one on all machines"
    )


def _hear_no_signals() -> None:
    """What this thread starts hears them no more than it does: Dask's loop, the threads that start workers, workers."""
    resource_tracker.ensure_running()  # the first worker would start it, which unblocks both in the thread of its start
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))


@dataclass(slots=True)
class _Submitted:
    """A task as the coordinator sees it."""

    end: TaskEnd[Any] = field(default_factory=TaskEnd)
    future: Any = None
    address: str = ""  # of the worker that it runs on, as Dask names it
    begun: int = 0  # times
    deaths_in_a_row: int = 0
    is_running: bool = False
    is_ended: bool = False


class Engine:
    """Workers that take tasks; `workers` is their number, `dashboard` the address of a page that shows them."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._cluster: LocalCluster | None = None
        self.client: Client = None  # until it is opened
        self.workers, self.dashboard = 0, ""
        self.is_given_up = False  # the workers are not waited for

    def start(self, workers: int) -> None:
        """Open a cluster of this machine."""
        from distributed import Client, LocalCluster, Security
        from distributed.utils import get_mp_context

        get_mp_context().set_forkserver_preload(_PRELOADED)
        # A worker runs what it is sent, with the token at hand: no other user of this machine may reach it.
        security = Security.temporary()
        self._cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,  # a run is bounded by itself
            security=security,
            dashboard_address="127.0.0.1:0",
            silence_logs=False,
        )
        self._take(Client(self._cluster, timeout=_ANSWER_S, set_as_default=False))

    def join(self, scheduler: str) -> None:
        """Join a scheduler that runs already. Raises ConfigurationError."""
        from distributed import Client

        try:
            self._take(Client(scheduler, timeout=_ANSWER_S, set_as_default=False))
        except (OSError, ValueError, TypeError) as error:  # no such address, or no answer (TimeoutError among them)
            raise ConfigurationError(
                f"the scheduler {scheduler} does not answer ({type(error).__name__}): see that it runs, and give the "
                "address that it says when it starts, such as tcp://10.0.0.5:8786"
            ) from None

    def _take(self, client: Client) -> None:
        self.client = client
        self.workers = len(client.scheduler_info()["workers"])
        self.dashboard = str(client.dashboard_link or "")

    def close(self) -> None:
        """Let the workers go: those of this machine end."""
        closing_s = _GIVEN_UP_S if self.is_given_up else _CLOSING_S
        for each in (self.client, self._cluster):
            with suppress(Exception):  # a scheduler that has gone needs no farewell
                if each is not None:
                    each.close(timeout=closing_s)

    async def run(
        self,
        task: Task[T],
        arguments: Sequence[tuple[Any, ...]],
        stop: Stop,
        on_message: OnMessage = lambda *_: None,
    ) -> list[TaskEnd[T]]:
        """Run the task with each of these arguments, and return how each ended, in their order.

        `stop` stops all of them in order, and what each came to by then is its value. After a signal a cancellation
        ends the wait, and what has not ended by then has no value.
        """
        return await _Running(self, task, arguments, stop, on_message).see_through()

    def describe(self) -> str:
        """Return what it has and where that can be seen, in words."""
        return count(self.workers, "worker") + (f", {self.dashboard}" if self.dashboard else "")

    async def call(self, work: Callable[[], T]) -> T:
        """Return what the work gives, done in the one thread that speaks to Dask."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _configure(folder: str) -> dict[str, Any]:
    """What is asked of Dask, of whatever a person's own configuration says."""
    silence = dict.fromkeys(("distributed", "distributed.client", "tornado", "bokeh"), "critical")
    return {
        "logging": silence,
        "distributed.nanny.pre-spawn-environ.DASK_LOGGING__DISTRIBUTED": "critical",
        "distributed.deploy.lost-worker-timeout": "1000 days",  # else one that dies twice within seconds is let go
        "distributed.scheduler.allowed-failures": 0,
        "distributed.scheduler.no-workers-timeout": _WITHOUT_WORKERS,
        "distributed.worker.multiprocessing-method": "forkserver",
        "temporary-directory": folder,
    }


class _Running:
    """Tasks under way: what Dask's threads and the tasks say comes in one queue, and is dealt with one by one."""

    def __init__(
        self,
        engine: Engine,
        task: Task[Any],
        arguments: Sequence[tuple[Any, ...]],
        stop: Stop,
        on_message: OnMessage,
    ) -> None:
        self._engine, self._task, self._arguments = engine, task, arguments
        self._stop, self._on_message = stop, on_message
        self._key = token_hex(8)
        self._events: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._tasks = [_Submitted() for _ in arguments]

    async def see_through(self) -> list[TaskEnd[Any]]:
        """Submit them all, and return how each ended."""
        client, loop = self._engine.client, self._loop

        def subscribe() -> None:
            client.subscribe_topic(_TOPIC, lambda event: loop.call_soon_threadsafe(self._hear, event[1]))

        await self._engine.call(subscribe)
        stopped = asyncio.ensure_future(self._stop.event.wait())
        stopped.add_done_callback(lambda _: self._events.put_nowait(self._stop_all))
        try:
            for index in range(len(self._tasks)):
                if self._stop.event.is_set():
                    break
                await self._submit(index)
            while not all(each.is_ended for each in self._tasks):
                await (await self._events.get())()
        except asyncio.CancelledError:
            if self._stop.signal is None:
                raise
            stay_alive()  # a second signal: the tasks are given up, and what is known is still reported
            self._engine.is_given_up = True
        finally:
            stopped.cancel()
        return [each.end for each in self._tasks]

    async def _submit(self, index: int) -> None:
        client, submitted = self._engine.client, self._tasks[index]
        name = f"{self._key}-{index + 1}-{submitted.deaths_in_a_row}-{submitted.begun}"

        def submit() -> Any:
            return client.submit(
                _work, connector.__version__, self._key, index, self._task, self._arguments[index], key=name, pure=False
            )

        future = submitted.future = await self._engine.call(submit)
        future.add_done_callback(
            lambda done: self._loop.call_soon_threadsafe(self._events.put_nowait, lambda: self._take_end(index, done))
        )

    def _hear(self, event: dict[str, Any]) -> None:
        """A task says something."""
        if event.get("key") != self._key:
            return
        index, submitted = event["index"], self._tasks[event["index"]]
        if event["is_begin"]:
            submitted.deaths_in_a_row += submitted.is_running  # Dask has begun it again by itself
            submitted.begun += 1
            submitted.end.deaths = submitted.begun - 1
            submitted.is_running, submitted.address, submitted.end.worker = True, event["address"], event["process"]
            if self._stop.event.is_set():
                self._events.put_nowait(lambda: self._say_stop([submitted.address]))
            self._on_message(index, event["process"], {})
            return
        if event["has_advanced"]:
            submitted.deaths_in_a_row = 0
        self._on_message(index, event["process"], event["message"])

    async def _stop_all(self) -> None:
        """Stop what runs; what has not begun is not begun."""
        for each in self._tasks:
            if not each.is_running and not each.is_ended:
                each.is_ended = True
                if each.future is not None:
                    await self._engine.call(each.future.cancel)
        await self._say_stop([each.address for each in self._tasks if each.is_running and not each.is_ended])

    async def _say_stop(self, addresses: list[str]) -> None:
        client, stop = self._engine.client, self._stop
        if not addresses:
            return

        def say() -> None:
            with suppress(Exception):  # a worker that has just died is said so by its task
                client.run(_stop_here, self._key, stop.signal, stop.reason, workers=addresses, on_error="ignore")

        await self._engine.call(say)

    async def _take_end(self, index: int, future: Any) -> None:
        """A task has ended, or its worker has died of it, or the scheduler has gone."""
        submitted = self._tasks[index]
        if submitted.is_ended or future is not submitted.future:
            return
        submitted.is_running = False
        said, error = await self._engine.call(lambda: _fetch(future))
        if isinstance(error, TimeoutError) and self._engine.client.status == "running":
            # its worker has died with the value in hand, and Dask runs it again
            self._loop.call_later(_ANSWER_S, self._events.put_nowait, lambda: self._take_end(index, future))
            return
        if error is not None:
            await self._take_failure(index, error)
            return
        submitted.is_ended = True
        if "error" in said:
            kind = next((each for each in _KINDS if each.__name__ == said["kind"]), RunAborted)
            submitted.end.error = kind(said["error"])
        else:
            submitted.end.value = said["value"]

    async def _take_failure(self, index: int, error: BaseException) -> None:
        from distributed import CancelledError, KilledWorker
        from distributed.scheduler import NoWorkerError

        submitted = self._tasks[index]
        if isinstance(error, KilledWorker):
            submitted.end.deaths = submitted.begun
            submitted.deaths_in_a_row += 1
            if submitted.deaths_in_a_row < _MOST_DEATHS and not self._stop.event.is_set():
                await self._submit(index)
                return
            what = f"the worker {submitted.end.worker} died"
            if submitted.deaths_in_a_row >= _MOST_DEATHS:
                what = (
                    f"{count(submitted.deaths_in_a_row, 'worker')} died of part {index + 1} one after another, and it "
                    "did not advance: see whether a worker has enough memory, and the log of its machine"
                )
            submitted.end.error = RunAborted(f"{what}; what was done is recorded, and it can be run again")
        elif isinstance(error, NoWorkerError):
            submitted.end.error = RunAborted(
                f"no worker is left for part {index + 1}, and none has come for some time: what was done is recorded, "
                "and it can be run again when there are workers"
            )
        elif (
            self._engine.client.status != "running"
            or isinstance(error, CancelledError)
            or not isinstance(error, Exception)
        ):
            submitted.end.error = RunAborted(
                f"the scheduler has lost part {index + 1}, or has gone: what was done is recorded, and it can be run "
                "again"
            )
        else:
            submitted.end.error = RunAborted(f"part {index + 1} could not be run by a worker: {describe_fault(error)}")
        submitted.is_ended = True


def _fetch(future: Any) -> tuple[dict[str, Any], BaseException | None]:
    """Return what a task gave, or the error of Dask's own."""
    try:
        said = future.result(timeout=_FETCHED_S)
    except BaseException as error:  # noqa: BLE001 - CancelledError, too: the scheduler has gone, and this task goes on
        return {}, error
    future.release()  # else Dask runs the task again to have its value, when a worker dies that holds it
    return said, None


# In the worker

_under_way: dict[tuple[str, int], Callable[[int | None, str | None], None]] = {}
"""How each task of this process is stopped, by the key of its run and its index."""

_LOCK = threading.Lock()


def _say_version() -> str:
    return connector.__version__


def _stop_here(key: str, number: int | None, reason: str | None) -> None:
    """Stop the tasks of this run that this process works on."""
    with _LOCK:
        stops = [stop for (of_run, _), stop in _under_way.items() if of_run == key]
    for stop in stops:
        stop(number, reason)


def _work(version: str, key: str, index: int, task: Task[Any], arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Carry out one task in a worker's thread; return its `value`, or the `kind` and the words of its `error`."""
    import uvloop
    from distributed import get_worker

    worker = get_worker()
    name = f"{platform.node()}:{os.getpid()}"

    def say(message: dict[str, Any], *, is_begin: bool = False) -> None:
        about = {"key": key, "index": index, "address": worker.address, "process": name, "is_begin": is_begin}
        worker.log_event(_TOPIC, {**about, **message})

    async def run() -> Any:
        stop, loop = Stop(), asyncio.get_running_loop()

        def end(number: int | None, reason: str | None) -> None:
            stop.signal = stop.signal or number
            stop.reason = stop.reason or reason
            stop.event.set()

        with _LOCK:
            _under_way[key, index] = lambda number, reason: _call_soon(loop, lambda: end(number, reason))
        watch = asyncio.ensure_future(_watch(worker, stop))
        try:
            say({}, is_begin=True)
            return await task(TaskContext(stop, name, say), *arguments)
        finally:
            watch.cancel()
            with _LOCK:
                del _under_way[key, index]

    if version != connector.__version__:  # it has joined since the others were asked
        words = _describe_other_version(f"the worker {name}", connector.__version__, version)
        return {"kind": ConfigurationError.__name__, "error": words}
    try:
        return {"value": uvloop.run(run())}
    except ConnectorError as error:
        kind = next((each.__name__ for each in _KINDS if isinstance(error, each)), RunAborted.__name__)
        return {"kind": kind, "error": str(error)}
    except Exception as error:  # noqa: BLE001 - a fault of ours, without the values that a traceback may show
        return {"kind": RunAborted.__name__, "error": describe_fault(error)}


async def _watch(worker: Any, stop: Stop) -> None:
    """End the task in order once the command that asked for it has gone, or the scheduler has."""
    from distributed.core import Status

    own = worker.get_current_task()
    while True:
        await asyncio.sleep(_WATCHED_S)
        state = worker.state.tasks.get(own)
        is_left = worker.status in (Status.closing, Status.closed, Status.failed)  # as when the scheduler has gone
        if is_left or state is None or state.state == "cancelled":
            stop.end("the command that began this part has gone: what was done is recorded, and it can be run again")
            return


def _call_soon(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # it has just ended
        loop.call_soon_threadsafe(work)
