"""The report of a run: its keys are fixed (architecture 8), and every outcome is always there.

The text after the type of a field is its description in the reference. A type after the text is the type of the value
in JSON.
"""

import errno
import logging
import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from math import inf
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from connector.errors import STOPPED, ConnectorError, LockedError, RunAborted, find_exit_code
from connector.fields import BaseRef
from connector.outcomes import MailOutcome, Outcome
from connector.paging.certificate import Certificate
from connector.runs.report_keys import (
    Activity,
    Cause,
    EmailReport,
    PlannedRow,
    Problems,
    ReceiptCounts,
    SettledCounts,
)
from connector.runs.run_log import ERROR_STATUSES, record_failed_start, record_run
from connector.service.request_counts import RequestCounts, TimelineReport
from connector.units import show_duration

if TYPE_CHECKING:
    from connector.control import Stop
    from connector.load.session import LoadPolicy
    from connector.service.client import Client
    from connector.service.wire import ListQuery
    from connector.subscribers.rules import BaseColumn, FieldMapping


# The scope of a run


_OPEN_FILTERS = ("id", "is_active", "gender")  # the others hold personal data
_HIDDEN_FILTERS = ("client_user_id", "email", "first_name", "last_name")


def describe_asked_base(base: "BaseRef | BaseColumn") -> str:
    """Return the base of a load: its name and id as far as they are known, or the column that says it."""
    if not isinstance(base, BaseRef):
        return f"by the column {base.column}"
    shown_id = f"id {base.service_id}" if base.service_id is not None else ""
    return f"{base.name} ({shown_id})" if base.name and shown_id else base.name or shown_id


def describe_mapping(mapping: "FieldMapping") -> str:
    """Return each field with what fills it: `email, first_name ← fname`."""
    parts = []
    for name, rule in mapping.rules.items():
        filled_by = " + ".join(rule.columns) or (f'"{rule.value}"' if rule.value is not None else "")
        parts.append(name if filled_by == name else f"{name} ← {filled_by}")
    return ", ".join(parts)


def describe_policy(policy: "LoadPolicy") -> dict[str, str]:
    """Return a job's `load` section."""
    return {
        "on_unknown": policy.on_unknown,
        "quiet_period": show_duration(policy.quiet_period_s),
        "max_rate": describe_rate(policy.max_rate),
        "max_concurrency": f"{policy.max_concurrency}",
        "look": "" if policy.is_looking else "none",
        "allow_truncated": "yes" if policy.allow_truncated else "",
        "ignore_total_count": "yes" if policy.ignores_total_count else "",
    }


def describe_rate(rate: float) -> str:
    """Return a ceiling in requests/s; "" for none."""
    return "" if rate == inf else f"{rate:g}/s"


def describe_limit(limit: int | None) -> str:
    """Return how many rows of a source are read; "" for all."""
    return "" if limit is None else f"the first {limit:,} rows"


def describe_filters(query: "ListQuery") -> str:
    """Return the filters of an export but for its base; those that may name a person without their values."""
    shown = [f"{name}={getattr(query, name)}" for name in _OPEN_FILTERS if getattr(query, name) is not None]
    return ", ".join([*shown, *(f"{name}=…" for name in _HIDDEN_FILTERS if getattr(query, name) is not None)])


