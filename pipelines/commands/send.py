"""`connector send [FILE]`: one email, from options, a message file (YAML or JSON), or an .eml file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from connector.errors import ConfigurationError
from pipelines.commands.email_options import EmailGiven, email_options
from pipelines.commands.options import Output, end, finish, output_options, run_flow

if TYPE_CHECKING:
    from connector.mail.draft import Composed


@click.command("send")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@email_options
@click.option("--dry-run", "is_dry", is_flag=True, help="Only show what would be sent, and write it as an .eml file.")
@click.option(
    "--eml",
    type=click.Path(path_type=Path),
    help="Where a dry run writes the email; a file that is there is left alone.  [default: email.eml]",
)
@output_options
def send_command(file: Path | None, given: EmailGiven, is_dry: bool, eml: Path | None, output: Output) -> None:
    """Send one email, at most once: FILE, the options, or both, of which the options have priority.

    FILE is a message file (.yaml, .yml, .json; its keys are those of the README) or an .eml file. What the service
    answers is kept beside the ledger. An email whose answer is lost is never sent again: the report says that it is
    unknown (exit 1).
    """
    from connector.clock import system_clock
    from connector.mail.draft import compose_draft
    from pipelines.flows.sends import SendPlan, run_send, write_new
    from pipelines.jobs import SettingOptions, read_settings

    if eml is not None and not is_dry:
        raise ConfigurationError("--eml is for --dry-run: an email that is sent is not written as a file")
    composed = compose_draft(given.draft(file, os.environ), system_clock().now())
    if is_dry:
        _show(composed, write_new(eml or Path("email.eml"), composed.message), output)
    plan = SendPlan(composed, read_settings(os.environ, None, SettingOptions()))
    finish(run_flow(lambda stop, progress: run_send(plan, stop, progress), output), output)


def _show(composed: Composed, path: Path, output: Output) -> NoReturn:
    """What would be sent, and where it was written."""
    from pipelines.flows.sends import describe_message, show_email

    described = describe_message(composed.message) | {"warnings": list(composed.warnings), "eml": str(path)}
    for warning in composed.warnings:
        click.echo(warning, err=True)
    if not output.is_json and not output.is_quiet:
        output.show(lambda console: show_email(described, console))
    end({"command": "send", "planned": True, "email": described}, 0, output)
