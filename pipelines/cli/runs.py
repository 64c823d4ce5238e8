"""`connector check`, `status` and `prune`: test a job and its service, show past runs, and delete their old files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import click

from connector.errors import ConfigurationError
from connector.texts import count
from pipelines.cli.help import Command, option
from pipelines.cli.logs import show_message
from pipelines.cli.options import DURATION, OUTPUT_GROUP, PATH
from pipelines.cli.output import Output, check_page_path, end_command, get_clock, output_options, write_page_file

if TYPE_CHECKING:
    from pipelines.report.console import PlainConsole

_RUN_COUNT = 10  # default number of runs that `status` shows
_PAGE_RUN_COUNT = 30  # default number of runs of each job on a page


@click.command("check", cls=Command)
@click.argument("job_path", metavar="[JOB]", required=False, type=click.Path(path_type=Path))
@output_options
def check_command(job_path: Path | None, output: Output) -> None:
    """Check whether a job can run: settings, source and service.

    Without JOB, the command checks the settings, the service and the ledger. With JOB, the command also reads the first
    rows of the source, and connects to the destination of an export. The command sends about fifteen list requests and
    creates nothing.

    The checks of the service's list show the size of a page, the order of the list, how exactly the filters match, and
    whether the list may be cut off. With exit code 2, correct the failed checks. With exit code 3, try again later.
    """
    import uvloop

    from pipelines.flows.check import CheckResult, advise_on_check, check_job
    from pipelines.report.console import PlainConsole
    from pipelines.report.text import show_steps

    async def run() -> tuple[list[CheckResult], bool]:
        results, is_output_complete = [], True
        async with aclosing(check_job(job_path, os.environ)) as checks:
            async for result in checks:
                results.append(result)
                if not output.is_json and not (output.is_quiet and not result.exit_code):
                    status_text = "ok" if not result.exit_code else "failed"
                    line = f"{result.name:14}{status_text:8}{result.message}"
                    is_output_complete = (
                        output.write_drawing(partial(PlainConsole.write_text, text=line, indent=22))
                        and is_output_complete
                    )
        return results, is_output_complete

    results, is_output_complete = uvloop.run(run())
    exit_code = max(result.exit_code for result in results)
    if not output.is_json and not (output.is_quiet and not exit_code):
        step = advise_on_check(job_path, results)
        is_output_complete = output.write_drawing(partial(show_steps, [step])) and is_output_complete
    status = {0: "ok", 2: "usage", 3: "aborted"}[exit_code]
    report = {"status": status, "checks": [result.as_json() for result in results]}
    end_command(report, exit_code, output, is_output_complete=is_output_complete)


@click.command("status", cls=Command)
@click.argument("run_id", metavar="[RUN]", required=False)
@option(
    "--job", metavar="NAME", group="Runs", default_text="all jobs", help="Show only runs of the job with this name."
)
@option(
    "--last",
    "max_run_count",
    type=click.IntRange(min=1),
    metavar="N",
    group="Runs",
    default_text="10; with --html 30",
    help="Number of runs to show. With --html: number of runs of each job.",
)
@option(
    "--html",
    "page_path",
    type=PATH,
    metavar="FILE",
    group=OUTPUT_GROUP,
    default_text="no file",
    help="Also write an HTML page with the last runs of each job to FILE. FILE must be new, or an earlier page.",
)
@output_options
def status_command(
    run_id: str | None, job: str | None, max_run_count: int | None, page_path: Path | None, output: Output
) -> None:
    """Show the last runs, the open problems and the next steps.

    With RUN, the id of a run, the command shows the whole report of this run. The command needs no token, and works
    while a run is active.
    """
    from connector.settings import read_state_location
    from pipelines.flows.status import read_health, read_status
    from pipelines.report.page import build_health_page

    location = read_state_location(os.environ, writes_state=False)
    report_path = output.report_path
    if run_id is None and report_path is not None and report_path.suffix.lower() in (".html", ".htm"):
        raise ConfigurationError("--report writes the page of one RUN. For a page of all runs use --html PATH")
    if page_path is not None:
        if run_id is not None:
            raise ConfigurationError("--html writes a page of all runs. For the page of one RUN use --report PATH.html")
        check_page_path(page_path, "--html")
        health = read_health(location, job=job, max_run_count=max_run_count or _PAGE_RUN_COUNT)
        write_page_file(build_health_page(health, get_clock().now()), page_path)
    status = read_status(location, run_id=run_id, job=job, max_run_count=max_run_count or _RUN_COUNT)
    is_output_complete = output.is_json or (output.is_quiet and page_path is not None)
    is_output_complete = is_output_complete or output.write_drawing(
        lambda console: _show_status(status, location.state_dir, console, job=job, is_single_run=run_id is not None)
    )
    end_command(status, 0 if status["status"] == "ok" else 3, output, is_output_complete=is_output_complete)


class PruneReport(TypedDict):
    """The report of `prune`."""

    status: Annotated[Literal["ok"], "The command deleted the old files."]
    deleted: Annotated[list[str], "Paths of the deleted files."]
    messages: Annotated[list[str], "A sentence with the number of files and the folder."]


@click.command("prune", cls=Command)
@option(
    "--older-than",
    "age_s",
    type=DURATION,
    default="90d",
    group="Files",
    default_text="90d",
    help="Delete files older than this, for example 30d or 12h.",
)
@option(
    "--removed-job",
    metavar="NAME",
    group="Ledger",
    default_text="no job",
    help="Also delete the open problems of this job, and the receipts that the job could not write. Use this option "
    "after you removed or renamed a job.",
)
@output_options
def prune_command(age_s: float, removed_job: str | None, output: Output) -> None:
    """Delete old reports, rejects files and drift files.

    These files contain personal data. Each run also deletes such files after the `retention` of its job, 90 days by
    default. Without --removed-job the ledger does not change.
    """
    from connector.runs.run_log import delete_old_runs
    from connector.settings import read_state_location

    location, messages = read_state_location(os.environ, writes_state=False), list[str]()
    if removed_job is not None:
        from connector.ledger.opening import open_ledger  # imported here, because deleting old files needs no database
        from connector.ledger.problems import end_problems_of_job
        from connector.ledger.receipts import delete_pending_receipts_of_job

        with open_ledger(location.ledger_url, may_create=False) as ledger, ledger.transaction() as connection:
            problem_count = end_problems_of_job(connection, removed_job)
            receipt_count = delete_pending_receipts_of_job(connection, removed_job)
        counts_text = f"{count(problem_count, 'open problem')} and {count(receipt_count, 'receipt')}"
        messages.append(f"{counts_text} of the job {removed_job} deleted")
    deleted_paths = delete_old_runs(location.state_dir, get_clock().now().timestamp() - age_s)
    messages.append(f"{count(len(deleted_paths), 'file')} deleted in {location.state_dir}")
    if not output.is_quiet:
        show_message("\n".join(messages))
    end_command({"status": "ok", "deleted": [str(path) for path in deleted_paths], "messages": messages}, 0, output)


def _show_status(
    status: Mapping[str, Any], state_dir: Path, console: PlainConsole, *, job: str | None, is_single_run: bool
) -> None:
    from pipelines.report.text import show_run, show_runs, show_steps

    if not status["runs"]:
        run_text = "no run" if job is None else f"no run of the job {job}"
        console.write_text(f"{run_text} is recorded in {state_dir} (CONNECTOR_STATE_DIR)")
    elif is_single_run:
        show_run(status["runs"][0], console)
    else:
        show_runs(status["runs"], console)
    show_steps(status["next"], console)
