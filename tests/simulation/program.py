"""The program that a process of the simulation runs: like a run of `connector/runs/frame.py`, but without files.

The program catches only the exceptions with which a run may end. Any other exception is an error of the program.
"""

import asyncio
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import numpy as np

from connector.clock import Clock
from connector.control import Stop
from connector.errors import ConfigurationError, RunAborted
from connector.fields import BaseRef
from connector.imports.base_loads import BaseLoads
from connector.ledger.commits import LedgerQueue, LedgerWriter
from connector.ledger.entries import Ledger
from connector.ledger.records import end_dead_runs, find_or_add_base, finish_run, start_run
from connector.ledger.store import Base
from connector.listing.access import ListAccess
from connector.load.base_load import Loader
from connector.load.drift import compare_waiting_rows, report_uncompared_rows
from connector.load.retry import retry_entries
from connector.load.session import LoadPolicy, Session
from connector.outcomes import Outcome
from connector.pace.pace import Pace
from connector.progress import ProgressMeter
from connector.runs.frame import Run, RunPlan, RunSetup
from connector.runs.planned_rows import PlannedRows
from connector.runs.problems import ProblemLog
from connector.runs.report import start_report
from connector.service.client import Client, RequestSender
from connector.service.retry import Retrier
from connector.service.settings import Service, Token
from connector.settings import Settings
from connector.subscribers.rules import BaseColumn, RowBases
from connector.tally import ChangedRow, Problem, RowRecorder, Tally
from tests.simulation.rows import PreparedChunk
from tests.simulation.scenario import BASE_ID, BASE_NAME, JobRun
from tests.simulation.timeline import Timeline

JOB = "job"
_ACCOUNT = "simulated"


@dataclass(slots=True)
class Report(RowRecorder):
    """The report of a run."""

    chunk_count: int = 0  # number of loaded chunks
    tally: Tally = field(init=False)
    problems: list[Problem] = field(default_factory=list)
    changes: list[ChangedRow] = field(default_factory=list)
    reason: str | None = None  # why the run ended early
    is_stopped: bool = False
    attempt_count: int = 0  # number of creates that the client has sent
    limited_count: int = 0  # number of creates that were answered with 429

    def __post_init__(self) -> None:
        self.tally = Tally(self)

    def write_problem(self, problem: Problem) -> None:
        self.problems.append(problem)

    def write_change(self, change: ChangedRow) -> None:
        self.changes.append(change)

    def describe(self) -> str:
        """Return the counts and the reason in one line."""
        counts_text = ", ".join(
            f"{row_count} {outcome}" for outcome, row_count in self.tally.outcomes.items() if row_count
        )
        ending = "; stopped" * self.is_stopped + (f"; {self.reason}" if self.reason else "")
        return f"{self.tally.read_count} read: {counts_text}{ending}"


class _Run(Run):
    """A run whose look-ups draw their random values from the seed of the simulation."""

    rng: Random

    def open_session(self, base: Base, requested_name: str | None) -> Session:
        session = super().open_session(base, requested_name)
        session.list_access.draw_bytes = self.rng.randbytes
        return session


