"""The frame of every run that writes the ledger: it is opened, the run recorded, carried out, ended and reported.

Whence rows come and what is done with them, it does not know.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from connector.api.client import Client, open_client
from connector.api.retries import Retrier
from connector.clock import Clock
from connector.errors import ConfigurationError, ConnectorError, LedgerError, LockedError, RunAborted
from connector.ledger import Base, Ledger, finish_run, open_ledger, start_run
from connector.load import Loader, LoadPolicy, Tally
from connector.load.journal import Journal
from connector.load.session import Session
from connector.outcomes import Outcome
from connector.pace import Pace
from connector.plan.suppression import Suppression
from pipelines.faults import describe_fault
from pipelines.progress import Progress
from pipelines.rejects import RejectsFile
from pipelines.report import Report, UncountedError, count_requests, count_rows, end_report, start_report
from pipelines.settings import Settings, build_service
from pipelines.stopping import Stop
from pipelines.suppressing import SuppressionPlan, read_suppression

_FOR_A_PERSON = (Outcome.INVALID, Outcome.REJECTED, Outcome.UNKNOWN)
"""Outcomes that make a run partial."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What every run needs to know. `columns` are those of its rejects file; `find_bases` says where it is to work.

    `find_bases` is called in the transaction that records the run: what it raises leaves no trace. `by_job` is the name
    of the job file that the run follows ("": none): what that job left with its suppression list it may finish.
    """

    command: str
    job: str
    by_job: str
    columns: Sequence[str]
    find_bases: Callable[[Ledger], Sequence[Base]]
    policy: LoadPolicy
    settings: Settings
    suppression: SuppressionPlan | None
    wait_s: float
    may_make_ledger: bool = True


@dataclass(slots=True)
class Run:
    """One run in progress: what it works with, and what it has read, counted and written."""

    frame: Frame
    report: Report
    stop: Stop
    clock: Clock
    rejects: RejectsFile
    tally: Tally
    ledger: Ledger
    client: Client
    key: int
    bases: Sequence[Base]
    commits: Executor | None
    pace: Pace
    reason: str | None = None  # why it had to end early
    suppression: Suppression | None = None
    session: Session | None = None  # the one that it works in now
    at_end: Callable[[], Iterable[str]] = tuple  # done in the transaction that records the end; gives messages

    def open_session(self, base: Base, asked_name: str | None) -> Session:
        """What the loader of one base shares; `asked_name` is the base's name, where that alone was given."""
        journal = Journal(self.ledger, base, self.key, self.commits)
        self.session = Session(
            self.client,
            Retrier(),
            journal,
            self.frame.policy,
            self.clock,
            self.tally,
            self.stop.event,
            asked_name,
            job=self.frame.by_job,
            suppression=self.suppression,
            pace=self.pace,
        )
        return self.session

    @property
    def is_going_on(self) -> bool:
        """Whether neither a signal nor a reason has ended it."""
        return self.reason is None and not self.stop.event.is_set()

    async def see_through(self, loader: Loader, work: Coroutine[Any, Any, None]) -> None:
        """Await what is to be done with this loader, close it however that ends, and keep the reason if it ended early.

        Raises only what nobody may hold up: a cancellation that no signal has asked for.
        """
        self.stop.is_recording = False
        try:
            await work
        except ConnectorError as error:
            self.reason = str(error)
        except Exception as error:  # noqa: BLE001 - a fault of ours: the run ends in a report all the same
            self.reason = describe_fault(error)
        except asyncio.CancelledError:
            if self.stop.signal is None:
                raise
            _stay_alive()  # a second signal: what was under way is unknown, and that is still to be recorded
        self.stop.is_recording = True
        try:
            await loader.close()
        except LedgerError as error:
            self.reason = self.reason or str(error)

    def describe(self) -> str:
        """What a person should see of it now."""
        activity = self.session.activity if self.session else "starting"
        counts = ", ".join(f"{number:,} {outcome}" for outcome, number in self.tally.outcomes.items() if number)
        return f"{self.tally.read:,} read{': ' if counts else ''}{counts} ({activity})"


Work = Callable[[Run], Awaitable[None]]


async def carry_out(frame: Frame, work: Work, stop: Stop, progress: Progress, clock: Clock) -> Report:
    """Do the work in the frame and tell what became of it.

    Raises ConfigurationError before anything is sent; a run that has begun always ends in a report.
    """
    report = start_report(frame.command, frame.job, clock.now())
    try:
        async with _open_ledger(frame, stop) as ledger:
            await _work_in(ledger, frame, work, report, stop, progress, clock)
    except LockedError as error:
        report.signal = stop.signal
        end_report(report, "locked" if stop.signal is None else "stopped", clock.now(), str(error))
    except LedgerError as error:
        if report.finished_at is None or report.exit_code in (0, 1):  # else it has ended by this, or by something worse
            end_report(report, "aborted", clock.now(), str(error))
    return report


