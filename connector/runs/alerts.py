"""Decides whether the report of a run needs an alert, and writes the text of the alert.

The decision compares the report with the record of the job's last run. The record is a file in the state folder. So an
alert can also be sent when the ledger cannot be reached.
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from connector.atomic_file import replace_content
from connector.errors import ConnectorError
from connector.outcomes import OUTCOMES_FOR_A_PERSON, ProblemKind
from connector.texts import choose_form, count, make_visible

AlertPolicy = Literal["change", "problem", "always"]
AlertReason = Literal["failure", "another_cause", "new_problems", "reminder", "recovery", "run"]

_ALERTS_FOLDER = "alerts"
_REMINDER_INTERVAL_S = 23 * 3600.0  # less than a day, because nightly runs do not always end at the same time
_MAX_UNDELIVERED_ALERTS = 10  # alerts that are stored while the receiver is down; `status` shows every report
_MAX_MESSAGE_LENGTH = 500  # characters of the text; the report has the whole message
_WORD_WITH_DIGIT_PATTERN = re.compile(r"\w*\d\w*")
_ROW_PROBLEMS_CAUSE = "partial"  # the cause if the run finished and only rows have problems
_COMMANDS_WITH_PROBLEMS = ("import", "sync")  # their reports distinguish new problems from known problems

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LastRun:
    """The last run of a job: the `cause` of its problem (None: the run had no problem), and the number of its
    `problems` by kind.

    `since` is the start time (ISO 8601) of the first run with a problem after the last good run, or "".
    `alerted_at` is the time of the last alert (Unix seconds).
    """

    cause: str | None = None
    problems: dict[str, int] = field(default_factory=dict)
    since: str = ""
    alerted_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert that is sent again until the receiver accepts the alert. Each attempt has the same `message_id` and the
    same `body` (JSON)."""

    message_id: str
    body: str


@dataclass(frozen=True, slots=True)
class AlertRecord:
    """The record of a job: its last run (None if no run is recorded), and the alerts that the receiver has not
    accepted."""

    last_run: LastRun | None = None
    undelivered: tuple[Alert, ...] = ()


def decide_alert(
    policy: AlertPolicy, last_run: LastRun | None, report: Mapping[str, Any], now: float
) -> tuple[AlertReason | None, LastRun]:
    """Return the reason for an alert (None if no alert is due), and the record of this run for the next decision.

    `report` is the JSON of a report, and `now` is in Unix seconds.
    """
    previous_run = last_run or LastRun()
    cause, problem_counts = _find_cause(report), _count_problems(report)
    reason = _find_alert_reason(previous_run, cause, report, problem_counts, now)
    if policy == "problem":
        reason = (reason or "reminder") if report["status"] != "ok" else None
    elif policy == "always":
        reason = reason or "run"
    since = "" if cause is None else previous_run.since or str(report["started_at"])
    return reason, LastRun(cause, problem_counts, since, previous_run.alerted_at if reason is None else now)


def _find_alert_reason(
    previous_run: LastRun, cause: str | None, report: Mapping[str, Any], problem_counts: Mapping[str, int], now: float
) -> AlertReason | None:
    if cause is None:
        return None if previous_run.cause is None else "recovery"
    has_new_problems = report["problems"]["new"] > 0
    if report["command"] not in _COMMANDS_WITH_PROBLEMS:
        has_new_problems = any(
            problem_count > previous_run.problems.get(kind, 0) for kind, problem_count in problem_counts.items()
        )
    if previous_run.cause is None:
        return "failure" if report["status"] != "ok" or has_new_problems else None
    if cause == _ROW_PROBLEMS_CAUSE and has_new_problems:
        return "new_problems"
    if cause == _ROW_PROBLEMS_CAUSE != previous_run.cause:
        return "recovery"  # the run no longer fails, and earlier runs reported all its row problems
    if cause != previous_run.cause:
        return "another_cause"
    if has_new_problems:
        return "new_problems"
    if report["status"] == "ok":  # the job has fail_on: new, and all problems are known
        return None
    # `abs`, because a clock that was set back must not prevent reminders.
    return "reminder" if abs(now - previous_run.alerted_at) >= _REMINDER_INTERVAL_S else None


def _find_cause(report: Mapping[str, Any]) -> str | None:
    """Return the cause of a run's problem, or None if the run was ok and its job has no open problem.

    Words with a digit, such as times, row counts and run ids, are masked. So two runs with the same problem have equal
    causes."""
    status = str(report["status"])
    if status == "ok":
        return _ROW_PROBLEMS_CAUSE if report["problems"]["open"] else None
    if status == "partial":
        certificate = report.get("certificate") or {}
        return f"partial: {certificate.get('reason')}" if _is_incomplete(certificate) else _ROW_PROBLEMS_CAUSE
    messages = report["messages"]
    return f"{status}: {_WORD_WITH_DIGIT_PATTERN.sub('#', messages[0])}" if messages else status


def _is_incomplete(certificate: Mapping[str, Any]) -> bool:
    return bool(certificate) and certificate.get("verdict") != "complete"


