"""The flow that import and sync share: extract, map, validate, plan, load, settle, report."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from connector.clock import Clock, system_clock
from connector.errors import RunAborted
from connector.extract import Source
from connector.ledger import Base, Ledger, find_or_add_base
from connector.load import Loader, LoadPolicy
from connector.load.session import Session
from connector.mapping import FieldMapping
from connector.outcomes import Outcome
from connector.validation import Rules
from pipelines.numbers import describe_numbers
from pipelines.preparing import Prepared, prepare_chunks
from pipelines.progress import Progress
from pipelines.rejects import build_different, build_invalid, build_malformed, own_columns
from pipelines.report import Report
from pipelines.running import Frame, Run, carry_out, describe_leftovers, read_list
from pipelines.settings import Settings
from pipelines.stopping import Stop
from pipelines.suppressing import SuppressionPlan

_READING_GRACE_S = 2.0  # for a chunk that is being read when the run is stopped; then the process ends without it


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
    by_job: str = ""  # the name of the job file, where there is one
    suppression: SuppressionPlan | None = None
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

    def find_bases(ledger: Ledger) -> list[Base]:
        return [find_or_add_base(ledger.connection, plan.settings.account, plan.base_id, plan.base_name)]

    frame = Frame(
        command=plan.command,
        job=plan.job,
        by_job=plan.by_job,
        columns=plan.source.columns,
        find_bases=find_bases,
        policy=plan.policy,
        settings=plan.settings,
        suppression=plan.suppression,
        wait_s=plan.wait_s,
    )
    loads: list[_Load] = []

    async def work(run: Run) -> None:
        loads.append(_Load(plan, run))
        await loads[0].carry_out()

    try:
        return await carry_out(frame, work, stop, progress, clock or system_clock())
    finally:
        if not any(load.is_left_behind for load in loads):  # a thread that still reads it would be disturbed
            plan.source.close()


class _Load:
    """One load in progress: what it has read of its source."""

    def __init__(self, plan: LoadPlan, run: Run) -> None:
        self._plan, self._run = plan, run
        self._omitted_zips = 0
        self._number_cells = Counter[str]()  # of a workbook, by column
        self.is_left_behind = False  # a thread that still reads the source, when the run was stopped

    async def carry_out(self) -> None:
        """Load, settle and remark on it."""
        session = self._run.open_session(self._run.bases[0], self._plan.base_name)
        loader = Loader(session)
        await self._run.see_through(loader, self._load(loader, session))
        self._run.report.unmapped_columns = list(self._plan.unmapped_columns)
        self._run.report.messages += [*self._run.tally.messages, *self._remark()]

    async def _load(self, loader: Loader, session: Session) -> None:
        session.suppression = await read_list(self._run)
        await loader.begin()
        await self._take_all(loader)
        await loader.settle()

    async def _take_all(self, loader: Loader) -> None:
        """Prepare one chunk, in a thread, while the one before is being loaded."""
        loop, plan, run, reads = asyncio.get_running_loop(), self._plan, self._run, ThreadPoolExecutor(1)
        today, suppression = run.clock.now().date(), run.suppression
        chunks = prepare_chunks(
            plan.source, plan.mapping, plan.rules, today=today, limit=plan.limit, suppression=suppression
        )
        ahead = loop.run_in_executor(reads, _take_next, chunks)
        try:
            while (prepared := await self._wait_for(ahead)) is not None:
                ahead = loop.run_in_executor(reads, _take_next, chunks)
                self._count(prepared)
                await loader.take(prepared.planned)
                if run.rejects.failure is not None:
                    raise RunAborted(run.rejects.failure)
                if run.stop.event.is_set():
                    return
        finally:
            reads.shutdown(wait=False, cancel_futures=True)
            await asyncio.wait({ahead}, timeout=_READING_GRACE_S)
            self.is_left_behind = not ahead.done()
        if run.stop.event.is_set():
            return
        if run.tally.read == 0 and plan.is_empty_refused:
            raise RunAborted(f"{plan.source.name} has a header and no rows: there is nothing to import")

    async def _wait_for(self, ahead: asyncio.Future[Prepared | None]) -> Prepared | None:
        """The next chunk; None at the end, or when the run is to stop: a source may think for an hour."""
        stopped = asyncio.ensure_future(self._run.stop.event.wait())
        either: list[asyncio.Future[Any]] = [ahead, stopped]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        return ahead.result() if ahead.done() else None

    def _count(self, prepared: Prepared) -> None:
        """Give an outcome to those rows of a chunk that need no ledger for it; a person sees the ones that differ."""
        tally, rejects = self._run.tally, self._run.rejects
        tally.read += prepared.read
        self._omitted_zips += prepared.omitted_zips
        self._number_cells.update(prepared.chunk.number_cells)
        for malformed in prepared.chunk.malformed:
            tally.count(Outcome.INVALID)
            rejects.write(build_malformed(malformed, prepared.chunk.name), malformed.raw)
        for problem in build_invalid(prepared.chunk, prepared.faults):
            tally.report(problem)
        tally.count(Outcome.DUPLICATE, prepared.repeated)
        tally.count(Outcome.SUPPRESSED, prepared.suppressed)
        for position in prepared.different:
            rejects.write(build_different(prepared.chunk, position, self._plan.rules.identity))

    def _remark(self) -> Iterator[str]:
        """What a person should know beyond the sums."""
        tally = self._run.tally
        created = tally.outcomes[Outcome.CREATED]
        if created and "is_active" not in self._plan.mapping.rules:
            yield (
                f"{created} created inactive: nothing in the source says is_active, and the service's default is "
                "inactive; map a column to is_active, or use --active or --inactive"
            )
        yield from describe_leftovers(tally)
        if self._omitted_zips:
            yield f"{self._omitted_zips} zips are no numbers and were not sent (zip: omit)"
        yield from describe_numbers(self._plan.mapping, self._number_cells)
        if self._plan.unmapped_columns:
            yield f"columns not used: {', '.join(self._plan.unmapped_columns)}"
        for name, number in sorted(tally.altered.items()):
            yield f"the service altered {name} in {number} of the subscribers created"


def _take_next(chunks: Iterator[Prepared]) -> Prepared | None:
    return next(chunks, None)
