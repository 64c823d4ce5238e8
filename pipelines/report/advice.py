"""The next steps of a person after one run or several runs: sentences, some of them with a command to copy."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, assert_never

from connector.choices import HELD_DECISIONS
from connector.runs.run_log import LOAD_COMMANDS, build_job_option, describe_other_account, find_other_accounts
from connector.texts import agree, count

_COMMAND = re.compile(": (?=(connector|less|open) )")
_NAMED_FIELD_COUNT = 3  # fields that the step for the open problems of a run names
_UNFINISHED = ("aborted", "stopped", "killed", "locked")

OpenState = Literal["sending", "unknown", "held", "rejected"]
"""The states of entries that a run left open, as `status` shows them."""


def advise_on_run(run: Mapping[str, Any]) -> list[str]:
    """Return the next steps after one run, by its report."""
    steps = list(_find_steps(run))
    is_on_record = run.get("run_id") and not run.get("planned") and run["command"] != "validate"
    if not steps and run["status"] == "partial" and is_on_record:
        steps = [f"Read the messages of the run: connector status {run['run_id']}"]
    return steps


def _find_steps(run: Mapping[str, Any]) -> Iterator[str]:
    rows, status, command = run.get("rows") or {}, run["status"], run.get("command", "")
    job_file = _name_job_file(run)
    if run.get("planned"):
        if command in ("plan", "sync") and rows.get("created") and job_file != "JOB":
            yield f"To carry out the plan, run: connector sync {job_file}"
        elif command == "plan" and rows.get("created"):  # the report has no options of the file, such as its delimiter
            yield "To carry out the plan, run the same command with import instead of plan."
        return
    owner = build_job_option(run)
    if status == "usage":
        yield _correct_settings(run, "Correct")
    account_step = describe_other_account(run)
    if account_step is not None:
        yield account_step
    elif status in _UNFINISHED:
        yield _run_again(run)
    if command in LOAD_COMMANDS and account_step is None:
        held = _count_rows(run, "held")
        unresolved = rows.get("unknown", 0) - held
        if unresolved or status == "killed":
            yield _settle(unresolved) + owner
        if held:
            yield from _decide_held(held, owner)
    if any((run.get("differences") or {}).values()) and not run.get("differences_file") and job_file != "JOB":
        yield f"To list each difference, run: connector reconcile {job_file} --to differences.csv"
    if run.get("opt_outs"):
        yield _deactivate(run)
    if run.get("rejects_file") and _has_rows_to_correct(run):
        yield _correct_rejects(run)
        number = rows.get("rejected", 0) - _count_rows(run, "dropped")
        if number and command != "mail" and account_step is None:
            yield _send_again(number) + owner


def _correct_settings(run: Mapping[str, Any], beginning: str) -> str:
    """Return the step after a run that was refused."""
    job = (run.get("settings") or {}).get("job_file")
    command = f"connector check {_quote(job)}" if job else "connector check"
    return f"{beginning} what the message says. To find what else is wrong, run: {command}"


def _deactivate(run: Mapping[str, Any]) -> str:
    """Return the step for opt-outs, which only a person can end."""
    number = run["opt_outs"]
    file_hint = f": less {_quote(run['drift_file'])}" if run.get("drift_file") else ""
    return (
        f"{count(number, 'subscriber')} opted out in the source of {run['job']} and {agree(number, 'is', 'are')} still "
        f"active in the service. Deactivate {agree(number, 'the subscriber', 'them')} there{file_hint}"
    )


def advise_on_runs(
    chosen: Sequence[Mapping[str, Any]],
    open_entries: Sequence[Mapping[str, Any]],
    runs: Sequence[Mapping[str, Any]],
    problems: Sequence[Mapping[str, Any]] = (),
) -> Iterator[str]:
    """Yield the next steps for the open entries and the open `problems`, and for the last run of each command and job.
    `chosen` are all `runs` or a part of them. A run that was locked did nothing, so the run before the locked run
    counts, too."""
    records = {run["run_id"]: run for run in runs}
    other_accounts = find_other_accounts(runs)
    for account, run in other_accounts.items():
        if account in {record.get("account") for record in (*chosen, *open_entries)} and (
            step := describe_other_account(run)
        ):
            yield step
    by_owner: dict[str, Counter[str]] = {}
    open_counts = Counter[str]()
    for entry in open_entries:
        if entry["account"] in other_accounts:
            continue
        kind = _choose_kind(entry["state"])
        if kind == "unresolved":
            open_counts[entry["run_id"]] += entry["entries"]
        owner = build_job_option(records.get(entry["run_id"], {}))
        by_owner.setdefault(owner, Counter())[kind] += entry["entries"]
    running = [run["run_id"] for run in runs if run["command"] in LOAD_COMMANDS and run["status"] == "running"]
    for owner, numbers in by_owner.items():
        if number := numbers["unresolved"]:
            if running:  # that run holds the ledger, so a retry would be refused
                creates = f"{count(number, 'create')} {agree(number, 'is', 'are')} unresolved"
                yield f"{creates} while run {running[0]} is still going on."
            else:
                yield _settle(number) + owner
        if number := numbers["held"]:
            yield from _decide_held(number, owner)
        if number := numbers["rejected"]:
            yield _send_again(number) + owner
    invalid_problems = [problem for problem in problems if problem["kind"] == "invalid"]
    yield from _correct_invalid(invalid_problems, runs)
    seen_keys: set[tuple[str, str, bool]] = set()
    finished_imports = [run for run in runs if run["command"] == "import" and run["status"] in ("ok", "partial")]
    imported_files = {Path(run.get("source", "")).name for run in finished_imports}
    for run in chosen:
        key, did_nothing = (run["job"], run["command"]), run["status"] in ("locked", "usage")
        if not seen_keys.isdisjoint({(*key, False), (*key, did_nothing)}):
            continue
        seen_keys.add((*key, did_nothing))
        job_file = (run.get("settings") or {}).get("job_file")
        if job_file and not Path(job_file).exists() and run["status"] != "usage":
            continue  # the job was removed, so no command with its file works
        if run.get("opt_outs"):
            yield _deactivate(run)
        if run.get("account") in other_accounts and run["status"] in _UNFINISHED:
            continue  # the step of the account comes first
        if run["status"] == "usage":
            yield _correct_settings(run, f"{_name_run(run)} was refused. Correct")
        elif run["status"] in _UNFINISHED:
            if (*key, True) not in seen_keys or did_nothing:  # a later run that did nothing has its own step
                yield _run_again(run)
        elif run["run_id"] in {problem["run_id"] for problem in invalid_problems}:
            continue  # the step of the open problems names the file
        elif not _has_rows_to_correct(run, open_counts[run["run_id"]]):
            continue
        elif (
            (rejects := run.get("rejects_file")) and Path(rejects).exists() and Path(rejects).name not in imported_files
        ):
            yield _correct_rejects(run)


def _correct_invalid(problems: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a step for the invalid rows of each job, and of each run that was the last to read the rows."""
    by_run: dict[tuple[str, str], Counter[str]] = {}
    for problem in problems:
        by_run.setdefault((problem["job"], problem["run_id"]), Counter())[problem["field"] or "whole row"] += problem[
            "problems"
        ]
    since = {problem["job"]: min(other["first_seen"] for other in problems if other["job"] == problem["job"])[:10]
             for problem in problems}  # fmt: skip
    records = {run["run_id"]: run for run in runs}
    for (job, run_id), fields in by_run.items():
        run, number = records.get(run_id, {}), fields.total()
        most_common = fields.most_common(_NAMED_FIELD_COUNT)
        field_counts = ", ".join(f"{field}: {count_of_field:,}" for field, count_of_field in most_common)
        head = f"{count(number, 'open problem')} of {job} since {since[job]} ({field_counts})"
        job_file, path = _name_job_file(run), (run.get("settings") or {}).get("job_file")
        if path and not Path(path).exists():
            yield f"{head}. {path} is gone. If the job was removed, run: connector prune --removed-job {_quote(job)}"
        elif (rejects := run.get("rejects_file")) and Path(rejects).exists():
            rows = agree(number, "the row", "the rows")
            correction = f"Correct {rows} in the source, or correct the rejects file and import it"
            yield f"{head}. {correction}: connector import {_quote(rejects)} --job {job_file}"
        else:
            yield f"{head}. Correct the source, and run the job again: connector sync {job_file}"


