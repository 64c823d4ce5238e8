"""The flow of an export: read the list, certify it, write it, and report."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from connector.clock import Clock
from connector.control import Stop
from connector.errors import ConfigurationError, ConnectorError, LockedError
from connector.fields import BaseRef
from connector.pace.pace import Pace
from connector.progress import Progression
from connector.runs.report import (
    Report,
    RunScope,
    Status,
    describe_asked_base,
    describe_filters,
    describe_rate,
    drop_empty,
    end_report,
    end_run,
    record_report,
    start_report,
)
from connector.service.wire import ListQuery
from connector.settings import Settings, build_service
from connector.warehouse.destination import MAX_SHRINK, Destination

if TYPE_CHECKING:
    from connector.export.copying import Exported
    from connector.ledger.entries import Known, Ledger
    from connector.listing.reader import ListProgress
    from connector.paging.overlap import IdArray
    from connector.progress import Progress
    from connector.service.client import Client


_LOG = logging.getLogger(__name__)
_KNOWN_COMPARED = 20_000  # confirmed entries of a base that are compared with the list: finds 1 missing in 1,000
_QUIET_PERIOD_S = 30.0  # the default of `load.quiet_period`, which an export job cannot set


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """The list query, the destination and the settings of one export, and the faults of a list that it accepts.

    `allow_incomplete`: the list is not certified; `ignore_total_count`: only TotalCount disagrees; `allow_truncated`:
    the list may be cut off; `max_shrink`: the share by which the list may be smaller than the last one.
    """

    job: str
    query: ListQuery
    destination: Destination
    settings: Settings
    allow_incomplete: bool = False
    ignore_total_count: bool = False
    allow_truncated: bool = False
    max_shrink: float = MAX_SHRINK
    max_rate: float = inf  # list requests/s


async def run_export(plan: ExportPlan, stop: Stop, progress: Progress) -> Report:
    """Copy the list to the plan's destination, and report whether the list is complete."""
    from connector.listing.reader import LIST_CONNECTIONS
    from connector.service.client import open_client

    clock = stop.clock
    report = start_report("export", plan.job, clock.now(), _describe_scope(plan))
    report.rows = {"read": 0, "written": 0}
    service = build_service(plan.settings, LIST_CONNECTIONS)
    with record_report(report, plan.settings.state_dir, plan.settings.retention_s, clock.now):
        pace = Pace(plan.max_rate)
        if not plan.settings.has_no_ledger:
            from connector.ledger.opening import start_pace  # an export without a ledger does not wait for SQLAlchemy

            pace = await start_pace(plan.settings, plan.max_rate, clock, stop)
        async with open_client(service, rate=pace.rate) as client:
            try:
                # A cancellation leaves no half-written target: a writer publishes all rows at once, or none.
                copying = _copy(plan, report, client, progress, clock)
                exported = await stop.until_stopped(copying, is_cancelled_once=True)
                is_unchanged = bool(exported.note)  # the target was not written, and the note has the reason
                is_whole = exported.certificate.is_complete and not is_unchanged
                status: Status = "aborted" if exported.is_refused else "ok" if is_whole else "partial"
                end_report(report, status, clock.now())
            except LockedError as error:
                end_report(report, "locked", clock.now(), str(error))
            except ConfigurationError:
                raise
            except ConnectorError as error:
                end_run(report, stop, "aborted", clock.now(), str(error))
            finally:
                stop.is_recording = True
                report.note_requests(client, clock.monotonic())
        return report


def _describe_scope(plan: ExportPlan) -> RunScope:
    destination = plan.destination
    settings = {
        "mode": str(destination.mode) if destination.is_database else "",
        "filters": describe_filters(plan.query),
        "max_rate": describe_rate(plan.max_rate),
        "allow_incomplete": "yes" if plan.allow_incomplete else "",
        "ignore_total_count": "yes" if plan.ignore_total_count else "",
        "allow_truncated": "yes" if plan.allow_truncated else "",
    }
    base = describe_asked_base(BaseRef(plan.query.base_id)) or "all"
    return RunScope(plan.settings.service.base_url, str(destination), base, plan.settings.account, drop_empty(settings))


