"""The next steps for a person after one run or several runs: sentences, some of them with a command to copy."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, assert_never

from connector.choices import EFFECT_BY_HELD_DECISION, HELD_DECISIONS
from connector.outcomes import ProblemKind, list_problem_kinds
from connector.runs.run_log import LOAD_COMMANDS, build_job_option, describe_other_account, find_other_accounts
from connector.texts import choose_form, count

_COLON_BEFORE_COMMAND_PATTERN = re.compile(": (?=(connector|less|open) )")
_NAMED_FIELD_COUNT = 3  # a step about open problems names this many fields: the fields with the most problems
_UNFINISHED_STATUSES = ("aborted", "stopped", "killed", "locked")

OpenState = Literal["sending", "unknown", "held", "rejected"]
"""The states of entries that a run left open, as `status` shows them."""


def advise_on_run(run: Mapping[str, Any]) -> list[str]:
    """Return the next steps after the run with this report."""
    steps = list(_find_steps(run))
    is_recorded = run.get("run_id") and not run.get("planned") and run["command"] != "validate"
    if not steps and run["status"] == "partial" and is_recorded:
        steps = [f"Read the messages of the run: connector status {run['run_id']}"]
    return steps


def _find_steps(run: Mapping[str, Any]) -> Iterator[str]:
    rows, status, command = run.get("rows") or {}, run["status"], run.get("command", "")
    job_file = _name_job_file(run)
    if run.get("planned"):
        if command in ("plan", "sync") and rows.get("created") and job_file != "JOB":
            yield f"To carry out the plan, run: connector sync {job_file}"
        elif command == "plan" and rows.get("created"):
            # A complete command would need the options of the file, such as its delimiter. The report lacks them.
            yield "To carry out the plan, run the same command with `import` instead of `plan`."
        return
    job_option = build_job_option(run)
    if status == "usage":
        yield _advise_on_refused_run(run, "Correct")
    account_step = describe_other_account(run)
    if account_step is not None:
        yield account_step
    elif status in _UNFINISHED_STATUSES:
        yield _advise_on_unfinished(run)
    if command in LOAD_COMMANDS and account_step is None:
        counts_by_kind = Counter({kind: _count_rows(run, kind) for kind in list_problem_kinds("unknown")})
        counts_by_kind[ProblemKind.UNKNOWN] += rows.get("unknown", 0) - counts_by_kind.total()
        for kind, create_count in counts_by_kind.items():
            if create_count or (kind is ProblemKind.UNKNOWN and status == "killed"):
                yield from _advise_on_creates(kind, create_count, job_option)
    if any((run.get("differences") or {}).values()) and not run.get("differences_file") and job_file != "JOB":
        yield f"To list each difference, run: connector reconcile {job_file} --to differences.csv"
    if run.get("opt_outs"):
        yield _advise_on_opt_outs(run)
    if run.get("rejects_file") and _has_rows_to_correct(run):
        yield _advise_on_rejects_file(run)
        rejected_count = rows.get("rejected", 0) - _count_rows(run, "dropped")
        if rejected_count and command != "mail" and account_step is None:
            yield _advise_on_rejected_rows(rejected_count) + job_option


def _advise_on_refused_run(run: Mapping[str, Any], beginning: str) -> str:
    job = (run.get("settings") or {}).get("job_file")
    command = f"connector check {_quote_path(job)}" if job else "connector check"
    return f"{beginning} the fault that the message names. To find other faults, run: {command}"


def _advise_on_opt_outs(run: Mapping[str, Any]) -> str:
    opt_out_count = run["opt_outs"]
    file_hint = f": less {_quote_path(run['drift_file'])}" if run.get("drift_file") else ""
    return (
        f"{count(opt_out_count, 'subscriber')} opted out in the source of {run['job']} and "
        f"{choose_form(opt_out_count, 'is', 'are')} still active in the service. "
        f"Deactivate {choose_form(opt_out_count, 'the subscriber', 'them')} there{file_hint}"
    )


def advise_on_runs(
    selected_runs: Sequence[Mapping[str, Any]],
    open_entries: Sequence[Mapping[str, Any]],
    runs: Sequence[Mapping[str, Any]],
    problems: Sequence[Mapping[str, Any]] = (),
) -> Iterator[str]:
    """Yield the next steps for the open entries and the open `problems`, and for the last run of each command and job.
    `selected_runs` are all `runs` or some of the `runs`. A run that found the ledger locked did
    nothing, so the function also considers the run before."""
    run_by_id = {run["run_id"]: run for run in runs}
    other_accounts = find_other_accounts(runs)
    for account, run in other_accounts.items():
        if account in {record.get("account") for record in (*selected_runs, *open_entries)} and (
            step := describe_other_account(run)
        ):
            yield step
    counts_by_job_option: dict[str, Counter[ProblemKind]] = {}
    unresolved_counts = Counter[str]()
    for entry in open_entries:
        if entry["account"] in other_accounts:
            continue
        kind = _find_kind_of_open_entry(entry["state"])
        if kind is ProblemKind.UNKNOWN:
            unresolved_counts[entry["run_id"]] += entry["entries"]
        job_option = build_job_option(run_by_id.get(entry["run_id"], {}))
        counts_by_job_option.setdefault(job_option, Counter())[kind] += entry["entries"]
    running_run_ids = [run["run_id"] for run in runs if run["command"] in LOAD_COMMANDS and run["status"] == "running"]
    for job_option, counts in counts_by_job_option.items():
        for kind in (ProblemKind.UNKNOWN, *(kind for kind in ProblemKind if kind is not ProblemKind.UNKNOWN)):
            create_count = counts[kind]
            if kind is ProblemKind.UNKNOWN and create_count and running_run_ids:
                # A running load holds the ledger, so a retry would be refused.
                creates_text = f"{count(create_count, 'create')} {choose_form(create_count, 'is', 'are')} unresolved"
                unresolved_creates_text = choose_form(create_count, "the create", "the creates")
                yield (
                    f"{creates_text}. Wait until run {running_run_ids[0]} ends. The run may resolve "
                    f"{unresolved_creates_text}."
                )
            elif create_count:
                yield from _advise_on_creates(kind, create_count, job_option)
    invalid_problems = [problem for problem in problems if problem["kind"] == "invalid"]
    yield from _advise_on_invalid(invalid_problems, runs)
    # The job and the command of each run that was read, and whether the run was refused or found the ledger locked.
    seen_run_keys: set[tuple[str, str, bool]] = set()
    finished_imports = [run for run in runs if run["command"] == "import" and run["status"] in ("ok", "partial")]
    imported_files = {Path(run.get("source", "")).name for run in finished_imports}
    for run in selected_runs:
        key, is_without_effect = (run["job"], run["command"]), run["status"] in ("locked", "usage")
        if not seen_run_keys.isdisjoint({(*key, False), (*key, is_without_effect)}):
            continue
        seen_run_keys.add((*key, is_without_effect))
        job_file = (run.get("settings") or {}).get("job_file")
        if job_file and not Path(job_file).exists() and run["status"] != "usage":
            continue  # the job was removed, so no command with its file works
        if run.get("opt_outs"):
            yield _advise_on_opt_outs(run)
        if run.get("account") in other_accounts and run["status"] in _UNFINISHED_STATUSES:
            continue  # a step above says that the token sees another account, so no other step helps
        if run["status"] == "usage":
            yield _advise_on_refused_run(run, f"{_name_run(run)} was refused. Correct")
        elif run["status"] in _UNFINISHED_STATUSES:
            # If a later run was refused or found the ledger locked, the step of this later run is enough.
            if (*key, True) not in seen_run_keys or is_without_effect:
                yield _advise_on_unfinished(run)
        elif run["run_id"] in {problem["run_id"] for problem in invalid_problems}:
            continue  # `_advise_on_invalid` has the step for this rejects file
        elif not _has_rows_to_correct(run, unresolved_counts[run["run_id"]]):
            continue
        elif (
            (rejects_path := run.get("rejects_file"))
            and Path(rejects_path).exists()
            and Path(rejects_path).name not in imported_files
        ):
            yield _advise_on_rejects_file(run)


def _advise_on_invalid(problems: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the steps for open problems of invalid rows. Each run that has reported such rows gets one step."""
    field_counts_by_run: dict[tuple[str, str], Counter[str]] = {}
    for problem in problems:
        field_counts_by_run.setdefault((problem["job"], problem["run_id"]), Counter())[
            problem["field"] or "whole row"
        ] += problem["problems"]
    first_day_by_job: dict[str, str] = {}
    for problem in problems:
        first_day = problem["first_seen"][:10]
        first_day_by_job[problem["job"]] = min(first_day, first_day_by_job.get(problem["job"], first_day))
    run_by_id = {run["run_id"]: run for run in runs}
    for (job, run_id), field_counts in field_counts_by_run.items():
        run, problem_count = run_by_id.get(run_id, {}), field_counts.total()
        most_common_fields = field_counts.most_common(_NAMED_FIELD_COUNT)
        counts_text = ", ".join(
            f"{field}: {field_problem_count:,}" for field, field_problem_count in most_common_fields
        )
        problem_text = f"{count(problem_count, 'open problem')} of {job} since {first_day_by_job[job]} ({counts_text})"
        job_file, path = _name_job_file(run), (run.get("settings") or {}).get("job_file")
        if path and not Path(path).exists():
            yield (
                f"{problem_text}. The job file {path} does not exist. If you removed the job, run: "
                f"connector prune --removed-job {_quote_path(job)}"
            )
        elif (rejects_path := run.get("rejects_file")) and Path(rejects_path).exists():
            rows_text = choose_form(problem_count, "the row", "the rows")
            correction_text = f"Correct {rows_text} in the source, or correct and import the rejects file"
            yield f"{problem_text}. {correction_text}: connector import {_quote_path(rejects_path)} --job {job_file}"
        else:
            yield f"{problem_text}. Correct the source, and run the job again: connector sync {job_file}"


