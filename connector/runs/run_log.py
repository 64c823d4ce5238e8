"""The log of runs in the state folder: one JSON file for each run, which is its report once the run has ended.

Theory of operation. A run makes its file when it begins, with the status `running`, and holds a lock of the kernel on
it. The report takes the file's place when the run ends. So a file that says `running` and is not locked belongs to a
run that was killed, and a reader needs no lock of the ledger, waits for no run and disturbs none.
"""

import fcntl
import json
import logging
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from connector.atomic_file import create_private, write_whole
from connector.errors import ConnectorError, find_exit_code
from connector.settings import RETENTION_S

KEPT_FOLDERS = ("rejects", "drift", "runs")
"""Folders of the state folder whose files go when they are older than the retention."""

_DAY_S = 86_400.0
_LONGEST_INTERVAL_S = 35 * _DAY_S  # between two runs of a monthly schedule

ERROR_STATUSES: Mapping[int, Literal["usage", "aborted", "locked"]] = {2: "usage", 3: "aborted", 4: "locked"}
"""The status of a run that ends with an error, by the exit code of the error."""

_RUNS = "runs"
_OURS = re.compile(r"\.?(\d{8}T\d{6}-[0-9a-f]{6})\.(json|csv|xlsx)(\.partial)?")
"""Names of files that runs make, with the run's id; all other files in the folders are a person's."""

_SECONDS = len("20261123T080000")  # of a run's id, which says no more of its time
logger = logging.getLogger(__name__)


@contextmanager
def record_run(
    state_dir: Path,
    begun: Mapping[str, Any],
    report: Callable[[], Mapping[str, Any]],
    now: Callable[[], datetime],
    retention_s: float = RETENTION_S,
) -> Iterator[None]:
    """Record the run while the context lasts: `begun` (with its `run_id`) at its beginning, `report()` at its end.

    A ConnectorError that ends the run gets the id of the run. Files of earlier runs that are older than `retention_s`
    go at the end, unless the clock has jumped. A log that cannot be written is a warning of this module's logger, and
    no failure of the run.
    """
    path = state_dir / _RUNS / f"{begun['run_id']}.json"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = create_private(path)
        fcntl.flock(file, fcntl.LOCK_EX)  # a reader may try it in this very moment
    except OSError as error:
        logger.warning("the run cannot be recorded in %s: %s", path, error.strerror)
        yield
        return
    with file:
        with suppress(OSError):  # the end of the run tries again, and reports a failure
            os.write(file.fileno(), _encode({**begun, "status": "running", "pid": os.getpid()}))
        try:
            yield
        except BaseException as error:
            exit_code = find_exit_code(error) if isinstance(error, ConnectorError) else 3
            if isinstance(error, ConnectorError):
                error.run_id = begun["run_id"]
            ended = {
                "status": ERROR_STATUSES[exit_code],
                "exit_code": exit_code,
                "finished_at": now().isoformat(),
                "messages": [str(error)],
            }
            _write_end(path, {**report(), **ended})
            raise
        _write_end(path, report())
    _prune_at_end(state_dir, now().timestamp(), retention_s)


def record_failed_start(state_dir: Path, run: Mapping[str, Any]) -> None:
    """Record a run that could not begin. A log that cannot be written is a warning, as of `record_run`."""
    path = state_dir / _RUNS / f"{run['run_id']}.json"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        logger.warning("the run cannot be recorded in %s: %s", path, error.strerror)
        return
    _write_end(path, run)


def _prune_at_end(state_dir: Path, now: float, retention_s: float) -> None:
    """Delete files older than the retention, counted from the last earlier run if the clock seems to have jumped ahead
    since that run: a wrong clock must not delete what is not old."""
    jump_s = _find_jump(state_dir, now, retention_s)
    prune(state_dir, now - retention_s - jump_s)
    if jump_s:
        days = f"{jump_s / _DAY_S:,.0f}"
        logger.warning(
            "the clock is %s days ahead of the last earlier run, so that time does not count for the retention: files "
            "of earlier runs are kept. If the clock is wrong, correct it. If it is right, a later run deletes the "
            "files that are too old",
            days,
        )


