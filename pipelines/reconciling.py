"""The flow of `connector reconcile`: the list, then the source beside it and beside the ledger, then what differs."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, aclosing, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from connector.choices import ZIP_FIELDS
from connector.clock import Clock, system_clock
from connector.errors import ConfigurationError, ConnectorError, LockedError, RunAborted
from connector.fields import NAMES
from connector.ledger import (
    Ledger,
    find_last_confirming,
    list_runs,
    open_ledger,
    open_private_copy,
    read_largest_lag,
)
from connector.listing import Progress as ListProgress, read_list, try_page
from connector.pages import Certificate, TotalCount
from connector.reconcile import ListedPeople
from connector.service import Client, ListQuery, Retrier, open_client
from connector.subscribers import FieldMapping, Suppression, ValidationRules, prepare_chunks
from pipelines.jobs import Job, Settings, build_service
from pipelines.loads.loading import LoadPlan
from pipelines.loads.planning import plan_sync
from pipelines.reconciles.base_side import Shared
from pipelines.reconciles.bases import build_wanted, list_asked
from pipelines.reconciles.difference_file import DifferenceFile
from pipelines.reconciles.differences import Differences
from pipelines.reconciles.source_side import ROWS, SourceSide
from pipelines.reconciles.vanished import describe_known, find_there, forget, refuse_emptied
from pipelines.rows.reading_ahead import ReadingAhead
from pipelines.rows.suppressing import read_suppression
from pipelines.runs.progress import Progress
from pipelines.runs.report import Report, Status, count_requests, end_report, start_report
from pipelines.runs.stopping import Stop, enter_in_thread, until_stopped

_CONNECTIONS = 4  # a list is read page after page


@dataclass(frozen=True, slots=True)
class ReconcilePlan:
    """The load whose source is compared, and where the differences go one by one (None: nowhere).

    `is_forgetting`: whoever has vanished leaves the ledger, which is locked for that; `is_sure`: even if that is
    everybody whom it knows.
    """

    load: LoadPlan
    to: Path | None = None
    is_total_count_ignored: bool = False
    is_cut_off_accepted: bool = False
    is_forgetting: bool = False
    is_sure: bool = False


def plan_reconcile(job: Job, settings: Settings, *, wait_s: float) -> ReconcilePlan:
    """All of the job's source, opened. Raises ConfigurationError and SourceError."""
    return ReconcilePlan(plan_sync(job, settings, limit=None, wait_s=wait_s, is_full=True))


async def run_reconcile(plan: ReconcilePlan, stop: Stop, progress: Progress, clock: Clock | None = None) -> Report:
    """Compare, and tell what differs; the ledger is read as it stands, and written only to forget.

    Raises ConfigurationError before anything is read; a run that has begun always ends in a report.
    """
    clock = clock or system_clock()
    report = start_report("reconcile", plan.load.job, clock.now())
    report.rows = dict.fromkeys(ROWS, 0)
    reconciling = _Reconciling(plan, report, stop, progress, clock)
    ending: BaseException | None = None
    try:
        async with (
            enter_in_thread(_open_ledger(plan, stop), stop) as ledger,
            open_client(build_service(plan.load.settings, _CONNECTIONS)) as client,
        ):
            ending = await until_stopped(reconciling.carry_out(ledger, client), stop)
            report.requests = count_requests(client.counts)
    except ConnectorError as error:  # of the ledger's opening
        ending = error
    finally:
        if not reconciling.is_left_behind:  # a thread that still reads it would be disturbed
            plan.load.source.close()
    return _end(report, reconciling.found, ending, stop, clock)


def _open_ledger(plan: ReconcilePlan, stop: Stop) -> AbstractContextManager[Ledger]:
    """A private copy, so that a run may go on meanwhile; to forget, the ledger itself, alone."""
    settings, is_stopped = plan.load.settings, stop.event.is_set
    if not plan.is_forgetting:
        return open_private_copy(settings.ledger_url, settings.account, is_stopped)
    return open_ledger(settings.ledger_url, wait_s=plan.load.wait_s, is_stopped=is_stopped, may_make=False)