def _name_job_file(run: Mapping[str, Any]) -> str:
    """Return the path of the job file for a command, or JOB if the record of the run has no path."""
    path = (run.get("settings") or {}).get("job_file")
    return _quote_path(path) if path else "JOB"


def _find_kind_of_open_entry(state: OpenState) -> ProblemKind:
    match state:
        case "sending" | "unknown":
            return ProblemKind.UNKNOWN
        case "held":
            return ProblemKind.HELD
        case "rejected":
            return ProblemKind.REJECTED
    assert_never(state)


def _advise_on_creates(kind: ProblemKind, create_count: int, job_option: str) -> Iterator[str]:
    """Yield the next steps for creates with this kind of problem."""
    match kind:
        case ProblemKind.UNKNOWN:
            yield _advise_on_unresolved_creates(create_count) + job_option
        case ProblemKind.HELD:
            yield from _advise_on_held_creates(create_count, job_option)
        case ProblemKind.REJECTED:
            yield _advise_on_rejected_rows(create_count) + job_option
        case ProblemKind.INVALID | ProblemKind.OPTED_OUT:
            raise ValueError(f"a problem of the kind {kind} has no create")
        case _:
            assert_never(kind)


def _advise_on_unresolved_creates(create_count: int) -> str:
    """Return the step for unresolved creates. If `create_count` is 0, their number is not known."""
    creates_text = (
        f"{count(create_count, 'create')} {choose_form(create_count, 'is', 'are')}"
        if create_count
        else "Creates may be"
    )
    unresolved_creates_text = choose_form(create_count, "the create", "the creates")
    return f"{creates_text} unresolved. To look up and finish {unresolved_creates_text}, run: connector retry"


