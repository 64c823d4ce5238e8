"""dask.distributed as the engine of a sync in shards: each shard is a task, and one report has the results of all
shards.

The command starts a cluster on this machine, or connects to a running scheduler, and submits the ordinary sync of each
shard as a task. A task holds no secret: token, addresses and files come from the worker's own environment and disk. If
a worker dies, Dask begins the task of this worker again on another worker. The repetition is safe, because the ledger
has the creates of the lost attempt, and the lease of the lost attempt ends with its process. A subscriber that the lost
attempt created has the outcome `exists` in the next attempt. Workers ignore signals, so the command stops the tasks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib.util import find_spec
from itertools import chain
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from connector.control import Stop, ignore_cancellation, run_in_background
from connector.databases import parse_ledger_location
from connector.errors import ConfigurationError, ConnectorError, LedgerError, LockedError, RunAborted, SourceError
from connector.imports.flow import describe_load, run_load
from connector.imports.plan import LoadPlan
from connector.jobs.load_planner import RunRequest, plan_sync
from connector.jobs.reader import load_job, read_settings
from connector.ledger.store import LEASE_S
from connector.progress import Progress
from connector.runs.report import (
    EXIT_CODE_BY_STATUS,
    Report,
    Status,
    describe_fault,
    end_run,
    pick_worst_exit_code,
    record_report,
    start_report,
)
from connector.shards import SINGLE_SHARD, Shard
from connector.texts import choose_form, count

if TYPE_CHECKING:
    from distributed import Client

_ANSWER_TIMEOUT_S = 5.0  # seconds to wait for the answer of a running scheduler
_START_TIMEOUT_S = 60.0  # seconds to wait until a scheduler that this command starts is ready, on a busy machine
_STOP_REPEAT_INTERVAL_S = 0.5  # seconds between two stop messages to the tasks
_CLOSE_TIMEOUT_S = 2.0  # seconds after which workers that have not ended are killed
_MAX_WORKER_DEATHS = 50  # workers that may die during one task; if more workers die, the task is the cause
_PRELOADED_MODULES = ["distributed", "pipelines.flows.engine", "psycopg", "pandera.pandas", "uvloop"]
_ERROR_TYPES: tuple[type[ConnectorError], ...] = (ConfigurationError, SourceError, LockedError, LedgerError)
_SUMMED_FIELDS = (
    "rows", "settled", "activity", "opt_outs", "receipts", "problems", "echo", "changed_fields", "requests"
)  # fmt: skip
_STATUS_BY_EXIT_CODE: Mapping[int, Status] = {0: "ok", 1: "partial", 3: "aborted", 4: "locked"}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The workers of the shards: the workers of a running scheduler at `scheduler_address`, or `worker_count` processes
    on this machine. Each worker has one shard."""

    scheduler_address: str | None = None
    worker_count: int = 1


@dataclass(frozen=True, slots=True)
class ShardedSync:
    """The sync of a job, which each task runs for one shard. `job_digest` is the digest of the job's file
    (`digest_job`), which must be the same on every worker."""

    job_path: Path
    job_digest: str
    request: RunRequest = RunRequest()  # noqa: RUF009 - a frozen value

    def plan(self, environ: Mapping[str, str], shard: Shard) -> LoadPlan:
        """Open the source, and return the load of a shard. Raises ConfigurationError and SourceError."""
        job = load_job(self.job_path, environ)
        if digest_job(self.job_path) != self.job_digest:
            raise ConfigurationError(
                f"the job file {self.job_path} on {platform.node()} differs from the job file of the command. Copy the "
                "job file of the command to every worker"
            )
        settings = read_settings(environ, job)
        return plan_sync(job, settings, replace(self.request, shard=shard))


def digest_job(path: Path) -> str:
    """Return a digest of a job's file. Raises ConfigurationError if the file cannot be read."""
    try:
        return blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise ConfigurationError(f"the job file {path} cannot be read: {error.strerror}") from None


async def run_sharded(sharded_sync: ShardedSync, options: EngineOptions, stop: Stop, progress: Progress) -> Report:
    """Sync all shards with the engine, and return one report for all shards.

    Raises ConfigurationError and SourceError before anything is sent. A run that has begun always ends with a report.
    """
    plan = sharded_sync.plan(os.environ, SINGLE_SHARD)
    plan.rows.source.close()
    settings = plan.settings
    if isinstance(parse_ledger_location(settings.ledger_url), Path):
        raise ConfigurationError(
            "--engine: the ledger is a SQLite file, which only one process can write. Keep the ledger in PostgreSQL: "
            "set CONNECTOR_LEDGER=postgresql://… for the command and for every worker"
        )
    if find_spec("distributed") is None:
        raise ConfigurationError(
            "--engine dask needs the package `distributed`. Run pip install 'subscriber-connector[dask]'"
        )
    report = start_report(plan.command, plan.rows.job, stop.clock.now(), describe_load(plan))
    with record_report(report, settings.state_dir, settings.retention_s, stop.clock.now):
        shard_results = await _run_shards(sharded_sync, options, stop, progress)
        stop.ignores_second_signal = True
        _write_sharded_report(report, shard_results, stop, is_incremental=plan.increment is not None)
    return report


