"""The flow of `connector retry`: looks up creates of earlier runs and finishes them, without reading the sources."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from connector.control import Stop
from connector.errors import ConfigurationError
from connector.fields import FIELD_NAMES, BaseRef
from connector.imports.base_loads import choose_bases, describe_base, describe_bases
from connector.imports.remarks import describe_reactivated_rows, describe_unread_entries
from connector.imports.suppression import SuppressionPlan, read_suppression
from connector.jobs.build import build_policy, build_rules, plan_receipts, plan_suppression
from connector.jobs.models import Job
from connector.ledger.entries import Ledger, count_unsettled_entries
from connector.ledger.records import find_job_of_run, find_or_add_base, list_bases
from connector.ledger.store import Base
from connector.load.base_load import Loader
from connector.load.retry import RetrySelection, retry_entries
from connector.progress import Progress
from connector.runs.frame import Run, RunPlan, RunSetup, run_with_setup
from connector.runs.report import Report, RunScope, describe_policy, describe_requested_base, drop_empty_values
from connector.settings import Settings
from connector.states import State, find_traits
from connector.texts import count


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPlan(RunPlan):
    """A retry: the selected entries, their base (default: all bases), and the settings of the load."""

    selection: RetrySelection
    suppression: SuppressionPlan | None
    base: BaseRef


def plan_retry(
    selection: RetrySelection, job: Job, settings: Settings, *, base: BaseRef, wait_s: float, has_job_file: bool
) -> RetryPlan:
    """Return the plan of a retry. With a job file, the retry also sends creates that need the suppression list of the
    job. Raises ConfigurationError and SourceError."""
    if job.subscriber is None:
        raise ConfigurationError(f"--job: a retry needs a job with the section `subscriber`. {job.explain_command()}")
    return RetryPlan(
        command="retry",
        policy=build_policy(job.load, build_rules(job.subscriber), job.suppress),
        settings=replace(settings, may_create_ledger=False),
        job_name=job.name if has_job_file else "",
        job_path=job.path,
        wait_s=wait_s,
        receipts=plan_receipts(job),
        selection=selection,
        suppression=plan_suppression(job),
        base=base,
    )


async def run_retry(plan: RetryPlan, stop: Stop, progress: Progress) -> Report:
    """Retry the selected entries, and return the report. The rows of the report are entries of the ledger.

    Raises ConfigurationError before anything is sent. A run that has begun always returns a report.
    """
    retry = _Retry(plan)
    setup = RunSetup(
        plan,
        job=plan.job_name,
        columns=FIELD_NAMES,
        find_bases=retry.find_bases,
        suppression_reader=partial(read_suppression, plan.suppression) if plan.suppression is not None else None,
        scope=_describe_scope(plan),
    )
    return await run_with_setup(setup, retry.execute, stop, progress)


def _describe_scope(plan: RetryPlan) -> RunScope:
    base = describe_requested_base(plan.base) or "each base with entries to retry"
    settings = plan.settings
    scope_settings = {"job_file": "" if plan.job_path is None else str(plan.job_path), **describe_policy(plan.policy)}
    service_url, account = settings.service.base_url, settings.account
    return RunScope("entries of the ledger", service_url, base, account, drop_empty_values(scope_settings))


class _Retry:
    """One retry in progress."""

    def __init__(self, plan: RetryPlan) -> None:
        self._plan = plan
        self._entry_count_by_owner_job: Counter[str] = Counter()
        """Number of entries that only another job may send again, by the name of the job."""
        self._entry_count_by_account: dict[str, int] = {}  # unresolved entries of other accounts
        self._unresolved_count = 0  # unresolved entries of this account

    def find_bases(self, ledger: Ledger) -> list[Base]:
        """Return the bases with selected entries. Count the other unresolved entries of the ledger for the report."""
        plan, settings = self._plan, self._plan.settings
        run_id = plan.selection.run_id
        if run_id is not None and find_job_of_run(ledger.connection, run_id) is None:
            raise ConfigurationError("the ledger has no run with that id. To see the runs, run: connector status")
        self._entry_count_by_account = count_unsettled_entries(ledger.connection)
        self._unresolved_count = self._entry_count_by_account.pop(settings.account, 0)
        bases = choose_bases(ledger, settings.account, plan.base.service_id, plan.base.name)
        selected_bases = []
        for base in bases:
            states = [state for state in State if find_traits(state).waits_for_retry]
            if plan.selection.is_rejected or ledger.find_not_final_refusals(base):
                states.append(State.REJECTED)
            unfinished_entries = [entry for state in states for entry in ledger.find_unfinished_entries(base, state)]
            entries = [
                entry
                for entry in unfinished_entries
                if plan.selection.is_selected(entry) and (plan.selection.is_rejected or not entry.has_final_refusal)
            ]
            self._entry_count_by_owner_job.update(
                entry.suppressing_job for entry in entries if entry.suppressing_job not in (None, plan.job_name)
            )
            # If the service has answered a create in this base with another base, loads refuse this base until
            # `--held resend` has run.
            if entries or (plan.selection.held_decision == "resend" and base.has_wrong_answer):
                selected_bases.append(base)
        return selected_bases

    async def execute(self, run: Run) -> None:
        """Resolve and finish the entries of each base, until a base ends the run. Add the messages to the report."""
        remaining_bases = list(run.bases)
        while remaining_bases and run.is_running:
            await self._retry_base(run, remaining_bases.pop(0))
        waiting_states = list[State]()
        if run.is_running and self._plan.selection.held_decision is None:
            waiting_states = await run.ledger_queue.execute(self._list_states_that_wait_for_person)
        messages = self._list_messages(run, remaining_bases, waiting_states)
        run.report.messages += [*run.tally.messages, *run.tally.row_messages, *messages]
        run.report.messages += [*describe_reactivated_rows(run.tally), *describe_unread_entries(run.tally)]

    async def _retry_base(self, run: Run, base: Base) -> None:
        session = run.open_session(base, base.name if base.service_id is None else None)
        selection = self._plan.selection
        loader = Loader(session, selection.choose_mode(base))

        async def retry() -> None:
            session.suppression = await run.read_suppression()
            # If the retry of an earlier base has shown that the two bases are one base, the ledger has merged them. So
            # the base is read again.
            session.ledger_writer.base = await run.ledger_queue.execute(
                lambda ledger: find_or_add_base(ledger.connection, base.account, base.service_id, base.name)
            )
            await loader.begin(refuses_misanswered_base=selection.refuses_misanswered_base)
            await retry_entries(session, loader.settler, selection)

        await run.finish_load(loader, retry())
        if run.reason is not None:
            run.reason = f"{describe_base(base)}: {run.reason}"

    def _list_states_that_wait_for_person(self, ledger: Ledger) -> list[State]:
        """Return the states in which selected entries wait for a person's decision."""
        bases = list_bases(ledger.connection, self._plan.settings.account)
        return [
            state
            for state in State
            if find_traits(state).waits_for_person
            and any(
                self._plan.selection.is_selected(entry)
                for base in bases
                for entry in ledger.find_unfinished_entries(base, state)
            )
        ]

    def _list_messages(self, run: Run, remaining_bases: list[Base], waiting_states: list[State]) -> Iterator[str]:
        """Yield messages about facts that the counts do not show."""
        if not run.bases:
            states = "unknown, held or rejected" if self._plan.selection.is_rejected else "unknown or held"
            if self._unresolved_count:
                other_entries = count(
                    self._unresolved_count, "other entry of the account is", "other entries of the account are"
                )
                yield f"Nothing to do: no selected entry is {states}. {other_entries} unknown or held"
            else:
                yield f"Nothing to do: the ledger has no {states} create of the account {self._plan.settings.account}"
        for job, entry_count in sorted(self._entry_count_by_owner_job.items()):
            yield (
                f"{count(entry_count, 'entry', 'entries')} of the job {job} cannot be sent again without the "
                "suppression list of the job. Run the job, or run connector retry --job with the job file"
            )
        if remaining_bases:
            yield f"The run ended before it could retry entries in {describe_bases(remaining_bases)}"
        for state in waiting_states:
            state_name = state.report_name.capitalize()
            yield f"{state_name} entries wait for your decision. For the commands, run connector status"
        for account, entry_count in sorted(self._entry_count_by_account.items()):
            entries_text = count(entry_count, "unknown or held entry", "unknown or held entries")
            yield f"The ledger also has {entries_text} of another account: {account}"
        for name, altered_count in sorted(run.tally.altered_field_counts.items()):
            yield (
                f"the service stored another value than was sent in the field `{name}` of "
                f"{count(altered_count, 'created subscriber')}"
            )
