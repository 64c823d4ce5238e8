"""`connector reconcile JOB`: source, ledger and service side by side."""

import os
from dataclasses import replace
from pathlib import Path

import click

from connector.errors import ConfigurationError
from pipelines.commands.notified import run_and_notify
from pipelines.commands.options import Duration, Output, finish, output_options


@click.command("reconcile")
@click.argument("path", metavar="JOB", type=click.Path(path_type=Path))
@click.option("--to", type=click.Path(path_type=Path), help="Write a line for each difference to this CSV.")
@click.option("--ignore-total-count", is_flag=True, help="Take the list for complete though its TotalCount disagrees.")
@click.option("--accept-cut-off-possible", is_flag=True, help="Take a list that the service may cut off unseen.")
@click.option("--forget-missing", is_flag=True, help="Forget those whom the ledger knows and the service lost.")
@click.option("--yes", "is_sure", is_flag=True, help="Forget even if the service has lost all of a base.")
@click.option("--wait", "wait_s", type=Duration(), default=0.0, help="Wait so long for another run to end.")
@output_options
def reconcile_command(
    path: Path,
    to: Path | None,
    ignore_total_count: bool,
    accept_cut_off_possible: bool,
    forget_missing: bool,
    is_sure: bool,
    wait_s: float,
    output: Output,
) -> None:
    """Compare all that the source of JOB says with what the ledger knows and what the service lists.

    Told are who is missing in the service, extra there, duplicated or drifted, and who has vanished from it. Nothing is
    sent but list requests. The ledger is only read and not locked, unless --forget-missing is given: then those who
    vanished leave it, once a second listing agrees, and the next sync creates whomever of them the source has.
    """
    from pipelines.jobs import SettingOptions, load_job, read_settings
    from pipelines.reconciles.difference_file import check_difference_path
    from pipelines.reconciling import plan_reconcile, run_reconcile

    if is_sure and not forget_missing:
        raise ConfigurationError("--yes is about --forget-missing: give both, or neither")
    check_difference_path(to, output.report_path)
    job = load_job(path, os.environ)
    settings = read_settings(os.environ, job, SettingOptions(), is_writing=forget_missing)
    plan = replace(
        plan_reconcile(job, settings, wait_s=wait_s),
        to=to,
        is_total_count_ignored=ignore_total_count,
        is_cut_off_accepted=accept_cut_off_possible,
        is_forgetting=forget_missing,
        is_sure=is_sure,
    )
    finish(run_and_notify(lambda stop, progress: run_reconcile(plan, stop, progress), job, settings, output), output)
