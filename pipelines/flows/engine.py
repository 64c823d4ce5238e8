"""dask.distributed as the engine of a sync in shards: each shard is a task, and one report says what came of all.

Theory of operation. The command opens a cluster of its own, or joins a scheduler that runs already, and submits the
ordinary sync of each shard. A task holds no secret: token, addresses and files come from the worker's own environment
and disk. A worker that dies takes its task with it, and Dask begins the task again on another worker. That is safe, as
every run is: the ledger knows what the lost attempt has sent, and its lease ends with its process. What lost attempts
have created is counted from the ledger (`count_lost_work`).

All of Dask is used from one thread, which hears no signals, and nor do the processes that the thread starts: the
command says to the tasks when they are to stop. A task stops in order by itself when the command has gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from importlib.util import find_spec
from multiprocessing import resource_tracker
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import connector
from connector.control import Stop, stay_alive, work_beside
from connector.databases import parse_place
from connector.errors import ConfigurationError, ConnectorError, LedgerError, LockedError, RunAborted, SourceError
from connector.imports.flow import LoadPlan, describe_load, run_load
from connector.ledger.beside import count_lost_work, find_last_run_key
from connector.ledger.store import LEASE_S
from connector.plurals import count
from connector.progress import Progress
from connector.report import Report, describe_fault, record_report, start_report
from connector.shards import WHOLE, Shard
from pipelines.flows.load_plan import plan_sync
from pipelines.flows.shard_report import ShardEnd, end_sharded
from pipelines.jobs.reader import load_job
from pipelines.jobs.settings import read_settings

if TYPE_CHECKING:
    from distributed import Client

_ANSWER_S = 5.0  # seconds to wait for the answer of a scheduler
_POLL_S = 0.5  # seconds between two checks of the tasks; a stop is repeated as often, since a task may have just begun
_FETCH_S = 5.0  # seconds to wait for a result from the worker that holds it
_CLOSE_S = 5.0  # seconds for workers to end after all tasks have ended; then they are killed
_WATCH_S = 1.0  # seconds between two checks of a task whether the command still waits for it
_MOST_DEATHS = 50  # workers that may die during one task; after that many deaths the task is the cause
_PRELOADED = ["distributed", "pipelines.flows.engine", "psycopg", "pandera.pandas", "uvloop"]
_LIBRARIES = ("distributed", "bokeh", "cryptography")
_KINDS: tuple[type[ConnectorError], ...] = (ConfigurationError, SourceError, LockedError, LedgerError)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The workers of the shards: those of a `scheduler` (its address), or `workers` processes on this machine.

    `shards` is the number of shards; None: one for each worker.
    """

    scheduler: str | None = None
    workers: int = 1
    shards: int | None = None


@dataclass(frozen=True, slots=True)
class ShardedSync:
    """The sync of a job, which each task repeats for its shard. `job_digest` is the digest of the job's file
    (`digest_job`), which must be the same on every worker."""

    job_path: Path
    job_digest: str
    limit: int | None = None
    is_full: bool = False
    since: str | None = None
    wait_s: float = 0.0

    def plan(self, environ: Mapping[str, str], shard: Shard) -> LoadPlan:
        """Open the source, and return the load of a shard. Raises ConfigurationError and SourceError."""
        job = load_job(self.job_path, environ)
        if digest_job(self.job_path) != self.job_digest:
            raise ConfigurationError(
                f"the job file {self.job_path} on {platform.node()} differs from the command's. Give every worker the "
                "same file"
            )
        settings = read_settings(environ, job)
        return plan_sync(
            job,
            settings,
            limit=self.limit,
            wait_s=self.wait_s,
            is_full=self.is_full,
            since=self.since,
            shard=shard,
        )


def digest_job(path: Path) -> str:
    """Return a digest of a job's file. Raises ConfigurationError when the file cannot be read."""
    try:
        return blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise ConfigurationError(f"the job file {path} cannot be read: {error.strerror}") from None