def _advise_on_held_creates(create_count: int, job_option: str) -> Iterator[str]:
    sentence_start = (
        f"{count(create_count, 'create')} {choose_form(create_count, 'is', 'are')} held for your decision. To"
    )
    for decision in HELD_DECISIONS:
        effect_text = EFFECT_BY_HELD_DECISION[decision]
        yield f"{sentence_start} {effect_text}, run: connector retry --held {decision}{job_option}"
        sentence_start = "Or, to"


def _advise_on_rejected_rows(row_count: int) -> str:
    rows_text = choose_form(row_count, "the row", "the rows")
    return (
        f"The service rejected {count(row_count, 'row')}. Correct {rows_text} in the rejects file, and import this "
        f"file. Or, to send {rows_text} unchanged, run: connector retry --rejected"
    )


def _advise_on_unfinished(run: Mapping[str, Any]) -> str:
    run_name = _name_run(run)
    if run["command"] == "send":  # no record shows whether an earlier `send` has sent the email
        if (run.get("rows") or {}).get("unsent"):
            return f"{run_name} was {run['status']}, and the email was not sent. Run the same command again."
        return f"{run_name} was {run['status']}. Before you send the email again, check whether the email arrived."
    if run["status"] == "aborted":  # the next step is in the message, which may name an option or a guard
        sentence = f"{run_name} was aborted. Follow the message of the run, and run the command again"
    else:
        reason = "found the ledger locked" if run["status"] == "locked" else f"was {run['status']}"
        sentence = f"{run_name} {reason}. No finished create or email is repeated. Run the same command again"
    job_file = _name_job_file(run)
    if run["command"] == "import" or job_file == "JOB":
        return f"{sentence}."
    return f"{sentence}: connector {run['command']} {job_file}"