@dataclass(slots=True)
class Program:
    """One run of the job. Call `run` only once."""

    run_number: int
    ledger: Ledger
    ledger_queue: LedgerQueue
    sender: RequestSender
    timeline: Timeline
    policy: LoadPolicy
    job_run: JobRun
    rng: Random
    report: Report = field(default_factory=Report)
    stop_request: Stop = field(init=False)
    cancellable_task: "asyncio.Task[None] | None" = None  # the task that a second signal cancels

    def __post_init__(self) -> None:
        self.stop_request = Stop(self._clock)

    async def run(self) -> Report:
        """Load the rows, resolve the unknown creates, record the end of the run, and return the report."""
        client = Client(self.sender, str, self._clock)
        session = self._open_session(client)
        retry = self.job_run.retry
        loader = (
            Loader(session, retry.choose_mode(session.ledger_writer.base)) if retry else self._open_base_loads(session)
        )
        self.cancellable_task = asyncio.current_task()
        try:
            if isinstance(loader, BaseLoads):
                await self._load_chunks(loader)
            elif retry is not None:
                await loader.begin(refuses_misanswered_base=retry.refuses_misanswered_base)
                await retry_entries(session, loader.settler, retry)
            if not self.stop_request.is_stopping:
                sessions = loader.sessions if isinstance(loader, BaseLoads) else [session]
                await compare_waiting_rows(sessions, session.waiting_rows, compares_reported_rows=False)
        except (ConfigurationError, RunAborted) as error:
            self.report.reason = str(error)
        except asyncio.CancelledError:
            self.report.reason = "a second signal"
            if self.cancellable_task is not None:
                self.cancellable_task.uncancel()
        self.cancellable_task = None  # a second signal does not interrupt the recording
        await loader.close()
        report_uncompared_rows(session.waiting_rows, self.report.tally, "the run ended before the comparison")
        if self.report.reason is not None or self.stop_request.is_stopping:
            self.report.tally.count_unsent_rows()
        create_counts = client.counts["create"]
        self.report.attempt_count, self.report.limited_count = create_counts.sent, create_counts.limited
        with self.ledger.transaction() as connection:
            status = (
                "aborted" if self.report.reason is not None else "stopped" if self.stop_request.is_stopping else "ok"
            )
            finish_run(connection, session.ledger_writer.run_key, status, self.timeline.read_unix_s())
        return self.report

    @property
    def _clock(self) -> Clock:
        return Clock(self.timeline.read_monotonic_s, self.timeline.read_date, asyncio.sleep)

    def stop(self) -> None:
        """Stop the run as the first signal does."""
        self.report.is_stopped = True
        self.stop_request.event.set()

    def stop_at_once(self) -> None:
        """Stop the run as the second signal does."""
        if self.cancellable_task is not None:
            self.cancellable_task.cancel()

    async def _load_chunks(self, base_loads: BaseLoads) -> None:
        await base_loads.begin()
        for prepared_chunk in self.job_run.prepared_chunks:
            self._count_chunk(prepared_chunk)
            bases = self._choose_bases(prepared_chunk) if self.job_run.has_base_column else None
            await base_loads.load(prepared_chunk.planned_chunk, bases)
            if self.stop_request.is_stopping:
                return
        await base_loads.settle()

    def _choose_bases(self, prepared_chunk: PreparedChunk) -> RowBases:
        base_ids = self.job_run.base_ids
        base_indexes = [row.person_number % len(base_ids) for row in prepared_chunk.rows]
        base_refs = tuple(BaseRef(service_id=base_id) for base_id in base_ids)
        return RowBases(np.array(base_indexes, dtype=np.int64), base_refs)

    def _open_base_loads(self, session: Session) -> BaseLoads:
        """Return the loads of all bases. The loads share the ledger, tally and commits of this session."""
        policy, null_path = session.policy, Path(os.devnull)
        settings = Settings(Service("http://localhost", Token("token")), _ACCOUNT, null_path, "sqlite://")
        plan = RunPlan(command="sync", policy=policy, settings=settings, job_name=JOB)
        setup = RunSetup(plan, JOB, (), lambda _ledger: [], None)
        run = _Run(
            setup,
            start_report("sync", JOB, self._clock.now()),
            self.stop_request,
            PlannedRows(None, policy.identity_field),
            session.tally,
            self.ledger,
            session.list_access.client,
            session.ledger_writer.run_key,
            [],
            self.ledger_queue,
            Pace(policy.max_rate, policy.max_concurrency),
            ProblemLog(),
            ProgressMeter(self._clock.monotonic),
            session.list_access.retrier,
            waiting_rows=session.waiting_rows,
            suppression=session.suppression,
        )

        run.rng = self.rng
        if self.job_run.has_base_column:
            return BaseLoads(run, BaseColumn("list"))
        return BaseLoads(run, BaseRef(name=BASE_NAME) if self.job_run.has_base_name else BaseRef(service_id=BASE_ID))

    def _open_session(self, client: Client) -> Session:
        policy, suppression = self._choose_policy(), self.job_run.suppression
        base_id, base_name = (None, BASE_NAME) if self.job_run.has_base_name else (BASE_ID, None)
        with self.ledger.transaction() as connection:
            self.ledger.mark_sending_entries_unknown()
            end_dead_runs(connection, self.timeline.read_unix_s())
            base = find_or_add_base(connection, _ACCOUNT, base_id, base_name)
            suppressing_job = None if suppression is None else suppression.job
            unix_s = self.timeline.read_unix_s()
            holds_absent_creates = policy.on_unknown == "hold"
            run_key = start_run(
                connection,
                f"run-{self.run_number}",
                JOB,
                "sync",
                unix_s,
                suppressing_job,
                holds_absent_creates=holds_absent_creates,
            )
        list_access = ListAccess(
            self.stop_request,
            client,
            Retrier(clock=self._clock, rng=self.rng),
            LedgerWriter(self.ledger_queue, base, run_key),
            policy,
            base_name if self.job_run.retry is None or base.service_id is None else None,
            draw_bytes=self.rng.randbytes,
        )
        session = Session(list_access, policy, self.report.tally, job=JOB, suppression=suppression)
        session.temporary_refusals = client.temporary_refusals
        return session

    def _choose_policy(self) -> LoadPolicy:
        """Return the policy of the run. A retry has no job file, so its policy is `on_unknown: resend`. The ledger
        shows which entries must be held."""
        return self.policy if self.job_run.retry is None else replace(self.policy, on_unknown="resend")

    def _count_chunk(self, prepared_chunk: PreparedChunk) -> None:
        self.report.tally.read_count += prepared_chunk.read_count
        self.report.chunk_count += 1
        self.report.tally.count_rows(Outcome.INVALID, prepared_chunk.invalid_count)
        self.report.tally.count_rows(Outcome.DUPLICATE, prepared_chunk.duplicate_count)
        self.report.tally.count_rows(Outcome.SUPPRESSED, prepared_chunk.suppressed_count)
