"""The log of runs in the state folder. Each run has one JSON file, which has the report when the run has ended.

When a run begins, it creates its file with the status `running`, and holds a kernel lock on the file. When the run
ends, its report replaces the file. So if a file has the status `running` and is not locked, its run was killed. A
reader of the log needs no lock of the ledger, never waits for a run, and never delays a run.
"""

import fcntl
import json
import logging
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from connector.atomic_file import create_private_file, replace_content
from connector.errors import OTHER_ACCOUNT_MESSAGE, ConnectorError, find_exit_code
from connector.settings import RETENTION_S

LOAD_COMMANDS = ("import", "sync", "retry")
"""The commands that create subscribers."""

PRUNED_FOLDERS = ("rejects", "drift", "runs")
"""Folders in the state folder. Their files are deleted when they are older than the retention."""

_DAY_S = 86_400.0
_MAX_SCHEDULE_INTERVAL_S = 35 * _DAY_S  # the longest time between two runs of a monthly schedule

ERROR_STATUS_BY_EXIT_CODE: Mapping[int, Literal["usage", "aborted", "locked"]] = {2: "usage", 3: "aborted", 4: "locked"}
"""The status of a run that ends with an error, by the exit code of the error."""

_RUNS_FOLDER = "runs"
_RUN_FILE_NAME_PATTERN = re.compile(r"\.?(\d{8}T\d{6}-[0-9a-f]{6})\.(json|csv|xlsx)(\.partial)?")
"""The pattern of the names of files that runs create. The first group is the id of the run. Other files in the folders
belong to a person."""

_TIME_LENGTH = len("20261123T080000")  # the length of the time in a run's id
logger = logging.getLogger(__name__)


@contextmanager
def record_run(
    state_dir: Path,
    begin_values: Mapping[str, Any],
    build_report: Callable[[], Mapping[str, Any]],
    now: Callable[[], datetime],
    retention_s: float = RETENTION_S,
) -> Iterator[bool]:
    """Record a run: write `begin_values` (with a `run_id`) at the beginning of the context, and `build_report()` at its
    end.

    A ConnectorError that ends the run gets the id of the run. If no error ends the run, files of earlier runs that are
    older than `retention_s` are deleted at the end. If the clock seems to have jumped ahead, the files do not count as
    older because of the jump. If the log cannot be written, this module's logger logs a warning, and the run does not
    fail. Yield whether the record of the run's start is on disk.
    """
    path = state_dir / _RUNS_FOLDER / f"{begin_values['run_id']}.json"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = create_private_file(path)
        fcntl.flock(file, fcntl.LOCK_EX)  # waits, because a reader may test the lock at this moment
    except OSError as error:
        logger.warning("the run cannot be recorded in %s: %s", path, error.strerror)
        yield False
        return
    with file:
        is_run_recorded = False
        with suppress(OSError):  # the end of the run writes the file again, and reports an error
            os.write(file.fileno(), _encode_run({**begin_values, "status": "running", "pid": os.getpid()}))
            os.fsync(file.fileno())
            is_run_recorded = True
        try:
            yield is_run_recorded
        except BaseException as error:
            exit_code = find_exit_code(error) if isinstance(error, ConnectorError) else 3
            if isinstance(error, ConnectorError):
                error.run_id = begin_values["run_id"]
            error_values = {
                "status": ERROR_STATUS_BY_EXIT_CODE[exit_code],
                "exit_code": exit_code,
                "finished_at": now().isoformat(),
                "messages": [str(error)],
            }
            _write_end(path, {**build_report(), **error_values})
            raise
        _write_end(path, build_report())
    _prune_files_at_end(state_dir, now().timestamp(), retention_s)


def record_failed_start(state_dir: Path, run: Mapping[str, Any]) -> None:
    """Record a run that could not begin. If the log cannot be written, log a warning, like `record_run`."""
    path = state_dir / _RUNS_FOLDER / f"{run['run_id']}.json"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        logger.warning("the run cannot be recorded in %s: %s", path, error.strerror)
        return
    _write_end(path, run)


def _prune_files_at_end(state_dir: Path, now: float, retention_s: float) -> None:
    """Delete files that are older than the retention. A wrong clock must not delete new files. So if the clock seems to
    have jumped ahead since the previous run, the jump does not count for the age of the files.
    """
    clock_jump_s = _find_clock_jump(state_dir, now, retention_s)
    delete_old_runs(state_dir, now - retention_s - clock_jump_s)
    if clock_jump_s:
        days_text = f"{clock_jump_s / _DAY_S:,.0f}"
        logger.warning(
            "the clock is %s days ahead of the previous run, so these days do not count for the retention: files "
            "of earlier runs are kept. If the clock is wrong, correct the clock. If the clock is right, a later run "
            "deletes the files that are too old",
            days_text,
        )