def _count_problems(report: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of problems by kind: rows that a person must look at, opt-outs, and differences of a
    reconciliation."""
    problem_counts = {kind: report["rows"].get(kind, 0) for kind in OUTCOMES_FOR_A_PERSON}
    problem_counts |= {"opt_outs": report["opt_outs"], **(report.get("differences") or {})}
    return {kind: problem_count for kind, problem_count in problem_counts.items() if problem_count}


_TITLE_BY_REASON: Mapping[AlertReason, str] = {
    "failure": "Problem",
    "another_cause": "Another problem",
    "new_problems": "New problems",
    "reminder": "Still a problem",
    "recovery": "Recovered",
    "run": "Run",
}
_RESULT_TEXT_BY_STATUS = {
    "ok": "finished",
    "partial": "finished, and needs your attention",
    "usage": "did not run, because something must be corrected",
    "aborted": "ended early",
    "locked": "did not run, because another run holds the lock",
    "stopped": "was stopped",
}


def write_alert(reason: AlertReason, last_run: LastRun, report: Mapping[str, Any]) -> Alert:
    """Return the alert. Its body has a `text` (for receivers that accept messages of Slack), the `reason`, and the
    `report`."""
    status = report["status"]
    title = _TITLE_BY_REASON[reason] + (f" (since {last_run.since[:10]})" if reason == "reminder" else "")
    lines = [f"{title}: {report['command']} {report['job']} {_RESULT_TEXT_BY_STATUS[status]}."]
    count_texts = [f"{row_count:,} {outcome}" for outcome, row_count in report["rows"].items() if row_count]
    count_texts += [f"{row_count or 0:,} {kind}" for kind, row_count in (report.get("differences") or {}).items()]
    if count_texts:
        lines.append(f"Rows: {', '.join(count_texts)}.")
    lines += _describe_problems(report["problems"])
    if _is_incomplete(certificate := report.get("certificate") or {}):
        lines.append(f"The list is incomplete: {certificate['reason']}.")
    if opt_out_count := report["opt_outs"]:
        lines.append(
            f"{count(opt_out_count, 'subscriber')} opted out in the source and "
            f"{choose_form(opt_out_count, 'is', 'are')} still active in the service. Deactivate "
            f"{choose_form(opt_out_count, 'the subscriber', 'them')} there."
        )
    needs_message = status != "ok" and not (status == "partial" and last_run.problems)
    if report["messages"] and needs_message:
        message = report["messages"][0]
        lines.append(message if len(message) <= _MAX_MESSAGE_LENGTH else f"{message[:_MAX_MESSAGE_LENGTH]}…")
    lines.append(f"More: connector status {report['run_id']}")
    text = "\n".join(map(_escape_line, lines))
    body = json.dumps({"text": text, "reason": reason, "report": report})
    return Alert(f"msg_{report['run_id']}", body)


def _describe_problems(problems: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line with the numbers of new and open problems, if a problem is open. Opt-outs have a separate line."""
    counts_by_kind = {kind: counts for kind, counts in problems["kinds"].items() if kind != ProblemKind.OPTED_OUT}
    if open_problem_count := sum(counts["open"] for counts in counts_by_kind.values()):
        new_counts_text = (
            ", ".join(f"{counts['new']:,} {kind}" for kind, counts in counts_by_kind.items() if counts["new"]) or "none"
        )
        yield f"New problems: {new_counts_text}. Open problems: {open_problem_count:,}."


def _escape_line(line: str) -> str:
    """Return the line with escapes, so that Slack shows no link, mentions nobody, and hides no character."""
    return make_visible(line).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def build_alert_record_path(state_dir: Path, report: Mapping[str, Any]) -> Path:
    """Return the path of the file with a job's record. Each command and each shard of a job has a separate record."""
    shard = (report.get("settings") or {}).get("shard", "")
    record_key = "\0".join((report["command"], report["job"], shard)).encode("utf-8", "backslashreplace")
    return state_dir / _ALERTS_FOLDER / f"{blake2b(record_key, digest_size=16).hexdigest()}.json"


def read_alert_record(path: Path) -> AlertRecord:
    """Return the record, or an empty record if the file cannot be read, because a repeated alert is better than a
    missing alert."""
    try:
        record_values = json.loads(path.read_bytes())
        last_run = LastRun(**record_values["last_run"]) if record_values["last_run"] is not None else None
        return AlertRecord(last_run, tuple(Alert(**alert) for alert in record_values["undelivered"]))
    except FileNotFoundError:
        return AlertRecord()
    except (OSError, ValueError, TypeError, KeyError) as error:
        logger.warning("the record of alerts %s cannot be read (%s), so that no earlier alert is known", path, error)
        return AlertRecord()


def write_alert_record(path: Path, last_run: LastRun, undelivered_alerts: Sequence[Alert]) -> None:
    """Write the record, which only its owner can read. If the record cannot be written, log a warning, and do not fail
    the run."""
    alert_record = AlertRecord(last_run, tuple(undelivered_alerts[-_MAX_UNDELIVERED_ALERTS:]))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_content(path, json.dumps(asdict(alert_record)).encode())
    except (OSError, ConnectorError) as error:
        logger.warning("the record of alerts %s cannot be written (%s): later runs may repeat an alert", path, error)
