"""`connector retry`: finish what earlier runs left, without their sources."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from connector.errors import ConfigurationError
from pipelines.commands.options import Duration, Output, finish, output_options, run_flow

if TYPE_CHECKING:
    from connector.load.retrying import Held
    from connector.subscribers import ValidationRules
    from pipelines.jobs import Job


@click.command("retry")
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--rejected", "is_rejected", is_flag=True, help="Send again what was rejected, once looked for.")
@click.option("--resend-held", is_flag=True, help="Send again what is held, once more proved absent.")
@click.option("--accept-held", is_flag=True, help="Take what is held as it was answered: it is there, under that id.")
@click.option("--drop-held", is_flag=True, help="Give up what is held: it is rejected until its row changes.")
@click.option(
    "--job",
    "job_path",
    type=click.Path(path_type=Path),
    help="Use this job's account, suppression list and load settings.",
)
@click.option("--base-id", type=click.IntRange(min=1), help="Only in this base, by its id.")
@click.option("--base-name", help="Only in this base, by its name.")
@click.option("--on-unknown", type=click.Choice(["resend", "hold"]), help="What becomes of an unknown proved absent.")
@click.option("--quiet-period", metavar="DURATION", help="Wait before absence can be proved, such as 30s.")
@click.option("--max-concurrency", type=click.IntRange(1, 1000), help="Creates in flight at once, at most.")
@click.option("--max-rate", type=click.FloatRange(0, 100_000, min_open=True), help="Creates a second, at most.")
@click.option("--wait", "wait_s", type=Duration(), default=0.0, help="Wait so long for another run to end.")
@output_options
def retry_command(
    run_id: str | None,
    is_rejected: bool,
    resend_held: bool,
    accept_held: bool,
    drop_held: bool,
    job_path: Path | None,
    base_id: int | None,
    base_name: str | None,
    on_unknown: str | None,
    quiet_period: str | None,
    max_concurrency: int | None,
    max_rate: float | None,
    wait_s: float,
    output: Output,
) -> None:
    """Settle and finish what earlier runs left unknown, in every base, without their sources.

    What is found in the service is confirmed, what is proved absent is sent again. What is held stays held, and what
    was rejected stays rejected, unless an option says otherwise. With RUN, only what that run sent last is taken up.
    """
    from connector.load.retrying import RetryPlan
    from pipelines.jobs import Load, SettingOptions, build_policy, load_job, override_load, read_settings
    from pipelines.loads.retrying import RetryOrder, run_retry
    from pipelines.rows.suppressing import plan_suppression

    held = _decide_held({"resend": resend_held, "accept": accept_held, "drop": drop_held}, on_unknown)
    job = load_job(job_path, os.environ) if job_path is not None else None
    given = {
        "on_unknown": "resend" if resend_held else on_unknown,
        "quiet_period": quiet_period,
        "max_concurrency": max_concurrency,
        "max_rate": max_rate,
    }
    load = override_load(job.load if job is not None else Load(), given)
    order = RetryOrder(
        what=RetryPlan(run_id, is_rejected, held),
        job=job.name if job is not None else "",
        policy=build_policy(load, _find_rules(job), job.suppress if job is not None else None),
        settings=read_settings(os.environ, job, SettingOptions()),
        suppression=plan_suppression(job) if job is not None else None,
        base_id=base_id,
        base_name=base_name,
        wait_s=wait_s,
    )
    finish(run_flow(lambda stop, progress: run_retry(order, stop, progress), output), output)


def _decide_held(asked: dict[Held, bool], on_unknown: str | None) -> Held:
    chosen = [held for held, is_asked in asked.items() if is_asked]
    if len(chosen) > 1:
        options = " and ".join(f"--{held}-held" for held in chosen)
        raise ConfigurationError(f"{options}: what is held can be sent again, accepted or given up; give one of them")
    if chosen == ["resend"] and on_unknown == "hold":
        raise ConfigurationError("--resend-held and --on-unknown hold: what is sent again is not held; leave one out")
    return chosen[0] if chosen else "leave"


def _find_rules(job: Job | None) -> ValidationRules:
    from connector.subscribers import ValidationRules
    from pipelines.jobs import build_rules

    if job is None:
        return ValidationRules()
    if job.subscriber is None:
        raise ConfigurationError(f"--job: the job {job.name} exports; a retry follows a job with a subscriber section")
    return build_rules(job.subscriber)