@dataclass(slots=True)
class _ShardResult:
    """The result of a shard: its `report`, or the `error` that ended the shard. Both are None if the command did not
    wait for the shard.

    `attempt_count` is the number of attempts that began, or 0 if the shard was lost. Each attempt before the last was
    lost with its worker.
    """

    shard: Shard
    report: Report | None = None
    error: ConnectorError | None = None
    attempt_count: int = 0

    @property
    def status(self) -> Status:
        """How the shard ended."""
        if self.report is not None:
            return self.report.status
        if self.error is None:
            return "stopped"
        return "locked" if isinstance(self.error, LockedError) else "aborted"


async def _run_shards(
    sharded_sync: ShardedSync, options: EngineOptions, stop: Stop, progress: Progress
) -> Sequence[_ShardResult]:
    """Sync each shard as a task, and return the result of each shard. A signal stops the tasks cleanly. After a second
    signal, the command no longer waits for the tasks. Raises ConfigurationError for a scheduler that does not answer or
    has no workers."""
    shard_results, task_key_prefix = list[_ShardResult](), token_hex(8)
    wait_s = max(sharded_sync.request.wait_s, LEASE_S + 5.0)
    # If an attempt has died on another machine, its lease must expire first. So a task waits for the ledger longer than
    # a lease lasts.
    sharded_sync = replace(sharded_sync, request=replace(sharded_sync.request, wait_s=wait_s))
    try:
        async with _open_client(options) as client:
            thread_counts = await client.nthreads()
            if not thread_counts:
                raise ConfigurationError(
                    f"the scheduler {options.scheduler_address} has no workers. Start a worker, for example: "
                    f"dask worker {options.scheduler_address}"
                )
            shard_count = len(thread_counts)
            shard_results += [_ShardResult(Shard(index, shard_count)) for index in range(1, shard_count + 1)]

            def describe_progress() -> str:
                ended_count = sum(result.report is not None or result.error is not None for result in shard_results)
                return f"{ended_count} of {count(len(shard_results), 'shard')} ended"

            progress.set_describe_function(describe_progress)
            async with run_in_background(_stop_tasks(client, task_key_prefix, stop)):
                await asyncio.gather(
                    *(
                        _run_shard(shard_result, sharded_sync, client, f"{task_key_prefix}-{shard_result.shard.index}")
                        for shard_result in shard_results
                    )
                )
    except asyncio.CancelledError:
        if stop.signal is None:
            raise
        ignore_cancellation()
    return shard_results


async def _run_shard(shard_result: _ShardResult, sharded_sync: ShardedSync, client: Client, task_key: str) -> None:
    future = client.submit(_sync_shard_in_worker, sharded_sync, shard_result.shard, task_key, key=task_key, pure=False)
    try:
        shard_result.report, shard_result.error = await future
        future.release()  # otherwise Dask would repeat the task if the worker with the result dies
        shard_result.attempt_count = len(await client.get_events(task_key))
    except (Exception, asyncio.CancelledError) as error:  # Dask has its own errors, such as KilledWorker
        if isinstance(error, asyncio.CancelledError) and not future.cancelled():
            raise
        shard_result.error = RunAborted(
            f"shard {shard_result.shard} was lost ({type(error).__name__}): its workers died more than "
            f"{_MAX_WORKER_DEATHS} times, no worker is left, or the scheduler has ended. The ledger has every create "
            "that was sent. Look at the memory and the log of the workers, then run the command again"
        )
    logger.info("shard ends: %(shard)s, %(status)s", {"shard": str(shard_result.shard), "status": shard_result.status})


async def _stop_tasks(client: Client, task_key_prefix: str, stop: Stop) -> None:
    """Wait until the command is stopped, then stop all tasks again and again, because a task may begin later."""
    await stop.event.wait()
    while True:
        with suppress(Exception):  # a worker may have just died
            await client.run(_stop_local_tasks, task_key_prefix, stop.signal, stop.reason, on_error="ignore")
        await asyncio.sleep(_STOP_REPEAT_INTERVAL_S)


