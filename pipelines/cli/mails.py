"""`connector send` and `mail`: send one email, or a campaign."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from connector.atomic_file import create_private_file
from connector.errors import ConfigurationError
from pipelines.cli.help import Command, option
from pipelines.cli.logs import show_message
from pipelines.cli.options import PATH, RUN_GROUP, limit_option, refuse_empty_text, time_limit_option, wait_option
from pipelines.cli.output import (
    Output,
    end_command,
    finish_run,
    get_clock,
    handle_job_start_errors,
    run_and_notify,
    run_flow,
    run_options,
)

if TYPE_CHECKING:
    from connector.jobs.mail_models import MessageFile
    from connector.mail.message import Message

_MESSAGE_FILE_SUFFIXES = (".yaml", ".yml", ".json")

_email_option = partial(option, group="Email", default_text="from FILE")


@click.command("send", cls=Command)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@_email_option(
    "--to",
    multiple=True,
    metavar="ADDRESS",
    help="Recipient: ann@example.com, or 'Ann Lee <ann@example.com>'. Repeatable.",
)
@_email_option("--from", metavar="ADDRESS", callback=refuse_empty_text, help="Sender address.")
@_email_option("--subject", metavar="TEXT", callback=refuse_empty_text, help="Subject line.")
@_email_option("--html", metavar="FILE", callback=refuse_empty_text, help="File with the HTML body.")
@option(
    "--text",
    metavar="FILE",
    callback=refuse_empty_text,
    group="Email",
    default_text="made from the HTML body",
    help="File with the plain-text body.",
)
@option(
    "--attach",
    multiple=True,
    metavar="FILE",
    group="Email",
    default_text="none",
    help="Attach this file, in addition to the attachments of FILE. Repeatable.",
)
@option(
    "--dry-run",
    "is_dry_run",
    is_flag=True,
    group=RUN_GROUP,
    help="Send nothing. Print the request as JSON, and write the email to an .eml file.",
)
@option(
    "--eml",
    "eml_path",
    type=PATH,
    metavar="FILE",
    group=RUN_GROUP,
    default_text="email.eml",
    help="With --dry-run: write the email to this new file.",
)
@run_options
def send_command(file: Path | None, is_dry_run: bool, eml_path: Path | None, output: Output, **options: Any) -> None:
    """Send one email from a message file, from options, or both.

    FILE is a message file (.yaml, .yml or .json); docs/reference/message-file.md lists its keys. An option replaces the
    key of FILE with the same name. Only --attach adds to its key: the email gets the attachments of FILE and the
    attachments of the options.

    The command sends the email at most once. If the answer is lost, the email counts as unknown (exit code 1) and is
    not sent again. A second run of the command sends a second email.
    """
    from connector.jobs.mail_planner import compose_file
    from connector.jobs.reader import read_settings
    from connector.mail.message import format_eml
    from connector.mail.single import run_send

    if eml_path is not None and not is_dry_run:
        raise ConfigurationError("--eml works only with --dry-run. Add --dry-run, or leave out --eml")
    message = compose_file(_read_message(file, options), get_clock().now())
    if is_dry_run:
        path = eml_path or Path("email.eml")
        _write_new_file(path, format_eml(message))
        report = {"command": "send", "planned": True, "eml": str(path), "request": _build_request_json(message)}
        if not output.is_quiet:
            show_message(f"Nothing was sent. The email is in {path}. The JSON below has the request that would be sent")
        end_command(report, 0, replace(output, is_json=output.is_json or not output.is_quiet))
    settings = read_settings(os.environ, None)
    finish_run(run_flow(lambda stop, progress: run_send(message, settings, stop, progress), output), output)


def _write_new_file(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read. Raises ConfigurationError, for example if the file exists."""
    try:
        file = create_private_file(path)
    except FileExistsError:
        raise ConfigurationError(f"{path} exists already: name another file with --eml") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}; name another file with --eml") from None
    with file:
        file.write(content)


def _build_request_json(message: Message) -> dict[str, Any]:
    """Return the JSON of the send request, without the contents of the attachments."""
    from connector.mail.message import encode_email

    request: dict[str, Any] = json.loads(encode_email(message))
    for attachment in request["SendEmail"]["Email"].get("Attachments", ()):
        del attachment["ContentBase64"]
    return request


