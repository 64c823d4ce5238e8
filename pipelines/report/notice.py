"""A report as an email, HTML and plain text. Its styles stand at each element, since mail programs drop others."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

_COLOURS = {"ok": "#1a7f37", "partial": "#9a6700", "aborted": "#cf222e", "stopped": "#cf222e", "locked": "#cf222e"}
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
_CELL = "padding:4px 12px 4px 0;vertical-align:top"

Lines = Sequence[tuple[str, str]]


def write_title(report: Mapping[str, Any]) -> str:
    """Return the title of one run's JSON: `crm-nightly: partial`."""
    name = report.get("job") or report.get("command") or "connector"
    return f"{name}: {report.get('status', 'planned')}"


def write_notice(report: Mapping[str, Any]) -> str:
    """Return the JSON of one run as the HTML of an email."""
    style = "font-family:-apple-system,'Segoe UI',Roboto,sans-serif;font-size:15px;line-height:1.45;color:#1f2328"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(write_title(report))}</title>'
        '<meta name="viewport" content="width=device-width"></head>'
        f'<body style="{style};max-width:46em;margin:2em auto;padding:0 1em">{_write_run(report)}</body></html>\n'
    )


def write_plain(report: Mapping[str, Any]) -> str:
    """Return the JSON of one run as plain text."""
    lines = [write_title(report), SAYS[report["status"]], ""]
    groups = [_list_head(report), _list_rows(report), _list_certificate(report), _list_files(report)]
    for group in filter(None, groups):
        width = max(len(name) for name, _ in group)
        lines += [f"{name:<{width}}  {value}" for name, value in group] + [""]
    lines += [f"- {each}" for each in report["messages"]]
    return "\n".join(lines).rstrip() + "\n"


def _write_run(report: Mapping[str, Any]) -> str:
    colour = _COLOURS[report["status"]]
    badge = f"background:{colour};color:#fff;border-radius:1em;padding:2px 10px;font-size:13px"
    name = f"{escape(report['job'] or report['command'])} "
    parts = [
        f'<h1 style="font-size:22px;margin:0 0 4px">{name}<span style="{badge}">{escape(report["status"])}</span></h1>',
        f'<p style="margin:0 0 16px;color:#59636e">{escape(SAYS[report["status"]])}</p>',
        *_write_messages(report["messages"]),
        _write_table("", _list_head(report)),
        _write_table("Rows", _list_rows(report), is_number=True),
        _write_table("Certificate", _list_certificate(report)),
        _write_table("Files", _list_files(report)),
    ]
    return f'<section style="margin-bottom:3em">{"".join(parts)}</section>'


def _write_messages(messages: Sequence[str]) -> Iterator[str]:
    if messages:
        items = "".join(f"<li>{escape(each)}</li>" for each in messages)
        yield f'<ul style="padding-left:1.2em;margin:0 0 16px">{items}</ul>'


def _write_table(title: str, lines: Lines, *, is_number: bool = False) -> str:
    if not lines:
        return ""
    align = ";text-align:right;font-variant-numeric:tabular-nums" if is_number else ""
    rows = "".join(
        f'<tr><th scope="row" style="{_CELL};text-align:left;font-weight:normal;color:#59636e">{escape(name)}</th>'
        f'<td style="{_CELL}{align};overflow-wrap:anywhere">{escape(value)}</td></tr>'
        for name, value in lines
    )
    head = f'<h2 style="font-size:16px;margin:20px 0 4px">{escape(title)}</h2>' if title else ""
    return f'{head}<table style="border-collapse:collapse">{rows}</table>'


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
