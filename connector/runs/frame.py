"""A run: what its parts share, and its frame: the ledger is opened, the run recorded, carried out, ended, reported."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from connector.clock import Clock
from connector.control import Stop, enter_in_thread, stay_alive, work_beside
from connector.errors import ConfigurationError, ConnectorError, LedgerError, LockedError
from connector.ledger.commits import Commits, LedgerWriter, open_commits
from connector.ledger.entries import Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.planned import open_planned_ledger
from connector.ledger.postgres import name_run
from connector.ledger.records import (
    end_dead_runs,
    finish_run,
    read_found_limit,
    read_list_size,
    record_found_limit,
    record_list_size,
    start_run,
)
from connector.ledger.schema import meta
from connector.ledger.store import Base, Store
from connector.listing.access import KnownIds, ListAccess, ListLag, LookupState
from connector.load.checks import describe_twins
from connector.load.drift import close_waiting, compare_waiting
from connector.load.session import Canaries, Limits, LoadPolicy, Session, Tally, WaitingRows
from connector.outcomes import Outcome
from connector.pace.pace import Pace
from connector.progress import ProgressMeter
from connector.runs.planned_rows import PlannedRows
from connector.runs.problems import ProblemLog, ProblemScope
from connector.runs.receipts import deliver_receipts
from connector.runs.report import (
    Report,
    RunScope,
    Status,
    UncountedError,
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
from connector.service.settings import Service
from connector.settings import RETENTION_S
from connector.shards import WHOLE, Shard
from connector.subscribers.identity import InactiveIdentities, Suppression
from connector.texts import agree, count
from connector.warehouse.destination import Destination

_WORTH_TELLING_S = 1.0
_RENEWED_S = 5.0  # seconds between two renewals of the lease, which lasts for 30 s
_FOR_A_PERSON = (Outcome.INVALID, Outcome.REJECTED, Outcome.UNKNOWN)
"""Outcomes that make a run partial."""

Work = Callable[["Run"], Awaitable[None]]

OnBegin = Callable[[Callable[[], str]], None]
"""Gets what describes a run at any time, in words."""

ReadSuppression = Callable[[Callable[[], bool]], tuple[Suppression, list[str]]]
"""Reads a job's suppression list until it is stopped, and gives messages about it beside."""


class Closable(Protocol):
    """What counts, when it is closed, all that has no outcome yet."""

    async def close(self) -> None:
        """Be closed, however the run ends. Raises ConnectorError."""


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
    service: Service
    account: str  # names the ledger's entries
    ledger_url: str = field(repr=False)
    state_dir: Path
    suppression: ReadSuppression | None
    wait_s: float
    may_make_ledger: bool = True
    shard: Shard = WHOLE  # the shard of identities to which the run is limited
    is_full: bool = False  # what earlier runs have reported as changed is compared again
    is_planned: bool = False  # the ledger is only read, and no rejects are written
    rows_path: Path | None = None  # where a plan lists each row
    are_rows_reported: bool = False  # whether the report does, too
    scope: RunScope = field(default_factory=RunScope)
    columns_by_field: Mapping[str, Sequence[str]] = field(default_factory=dict)
    retention_s: float = RETENTION_S
    is_workbook: bool = False  # whether the rejects file becomes a workbook
    receipts: Destination | None = None  # the destination of receipts; None: the run writes none
    problems: ProblemScope | None = None  # how the run knows its problems again; None: they are not remembered