def _name_job_file(run: Mapping[str, Any]) -> str:
    """Return the path of the job file for a command, or JOB if the record of the run has no path."""
    path = (run.get("settings") or {}).get("job_file")
    return _quote(path) if path else "JOB"


def _choose_kind(state: OpenState) -> Literal["unresolved", "held", "rejected"]:
    """Return the kind of the step for open entries in this state."""
    match state:
        case "sending" | "unknown":
            return "unresolved"
        case "held" | "rejected":
            return state
    assert_never(state)


def _settle(number: int) -> str:
    """Return the step for unresolved creates; `number` 0 means that their number is not known."""
    creates = f"{count(number, 'create')} {agree(number, 'is', 'are')}" if number else "Creates may be"
    return f"{creates} unresolved. Look {'it' if number == 1 else 'them'} up and finish: connector retry"


def _decide_held(number: int, owner: str) -> Iterator[str]:
    """Yield a step for each decision about held entries."""
    beginning = f"{count(number, 'create')} {agree(number, 'is', 'are')} held for your decision. To"
    for decision, effect in HELD_DECISIONS.items():
        yield f"{beginning} {effect}, run: connector retry --held {decision}{owner}"
        beginning = "Or, to"


def _send_again(number: int) -> str:
    rows, them = count(number, "row"), agree(number, "it", "them")
    return (
        f"The service rejected {rows}. Correct {them} in the rejects file and import it, or send {them} unchanged: "
        "connector retry --rejected"
    )


