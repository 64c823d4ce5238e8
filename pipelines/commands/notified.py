"""Runs of jobs that name whom to tell of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from pipelines.commands.options import Output, run_flow

if TYPE_CHECKING:
    from pipelines.jobs import Job, Settings
    from pipelines.runs.progress import Progress
    from pipelines.runs.report import Report
    from pipelines.runs.stopping import Stop

    Flow = Callable[[Stop, Progress], Coroutine[Any, Any, Report]]


def run_and_notify(flow: Flow, job: Job, settings: Settings, output: Output) -> Report:
    """Run the flow of a job, and tell whom the job names how it ended."""
    import uvloop

    report = run_flow(flow, output)
    report.messages += uvloop.run(_notify(job, report, settings))
    return report


async def _notify(job: Job, report: Report, settings: Settings) -> list[str]:
    """A signal gives it up: the run has ended, and its report is still to be shown."""
    from pipelines.runs.faults import describe_fault
    from pipelines.runs.notifying import notify
    from pipelines.runs.stopping import stop_on_signals, until_stopped

    with stop_on_signals() as stop:
        ending = await until_stopped(notify(job.notify, report, settings), stop)
    if isinstance(ending, asyncio.CancelledError):
        return ["a signal came while the job's notifications were being sent: they may not have been"]
    if isinstance(ending, Exception):
        return [f"the job's notifications could not be sent: {describe_fault(ending)}"]
    if isinstance(ending, BaseException):
        raise ending
    return ending
