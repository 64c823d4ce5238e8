"""Explains one subscriber from the ledger and the log of runs, without a lock and without a request to the service.

The annotation of a field has the type of the field, and the description that the reference shows.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, assert_never

from connector.choices import IDENTITY_FIELDS
from connector.clock import format_timestamp
from connector.databases import format_ledger_location, parse_ledger_location
from connector.ledger.entries import NOT_FINAL_STATUSES, Ledger
from connector.ledger.opening import read_ledger
from connector.ledger.problems import find_identity_problems
from connector.ledger.records import EntryDetails, find_details
from connector.ledger.store import build_missing_ledger_error
from connector.runs.run_log import (
    LOAD_COMMANDS,
    build_job_option,
    describe_other_account,
    find_other_accounts,
    list_runs,
)
from connector.settings import StateLocation
from connector.states import State
from connector.subscribers.identity import digest_identity


@dataclass(frozen=True, slots=True)
class ExplainedRun:
    """A run in the ledger and in the state folder."""

    run_id: Annotated[str, "Id of the run."]
    job: Annotated[str, "Name of the job or file."]
    command: Annotated[str, "Name of the command."]
    started_at: Annotated[str, "Start of the run, in ISO 8601."]
    finished_at: Annotated[str | None, "End of the run, in ISO 8601. Null if the end was not recorded."]
    status: Annotated[str | None, "How the run ended. Null if the end was not recorded."]
    rejects_file: Annotated[str | None, "Path of the run's rejects file. Null if the file does not exist."]


@dataclass(frozen=True, slots=True)
class ExplainedEntry:
    """The ledger's entry of the subscriber in one base."""

    account: Annotated[str, "Account of the base."]
    base_id: Annotated[int | None, "Id of the base. Null if it is not known."]
    base_name: Annotated[str | None, "Name of the base. Null if it is not known."]
    identity_field: Annotated[str, "Field that identifies the subscriber: `email` or `client_user_id`."]
    state: Annotated[str, "State of the entry: `confirmed`, `rejected`, `held`, `unknown` or `sending`."]
    meaning: Annotated[str, "Meaning of the state, as a sentence."]
    next_step: Annotated[str | None, "What to do. Null if nothing needs to be done."]
    subscriber_id: Annotated[int | None, "Id of the subscriber in the service. Null if it is not known."]
    evidence: Annotated[
        str | None,
        "Evidence for the state: the service's `answer` to the create, a `lookup` in the list, or the decision of a "
        "`person`. Null if nothing is proved.",
    ]
    attempts: Annotated[
        int,
        "Number of attempts to send the create. An attempt counts even if the run was killed before the create left.",
    ]
    run: Annotated[
        ExplainedRun | None,
        "Last run that sent the create, or that looked up the subscriber after the service refused the create. Null "
        "if only the list has shown the subscriber.",
    ]
    http_status: Annotated[int | None, "HTTP status of the service's last answer to the create, or null."]
    message: Annotated[
        str | None,
        "Message of the service's last answer to the create, reason why the create is held, or decision of a person. "
        "Null if the entry has no message.",
    ]
    altered_fields: Annotated[list[str], "Fields whose value in the answer to the create differs from the sent value."]
    reported_at: Annotated[str | None, "Time when a run reported a row that differs from the service, or null."]
    opted_out_in: Annotated[
        str | None,
        "Job in which a row says inactive, while the service shows the subscriber as active. Null if there is no "
        "opt-out.",
    ]


@dataclass(frozen=True, slots=True)
class ExplainedProblem:
    """A problem of a row of the subscriber. A person must look at the row."""

    account: Annotated[str, "Account of the job."]
    job: Annotated[str, "Name of the job."]
    base: Annotated[str, "Cell of the row that names the base. Empty if the job has one base."]
    kind: Annotated[str, "Kind of the problem: `invalid`, `rejected`, `held`, `unknown` or `opted_out`."]
    field: Annotated[str, "Names of the faulty fields."]
    first_seen: Annotated[str, "Time when a run saw the problem first, in ISO 8601."]
    last_seen: Annotated[str, "Time when a run saw the problem last, in ISO 8601."]
    run_id: Annotated[str, "Id of the run that saw the problem last."]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The facts about one subscriber: an entry for each base, and the open problems of its rows."""

    status: Annotated[Literal["ok", "partial"], "`partial`: the ledger does not know the subscriber (exit code 1)."]
    entries: Annotated[list[ExplainedEntry], "The subscriber in each base of each account of the ledger."]
    problems: Annotated[list[ExplainedProblem], "Open problems of the subscriber's rows."]
    messages: Annotated[list[str], "If the ledger does not know the subscriber: where else to look."]

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as plain JSON values."""
        return asdict(self)


def explain_identity(location: StateLocation, identity: str) -> Explanation:
    """Return the facts about an email address or a client_user_id, in every base of every account of the ledger.

    Raises LedgerError if the ledger does not exist or cannot be read. Raises ConfigurationError if its URL is invalid.
    """
    digests = [digest_identity(field, identity) for field in IDENTITY_FIELDS]

    def read_entries_and_problems(ledger: Ledger) -> tuple[list[EntryDetails], list[dict[str, Any]]]:
        return find_details(ledger.connection, digests), find_identity_problems(ledger.connection, digests)

    entries_and_problems = read_ledger(location.ledger_url, read_entries_and_problems)
    if entries_and_problems is None:
        raise build_missing_ledger_error(format_ledger_location(parse_ledger_location(location.ledger_url)))
    entries, problems = entries_and_problems
    if not entries and not problems:
        return Explanation("partial", [], [], [_UNKNOWN_SUBSCRIBER_MESSAGE])
    record_by_run_id = {record["run_id"]: record for record in list_runs(location.state_dir)}
    next_step_by_account = {
        account: describe_other_account(run) for account, run in find_other_accounts(record_by_run_id.values()).items()
    }
    return Explanation(
        "ok",
        [_explain_entry(details, record_by_run_id, next_step_by_account.get(details.account)) for details in entries],
        [_describe_problem(problem) for problem in problems],
        [],
    )