def _find_jump(state_dir: Path, now: float, retention_s: float) -> float:
    """Return the seconds between the runs of the last day and the last run before that day, or 0 if they are not more
    than schedules leave between two runs."""
    written = []
    for path in (state_dir / _RUNS).glob("[0-9]*.json"):
        with suppress(OSError):  # deleted by another run
            if _OURS.fullmatch(path.name):
                written.append(path.stat().st_mtime)
    earlier = [at for at in written if at < now - _DAY_S]
    if not earlier:
        return 0.0
    first_of_day = min((at for at in written if now - _DAY_S <= at <= now), default=now)
    gap_s = first_of_day - max(earlier)
    return gap_s if gap_s > max(2 * _DAY_S, min(_LONGEST_INTERVAL_S, retention_s / 2)) else 0.0


def list_runs(state_dir: Path) -> Iterator[dict[str, Any]]:
    """Yield the reports of the runs on record, the latest first; the `status` of one that has not ended is `running`,
    or `killed` if its process is gone. A file that is no report is left out."""
    paths = sorted((state_dir / _RUNS).glob("[0-9]*.json"), reverse=True)
    ours = (path for path in paths if _OURS.fullmatch(path.name) and path.is_file())
    for _, of_a_second in groupby(ours, lambda path: path.name[:_SECONDS]):
        runs = (run for path in of_a_second if (run := _read_run(path)) is not None)
        yield from sorted(runs, key=lambda run: str(run["started_at"]), reverse=True)


def build_job_option(run: Mapping[str, Any]) -> str:
    """Return the option of `retry` that names the job file of a run on record, or "": a retry with the job uses the
    job's account and suppression list."""
    path = (run.get("settings") or {}).get("job_file")
    return f" --job {shlex.quote(path)}" if path else ""


def prune(state_dir: Path, before: float) -> Sequence[Path]:
    """Delete the files of runs (rejects, drift, reports) last written before that time (Unix seconds); return their
    paths. Those of a run that goes on stay, and so do files that no run made. A file that cannot be deleted is a
    warning, and stays."""
    deleted = []
    going_on = {run["run_id"] for run in list_runs(state_dir) if run["status"] == "running"}
    for path in (path for name in KEPT_FOLDERS for path in sorted((state_dir / name).glob("*"))):
        named = _OURS.fullmatch(path.name)
        try:
            if named and named[1] not in going_on and path.is_file() and path.stat().st_mtime < before:
                path.unlink()
                deleted.append(path)
        except OSError as error:
            logger.warning("%s is older than the retention and cannot be deleted: %s", path, error.strerror)
    return deleted


def _write_end(path: Path, run: Mapping[str, Any]) -> None:
    try:
        write_whole(path, _encode(run))
    except (OSError, ConnectorError) as error:
        logger.warning(
            "the run cannot be recorded in %s: %s", path, error.strerror if isinstance(error, OSError) else error
        )
        with suppress(OSError):
            path.unlink(missing_ok=True)  # it says `running`, and would be taken for that of a run that was killed


def _encode(run: Mapping[str, Any]) -> bytes:
    return json.dumps(run, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _read_run(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            run = json.loads(file.read() or b"{}")
            if not isinstance(run, dict) or not run.keys() >= {"run_id", "job", "command", "status", "started_at"}:
                return None
            if run["status"] == "running" and not _is_locked(file.fileno()):
                if not os.path.samestat(os.fstat(file.fileno()), path.stat()):  # its report has just taken its place
                    return _read_run(path)
                return {**run, "status": "killed"}
            return run
    except (OSError, ValueError, RecursionError):  # pruned this moment, or not of a run
        return None


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
