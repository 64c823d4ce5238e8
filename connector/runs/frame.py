"""Runs the work of a load or a retry in a frame: opens the ledger, records the run, does the work, and reports the end
of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from connector.clock import Clock
from connector.control import Stop, enter_in_thread, ignore_cancellation, run_in_background
from connector.errors import ConfigurationError, ConnectorError, LedgerError, LockedError
from connector.ledger.commits import LedgerQueue, LedgerWriter, open_ledger_queue
from connector.ledger.entries import Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.planned import open_planned_ledger
from connector.ledger.records import (
    end_dead_runs,
    finish_run,
    read_last_rate_limit,
    read_suppression_size,
    record_rate_limit,
    record_suppression_size,
    start_run,
)
from connector.ledger.schema import meta
from connector.ledger.store import Base, Store
from connector.listing.access import KnownIds, ListAccess, LookupState
from connector.load.checks import describe_duplicates
from connector.load.drift import compare_waiting_rows, report_uncompared_rows
from connector.load.session import Canaries, CreateLimits, LoadPolicy, Session, WaitingRows
from connector.outcomes import Outcome, needs_person
from connector.pace.pace import Pace
from connector.progress import Progress, ProgressMeter
from connector.runs.planned_rows import PlannedRows
from connector.runs.problems import ProblemLog, ProblemScope
from connector.runs.report import (
    Report,
    RunScope,
    Status,
    UncountedRowsError,
    count_rows,
    describe_fault,
    end_report,
    end_run,
    record_report,
    start_report,
)
from connector.runs.row_files import LoadFiles, RowFindings
from connector.service.client import Client, open_client
from connector.service.retry import Retrier
from connector.settings import Settings, build_service, limit_in_flight_count
from connector.shards import SINGLE_SHARD, Shard
from connector.subscribers.identity import InactiveIdentities, Suppression
from connector.tally import Tally
from connector.texts import choose_form, count

if TYPE_CHECKING:
    from connector.warehouse.destination import Destination

_MIN_SHOWN_PAUSE_S = 1.0  # a shorter pause is not shown in the progress line
_RENEWAL_INTERVAL_S = 5.0  # seconds between two renewals of the lease, which is valid for 30 s
Work = Callable[["Run"], Awaitable[None]]

SuppressionReader = Callable[[Callable[[], bool]], tuple[Suppression, list[str]]]
"""A function that reads a job's suppression list, and returns the list and messages about the list. Its argument is a
function that returns whether the run must stop."""


class ClosableLoad(Protocol):
    """A load that `Run.finish_load` can close."""

    async def close(self) -> None:
        """End the load, and count the rows that have no outcome. `Run.finish_load` also calls this method after an
        error.
        Raises ConnectorError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The settings that every load and every retry has: how the run uses the service and the ledger.

    `job_name` is the name of the job whose file the run uses, or "". If the job has a suppression list, only runs of
    the job may send its unresolved creates again. Other runs do not read the list.
    """

    command: str
    policy: LoadPolicy
    settings: Settings
    job_name: str = ""
    job_path: Path | None = None
    wait_s: float = 0.0  # the time to wait for another run that holds the ledger
    shard: Shard = SINGLE_SHARD  # the shard of identities to which the run is limited
    is_full: bool = False  # whether rows that earlier runs have reported as changed are compared again
    is_planned: bool = False  # whether the run is a plan, which creates nothing and only reads the ledger
    rows_path: Path | None = None  # path of the file with each row of a plan
    receipts: Destination | None = None  # the destination of receipts, or None if the run writes no receipts


@dataclass(frozen=True, slots=True)
class RunSetup:
    """The settings of a run. `columns` are the columns of the rows in the rejects file.

    `find_bases` returns the bases of the run. The function is called in the transaction that records the run. If the
    function raises an error, nothing is recorded.
    """

    plan: RunPlan
    job: str
    columns: Sequence[str]
    find_bases: Callable[[Ledger], Sequence[Base]]
    suppression_reader: SuppressionReader | None
    scope: RunScope = field(default_factory=RunScope)
    columns_by_field: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_workbook: bool = False  # whether the rejects file is written as a workbook
    problem_scope: ProblemScope | None = None  # how problems are identified (None: problems are not stored)

    @property
    def receipts(self) -> Destination | None:
        """The destination of receipts, or None if the run writes no receipts."""
        return None if self.plan.is_planned else self.plan.receipts


@dataclass(slots=True)
class Run:
    """A run in progress: its connections and settings, and its counts and results so far."""

    setup: RunSetup
    report: Report
    stop: Stop
    rows: LoadFiles | PlannedRows
    tally: Tally
    ledger: Ledger
    client: Client
    key: int
    bases: Sequence[Base]
    ledger_queue: LedgerQueue
    pace: Pace
    problems: ProblemLog
    progress_meter: ProgressMeter
    retrier: Retrier
    canaries: Canaries = field(default_factory=Canaries)
    lookup_state: LookupState = field(default_factory=LookupState)
    known_ids: KnownIds = field(default_factory=KnownIds)
    inactive_identities: InactiveIdentities = field(default_factory=InactiveIdentities)
    create_limits: CreateLimits = field(default_factory=CreateLimits)
    waiting_rows: WaitingRows = field(default_factory=WaitingRows)  # rows that must be compared with the service
    reason: str | None = None  # the reason if the run ended early
    configuration_error: ConfigurationError | None = None  # the error if wrong settings ended the run
    is_attention_needed: bool = False  # whether a message makes the run partial
    suppression: Suppression | None = None
    ledger_writers: list[LedgerWriter] = field(default_factory=list)  # the ledger writers of all sessions
    on_end: Callable[[], Iterable[str]] = tuple  # returns messages; called in the transaction that records the end
    expected_row_count: float | None = None  # the number of rows of the source, or an estimate; None: not known
    is_row_count_estimated: bool = False
    source_row_count: int | None = None  # number of rows of the whole source, if all rows were read

    def open_session(self, base: Base, requested_name: str | None) -> Session:
        """Return a session for the load of one base. All sessions of a run share the counts and limits of the run.
        `requested_name` is the name of the base if the user gave only the name."""
        list_access = ListAccess(
            self.stop,
            self.client,
            self.retrier,
            LedgerWriter(self.ledger_queue, base, self.key, has_receipts=self.setup.receipts is not None),
            self.setup.plan.policy,
            requested_name,
            self.inactive_identities,
            state=self.lookup_state,
            known_ids=self.known_ids,
        )
        session = Session(
            list_access,
            self.setup.plan.policy,
            self.tally,
            self.setup.plan.job_name,
            self.suppression,
            self.pace,
            self.canaries,
            self.create_limits,
            self.waiting_rows,
            self.client.temporary_refusals,
            source_job=self.setup.job,
        )
        self.ledger_writers.append(session.ledger_writer)
        return session

    async def deliver_receipts(self) -> None:
        """Write the receipts of the run, and receipts that earlier runs of the job did not write. After a signal, the
        next run writes all these receipts instead, because a destination may be slow."""
        setup = self.setup
        if setup.receipts is None or self.stop.signal is not None:
            return
        try:
            for ledger_writer in self.ledger_writers:
                await ledger_writer.flush()
            # Imported here, because most runs need no writer of tables.
            from connector.runs.receipts import deliver_receipts

            account, job = setup.plan.settings.account, self.report.job
            delivery = await deliver_receipts(self.ledger_queue, setup.receipts, account, job, self.key, self.clock.now)
        except LedgerError as error:
            self.reason = self.reason or str(error)
            return
        self.report.receipts = {"to": str(setup.receipts), "rows": delivery.written_count}
        if delivery.failure:
            self.report.messages.append(
                f"Receipts could not be written: {delivery.failure.rstrip('.')}. The next run of the job writes them."
            )
            self.is_attention_needed = True

    @property
    def clock(self) -> Clock:
        """The clock of the run."""
        return self.stop.clock

    def estimate_row_count(self, read_share: float | None, max_rows: int | None) -> None:
        """Estimate the number of rows of the source. `read_share` (0 to 1) is the share of the source that was read.
        The run reads at most `max_rows`."""
        if read_share:
            self.expected_row_count, self.is_row_count_estimated = self.tally.read_count / read_share, read_share < 1
        if max_rows is not None and (self.expected_row_count is None or self.expected_row_count > max_rows):
            self.expected_row_count, self.is_row_count_estimated = float(max_rows), False

    @property
    def is_running(self) -> bool:
        """Whether neither a signal nor an error has ended the run."""
        return self.reason is None and not self.stop.is_stopping

    async def finish_load(self, load: ClosableLoad, work: Coroutine[Any, Any, None]) -> None:
        """Wait for the work with this load, and then close the load, even after an error. Store the reason if the work
        ended early.

        Raises CancelledError if the task is cancelled and no signal has stopped the run. Raises no other error.
        """
        self.stop.ignores_second_signal = False
        try:
            await work
        except ConfigurationError as error:
            self.reason, self.configuration_error = str(error), error
        except ConnectorError as error:
            self.reason = str(error)
        except Exception as error:  # noqa: BLE001 - a bug of the connector: the run still ends with a report
            self.reason = describe_fault(error)
        except asyncio.CancelledError:
            if self.stop.signal is None:
                raise
            # After a second signal, the requests in flight are unknown, and must still be recorded.
            ignore_cancellation()
        self.stop.ignores_second_signal = True
        try:
            await load.close()
        except ConnectorError as error:
            self.reason = self.reason or str(error)
        report_uncompared_rows(self.waiting_rows, self.tally, "the run ended before the comparison")
        if not self.is_running:
            self.tally.count_unsent_rows()

    async def read_suppression(self) -> Suppression | None:
        """Return the job's suppression list, or None if the job has no list. The list is read once in a run, in a
        thread.

        Raises SourceError, ConfigurationError or RunAborted if the list cannot be used.
        """
        suppression_reader = self.setup.suppression_reader
        if suppression_reader is None or self.suppression is not None:
            return self.suppression
        suppression, messages = await asyncio.to_thread(suppression_reader, self.stop.event.is_set)
        account = self.setup.plan.settings.account
        previous_size = await self.ledger_queue.execute(
            lambda ledger: read_suppression_size(ledger.connection, meta, account, suppression)
        )
        suppression.refuse_shrunk_list(previous_size)
        await self.ledger_queue.execute(
            lambda ledger: record_suppression_size(ledger.connection, meta, account, suppression)
        )
        self.report.messages += messages
        self.suppression = suppression
        return suppression

    async def compare_waiting_rows(self, sessions: Sequence[Session]) -> None:
        """Compare the waiting rows with their subscribers in the service. Call this method after all other work. Raises
        the errors of `connector.load.drift.compare_waiting_rows`."""
        if self.is_running:
            await compare_waiting_rows(sessions, self.waiting_rows, compares_reported_rows=self.setup.plan.is_full)

    def describe(self) -> str:
        """Return a text for a person about the current state of the run."""
        is_loading = bool(self.ledger_writers)
        activity_text = self.stop.describe() if is_loading or self.tally.read_count else "starting"
        if (pause_s := self.client.paused_until - self.clock.monotonic()) > _MIN_SHOWN_PAUSE_S:
            activity_text = f"waiting {pause_s:.0f} s: the service has asked for a pause"
        done_count = self.tally.outcomes.total() if is_loading else self.tally.read_count
        meter_text = self.progress_meter.describe(
            done_count, self.expected_row_count, is_estimate=self.is_row_count_estimated
        )
        counts_text = ", ".join(
            f"{row_count:,} {outcome}" for outcome, row_count in self.tally.outcomes.items() if row_count
        )
        state_word = "planned" if self.setup.plan.is_planned else "read"
        progress_text = f"; {meter_text}" if meter_text else ""
        return (
            f"{self.tally.read_count:,} {state_word}{': ' if counts_text else ''}{counts_text}{progress_text} "
            f"({activity_text})"
        )


async def run_with_setup(setup: RunSetup, work: Work, stop: Stop, progress: Progress) -> Report:
    """Do the work with this setup, and return the report. `progress` describes the run from its start.

    Raises ConfigurationError only before anything is sent. A run that has begun always ends with a report.
    """
    plan = setup.plan
    service = build_service(plan.settings, plan.policy.max_concurrency)
    policy = replace(plan.policy, max_concurrency=limit_in_flight_count(service, plan.policy.max_concurrency))
    plan = replace(plan, policy=policy, settings=replace(plan.settings, service=service))
    setup = replace(setup, plan=plan)
    report = start_report(plan.command, setup.job, stop.clock.now(), setup.scope)
    report.is_planned = plan.is_planned
    report_record = record_report(report, plan.settings.state_dir, plan.settings.retention_s, stop.clock.now)
    ledger_url = plan.settings.ledger_url
    ledger_context: AbstractContextManager[Ledger] = (
        open_planned_ledger(ledger_url, plan.settings.account)
        if plan.is_planned
        else open_ledger(
            ledger_url,
            shard=plan.shard,
            wait_s=plan.wait_s,
            is_stopped=stop.event.is_set,
            may_create=plan.settings.may_create_ledger,
        )
    )
    with nullcontext() if plan.is_planned else report_record:
        try:
            async with enter_in_thread(ledger_context, stop) as ledger:
                await _run_with_ledger(ledger, setup, work, report, stop, progress)
        except LockedError as error:
            report.signal = stop.signal
            end_report(report, "locked" if stop.signal is None else "stopped", stop.clock.now(), str(error))
        except LedgerError as error:
            if report.finished_at is None or report.exit_code in (0, 1):
                # If the exit code is above 1, the report already has the error that ended the run.
                status: Status = "usage" if isinstance(error, ConfigurationError) else "aborted"
                end_report(report, status, stop.clock.now(), str(error))
    return report


async def _run_with_ledger(
    ledger: Ledger, setup: RunSetup, work: Work, report: Report, stop: Stop, progress: Progress
) -> None:
    plan = setup.plan
    clock = stop.clock
    problems = ProblemLog(setup.problem_scope, report.run_id)
    findings = RowFindings(setup.columns_by_field, problems)
    row_files: LoadFiles | PlannedRows
    if plan.is_planned:
        row_files = PlannedRows(plan.rows_path, plan.policy.identity_field, findings)
    else:
        row_files = LoadFiles(
            plan.settings.state_dir, setup.columns, report.run_id, clock.now, findings, is_workbook=setup.is_workbook
        )
    with row_files, open_ledger_queue(ledger) as ledger_queue:
        run_key, bases = _record_start(ledger, setup, report, clock)
        with ledger.transaction():
            problems.load_known_problems(ledger)
        pace = _build_pace(ledger, setup, clock)
        async with open_client(plan.settings.service, clock=clock, rate=pace.rate) as client:
            run = Run(
                setup, report, stop, row_files, Tally(row_files), ledger, client, run_key, bases, ledger_queue, pace,
                problems, ProgressMeter(clock.monotonic), Retrier(clock=clock),
            )  # fmt: skip
            progress.set_describe_function(run.describe)
            renew_lease = partial(ledger_queue.execute, lambda _: None)  # any transaction renews the lease
            async with run_in_background(renew_lease_until_end(ledger.store, renew_lease, stop)):
                await work(run)
                await run.deliver_receipts()
            report.copy_request_counts(client)
    _end_report(run)
    has_finished = report.status in ("ok", "partial")
    with ledger.transaction() as connection:
        ended_at = clock.now().timestamp()
        finish_run(connection, run_key, report.status, ended_at, run.source_row_count if has_finished else None)
        if pace.rate.is_limit_measured and pace.rate.found_limit is not None:
            found_limit = pace.rate.found_limit.scale(plan.shard.count)
            record_rate_limit(connection, plan.settings.account, found_limit, ended_at)
        if has_finished and not plan.is_planned:
            problems.record_in_ledger(ledger, ended_at)
        report.problems = problems.describe(ledger)
        messages = list(run.on_end())
    report.messages += messages
    if run.configuration_error is not None and not client.counts["create"].sent:
        raise run.configuration_error  # nothing was sent, so wrong settings are reported like an error before the run


def _build_pace(ledger: Ledger, setup: RunSetup, clock: Clock) -> Pace:
    """Return a pace that begins at the rate limit that the account's last load has found. A shard begins at its part of
    this limit."""
    plan = setup.plan
    with ledger.transaction() as connection:
        found_limit, limit_measured_at = read_last_rate_limit(connection, plan.settings.account) or (None, 0.0)
    age_s = clock.now().timestamp() - limit_measured_at
    shard_limit = None if found_limit is None else found_limit.scale(1 / plan.shard.count)
    return Pace(plan.policy.max_rate, plan.policy.max_concurrency, shard_limit, age_s)


def _record_start(ledger: Ledger, setup: RunSetup, report: Report, clock: Clock) -> tuple[int, Sequence[Base]]:
    """Record the run, and return its key and its bases. Entries that a killed run left in the state `sending` are
    changed to `unknown` (architecture 4.3)."""
    plan = setup.plan
    suppressing_job = (
        plan.job_name if setup.suppression_reader is not None or plan.policy.is_suppressing_inactive else None
    )
    with ledger.transaction() as connection:
        sending_count = ledger.mark_sending_entries_unknown()
        if plan.is_planned and sending_count:
            report.messages.append(
                f"{count(sending_count, 'create')} of another run {choose_form(sending_count, 'is', 'are')} in flight "
                "or unresolved: their rows count as `unknown` unless the list shows the subscriber"
            )
        end_dead_runs(connection, clock.now().timestamp())
        bases = setup.find_bases(ledger)
        run_key = start_run(
            connection,
            report.run_id,
            report.job,
            report.command,
            report.started_at.timestamp(),
            suppressing_job,
            holds_absent_creates=plan.policy.on_unknown == "hold",
            account=plan.settings.account,
        )
        if ledger.store.lease is not None:
            ledger.store.lease.record_run(connection, run_key)
    return run_key, bases


async def renew_lease_until_end(store: Store, renew_lease: Callable[[], Awaitable[object]], stop: Stop) -> None:
    """Renew the lease of the ledger again and again, even while the run does not use the ledger. End the run if the
    lease is lost. `renew_lease` executes one transaction of the store."""
    if store.lease is None:
        return
    while True:
        await asyncio.sleep(_RENEWAL_INTERVAL_S)
        try:
            await renew_lease()
        except LedgerError as error:
            stop.request_stop(str(error))
            return


def _end_report(run: Run) -> None:
    report, outcomes, tally = run.report, run.tally.outcomes, run.tally
    reason = run.reason or run.rows.failure
    if run.rows.failure is not None and reason != run.rows.failure:
        report.messages.append(run.rows.failure)
    try:
        report.rows = count_rows(tally.read_count, outcomes)
    except UncountedRowsError as error:
        report.rows, reason = error.rows, f"{reason or 'a fault of the program'}; also, {error}"
    report.settled = {"found": tally.settled_found_count, "absent": tally.settled_absent_count}
    report.echo = dict(sorted(tally.altered_field_counts.items()))
    report.activity = {"active": tally.active_count, "inactive": outcomes[Outcome.CREATED] - tally.active_count}
    report.samples = tally.samples if report.is_planned else None
    report.opt_outs = tally.opt_out_count
    report.causes, report.changed_fields = run.rows.findings.causes, dict(run.rows.findings.changed_fields)
    report.rejects_file, report.drift_file = run.rows.rejects_path, run.rows.drift_path
    report.messages += describe_duplicates(tally.duplicate_ids)
    status: Status = "aborted" if reason is not None else "partial" if _needs_person(run) else "ok"
    end_run(report, run.stop, status, run.clock.now(), reason)


def _needs_person(run: Run) -> bool:
    """Return whether a person must look at the result of the run, so that the run is partial."""
    tally = run.tally
    if run.is_attention_needed or tally.duplicate_ids:
        return True
    if any(row_count and result.needs_person for result, row_count in tally.unread_entry_counts.items()):
        return True
    if run.problems.fails_only_on_new_problems:
        return bool(run.problems.count_new_problems().total())
    if any(row_count and needs_person(outcome) for outcome, row_count in tally.outcomes.items()):
        return True
    return bool(tally.opt_out_count)
