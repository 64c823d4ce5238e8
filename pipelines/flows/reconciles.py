"""The flow of `connector reconcile`: read source and list, join both with the ledger, and report the differences."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, aclosing, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from connector.choices import ZIP_FIELDS
from connector.control import Stop, enter_in_thread, work_beside
from connector.errors import OTHER_ACCOUNT, ConfigurationError, ConnectorError, LockedError, RunAborted
from connector.fields import NAMES, BaseRef
from connector.imports.base_loads import describe_base
from connector.imports.flow import describe_load
from connector.imports.plan import LoadPlan
from connector.imports.suppression import read_suppression
from connector.jobs.load_planner import RunRequest, plan_sync
from connector.jobs.models import Job
from connector.ledger.entries import Ledger
from connector.ledger.opening import open_ledger, start_pace
from connector.ledger.planned import open_planned_ledger
from connector.ledger.records import find_open_run, list_bases, read_largest_lag
from connector.listing.controls import Ask
from connector.listing.pages import try_page
from connector.listing.reader import ListProgress, read_list
from connector.paging.certificate import Certificate, TotalCount, describe_hidden
from connector.progress import Progress, ProgressMeter
from connector.reconcile import Comparison
from connector.runs.frame import keep_lease
from connector.runs.report import Report, end_report, end_run, record_report, start_report
from connector.service.client import Client, open_client
from connector.service.retry import Retrier
from connector.service.wire import ListQuery
from connector.settings import Settings, build_service
from connector.spooled_rows import SpooledRows
from connector.states import State
from connector.subscribers.preparation import prepare_chunks
from connector.subscribers.rules import FieldMapping, ValidationRules
from connector.texts import agree, count
from pipelines.flows.reconcile_sides import (
    CONFIRMED,
    NAMELESS,
    ROWS,
    Sides,
    SourceRows,
    add_entries,
    report_differences,
)
from pipelines.report.differences import DifferenceFile, Differences

_CONNECTIONS = 4  # a list is read page after page

_SAMPLE = "SELECT subscriber_id FROM vanished USING SAMPLE reservoir(50 ROWS) REPEATABLE (1)"  # architecture 4.10

_STILL_VANISHED = """
SELECT side, digest FROM vanished WHERE NOT EXISTS (SELECT 1 FROM listed WHERE listed.id = vanished.subscriber_id)
AND NOT EXISTS (SELECT 1 FROM listed JOIN base_side USING (base)
    WHERE base_side.side = vanished.side AND listed.digest = vanished.digest)