def _run_again(run: Mapping[str, Any]) -> str:
    """Return the step after a run that did not finish."""
    run_name = _name_run(run)
    if run["command"] == "send":  # a send does not know whether an earlier send succeeded
        return f"{run_name} was {run['status']}. Look whether the email arrived before you send it again."
    again = (
        f"{run_name} was {run['status']}. The connector repeats nothing that is on record. Run the same command again"
    )
    job_file = _name_job_file(run)
    if run["command"] == "import" or job_file == "JOB":
        return f"{again}."
    return f"{again}: connector {run['command']} {job_file}"


def _name_run(run: Mapping[str, Any]) -> str:
    return f"Run {run['run_id']} ({run['command']} {run['job']})".replace(" )", ")")


def _has_rows_to_correct(run: Mapping[str, Any], open_count: int = 0) -> bool:
    """Return whether a person must correct rows of the rejects file. A later load resolves unknown creates itself.

    `open_count` is the number of the run's creates that a retry sends again. The report may count them as rejected.
    """
    rows = run.get("rows") or {}
    rejected = rows.get("rejected", 0) - _count_rows(run, "dropped")
    return run["command"] not in LOAD_COMMANDS or bool(rows.get("invalid") or rejected > open_count)


def _count_rows(run: Mapping[str, Any], code: str) -> int:
    """Return the number of rows with a problem of this code in the rejects file."""
    return sum(cause["rows"] for cause in run.get("causes") or () if cause["code"] == code)


def _correct_rejects(run: Mapping[str, Any]) -> str:
    """Return the step for the rejects file of a run."""
    path, words = str(run["rejects_file"]), "Correct the rows in the rejects file, then import it"
    options = build_job_option(run) or f" {(run.get('settings') or {}).get('options', '')}"
    if run["command"] in ("import", "sync") and options.strip():
        return f"{words}: connector import {_quote(path)}{options}"
    if run["command"] == "import":  # an import by the library has no options
        return f"{words} with the options of this import: connector import {_quote(path)}"
    opening = f"open {path} in Excel or LibreOffice" if path.endswith(".xlsx") else f"less {_quote(path)}"
    return f"Rows of run {run['run_id']} need your attention: {opening}"


def _quote(path: object) -> str:
    return shlex.quote(str(path))


def split_step(step: str) -> tuple[str, str]:
    """Return the words of a step, with their colon, and its command, or "" if the step has no command."""
    match = _COMMAND.search(step)
    return (step[: match.start() + 1], step[match.start() + 2 :]) if match else (step, "")
