"""The flow of `connector reconcile`: read source and list, join both with the ledger, and report the differences."""

import asyncio
from contextlib import aclosing, closing
from dataclasses import dataclass
from pathlib import Path

from connector.choices import CUSTOM_FIELDS_FOR_ZIPS
from connector.control import Stop, enter_in_thread
from connector.errors import OTHER_ACCOUNT_MESSAGE, ConfigurationError, ConnectorError, RunAborted
from connector.fields import FIELD_NAMES
from connector.imports.base_loads import describe_base
from connector.imports.flow import describe_load
from connector.imports.plan import LoadPlan
from connector.imports.suppression import read_suppression
from connector.ledger.entries import Ledger
from connector.ledger.opening import start_pace
from connector.ledger.planned import open_planned_ledger
from connector.ledger.records import find_open_run, list_bases, read_largest_lag
from connector.listing.dispatching import ListProgress
from connector.listing.reader import LIST_CONNECTION_COUNT, read_list
from connector.paging.certificate import Certificate, describe_hidden_groups
from connector.progress import Progress, ProgressMeter
from connector.reconcile import Comparison
from connector.runs.report import Report, end_report, end_run, record_report, start_report
from connector.service.client import Client, open_client
from connector.service.retry import Retrier
from connector.service.wire import ListQuery
from connector.settings import build_service
from connector.spooled_rows import SpooledRows
from connector.subscribers.rules import FieldMapping, ValidationRules
from connector.texts import choose_form, count
from pipelines.flows.reconcile_sides import (
    COUNT_CONFIRMED_ENTRIES_SQL,
    COUNT_UNIDENTIFIED_SUBSCRIBERS_SQL,
    ROW_COUNT_NAMES,
    ComparedBases,
    SourceRows,
    add_entries,
    report_differences,
)
from pipelines.report.differences import DifferenceFile, Differences


@dataclass(frozen=True, slots=True)
class ReconcilePlan:
    """The load whose complete source is compared, and the path of the file of differences (None: no file)."""

    load_plan: LoadPlan
    differences_path: Path | None
    is_total_count_ignored: bool
    allow_truncated: bool


async def run_reconcile(plan: ReconcilePlan, stop: Stop, progress: Progress) -> Report:
    """Compare source, ledger and list, and return the report. The ledger does not change.

    Raises ConfigurationError before anything is read. A run that has begun always returns its report.
    """
    clock, load_plan, settings = stop.clock, plan.load_plan, plan.load_plan.settings
    report = start_report("reconcile", load_plan.rows.job, clock.now(), describe_load(load_plan))
    report.rows = dict.fromkeys(ROW_COUNT_NAMES, 0)
    source_rows = SpooledRows(load_plan.rows.source, load_plan.rows.rules.identity_field)
    reconciliation = _Reconciliation(plan, source_rows, report, stop, progress)
    with closing(source_rows), record_report(report, settings.state_dir, settings.retention_s, clock.now):
        try:
            pace = await start_pace(settings, load_plan.policy.max_rate, clock, stop)
            async with (
                enter_in_thread(open_planned_ledger(settings.ledger_url, settings.account), stop) as ledger,
                open_client(build_service(settings, LIST_CONNECTION_COUNT), rate=pace.rate) as client,
            ):
                try:
                    await stop.wait_until_stopped(reconciliation.execute(ledger, client), cancels_only_once=True)
                finally:
                    stop.ignores_second_signal = True
                    report.copy_request_counts(client)
            end_report(report, "ok" if reconciliation.differences.is_in_agreement else "partial", clock.now())
        except ConfigurationError:
            raise
        except ConnectorError as error:
            end_run(report, stop, "aborted", clock.now(), str(error))
    return report


