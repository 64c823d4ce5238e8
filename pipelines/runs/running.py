"""The frame of every run that writes the ledger: it is opened, the run recorded, carried out, ended and reported."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from connector.clock import Clock
from connector.errors import ConfigurationError, LedgerError, LockedError, RunAborted
from connector.ledger import Base, Ledger, finish_run, open_ledger, open_private_copy, start_run
from connector.ledger.commits import open_commits
from connector.outcomes import Outcome
from connector.pace import Pace
from connector.service import open_client
from pipelines.jobs import build_service
from pipelines.rows.load_files import LoadFiles, RowListener
from pipelines.rows.planned_rows import PlannedRows
from pipelines.runs.progress import Progress
from pipelines.runs.report import Report, UncountedError, count_requests, count_rows, end_report, start_report
from pipelines.runs.run import Frame, Run
from pipelines.runs.stopping import Stop, enter_in_thread

_FOR_A_PERSON = (Outcome.INVALID, Outcome.REJECTED, Outcome.UNKNOWN)
"""Outcomes that make a run partial."""

Work = Callable[[Run], Awaitable[None]]


async def carry_out(frame: Frame, work: Work, stop: Stop, progress: Progress, clock: Clock) -> Report:
    """Do the work in the frame and tell what became of it.

    Raises ConfigurationError before anything is sent; a run that has begun always ends in a report.
    """
    report = start_report(frame.command, frame.job, clock.now())
    report.is_planned = frame.is_planned
    try:
        async with _open_ledger(frame, stop) as ledger:
            await _work_in(ledger, frame, work, report, stop, progress, clock)
    except LockedError as error:
        report.signal = stop.signal
        end_report(report, "locked" if stop.signal is None else "stopped", clock.now(), str(error))
    except ConfigurationError:  # a token that was refused at the first request is both
        raise
    except RunAborted as error:  # before it had begun: while the ledger was copied
        report.signal = stop.signal
        end_report(report, "stopped", clock.now(), str(error))
    except LedgerError as error:
        if report.finished_at is None or report.exit_code in (0, 1):  # else it has ended by this, or by something worse
            end_report(report, "aborted", clock.now(), str(error))
    return report


@asynccontextmanager
async def _open_ledger(frame: Frame, stop: Stop) -> AsyncIterator[Ledger]:
    """The ledger, waited for in a thread, so that a signal is heard meanwhile."""
    url, is_stopped = frame.settings.ledger_url, stop.event.is_set
    if frame.is_planned:
        opened = open_private_copy(url, frame.settings.account, is_stopped)
    else:
        opened = open_ledger(url, wait_s=frame.wait_s, is_stopped=is_stopped, may_make=frame.may_make_ledger)
    async with enter_in_thread(opened, stop) as ledger:
        yield ledger


async def _work_in(
    ledger: Ledger, frame: Frame, work: Work, report: Report, stop: Stop, progress: Progress, clock: Clock
) -> None:
    rows = _build_listener(frame, report, clock)
    service = build_service(frame.settings, frame.policy.max_concurrency)
    with rows, open_commits(ledger) as commits:
        async with open_client(service) as client:
            key, bases = _begin(ledger, frame, report)
            tally = rows.build_tally()
            pace = Pace(frame.policy.max_rate, frame.policy.max_concurrency)
            run = Run(frame, report, stop, clock, rows, tally, ledger, client, key, bases, commits, pace)
            progress.follow(run.describe)
            await work(run)
            report.requests = count_requests(client.counts, is_planned=frame.is_planned)
    report.planned_rows = rows.lines
    _end(run)
    rows_read = run.rows_read if report.status in ("ok", "partial") else None
    with ledger.transaction() as connection:
        finish_run(connection, key, report.status, clock.now().timestamp(), rows_read)
        messages = list(run.at_end())
    report.messages += messages
    if run.refusal is not None and not client.counts["create"].sent:
        raise run.refusal  # settings are at fault, and nothing was sent: as if it had been found before the run began


def _build_listener(frame: Frame, report: Report, clock: Clock) -> RowListener:
    if frame.is_planned:
        return PlannedRows(frame.rows_path, frame.policy.identity, is_reported=frame.are_rows_reported)
    return LoadFiles(frame.settings.state_dir, frame.columns, report.run_id, clock.now)


def _begin(ledger: Ledger, frame: Frame, report: Report) -> tuple[int, Sequence[Base]]:
    """Record the run; whatever a run that died left as being sent is unknown from now on (architecture 4.3)."""
    suppressed_by = frame.by_job if frame.suppression is not None or frame.policy.is_suppressing_inactive else None
    with ledger.transaction() as connection:
        ledger.mark_died()
        bases = frame.find_bases(ledger)
        at = report.started_at.timestamp()
        is_holding = frame.policy.on_unknown == "hold"
        names = report.run_id, report.job, report.command
        account = frame.settings.account
        return start_run(connection, *names, at, suppressed_by, is_holding=is_holding, account=account), bases


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
    report.rejects_file, report.drift_file = run.rows.rejects_path, run.rows.drift_path
    if run.stop.signal is not None:
        report.signal = run.stop.signal
        end_report(report, "stopped", run.clock.now(), reason)
    elif reason is not None:
        end_report(report, "aborted", run.clock.now(), reason)
    else:
        is_partial = any(outcomes[each] or tally.leftovers[each] for each in _FOR_A_PERSON)
        is_partial = is_partial or bool(tally.leftovers["held"]) or tally.has_doubled
        end_report(report, "partial" if is_partial else "ok", run.clock.now())
