"""What a person does next after one run or several, each step with a command to copy where there is one."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector.plurals import agree, count

_PASSWORD = re.compile(r"(?<=://)([^/@:]*):.*@", re.DOTALL)  # one that is not escaped may hold a / or an @
_SECRET = re.compile(r"(?i)([?&;][^=&?]*(?:pass|pwd|secret|token|key)[^=&]*)=[^&]*")
_PERSONAL = (
    "--email", "--client-user-id", "--first-name", "--last-name",
    "--to", "--cc", "--bcc", "--reply-to", "--subject", "--header",
)  # fmt: skip
_ANY_PERSONAL = re.compile(rf"({'|'.join(_PERSONAL)})=.*", re.DOTALL)
_NOT_AGAIN = ("--report", "--output", "--dry-run", "--limit", "--quiet")
_FLAGS = ("--dry-run", "--quiet")
DECIDE_HELD = "connector retry --resend-held | --accept-held | --drop-held"
_LOADS = ("import", "sync", "retry")
_UNFINISHED = ("aborted", "stopped", "killed", "locked")
_ALLOWANCES = {
    "total_count": ("--ignore-total-count", "To take the list although its TotalCount disagrees with its rows:"),
    "cut_off_possible": (
        "--accept-cut-off-possible",
        "If you know that the service shows the whole list, however long, take it:",
    ),
}


@dataclass(frozen=True, slots=True)
class Step:
    """What to do, in words, and the command for it ("" if no command does it)."""

    words: str
    command: str = ""

    def __str__(self) -> str:
        return f"{self.words} {self.command}".rstrip()


def mask_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command fit to be shown: without passwords of URLs, and values that name a person."""
    masked = [_SECRET.sub(r"\1=****", _PASSWORD.sub(r"\1:****@", each)) for each in arguments]
    masked = [_ANY_PERSONAL.sub(r"\1=…", each) for each in masked]
    return ["…" if before in _PERSONAL else each for before, each in zip(["", *masked], masked, strict=False)]


def advise(report: Mapping[str, Any], arguments: Sequence[str] = ()) -> list[Step]:
    """Return the next steps after one run; `arguments` are those of its command, where they are known."""
    return list(_advise(report, mask_arguments(arguments)))


def advise_on_runs(
    chosen: Sequence[Mapping[str, Any]], open_entries: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]
) -> list[Step]:
    """Return the next steps after the chosen runs, which may be a part of all `runs`, and for the open entries."""
    numbers = Counter[str]()
    for entry in open_entries:
        numbers[entry["state"]] += entry["entries"]
    return [*_advise_on_entries(numbers, runs), *_advise_on_last_runs(chosen)]


def _advise_on_entries(numbers: Mapping[str, int], runs: Sequence[Mapping[str, Any]]) -> Iterator[Step]:
    """Yield the next steps for open entries; `numbers` counts the entries by state."""
    running = [run["run_id"] for run in runs if run["command"] in _LOADS and run["status"] == "running"]
    if number := numbers["sending"] + numbers["unknown"]:
        if running:  # that run holds the ledger, so a retry would be refused
            creates = f"{count(number, 'create')} {agree(number, 'is', 'are')} unresolved"
            yield Step(f"{creates} while run {running[0]} is still going on.")
        else:
            yield _settle(number)
    if number := numbers["held"]:
        yield Step(
            f"{count(number, 'entry', 'entries')} {agree(number, 'is', 'are')} held for your decision:",
            DECIDE_HELD,
        )
    if number := numbers["rejected"]:
        yield _send_again(number)


def _advise_on_last_runs(chosen: Sequence[Mapping[str, Any]]) -> Iterator[Step]:
    """Yield the next steps after the last run of each command and job.

    A run that was locked did nothing, so the run before it counts, too."""
    seen: set[tuple[str, str, bool]] = set()
    for run in chosen:
        what_ran, is_locked = (run["job"], run["command"]), run["status"] == "locked"
        if not seen.isdisjoint({(*what_ran, False), (*what_ran, is_locked)}):
            continue
        seen.add((*what_ran, is_locked))
        if run["status"] in _UNFINISHED:
            yield _run_again(run)
        elif (rejects := run.get("rejects_file")) and Path(rejects).exists():
            yield _look_at_rejects(run)