def _read_message(path: Path | None, options: Mapping[str, Any]) -> MessageFile:
    """Return the message of a message file. An option replaces the key of the file that has the same name. Raises
    ConfigurationError."""
    from connector.jobs.arguments import format_option, validate_arguments
    from connector.jobs.mail_models import MessageFile
    from connector.jobs.reader import load_model

    list_options = {name: list(value) for name, value in options.items() if isinstance(value, tuple) and value}
    text_options = {name: value for name, value in options.items() if isinstance(value, str)}
    option_message = validate_arguments(MessageFile, list_options | text_options, format_option)
    if path is None:
        return option_message
    if path.suffix.lower() not in _MESSAGE_FILE_SUFFIXES:
        raise ConfigurationError(
            f"{path} is not a message file (.yaml, .yml or .json). Give the file of a body by --html or --text"
        )
    file_message = load_model(path, MessageFile, os.environ, "message file")
    changes = {name: getattr(option_message, name) for name in option_message.model_fields_set}
    if option_message.html is not None and option_message.text is None:
        changes["text"] = None  # the text in the message file belongs to another HTML body
    changes["attach"] = file_message.attach + option_message.attach
    return file_message.model_copy(update=changes)


@click.command("mail", cls=Command)
@click.argument("job_path", metavar="JOB", type=click.Path(path_type=Path))
@option(
    "--preview",
    "preview_count",
    type=click.IntRange(min=1),
    metavar="N",
    group="Preview",
    default_text="no preview",
    help="Check every row, write the emails of the first N rows as .eml files, and send nothing.",
)
@option(
    "--preview-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    group="Preview",
    default_text="preview",
    help="With --preview: new or empty folder for the emails.",
)
@option(
    "--test",
    "test_address",
    metavar="ADDRESS",
    group="Preview",
    default_text="no test",
    callback=refuse_empty_text,
    help="Send the email of the first row to this address, for example your own. The ledger does not record the email.",
)
@option(
    "--rejected",
    "sends_rejected_again",
    is_flag=True,
    group="Campaign",
    help="Also send emails that the service refused in an earlier run.",
)
@option(
    "--new-account",
    "is_new_account",
    is_flag=True,
    group="Campaign",
    help="Send the campaign from this account, even if the ledger has the campaign under another account.",
)
@option(
    "--reopen",
    "is_reopening",
    is_flag=True,
    group="Campaign",
    help="Continue a campaign after a restore of the ledger. Emails that were sent after the backup may be sent twice.",
)
@limit_option
@wait_option
@time_limit_option
@run_options
def mail_command(
    job_path: Path,
    row_limit: int | None,
    preview_count: int | None,
    preview_dir: Path | None,
    test_address: str | None,
    sends_rejected_again: bool,
    is_new_account: bool,
    is_reopening: bool,
    wait_s: float,
    time_limit_s: float | None,
    output: Output,
) -> None:
    """Send a campaign: one email to each row of a job's source.

    The command checks every row before it sends the first email. Each recipient gets the email of a campaign once, even
    if the command runs again. If the answer to an email is lost, the email is not sent again, and the rejects file has
    its recipient.
    """
    from connector.jobs.mail_planner import plan_mail
    from connector.jobs.reader import load_job, read_settings
    from connector.mail.draft import parse_recipient
    from connector.mail.flow import run_mail, send_sample, write_preview

    if test_address is not None and preview_count is not None:
        raise ConfigurationError("--test sends an email, and --preview sends none. Use one of the two")
    if preview_dir is not None and preview_count is None:
        raise ConfigurationError("--preview-dir is for --preview N")
    is_recorded = preview_count is None and test_address is None  # a preview and a test email leave no record
    with handle_job_start_errors(job_path, is_recorded=is_recorded):
        job = load_job(job_path, os.environ)
        settings = read_settings(os.environ, job, time_limit_s=time_limit_s, writes_state=is_recorded)
        recipient = None if test_address is None else parse_recipient(test_address, "--test")
        plan = plan_mail(
            job,
            settings,
            row_limit=row_limit,
            wait_s=wait_s,
            sends_rejected_again=sends_rejected_again,
            is_new_account=is_new_account,
            is_reopening=is_reopening,
        )
        if recipient is not None:
            finish_run(run_flow(lambda stop, _: send_sample(plan, recipient, stop), output), output)
        if preview_count is not None:
            folder, email_count = preview_dir or Path("preview"), preview_count
            finish_run(
                run_flow(lambda stop, progress: write_preview(plan, folder, email_count, stop, progress), output),
                output,
            )
        report = run_and_notify(lambda stop, progress: run_mail(plan, stop, progress), job, settings, output)
    finish_run(report, output)
