"""HTML pages of a report, and of the last runs of each job. Each page is one file that contains no script and
loads no other file.

The templates are in the folder beside this module, and all values in a page are escaped. The pictures of a page are
bars with the numbers beside the bars.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connector.outcomes import OUTCOMES_FOR_A_PERSON
from connector.texts import choose_form, count, make_visible
from pipelines.report.advice import advise_on_run, split_step
from pipelines.report.text import format_seconds, list_facts, list_files, measure_duration

if TYPE_CHECKING:
    import jinja2
    import markupsafe

_PAGE_BEGINNING = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="connector report">'
)
_REPORT_BEGINNING_PATTERN = re.compile(
    rb"%b|\{\n  (?:%b|%b|%b)"
    % (
        re.escape(_PAGE_BEGINNING.encode()),
        rb'"run_id": "[^"\n]*",\n  "job": "[^\n]*",\n  "command": "',
        rb'"status": "(?:ok|partial|aborted|stopped|locked|usage)",\n  "(?:%b)": '
        % rb"runs|forgotten|target|checks|deleted|source",
        rb'"command": "send",\n  "planned": true',
    )
)
"""Matches the beginning of a file that the connector wrote: an HTML page, or the JSON of a run, of several runs, or of
a command without a run."""

_SLASH_PATTERN = re.compile(r"(?<=\w)/")  # a slash within a path
_OPTION_PATTERN = re.compile(r"(?<!\S)(--[a-z][a-z-]*)")

_MESSAGE_BY_STATUS = {
    "ok": "All went well.",
    "partial": "The run finished. Some rows or subscribers need your attention.",
    "aborted": "The run ended early. The finished work is recorded.",
    "stopped": "The run was stopped. The finished work is recorded.",
    "locked": "The run did not start, because another run held the ledger.",
    "running": "The run is active.",
    "killed": "The run was killed. The finished work is recorded.",
    "usage": "Nothing was sent. Correct the fault that the message names.",
    "planned": "Nothing was sent or written.",
}
_CLASS_AND_TEXT_BY_OUTCOME = {
    "created": ("good", "new in the service"),
    "sent": ("good", "accepted by the service"),
    "written": ("good", "in the destination"),
    "valid": ("good", "compared with the service"),
    "exists": ("same", "in the service already"),
    "already_sent": ("same", "got this email in an earlier run"),
    "changed": ("other", "in the service already, with other values"),
    "duplicate": ("aside", "second row for the same subscriber"),
    "suppressed": ("aside", "left out, because the person wants no email"),
    "invalid": ("bad", "with a value that cannot be sent"),
    "rejected": ("bad", "refused by the service"),
    "unknown": ("doubt", "sent, without a clear answer"),
    "unsent": ("doubt", "not sent, because the run ended early"),
}
_TEXT_BY_DIFFERENCE = {
    "missing": "in the source, not in the service",
    "extra": "in the service, not in the source",
    "duplicated": "in the service several times",
    "drifted": "with other values in the service",
    "vanished": "confirmed by an earlier run, and no longer in the service",
}
_LISTED_RUN_COUNT = 10  # the table lists this many latest runs of a job; older runs appear only as bars
_MIN_BAR_HEIGHT = 12  # per cent of the height, so that the bar of a run without rows is visible
_DONE_OUTCOMES = ("created", "written", "sent")
_MAX_CAUSES = 12

_MESSAGE_BY_REASON = {
    "one_answer": "The whole list came in a single answer.",
    "id_order": "The ids of all pages were in strict order, and each page overlapped the next.",
    "two_sweeps": "Two successive passes over the whole list agree with each other and with every TotalCount.",
    "total_count": "TotalCount, or the offset of a page, contradicts the rows in every attempt.",
    "changing": "The list changed so much that no two successive passes over the whole list agreed.",
    "unstable_order": "The service lists subscribers in another order at each request.",
    "filter": "The filtered list left out a subscriber that the unfiltered list shows.",
    "paging": "The service repeated pages instead of moving on.",
    "cut_off": "The service has subscribers that the list leaves out.",
    "cut_off_possible": "The size of the list is a typical limit, and nothing proves that the list is complete.",
}
_MESSAGE_BY_CUT_OFF_RESULT = {
    "excluded": "Other evidence agrees with the size of the list, so the list is not cut off.",
    "not excluded": "Nothing suggests that the list is cut off, but no other evidence confirms the size of the list.",
    "accepted": "The list may be cut off. The job accepts this.",
}


def build_page(report: Mapping[str, Any]) -> str:
    """Return the HTML page of a report. The report is the JSON of one run, or of several runs (key `runs`)."""
    runs = report.get("runs") or [report]
    title = f"{_name_report(runs[0])}: {runs[0].get('status', 'planned')}"
    title = title if len(runs) == 1 else f"{len(runs)} runs: {report['status']}"
    return _render_template("run.html", title=title, runs=[_build_run_values(run) for run in runs])


def build_health_page(health: Mapping[str, Any], created_at: datetime) -> str:
    """Return the page of the values that `read_health` returns."""
    jobs = [_build_job_values(job) for job in health["jobs"]]
    statuses_by_job: dict[str, set[str]] = {}  # statuses of the last run of each command, by job file
    for last_run in (job["runs"][0] for job in health["jobs"]):
        if job_file := (last_run.get("settings") or {}).get("job_file"):
            statuses_by_job.setdefault(job_file, set()).add(last_run["status"])
    ok_count = list(statuses_by_job.values()).count({"ok"})
    summary = (
        f"The last run of {ok_count:,} of {count(len(statuses_by_job), 'job')} ended well."
        if statuses_by_job
        else "No job has run."
    )
    open_entry_counts = Counter[tuple[str, str]]()
    for entry in health["open_entries"]:
        open_entry_counts[entry["state"], entry["account"]] += entry["entries"]
    return _render_template(
        "health.html",
        title="Runs of the connector",
        jobs=jobs,
        steps=[split_step(step) for step in health["next"]],
        created_at=f"{created_at:%Y-%m-%d %H:%M} UTC",
        summary=summary,
        linked_runs=[_build_run_values(run) for job in health["jobs"] for run in job["runs"][:_LISTED_RUN_COUNT]],
        open_entries=[
            (f"{entry_count:,} {state}", account) for (state, account), entry_count in open_entry_counts.items()
        ],
    )


def is_report(beginning: bytes) -> bool:
    """Return whether the file with this beginning is a report of the connector, as JSON or as a page."""
    return _REPORT_BEGINNING_PATTERN.match(beginning) is not None


def _render_template(name: str, **values: object) -> str:
    return _load_templates().get_template(name).render(**values)


@cache
def _load_templates() -> "jinja2.Environment":
    import jinja2  # imported here, because a run without a page does not need it

    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize_value,
    )
    environment.filters["wrap"] = _add_line_breaks
    return environment


def _finalize_value(value: object) -> object:
    """Return a value for a page: hidden characters of a text become escapes."""
    return make_visible(value) if type(value) is str else value  # a Markup object comes from a template and is safe


def _name_report(report: Mapping[str, Any]) -> str:
    return str(report.get("job") or report.get("command") or "connector")


def _add_line_breaks(value: object) -> "markupsafe.Markup":
    """Return the text as HTML. A browser may break a line after a slash of a path or URL, but not inside an option such
    as `--base-id`."""
    from markupsafe import Markup

    texts = _OPTION_PATTERN.split(make_visible(str(value)))
    parts = [Markup("/<wbr>").join(_SLASH_PATTERN.split(text)) for text in texts[::2]]
    for index, name in enumerate(texts[1::2]):
        parts[index] += Markup('<span class="fixed">{}</span>').format(name)
    return Markup("").join(parts)


# The values of one run


def _build_run_values(report: Mapping[str, Any]) -> dict[str, Any]:
    status = "planned" if report.get("planned") and report["status"] == "ok" else report["status"]
    rows = report.get("rows") or {}
    causes = list(_list_causes(report))
    certificate = report.get("certificate")
    changed_fields = report.get("changed_fields") or report.get("fields") or {}
    return {
        "id": report.get("run_id", ""),
        "name": _name_report(report),
        "status": status,
        "explanation": _MESSAGE_BY_STATUS.get(status, ""),
        "messages": report.get("messages") or [],
        "steps": [split_step(step) for step in advise_on_run(report)],
        "row_noun": {"export": "subscribers", "retry": "entries"}.get(report.get("command", ""), "rows"),
        "read": f"{rows.get('read', 0):,}",
        "outcomes": _list_outcomes(rows),
        "notes": list(_list_notes(report)),
        "causes": causes,
        "is_masked": any(example["value"] for cause in causes for example in cause["examples"]),
        "differences": [
            (
                name,
                _TEXT_BY_DIFFERENCE.get(name, ""),
                "not known" if subscriber_count is None else f"{subscriber_count:,}",
            )
            for name, subscriber_count in (report.get("differences") or {}).items()
        ],
        "changed_fields": [(name, f"{subscriber_count:,}") for name, subscriber_count in changed_fields.items()],
        "verdict": certificate["verdict"] if certificate else "",
        "certificate_sentences": list(_describe_certificate(certificate)) if certificate else [],
        "facts": [("Command", report.get("command", "")), *list_facts(report), *list_files(report)],
        "settings": list((report.get("settings") or {}).items()),
    }


def _list_outcomes(rows: Mapping[str, int]) -> list[dict[str, str]]:
    """Return each outcome that at least one row has, with the row count, the share, and the width of its bar in
    percent."""
    counts = {name: row_count for name, row_count in rows.items() if row_count and name != "read"}
    total_row_count = max(rows.get("read", 0), sum(counts.values()))
    return [
        {
            "kind": kind,
            "name": name.replace("_", " "),
            "number": f"{counts[name]:,}",
            "share": _format_share(counts[name] / total_row_count),
            "width": f"{100 * counts[name] / total_row_count:.1f}",
            "explanation": explanation,
        }
        for name, (kind, explanation) in _CLASS_AND_TEXT_BY_OUTCOME.items()
        if name in counts
    ]


def _format_share(share: float) -> str:
    """Return the share in whole per cent. Return `< 1%` below 1 %, and `> 99%` between 99 % and 100 %."""
    if 0.01 <= share <= 0.99 or share == 1:
        return f"{share:.0%}"
    return "< 1%" if share < 0.01 else "> 99%"


def _list_notes(report: Mapping[str, Any]) -> Iterator[str]:
    settled_counts = report.get("settled") or {}
    if any(settled_counts.values()):
        found_count, absent_count = settled_counts.get("found", 0), settled_counts.get("absent", 0)
        verb = choose_form(found_count, "was", "were")
        yield f"Of the unresolved creates, {found_count:,} {verb} found, and {absent_count:,} proved absent."
    for name, subscriber_count in (report.get("echo") or {}).items():
        yield f"The service altered the field {name} of {count(subscriber_count, 'subscriber')}."


def _list_causes(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    causes = report.get("causes") or []
    for cause in causes[:_MAX_CAUSES]:
        examples = [
            {"where": f"row {example['row']:,}" if example["row"] else "", "value": example["value"]}
            for example in cause["examples"]
        ]
        yield {**cause, "rows": f"{cause['rows']:,}", "examples": examples}
    if further_causes := causes[_MAX_CAUSES:]:
        row_count = sum(cause["rows"] for cause in further_causes)
        message = f"{len(further_causes):,} further causes. The rejects file has the cause of each row"
        yield {"rows": f"{row_count:,}", "outcome": "rows", "field": "", "message": message, "examples": []}


def _describe_certificate(certificate: Mapping[str, Any]) -> Iterator[str]:
    if certificate["verdict"] == "complete":
        yield "Every subscriber who stayed on the list while the run read it is in the output, once."
    else:
        yield "Nothing proves that every subscriber of the list is in the output."
    yield _MESSAGE_BY_REASON.get(certificate["reason"], certificate["reason"])
    started_at, ended_at = (datetime.fromisoformat(certificate[name]) for name in ("started_at", "finished_at"))
    sweep_count, page_count = certificate["sweeps"], certificate["pages"]
    yield (
        f"{count(certificate['distinct'], 'subscriber')} in {count(page_count, 'page')} of "
        f"{count(sweep_count, 'pass', 'passes')} over the list, from {started_at:%H:%M:%S} to {ended_at:%H:%M:%S} UTC."
    )
    if certificate["appeared"] or certificate["vanished"]:
        yield (
            f"At least {certificate['appeared']:,} subscribers appeared and {certificate['vanished']:,} vanished "
            "while the run read the list."
        )
    first_total, last_total = certificate["total_first"], certificate["total_last"]
    if first_total is not None and last_total is not None:
        totals_text = (
            f"{first_total:,}" if first_total == last_total else f"{first_total:,} at first and {last_total:,} at last"
        )
        total_count_note = "; the run ignored TotalCount" if certificate.get("total_count") == "ignored" else ""
        yield f"The service's TotalCount was {totals_text}{total_count_note}."
    if cut_off_message := _MESSAGE_BY_CUT_OFF_RESULT.get(certificate.get("cut_off", "")):
        yield cut_off_message


# The values of each job and its last runs


def _build_job_values(job: Mapping[str, Any]) -> dict[str, Any]:
    runs = job["runs"]
    max_row_count = max((_sum_rows(run, "read") for run in runs), default=0) or 1
    status_counts = Counter(run["status"] for run in runs)
    return {
        "name": job["job"] or job["command"],
        "command": job["command"],
        "status": runs[0]["status"],
        "last_succeeded_at": _format_time(job["last_succeeded_at"]) if job["last_succeeded_at"] else "",
        "status_counts": ", ".join(f"{run_count:,} {status}" for status, run_count in status_counts.most_common()),
        "bars": [
            {
                "status": run["status"],
                "height": f"{_compute_bar_height(_sum_rows(run, 'read') / max_row_count):.0f}",
                "title": f"{_format_time(run['started_at'])}: {run['status']}, {_sum_rows(run, 'read'):,} read",
            }
            for run in reversed(runs)
        ],
        "runs": [_build_run_row_values(run) for run in runs[:_LISTED_RUN_COUNT]],
        "run_count": len(runs),
        "further_run_count": len(runs) - _LISTED_RUN_COUNT,
    }


def _compute_bar_height(share: float) -> float:
    """Return the height of a bar in percent. `share` is the row count of a run, divided by the row count of the
    largest run."""
    return _MIN_BAR_HEIGHT + (100 - _MIN_BAR_HEIGHT) * sqrt(share)


def _build_run_row_values(run: Mapping[str, Any]) -> dict[str, str]:
    duration_s, attention_count = measure_duration(run), _sum_rows(run, *OUTCOMES_FOR_A_PERSON)
    return {
        "run_id": run["run_id"],
        "started_at": _format_time(run["started_at"]),
        "duration": format_seconds(duration_s) if duration_s is not None else "",
        "status": run["status"],
        "read": f"{_sum_rows(run, 'read'):,}",
        "done": f"{_sum_rows(run, *_DONE_OUTCOMES):,}",
        "attention_count": f"{attention_count:,}" if attention_count else "",
    }


def _sum_rows(run: Mapping[str, Any], *outcomes: str) -> int:
    rows = run.get("rows") or {}
    return sum(int(rows.get(name, 0)) for name in outcomes)


def _format_time(text: str) -> str:
    return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M}"
