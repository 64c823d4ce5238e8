"""The last runs of each job as one page: how they ended, what is unresolved, when each last succeeded."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from math import sqrt
from typing import Any

from pipelines.report.page import render
from pipelines.report.text import measure_length, show_seconds

_LISTED = 10  # runs of a job with their figures; the others are bars
_LEAST = 12  # per cent of a bar's height: a run that read nothing is to be seen, too
_DONE = ("created", "written", "sent")
_TO_LOOK_AT = ("invalid", "rejected", "unknown")


def write_health(health: Mapping[str, Any], made_at: datetime) -> str:
    """Return the values that `read_health` returns as a whole page."""
    jobs = [_build_job(job) for job in health["jobs"]]
    return render(
        "health.html",
        title="Runs of the connector",
        jobs=jobs,
        steps=health["next"],
        made_at=f"{made_at:%Y-%m-%d %H:%M} UTC",
        well=sum(job["status"] == "ok" for job in jobs),
        unresolved=list(_list_unresolved(health["open_entries"])),
    )


def _list_unresolved(open_entries: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    numbers = Counter[tuple[str, str]]()
    for each in open_entries:
        numbers[each["state"], each["account"]] += each["entries"]
    for (state, account), number in numbers.items():
        yield f"{number:,} {state}", account


def _build_job(job: Mapping[str, Any]) -> dict[str, Any]:
    runs = job["runs"]
    most = max((_count_read(run) for run in runs), default=0) or 1
    ended = Counter(run["status"] for run in runs)
    return {
        "name": job["job"] or job["command"],
        "command": job["command"],
        "status": runs[0]["status"],
        "succeeded": _show_time(job["last_succeeded_at"]) if job["last_succeeded_at"] else "",
        "ended": ", ".join(f"{number:,} {status}" for status, number in ended.most_common()),
        "bars": [
            {
                "status": run["status"],
                "height": f"{_LEAST + (100 - _LEAST) * sqrt(_count_read(run) / most):.0f}",
                "words": f"{_show_time(run['started_at'])}: {run['status']}, {_count_read(run):,} read",
            }
            for run in reversed(runs)
        ],
        "runs": [_build_line(run) for run in runs[:_LISTED]],
        "number": len(runs),
        "rest": len(runs) - _LISTED,
    }


def _build_line(run: Mapping[str, Any]) -> dict[str, str]:
    rows, length_s = run.get("rows") or {}, measure_length(run)
    to_look_at = sum(rows.get(name, 0) for name in _TO_LOOK_AT)
    return {
        "run_id": run["run_id"],
        "began": _show_time(run["started_at"]),
        "took": show_seconds(length_s) if length_s is not None else "",
        "status": run["status"],
        "read": f"{_count_read(run):,}",
        "done": f"{sum(rows.get(name, 0) for name in _DONE):,}",
        "to_look_at": f"{to_look_at:,}" if to_look_at else "",
    }


def _count_read(run: Mapping[str, Any]) -> int:
    return int((run.get("rows") or {}).get("read", 0))


def _show_time(text: str) -> str:
    return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M}"