class _Reconciling:
    """One reconciliation in progress."""

    def __init__(self, plan: ReconcilePlan, report: Report, stop: Stop, progress: Progress, clock: Clock) -> None:
        self._plan, self._load, self._report = plan, plan.load, report
        self._stop, self._progress, self._clock = stop, progress, clock
        self._identity = plan.load.rules.identity
        self.found = Differences()
        self.is_left_behind = False  # a thread that still reads the source, when the run was stopped

    async def carry_out(self, ledger: Ledger, client: Client) -> None:
        """List, compare, tell; and forget if that was asked for."""
        names = _list_compared(self._load.mapping, self._load.rules)
        suppression = await self._read_suppression()
        self._report.messages += self._describe_others(ledger)
        await self._give_time_to_show(ledger)
        wanted = build_wanted(list_asked(self._load.base), ledger, self._load.settings.account)
        with closing(ListedPeople(self._identity, names, wanted)) as listed, DifferenceFile(self._plan.to) as file:
            certificate = await self._list(client, listed)
            self._report.certificate = certificate.as_report()
            self.found.is_certain = certificate.is_complete
            shared = Shared(ledger, listed, listed.collect_ids(), self._identity, names, self.found, file)
            source = SourceSide(self._load, suppression, shared)
            self._report.rows = source.rows
            await self._read_source(source)
            self._progress.follow(lambda: "comparing with the ledger")
            source.finish()
            self._report.unmapped_columns = list(self._load.unmapped_columns)
            self._report.reconciled = self.found.as_json()  # also if the file cannot be written
            self.found.file = file.publish()
            self._report.reconciled = self.found.as_json()
        self._report.messages += [*self._describe_list(certificate, source), *describe_known(source.sides)]
        self._report.messages += source.remark()
        if self._plan.is_forgetting:
            await self._forget(source, certificate, ledger, client)

    async def _read_suppression(self) -> Suppression | None:
        if self._load.suppression is None:
            return None
        try:
            suppression, messages = await asyncio.to_thread(
                read_suppression, self._load.suppression, self._stop.event.is_set
            )
        except ConfigurationError as error:
            raise RunAborted(str(error)) from None
        self._report.messages += messages
        return suppression

    async def _give_time_to_show(self, ledger: Ledger) -> None:
        """A subscriber whom a run has confirmed less than a quiet period ago, or less than the largest lag on record,
        may not show on the list yet."""
        account, now = self._load.settings.account, self._clock.now().timestamp()
        with ledger.transaction() as connection:
            shown_after_s = max(self._load.policy.quiet_period_s, read_largest_lag(connection, account))
            at = find_last_confirming(connection, now - shown_after_s, now)
        if at is not None:
            self._progress.follow(lambda: "waiting until subscribers that were just created show")
            await self._clock.sleep(min(max(at + shown_after_s - now, 0.0), shown_after_s))

    async def _list(self, client: Client, listed: ListedPeople) -> Certificate:
        def follow(reading: ListProgress) -> None:
            total = f" of {reading.total:,}" if reading.total is not None else ""
            self._progress.follow(lambda: f"sweep {reading.sweep}: {reading.rows:,}{total} listed")

        return await read_list(
            client,
            Retrier(),
            ListQuery(),
            listed,
            now=self._clock.now,
            on_progress=follow,
            ignore_total_count=self._plan.is_total_count_ignored,
            accept_cut_off_possible=self._plan.is_cut_off_accepted,
        )

    async def _read_source(self, source: SourceSide) -> None:
        load = self._load
        chunks = prepare_chunks(
            load.source, load.mapping, load.rules, today=self._clock.now().date(), limit=None, base=load.base_column
        )
        ahead = ReadingAhead(chunks, self._stop.event)
        self._progress.follow(lambda: f"{source.rows['read']:,} compared")
        try:
            async with aclosing(ahead.read()) as reading:
                async for prepared in reading:
                    source.take(prepared)
        finally:
            self.is_left_behind = ahead.is_left_behind
        if self._stop.event.is_set():  # the rest of the source is not known
            raise RunAborted("the run was stopped while its source was being read")
        if not source.rows["read"] and load.is_empty_refused:
            raise RunAborted(f"{load.source.name} has a header and no rows: there is nothing to compare")

    async def _forget(self, source: SourceSide, certificate: Certificate, ledger: Ledger, client: Client) -> None:
        """Have whoever has vanished leave the ledger, if another listing, a quiet period later, does not show them."""
        self.found.forgotten = 0
        self._report.reconciled = self.found.as_json()
        if not _is_proof(certificate):
            self._report.messages.append("no subscriber was forgotten: the list is not known to be complete")
            return
        refuse_emptied(source.sides, is_sure=self._plan.is_sure)
        if not any(len(side.vanished) for side in source.sides):
            return
        there, asked = await find_there(partial(try_page, client, Retrier()), source.sides)
        if there:
            self._report.messages.append(
                f"no subscriber was forgotten: {there:,} of {asked:,} subscribers that the list leaves out are in the "
                "service, asked for by Id, so the list is cut off or lags behind"
            )
            return
        self._progress.follow(lambda: "waiting, to list once more whom to forget")
        await self._clock.sleep(self._load.policy.quiet_period_s)
        wanted = build_wanted(list_asked(self._load.base), ledger, self._load.settings.account)
        with closing(ListedPeople(self._identity, (), wanted)) as listed:
            again = await self._list(client, listed)
            if not _is_proof(again):
                self._report.messages.append(
                    f"no subscriber was forgotten: a second listing is not known to be complete ({again.reason})"
                )
                return
            self.found.forgotten = forget(source.sides, listed, ledger, self._identity)
        self._report.reconciled = self.found.as_json()
        self._report.messages.append(
            f"{self.found.forgotten:,} forgotten: the next run that reads their rows creates them again (a job "
            "with a cursor needs sync --full)"
        )

    def _describe_others(self, ledger: Ledger) -> Iterator[str]:
        if self._plan.is_forgetting:
            return  # the lock is ours: a run without an end has died
        with ledger.transaction() as connection:
            runs = list_runs(connection, 1)
        if runs and runs[0].status is None:
            yield (
                f"the run {runs[0].run_id} goes on, or has died: whom it creates meanwhile may be told as missing or "
                "extra"
            )

    def _describe_list(self, certificate: Certificate, source: SourceSide) -> Iterator[str]:
        if not self.found.is_certain:
            yield (
                f"the list is not known to be complete ({certificate.reason}): who is missing, extra or vanished "
                "cannot be told; who is duplicated or drifted is so, of those who were seen"
            )
        if nameless := sum(len(side.nameless) for side in source.sides):
            are_extra = "are extra" if self.found.is_certain else "were compared with nobody"
            yield f"{nameless:,} whom the service lists have no {self._identity} and {are_extra}"


