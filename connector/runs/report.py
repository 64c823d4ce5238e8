"""The report of a run. Its keys are fixed (architecture 8). The key `rows` has every outcome, even if its count is 0.

The annotation of a field has the type of the field, the description that the reference shows, and sometimes the type
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
from functools import partial
from math import inf
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from connector.errors import RUN_STOPPED_MESSAGE, LockedError, RunAborted
from connector.fields import BaseRef
from connector.outcomes import MailOutcome, Outcome
from connector.paging.certificate import Certificate
from connector.runs.report_keys import Activity, Cause, EmailReport, Problems, ReceiptCounts, SettledCounts
from connector.runs.run_log import record_run
from connector.service.retry import RequestCounts
from connector.units import format_duration

if TYPE_CHECKING:
    from connector.control import Stop
    from connector.load.session import LoadPolicy
    from connector.service.client import Client
    from connector.service.wire import ListQuery
    from connector.subscribers.rules import BaseColumn, FieldMapping


# Functions that describe the settings of a run


_FILTERS_WITHOUT_PERSONAL_DATA = ("id", "is_active", "gender")
_FILTERS_WITH_PERSONAL_DATA = ("client_user_id", "email", "first_name", "last_name")


def describe_requested_base(base: "BaseRef | BaseColumn") -> str:
    """Return the base of a load as a text: the known name and id of the base, or the column that names the base of each
    row."""
    if not isinstance(base, BaseRef):
        return f"by the column {base.column}"
    id_text = f"id {base.service_id}" if base.service_id is not None else ""
    return f"{base.name} ({id_text})" if base.name and id_text else base.name or id_text


def describe_mapping(mapping: "FieldMapping") -> str:
    """Return each field with its source, such as `email, first_name ← fname`."""
    field_texts = []
    for name, rule in mapping.rules.items():
        source_text = " + ".join(rule.columns) or (f'"{rule.value}"' if rule.value is not None else "")
        field_texts.append(name if source_text == name else f"{name} ← {source_text}")
    return ", ".join(field_texts)


def describe_policy(policy: "LoadPolicy") -> dict[str, str]:
    """Return the settings of a job's `load` section as texts."""
    return {
        "on_unknown": policy.on_unknown,
        "quiet_period": format_duration(policy.quiet_period_s),
        "max_rate": describe_rate(policy.max_rate),
        "max_concurrency": f"{policy.max_concurrency}",
        "look": "" if policy.looks_up_first else "none",
        "allow_truncated": "yes" if policy.allow_truncated else "",
        "ignore_total_count": "yes" if policy.ignores_total_count else "",
    }


def describe_rate(rate: float) -> str:
    """Return the maximum rate as a text, or "" if there is no maximum."""
    return "" if rate == inf else f"{rate:g}/s"


def describe_row_limit(row_limit: int | None) -> str:
    """Return a text about the row limit, or "" if all rows are read."""
    return "" if row_limit is None else f"the first {row_limit:,} rows"


def describe_filters(query: "ListQuery") -> str:
    """Return the filters of an export except the base. Filters that may contain personal data are shown without their
    values."""
    filter_texts = [
        f"{name}={getattr(query, name)}" for name in _FILTERS_WITHOUT_PERSONAL_DATA if getattr(query, name) is not None
    ]
    return ", ".join(
        [*filter_texts, *(f"{name}=…" for name in _FILTERS_WITH_PERSONAL_DATA if getattr(query, name) is not None)]
    )


