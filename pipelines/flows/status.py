"""What the last runs did, what they left open, and what to do next: read without a lock, also beside a run."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from connector.errors import ConfigurationError
from connector.ledger.beside import OpenEntries, count_open_entries
from connector.plurals import agree, count
from connector.run_log import list_runs
from connector.settings import StateLocation
from connector.states import State

_NAMES = {State.SENDING: "sending", State.UNKNOWN: "unknown", State.HELD: "held", State.REJECTED: "rejected"}
_LOADS = ("import", "sync", "retry")


def read_status(place: StateLocation, *, run_id: str | None, job: str | None, last: int) -> dict[str, Any]:
    """Return the JSON of `status`: the last runs (of one job, if given), the latest first, or one run by its id; the
    entries that they left open; and the next steps.

    Raises ConfigurationError when no such run is on record, LedgerError when the ledger cannot be read.
    """
    runs = list(list_runs(place.state_dir))
    of_job = (run for run in runs if job in (None, run["job"]))
    if run_id is None:
        chosen = list(islice(of_job, last))
    else:
        chosen = [run for run in of_job if run["run_id"] == run_id]
        if not chosen:
            raise ConfigurationError(
                f"no run {run_id} is on record in {place.state_dir}; list the runs by: connector status"
            )
    open_entries = count_open_entries(place.ledger_url)
    if run_id is not None:
        open_entries = [each for each in open_entries if each.run_id == run_id]
    return _describe("runs", chosen, open_entries, _advise(chosen, open_entries, runs))


def _advise(
    chosen: Sequence[dict[str, Any]], open_entries: Sequence[OpenEntries], runs: Sequence[dict[str, Any]]
) -> Iterator[str]:
    """Yield what a person does next, each with its command: for the chosen ones of the runs, and what is open."""
    numbers = {state: sum(each.number for each in open_entries if each.state is state) for state in _NAMES}
    running = [run["run_id"] for run in runs if run["command"] in _LOADS and run["status"] == "running"]
    if number := numbers[State.SENDING] + numbers[State.UNKNOWN]:
        creates = f"{count(number, 'create')} {agree(number, 'is', 'are')} unresolved"
        if running:  # it holds the ledger, so that a retry would be refused
            yield f"{creates} while run {running[0]} is still going on"
        else:
            yield f"{creates}: look {agree(number, 'it', 'them')} up and finish by: connector retry"
    if number := numbers[State.HELD]:
        yield (
            f"{count(number, 'entry', 'entries')} {agree(number, 'is', 'are')} held for your decision: "
            "connector retry --resend-held | --accept-held | --drop-held"
        )
    if number := numbers[State.REJECTED]:
        yield (
            f"the service rejected {count(number, 'row')}: correct the rows in the rejects file "
            "and import it, or send them again as they are by: connector retry --rejected"
        )
    seen: set[tuple[str, str, bool]] = set()
    for run in chosen:
        what_ran, is_locked = (run["job"], run["command"]), run["status"] == "locked"
        if not seen.isdisjoint({(*what_ran, False), (*what_ran, is_locked)}):
            continue
        seen.add((*what_ran, is_locked))  # one that was locked did nothing: what the run before has left is still to do
        if run["status"] in ("killed", "aborted", "stopped", "locked"):
            what = f"run {run['run_id']} ({run['command']} {run['job']})".replace(" )", ")")
            if run["command"] == "send":  # which knows of no earlier one
                yield f"{what} was {run['status']}: look whether the email arrived before you send it again"
            else:
                yield f"{what} was {run['status']}: run the same command again"
        elif run.get("rejects_file") and Path(run["rejects_file"]).exists():
            yield f"rows of run {run['run_id']} need correction: {run['rejects_file']}"


def read_health(place: StateLocation, *, last: int) -> dict[str, Any]:
    """Return the JSON of `report`: the last runs of each job and command (`job command last_succeeded_at runs`), those
    that ran last first, and what is open. Raises LedgerError when the ledger cannot be read."""
    jobs: dict[tuple[str, str], dict[str, Any]] = {}
    runs = list(list_runs(place.state_dir))
    for run in runs:
        key = run["job"], run["command"]
        job = jobs.setdefault(key, {"job": key[0], "command": key[1], "last_succeeded_at": None, "runs": []})
        if len(job["runs"]) < last:
            job["runs"].append(run)
        if run["status"] == "ok" and job["last_succeeded_at"] is None:
            job["last_succeeded_at"] = run.get("finished_at") or run["started_at"]
    open_entries = count_open_entries(place.ledger_url)
    chosen = [run for job in jobs.values() for run in job["runs"]]
    return _describe("jobs", list(jobs.values()), open_entries, _advise(chosen, open_entries, runs))


def _describe(
    what: str, found: Sequence[dict[str, Any]], open_entries: Sequence[OpenEntries], next_steps: Iterator[str]
) -> dict[str, Any]:
    written = [
        {"account": each.account, "run_id": each.run_id, "state": _NAMES[each.state], "entries": each.number}
        for each in open_entries
    ]
    return {"status": "ok", what: found, "open_entries": written, "next": list(next_steps)}
