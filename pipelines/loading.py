"""The flow that import and sync share: extract, map, validate, plan, load, settle, report."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass

from connector.api.client import Client, open_client
from connector.api.retries import Retrier
from connector.errors import LedgerError, LockedError, RunAborted, SourceError
from connector.extract import Source
from connector.ledger import Ledger, find_or_add_base, finish_run, open_ledger, start_run
from connector.load import Clock, Loader, LoadPolicy, Tally, system_clock
from connector.load.journal import Journal
from connector.load.session import Session
from connector.mapping import FieldMapping
from connector.outcomes import Outcome
from connector.validation import Rules
from pipelines.faults import describe_fault
from pipelines.preparing import Prepared, prepare_chunks
from pipelines.progress import Progress
from pipelines.rejects import RejectsFile, build_different, build_invalid, build_malformed, own_columns
from pipelines.report import Report, count_requests, count_rows, end_report, start_report
from pipelines.settings import Settings, build_service
from pipelines.stopping import Stop


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Everything that a load needs to know: whence, how mapped and checked, where to, and by which rules."""

    command: str
    job: str
    source: Source
    is_empty_refused: bool
    mapping: FieldMapping
    rules: Rules
    base_id: int | None
    base_name: str | None
    policy: LoadPolicy
    settings: Settings
    limit: int | None = None
    wait_s: float = 0.0

    @property
    def unmapped_columns(self) -> tuple[str, ...]:
        """The source's columns that become no field."""
        used = self.mapping.columns
        return tuple(name for name in own_columns(self.source.columns) if name not in used)


async def run_load(plan: LoadPlan, stop: Stop, progress: Progress, clock: Clock | None = None) -> Report:
    """Load everything that the plan's source gives and tell what became of it.

    Raises ConfigurationError before anything is sent; a run that has begun always ends in a report.
    """
    clock = clock or system_clock()
    report = start_report(plan.command, plan.job, clock.now())
    with closing(plan.source):
        try:
            async with _open_ledger(plan, stop) as ledger:
                await _Run(plan, report, stop, progress, clock).carry_out(ledger)
        except LockedError as error:
            report.signal = stop.signal
            end_report(report, "locked" if stop.signal is None else "stopped", clock.now(), str(error))
        except LedgerError as error:
            end_report(report, "aborted", clock.now(), str(error))
    return report


@asynccontextmanager
async def _open_ledger(plan: LoadPlan, stop: Stop) -> AsyncIterator[Ledger]:
    """The ledger, waited for in a thread, so that a signal is heard meanwhile."""
    opened = open_ledger(plan.settings.ledger_url, wait_s=plan.wait_s, is_stopped=stop.event.is_set)
    ledger = await asyncio.to_thread(opened.__enter__)
    with ExitStack() as stack:
        stack.push(opened.__exit__)
        yield ledger