async def run_sharded(sync: ShardedSync, options: EngineOptions, stop: Stop, progress: Progress) -> Report:
    """Sync all shards by the engine, and return one report of them.

    Raises ConfigurationError and SourceError before anything is sent; a run that has begun always ends in a report.
    """
    plan = sync.plan(os.environ, WHOLE)
    plan.source.close()
    settings = plan.settings
    if isinstance(parse_place(settings.ledger_url), Path):
        raise ConfigurationError(
            "--engine: the ledger is a SQLite file, which only one process can write. Keep the ledger in PostgreSQL: "
            "set CONNECTOR_LEDGER=postgresql://… for the command and for every worker"
        )
    if lacking := [name for name in _LIBRARIES if find_spec(name) is None]:
        raise ConfigurationError(
            f"--engine dask needs {' and '.join(lacking)}: pip install 'subscriber-connector[dask]', and run it again"
        )
    report = start_report(plan.command, plan.job, stop.clock.now(), describe_load(plan))
    with record_report(report, settings.state_dir, settings.retention_s):
        last_key = await asyncio.to_thread(find_last_run_key, settings.ledger_url)
        tasks = _Tasks(sync, options)
        progress.follow(tasks.describe)
        ends = await _follow(tasks, stop)
        stop.is_recording = True
        ended = [end.report.run_id for end in ends if end.report is not None]
        shards = [end.shard for end in ends]
        lost = await asyncio.to_thread(count_lost_work, settings.ledger_url, plan.job, last_key, ended, shards)
        for end in ends:
            end.created_before, end.unresolved_before = lost[end.shard].created, lost[end.shard].unresolved
        end_sharded(report, ends, settings.state_dir, stop)
    return report


async def _follow(tasks: _Tasks, stop: Stop) -> list[ShardEnd]:
    """Run the tasks in a thread for Dask. The first signal stops the tasks in order, the second ends the wait."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1, "engine", _block_signals) as thread:
        running = loop.run_in_executor(thread, tasks.run)
        stopped = asyncio.ensure_future(stop.event.wait())
        stopped.add_done_callback(lambda _: tasks.stop(stop.signal, stop.reason))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            tasks.is_given_up.set()
            ends = await running
            if stop.signal is None:
                raise
            stay_alive()
            return ends
        finally:
            stopped.cancel()


def _block_signals() -> None:
    """Block SIGINT and SIGTERM in this thread, and in every thread and process that this thread starts."""
    resource_tracker.ensure_running()  # the first worker would start it, which unblocks both in the thread of its start
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))


@dataclass(slots=True)
class _Tasks:
    """The shards of a sync as tasks. One thread calls `run`; another thread calls the other methods."""

    sync: ShardedSync
    options: EngineOptions
    key: str = field(default_factory=lambda: token_hex(8))
    is_given_up: threading.Event = field(default_factory=threading.Event)
    stopped_by: tuple[int | None, str | None] | None = None  # a signal, or a reason
    progress: str = "starting the workers"

    def stop(self, number: int | None, reason: str | None) -> None:
        """Ask the tasks to stop, by a signal's number or for a reason; `run` passes this on."""
        self.stopped_by = (number, reason)

    def describe(self) -> str:
        """Return the progress of the tasks as a text."""
        return self.progress

    def run(self) -> list[ShardEnd]:
        """Submit the tasks, and return how each shard ended. Raises ConfigurationError for a scheduler that does not
        answer or has no workers."""
        with _open_client(self.options, self.is_given_up) as client:
            workers = len(client.scheduler_info(n_workers=-1)["workers"])
            if not workers:
                raise ConfigurationError(
                    f"the scheduler {self.options.scheduler} has no workers. Start some, for example: dask worker "
                    f"{self.options.scheduler}"
                )
            number, dashboard = self.options.shards or workers, client.dashboard_link
            ends = [ShardEnd(Shard(index, number)) for index in range(1, number + 1)]
            # an attempt that died on another machine keeps its lease for LEASE_S
            wait_s = max(self.sync.wait_s, LEASE_S + 5.0)
            sync = replace(self.sync, wait_s=wait_s)
            pending = {}
            for end in ends:
                key = f"{self.key}-{end.shard.index}"
                submitted = client.submit(_work, connector.__version__, sync, end.shard, key, key=key, pure=False)
                pending[submitted] = end
            while pending and not self.is_given_up.wait(_POLL_S):
                self.progress = f"{len(ends) - len(pending)} of {count(number, 'shard')} ended ({workers} workers"
                self.progress += f", {dashboard})" if dashboard else ")"
                if self.stopped_by is not None:
                    with suppress(Exception):  # a worker that has just died is said so by its task
                        client.run(_stop_tasks, self.key, *self.stopped_by, on_error="ignore")
                for future in [each for each in pending if each.done() or client.status != "running"]:
                    if _record_end(pending[future], future):
                        end = pending.pop(future)
                        logger.info(
                            "shard ends: %(shard)s, %(status)s", {"shard": str(end.shard), "status": end.status}
                        )
            return ends


def _record_end(end: ShardEnd, future: Any) -> bool:
    """Record the result of a task; return False if its worker died with the result: Dask then runs the task again."""
    try:
        end.report, kind, words = future.result(timeout=_FETCH_S)
        future.release()  # otherwise Dask would run the task again if the worker that holds the result dies
    except TimeoutError:
        return False
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - Dask's own: KilledWorker, NoWorkerError, …
        name = type(error).__name__
        end.error = RunAborted(
            f"shard {end.shard} was lost ({name}): its workers died {_MOST_DEATHS} times, no worker is left, or "
            "the scheduler has ended. What was done is recorded. Look at the memory and the log of the workers, then "
            "run the command again"
        )
        return True
    if end.report is None:
        end.error = next((each for each in _KINDS if each.__name__ == kind), RunAborted)(words)
    return True


