"""The flow of `connector retry`: what earlier runs left is settled and finished without their sources."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from connector.choices import DECIDE_HELD
from connector.control import Stop
from connector.errors import ConfigurationError
from connector.fields import NAMES, BaseRef
from connector.imports.base_loads import choose_bases, describe_base, describe_bases
from connector.imports.remarks import describe_leftovers, describe_reactivated
from connector.imports.suppression import SuppressionPlan, read_suppression
from connector.jobs.build import build_policy, build_rules, plan_receipts, plan_suppression
from connector.jobs.models import Job
from connector.ledger.entries import Ledger, count_unsettled
from connector.ledger.records import find_or_add_base, find_run, list_bases, list_runs
from connector.ledger.store import Base
from connector.load.base_load import Loader
from connector.load.retry import RetrySelection, retry_entries
from connector.load.session import LoadPolicy
from connector.progress import Progress
from connector.runs.frame import Frame, Run, carry_out
from connector.runs.report import Report, RunScope, describe_asked_base, describe_policy, drop_empty
from connector.settings import Settings, bound_in_flight, build_service
from connector.states import State
from connector.texts import agree, count
from connector.warehouse.destination import Destination

_RUNS_NAMED = 5  # the latest, for a mistyped id of a run


@dataclass(frozen=True, slots=True)
class RetryPlan:
    """A retry: which entries to take up, in which base (default: all), and by which rules.

    `job` is the name of the job file that the retry follows, "" for none.
    """

    selection: RetrySelection
    job: str
    policy: LoadPolicy
    settings: Settings
    suppression: SuppressionPlan | None = None
    base: BaseRef = BaseRef()  # noqa: RUF009 - a frozen value
    wait_s: float = 0.0
    receipts: Destination | None = None


def plan_retry(
    selection: RetrySelection, job: Job, settings: Settings, *, base: BaseRef, wait_s: float, is_by_job_file: bool
) -> RetryPlan:
    """Return the retry of what runs of the job, or of any job without a job file, have left. Raises ConfigurationError
    and SourceError."""
    if job.subscriber is None:
        raise ConfigurationError(f"--job: a retry needs a job with a subscriber section. {job.explain_command()}")
    policy = build_policy(job.load, build_rules(job.subscriber), job.suppress)
    name = job.name if is_by_job_file else ""
    return RetryPlan(selection, name, policy, settings, plan_suppression(job), base, wait_s, plan_receipts(job))


async def run_retry(plan: RetryPlan, stop: Stop, progress: Progress) -> Report:
    """Take up what the plan selects and tell what became of it; the rows of the report are the ledger's entries.

    Raises ConfigurationError before anything is sent; a run that has begun always ends in a report.
    """
    retry = _Retry(plan)
    service = build_service(plan.settings, plan.policy.max_concurrency)
    frame = Frame(
        command="retry",
        job=plan.job,
        by_job=plan.job,
        columns=NAMES,
        find_bases=retry.find_bases,
        policy=replace(plan.policy, max_concurrency=bound_in_flight(service, plan.policy.max_concurrency)),
        service=service,
        account=plan.settings.account,
        ledger_url=plan.settings.ledger_url,
        state_dir=plan.settings.state_dir,
        retention_s=plan.settings.retention_s,
        suppression=partial(read_suppression, plan.suppression) if plan.suppression is not None else None,
        wait_s=plan.wait_s,
        may_make_ledger=False,
        receipts=plan.receipts,
        scope=_describe_scope(plan),
    )
    return await carry_out(frame, retry.carry_out, stop, progress.follow)


def _describe_scope(plan: RetryPlan) -> RunScope:
    base = describe_asked_base(plan.base) or "each with entries to take up"
    policy, settings = drop_empty(describe_policy(plan.policy)), plan.settings
    return RunScope("entries of the ledger", settings.service.base_url, base, settings.account, policy)


class _Retry:
    """One retry in progress."""

    def __init__(self, plan: RetryPlan) -> None:
        self._plan = plan
        self._left_to: Counter[str] = Counter()  # entries that only another job may send again, by its name
        self._elsewhere: dict[str, int] = {}  # unsettled entries of other accounts
        self._besides = 0  # unsettled entries of this one

    def find_bases(self, ledger: Ledger) -> list[Base]:
        """Return the bases with entries to take up; note what else the ledger holds, to report it."""
        plan, settings = self._plan, self._plan.settings
        if plan.selection.run_id is not None and find_run(ledger.connection, plan.selection.run_id) is None:
            latest = [
                f"{run.run_id} ({run.command} {run.job}, "
                f"{datetime.fromtimestamp(run.started_at, UTC):%Y-%m-%d %H:%M} UTC)"
                for run in list_runs(ledger.connection, _RUNS_NAMED)
            ]
            raise ConfigurationError(f"the ledger knows no run of that id; the latest: {'; '.join(latest) or 'none'}")
        self._elsewhere = count_unsettled(ledger.connection)
        self._besides = self._elsewhere.pop(settings.account, 0)
        bases = choose_bases(ledger, settings.account, plan.base.service_id, plan.base.name)
        taken_up = []
        for base in bases:
            states = [State.UNKNOWN, State.HELD]
            if plan.selection.is_rejected or ledger.find_not_final_refusals(base):
                states.append(State.REJECTED)
            found = [entry for state in states for entry in ledger.find_unfinished_entries(base, state)]
            entries = [
                entry
                for entry in found
                if plan.selection.concerns(entry) and (plan.selection.is_rejected or not entry.is_final)
            ]
            self._left_to.update(
                entry.suppressed_by for entry in entries if entry.suppressed_by not in (None, plan.job)
            )
            # to send entries again also confirms a base whose create was answered as another base's
            if entries or (plan.selection.held == "resend" and base.is_misanswered):
                taken_up.append(base)
        return taken_up

    async def carry_out(self, run: Run) -> None:
        """Settle and finish each base in turn, until one ends the run; remark on it."""
        waiting = list(run.bases)
        while waiting and run.is_going_on:
            await self._finish(run, waiting.pop(0))
        is_anything_held = run.is_going_on and await run.commits.ask(self._holds_any)
        remarks = self._remark(run, waiting, is_anything_held=is_anything_held)
        run.report.messages += [*run.tally.messages, *run.tally.row_messages, *remarks]
        run.report.messages += [*describe_reactivated(run.tally), *describe_leftovers(run.tally)]

    async def _finish(self, run: Run, base: Base) -> None:
        session = run.open_session(base, base.name if base.service_id is None else None)
        selection = self._plan.selection
        loader = Loader(session, selection.choose_mode(base))

        async def retry() -> None:
            session.suppression = await run.read_suppression()
            session.journal.base = await run.commits.ask(  # another base may have turned out to be this one by now
                lambda ledger: find_or_add_base(ledger.connection, base.account, base.service_id, base.name)
            )
            await loader.begin(refuses_misanswered=selection.refuses_misanswered)
            await retry_entries(session, loader.settler, selection)

        await run.finish_load(loader, retry())
        if run.reason is not None:
            run.reason = f"{describe_base(base)}: {run.reason}"

    def _holds_any(self, ledger: Ledger) -> bool:
        """Return whether anything of what was asked for is held by now."""
        bases = list_bases(ledger.connection, self._plan.settings.account)
        held = [entry for base in bases for entry in ledger.find_unfinished_entries(base, State.HELD)]
        return any(self._plan.selection.concerns(entry) for entry in held)

    def _remark(self, run: Run, waiting: list[Base], *, is_anything_held: bool) -> Iterator[str]:
        """Yield messages that add to the counts."""
        if not run.bases:
            states = "unknown, held or rejected" if self._plan.selection.is_rejected else "unknown or held"
            if self._besides:
                others = count(self._besides, "other entry of the account is", "other entries of the account are")
                yield f"Nothing to do: no selected entry is {states}. {others} unknown or held"
            else:
                yield f"Nothing to do: no entry of the account {self._plan.settings.account} is {states}"
        for job, number in sorted(self._left_to.items()):
            yield (
                f"{count(number, 'entry', 'entries')} of the job {job}: only a run of that job can send "
                f"{agree(number, 'it', 'them')} again, or `connector retry --job` with the file of the job, because "
                "the job has a suppression list"
            )
        if waiting:
            yield f"The run ended before it retried the entries of {describe_bases(waiting)}"
        if is_anything_held and self._plan.selection.held == "leave":
            yield f"Held entries wait for your decision: {DECIDE_HELD}"
        for account, number in sorted(self._elsewhere.items()):
            entries = (
                f"{count(number, 'entry', 'entries')} of another account of this ledger {agree(number, 'is', 'are')}"
            )
            yield f"{entries} unknown or held: {account}"
        for name, number in sorted(run.tally.altered_fields.items()):
            yield f"the service stored another {name} than was sent, for {count(number, 'created subscriber')}"