class _Run:
    """One load in progress: what it has read, counted and written."""

    def __init__(self, plan: LoadPlan, report: Report, stop: Stop, progress: Progress, clock: Clock) -> None:
        path = plan.settings.state_dir / "rejects" / f"{report.run_id}.csv"
        self._plan, self._report, self._stop, self._clock = plan, report, stop, clock
        self._rejects = RejectsFile(path, plan.source.columns, report.run_id, clock.now)
        self._tally = Tally(self._rejects.write)
        self._read = 0
        self._omitted_zips = 0
        self._session: Session | None = None
        progress.follow(self._describe)

    async def carry_out(self, ledger: Ledger) -> None:
        """Do all of it, and fill in the report."""
        service = build_service(self._plan.settings, self._plan.policy.max_concurrency)
        with self._rejects, ThreadPoolExecutor(1) as commits, ThreadPoolExecutor(1) as reads:
            async with open_client(service) as client:
                journal = self._begin(ledger, commits)
                self._session = self._open_session(client, journal)
                reason = await self._load(self._session, reads)
                self._report.requests = count_requests(client.counts)
        self._end(reason or self._rejects.failure)
        with ledger.transaction() as connection:
            finish_run(connection, journal.run_key, self._report.status, self._clock.now().timestamp())

    def _begin(self, ledger: Ledger, commits: Executor) -> Journal:
        """Record the run; whatever a run that died left as being sent is unknown from now on (design 4.3)."""
        plan, report = self._plan, self._report
        with ledger.transaction() as connection:
            ledger.mark_died()
            base = find_or_add_base(connection, plan.settings.account, plan.base_id, plan.base_name)
            run_key = start_run(connection, report.run_id, report.job, plan.command, report.started_at.timestamp())
        return Journal(ledger, base, run_key, commits)

    def _open_session(self, client: Client, journal: Journal) -> Session:
        plan = self._plan
        return Session(
            client, Retrier(), journal, plan.policy, self._clock, self._tally, self._stop.event, plan.base_name
        )

    async def _load(self, session: Session, reads: Executor) -> str | None:
        """Load and settle; the reason if the run had to end early."""
        loader, reason = Loader(session), None
        try:
            await self._take_all(loader, reads)
            await loader.settle()
        except (RunAborted, SourceError, LedgerError) as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - a fault of ours: the run ends in a report all the same
            reason = describe_fault(error)
        except asyncio.CancelledError:
            if self._stop.signal is None:
                raise
            _stay_alive()  # a second signal: what was under way is unknown, and that is still to be recorded
        try:
            await loader.close()
        except LedgerError as error:
            reason = reason or str(error)
        return reason

    async def _take_all(self, loader: Loader, reads: Executor) -> None:
        """Prepare one chunk, in a thread, while the one before is being loaded."""
        loop, plan = asyncio.get_running_loop(), self._plan
        today = self._clock.now().date()
        chunks = prepare_chunks(plan.source, plan.mapping, plan.rules, today=today, limit=plan.limit)
        ahead = loop.run_in_executor(reads, _take_next, chunks)
        try:
            while (prepared := await asyncio.shield(ahead)) is not None:
                ahead = loop.run_in_executor(reads, _take_next, chunks)
                self._count(prepared)
                await loader.take(prepared.planned)
                if self._rejects.failure is not None:
                    raise RunAborted(self._rejects.failure)
                if self._stop.event.is_set():
                    return
        finally:
            await asyncio.gather(ahead, return_exceptions=True)
        if self._read == 0 and plan.is_empty_refused:
            raise RunAborted(f"{plan.source.name} has a header and no rows: there is nothing to import")

    def _count(self, prepared: Prepared) -> None:
        """Give an outcome to those rows of a chunk that need no ledger for it; a person sees the ones that differ."""
        self._read += prepared.read
        self._omitted_zips += prepared.omitted_zips
        for malformed in prepared.chunk.malformed:
            self._tally.count(Outcome.INVALID)
            self._rejects.write(build_malformed(malformed, prepared.chunk.name), malformed.raw)
        for problem in build_invalid(prepared.chunk, prepared.faults):
            self._tally.report(problem)
        self._tally.count(Outcome.DUPLICATE, prepared.repeated)
        for position in prepared.different:
            self._rejects.write(build_different(prepared.chunk, position, self._plan.rules.identity))

    def _end(self, reason: str | None) -> None:
        report, outcomes = self._report, self._tally.outcomes
        report.rows = count_rows(self._read, outcomes)
        report.settled = {"found": self._tally.settled_found, "absent": self._tally.settled_absent}
        report.echo = dict(sorted(self._tally.altered.items()))
        report.rejects_file = self._rejects.path
        report.unmapped_columns = list(self._plan.unmapped_columns)
        report.messages += [*self._tally.messages, *self._remark()]
        if self._stop.signal is not None:
            report.signal = self._stop.signal
            end_report(report, "stopped", self._clock.now(), reason)
        elif reason is not None:
            end_report(report, "aborted", self._clock.now(), reason)
        else:
            is_partial = any(outcomes[each] for each in (Outcome.INVALID, Outcome.REJECTED, Outcome.UNKNOWN))
            is_partial = is_partial or bool(self._tally.leftovers)
            end_report(report, "partial" if is_partial else "ok", self._clock.now())

    def _remark(self) -> Iterator[str]:
        """What a person should know beyond the sums."""
        created = self._tally.outcomes[Outcome.CREATED]
        if created and "is_active" not in self._plan.mapping.rules:
            yield (
                f"{created} created inactive: nothing in the source says is_active, and the service's default is "
                "inactive; map a column to is_active, or use --active or --inactive"
            )
        for state, number in sorted(self._tally.leftovers.items()):
            yield f"{number} creates that earlier runs left unknown, with no row in this one, are {state} now"
        if self._omitted_zips:
            yield f"{self._omitted_zips} zips are no numbers and were not sent (zip: omit)"
        if self._plan.unmapped_columns:
            yield f"columns not used: {', '.join(self._plan.unmapped_columns)}"
        for name, number in sorted(self._tally.altered.items()):
            yield f"the service altered {name} in {number} of the subscribers created"

    def _describe(self) -> str:
        activity = self._session.activity if self._session else "starting"
        counts = ", ".join(f"{number:,} {outcome}" for outcome, number in self._tally.outcomes.items() if number)
        return f"{self._read:,} read{': ' if counts else ''}{counts} ({activity})"


def _take_next(chunks: Iterator[Prepared]) -> Prepared | None:
    return next(chunks, None)


def _stay_alive() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