@asynccontextmanager
async def _open_ledger(frame: Frame, stop: Stop) -> AsyncIterator[Ledger]:
    """The ledger, waited for in a thread, so that a signal is heard meanwhile."""
    opened = open_ledger(
        frame.settings.ledger_url,
        wait_s=frame.wait_s,
        is_stopped=stop.event.is_set,
        may_make=frame.may_make_ledger,
    )
    ledger = await asyncio.to_thread(opened.__enter__)
    with ExitStack() as stack:
        stack.push(opened.__exit__)
        yield ledger


async def _work_in(
    ledger: Ledger, frame: Frame, work: Work, report: Report, stop: Stop, progress: Progress, clock: Clock
) -> None:
    path = frame.settings.state_dir / "rejects" / f"{report.run_id}.csv"
    rejects = RejectsFile(path, frame.columns, report.run_id, clock.now)
    service = build_service(frame.settings, frame.policy.max_concurrency)
    with rejects, _open_commits(ledger) as commits:
        async with open_client(service) as client:
            key, bases = _begin(ledger, frame, report)
            tally = Tally(rejects.write)
            pace = Pace(frame.policy.max_rate, frame.policy.max_concurrency)
            run = Run(frame, report, stop, clock, rejects, tally, ledger, client, key, bases, commits, pace)
            progress.follow(run.describe)
            await work(run)
            report.requests = count_requests(client.counts)
    _end(run)
    with ledger.transaction() as connection:
        finish_run(connection, key, report.status, clock.now().timestamp())
        messages = list(run.at_end())
    report.messages += messages


def _open_commits(ledger: Ledger) -> AbstractContextManager[Executor | None]:
    """The thread that waits for a ledger's server. A disk is waited for in none: what the threads lose to each other is
    more than a commit takes (35 µs a create, of 220, measured)."""
    return nullcontext() if ledger.is_file else ThreadPoolExecutor(1)


def _begin(ledger: Ledger, frame: Frame, report: Report) -> tuple[int, Sequence[Base]]:
    """Record the run; whatever a run that died left as being sent is unknown from now on (design 4.3)."""
    suppressed_by = frame.suppression.job if frame.suppression is not None else None
    with ledger.transaction() as connection:
        ledger.mark_died()
        bases = frame.find_bases(ledger)
        at = report.started_at.timestamp()
        is_holding = frame.policy.on_unknown == "hold"
        names = report.run_id, report.job, report.command
        return start_run(connection, *names, at, suppressed_by, is_holding=is_holding), bases


async def read_list(run: Run) -> Suppression | None:
    """The job's suppression list, read anew by each run, once, in a thread; None if it has none.

    Raises SourceError and RunAborted when it cannot be relied on.
    """
    plan = run.frame.suppression
    if plan is None or run.suppression is not None:
        return run.suppression
    try:
        run.suppression, messages = await asyncio.to_thread(read_suppression, plan, run.stop.event.is_set)
    except ConfigurationError as error:
        raise RunAborted(str(error)) from None
    run.report.messages += messages
    return run.suppression


def describe_leftovers(tally: Tally) -> Iterator[str]:
    """What became of those whom the run settled besides its rows."""
    for state, number in sorted(tally.leftovers.items()):
        yield f"{number} creates that earlier runs left unknown, with no row in this one, are {state} now"


def _end(run: Run) -> None:
    report, outcomes, tally = run.report, run.tally.outcomes, run.tally
    reason = run.reason or run.rejects.failure
    try:
        report.rows = count_rows(tally.read, outcomes)
    except UncountedError as error:
        report.rows, reason = error.rows, f"{reason or 'a fault of the program'}; besides, {error}"
    report.settled = {"found": tally.settled_found, "absent": tally.settled_absent}
    report.echo = dict(sorted(tally.altered.items()))
    report.rejects_file = run.rejects.path
    if run.stop.signal is not None:
        report.signal = run.stop.signal
        end_report(report, "stopped", run.clock.now(), reason)
    elif reason is not None:
        end_report(report, "aborted", run.clock.now(), reason)
    else:
        is_partial = any(outcomes[each] or tally.leftovers[each] for each in _FOR_A_PERSON)
        is_partial = is_partial or bool(tally.leftovers["held"]) or tally.has_doubled
        end_report(report, "partial" if is_partial else "ok", run.clock.now())


def _stay_alive() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
