"""`connector check` tries a job and its service; `status` and `prune` are about past runs."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from connector.errors import ConfigurationError
from connector.plurals import count
from connector.printable import make_visible
from pipelines.cli.logs import say
from pipelines.cli.options import DURATION
from pipelines.cli.output import Output, check_page_path, end, output_options, write_page_file, write_stdout

if TYPE_CHECKING:
    from rich.console import Console

_LAST, _LAST_ON_PAGE = 10, 30  # runs that are shown, and runs of each job on a page


@click.command("check")
@click.argument("job_path", metavar="[JOB]", required=False, type=click.Path(path_type=Path))
@output_options
def check_command(job_path: Path | None, output: Output) -> None:
    """Check whether JOB can run: its configuration, source, service, ledger and destination.

    Without JOB, the settings, the service and the ledger are checked. The command reads the first rows of the source,
    sends about ten list requests, and tries the destination without a row. Nothing is created, sent or published. The
    command shows the page size of the list, its order, how filters match, and whether the list may be cut off. Exit
    code 2: correct what failed. Exit code 3: try again later.
    """
    import uvloop

    from pipelines.flows.check import CheckResult, check

    async def run() -> list[CheckResult]:
        results = []
        async with aclosing(check(job_path, os.environ)) as checks:
            async for result in checks:
                results.append(result)
                if not output.is_json and not (output.is_quiet and not result.exit_code):
                    verdict = "ok" if not result.exit_code else "failed"
                    write_stdout(make_visible(f"{result.what:14}{verdict:8}{result.message}\n"))
        return results

    results = uvloop.run(run())
    exit_code = max(result.exit_code for result in results)
    status = {0: "ok", 2: "usage", 3: "aborted"}[exit_code]
    end({"status": status, "checks": [result.as_json() for result in results]}, exit_code, output)


@click.command("status")
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--job", help="Only the runs of this job.")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    help="How many runs to show; with --html, how many of each job.  [default: 10; with --html 30]",
)
@click.option(
    "--html",
    "page_path",
    type=click.Path(path_type=Path),
    help="Write a page with the last runs of each job to this file, which must be new or an earlier page.",
)
@output_options
def status_command(
    run_id: str | None, job: str | None, last: int | None, page_path: Path | None, output: Output
) -> None:
    """Show what the last runs did, or all of one RUN, what is unresolved, and what to do next.

    It takes no lock and needs no token: use it while a run goes on, or after one was killed.
    """
    from connector.settings import read_state
    from pipelines.flows.status import read_health, read_status
    from pipelines.report.page import write_health

    state = read_state(os.environ, is_writing=False)
    if page_path is not None:
        if run_id is not None:
            raise ConfigurationError("--html writes a page of all runs. For the page of one RUN use --report PATH.html")
        check_page_path(page_path, "--html")
        health = read_health(state, job=job, last=last or _LAST_ON_PAGE)
        write_page_file(write_health(health, datetime.now(UTC)), page_path)
    status = read_status(state, run_id=run_id, job=job, last=last or _LAST)
    is_shown = output.is_json or (output.is_quiet and page_path is not None)
    is_shown = is_shown or output.show(lambda console: _show(status, console, is_whole=run_id is not None))
    end(status, 0, output, is_shown=is_shown)


@click.command("prune")
@click.option(
    "--older-than", "age_s", type=DURATION, default="90d", show_default=True, help="Delete what is older than this."
)
@output_options
def prune_command(age_s: float, output: Output) -> None:
    """Delete rejects, drift files and reports of old runs, which hold personal data.

    A run deletes what is older than the job's `retention` (90 days) by itself. The ledger is left as it is.
    """
    from connector.run_log import prune
    from connector.settings import read_state

    state = read_state(os.environ, is_writing=False)
    deleted = prune(state.state_dir, time.time() - age_s)
    message = f"{count(len(deleted), 'file')} deleted in {state.state_dir}"
    if not output.is_quiet:
        say(message)
    end({"status": "ok", "deleted": [str(path) for path in deleted], "messages": [message]}, 0, output)


def _show(status: Mapping[str, Any], console: Console, *, is_whole: bool) -> None:
    from pipelines.report.text import show_run, show_runs

    if not status["runs"]:
        console.print("no run is on record yet", highlight=False)
    elif is_whole:
        show_run(status["runs"][0], console)
    else:
        show_runs(status["runs"], console)
    for step in status["next"]:
        console.print(f"-> {step}", soft_wrap=True, markup=False, highlight=False)
