"""The flow of `connector retry`: what earlier runs left is settled and finished without their sources."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from connector.control import Stop
from connector.errors import ConfigurationError
from connector.fields import NAMES, BaseRef
from connector.imports.base_loads import choose_bases, describe_base, describe_bases
from connector.imports.remarks import describe_leftovers, describe_reactivated
from connector.imports.suppression import SuppressionPlan, read_suppression
from connector.ledger.entries import Ledger, count_unsettled
from connector.ledger.records import find_or_add_base, find_run, list_bases, list_runs
from connector.ledger.store import Base
from connector.load.base_load import Loader
from connector.load.retry import RetryPlan, retry_entries
from connector.load.session import LoadPolicy
from connector.plurals import count
from connector.progress import Progress
from connector.report import Report, RunScope
from connector.run import Frame, Run, carry_out
from connector.scope import describe_asked_base, describe_policy, drop_empty
from connector.settings import Settings, bound_in_flight, build_service
from connector.states import State
from pipelines.report.advice import DECIDE_HELD

_RUNS_NAMED = 5  # the latest, for a mistyped id of a run


@dataclass(frozen=True, slots=True)
class RetryOrder:
    """Everything that a retry needs to know: what to take up, in which bases (default: all), by which rules.

    `job` is the name of the job file that it follows, "" for none.
    """

    what: RetryPlan
    job: str
    policy: LoadPolicy
    settings: Settings
    suppression: SuppressionPlan | None = None
    base_id: int | None = None
    base_name: str | None = None
    wait_s: float = 0.0


async def run_retry(order: RetryOrder, stop: Stop, progress: Progress) -> Report:
    """Take up what the order says and tell what became of it; the rows of the report are the ledger's entries.

    Raises ConfigurationError before anything is sent; a run that has begun always ends in a report.
    """
    retry = _Retry(order)
    service = build_service(order.settings, order.policy.max_concurrency)
    frame = Frame(
        command="retry",
        job=order.job,
        by_job=order.job,
        columns=NAMES,
        find_bases=retry.find_bases,
        policy=replace(order.policy, max_concurrency=bound_in_flight(service, order.policy.max_concurrency)),
        service=service,
        account=order.settings.account,
        ledger_url=order.settings.ledger_url,
        state_dir=order.settings.state_dir,
        retention_s=order.settings.retention_s,
        suppression=partial(read_suppression, order.suppression) if order.suppression is not None else None,
        wait_s=order.wait_s,
        may_make_ledger=False,
        scope=_describe_scope(order),
    )
    return await carry_out(frame, retry.carry_out, stop, progress.follow)


def _describe_scope(order: RetryOrder) -> RunScope:
    base = describe_asked_base(BaseRef(order.base_id, order.base_name)) or "each with entries to take up"
    policy, settings = drop_empty(describe_policy(order.policy)), order.settings
    return RunScope("entries of the ledger", settings.service.base_url, base, settings.account, policy)


class _Retry:
    """One retry in progress."""

    def __init__(self, order: RetryOrder) -> None:
        self._order = order
        self._left_to: Counter[str] = Counter()  # entries that only another job may send again, by its name
        self._elsewhere: dict[str, int] = {}  # unsettled entries of other accounts
        self._besides = 0  # unsettled entries of this one

    def find_bases(self, ledger: Ledger) -> list[Base]:
        """Return the bases with entries to take up; note what else the ledger holds, to report it."""
        order, settings = self._order, self._order.settings
        if order.what.run_id is not None and find_run(ledger.connection, order.what.run_id) is None:
            latest = [
                f"{run.run_id} ({run.command} {run.job}, "
                f"{datetime.fromtimestamp(run.started_at, UTC):%Y-%m-%d %H:%M} UTC)"
                for run in list_runs(ledger.connection, _RUNS_NAMED)
            ]
            raise ConfigurationError(f"the ledger knows no run of that id; the latest: {'; '.join(latest) or 'none'}")
        self._elsewhere = count_unsettled(ledger.connection)
        self._besides = self._elsewhere.pop(settings.account, 0)
        bases = choose_bases(ledger, settings.account, order.base_id, order.base_name)
        taken_up = []
        for base in bases:
            states = [State.UNKNOWN, State.HELD]
            if order.what.is_rejected or ledger.find_not_final(base):
                states.append(State.REJECTED)
            found = [entry for state in states for entry in ledger.find_unfinished(base, state)]
            entries = [
                each for each in found if order.what.concerns(each) and (order.what.is_rejected or not each.is_final)
            ]
            self._left_to.update(each.suppressed_by for each in entries if each.suppressed_by not in (None, order.job))
            # to send entries again also confirms a base whose create was answered as another base's
            if entries or (order.what.held == "resend" and base.is_misanswered):
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
        what = self._order.what
        loader = Loader(session, what.choose_mode(base))

        async def retry() -> None:
            session.suppression = await run.read_suppression()
            session.journal.base = await run.commits.ask(  # another base may have turned out to be this one by now
                lambda ledger: find_or_add_base(ledger.connection, base.account, base.service_id, base.name)
            )
            await loader.begin(refuses_misanswered=what.refuses_misanswered)
            await retry_entries(session, loader.finisher, what)

        await run.see_through(loader, retry())
        if run.reason is not None:
            run.reason = f"{describe_base(base)}: {run.reason}"

    def _holds_any(self, ledger: Ledger) -> bool:
        """Return whether anything of what was asked for is held by now."""
        bases = list_bases(ledger.connection, self._order.settings.account)
        held = [entry for base in bases for entry in ledger.find_unfinished(base, State.HELD)]
        return any(self._order.what.concerns(entry) for entry in held)

    def _remark(self, run: Run, waiting: list[Base], *, is_anything_held: bool) -> Iterator[str]:
        """What a person should know beyond the sums."""
        if not run.bases:
            asked = ", held or rejected" if self._order.what.is_rejected else " or held"
            if self._besides:
                others = f"{self._besides} others of the account are"
                yield f"there is nothing to do: nothing of what was asked for is unknown{asked}; {others}"
            else:
                yield f"there is nothing to do: nothing is unknown{asked} in the account {self._order.settings.account}"
        for job, number in sorted(self._left_to.items()):
            yield (
                f"entries that the job {job}, which has a suppression list, has left: {number:,}; only a "
                "run of that job may send them again, or `connector retry --job` with its file"
            )
        if waiting:
            yield f"not taken up, since the run ended before: {describe_bases(waiting)}"
        if is_anything_held and self._order.what.held == "leave":
            yield f"Held entries wait for your decision: {DECIDE_HELD}"
        for account, number in sorted(self._elsewhere.items()):
            yield (f"entries that are unknown or held in another account of this ledger, {account}: {number:,}")
        for name, number in sorted(run.tally.altered.items()):
            yield f"the service altered {name} of {count(number, 'subscriber')} created"
