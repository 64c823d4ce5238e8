"""A report as an HTML page, for one run or several: one file that needs nothing from outside, and no script.

The templates lie beside this module, and everything that goes into them is escaped. Pictures are SVG without text: what
is to be read stands beside them, so that it keeps its size on a phone.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connector.plurals import agree, count
from pipelines.report.advice import advise, mask_arguments
from pipelines.report.text import list_facts, list_files, show_seconds

if TYPE_CHECKING:
    import jinja2

_PAGE_BEGINS = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="connector report">'
)
_WRITTEN = re.compile(
    rb"%b|\{\n  (?:%b|%b|%b)"
    % (
        re.escape(_PAGE_BEGINS.encode()),
        rb'"run_id": "[^"\n]*",\n  "job": "[^\n]*",\n  "command": "',
        rb'"status": "(?:ok|partial|aborted|stopped|locked|usage)",\n  "(?:%b)": '
        % rb"runs|forgotten|target|checks|deleted|source",
        rb'"command": "send",\n  "planned": true',
    )
)
"""How the JSON of a run, of several, and of the commands that have no run begins, and how a page does."""

_SAYS = {
    "ok": "All went well.",
    "partial": "It came to its end, and something needs a person.",
    "aborted": "It ended early. What was done is recorded, and it can be run again.",
    "stopped": "It was stopped. What was done is recorded, and it can be run again.",
    "locked": "It did not begin: another run was going on.",
    "running": "It is going on.",
    "killed": "It was killed. What was done is recorded, and it can be run again.",
    "usage": "It was refused before it began: something must be mended.",
    "planned": "Nothing was sent or written.",
}
_OUTCOMES = {
    "created": ("good", "new in the service"),
    "sent": ("good", "accepted by the service"),
    "written": ("good", "in the destination"),
    "valid": ("good", "compared with the service"),
    "exists": ("same", "there already"),
    "already_sent": ("same", "had this email before"),
    "changed": ("other", "there already, with other values"),
    "duplicate": ("aside", "a row of a subscriber who has one already"),
    "suppressed": ("aside", "left out on purpose"),
    "invalid": ("bad", "cannot be used as it is"),
    "rejected": ("bad", "refused by the service"),
    "unknown": ("doubt", "sent, without a certain answer"),
    "unsent": ("doubt", "not sent: the run ended before"),
}
_DIFFERENCES = {
    "missing": "in the source, not in the service",
    "extra": "in the service, not in the source",
    "duplicated": "in the service several times",
    "drifted": "with other values in the service",
    "vanished": "confirmed once, not in the service any more",
}
_BAND = 48  # the height of an outcome's line in the picture, as in the style sheet (3rem)
_THICKEST, _THINNEST = 40, 2
_LOWEST = 2  # per cent of a picture: one refusal among thousands is to be seen, too
_CAUSES_SHOWN = 12

_REASONS = {
    "one_answer": "The whole list came in a single answer.",
    "id_order": "The ids were in strict order across the reading, and each page overlapped the next.",
    "two_sweeps": "Two readings, one after the other, agree with each other and with every TotalCount.",
    "total_count": "TotalCount, or the place of a page, disagrees for good with the rows received.",
    "changing": "The list changed so much that no two readings agreed.",
    "unstable_order": "The service lists subscribers in another order at each request.",
    "filter": "Read by a filter, the list left out a subscriber that it shows without it.",
    "paging": "The service repeated pages in place of going on.",
    "cut_off": "The service has subscribers that the list leaves out.",
    "cut_off_possible": "The list has a size at which services cut lists off, and there is no evidence either way.",
}
_CUT_OFF = {
    "excluded": "Evidence from outside the reading agrees with its size: it is not cut off.",
    "not excluded": "Nothing suggests that the list is cut off; it is not proved either.",
    "accepted": "The list may be cut off; that was accepted.",
}


def write_page(report: Mapping[str, Any], arguments: Sequence[str] = ()) -> str:
    """Return the JSON of a run, or of several (`runs`), as a whole page; `arguments` are those of the command."""
    runs = report.get("runs") or [report]
    title = _write_title(runs[0]) if len(runs) == 1 else f"{len(runs)} runs: {report['status']}"
    return render("run.html", title=title, runs=[_build_run(each, arguments) for each in runs])


def _write_title(report: Mapping[str, Any]) -> str:
    """Return the title of one run's JSON: `crm-nightly: partial`."""
    name = report.get("job") or report.get("command") or "connector"
    return f"{name}: {report.get('status', 'planned')}"


def is_report(beginning: bytes) -> bool:
    """Return whether a run wrote the file that begins so, as JSON or as a page."""
    return _WRITTEN.match(beginning) is not None


def render(name: str, **values: object) -> str:
    """Return one of the templates, filled in."""
    return _load_templates().get_template(name).render(**values)


