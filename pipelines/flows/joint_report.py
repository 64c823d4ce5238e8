"""One report of a run in parts: what the reports of the parts come to together."""

import csv
import io
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from connector.atomic_file import create_private
from connector.errors import ConnectorError, LockedError
from connector.outcomes import Outcome
from connector.plurals import agree, count
from connector.report import EXIT_CODES, OpenReport, Report, Status, UncountedError, count_rows, pick_worst

_EXAMPLES = 3  # of each cause, as in a report of one run
_MOST_CAUSES = 30
_MOST_BUCKETS = 120
_STATUS_OF: Mapping[int, Status] = {0: "ok", 1: "partial", 3: "aborted", 4: "locked"}


@dataclass(slots=True)
class PartEnd:
    """What became of part `number` (from 1): its `report`, or why it has none (`error`; None: it had not begun, or not
    ended, when the run was stopped).

    `worker` is where it ran last, and `deaths` how often a worker died of it. Attempts that have no report have created
    `created_before` of its rows, and sent `unresolved_before` whose outcome is not known.
    """

    number: int
    report: Report | None = None
    error: ConnectorError | None = None
    worker: str = ""
    deaths: int = 0
    created_before: int = 0
    unresolved_before: int = 0

    @property
    def rows(self) -> dict[str, int]:
        """Its rows by outcome. Of what attempts before the last one created, the last one has found that it exists; one
        that ended early has not sent it, or not read it."""
        if self.report is None:  # how many it read is not known; so many were sent
            sent = {Outcome.CREATED: self.created_before, Outcome.UNKNOWN: self.unresolved_before}
            return count_rows(sum(sent.values()), sent)
        rows, rest = dict(self.report.rows), self.created_before
        for outcome in (Outcome.EXISTS, Outcome.UNSENT):
            moved = min(rest, rows[outcome])
            rows[outcome] -= moved
            rows[Outcome.CREATED] += moved
            rest -= moved
        if self.report.status not in ("ok", "partial"):
            rows["read"] += rest
            rows[Outcome.CREATED] += rest
        return rows

    @property
    def status(self) -> Status:
        """How it ended."""
        if self.report is not None:
            return self.report.status
        if self.error is None:
            return "stopped"
        return "locked" if isinstance(self.error, LockedError) else "aborted"

    def as_json(self) -> dict[str, Any]:
        """Return what the report of the whole says of it."""
        return {
            "part": self.number,
            "run_id": self.report.run_id if self.report else None,
            "status": self.status,
            "rows": self.rows,
            "worker": self.worker,
            "rejects_file": self.report.rejects_file if self.report else None,
            "drift_file": self.report.drift_file if self.report else None,
        }


def merge_parts(report: OpenReport, ends: Sequence[PartEnd], state_dir: Path) -> Status:
    """Put what the parts came to into the report of the whole, and their files together in the state folder; return
    the worst of their ends that was no stop."""
    reports = [end.report for end in ends if end.report is not None]
    report.parts = [end.as_json() for end in ends]
    rows = _add(end.rows for end in ends)
    with suppress(UncountedError):  # a fault of a part, which its own report says
        rows = count_rows(rows["read"], {outcome: rows[outcome] for outcome in Outcome})
    report.rows = rows
    report.settled = report.settled | _add(each.settled for each in reports)
    report.echo = dict(sorted(_add(each.echo for each in reports).items()))
    changed = _add(each.changed_fields for each in reports)
    report.changed_fields = dict(sorted(changed.items(), key=lambda field: -field[1]))
    operations = list(dict.fromkeys(chain.from_iterable(each.requests for each in reports)))
    report.requests = {name: _add(each.requests.get(name, {}) for each in reports) for name in operations}
    report.causes = _merge_causes([each.causes for each in reports])
    report.timeline = _merge_timelines(report.started_at, reports)
    report.messages += _merge_messages(ends)
    report.messages += _describe_deaths(ends)
    if unresolved := sum(end.unresolved_before for end in ends):
        report.messages.append(
            f"{count(unresolved, 'create')} that parts without a report had sent {agree(unresolved, 'has', 'have')} no "
            "known outcome: the next run looks them up first"
        )
    for kind, get in _FILES.items():
        path, messages = _merge_files(state_dir / kind / f"{report.run_id}.csv", ends, get)
        setattr(report, f"{kind}_file", path)
        report.messages += messages
    codes = [EXIT_CODES[end.status] for end in ends if end.status != "stopped"]
    return _STATUS_OF[pick_worst(codes)]


_FILES: Mapping[str, Callable[[Report], str | None]] = {
    "rejects": lambda report: report.rejects_file,
    "drift": lambda report: report.drift_file,
}


def _add(counts: "Iterator[Mapping[str, int]]") -> dict[str, int]:
    """Return the sums, in the order in which the names first come."""
    summed: dict[str, int] = {}
    for each in counts:
        for name, number in each.items():
            summed[name] = summed.get(name, 0) + number
    return summed