def drop_empty(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings that say something."""
    return {name: value for name, value in settings.items() if value}


logger = logging.getLogger(__name__)

Status = Literal["ok", "partial", "usage", "aborted", "stopped", "locked"]

EXIT_CODES: Mapping[str, int] = {"ok": 0, "partial": 1, "usage": 2, "aborted": 3, "locked": 4}
OPTIONAL_KEYS = ("activity", "planned_rows", "samples", "email")
"""Keys that the JSON of a report leaves out if they have no value."""

_WORST_FIRST = (130, 143, 3, 4, 2, 1, 0)

_Kind = TypeVar("_Kind", Outcome, MailOutcome)


@dataclass(frozen=True, slots=True)
class RunScope:
    """What a run reads and writes, and its most important settings. Passwords are masked."""

    source: Annotated[str, "What the run reads. Empty for a command without a source."] = ""
    destination: Annotated[str, "Where the run writes. Passwords are masked."] = ""
    base: Annotated[str, "The base, by name and id as far as they are known."] = ""
    account: Annotated[str, "Account in the ledger: the job's service.account, or the URL of the service."] = ""
    settings: Annotated[dict[str, str], "The most important settings, by their keys in a job."] = field(
        default_factory=dict
    )


@dataclass(slots=True)
class Report:
    """The results of one run. The fields, in their order, are the keys of its JSON. Times are aware, in UTC."""

    run_id: Annotated[str, "Id of the run: its start in UTC, and six random characters."]
    job: Annotated[
        str, "Name of the job, the file or the destination. Empty in `send`, and in `retry` without `--job`."
    ]
    command: Annotated[str, "Name of the command."]
    status: Annotated[Status, "How the run ended. `connector status` also shows `running` and `killed`."]
    started_at: Annotated[datetime, "Start of the run."]
    finished_at: Annotated[datetime | None, "End of the run."] = None
    scope: Annotated[RunScope, "What the run reads and writes. Its fields are keys of the JSON."] = field(
        default_factory=RunScope
    )
    rows: Annotated[dict[str, int], "Number of rows that were read, and of rows with each outcome."] = field(
        default_factory=lambda: count_rows(0, {})
    )
    activity: Annotated[
        dict[str, int] | None,
        "The created subscribers of a load, or the valid ones of `validate`. Left out by other commands, and if "
        "shards were started again.",
        Activity | None,
    ] = None
    causes: Annotated[
        list[dict[str, Any]], "Causes of problems with rows, the most frequent first, at most 30.", list[Cause]
    ] = field(default_factory=list)
    changed_fields: Annotated[dict[str, int], "Number of changed rows that differ in each field."] = field(
        default_factory=dict
    )
    settled: Annotated[
        dict[str, int], "Creates of earlier runs without an answer that this run has resolved.", SettledCounts
    ] = field(default_factory=lambda: {"found": 0, "absent": 0})
    requests: Annotated[
        dict[str, dict[str, int]],
        "Numbers of requests by operation: `create`, `list` and `send`. A plan has only operations that it used.",
        dict[str, RequestCounts],
    ] = field(default_factory=dict)
    timeline: Annotated[
        TimelineReport | None,
        "The requests over time, in at most 120 intervals. Null without a request, and for several shards.",
    ] = None
    rejects_file: Annotated[str | None, "Path of the rejects file. Null if the run wrote none."] = None
    drift_file: Annotated[str | None, "Path of the drift file. Null if the run wrote none."] = None
    receipts: Annotated[
        dict[str, Any] | None,
        "The receipts of the run. Null if no receipts are asked for.",
        ReceiptCounts | None,
    ] = None
    opt_outs: Annotated[
        int,
        "Number of opt-outs: a row of the job says inactive, and the service shows the subscriber as active. Each run "
        "counts all of them, also those whose rows it did not read.",
    ] = 0
    problems: Annotated[dict[str, Any], "Problems of the job.", Problems] = field(
        default_factory=lambda: {"new": 0, "open": 0, "kinds": {}}
    )
    echo: Annotated[dict[str, int], "Number of creates that the service answered with another value, by field."] = (
        field(default_factory=dict)
    )
    messages: Annotated[list[str], "Sentences: what happened, and what to do."] = field(default_factory=list)
    certificate: Annotated[
        dict[str, Any] | None,
        "What the reading of the list proves. Only `export` and `reconcile` have it.",
        Certificate | None,
    ] = None
    unmapped_columns: Annotated[list[str], "Columns of the source that no field uses."] = field(default_factory=list)
    is_planned: Annotated[bool, "True if the command sent and wrote nothing: a plan, a dry run or a preview."] = False
    planned_rows: Annotated[
        list[dict[str, object]] | None,
        "Each row of `plan --output json`, if the plan has at most 100,000 rows.",
        list[PlannedRow],
    ] = None
    samples: Annotated[
        list[dict[str, object]] | None,
        "Values of the first five subscribers as they would be sent, by field. Only in a plan and in `validate`.",
    ] = None
    reconciled: Annotated[
        dict[str, Any] | None, "Further keys of the JSON, if the run compared a source with the list."
    ] = None
    email: Annotated[dict[str, Any] | None, "What the service answered to `send`.", EmailReport] = None
    signal: Annotated[int | None, "Number of the signal that stopped the run. The JSON does not have it."] = None

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values: `json.dumps` writes it."""
        values: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "signal":  # the status and the exit code tell the signal
                continue
            if each.name == "scope":
                values |= asdict(value)
            elif each.name == "reconciled":
                values |= value or {}
            elif each.name == "is_planned":
                values |= {"planned": True} if value else {}
            elif isinstance(value, datetime):
                values[each.name] = value.isoformat()
            elif each.name not in OPTIONAL_KEYS or value is not None:
                values[each.name] = value
        return values

    @property
    def exit_code(self) -> int:
        """The exit code that the command ends with (architecture 8): 128 and the signal's number for a run that a
        signal stopped."""
        return 128 + (self.signal or 0) if self.status == "stopped" else EXIT_CODES[self.status]

    def raise_for_status(self) -> None:
        """Raise LockedError for a run that another one kept out, and RunAborted for one that was aborted or stopped:
        it can be run again. A run that is `ok` or `partial` came to its end, and nothing is raised."""
        if self.status in ("ok", "partial"):
            return
        reason = self.messages[0] if self.messages else f"the run {self.run_id} was {self.status}"
        raise (LockedError if self.status == "locked" else RunAborted)(reason)

    def note_requests(self, client: "Client", now: float) -> None:
        """Take over what the client has counted until now (monotonic)."""
        counts = {str(operation): asdict(each) for operation, each in client.counts.items()}
        # a plan creates nothing, so it shows only operations that sent a request
        self.requests = {name: each for name, each in counts.items() if each["sent"] or not self.is_planned}
        self.timeline = client.timeline.as_json(now)


def start_report(command: str, job: str, at: datetime, scope: RunScope | None = None) -> Report:
    """Return the report of a run that begins; its id sorts by time and is like no other, the job's name can be
    written."""
    name = job.encode("utf-8", "backslashreplace").decode()  # a file's name may hold what is no character
    report = Report(f"{at:%Y%m%dT%H%M%S}-{token_hex(3)}", name, command, "ok", at, scope=scope or RunScope())
    values = {"command": command, "job": name, "run_id": report.run_id, "what": f"{command} {name}".rstrip()}
    logger.info("run begins: %(what)s (%(run_id)s)", values)
    return report


def record_report(
    report: Report, state_dir: Path, retention_s: float, now: Callable[[], datetime]
) -> AbstractContextManager[None]:
    """Keep the report in the state folder, from the run's beginning to its end, for `status`."""

    def describe() -> dict[str, Any]:
        return {**report.as_json(), "exit_code": report.exit_code}

    keys = ("run_id", "job", "command", "started_at", "account", "settings")
    begun = {key: report.as_json()[key] for key in keys}
    return record_run(state_dir, begun, describe, now, retention_s)


def report_error(command: str, job: str, error: ConnectorError, at: datetime, *, is_planned: bool = False) -> Report:
    """Return the report of a run that ended with `error` before it had a report of its own. If the run is on record,
    the report has its id."""
    report = start_report(command, job, at)
    report.is_planned = is_planned
    report.run_id = error.run_id or report.run_id
    return end_report(report, ERROR_STATUSES[find_exit_code(error)], at, str(error))


def record_error(report: Report, state_dir: Path) -> None:
    """Keep the report of `report_error` in the state folder, for `status`."""
    record_failed_start(state_dir, {**report.as_json(), "exit_code": report.exit_code})


def end_report(report: Report, status: Status, at: datetime, reason: str | None = None) -> Report:
    """Record how the run ended, and why if it did not end well."""
    report.status, report.finished_at = status, max(at, report.started_at)  # the machine's clock may be put back
    if reason is not None:
        report.messages.insert(0, reason)
    rows = {name: number for name, number in report.rows.items() if number}
    counted = "".join(f", {number:,} {name}" for name, number in rows.items())
    values = {"status": status, "rows": rows, "run_id": report.run_id, "counted": counted}
    logger.info("run ends: %(status)s%(counted)s (%(run_id)s)", values)
    return report


def end_run(report: Report, stop: "Stop", status: Status, at: datetime, reason: str | None = None) -> Report:
    """Record the end of a run that may have been stopped: by a signal (`stopped`), by a reason of its own (`aborted`),
    or not at all (`status`)."""
    report.signal = stop.signal
    if stop.signal is not None:
        return end_report(report, "stopped", at, reason)
    if stop.reason is None:
        return end_report(report, status, at, reason)
    if reason is not None and stop.reason in reason:  # the same reason, with the base that it is about
        return end_report(report, "aborted", at, reason)
    if reason not in (None, STOPPED):
        report.messages.insert(0, reason)
    return end_report(report, "aborted", at, stop.reason)


class UncountedError(Exception):
    """The outcomes do not sum up to the rows read: a fault of the program. In `rows`, the rows without an outcome count
    as unknown, because they may have been sent."""

    def __init__(self, rows: dict[str, int], counted: int) -> None:
        lost = max(0, rows["read"] - counted)
        super().__init__(
            f"rows read: {rows['read']}, rows with an outcome: {counted}; this report is not to be trusted"
            + (f". Rows that count as unknown for it: {lost}" if lost else "")
        )
        self.rows = rows | {"unknown": rows["unknown"] + lost}


def count_rows(read: int, outcomes: Mapping[Outcome, int]) -> dict[str, int]:
    """Return the report's `rows`. Raises UncountedError when they do not sum up."""
    return _sum_up(read, Outcome, outcomes)


def count_mail_rows(read: int, outcomes: Mapping[MailOutcome, int]) -> dict[str, int]:
    """Return the `rows` of a mail run or a single send. Raises UncountedError when they do not sum up."""
    first = (MailOutcome.SENT, MailOutcome.ALREADY_SENT)  # as architecture 8 has it
    return _sum_up(read, (*first, *(each for each in MailOutcome if each not in first)), outcomes)


def _sum_up(read: int, order: Iterable[_Kind], outcomes: Mapping[_Kind, int]) -> dict[str, int]:
    rows = {"read": read} | {str(outcome): outcomes.get(outcome, 0) for outcome in order}
    if (counted := sum(rows.values()) - read) != read:
        raise UncountedError(rows, counted)
    return rows


def pick_worst(exit_codes: list[int]) -> int:
    """Return which of several jobs' exit codes the command ends with (architecture 8)."""
    return next((code for code in _WORST_FIRST if code in exit_codes), 0)


def describe_fault(error: Exception) -> str:
    """Return one line that a person can report; with CONNECTOR_DEBUG set, raise the error instead.

    A disk that is full is no fault of the program, nor is a place that this user may not use, wherever it shows.
    """
    if os.environ.get("CONNECTOR_DEBUG"):
        raise error
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}. Free some room, and run again"
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return (
            f"{error.strerror}: the limit of files and connections that are open at once (ulimit -n) is reached. Raise "
            "the limit, or set load.max_concurrency lower, and run again"
        )
    if isinstance(error, PermissionError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}. Allow it to this user, or name another place, and run again"
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"a fault of the program: {type(error).__name__} at {place.filename}:{place.lineno}. What was done is "
        "recorded, and it can be run again. Please report it, with the traceback that CONNECTOR_DEBUG=1 shows"
    )
