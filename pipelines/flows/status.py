"""The flow of `connector status`: reads the last runs, the entries and problems that the runs left open, and the next
steps. The flow takes no lock, so a run may be active at the same time."""

from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any, Literal, TypedDict, assert_never

from connector.clock import format_timestamp
from connector.errors import ConfigurationError, LedgerError
from connector.ledger.opening import count_open_entries, read_ledger
from connector.ledger.problems import read_problem_groups
from connector.runs.run_log import list_runs
from connector.settings import StateLocation
from connector.states import State
from pipelines.report.advice import OpenState, advise_on_runs


class OpenEntryCounts(TypedDict):
    """Entries of the ledger that a run left open, in the report of `status`."""

    account: Annotated[str, "Account of the entries."]
    run_id: Annotated[str | None, "Id of the run that sent the creates last. Null if the run is not recorded."]
    state: Annotated[OpenState, "State of the entries."]
    entries: Annotated[int, "Number of entries."]


class OpenProblemCounts(TypedDict):
    """Open problems of one kind in one job, in the report of `status`."""

    account: Annotated[str, "Account of the job."]
    job: Annotated[str, "Name of the job."]
    kind: Annotated[str, "Kind of the problems: `invalid`, `rejected`, `held`, `unknown` or `opted_out`."]
    field: Annotated[str, "Names of the faulty fields."]
    problems: Annotated[int, "Number of problems."]
    first_seen: Annotated[str, "Time when a run saw the first of the problems, in ISO 8601."]
    last_seen: Annotated[str, "Time when a run saw one of the problems last, in ISO 8601."]
    run_id: Annotated[str, "Id of the latest run that saw one of the problems."]


class StatusReport(TypedDict):
    """The report of `status`."""

    status: Annotated[
        Literal["ok", "aborted"],
        "`aborted`: the ledger could not be read, so open entries and problems are missing (exit code 3).",
    ]
    runs: Annotated[
        list[dict[str, Any]],
        "Reports of the last runs, the latest first. If the command has the argument RUN, only the report of this run. "
        "Each report has an `exit_code`. The report of a run that has not ended has fewer keys, and the `status` "
        "`running` or `killed`.",
    ]
    open_entries: Annotated[
        list[OpenEntryCounts], "Entries of the ledger that need a retry or a decision, by run and state."
    ]
    problems: Annotated[
        list[OpenProblemCounts],
        "Open problems of jobs, by job, kind and field. Empty if the command has the argument RUN.",
    ]
    next: Annotated[list[str], "The next steps."]


def read_status(location: StateLocation, *, run_id: str | None, job: str | None, max_run_count: int) -> StatusReport:
    """Return the report of `status` for the last runs, the latest first. `job` selects the runs of one job, and
    `run_id` selects one run.

    If the ledger cannot be read, the first item of `next` says why. Raises ConfigurationError if the run `run_id` is
    not recorded.
    """
    runs = list(list_runs(location.state_dir))
    runs_of_job = (run for run in runs if job in (None, run["job"]))
    if run_id is None:
        selected_runs = list(islice(runs_of_job, max_run_count))
    else:
        selected_runs = [run for run in runs_of_job if run["run_id"] == run_id]
        if not selected_runs:
            raise ConfigurationError(
                f"no run {run_id} is recorded in {location.state_dir}. To list the runs, run: connector status"
            )
    return {**_read_open_work(location, selected_runs, runs, run_id=run_id, job=job), "runs": selected_runs}


def read_health(location: StateLocation, *, job: str | None, max_run_count: int) -> dict[str, Any]:
    """Return the values of the HTML page of `status`. For each job and command, the page shows the last runs, the
    latest first, and the time of the last success. If the ledger cannot be read, the first item of `next` says why."""
    runs = list(list_runs(location.state_dir))
    history_by_job_and_command: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        if job not in (None, run["job"]):
            continue
        new_history = {"job": run["job"], "command": run["command"], "last_succeeded_at": None, "runs": []}
        history = history_by_job_and_command.setdefault((run["job"], run["command"]), new_history)
        if len(history["runs"]) < max_run_count:
            history["runs"].append(run)
        if run["status"] == "ok" and history["last_succeeded_at"] is None:
            history["last_succeeded_at"] = run.get("finished_at") or run["started_at"]
    selected_runs = [run for history in history_by_job_and_command.values() for run in history["runs"]]
    return {
        "jobs": list(history_by_job_and_command.values()),
        **_read_open_work(location, selected_runs, runs, job=job),
    }


def _read_open_work(
    location: StateLocation,
    selected_runs: Sequence[dict[str, Any]],
    runs: Sequence[dict[str, Any]],
    *,
    run_id: str | None = None,
    job: str | None,
) -> StatusReport:
    """Return the report of `status` without runs: the open entries, the open problems, and the next steps. With
    `run_id`, the report has only the entries of this run, and no problems. With `job`, the report has only the entries
    and the problems of this job."""
    report: StatusReport = {"status": "ok", "runs": [], "open_entries": [], "problems": [], "next": []}
    try:
        open_entry_counts = count_open_entries(location.ledger_url)
        problem_groups = None
        if run_id is None:
            problem_groups = read_ledger(location.ledger_url, lambda ledger: read_problem_groups(ledger.connection))
    except LedgerError as error:
        reason = f"Open creates and problems are not known, because the ledger cannot be read: {error}"
        return {**report, "status": "aborted", "next": [reason, *advise_on_runs(selected_runs, [], runs)]}
    report["open_entries"] = [
        {
            "account": open_entry.account,
            "run_id": open_entry.run_id,
            "state": _name_open_state(open_entry.state),
            "entries": open_entry.entry_count,
        }
        for open_entry in open_entry_counts
        if run_id in (None, open_entry.run_id)
        if job in (None, open_entry.job)
        or not open_entry.job  # entries without a job were last sent by a retry without --job
    ]
    report["problems"] = [
        {
            "account": group.account,
            "job": group.job,
            "kind": group.kind,
            "field": group.field,
            "problems": group.problem_count,
            "first_seen": format_timestamp(group.first_seen),
            "last_seen": format_timestamp(group.last_seen),
            "run_id": group.run_id,
        }
        for group in problem_groups or ()
        if job in (None, group.job)
    ]
    report["next"] = list(advise_on_runs(selected_runs, report["open_entries"], runs, report["problems"]))
    return report


def _name_open_state(state: State) -> OpenState:
    match state:
        case State.SENDING:
            return "sending"
        case State.UNKNOWN:
            return "unknown"
        case State.HELD:
            return "held"
        case State.REJECTED:
            return "rejected"
        case State.CONFIRMED | State.DROPPED | State.NONE:
            raise ValueError(f"an entry that is {state.name} is not open")
    assert_never(state)