"""


async def find_listed_by_id(ask: Ask, ids: Sequence[int]) -> tuple[int, int]:
    """Look vanished subscribers up by Id (service-api.md 4.3). Return the number that the service shows, and the number
    of look-ups. If the service ignores the filter, stop after one look-up."""
    found_count = lookup_count = 0
    for subscriber_id in ids:
        page = await ask(ListQuery(limit=1, id=subscriber_id))
        shown_ids = [] if page is None else [row.get("Id") for row in page.subscribers]
        if any(shown_id != subscriber_id for shown_id in shown_ids):
            break
        lookup_count += page is not None
        found_count += bool(shown_ids)
    return found_count, lookup_count


@dataclass(frozen=True, slots=True)
class ReconcilePlan:
    """The load whose source is compared, and the path of the file of differences (None: no file).

    `is_forgetting`: lock the ledger, and delete the entries of vanished subscribers; `is_sure`: also if a base has lost
    all its subscribers.
    """

    load: LoadPlan
    to: Path | None = None
    is_total_count_ignored: bool = False
    allow_truncated: bool = False
    is_forgetting: bool = False
    is_sure: bool = False


def plan_reconcile(job: Job, settings: Settings, *, wait_s: float) -> ReconcilePlan:
    """Return the plan with the complete source of the job, opened. Raises ConfigurationError and SourceError."""
    return ReconcilePlan(plan_sync(job, settings, RunRequest(wait_s=wait_s, is_full=True)))


async def run_reconcile(plan: ReconcilePlan, stop: Stop, progress: Progress) -> Report:
    """Compare source, ledger and list, and return the report. The ledger changes only if the plan is to forget.

    Raises ConfigurationError before anything is read. A run that has begun always returns its report.
    """
    clock, load, settings = stop.clock, plan.load, plan.load.settings
    report = start_report("reconcile", load.rows.job, clock.now(), describe_load(load))
    report.rows = dict.fromkeys(ROWS, 0)
    source_rows = SpooledRows(load.rows.source, load.rows.rules.identity)
    reconciliation = _Reconciling(plan, source_rows, report, stop, progress)
    with closing(source_rows), record_report(report, settings.state_dir, settings.retention_s, clock.now):
        try:
            pace = await start_pace(settings, load.policy.max_rate, clock, stop)
            opened: AbstractContextManager[Ledger] = open_planned_ledger(settings.ledger_url, settings.account)
            if plan.is_forgetting:
                is_stopped = stop.event.is_set
                opened = open_ledger(settings.ledger_url, wait_s=load.wait_s, is_stopped=is_stopped, may_make=False)
            async with (
                enter_in_thread(opened, stop) as ledger,
                open_client(build_service(settings, _CONNECTIONS), rate=pace.rate) as client,
            ):

                async def renew() -> None:
                    with ledger.transaction():
                        pass  # each transaction renews the lease

                try:
                    async with work_beside(keep_lease(ledger.store, renew, stop)):
                        await stop.until_stopped(reconciliation.carry_out(ledger, client), is_cancelled_once=True)
                finally:
                    stop.is_recording = True
                    report.copy_request_counts(client)
            end_report(report, "ok" if reconciliation.found.is_in_agreement else "partial", clock.now())
        except LockedError as error:
            report.signal = stop.signal
            end_report(report, "locked" if stop.signal is None else "stopped", clock.now(), str(error))
        except ConfigurationError:
            raise
        except ConnectorError as error:
            end_run(report, stop, "aborted", clock.now(), str(error))
    return report


class _Reconciling:
    """One reconciliation in progress."""

    def __init__(
        self, plan: ReconcilePlan, source_rows: SpooledRows, report: Report, stop: Stop, progress: Progress
    ) -> None:
        self._plan, self._load, self._source_rows, self._report = plan, plan.load, source_rows, report
        self._stop, self._progress, self._clock = stop, progress, stop.clock
        self.found = Differences()

    async def carry_out(self, ledger: Ledger, client: Client) -> None:
        """Read the list, compare, and report. With `--forget-missing`, delete the entries of vanished subscribers."""
        load, report, identity = self._load, self._report, self._load.rows.rules.identity
        names, account = _list_compared_fields(load.rows.mapping, load.rows.rules), load.settings.account
        suppression = None
        if load.rows.suppression is not None:
            try:
                suppression, messages = await asyncio.to_thread(
                    read_suppression, load.rows.suppression, self._stop.event.is_set
                )
            except ConfigurationError as error:
                raise RunAborted(str(error)) from None
            report.messages += messages
        await self._read_source()
        report.messages += self._source_rows.messages
        await self._look_at_other_runs(ledger)
        with Comparison(identity, names) as comparison:
            certificate = await self._read_list(ledger, client, comparison)
            report.certificate = certificate.as_report()
            if certificate.hidden:
                report.messages.append(describe_hidden(certificate))
            is_certain = self.found.is_certain = certificate.is_complete
            sides = Sides(comparison.bases, ledger, account)
            source = SourceRows(load, suppression, comparison, sides, names)
            report.rows = source.rows
            for prepared in self._source_rows.read():
                source.add_chunk(prepared)
                await asyncio.sleep(0)
            self._progress.follow(lambda: "comparing with the ledger")
            add_entries(comparison, sides, ledger, identity)
            comparison.assign_bases(sides.listed_sides)
            comparison.join()
            report.unmapped_columns = list(load.rows.unmapped_columns)
            with DifferenceFile(self._plan.to) as file:
                report_differences(comparison, sides.bases, identity, names, self.found, file)
                report.reconciled = self.found.as_json()  # also if the file cannot be written
                self.found.file = file.publish()
                report.reconciled = self.found.as_json()
            if not is_certain:
                report.messages.append(
                    f"the list is not known to be complete ({certificate.reason}). So its missing, extra and "
                    "vanished subscribers are not certain. Duplicated and drifted subscribers are certain, as far as "
                    "they are listed"
                )
            ((nameless_count,),) = comparison.fetch(NAMELESS)
            if nameless_count:
                consequence = agree(nameless_count, "is", "are") + (" extra" if is_certain else " not compared")
                verb = agree(nameless_count, "has", "have")
                report.messages.append(
                    f"{count(nameless_count, 'listed subscriber')} {verb} no {identity} and {consequence}"
                )
            for side, known_count, listed_count, _ in list(comparison.fetch(CONFIRMED)):
                if is_certain and not listed_count:
                    report.messages.append(
                        f"{describe_base(sides.bases[side])}: none of the {known_count:,} subscribers that the ledger "
                        f"knows is listed: {OTHER_ACCOUNT}"
                    )
            report.messages += source.remark()
            if self._plan.is_forgetting:
                await self._forget(comparison, sides, certificate, ledger, client)

    async def _look_at_other_runs(self, ledger: Ledger) -> None:
        """Report a run that is active. Wait until the list shows the subscribers that a run has just confirmed: for a
        quiet period, or for the largest lag on record."""
        now = self._clock.now().timestamp()
        with ledger.transaction() as connection:
            run_id = find_open_run(connection)
            lag_s = read_largest_lag(connection, self._load.settings.account)
            shown_after_s = max(self._load.policy.quiet_period_s, lag_s)
            confirmed_at = ledger.find_last_confirmation(now - shown_after_s, now)
        if run_id is not None and not self._plan.is_forgetting:  # under the lock, a run without an end has died
            self._report.messages.append(
                f"the run {run_id} is active, or has died. Subscribers that it creates during the comparison may be "
                "counted as missing or extra"
            )
        if confirmed_at is not None:
            self._progress.follow(lambda: "waiting until the list shows the latest subscribers")
            await self._clock.sleep(min(max(confirmed_at + shown_after_s - now, 0.0), shown_after_s))

    async def _read_list(self, ledger: Ledger, client: Client, comparison: Comparison) -> Certificate:
        progress_meter = ProgressMeter(self._clock.monotonic)
        with ledger.transaction() as connection:
            bases = list_bases(connection, self._load.settings.account)

        def follow(reading: ListProgress) -> None:
            progress_text = f"sweep {reading.sweep}: {reading.rows:,} listed"
            self._progress.follow(
                lambda: f"{progress_text}; {progress_meter.describe(reading.rows, reading.total)}".rstrip("; ")
            )

        return await read_list(
            client,
            Retrier(),
            ListQuery(),
            comparison,
            now=self._clock.now,
            on_progress=follow,
            unlisted_bases=[base.service_id for base in bases if base.service_id is not None],
            ignore_total_count=self._plan.is_total_count_ignored,
            allow_truncated=self._plan.allow_truncated,
        )

    async def _read_source(self) -> None:
        """Read the source to its end and close it, before the list is read. Raises RunAborted if it has no rows."""
        load, record_count = self._load, 0
        chunks = prepare_chunks(
            load.rows.source,
            load.rows.mapping,
            load.rows.rules,
            today=self._clock.now().date(),
            limit=None,
            base=load.rows.base_column,
        )
        self._progress.follow(lambda: f"{record_count:,} rows of the source read")
        async with aclosing(self._source_rows.spool_in_thread(chunks, self._stop)) as reading:
            async for prepared in reading:
                record_count += prepared.chunk.record_count
        if not self._source_rows.is_read:
            raise RunAborted("the run was stopped while its source was being read")
        if not record_count and load.rows.is_empty_refused:
            raise RunAborted(f"{load.rows.source.name} has a header and no rows, so nothing was compared")

    async def _forget(
        self, comparison: Comparison, sides: Sides, certificate: Certificate, ledger: Ledger, client: Client
    ) -> None:
        """Delete the entries of vanished subscribers, if a second listing, a quiet period later, does not show them
        either."""
        self.found.forgotten = 0
        self._report.reconciled = self.found.as_json()
        if not _is_proof(certificate):
            self._report.messages.append("no subscriber was forgotten: the list is not known to be complete")
            return
        rows = list(comparison.fetch(CONFIRMED))
        empty_bases = [
            describe_base(sides.bases[side])
            for side, _, listed_count, vanished_count in rows
            if vanished_count and not listed_count
        ]
        if empty_bases and not self._plan.is_sure:  # architecture 4.10
            raise RunAborted(
                f"no subscriber was forgotten: none that the ledger knows is listed in {', '.join(empty_bases)}: "
                f"{OTHER_ACCOUNT}. Check the token and the base. If somebody erased the subscribers on purpose, add "
                "--yes"
            )
        sample = [subscriber_id for (subscriber_id,) in comparison.fetch(_SAMPLE)]
        if not sample:
            return
        found_count, lookup_count = await find_listed_by_id(partial(try_page, client, Retrier()), sample)
        if found_count:
            self._report.messages.append(
                f"no subscriber was forgotten: a look-up by Id shows {found_count:,} of {lookup_count:,} subscribers "
                "that the list leaves out. So the list is cut off, or it lags behind"
            )
            return
        self._progress.follow(lambda: "waiting before the second listing")
        await self._clock.sleep(self._load.policy.quiet_period_s)
        comparison.start_sweep(0)
        second_certificate = await self._read_list(ledger, client, comparison)
        if not _is_proof(second_certificate):
            self._report.messages.append(
                f"no subscriber was forgotten: a second listing is not known to be complete "
                f"({second_certificate.reason})"
            )
            return
        self.found.forgotten = _forget_vanished(comparison, sides, ledger, self._load.settings.account)
        self._report.reconciled = self.found.as_json()
        self._report.messages.append(
            f"{self.found.forgotten:,} forgotten. The next run that reads their rows creates these subscribers again. "
            "A job with a cursor needs sync --full"
        )


def _forget_vanished(comparison: Comparison, sides: Sides, ledger: Ledger, account: str) -> int:
    """Delete the entries of vanished subscribers that the second listing in `comparison` does not show either. Return
    the number of deleted entries.

    Deletes all of them or none. Raises LedgerError, and the errors of `Sides.find`.
    """
    second_sides = Sides(comparison.bases, ledger, account)
    for base in sides.bases:
        second_sides.find(BaseRef(base.service_id) if base.service_id is not None else BaseRef(name=base.name))
    if len(second_sides.bases) < len(sides.bases):
        raise RunAborted("no subscriber was forgotten: two bases became one during the comparison. Run again")
    comparison.assign_bases(second_sides.listed_sides)
    identities_by_side: dict[int, list[bytes]] = {}
    for side, identity in comparison.fetch(_STILL_VANISHED):
        identities_by_side.setdefault(side, []).append(identity)
    with ledger.transaction():
        for side, identities in identities_by_side.items():
            ledger.mark_forgotten(second_sides.bases[side], State.CONFIRMED, identities)
    return sum(map(len, identities_by_side.values()))


def _is_proof(certificate: Certificate) -> bool:
    """Return whether the list is complete and its TotalCount agrees."""
    return certificate.is_complete and certificate.total_count is TotalCount.CHECKED


def _list_compared_fields(mapping: FieldMapping, rules: ValidationRules) -> tuple[str, ...]:
    """Return the fields that a row may send, without the identity, in the order of the field table."""
    filled_fields = {
        *mapping.rules,
        *([rules.zip] if "address_zip" in mapping.rules and rules.zip in ZIP_FIELDS else []),
    }
    return tuple(name for name in NAMES if name in filled_fields and name != rules.identity)