@cache
def _load_templates() -> "jinja2.Environment":
    import jinja2  # here: a run without a page does not pay for it

    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    return jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )


# One run


def _build_run(report: Mapping[str, Any], arguments: Sequence[str]) -> dict[str, Any]:
    status = "planned" if report.get("planned") and report["status"] == "ok" else report["status"]
    causes = list(_list_causes(report))
    arguments = arguments if [*arguments[:1]] == [report.get("command")] else ()  # not those of `status`
    return {
        "name": report.get("job") or report.get("command") or "connector",
        "status": status,
        "says": _SAYS.get(status, ""),
        "messages": report.get("messages") or [],
        "steps": advise(report, arguments),
        "funnel": _build_funnel(report),
        "besides": list(_list_besides(report)),
        "causes": causes,
        "is_masked": any(example["value"] for cause in causes for example in cause["examples"]),
        "differences": list(_list_differences(report)),
        "changed_fields": [
            (name, f"{number:,}")
            for name, number in (report.get("changed_fields") or report.get("fields") or {}).items()
        ],
        "pace": _build_pace(report),
        "certificate": _describe_certificate(report.get("certificate")),
        "facts": [("Command", _write_command(report, arguments)), *list_facts(report), *list_files(report)],
        "settings": list((report.get("settings") or {}).items()),
    }


def _write_command(report: Mapping[str, Any], arguments: Sequence[str]) -> str:
    return " ".join(["connector", *mask_arguments(arguments)]) if arguments else report.get("command", "")


# The funnel


def _build_funnel(report: Mapping[str, Any]) -> dict[str, Any] | None:
    """The rows read on the left, a band to each outcome on the right; None where nothing was read."""
    rows = report.get("rows") or {}
    read, parts = rows.get("read", 0), {name: number for name, number in rows.items() if number and name != "read"}
    whole = max(read, sum(parts.values()))
    if not whole or not parts:
        return None
    parts = {name: parts[name] for name in _OUTCOMES if name in parts}
    height, begin, bands = _BAND * len(parts), 0.0, []
    for index, (name, number) in enumerate(parts.items()):
        end = begin + height * number / whole
        thick = max(_THINNEST, _THICKEST * number / max(parts.values()))
        top, bottom = (_BAND * (index + 0.5) + side * thick / 2 for side in (-1, 1))
        path = f"M0 {begin:.1f}C50 {begin:.1f} 50 {top:.1f} 100 {top:.1f}V{bottom:.1f}"
        path += f"C50 {bottom:.1f} 50 {end:.1f} 0 {end:.1f}Z"
        kind, says = _OUTCOMES[name]
        share = _show_share(number / whole)
        shown = {"name": name.replace("_", " "), "number": f"{number:,}", "share": share, "says": says}
        bands.append({"kind": kind, "path": path, **shown})
        begin = end
    label = ", ".join(f"{each['number']} {each['name']}" for each in bands)
    what = {"export": "subscribers", "retry": "entries"}.get(report.get("command", ""), "rows")
    return {"read": f"{read:,}", "what": what, "height": height, "bands": bands, "label": label}


def _show_share(share: float) -> str:
    """A whole per cent where that says enough, and never 0 % or 100 % of what is not."""
    if 0.01 <= share <= 0.99 or share == 1:
        return f"{share:.0%}"
    return "< 1%" if share < 0.01 else "> 99%"


def _list_besides(report: Mapping[str, Any]) -> Iterator[str]:
    settled = report.get("settled") or {}
    if any(settled.values()):
        found, absent = settled.get("found", 0), settled.get("absent", 0)
        yield f"Of unresolved creates {found:,} {agree(found, 'was', 'were')} found, and {absent:,} proved absent."
    for name, number in (report.get("echo") or {}).items():
        yield f"The service altered {name} of {count(number, 'subscriber')}."