@asynccontextmanager
async def _open_client(options: EngineOptions) -> AsyncIterator[Client]:
    """Start a cluster on this machine, or connect to a running scheduler. At the end, close the client and the
    cluster."""
    import dask

    with TemporaryDirectory(prefix="connector-engine-", ignore_cleanup_errors=True) as folder:
        dask.config.set(_configure_dask(folder))  # before the import of `distributed`, which starts the logging of Dask
        from distributed import Client, LocalCluster, Security

        async with AsyncExitStack() as stack:
            cluster = None
            if options.scheduler_address is None:
                _start_fork_server()
                cluster = await LocalCluster(
                    n_workers=options.worker_count,
                    threads_per_worker=1,
                    memory_limit=0,  # no limit by Dask, because a run limits its own memory
                    # Only this command can connect to the workers, which run any code that they receive.
                    security=Security.temporary(),
                    dashboard_address="127.0.0.1:0",  # a free port: 8787 may belong to another command
                    silence_logs=False,
                    asynchronous=True,
                )
                stack.push_async_callback(_close_resource, cluster)
            try:
                client = await Client(
                    cluster or options.scheduler_address,
                    timeout=_ANSWER_TIMEOUT_S if cluster is None else _START_TIMEOUT_S,
                    set_as_default=False,
                    asynchronous=True,
                )
            except (OSError, ValueError, TypeError) as error:  # a wrong address, or no answer: TimeoutError is OSError
                raise ConfigurationError(
                    f"the scheduler {options.scheduler_address} does not answer ({type(error).__name__}). Check that "
                    "the scheduler runs, and give the address that the scheduler shows when it starts, for example "
                    "tcp://10.0.0.5:8786"
                ) from None
            stack.push_async_callback(_close_resource, client)
            yield client


async def _close_resource(resource: Any) -> None:
    with suppress(Exception):  # the scheduler may have ended already
        await resource.close(timeout=_CLOSE_TIMEOUT_S)


def _start_fork_server() -> None:
    """Start the fork server, which forks the workers. The fork server and the workers ignore SIGINT and SIGTERM.
    Ctrl-C reaches these processes too, but only the command must react: it stops their tasks cleanly."""
    signals = (signal.SIGINT, signal.SIGTERM)
    os.environ["DASK_LOGGING__DISTRIBUTED"] = "critical"
    forkserver.set_forkserver_preload(_PRELOADED_MODULES)
    # Start the tracker before the signals are blocked, because the start of the tracker unblocks the signals.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)


def _configure_dask(folder: str) -> dict[str, Any]:
    """Return the settings of Dask that override the user's configuration."""
    return {
        "logging": dict.fromkeys(("distributed", "distributed.client", "tornado", "bokeh"), "critical"),
        "distributed.deploy.lost-worker-timeout": "1000 days",  # otherwise Dask would drop a worker that dies twice
        "distributed.scheduler.allowed-failures": _MAX_WORKER_DEATHS,
        "distributed.scheduler.no-workers-timeout": "60s",  # a worker that died is started again within seconds
        "distributed.worker.multiprocessing-method": "forkserver",
        "temporary-directory": folder,
    }


# The report of all shards


def _write_sharded_report(
    report: Report, shard_results: Sequence[_ShardResult], stop: Stop, *, is_incremental: bool
) -> None:
    """End the report of all shards with the sums of their reports and the worst of their statuses.

    Raises the ConfigurationError of a shard if no shard has sent a create.
    """
    reports = [result.report for result in shard_results if result.report is not None]
    for name in _SUMMED_FIELDS:
        field_values = [getattr(added_report, name) for added_report in (report, *reports)]
        setattr(report, name, _sum_values([value for value in field_values if value is not None]))
    if len(reports) < len(shard_results):
        report.activity = None
    report.causes = _merge_causes(cause for shard_report in reports for cause in shard_report.causes)
    report.unmapped_columns = list(reports[0].unmapped_columns) if reports else []
    restarted_indexes = [str(result.shard.index) for result in shard_results if result.attempt_count > 1]
    has_shard_without_result = any(
        result.report is None and not isinstance(result.error, _ERROR_TYPES) for result in shard_results
    )
    may_have_sent_create = (
        has_shard_without_result or restarted_indexes or report.requests.get("create", {}).get("sent")
    )
    configuration_errors = [result.error for result in shard_results if isinstance(result.error, ConfigurationError)]
    if configuration_errors and not may_have_sent_create:
        raise configuration_errors[0]
    report.messages += _merge_messages(shard_results)
    exit_codes = [EXIT_CODE_BY_STATUS[result.status] for result in shard_results if result.status != "stopped"]
    if restarted_indexes:
        shards_text = f"{choose_form(len(restarted_indexes), 'shard', 'shards')} {', '.join(restarted_indexes)}"
        count_notice = 'The count of "exists" may include subscribers that the lost attempts created'
        if is_incremental:  # the second attempt skips rows if the first attempt had moved the cursor
            count_notice += (
                ". If a worker died after its attempt had moved the cursor, the counts may not include all rows"
            )
            exit_codes.append(EXIT_CODE_BY_STATUS["partial"])
        report.messages.append(f"workers died, so {shards_text} began again. {count_notice}")
    end_run(report, stop, _STATUS_BY_EXIT_CODE[pick_worst_exit_code(exit_codes)], stop.clock.now())


