"""The flow of an export: list, certify, normalise, write, report."""

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
from connector.report import Report, RunScope, Status, end_report, end_run, record_report, start_report
from connector.scope import describe_asked_base, describe_filters, describe_rate, drop_empty
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
_KNOWN_COMPARED = 20_000  # confirmed entries of a base that are laid beside a list: one in a thousand missing shows
_QUIET_PERIOD_S = 30.0  # the default of `load.quiet_period`: an export has none of its own


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """The list query, the destination and the settings of one export, and what the export accepts: a list that is not
    certified, one against which TotalCount alone stands, one that may be cut off, and one that is smaller than the last
    by the share `max_shrink`."""

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
    """Copy the list to the plan's destination, and tell how complete it is."""
    from connector.listing.reader import LIST_CONNECTIONS
    from connector.service.client import open_client

    clock = stop.clock
    report = start_report("export", plan.job, clock.now(), _describe_scope(plan))
    report.rows = {"read": 0, "written": 0}
    service = build_service(plan.settings, LIST_CONNECTIONS)
    with record_report(report, plan.settings.state_dir, plan.settings.retention_s):
        pace = Pace(plan.max_rate)
        if not plan.settings.has_no_ledger:
            from connector.ledger.beside import start_pace  # an export without a ledger does not wait for SQLAlchemy

            pace = await start_pace(plan.settings, plan.max_rate, clock, stop)
        async with open_client(service, rate=pace.rate) as client:
            try:
                # Nothing is half written: a writer swaps at its very end or not at all.
                copying = _copy(plan, report, client, progress, clock)
                exported = await stop.until_stopped(copying, is_cancelled_once=True)
                is_kept = bool(exported.note)  # the target was left as it was, and the note says why
                is_whole = exported.certificate.is_complete and not is_kept
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
    """Return the Ids of the bases that the ledger knows for the account; none if the ledger cannot be read."""
    if plan.settings.has_no_ledger:
        return []
    from connector.ledger.beside import read_ledger
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
    """Subscribers that the ledger has confirmed, that should have shown when the export began, and that are not among
    these ids (architecture 7, rule 7); none while a run may be creating some. Raises ConnectorError."""
    if plan.settings.has_no_ledger:
        return []
    import numpy as np

    from connector.ledger.beside import read_ledger
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
        known = [each for base in bases for each in ledger.find_confirmed(base, start, _KNOWN_COMPARED)]
        return [each for each in known if (each.known_since or 0.0) <= shown_since]

    known = read_ledger(plan.settings.ledger_url, read) or []
    asked = np.array([each.subscriber_id for each in known], dtype=np.int64)
    lacking: list[int] = asked[~np.isin(asked, ids)].tolist()
    return lacking