def _describe_problem(problem: dict[str, Any]) -> ExplainedProblem:
    return ExplainedProblem(**problem | {name: format_timestamp(problem[name]) for name in ("first_seen", "last_seen")})


_UNKNOWN_SUBSCRIBER_MESSAGE = (
    "The ledger does not know this subscriber: no run has sent a create for the subscriber, or found the subscriber "
    "in the service. A job identifies subscribers by email or by client_user_id, so try the other identity. The "
    "ledger has no rows without a valid identity, and no invalid rows of imports without a job. Rows that the "
    "ledger does not have are in the rejects files that `connector status` lists."
)


def _explain_entry(
    details: EntryDetails, record_by_run_id: Mapping[str, Mapping[str, Any]], account_next_step: str | None
) -> ExplainedEntry:
    """Return the explanation of an entry. `account_next_step` is not None if the last load of the account saw none
    of the known subscribers in the service. `account_next_step` then replaces the next step of the entry."""
    record = record_by_run_id.get(details.run_id or "", {})
    is_running = any(
        record["status"] == "running" and record["command"] in LOAD_COMMANDS for record in record_by_run_id.values()
    )
    is_confirmed = details.state is State.CONFIRMED
    meaning, evidence = _explain_state(details)
    return ExplainedEntry(
        account=details.account,
        base_id=details.base_id,
        base_name=details.base_name,
        identity_field=details.identity_field,
        state=details.state.report_name,
        meaning=meaning,
        next_step=account_next_step or _find_next_step(details, build_job_option(record), is_running=is_running),
        subscriber_id=details.subscriber_id,
        evidence=evidence,
        attempts=details.attempt_count,
        run=_describe_run(details, record),
        http_status=details.status,
        message=details.message,
        altered_fields=(details.altered_fields or "").split(),
        reported_at=_format_time(details.reported_or_checked_at) if is_confirmed else None,
        opted_out_in=details.opt_out_job,
    )


def _explain_state(details: EntryDetails) -> tuple[str, str | None]:
    """Return the meaning of the entry's state as a sentence, and the kind of evidence (None: nothing is proved)."""
    match details.state, details.confirmation:
        case State.CONFIRMED, "created":
            return "The service answered the create with this Id.", "answer"
        case State.CONFIRMED, "settled":
            return "The create got no clear answer. A look-up found the subscriber with this Id.", "lookup"
        case State.CONFIRMED, "accepted":
            return "The service's answer did not show the expected subscriber, and a person accepted this Id.", "person"
        case State.CONFIRMED, _:
            return "The service's list has shown the subscriber with this Id.", "lookup"
        case State.DROPPED, _:
            return "A person gave up the create. The create is sent again only if its row changes.", "person"
        case State.REJECTED, _:
            return "The service refused the create.", "answer"
        case State.HELD, _ if details.subscriber_id is not None:
            meaning = (
                "The service answered the create with this Id, but the base, the identity or the subscriber in the "
                "answer is not the expected one. A person must decide."
            )
            return meaning, "answer"
        case State.HELD, _:
            meaning = "The answer to the create was lost. Nothing is sent again until a person decides."
            return meaning, "lookup" if details.message is None else None  # a message means that absence is not proved
        case State.SENDING, _:
            return "A create was about to be sent, and no answer is recorded. The subscriber may exist.", None
        case State.UNKNOWN, _:
            return "A create was sent, and its answer is not known. The subscriber may exist.", None
        case State.NONE, _:
            raise ValueError("the ledger stores no entry in the state NONE")
    assert_never(details.state)


def _find_next_step(details: EntryDetails, job_option: str, *, is_running: bool) -> str | None:
    """Return the next step for the entry, or None. `job_option` is the option `--job` for the job that sent the create,
    or "". `is_running`: a load is running now."""
    match details.state:
        case State.SENDING | State.UNKNOWN if is_running:
            return "Wait until the active run has ended: the run may still resolve the create."
        case State.SENDING | State.UNKNOWN:
            return f"Look the subscriber up, and finish the create: connector retry{job_option}"
        case State.HELD:
            return "Decide what to do with the held create. For the commands, run: connector status"
        case State.REJECTED if details.status in NOT_FINAL_STATUSES:
            return "Run the job again. The refusal was not about the row, so the next run sends the create again."
        case State.REJECTED:
            return f"Correct the row and load it again, or send it unchanged: connector retry --rejected{job_option}"
        case State.CONFIRMED if details.opt_out_job:
            return f"Deactivate the subscriber in the service: a row of the job {details.opt_out_job} says inactive."
        case State.CONFIRMED if details.reported_or_checked_at is not None:
            return "A row differs from the service. If the row is right, change the subscriber in the service."
        case State.CONFIRMED | State.DROPPED | State.NONE:
            return None
    assert_never(details.state)


def _describe_run(details: EntryDetails, record: Mapping[str, Any]) -> ExplainedRun | None:
    if details.run_id is None or details.started_at is None:
        return None
    rejects_file = record.get("rejects_file")
    return ExplainedRun(
        run_id=details.run_id,
        job=details.job or "",
        command=details.command or "",
        started_at=_format_time(details.started_at) or "",
        finished_at=_format_time(details.finished_at),
        status=details.run_status or record.get("status"),
        rejects_file=rejects_file if rejects_file and Path(rejects_file).exists() else None,
    )


def _format_time(seconds: float | None) -> str | None:
    return None if seconds is None else format_timestamp(seconds)