def _is_proof(certificate: Certificate) -> bool:
    """Whether nothing stands against it, TotalCount neither."""
    return certificate.is_complete and certificate.total_count is TotalCount.CHECKED


def _end(report: Report, found: Differences, ending: BaseException | None, stop: Stop, clock: Clock) -> Report:
    """The report's status, by how the work ended."""
    if isinstance(ending, asyncio.CancelledError):
        report.signal = stop.signal
        return end_report(report, "stopped", clock.now())
    if isinstance(ending, LockedError):
        report.signal = stop.signal
        return end_report(report, "locked" if stop.signal is None else "stopped", clock.now(), str(ending))
    if isinstance(ending, ConnectorError) and not isinstance(ending, ConfigurationError):
        report.signal = stop.signal
        return end_report(report, "aborted" if stop.signal is None else "stopped", clock.now(), str(ending))
    if ending is not None:
        raise ending
    status: Status = "ok" if found.are_none else "partial"
    return end_report(report, status, clock.now())


def _list_compared(mapping: FieldMapping, rules: ValidationRules) -> tuple[str, ...]:
    """Every field that a row may send but for its identity, in the order of the field table."""
    filled = {*mapping.rules, *([rules.zip] if "address_zip" in mapping.rules and rules.zip in ZIP_FIELDS else [])}
    return tuple(name for name in NAMES if name in filled and name != rules.identity)
