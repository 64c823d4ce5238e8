"""What a person does next after a run, each step with a command to copy where there is one."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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


def mask_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command fit to be shown: without passwords of URLs, and values that name a person."""
    masked = [_SECRET.sub(r"\1=****", _PASSWORD.sub(r"\1:****@", each)) for each in arguments]
    masked = [_ANY_PERSONAL.sub(r"\1=…", each) for each in masked]
    return ["…" if before in _PERSONAL else each for before, each in zip(["", *masked], masked, strict=False)]


def advise(report: Mapping[str, Any], arguments: Sequence[str] = ()) -> list[Step]:
    """Return the next steps after one run; `arguments` are those of its command, where they are known."""
    return list(_advise(report, mask_arguments(arguments)))


def _advise(report: Mapping[str, Any], arguments: list[str]) -> Iterator[Step]:
    status, command = report["status"], report.get("command", "")
    rows, again = report.get("rows") or {}, _write_command(arguments)
    if report.get("planned"):
        yield Step(
            "This was a plan: nothing was sent. To do it, run:", _write_command(_take_out(arguments, "--dry-run"))
        )
        return
    if status in ("aborted", "stopped", "killed", "locked", "usage"):
        yield from _advise_unfinished(report, again)
    if command in ("import", "sync", "retry") and (rows.get("unknown") or status in ("aborted", "stopped", "killed")):
        number = rows.get("unknown", 0)
        what = f"{count(number, 'create')} got no certain answer" if number else "What this run left unresolved"
        yield Step(
            f"{what}: look {agree(number, 'it', 'them') if number else 'it'} up and finish by:", "connector retry"
        )
    if rejects := report.get("rejects_file"):
        yield from _advise_rejects(report, str(rejects), arguments)
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


def _advise_unfinished(report: Mapping[str, Any], again: str) -> Iterator[Step]:
    if report.get("command") == "send":
        yield Step("Look whether the email has arrived before you send it again.")
    elif report["status"] == "usage":
        yield Step("Mend what the message says; this finds what else there is:", "connector check")
    else:
        yield Step("Run the same command again: what was done is on record, and is not done twice.", again)


def _advise_rejects(report: Mapping[str, Any], rejects: str, arguments: list[str]) -> Iterator[Step]:
    """A rejects file is corrected and imported: by the job, or with the options of the import that it comes from."""
    command, source = report.get("command"), report.get("source")
    if command == "import" and source in arguments:
        corrected = [rejects if each == source else each for each in _take_out(arguments, *_NOT_AGAIN)]
        yield Step("Correct the rows in the rejects file, then import it:", _write_command(corrected))
    elif command == "sync" and len(jobs := [each for each in arguments[1:] if each.endswith((".yaml", ".yml"))]) == 1:
        again = ["import", rejects, "--job", jobs[0]]
        yield Step("Correct the rows in the rejects file, then import it:", _write_command(again))
    else:
        yield Step("Look at the rows that need a person:", f"less {shlex.quote(rejects)}")
    rows = report.get("rows") or {}
    if number := rows.get("rejected") if command != "mail" else 0:
        words = f"The service rejected {count(number, 'row')}; to send {agree(number, 'it', 'them')} again unchanged:"
        yield Step(words, "connector retry --rejected")


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