def _merge_messages(ends: Sequence[PartEnd]) -> Iterator[str]:
    """Yield what all parts say once, and what some say with their numbers."""
    said: dict[str, list[int]] = {}
    for end in ends:
        messages = [str(end.error)] if end.error is not None else end.report.messages if end.report else []
        for message in messages:
            said.setdefault(message, []).append(end.number)
    for message, numbers in said.items():
        if len(numbers) == len(ends):
            yield message
        else:
            yield f"{agree(len(numbers), 'part', 'parts')} {', '.join(map(str, numbers))}: {message}"


def _describe_deaths(ends: Sequence[PartEnd]) -> Iterator[str]:
    deaths = {end.number: end.deaths for end in ends if end.deaths}
    if not deaths:
        return
    number = sum(deaths.values())
    by_part = ", ".join(f"part {part}: {times}" for part, times in deaths.items())
    yield (
        f"{count(number, 'worker')} died and {agree(number, 'was', 'were')} replaced ({by_part}); the parts were run "
        "again. Rows that were created by then count as created; requests that were made by then are not counted"
    )


def _merge_causes(by_part: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    causes: dict[tuple[str, ...], dict[str, Any]] = {}
    for cause in sorted(chain.from_iterable(by_part), key=lambda cause: -int(cause["rows"])):
        key = tuple(str(cause[name]) for name in ("outcome", "field", "code", "message"))
        if key not in causes and len(causes) >= _MOST_CAUSES:
            key = (key[0], "", "", "other causes, each of few rows")
        names = dict(zip(("outcome", "field", "code", "message"), key, strict=True))
        merged = causes.setdefault(key, {**names, "rows": 0, "examples": []})
        merged["rows"] += cause["rows"]
        merged["examples"] += cause["examples"]
    for merged in causes.values():
        merged["examples"] = sorted(merged["examples"], key=lambda each: (each["file"], each["row"]))[:_EXAMPLES]
    return sorted(causes.values(), key=lambda cause: -int(cause["rows"]))


def _merge_timelines(began_at: datetime, reports: Sequence[Report]) -> dict[str, Any] | None:
    """Lay the requests of all parts over one another; the widths of their steps are powers of two of one."""
    lines = [
        ((each.started_at - began_at).total_seconds(), each.timeline) for each in reports if each.timeline is not None
    ]
    if not lines:
        return None
    seconds = max(offset_s + line["seconds"] for offset_s, line in lines)
    width_s = max(line["bucket_s"] for _, line in lines)
    while seconds / width_s > _MOST_BUCKETS:
        width_s *= 2
    number = int(seconds // width_s) + 1
    sums = {name: [0] * number for name in ("sent", "limited", "failed")}
    trips_ms, paused_s = [0.0] * number, [Counter[int]() for _ in range(number)]
    for part, (offset_s, line) in enumerate(lines):
        for index, sent in enumerate(line["sent"]):
            at = min(int((offset_s + index * line["bucket_s"]) / width_s), number - 1)
            for name, summed in sums.items():
                summed[at] += line[name][index]
            trips_ms[at] += sent * (line["round_trip_ms"][index] or 0.0)
            paused_s[at][part] += line["paused_s"][index]
    trips = zip(trips_ms, sums["sent"], strict=True)
    return {
        "bucket_s": width_s,
        "seconds": round(seconds, 3),
        **sums,
        "round_trip_ms": [round(of_all / sent, 1) if sent else None for of_all, sent in trips],
        # the service asks all parts for the same pause
        "paused_s": [round(min(max(each.values(), default=0), width_s), 3) for each in paused_s],
    }


def _merge_files(
    path: Path, ends: Sequence[PartEnd], get: Callable[[Report], str | None]
) -> tuple[str | None, list[str]]:
    """Put the parts' files of one kind together; return where that is, and messages on what could not be read."""
    files = [(end, file) for end in ends if end.report is not None and (file := get(end.report)) is not None]
    there = [file for _, file in files if Path(file).is_file()]
    messages = [
        f"part {end.number}: its file {file} is on the machine of its worker ({end.worker}), and is not among those "
        "of this run"
        for end, file in files
        if file not in there
    ]
    if not there:
        return None, messages
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with create_private(path) as merged:
            for index, file in enumerate(there):
                with Path(file).open("rb") as lines:
                    if index:  # the columns are there already
                        lines.seek(_measure_header(Path(file)))
                    shutil.copyfileobj(lines, merged)
    except OSError as error:
        listed = ", ".join(there)
        return None, [*messages, f"{path} cannot be written ({error.strerror}); the parts' files are: {listed}"]
    return str(path), messages


def _measure_header(path: Path) -> int:
    """Return how many bytes the first record takes, whose cells may hold line breaks."""
    with path.open(encoding="utf-8", newline="") as lines:
        header = next(csv.reader(lines), [])
    written = io.StringIO()
    csv.writer(written).writerow(header)
    return len(written.getvalue().encode())