def _name_run(run: Mapping[str, Any]) -> str:
    return f"Run {run['run_id']} ({run['command']} {run['job']})".replace(" )", ")")


def _has_rows_to_correct(run: Mapping[str, Any], unresolved_count: int = 0) -> bool:
    """Return whether a person must correct rows of the rejects file of a run.

    After a load, this is true if a row is invalid, or if more than `unresolved_count` rows are rejected.
    `unresolved_count` is the number of the load's creates that a retry sends again. The report may count these creates
    as rejected. Unknown creates and dropped creates do not count.
    """
    rows = run.get("rows") or {}
    rejected_count = rows.get("rejected", 0) - _count_rows(run, "dropped")
    return run["command"] not in LOAD_COMMANDS or bool(rows.get("invalid") or rejected_count > unresolved_count)


def _count_rows(run: Mapping[str, Any], code: str) -> int:
    """Return the number of rows with a problem of this code in the rejects file."""
    return sum(cause["rows"] for cause in run.get("causes") or () if cause["code"] == code)


def _advise_on_rejects_file(run: Mapping[str, Any]) -> str:
    path, sentence = str(run["rejects_file"]), "Correct the rows in the rejects file, then import this file"
    options_text = build_job_option(run) or f" {(run.get('settings') or {}).get('options', '')}"
    if run["command"] in ("import", "sync") and options_text.strip():
        return f"{sentence}: connector import {_quote_path(path)}{options_text}"
    if run["command"] == "import":  # an import by the library has no command-line options
        return f"{sentence} with the options of this import: connector import {_quote_path(path)}"
    open_command = f"open {path} in Excel or LibreOffice" if path.endswith(".xlsx") else f"less {_quote_path(path)}"
    return f"Rows of run {run['run_id']} need your attention: {open_command}"


def _quote_path(path: object) -> str:
    return shlex.quote(str(path))


def split_step(step: str) -> tuple[str, str]:
    """Return the sentence of a step, with its colon, and the command of the step, or "" if the step has no command."""
    match = _COLON_BEFORE_COMMAND_PATTERN.search(step)
    return (step[: match.start() + 1], step[match.start() + 2 :]) if match else (step, "")