@dataclass(slots=True)
class Run:
    """One run in progress: what it works with, and what it has read, counted and written."""

    frame: Frame
    report: Report
    stop: Stop
    rows: LoadFiles | PlannedRows
    tally: Tally
    ledger: Ledger
    client: Client
    key: int
    bases: Sequence[Base]
    commits: Commits
    pace: Pace
    problems: ProblemLog = field(default_factory=ProblemLog)
    progression: ProgressMeter = field(init=False)
    retrier: Retrier = field(default_factory=Retrier)
    canaries: Canaries = field(default_factory=Canaries)
    lag: ListLag = field(default_factory=ListLag)
    lookups: LookupState = field(default_factory=LookupState)
    known_ids: KnownIds = field(default_factory=KnownIds)
    inactive: InactiveIdentities = field(default_factory=InactiveIdentities)
    limits: Limits = field(default_factory=Limits)
    waiting: WaitingRows = field(default_factory=WaitingRows)  # rows to be compared with the service
    reason: str | None = None  # why it had to end early
    refusal: ConfigurationError | None = None  # that reason, where settings are at fault
    is_attention_needed: bool = False  # a message, not a row, makes the run partial
    suppression: Suppression | None = None
    journals: list[LedgerWriter] = field(default_factory=list)  # of all sessions
    session: Session | None = None  # the one that it works in now
    at_end: Callable[[], Iterable[str]] = tuple  # done in the transaction that records the end; gives messages
    expected: float | None = None  # rows of the source, where they can be estimated
    is_expected_roughly: bool = False
    rows_read: int | None = None  # of the whole source, once all of it was read

    def open_session(self, base: Base, asked_name: str | None) -> Session:
        """Return what the load of one base shares, within itself and with those of the run's other bases; `asked_name`
        is the base's name, where that alone was given."""
        access = ListAccess(
            self.stop,
            self.client,
            self.retrier,
            LedgerWriter(self.commits, base, self.key, has_receipts=self.frame.receipts is not None),
            self.frame.policy,
            asked_name,
            self.inactive,
            lag=self.lag,
            state=self.lookups,
            known_ids=self.known_ids,
        )
        self.session = Session(
            access,
            self.frame.policy,
            self.tally,
            self.frame.by_job,
            self.suppression,
            self.pace,
            self.canaries,
            self.limits,
            self.waiting,
            self.client.passing,
            source_job=self.frame.job,
        )
        self.journals.append(self.session.journal)
        return self.session

    async def deliver_receipts(self) -> None:
        """Write the receipts of the run, and those of killed runs of the job. After a signal the next run writes them,
        because a destination may be slow."""
        frame = self.frame
        if frame.receipts is None or self.stop.signal is not None:
            return
        try:
            for journal in self.journals:
                await journal.flush()
            delivery = await deliver_receipts(
                self.commits, frame.receipts, frame.account, self.report.job, self.key, self.clock.now
            )
        except LedgerError as error:
            self.reason = self.reason or str(error)
            return
        self.report.receipts = delivery.as_json()
        if delivery.failure:
            self.report.messages.append(delivery.describe())
            self.is_attention_needed = True

    @property
    def clock(self) -> Clock:
        """The clock of the run."""
        return self.stop.clock

    def __post_init__(self) -> None:
        self.progression = ProgressMeter(self.clock.monotonic)

    def note_share(self, share: float | None, most: int | None) -> None:
        """Estimate how many rows the source has, of which this share (0 to 1) is read; at most `most` are wanted."""
        if share:
            self.expected, self.is_expected_roughly = self.tally.read / share, share < 1
        if most is not None and (self.expected is None or self.expected > most):
            self.expected, self.is_expected_roughly = float(most), False

    @property
    def is_going_on(self) -> bool:
        """Whether neither a signal nor a reason has ended it."""
        return self.reason is None and not self.stop.is_stopping

    async def see_through(self, load: Closable, work: Coroutine[Any, Any, None]) -> None:
        """Await what is to be done with this load, close it however that ends, and keep the reason if it ended early.

        Raises only what must go on: a cancellation that no signal has asked for.
        """
        self.stop.is_recording = False
        try:
            await work
        except ConfigurationError as error:
            self.reason, self.refusal = str(error), error
        except ConnectorError as error:
            self.reason = str(error)
        except Exception as error:  # noqa: BLE001 - a fault of ours: the run ends in a report all the same
            self.reason = describe_fault(error)
        except asyncio.CancelledError:
            if self.stop.signal is None:
                raise
            stay_alive()  # a second signal: what was under way is unknown, and that is still to be recorded
        self.stop.is_recording = True
        try:
            await load.close()
        except ConnectorError as error:
            self.reason = self.reason or str(error)
        close_waiting(self.waiting, self.tally, "the run ended before it was compared")
        if not self.is_going_on:
            self.tally.count_unsent()

    async def read_suppression(self) -> Suppression | None:
        """Read the job's suppression list, once in a run, in a thread; None if it has none.

        Raises SourceError, ConfigurationError and RunAborted when the list cannot be relied on.
        """
        read = self.frame.suppression
        if read is None or self.suppression is not None:
            return self.suppression
        suppression, messages = await asyncio.to_thread(read, self.stop.event.is_set)
        account = self.frame.account
        suppression.refuse_shrunk(
            await self.commits.ask(lambda ledger: read_list_size(ledger.connection, meta, account, suppression))
        )
        await self.commits.ask(lambda ledger: record_list_size(ledger.connection, meta, account, suppression))
        self.report.messages += messages
        self.suppression = suppression
        return suppression

    async def compare(self, sessions: Sequence[Session]) -> None:
        """Compare the rows that differ from their entries with the service, now that all else is done. Raises as
        `compare_waiting` does."""
        if self.is_going_on:
            await compare_waiting(sessions, self.waiting, is_full=self.frame.is_full)

    def restart(self) -> None:
        """All rows were surveyed, and are loaded now: no outcome is counted or written yet."""
        self.tally.restart()
        self.rows.restart()

    def describe(self) -> str:
        """Return what a person should see of it now."""
        activity = self.stop.describe() if self.session or self.tally.read else "starting"
        if (quiet_s := self.client.quiet_until - self.clock.monotonic()) > _WORTH_TELLING_S:
            activity = f"waiting {quiet_s:.0f} s: the service has asked for a pause"
        done = self.tally.outcomes.total() if self.session else self.tally.read
        progression = self.progression.describe(done, self.expected, is_estimate=self.is_expected_roughly)
        counts = ", ".join(f"{number:,} {outcome}" for outcome, number in self.tally.outcomes.items() if number)
        what = "planned" if self.frame.is_planned else "read"
        advance = f"; {progression}" if progression else ""
        return f"{self.tally.read:,} {what}{': ' if counts else ''}{counts}{advance} ({activity})"


