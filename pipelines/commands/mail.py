"""`connector mail JOB`: each row its email, once in a campaign."""

import os
from pathlib import Path

import click

from connector.errors import ConfigurationError
from pipelines.commands.notified import run_and_notify
from pipelines.commands.options import Duration, Output, finish, output_options, run_flow


@click.command("mail")
@click.argument("job", type=click.Path(path_type=Path))
@click.option("--limit", type=click.IntRange(min=1), help="Only the first N rows.")
@click.option(
    "--preview",
    "previewed",
    type=click.IntRange(min=1),
    metavar="N",
    help="Send nothing: check every row, and write the emails of the first N as .eml and .html.",
)
@click.option(
    "--preview-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to; a folder that is new or empty.  [default: preview]",
)
@click.option("--rejected", "allows_rejected", is_flag=True, help="Send to those, too, whom it refused before.")
@click.option(
    "--new-account",
    "is_new_account",
    is_flag=True,
    help="This account is another one than that under which the ledger knows the campaign: send it here, too.",
)
@click.option(
    "--reopen",
    "is_reopening",
    is_flag=True,
    help="Send a campaign on although the ledger was restored and does not know who was mailed after its backup.",
)
@click.option("--wait", "wait_s", type=Duration(), default="0s", help="How long to wait for another run's lock.")
@output_options
def mail_command(
    job: Path,
    limit: int | None,
    previewed: int | None,
    preview_dir: Path | None,
    allows_rejected: bool,
    is_new_account: bool,
    is_reopening: bool,
    wait_s: float,
    output: Output,
) -> None:
    """Send each row of JOB's source the email that the job describes, once in its campaign.

    Every row is checked before the first email leaves. Whoever was sent theirs is not sent it again, however often this
    is run, and an email whose answer is lost is never sent again: the rejects file names its recipient.
    """
    from pipelines.flows.mail_plan import plan_mail
    from pipelines.flows.mails import preview, run_mail
    from pipelines.jobs import SettingOptions, load_job, read_settings

    if preview_dir is not None and previewed is None:
        raise ConfigurationError("--preview-dir is for --preview N")
    loaded = load_job(job, os.environ)
    settings = read_settings(os.environ, loaded, SettingOptions(), is_writing=previewed is None)
    plan = plan_mail(
        loaded,
        settings,
        limit=limit,
        wait_s=wait_s,
        allows_rejected=allows_rejected,
        is_new_account=is_new_account,
        is_reopening=is_reopening,
    )
    if previewed is not None:
        folder, number = preview_dir or Path("preview"), previewed
        finish(run_flow(lambda stop, progress: preview(plan, folder, number, stop, progress), output), output)
    finish(run_and_notify(lambda stop, progress: run_mail(plan, stop, progress), loaded, settings, output), output)
