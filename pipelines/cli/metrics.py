"""The last run of each job as metrics in Prometheus' text form, for the textfile collector of its node exporter."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from connector.atomic_file import refuse_foreign, write_whole
from connector.errors import ConfigurationError
from connector.runs.report import Status

_READABLE_BY_ALL = 0o644  # by the exporter, which is another user; it holds counts and names of jobs
_BEGINNING = b"# HELP connector_"

_HELP = {
    "start_timestamp_seconds": "When the last run began.",
    "end_timestamp_seconds": "When the last run ended.",
    "duration_seconds": "How long the last run took.",
    "status": "Whether the last run ended with this status.",
    "rows_read": "Rows that the last run read; of an export, subscribers listed.",
    "rows": "Rows of the last run by their outcome.",
    "opt_outs": "Subscribers whose rows say inactive while the service shows them as active, by the last run.",
    "requests": "Requests of the last run by operation and result; all are counted as sent.",
}


def check_metrics_path(path: Path) -> None:
    """Raise ConfigurationError unless metrics may be written there: a new file, an empty one, or earlier metrics."""
    if path.suffix != ".prom":
        raise ConfigurationError(f"--metrics {path}: name a file that ends in .prom; no other is collected")
    refuse_foreign("--metrics", path, lambda beginning: beginning.startswith(_BEGINNING))


def write_metrics(reports: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the metrics of these reports, of one command and job the last; plans are no runs, and leave the file as it
    is. Raises OSError and ConfigurationError."""
    check_metrics_path(path)
    last = {(report["command"], report["job"]): report for report in reports if not report.get("planned")}
    if not last:
        return
    samples = [sample for report in last.values() for sample in _list_samples(report)]
    lines: list[str] = []
    for metric, words in _HELP.items():
        name = f"connector_last_run_{metric}"
        lines += [f"# HELP {name} {words}", f"# TYPE {name} gauge"]
        for sampled, labels, value in samples:
            if sampled == metric:
                written = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
                lines.append(f"{name}{{{written}}} {value:.15g}")
    write_whole(path, "\n".join([*lines, ""]).encode("utf-8", "backslashreplace"), mode=_READABLE_BY_ALL)


def _list_samples(report: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield the metric, labels and value of each sample of a report."""
    labels = {"command": report["command"], "job": report["job"]}
    began, ended = (datetime.fromisoformat(report[key]).timestamp() for key in ("started_at", "finished_at"))
    yield "start_timestamp_seconds", labels, began
    yield "end_timestamp_seconds", labels, ended
    yield "duration_seconds", labels, round(ended - began, 6)
    for status in get_args(Status):
        yield "status", {**labels, "status": status}, status == report["status"]
    for outcome, number in report["rows"].items():
        if outcome == "read":
            yield "rows_read", labels, number
        else:
            yield "rows", {**labels, "outcome": outcome}, number
    yield "opt_outs", labels, report["opt_outs"]
    for operation, counts in report["requests"].items():
        for result, number in counts.items():
            yield "requests", {**labels, "operation": operation, "result": result}, number


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