@contextmanager
def _open_client(options: EngineOptions, is_given_up: threading.Event) -> Iterator[Client]:
    """Start a cluster on this machine, or connect to a scheduler; close both at the end."""
    import dask

    with TemporaryDirectory(prefix="connector-engine-", ignore_cleanup_errors=True) as folder:
        dask.config.set(_configure(folder))  # before distributed is imported, which begins to log
        from distributed import Client, LocalCluster, Security
        from distributed.utils import get_mp_context

        cluster = None
        if options.scheduler is None:
            get_mp_context().set_forkserver_preload(_PRELOADED)
            cluster = LocalCluster(
                n_workers=options.workers,
                threads_per_worker=1,
                memory_limit=0,  # a run is bounded by itself
                security=Security.temporary(),  # a worker runs what it is sent: no other user may reach it
                dashboard_address="127.0.0.1:0",
                silence_logs=False,
            )
        try:
            client = Client(cluster or options.scheduler, timeout=_ANSWER_S, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:  # no such address, or no answer (TimeoutError among them)
            raise ConfigurationError(
                f"the scheduler {options.scheduler} does not answer ({type(error).__name__}). Check that it runs, and "
                "give the address that it shows when it starts, for example tcp://10.0.0.5:8786"
            ) from None
        try:
            yield client
        finally:
            for each in (client, cluster):
                with suppress(Exception):  # a scheduler that has gone needs no farewell
                    if each is not None:
                        each.close(timeout=_POLL_S if is_given_up.is_set() else _CLOSE_S)


def _configure(folder: str) -> dict[str, Any]:
    """Return the settings of Dask that override the user's configuration."""
    return {
        "logging": dict.fromkeys(("distributed", "distributed.client", "tornado", "bokeh"), "critical"),
        "distributed.nanny.pre-spawn-environ.DASK_LOGGING__DISTRIBUTED": "critical",
        "distributed.deploy.lost-worker-timeout": "1000 days",  # else a worker that dies twice in seconds is let go
        "distributed.scheduler.allowed-failures": _MOST_DEATHS,
        "distributed.scheduler.no-workers-timeout": "60s",  # a worker that dies is back within seconds
        "distributed.worker.multiprocessing-method": "forkserver",
        "temporary-directory": folder,
    }


# In the worker

_stops: dict[str, Callable[[int | None, str | None], None]] = {}
"""The function that stops a task of this process, by the key of the task."""


def _stop_tasks(run: str, number: int | None, reason: str | None) -> None:
    """Stop the tasks of this run in this process."""
    for key, stop in list(_stops.items()):
        if key.startswith(run):
            stop(number, reason)


def _work(version: str, sync: ShardedSync, shard: Shard, key: str) -> tuple[Report | None, str, str]:
    """Sync one shard in a thread of a worker; return the report, or None with the class name and the message of the
    error."""
    import uvloop
    from distributed import get_worker

    worker = get_worker()

    async def run() -> Report:
        stop, loop = Stop(), asyncio.get_running_loop()

        def end(number: int | None, reason: str | None) -> None:
            stop.signal, stop.reason = number, reason
            stop.event.set()

        def end_soon(number: int | None, reason: str | None) -> None:
            with suppress(RuntimeError):  # the task has just ended
                loop.call_soon_threadsafe(end, number, reason)

        _stops[key] = end_soon
        async with work_beside(_watch(worker, key, stop)):
            return await run_load(sync.plan(os.environ, shard), stop, Progress())

    if version != connector.__version__:
        words = (
            f"a worker has version {connector.__version__} of the connector, and the command has version {version}. "
            "Install the same version on both"
        )
        return None, ConfigurationError.__name__, words
    try:
        return uvloop.run(run()), "", ""
    except ConnectorError as error:
        return None, type(error).__name__, str(error)
    except Exception as error:  # noqa: BLE001 - a fault of ours, without the values that a traceback may show
        return None, RunAborted.__name__, describe_fault(error)
    finally:
        _stops.pop(key, None)


async def _watch(worker: Any, key: str, stop: Stop) -> None:
    """Stop the task once the command that submitted it, or the scheduler, has ended."""
    from distributed.core import Status

    while True:
        await asyncio.sleep(_WATCH_S)
        state = worker.state.tasks.get(key)
        is_left = worker.status in (Status.closing, Status.closed, Status.failed)
        if is_left or state is None or state.state == "cancelled":
            stop.end("the command that started this shard has ended. What was done is recorded. Run the command again")
