"""What an email says of a run: its lines in groups, and its plain text. `page` makes its HTML."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SAYS = {
    "ok": "All went well.",
    "partial": "It came to its end, and something needs a person.",
    "aborted": "It ended early. What was done is recorded, and it can be run again.",
    "stopped": "It was stopped. What was done is recorded, and it can be run again.",
    "locked": "It did not begin: another run was going on.",
}
"""What a status means, for a person."""
_ALWAYS = ("read", "created", "written", "sent")
_FILES = {
    "rejects_file": "Rows to look at",
    "drift_file": "Differs from the service",
    "differences_file": "Differences",
}

Lines = Sequence[tuple[str, str]]


def write_title(report: Mapping[str, Any]) -> str:
    """Return the title of one run's JSON: `crm-nightly: partial`."""
    name = report.get("job") or report.get("command") or "connector"
    return f"{name}: {report.get('status', 'planned')}"


def write_plain(report: Mapping[str, Any]) -> str:
    """Return the JSON of one run as plain text."""
    lines = [write_title(report), SAYS[report["status"]], ""]
    for _, group in list_groups(report):
        width = max(len(name) for name, _ in group)
        lines += [f"{name:<{width}}  {value}" for name, value in group] + [""]
    lines += [f"- {each}" for each in report["messages"]]
    return "\n".join(lines).rstrip() + "\n"


def list_groups(report: Mapping[str, Any]) -> Iterator[tuple[str, Lines]]:
    """Yield what there is to say of a run, under its headings; the first group has none."""
    groups = {
        "": _list_head(report),
        "Rows": _list_rows(report),
        "Certificate": _list_certificate(report),
        "Files": _list_files(report),
    }
    yield from ((heading, lines) for heading, lines in groups.items() if lines)


def _list_head(report: Mapping[str, Any]) -> Lines:
    asked = {name: each["sent"] for name, each in report.get("requests", {}).items() if each["sent"]}
    head = [("command", report["command"]), ("run", report["run_id"]), ("started", _write_time(report["started_at"]))]
    if report["finished_at"]:
        head.append(("finished", _write_time(report["finished_at"])))
    if report.get("planned"):
        head.append(("planned", "nothing was sent or written"))
    if asked:
        head.append(("requests", ", ".join(f"{number:,} {name}" for name, number in asked.items())))
    return head


def _write_time(text: str) -> str:
    return text[:19].replace("T", " ") + " UTC"


def _list_rows(report: Mapping[str, Any]) -> Lines:
    rows = [(name, number) for name, number in report["rows"].items() if number or name in _ALWAYS]
    rows += [(f"settled: {name}", number) for name, number in report.get("settled", {}).items() if number]
    rows += [(name, number) for name, number in (report.get("differences") or {}).items() if number is not None]
    return [(name.replace("_", " "), f"{number:,}") for name, number in rows]


def _list_certificate(report: Mapping[str, Any]) -> Lines:
    certificate = report.get("certificate")
    if certificate is None:
        return []
    shown = ("verdict", "reason", "order", "sweeps", "pages", "distinct", "appeared", "vanished")
    return [(name, str(certificate[name]).replace("_", " ")) for name in shown]


def _list_files(report: Mapping[str, Any]) -> Lines:
    return [(words, str(report[name])) for name, words in _FILES.items() if report.get(name)]