async def _copy(plan: ExportPlan, report: Report, client: Client, progress: Progress, clock: Clock) -> Exported:
    """Copy the list, and put its certificate and its rows into the report."""
    from connector.export.copying import export_subscribers
    from connector.paging.certificate import describe_hidden
    from connector.service.retry import Retrier

    started_at, progression = clock.now().timestamp(), Progression(clock.monotonic)

    async def find_lacking(ids: IdArray) -> Sequence[int]:
        try:
            return await asyncio.to_thread(_find_lacking, plan, started_at, ids)
        except ConnectorError as error:  # an export needs no ledger
            _LOG.warning("the ledger gives no evidence of whether the list is cut off: %s", error)
            return []

    def follow(reading: ListProgress) -> None:
        advance = f"sweep {reading.sweep}: {reading.rows:,} read"
        progress.follow(lambda: f"{advance}; {progression.describe(reading.rows, reading.total)}".rstrip("; "))

    exported = await export_subscribers(
        client,
        Retrier(),
        plan.query,
        plan.destination,
        run_id=report.run_id,
        now=clock.now,
        job=plan.job,
        allow_incomplete=plan.allow_incomplete,
        max_shrink=plan.max_shrink,
        ignore_total_count=plan.ignore_total_count,
        allow_truncated=plan.allow_truncated,
        find_lacking=find_lacking,
        known_bases=await asyncio.to_thread(_list_bases, plan),
        on_progress=follow,
    )
    report.certificate = exported.certificate.as_report()
    if exported.certificate.hidden:
        report.messages.append(describe_hidden(exported.certificate))
    report.rows = {"read": exported.certificate.distinct, "written": exported.written}
    if exported.note:
        report.messages.append(exported.note)
    return exported


def _list_bases(plan: ExportPlan) -> list[int]:
    """Return the Ids of the account's bases in the ledger, or an empty list if the ledger cannot be read."""
    if plan.settings.has_no_ledger:
        return []
    from connector.ledger.opening import read_ledger
    from connector.ledger.records import list_bases

    def read(ledger: Ledger) -> list[int]:
        bases = list_bases(ledger.connection, plan.settings.account)
        return [base.service_id for base in bases if base.service_id is not None]

    try:
        return read_ledger(plan.settings.ledger_url, read) or []
    except ConnectorError as error:  # an export needs no ledger
        _LOG.warning("the ledger gives no evidence of whether the list hides a base: %s", error)
        return []


def _find_lacking(plan: ExportPlan, started_at: float, ids: IdArray) -> Sequence[int]:
    """Return confirmed subscribers of the ledger that the list should have shown and that are not among `ids`
    (architecture 7, rule 7). Return none if a run may be creating subscribers now. Raises ConnectorError."""
    if plan.settings.has_no_ledger:
        return []
    import numpy as np

    from connector.ledger.opening import read_ledger
    from connector.ledger.records import find_open_run, list_bases, read_largest_lag
    from connector.subscribers.identity import IDENTITY_BYTES

    account, base_id = plan.settings.account, plan.query.base_id

    def read(ledger: Ledger) -> list[Known]:
        connection = ledger.connection
        if find_open_run(connection) is not None:
            return []
        shown_since = started_at - max(_QUIET_PERIOD_S, read_largest_lag(connection, account))
        bases = [base for base in list_bases(connection, account) if base_id in (None, base.service_id)]
        start = os.urandom(IDENTITY_BYTES)
        entries = [entry for base in bases for entry in ledger.find_confirmed(base, start, _KNOWN_COMPARED)]
        return [entry for entry in entries if (entry.known_since or 0.0) <= shown_since]

    entries = read_ledger(plan.settings.ledger_url, read) or []
    known_ids = np.array([entry.subscriber_id for entry in entries], dtype=np.int64)
    lacking: list[int] = known_ids[~np.isin(known_ids, ids)].tolist()
    return lacking