def _list_causes(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    causes = report.get("causes") or []
    for cause in causes[:_CAUSES_SHOWN]:
        examples = [
            {"where": f"row {each['row']:,}" if each["row"] else "", "value": each["value"]}
            for each in cause["examples"]
        ]
        yield {**cause, "rows": f"{cause['rows']:,}", "examples": examples}
    if rest := causes[_CAUSES_SHOWN:]:
        number = sum(each["rows"] for each in rest)
        message = f"{len(rest):,} further causes; the rejects file names each row's"
        yield {"rows": f"{number:,}", "outcome": "rows", "field": "", "message": message, "examples": []}


def _list_differences(report: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for name, number in (report.get("differences") or {}).items():
        yield {
            "name": name,
            "says": _DIFFERENCES.get(name, ""),
            "number": "not known" if number is None else f"{number:,}",
        }


# Requests over time


def _build_pace(report: Mapping[str, Any]) -> dict[str, Any] | None:
    timeline = report.get("timeline")
    if not timeline:
        return None
    width_s, seconds, sent = timeline["bucket_s"], timeline["seconds"], timeline["sent"]
    last_s = max(seconds - (len(sent) - 1) * width_s, width_s / 10)
    lengths_s = [width_s] * (len(sent) - 1) + [max(last_s, width_s / 2)]
    rates = [number / length_s for number, length_s in zip(sent, lengths_s, strict=True)]
    most, trips = max(rates), timeline["round_trip_ms"]
    limited, failed, paused_s = sum(timeline["limited"]), sum(timeline["failed"]), sum(timeline["paused_s"])
    says = [f"{count(sum(sent), 'request')} in {show_seconds(seconds)}"]
    says += [f"{sum(sent) / seconds:,.0f} a second in the mean, {most:,.0f} at most"] if len(sent) > 2 else []
    says += [f"{limited:,} refused for their rate"] if limited else []
    says += [f"{failed:,} failed"] if failed else []
    says += [f"{show_seconds(paused_s)} of pauses that the service asked for"] if paused_s else []
    pace = {"says": "; ".join(says) + ".", "area": ""}
    if len(sent) < 3:
        return pace
    scale = 94 / most
    slowest = max(trip for trip in trips if trip is not None)
    key = [("same band", "sent")]
    key += [("bad", "refused for their rate")] if limited else []
    key += [("doubt", "failed")] if failed else []
    key += [("faint", "pause asked for by the service")] if paused_s else []
    began_at = datetime.fromisoformat(report["started_at"])
    return pace | {
        "width": len(sent),
        "most": f"{most:,.0f}/s",
        "area": _draw_steps([scale * rate for rate in rates]),
        "limited": _draw_steps([scale * number / width_s for number in timeline["limited"]]) if limited else "",
        "failed": _draw_steps([scale * number / width_s for number in timeline["failed"]]) if failed else "",
        "pauses": [
            {"x": index, "width": f"{min(paused / width_s, 1):.2f}"}
            for index, paused in enumerate(timeline["paused_s"])
            if paused
        ],
        "trips": _draw_line([None if trip is None else 70 * trip / slowest for trip in trips]),  # below its label
        "slowest": f"{slowest:,.0f} ms" if slowest >= 10 else f"{slowest:.1f} ms",
        "began": f"{began_at:%H:%M:%S}",
        "ended": f"{began_at + timedelta(seconds=seconds):%H:%M:%S} UTC",
        "key": key,
    }


def _draw_steps(heights: Sequence[float]) -> str:
    """The outline of bars, one wide each, upon a ground at 100."""
    steps = "".join(f"V{100 - max(each, _LOWEST if each else 0):.1f}h1" for each in heights)
    return f"M0 100{steps}V100Z"


def _draw_line(heights: Sequence[float | None]) -> str:
    """Return a line from the middle of each bar to the next; a missing bar interrupts it."""
    parts, is_broken = list[str](), True
    for index, each in enumerate(heights):
        if each is not None:
            parts.append(f"{'M' if is_broken else 'L'}{index + 0.5:g} {100 - each:.1f}")
            if is_broken and (index + 1 == len(heights) or heights[index + 1] is None):
                parts.append("h.5")
        is_broken = each is None
    return "".join(parts)


# The certificate


def _describe_certificate(certificate: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if certificate is None:
        return None
    return {"verdict": certificate["verdict"], "sentences": list(_say_certificate(certificate))}


def _say_certificate(certificate: Mapping[str, Any]) -> Iterator[str]:
    if certificate["verdict"] == "complete":
        yield "Every subscriber who was on the list throughout the reading is in the output, once."
    else:
        yield "It is not known whether every subscriber of the list is in the output."
    yield _REASONS.get(certificate["reason"], certificate["reason"])
    began_at, ended_at = (datetime.fromisoformat(certificate[name]) for name in ("started_at", "finished_at"))
    sweeps, pages = certificate["sweeps"], certificate["pages"]
    yield (
        f"{count(certificate['distinct'], 'subscriber')} in {count(pages, 'page')} of {count(sweeps, 'reading')}, from "
        f"{began_at:%H:%M:%S} to {ended_at:%H:%M:%S} UTC."
    )
    if certificate["appeared"] or certificate["vanished"]:
        yield f"Meanwhile {certificate['appeared']:,} appeared and {certificate['vanished']:,} vanished, at least."
    first, last = certificate["total_first"], certificate["total_last"]
    if first is not None and last is not None:
        totals = f"{first:,}" if first == last else f"{first:,} at first and {last:,} at last"
        ignored = "; that was left out of account" if certificate.get("total_count") == "ignored" else ""
        yield f"The service's TotalCount was {totals}{ignored}."
    if words := _CUT_OFF.get(certificate.get("cut_off", "")):
        yield words