def drop_empty_values(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings that have a value."""
    return {name: value for name, value in settings.items() if value}


logger = logging.getLogger(__name__)

Status = Literal["ok", "partial", "usage", "aborted", "stopped", "locked"]

EXIT_CODE_BY_STATUS: Mapping[str, int] = {"ok": 0, "partial": 1, "usage": 2, "aborted": 3, "locked": 4}
OPTIONAL_REPORT_KEYS = ("activity", "samples", "email")
"""Keys that the JSON of a report leaves out if they have no value."""

_EXIT_CODES_WORST_FIRST = (130, 143, 3, 4, 2, 1, 0)

OutcomeT = TypeVar("OutcomeT", Outcome, MailOutcome)


@dataclass(frozen=True, slots=True)
class RunScope:
    """The source and the destination of a run, and its most important settings. Passwords are masked."""

    source: Annotated[str, "Source that the run reads. Empty for a command without a source."] = ""
    destination: Annotated[str, "Destination that the run writes. Passwords are masked."] = ""
    base: Annotated[str, "The base, by name and id as far as they are known."] = ""
    account: Annotated[str, "Account in the ledger: the job's service.account, or the URL of the service."] = ""
    settings: Annotated[
        dict[str, str],
        "The most important settings, by their keys in a job. If the run had no job file, the key `options` has the "
        "options with which `connector import` loads the rejects file.",
    ] = field(default_factory=dict)


@dataclass(slots=True)
class Report:
    """The results of one run. The fields, in this order, are the keys of the report's JSON. Times have the time zone
    UTC."""

    run_id: Annotated[str, "Id of the run: its start in UTC, and six random characters."]
    job: Annotated[
        str, "Name of the job, the file or the destination. Empty in `send`, and in `retry` without `--job`."
    ]
    command: Annotated[str, "Name of the command."]
    status: Annotated[Status, "How the run ended. `connector status` also shows `running` and `killed`."]
    started_at: Annotated[datetime, "Start of the run."]
    finished_at: Annotated[datetime | None, "End of the run."] = None
    scope: Annotated[
        RunScope,
        "Source, destination and settings of the run. In the JSON, each field of `RunScope` is a separate key.",
    ] = field(default_factory=RunScope)
    rows: Annotated[dict[str, int], "Number of rows that were read, and of rows with each outcome."] = field(
        default_factory=lambda: count_rows(0, {})
    )
    activity: Annotated[
        dict[str, int] | None,
        "Numbers of active and inactive subscribers: of the subscribers that a load created, or of the valid rows of "
        "`validate`. Other commands leave out this key. A sync leaves it out if a shard ended without a report.",
        Activity | None,
    ] = None
    causes: Annotated[
        list[dict[str, Any]],
        "Causes of problems with rows, the most frequent first. After 30 causes, each outcome has one entry for all "
        "further causes.",
        list[Cause],
    ] = field(default_factory=list)
    changed_fields: Annotated[dict[str, int], "Number of changed rows that differ in each field."] = field(
        default_factory=dict
    )
    settled: Annotated[
        dict[str, int],
        "Unknown creates of earlier runs: the number that this run `found` in the service, and the number that it "
        "proved `absent`.",
        SettledCounts,
    ] = field(default_factory=lambda: {"found": 0, "absent": 0})
    requests: Annotated[
        dict[str, dict[str, int]],
        "Numbers of requests by operation: `create`, `list` and `send`. A plan lists only operations that it used.",
        dict[str, RequestCounts],
    ] = field(default_factory=dict)
    rejects_file: Annotated[str | None, "Path of the rejects file. Null if the run wrote no rejects file."] = None
    drift_file: Annotated[str | None, "Path of the drift file. Null if the run wrote no drift file."] = None
    receipts: Annotated[
        dict[str, Any] | None, "The receipts of the run. Null if the run writes no receipts.", ReceiptCounts | None
    ] = None
    opt_outs: Annotated[
        int,
        "Number of opt-outs: a row of the job says inactive, and the service shows the subscriber as active. Each run "
        "counts all opt-outs, even if it did not read their rows.",
    ] = 0
    problems: Annotated[dict[str, Any], "Problems of the job.", Problems] = field(
        default_factory=lambda: {"new": 0, "open": 0, "kinds": {}}
    )
    echo: Annotated[
        dict[str, int], "For each field: number of creates whose answer shows another value than the create sent."
    ] = field(default_factory=dict)
    messages: Annotated[list[str], "Sentences: what happened, and what to do."] = field(default_factory=list)
    certificate: Annotated[
        dict[str, Any] | None,
        "Result of the check whether the list is complete. Only `export` and `reconcile` have a certificate.",
        Certificate | None,
    ] = None
    unmapped_columns: Annotated[list[str], "Columns of the source that no field uses."] = field(default_factory=list)
    is_planned: Annotated[
        bool, "True for a plan, a dry run or a preview, which create no subscriber and send no email."
    ] = False
    samples: Annotated[
        list[dict[str, object]] | None,
        "Values of the first five subscribers as they would be sent, by field. Only in a plan and in `validate`.",
    ] = None
    reconciled: Annotated[dict[str, Any] | None, "Keys and values that only the JSON of `reconcile` has, or None."] = (
        None
    )
    email: Annotated[dict[str, Any] | None, "Answer of the service to `send`.", EmailReport] = None
    signal: Annotated[int | None, "Number of the signal that stopped the run. The JSON does not have this key."] = None

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values that `json.dumps` can write."""
        report_values: dict[str, Any] = {}
        for report_field in fields(self):
            value = getattr(self, report_field.name)
            if report_field.name == "signal":  # the status and the exit code show the signal
                continue
            if report_field.name == "scope":
                report_values |= asdict(value)
            elif report_field.name == "reconciled":
                report_values |= value or {}
            elif report_field.name == "is_planned":
                report_values |= {"planned": True} if value else {}
            elif isinstance(value, datetime):
                report_values[report_field.name] = value.isoformat()
            elif report_field.name not in OPTIONAL_REPORT_KEYS or value is not None:
                report_values[report_field.name] = value
        return report_values

    @property
    def exit_code(self) -> int:
        """The exit code of the command (architecture 8). If a signal stopped the run, the exit code is 128 plus the
        number of the signal."""
        return 128 + (self.signal or 0) if self.status == "stopped" else EXIT_CODE_BY_STATUS[self.status]

    def raise_for_status(self) -> None:
        """Raise LockedError if another run held the lock, and RunAborted if the run was aborted or stopped. After
        these errors, the command can be run again. Raise nothing if the run has finished (`ok` or `partial`)."""
        if self.status in ("ok", "partial"):
            return
        reason = self.messages[0] if self.messages else f"the run {self.run_id} was {self.status}"
        raise (LockedError if self.status == "locked" else RunAborted)(reason)

    def copy_request_counts(self, client: "Client") -> None:
        """Copy the request counts of the HTTP client into the report."""
        counts_by_operation = {
            str(operation): asdict(operation_counts) for operation, operation_counts in client.counts.items()
        }
        # A plan creates nothing, so its report shows only operations that sent a request.
        self.requests = {
            name: operation_counts
            for name, operation_counts in counts_by_operation.items()
            if operation_counts["sent"] or not self.is_planned
        }


def start_report(command: str, job: str, started_at: datetime, scope: RunScope | None = None) -> Report:
    """Return the report of a run that begins. The id of the run is unique and sorts by time. Characters in the job's
    name that cannot be written are escaped."""
    # The name may come from a file, whose name may have bytes that are not characters.
    job_name = job.encode("utf-8", "backslashreplace").decode()
    report = Report(
        f"{started_at:%Y%m%dT%H%M%S}-{token_hex(3)}", job_name, command, "ok", started_at, scope=scope or RunScope()
    )
    report_values = {
        "command": command,
        "job": job_name,
        "run_id": report.run_id,
        "what": f"{command} {job_name}".rstrip(),
    }
    logger.info("run begins: %(what)s (%(run_id)s)", report_values)
    return report


def build_run_record(report: Report) -> dict[str, Any]:
    """Return the record of an ended run in the log of runs: the JSON of the report, and the exit code."""
    return {**report.as_json(), "exit_code": report.exit_code}


def record_report(
    report: Report, state_dir: Path, retention_s: float, now: Callable[[], datetime]
) -> AbstractContextManager[bool]:
    """Return a context for the whole run, which records the start of the run, and at the end its report. The command
    `connector status` shows the record. The context yields True if the record of the start is on disk."""
    begin_keys = ("run_id", "job", "command", "started_at", "account", "settings")
    begin_values = {key: report.as_json()[key] for key in begin_keys}
    return record_run(state_dir, begin_values, partial(build_run_record, report), now, retention_s)


def end_report(report: Report, status: Status, ended_at: datetime, reason: str | None = None) -> Report:
    """Set the status and the end of the run in the report. If the run ended early, `reason` is the cause."""
    # The clock of the machine may have been set back.
    report.status, report.finished_at = status, max(ended_at, report.started_at)
    if reason is not None:
        report.messages.insert(0, reason)
    nonzero_rows = {name: row_count for name, row_count in report.rows.items() if row_count}
    counts_text = "".join(f", {row_count:,} {name}" for name, row_count in nonzero_rows.items())
    log_values = {"status": status, "rows": nonzero_rows, "run_id": report.run_id, "counted": counts_text}
    logger.info("run ends: %(status)s%(counted)s (%(run_id)s)", log_values)
    return report


def end_run(report: Report, stop: "Stop", status: Status, ended_at: datetime, reason: str | None = None) -> Report:
    """Set the end of a run that may have been stopped. After a signal, the status is `stopped`. If the run itself
    decided to stop, the status is `aborted`. Otherwise the status is the argument `status`."""
    report.signal = stop.signal
    if stop.signal is not None:
        return end_report(report, "stopped", ended_at, reason)
    if stop.reason is None:
        return end_report(report, status, ended_at, reason)
    if reason is not None and stop.reason in reason:  # `reason` repeats `stop.reason`, and adds the base
        return end_report(report, "aborted", ended_at, reason)
    if reason not in (None, RUN_STOPPED_MESSAGE):
        report.messages.insert(0, reason)
    return end_report(report, "aborted", ended_at, stop.reason)


class UncountedRowsError(Exception):
    """The error of a report in which the sum of the outcomes is not the number of rows that were read. This is a bug.
    In `rows`, the rows without an outcome count as unknown, because they may have been sent."""

    def __init__(self, rows: dict[str, int], outcome_sum: int) -> None:
        uncounted_row_count = max(0, rows["read"] - outcome_sum)
        message = f"rows read: {rows['read']}, rows with an outcome: {outcome_sum}. The counts of this report are wrong"
        if uncounted_row_count:
            message += f". Rows without an outcome, which count as unknown: {uncounted_row_count}"
        super().__init__(message)
        self.rows = rows | {"unknown": rows["unknown"] + uncounted_row_count}


def count_rows(read_count: int, outcomes: Mapping[Outcome, int]) -> dict[str, int]:
    """Return the report's `rows`. Raises UncountedRowsError if the sum of the outcomes is not `read_count`."""
    return _build_row_counts(read_count, Outcome, outcomes)


def count_mail_rows(read_count: int, outcomes: Mapping[MailOutcome, int]) -> dict[str, int]:
    """Return the `rows` of a mail run or a single email. Raises UncountedRowsError if the sum of the outcomes is not
    `read_count`."""
    first_outcomes = (MailOutcome.SENT, MailOutcome.ALREADY_SENT)  # the counts that a reader wants first
    later_outcomes = (outcome for outcome in MailOutcome if outcome not in first_outcomes)
    return _build_row_counts(read_count, (*first_outcomes, *later_outcomes), outcomes)


def _build_row_counts(
    read_count: int, outcome_order: Iterable[OutcomeT], outcomes: Mapping[OutcomeT, int]
) -> dict[str, int]:
    rows = {"read": read_count} | {str(outcome): outcomes.get(outcome, 0) for outcome in outcome_order}
    if (outcome_sum := sum(rows.values()) - read_count) != read_count:
        raise UncountedRowsError(rows, outcome_sum)
    return rows


def pick_worst_exit_code(exit_codes: list[int]) -> int:
    """Return the worst of the exit codes of the shards of a job."""
    return next((code for code in _EXIT_CODES_WORST_FIRST if code in exit_codes), 0)


def describe_fault(error: Exception) -> str:
    """Return one line about an unexpected error that a person can report. If CONNECTOR_DEBUG is set, raise the error
    instead.

    A full disk, too many open files and missing permissions have their own messages, because they are not bugs.
    """
    if os.environ.get("CONNECTOR_DEBUG"):
        raise error
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}. Free some disk space, and run again"
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return (
            f"{error.strerror}: the limit of files and connections that are open at once (ulimit -n) is reached. Raise "
            "the limit, or set load.max_concurrency lower, and run again"
        )
    if isinstance(error, PermissionError) and error.filename is not None:
        return (
            f"{error.filename}: {error.strerror}. Allow this user to use the file, or name another path, and run again"
        )
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"a fault of the program: {type(error).__name__} at {frame.filename}:{frame.lineno}. The finished requests "
        "are recorded, and you can run again. Please report the fault, with the traceback that CONNECTOR_DEBUG=1 shows"
    )