def _advise(report: Mapping[str, Any], arguments: list[str]) -> Iterator[Step]:
    status, command = report["status"], report.get("command", "")
    rows, again = report.get("rows") or {}, _write_command(arguments)
    if report.get("planned"):
        yield Step(
            "This was a plan: nothing was sent. To do it, run:", _write_command(_take_out(arguments, "--dry-run"))
        )
        return
    if status == "usage":
        yield Step("Mend what the message says; this finds what else there is:", "connector check")
    if status in _UNFINISHED:
        yield _run_again(report, again)
    if command in _LOADS and (rows.get("unknown") or status in ("aborted", "stopped", "killed")):
        yield _settle(rows.get("unknown", 0))
    if report.get("rejects_file"):
        yield _correct_rejects(report, arguments)
        if (number := rows.get("rejected")) and command != "mail":
            yield _send_again(number)
    if drift := report.get("drift_file"):
        yield Step("Compare what differs from the service, field by field:", f"less {shlex.quote(str(drift))}")
    if differences := report.get("differences_file"):
        yield Step("Look at the differences one by one:", f"less {shlex.quote(str(differences))}")
    elif again and any((report.get("differences") or {}).values()):
        yield Step("List the differences one by one:", f"{again} --to differences.csv")
    certificate = report.get("certificate") or {}
    if certificate.get("verdict") == "incomplete" and again:
        option, words = _ALLOWANCES.get(certificate["reason"], ("", "Read the list again, when it changes less:"))
        yield Step(words, f"{again} {option}".rstrip())


def _settle(number: int) -> Step:
    """Return the step for unresolved creates; `number` 0 means that their number is not known."""
    creates = f"{count(number, 'create')} {agree(number, 'is', 'are')}" if number else "Creates may be"
    return Step(f"{creates} unresolved. Look {'it' if number == 1 else 'them'} up and finish:", "connector retry")


def _send_again(number: int) -> Step:
    rows, them = count(number, "row"), agree(number, "it", "them")
    words = f"The service rejected {rows}. Correct {them} in the rejects file and import it, or send {them} unchanged:"
    return Step(words, "connector retry --rejected")


def _run_again(run: Mapping[str, Any], again: str = "") -> Step:
    what = f"Run {run['run_id']} ({run['command']} {run['job']})".replace(" )", ")")
    if run["command"] == "send":  # a send does not know of an earlier one
        return Step(f"{what} was {run['status']}. Look whether the email arrived before you send it again.")
    words = (
        f"{what} was {run['status']}. Run the same command again: what was done is on record, and is not done twice."
    )
    return Step(words, again)


def _look_at_rejects(run: Mapping[str, Any]) -> Step:
    return Step(f"Rows of run {run['run_id']} need a person:", f"less {shlex.quote(str(run['rejects_file']))}")


def _correct_rejects(report: Mapping[str, Any], arguments: list[str]) -> Step:
    """A rejects file is corrected and imported: by the job, or with the options of the import that it comes from."""
    command, source, rejects = report.get("command"), report.get("source"), str(report["rejects_file"])
    words = "Correct the rows in the rejects file, then import it:"
    if command == "import" and source in arguments:
        corrected = [rejects if each == source else each for each in _take_out(arguments, *_NOT_AGAIN)]
        return Step(words, _write_command(corrected))
    if command == "sync" and len(jobs := [each for each in arguments[1:] if each.endswith((".yaml", ".yml"))]) == 1:
        return Step(words, _write_command(["import", rejects, "--job", jobs[0]]))
    return _look_at_rejects(report)


def _take_out(arguments: list[str], *options: str) -> list[str]:
    """Return the arguments without these options and their values."""
    kept: list[str] = []
    is_value = False
    for each in arguments:
        name = each.partition("=")[0]
        if not is_value and name not in options:
            kept.append(each)
        is_value = name in options and name not in _FLAGS and "=" not in each
    return kept


def _write_command(arguments: Sequence[str]) -> str:
    return shlex.join(["connector", *arguments]) if arguments else ""