def _find_clock_jump(state_dir: Path, now: float, retention_s: float) -> float:
    """Return the seconds between the newest run that is older than 24 hours and the oldest run of the last 24 hours.
    Return 0 if a schedule can explain this time, for example a monthly schedule."""
    run_times = []  # when the file of each run was last written
    for path in (state_dir / _RUNS_FOLDER).glob("[0-9]*.json"):
        with suppress(OSError):  # another run may have deleted the file
            if _RUN_FILE_NAME_PATTERN.fullmatch(path.name):
                run_times.append(path.stat().st_mtime)
    old_run_times = [run_time for run_time in run_times if run_time < now - _DAY_S]
    if not old_run_times:
        return 0.0
    first_new_run_time = min((run_time for run_time in run_times if now - _DAY_S <= run_time <= now), default=now)
    gap_s = first_new_run_time - max(old_run_times)
    return gap_s if gap_s > max(2 * _DAY_S, min(_MAX_SCHEDULE_INTERVAL_S, retention_s / 2)) else 0.0


def list_runs(state_dir: Path) -> Iterator[dict[str, Any]]:
    """Yield the reports of the recorded runs, the latest first. If a run has not ended, its `status` is `running`, or
    `killed` if its process is gone. A file that is not a report is left out."""
    paths = sorted((state_dir / _RUNS_FOLDER).glob("[0-9]*.json"), reverse=True)
    run_paths = (path for path in paths if _RUN_FILE_NAME_PATTERN.fullmatch(path.name) and path.is_file())
    for _, paths_of_same_second in groupby(run_paths, lambda path: path.name[:_TIME_LENGTH]):
        runs = (run for path in paths_of_same_second if (run := _read_run(path)) is not None)
        yield from sorted(runs, key=lambda run: str(run["started_at"]), reverse=True)


def build_job_option(run: Mapping[str, Any]) -> str:
    """Return the option that names the job file of a recorded run, or "" if the file does not exist. With the option, a
    retry uses the job's account and suppression list."""
    path = (run.get("settings") or {}).get("job_file")
    return f" --job {shlex.quote(path)}" if path and Path(path).exists() else ""


def describe_other_account(run: Mapping[str, Any]) -> str | None:
    """Return the next step after a run in which the service showed none of the known subscribers. Running again and a
    retry do not help after such a run. Return None for any other run."""
    if not any(OTHER_ACCOUNT_MESSAGE in message for message in run.get("messages") or ()):
        return None
    job_file, url_or_account = (run.get("settings") or {}).get("job_file"), run.get("destination") or run.get("account")
    return (
        "The service shows none of the subscribers that the ledger knows. Compare the token and the base URL "
        f"({url_or_account}) with the token and the base URL of the last good run. If somebody erased the subscribers "
        "on purpose, delete each subscriber from the ledger with connector forget. To see which subscribers the token "
        "shows, run: connector check" + (f" {shlex.quote(job_file)}" if job_file else "")
    )


def find_other_accounts(runs: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the report of the last load of each account, if this load found none of the ledger's subscribers in the
    service. `runs` are the reports of runs, the latest first. Runs that did nothing do not count."""
    last_load_by_account: dict[str, Mapping[str, Any]] = {}
    for run in runs:
        if run["command"] in LOAD_COMMANDS and run["status"] in ("ok", "partial", "aborted"):
            last_load_by_account.setdefault(run.get("account", ""), run)
    return {account: run for account, run in last_load_by_account.items() if describe_other_account(run) is not None}


def delete_old_runs(state_dir: Path, oldest_kept_time: float) -> Sequence[Path]:
    """Delete the files of runs (rejects, drift, reports) that were last written before this time (Unix seconds). Return
    their paths. Files of running runs, and files that no run created, are not deleted. If a file cannot be deleted, log
    a warning."""
    deleted_paths = []
    ids_of_running_runs = {run["run_id"] for run in list_runs(state_dir) if run["status"] == "running"}
    for path in (path for folder_name in PRUNED_FOLDERS for path in sorted((state_dir / folder_name).glob("*"))):
        name_match = _RUN_FILE_NAME_PATTERN.fullmatch(path.name)
        try:
            if (
                name_match
                and name_match[1] not in ids_of_running_runs
                and path.is_file()
                and path.stat().st_mtime < oldest_kept_time
            ):
                path.unlink()
                deleted_paths.append(path)
        except OSError as error:
            logger.warning("%s is older than the retention and cannot be deleted: %s", path, error.strerror)
    return deleted_paths


def _write_end(path: Path, run: Mapping[str, Any]) -> None:
    try:
        replace_content(path, _encode_run(run))
    except (OSError, ConnectorError) as error:
        logger.warning(
            "the run cannot be recorded in %s: %s", path, error.strerror if isinstance(error, OSError) else error
        )
        with suppress(OSError):
            # The file has the status `running`, so it would look like the file of a killed run.
            path.unlink(missing_ok=True)


def _encode_run(run: Mapping[str, Any]) -> bytes:
    return json.dumps(run, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _read_run(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            run = json.loads(file.read() or b"{}")
            if not isinstance(run, dict) or not run.keys() >= {"run_id", "job", "command", "status", "started_at"}:
                return None
            if run["status"] == "running" and not _is_locked(file.fileno()):
                if not os.path.samestat(os.fstat(file.fileno()), path.stat()):  # the report has just replaced this file
                    return _read_run(path)
                return {**run, "status": "killed"}
            return run
    except (OSError, ValueError, RecursionError):  # the file was deleted at this moment, or is not the file of a run
        return None


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
