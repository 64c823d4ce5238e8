"""One report of a sync in shards: the sums of the shards' reports."""

import csv
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any

from connector.atomic_file import create_private
from connector.control import Stop
from connector.errors import ConfigurationError, ConnectorError, LockedError
from connector.outcomes import Outcome
from connector.plurals import agree, count
from connector.runs.report import EXIT_CODES, Report, Status, count_rows, end_run, pick_worst
from connector.shards import Shard

_MOST_CAUSES = 30
_EXAMPLES = 3  # of each cause, as in a report of one run
_STATUS_OF: Mapping[int, Status] = {0: "ok", 1: "partial", 3: "aborted", 4: "locked"}


@dataclass(slots=True)
class ShardEnd:
    """The end of a shard: its `report`, or the `error` that ended it, or neither if the command did not wait for it.

    Workers that died left attempts without a report. These attempts created `created_before` subscribers, and sent
    `unresolved_before` creates whose outcome is not known.
    """

    shard: Shard
    report: Report | None = None
    error: ConnectorError | None = None
    created_before: int = 0
    unresolved_before: int = 0

    @property
    def rows(self) -> dict[str, int]:
        """The shard's rows by outcome.

        The last attempt counts subscribers that lost attempts created as `exists`. If the last attempt ended early, it
        counts these rows as `unsent`, or has not read them.
        """
        if self.report is None:  # the number of rows that were read is not known; these rows were sent
            sent = {Outcome.CREATED: self.created_before, Outcome.UNKNOWN: self.unresolved_before}
            return count_rows(sum(sent.values()), sent)
        rows, remaining = dict(self.report.rows), self.created_before
        for outcome in (Outcome.EXISTS, Outcome.UNSENT):
            moved = min(remaining, rows[outcome])
            rows[outcome] -= moved
            rows[Outcome.CREATED] += moved
            remaining -= moved
        if self.report.status not in ("ok", "partial"):
            rows["read"] += remaining
            rows[Outcome.CREATED] += remaining
        return rows

    @property
    def status(self) -> Status:
        """How the shard ended."""
        if self.report is not None:
            return self.report.status
        if self.error is None:
            return "stopped"
        return "locked" if isinstance(self.error, LockedError) else "aborted"


def end_sharded(report: Report, ends: Sequence[ShardEnd], state_dir: Path, stop: Stop) -> None:
    """End the report of all shards with the sums of their reports and the worst of their statuses.

    Raises the ConfigurationError of a shard if no shard has sent a create.
    """
    reports = [end.report for end in ends if end.report is not None]
    report.rows = _add(end.rows for end in ends)
    report.settled = _add(part.settled for part in reports) or report.settled
    is_whole = len(reports) == len(ends) and not any(end.created_before for end in ends)
    report.activity = _add(part.activity or {} for part in reports) if is_whole else None
    report.opt_outs = sum(part.opt_outs for part in reports)
    receipts = [part.receipts for part in reports if part.receipts is not None]
    report.receipts = {**receipts[0], "rows": sum(part["rows"] for part in receipts)} if receipts else None
    report.problems = _add_problems([part.problems for part in reports])
    report.echo = dict(sorted(_add(part.echo for part in reports).items()))
    changed = _add(part.changed_fields for part in reports)
    report.changed_fields = dict(sorted(changed.items(), key=lambda field: -field[1]))
    operations = dict.fromkeys(chain.from_iterable(part.requests for part in reports))
    report.requests = {name: _add(part.requests.get(name, {}) for part in reports) for name in operations}
    refused = next((end.error for end in ends if isinstance(end.error, ConfigurationError)), None)
    if refused is not None and not report.requests.get("create", {}).get("sent"):
        raise refused
    report.causes = _merge_causes([cause for part in reports for cause in part.causes])
    report.unmapped_columns = list(reports[0].unmapped_columns) if reports else []
    report.messages += _merge_messages(ends)
    if lost := sum(end.created_before + end.unresolved_before for end in ends):
        report.messages.append(
            f"workers died, and their shards were started again. The rows include {count(lost, 'create')} that the "
            "lost attempts had sent; the requests do not"
        )
    name = f"{report.run_id}.csv"
    report.rejects_file = _join_files(state_dir / "rejects" / name, [part.rejects_file for part in reports])
    report.drift_file = _join_files(state_dir / "drift" / name, [part.drift_file for part in reports])
    worst = pick_worst([EXIT_CODES[end.status] for end in ends if end.status != "stopped"])
    end_run(report, stop, _STATUS_OF[worst], stop.clock.now())


def _add(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums, in the order in which the names first come."""
    sums: dict[str, int] = {}
    for counter in counts:
        for name, number in counter.items():
            sums[name] = sums.get(name, 0) + number
    return sums


def _add_problems(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the problems of all shards. No problem is in two shards."""
    kinds = sorted({kind for part in parts for kind in part["kinds"]})
    by_kind = {kind: _add(part["kinds"].get(kind, {}) for part in parts) for kind in kinds}
    return {"new": 0, "open": 0, **_add({"new": part["new"], "open": part["open"]} for part in parts), "kinds": by_kind}


def _merge_messages(ends: Sequence[ShardEnd]) -> Iterator[str]:
    """Yield each message once, with the shards that it is of: its numbers are of one shard, and not sums."""
    indexes_of: dict[str, list[int]] = {}
    for end in ends:
        messages = [str(end.error)] if end.error is not None else end.report.messages if end.report else []
        for message in dict.fromkeys(messages):
            indexes_of.setdefault(message, []).append(end.shard.index)
    for message, indexes in indexes_of.items():
        shards = f"{agree(len(indexes), 'shard', 'shards')} {', '.join(map(str, indexes))}: "
        every = "each shard: " if len(ends) > 1 else ""
        yield (every if len(indexes) == len(ends) else shards) + message


def _merge_causes(causes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    merged: dict[tuple[str, ...], dict[str, Any]] = {}
    for cause in sorted(causes, key=lambda cause: -int(cause["rows"])):
        key = tuple(str(cause[name]) for name in ("outcome", "field", "code", "message"))
        if key not in merged and len(merged) >= _MOST_CAUSES:
            key = (key[0], "", "", "other causes, each of few rows")
        names = dict(zip(("outcome", "field", "code", "message"), key, strict=True))
        joined = merged.setdefault(key, {**names, "rows": 0, "examples": []})
        joined["rows"] += cause["rows"]
        joined["examples"] = [*joined["examples"], *cause["examples"]][:_EXAMPLES]
    return sorted(merged.values(), key=lambda cause: -int(cause["rows"]))


def _join_files(path: Path, paths: Sequence[str | None]) -> str | None:
    """Join the files of the shards at `path`. A file on another machine stays there, under the id of its run."""
    files = [Path(name) for name in paths if name is not None and Path(name).is_file()]
    if not files:
        return None
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TextIOWrapper(create_private(path), encoding="utf-8", newline="") as joined:
        for index, file in enumerate(files):
            with file.open(encoding="utf-8", newline="") as lines:
                if index > 0:
                    next(csv.reader(lines), None)  # the header is there already
                shutil.copyfileobj(lines, joined)
    return str(path)