async def carry_out(frame: Frame, work: Work, stop: Stop, on_begin: OnBegin) -> Report:
    """Do the work in the frame and return what became of it; `on_begin` gets what describes the run at any time.

    Raises ConfigurationError before anything is sent; a run that has begun always ends in a report.
    """
    report = start_report(frame.command, frame.job, stop.clock.now(), frame.scope)
    report.is_planned = frame.is_planned
    record = record_report(report, frame.state_dir, frame.retention_s, stop.clock.now)
    with nullcontext() if report.is_planned else record:
        await _carry_out(frame, work, report, stop, on_begin)
    return report


async def _carry_out(frame: Frame, work: Work, report: Report, stop: Stop, on_begin: OnBegin) -> None:
    clock = stop.clock
    try:
        url, is_stopped = frame.ledger_url, stop.event.is_set
        opened: AbstractContextManager[Ledger]
        if frame.is_planned:
            opened = open_planned_ledger(url, frame.account)
        else:
            wait_s, may_make = frame.wait_s, frame.may_make_ledger
            opened = open_ledger(url, shard=frame.shard, wait_s=wait_s, is_stopped=is_stopped, may_make=may_make)
        async with enter_in_thread(opened, stop) as ledger:
            await _work_in(ledger, frame, work, report, stop, on_begin)
    except LockedError as error:
        report.signal = stop.signal
        end_report(report, "locked" if stop.signal is None else "stopped", clock.now(), str(error))
    except ConfigurationError:  # a token that was refused at the first request is both
        raise
    except LedgerError as error:
        if report.finished_at is None or report.exit_code in (0, 1):  # else it has ended by this, or by something worse
            end_report(report, "aborted", clock.now(), str(error))


async def _work_in(ledger: Ledger, frame: Frame, work: Work, report: Report, stop: Stop, on_begin: OnBegin) -> None:
    clock = stop.clock
    problems = ProblemLog(frame.problems, report.run_id)
    findings = RowFindings(frame.columns_by_field, problems)
    rows: LoadFiles | PlannedRows
    if not frame.is_planned:
        names = frame.columns, report.run_id
        rows = LoadFiles(frame.state_dir, *names, clock.now, findings, is_workbook=frame.is_workbook)
    else:
        rows = PlannedRows(frame.rows_path, frame.policy.identity, findings, is_reported=frame.are_rows_reported)
    with rows, open_commits(ledger) as commits:
        key, bases = _begin(ledger, frame, report, clock)
        with ledger.transaction():
            problems.load(ledger)
        pace = _build_pace(ledger, frame, clock)
        async with open_client(frame.service, clock=clock, rate=pace.rate) as client:
            tally = rows.build_tally()
            retrier = Retrier(clock=clock)
            run = Run(
                frame, report, stop, rows, tally, ledger, client, key, bases, commits, pace, problems, retrier=retrier
            )
            on_begin(run.describe)
            renew = partial(commits.ask, lambda _: None)  # each transaction renews the lease
            async with work_beside(keep_lease(ledger.store, renew, stop)):
                await work(run)
                await run.deliver_receipts()
            report.note_requests(client, clock.monotonic())
    report.planned_rows = rows.lines
    _end(run)
    has_finished = report.status in ("ok", "partial")
    rows_read = run.rows_read if has_finished else None
    with ledger.transaction() as connection:
        at = clock.now().timestamp()
        finish_run(connection, key, report.status, at, rows_read)
        if pace.rate.found is not None:
            record_found_limit(connection, frame.account, pace.rate.found.scale(frame.shard.count), at)
        if has_finished and not frame.is_planned:
            problems.write(ledger, at)
        report.problems = problems.describe(ledger)
        messages = list(run.at_end())
    report.messages += messages
    if run.refusal is not None and not client.counts["create"].sent:
        raise run.refusal  # settings are at fault, and nothing was sent: as if it had been found before the run began