class _Reconciliation:
    """One reconciliation in progress."""

    def __init__(
        self, plan: ReconcilePlan, source_rows: SpooledRows, report: Report, stop: Stop, progress: Progress
    ) -> None:
        self._plan, self._load_plan, self._source_rows, self._report = plan, plan.load_plan, source_rows, report
        self._stop, self._progress, self._clock = stop, progress, stop.clock
        self.differences = Differences()

    async def execute(self, ledger: Ledger, client: Client) -> None:
        """Read the source and the list, compare both with the ledger, and write the report."""
        load_plan, report, identity_field = self._load_plan, self._report, self._load_plan.rows.rules.identity_field
        names, account = _list_compared_fields(load_plan.rows.mapping, load_plan.rows.rules), load_plan.settings.account
        suppression = None
        if load_plan.rows.suppression is not None:
            suppression, messages = await asyncio.to_thread(
                read_suppression, load_plan.rows.suppression, self._stop.event.is_set
            )
            report.messages += messages
        await self._read_source()
        report.messages += self._source_rows.messages
        await self._wait_for_other_runs(ledger)
        with Comparison(identity_field, names) as comparison:
            certificate = await self._read_list(ledger, client, comparison)
            report.certificate = certificate.as_report()
            if certificate.hidden:
                report.messages.append(describe_hidden_groups(certificate))
            is_certain = self.differences.is_certain = certificate.is_complete
            compared_bases = ComparedBases(comparison.bases, ledger, account)
            source_rows = SourceRows(load_plan, suppression, comparison, compared_bases, names)
            report.rows = source_rows.row_counts
            for prepared_chunk in self._source_rows.read():
                source_rows.add_chunk(prepared_chunk)
                await asyncio.sleep(0)
            self._progress.set_describe_function(lambda: "comparing with the ledger")
            add_entries(comparison, compared_bases, ledger, identity_field)
            comparison.assign_bases(compared_bases.listed_base_numbers)
            comparison.join_tables()
            report.unmapped_columns = list(load_plan.rows.unmapped_columns)
            with DifferenceFile(self._plan.differences_path) as file:
                report_differences(comparison, compared_bases.bases, identity_field, names, self.differences, file)
                report.reconciled = self.differences.as_json()  # set already here, because `publish` may fail
                self.differences.file_path = file.publish()
                report.reconciled = self.differences.as_json()
            if not is_certain:
                report.messages.append(
                    f"the list is not known to be complete ({certificate.reason}). So the missing, extra and "
                    "vanished subscribers are not certain. The duplicated and drifted subscribers of the report are "
                    "certain, but more may exist"
                )
            ((subscriber_count,),) = comparison.fetch_rows(COUNT_UNIDENTIFIED_SUBSCRIBERS_SQL)
            if subscriber_count:
                verb = choose_form(subscriber_count, "has", "have")
                consequence_text = choose_form(subscriber_count, "is", "are") + (
                    " extra" if is_certain else " not compared"
                )
                report.messages.append(
                    f"{count(subscriber_count, 'listed subscriber')} {verb} no {identity_field} and {consequence_text}"
                )
            for base_number, confirmed_count, listed_count in list(comparison.fetch_rows(COUNT_CONFIRMED_ENTRIES_SQL)):
                if is_certain and not listed_count:
                    report.messages.append(
                        f"{describe_base(compared_bases.bases[base_number])}: none of the {confirmed_count:,} "
                        f"subscribers that the ledger knows is listed: {OTHER_ACCOUNT_MESSAGE}"
                    )
            report.messages += source_rows.list_messages()

    async def _wait_for_other_runs(self, ledger: Ledger) -> None:
        """Report a run that is active. If a run has just confirmed subscribers, wait until the list shows them.
        The wait ends a quiet period after the end of the run that confirmed subscribers last. If the largest recorded
        lag of the list is longer than a quiet period, the wait ends after this lag."""
        now = self._clock.now().timestamp()
        with ledger.transaction() as connection:
            run_id = find_open_run(connection)
            lag_s = read_largest_lag(connection, self._load_plan.settings.account)
            max_list_lag_s = max(self._load_plan.policy.quiet_period_s, lag_s)
            last_run_ended_at = ledger.find_end_of_last_confirming_run(now - max_list_lag_s, now)
        if run_id is not None:
            self._report.messages.append(
                f"the run {run_id} is active, or was killed. Subscribers that this run creates during the comparison "
                "may be counted as missing or extra"
            )
        if last_run_ended_at is not None:
            self._progress.set_describe_function(lambda: "waiting until the list shows the latest subscribers")
            await self._clock.sleep(min(max(last_run_ended_at + max_list_lag_s - now, 0.0), max_list_lag_s))

    async def _read_list(self, ledger: Ledger, client: Client, comparison: Comparison) -> Certificate:
        progress_meter = ProgressMeter(self._clock.monotonic)
        with ledger.transaction() as connection:
            bases = list_bases(connection, self._load_plan.settings.account)

        def show_list_progress(list_progress: ListProgress) -> None:
            progress_text = f"pass {list_progress.sweep_number} over the list: {list_progress.row_count:,} listed"
            row_count, total_count = list_progress.row_count, list_progress.total_count
            self._progress.set_describe_function(
                lambda: f"{progress_text}; {progress_meter.describe(row_count, total_count)}".rstrip("; ")
            )

        return await read_list(
            client,
            Retrier(clock=self._clock),
            ListQuery(),
            comparison,
            now=self._clock.now,
            on_progress=show_list_progress,
            unlisted_base_ids=[base.service_id for base in bases if base.service_id is not None],
            ignore_total_count=self._plan.is_total_count_ignored,
            allow_truncated=self._plan.allow_truncated,
        )

    async def _read_source(self) -> None:
        """Read the source to its end, and close the source before the list is read. Raises RunAborted if the source has
        no rows."""
        load_plan, record_count = self._load_plan, 0
        chunks = load_plan.rows.prepare_chunks(self._clock.now().date(), suppression=None)
        self._progress.set_describe_function(lambda: f"{record_count:,} rows of the source read")
        async with aclosing(self._source_rows.spool_in_thread(chunks, self._stop)) as prepared_chunks:
            async for prepared_chunk in prepared_chunks:
                record_count += prepared_chunk.chunk.record_count
        if not self._source_rows.is_read:
            raise RunAborted("the run was stopped while its source was being read")
        if not record_count and load_plan.rows.refuses_empty_source:
            raise RunAborted(f"{load_plan.rows.source.name} has a header and no rows, so nothing was compared")


def _list_compared_fields(mapping: FieldMapping, rules: ValidationRules) -> tuple[str, ...]:
    """Return the fields that a row may send, without the identity, in the order of the field table."""
    filled_fields = {
        *mapping.rules,
        *([rules.zip_policy] if "address_zip" in mapping.rules and rules.zip_policy in CUSTOM_FIELDS_FOR_ZIPS else []),
    }
    return tuple(name for name in FIELD_NAMES if name in filled_fields and name != rules.identity_field)
