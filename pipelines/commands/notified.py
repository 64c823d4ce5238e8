"""Runs of jobs that name whom to tell of them."""

from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from pipelines.commands.options import Output, run_flow
from pipelines.jobs import Job
from pipelines.runs.notifying import notify
from pipelines.runs.progress import Progress
from pipelines.runs.report import Report
from pipelines.runs.stopping import Stop
from pipelines.settings import Settings

Flow = Callable[[Stop, Progress], Coroutine[Any, Any, Report]]


def run_and_notify(flow: Flow, job: Job, settings: Settings, output: Output) -> Report:
    """Run the flow of a job, and tell whom the job names how it ended."""
    report = run_flow(flow, output)
    report.messages += uvloop.run(notify(job.notify, report, settings))
    return report