def _build_pace(ledger: Ledger, frame: Frame, clock: Clock) -> Pace:
    """Return a pace that begins at the limit that the account's last load found: a shard at its part of that limit."""
    with ledger.transaction() as connection:
        found, found_at = read_found_limit(connection, frame.account) or (None, 0.0)
    age_s = clock.now().timestamp() - found_at
    share = None if found is None else found.scale(1 / frame.shard.count)
    return Pace(frame.policy.max_rate, frame.policy.max_concurrency, share, age_s)


def _begin(ledger: Ledger, frame: Frame, report: Report, clock: Clock) -> tuple[int, Sequence[Base]]:
    """Record the run; whatever a run that died left as being sent is unknown from now on (architecture 4.3)."""
    suppressed_by = frame.by_job if frame.suppression is not None or frame.policy.is_suppressing_inactive else None
    with ledger.transaction() as connection:
        sending = ledger.mark_died()
        if frame.is_planned and sending:
            report.messages.append(
                f"{count(sending, 'create')} of another run {agree(sending, 'is', 'are')} in flight or unresolved: "
                "such a row counts as `unknown` unless the list shows its subscriber"
            )
        end_dead_runs(connection, clock.now().timestamp())
        bases = frame.find_bases(ledger)
        at = report.started_at.timestamp()
        is_holding = frame.policy.on_unknown == "hold"
        names = report.run_id, report.job, report.command
        account = frame.account
        key = start_run(connection, *names, at, suppressed_by, is_holding=is_holding, account=account)
        name_run(ledger.store, key)
    return key, bases


async def keep_lease(store: Store, renew: Callable[[], Awaitable[object]], stop: Stop) -> None:
    """Renew the lease of the ledger, also while the run waits for anything else than the ledger; end the run when the
    lease is lost. `renew` makes one transaction of the store."""
    if store.lease is None:
        return
    while True:
        await asyncio.sleep(_RENEWED_S)
        try:
            await renew()
        except LedgerError as error:
            stop.end(str(error))
            return


def _end(run: Run) -> None:
    report, outcomes, tally = run.report, run.tally.outcomes, run.tally
    reason = run.reason or run.rows.failure
    if run.rows.failure is not None and reason != run.rows.failure:
        report.messages.append(run.rows.failure)
    try:
        report.rows = count_rows(tally.read, outcomes)
    except UncountedError as error:
        report.rows, reason = error.rows, f"{reason or 'a fault of the program'}; besides, {error}"
    report.settled = {"found": tally.settled_found, "absent": tally.settled_absent}
    report.echo = dict(sorted(tally.altered.items()))
    report.activity = {"active": tally.active, "inactive": outcomes[Outcome.CREATED] - tally.active}
    report.samples = tally.samples if report.is_planned else None
    report.opt_outs = tally.opt_outs
    report.causes, report.changed_fields = run.rows.findings.causes, dict(run.rows.findings.changed_fields)
    report.rejects_file, report.drift_file = run.rows.rejects_path, run.rows.drift_path
    if run.problems.fails_on_new_only:
        is_partial = bool(run.problems.count_new().total())
    else:
        is_partial = any(outcomes[each] for each in _FOR_A_PERSON) or bool(tally.opt_outs)
    report.messages += describe_twins(tally.twins)
    is_partial = is_partial or any(tally.leftovers[each] for each in (*_FOR_A_PERSON, "held"))
    is_partial = is_partial or run.is_attention_needed
    if tally.unclear:
        report.messages.append(
            f"{count(tally.unclear, 'row')} {agree(tally.unclear, 'was', 'were')} kept back as suppressed, because the "
            "list shows the identity in a base of the account without an IsActive that can be read. Nothing tells "
            "whether these people have unsubscribed: look them up in the service"
        )
    is_partial = is_partial or bool(tally.twins or tally.unclear)
    status: Status = "aborted" if reason is not None else "partial" if is_partial else "ok"
    end_run(report, run.stop, status, run.clock.now(), reason)