def _sum_values(field_values: Sequence[Any]) -> Any:
    """Return the sum of numbers, or the sums of dictionaries by key. For other values, return the first value. Without
    values, return None."""
    if not field_values or not isinstance(field_values[0], int | dict):
        return field_values[0] if field_values else None
    if isinstance(field_values[0], int):
        return sum(field_values)
    names = dict.fromkeys(chain.from_iterable(field_values))
    return {name: _sum_values([value[name] for value in field_values if name in value]) for name in names}


def _merge_causes(causes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each cause once, with the sum of its rows and the examples of one shard."""
    merged_cause_by_key: dict[tuple[str, ...], dict[str, Any]] = {}
    for cause in causes:
        key = tuple(str(cause[name]) for name in ("outcome", "field", "code", "message"))
        merged_cause_by_key.setdefault(key, {**cause, "rows": 0})["rows"] += cause["rows"]
    return sorted(merged_cause_by_key.values(), key=lambda cause: -int(cause["rows"]))


def _merge_messages(shard_results: Sequence[_ShardResult]) -> Iterator[str]:
    """Yield each message of the shards once, with the numbers of its shards, and then the files of each shard."""
    indexes_by_message: dict[str, list[str]] = {}
    for shard_result in shard_results:
        messages = [] if shard_result.report is None else shard_result.report.messages
        if shard_result.error is not None:
            messages = [str(shard_result.error)]
        for message in dict.fromkeys(messages):
            indexes_by_message.setdefault(message, []).append(str(shard_result.shard.index))
    for message, indexes in indexes_by_message.items():
        yield f"{choose_form(len(indexes), 'shard', 'shards')} {', '.join(indexes)}: {message}"
    for shard_result in shard_results:
        report = shard_result.report
        files = () if report is None else (report.rejects_file, report.drift_file)
        if paths := [path for path in files if path is not None]:
            yield f"shard {shard_result.shard.index}: see {' and '.join(paths)} on the machine of the shard's worker"


# Functions that run in a worker

_stop_function_by_task: dict[str, Callable[[int | None, str | None], object]] = {}
"""The function that stops a task of this process, by the key of the task."""


def _stop_local_tasks(task_key_prefix: str, signal_number: int | None, reason: str | None) -> None:
    """Stop the tasks of this run in this process, because of a signal (`signal_number`) or for another `reason`."""
    for key, stop in list(_stop_function_by_task.items()):
        if key.startswith(task_key_prefix):
            with suppress(RuntimeError):  # the task has just ended
                stop(signal_number, reason)


def _sync_shard_in_worker(
    sharded_sync: ShardedSync, shard: Shard, task_key: str
) -> tuple[Report | None, ConnectorError | None]:
    """Sync one shard in a thread of a worker, and return the report or the error."""
    import uvloop
    from distributed import get_worker

    async def run() -> Report:
        stop, loop = Stop(), asyncio.get_running_loop()

        def stop_run(signal_number: int | None, reason: str | None) -> None:
            stop.signal, stop.reason = signal_number, reason
            stop.event.set()

        _stop_function_by_task[task_key] = lambda signal_number, reason: loop.call_soon_threadsafe(
            stop_run, signal_number, reason
        )
        return await run_load(sharded_sync.plan(os.environ, shard), stop, Progress())

    get_worker().log_event(task_key, "an attempt begins")
    try:
        return uvloop.run(run()), None
    except ConnectorError as error:
        error_class = next((error_type for error_type in _ERROR_TYPES if isinstance(error, error_type)), RunAborted)
        return None, error_class(str(error))
    except Exception as error:  # noqa: BLE001 - an error of the connector; a traceback could show personal data
        return None, RunAborted(describe_fault(error))
    finally:
        _stop_function_by_task.pop(task_key, None)
