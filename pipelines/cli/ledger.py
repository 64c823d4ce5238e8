"""`connector explain`, `forget`, `ledger backup`, `ledger copy` and `ledger restore`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, NotRequired, TypedDict

import click

from connector.choices import IDENTITY_FIELDS
from connector.errors import ConfigurationError, LedgerError, LockedError, MissingLedgerError
from connector.texts import count
from pipelines.cli.help import Command, Group, option
from pipelines.cli.logs import show_message
from pipelines.cli.options import MAPPING_GROUP, add_output_options, base_filter_options, job_option, wait_option
from pipelines.cli.output import Output, end_command, get_clock, output_options

_STDIN = "-"  # the argument that reads IDENTITY from standard input


@click.command("explain", cls=Command)
@click.argument("identity")
@output_options
def explain_command(identity: str, output: Output) -> None:
    """Show what the ledger and past runs know about one subscriber.

    The command shows the state of the subscriber in each base, the run that sent the subscriber, and the next step. The
    command sends nothing, needs no token, and works while a run is active. The exit code is 1 if the ledger does not
    know the subscriber.

    IDENTITY is an email address or a client_user_id. If IDENTITY is -, the command reads the identity from standard
    input. Then no process list shows the identity.
    """
    from connector.runs.explanations import explain_identity
    from connector.runs.report import EXIT_CODE_BY_STATUS
    from connector.settings import read_state_location
    from pipelines.report.text import show_explanation

    location = read_state_location(os.environ, writes_state=False)
    explanation = explain_identity(location, _read_identity(identity))
    is_output_complete = output.is_json or output.write_drawing(lambda console: show_explanation(explanation, console))
    end_command(
        explanation.as_json(), EXIT_CODE_BY_STATUS[explanation.status], output, is_output_complete=is_output_complete
    )


@click.command("forget", cls=Command)
@click.argument("identity")
@option(
    "--identity",
    "field",
    type=click.Choice(IDENTITY_FIELDS),
    metavar="FIELD",
    group=MAPPING_GROUP,
    default_text="either",
    help="Field of IDENTITY: email or client_user_id.",
)
@base_filter_options
@job_option("Use the account of this job file.", "the account of CONNECTOR_BASE_URL")
@wait_option
@output_options
def forget_command(
    identity: str,
    field: str | None,
    base_id: int | None,
    base_name: str | None,
    job_path: Path | None,
    wait_s: float,
    output: Output,
) -> None:
    """Delete an erased subscriber from the ledger.

    Use this command after somebody erased the subscriber in the service. The next row with this identity counts as new.
    The command sends nothing and needs no token. If the answer to a create of this subscriber is not known, the command
    deletes nothing. Then run `connector retry` first.

    IDENTITY is an email address or a client_user_id. If IDENTITY is -, the command reads the identity from standard
    input. Then no process list shows the identity.
    """
    from connector.jobs.reader import load_job
    from connector.settings import read_base_url, read_state_location
    from pipelines.flows.forget import run_forget

    job = load_job(job_path, os.environ) if job_path is not None else None
    service = job.service if job is not None else None
    account = service.account if service is not None else None
    account = account or read_base_url(os.environ, service.base_url if service is not None else None)
    fields = (field,) if field is not None else IDENTITY_FIELDS
    ledger_url = read_state_location(os.environ).ledger_url
    _exit_with_report(
        run_forget(ledger_url, account, _read_identity(identity), fields, base_id, base_name, wait_s), output
    )


def _exit_with_report(report: Mapping[str, Any], output: Output) -> NoReturn:
    """Show the messages of a report, and end the process with the exit code of its status."""
    from connector.runs.report import EXIT_CODE_BY_STATUS

    if not output.is_quiet or report["status"] != "ok":
        show_message("\n".join(report["messages"]))
    end_command(report, EXIT_CODE_BY_STATUS[report["status"]], output)


def _read_identity(argument: str) -> str:
    identity = (sys.stdin.read() if argument == _STDIN else argument).strip()
    if not identity or "\n" in identity:
        input_hint = ". Write nothing else to standard input" if argument == _STDIN else ""
        raise ConfigurationError(f"IDENTITY must be one email address or client_user_id{input_hint}")
    return identity


@click.group("ledger", cls=Group)
@add_output_options
def ledger_group(**_options: Any) -> None:
    """Back up, copy or restore the record of creates and emails."""


class LedgerReport(TypedDict):
    """The report of `ledger backup`, `ledger copy` and `ledger restore`."""

    status: Annotated[Literal["ok", "aborted", "locked"], "Whether the command copied the ledger."]
    target: Annotated[
        NotRequired[str | None], "Only in `backup`: path of the backup. Null if the command made no backup."
    ]
    source: Annotated[NotRequired[str], "Only in `restore`: path of the backup."]
    entries: Annotated[int, "Number of entries that were copied."]
    emails: Annotated[int, "Number of emails whose records were copied."]
    messages: Annotated[list[str], "Sentences about the result and the next step."]


@ledger_group.command("backup")
@click.argument("target", type=click.Path(path_type=Path))
@output_options
def backup_command(target: Path, output: Output) -> None:
    """Copy the ledger to the new file TARGET.

    The copy is consistent even while a run is active. The record of sent emails goes to a second file, for example
    copy-emails.db beside copy.db. To use the backup, run `connector ledger restore`. A backup does not contain later
    creates and emails.
    """
    from connector.ledger.copies import back_up_ledger
    from connector.ledger.sqlite import find_emails_file
    from connector.settings import read_state_location

    for path in (target, find_emails_file(target)):
        output.refuse_to_overwrite(path, "a file of the backup")
    target = target.absolute()
    try:
        copy_result = back_up_ledger(read_state_location(os.environ).ledger_url, target)
    except MissingLedgerError:
        raise
    except LedgerError as error:
        report = {"status": "aborted", "target": None, "entries": 0, "emails": 0, "messages": [str(error)]}
        _exit_with_report(report, output)
    copies = (
        (target, copy_result.entry_count, "entry", "entries"),
        (find_emails_file(target), copy_result.email_count, "email", "emails"),
    )
    messages = [
        f"{path}: {count(copied_count, *nouns)}" for path, copied_count, *nouns in copies if copied_count is not None
    ]
    counts = {"entries": copy_result.entry_count or 0, "emails": copy_result.email_count or 0}
    _exit_with_report({"status": "ok", "target": str(target), **counts, "messages": messages}, output)


@ledger_group.command("copy")
@click.argument("target_url", metavar="URL")
@output_options
def copy_command(target_url: str, output: Output) -> None:
    """Copy a ledger from SQLite to PostgreSQL.

    The command copies the ledger and the record of sent emails to an empty ledger at URL, such as
    postgresql://user@host/database. Then the command closes the old ledger, so that no command uses it again. After
    the copy, set CONNECTOR_LEDGER to URL. No run may be active.

    URL cannot contain a password, because arguments are visible in process lists. Use PGPASSWORD or ~/.pgpass.
    """
    from connector.ledger.copies import copy_ledger
    from connector.settings import read_state_location

    ledger_url = read_state_location(os.environ).ledger_url
    try:
        entry_count, email_count = copy_ledger(ledger_url, target_url, copied_at=get_clock().now())
    except (LockedError, LedgerError) as error:
        status = "locked" if isinstance(error, LockedError) else "aborted"
        _exit_with_report({"status": status, "entries": 0, "emails": 0, "messages": [str(error)]}, output)
    message = (
        f"copied: {count(entry_count, 'entry', 'entries')}, {count(email_count, 'email')}. "
        "Set CONNECTOR_LEDGER to the URL of the copy. The old ledger is closed"
    )
    _exit_with_report({"status": "ok", "entries": entry_count, "emails": email_count, "messages": [message]}, output)


@ledger_group.command("restore")
@click.argument("source", type=click.Path(path_type=Path))
@output_options
def restore_command(source: Path, output: Output) -> None:
    """Restore the ledger from the backup SOURCE.

    The command overwrites nothing. If a ledger exists, first move the files of the ledger and of the sent emails to
    another folder.

    A backup does not contain creates and emails that were sent after the backup. If a subscriber is not in the backup,
    the next load looks up the subscriber in the service. Emails cannot be looked up, so `connector mail` refuses every
    campaign until you run the campaign with --reopen.
    """
    from connector.ledger.copies import restore_ledger
    from connector.settings import read_state_location

    report_values: dict[str, Any] = {"source": str(source.absolute()), "entries": 0, "emails": 0}
    try:
        ledger_url = read_state_location(os.environ).ledger_url
        restore_result = restore_ledger(ledger_url, source, restored_at=get_clock().now())
    except LedgerError as error:
        _exit_with_report({"status": "aborted", **report_values, "messages": [str(error)]}, output)
    report_values |= {"entries": restore_result.entry_count or 0, "emails": restore_result.email_count or 0}
    message = (
        f"restored: {count(report_values['entries'], 'entry', 'entries')}, {count(report_values['emails'], 'email')}. "
        "All campaigns are closed, because the ledger does not know which emails were sent after the backup was made. "
        "To continue a campaign, run: connector mail JOB --reopen"
    )
    _exit_with_report({"status": "ok", **report_values, "messages": [message]}, output)
