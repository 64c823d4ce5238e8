"""`connector send` and `mail`, and what both take as the text of an email."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

from connector.choices import SETTINGS, TRACKING
from connector.errors import ConfigurationError
from pipelines.cli.options import Command, Duration, refuse_empty, time_limit_option
from pipelines.cli.output import Output, end, finish, run_and_notify, run_flow, run_options

if TYPE_CHECKING:
    from connector.mail.draft import Draft
    from connector.mail.message import Message
    from pipelines.jobs.mail_models import MessageFile

_MESSAGE_FILES = (".yaml", ".yml", ".json")


def _many(name: str, parameter: str, metavar: str, text: str) -> Callable[[Command], Command]:
    return click.option(name, parameter, multiple=True, metavar=metavar, help=text)


def _flag(name: str, text: str, parameter: str | None = None) -> Callable[[Command], Command]:
    return click.option(f"--{name}/--no-{name}", parameter or name.replace("-", "_"), default=None, help=text)


_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    _many("--to", "to", "ADDRESS", "A recipient: ann@example.com, or 'Ann Lee <ann@example.com>'. Repeatable."),
    _many("--cc", "cc", "ADDRESS", "A recipient of a copy. Repeatable."),
    _many("--bcc", "bcc", "ADDRESS", "A recipient of a blind copy. Repeatable."),
    _many("--reply-to", "reply_to", "ADDRESS", "Where answers go. Repeatable."),
    click.option("--from", "from_", metavar="ADDRESS", callback=refuse_empty, help="The sender."),
    click.option("--subject", help="The subject line."),
    click.option("--html", metavar="FILE", callback=refuse_empty, help="The HTML body."),
    click.option(
        "--text", metavar="FILE", callback=refuse_empty, help="The plain-text body; made from the HTML if not given."
    ),
    _many("--attach", "attach", "FILE", "Attach this file. Repeatable."),
    _many("--inline", "inline", "FILE=ID", "Attach what the HTML shows as cid:ID. Repeatable."),
    _many("--header", "headers", "'NAME: VALUE'", "A further header. Repeatable."),
    click.option("--at", metavar="TIME", help="Not before then, with its zone: 2026-12-24T09:00+01:00."),
    _flag("track-links", "Whether clicks on links of the HTML part are tracked.  [default: no]"),
    _flag("track-plain-text-links", "Whether clicks on links of the plain-text part are tracked.  [default: no]"),
    _flag("track-open", "Whether it is tracked that it was opened.  [default: no]"),
    _flag("track-unsubscribe", "Whether unsubscribing is tracked.  [default: no]"),
    _flag("inline-images", "Whether the service puts external images into the email.  [default: no]"),
    _flag("dkim", "Whether it is signed with DKIM.  [default: yes]", "use_dkim"),
    click.option("--dkim-selector", "use_dkim_selector", callback=refuse_empty, help="Sign with this selector's key."),
    click.option("--max-attached", metavar="SIZE", help="The size of an attached file, at most.  [default: 20MB]"),
)

_AS_IN_A_FILE = ("subject", "html", "text", "at", "max_attached")

_LISTS = ("from_", "to", "cc", "bcc", "reply_to", "attach", "inline", "headers")

_NAMES = (*_AS_IN_A_FILE, *_LISTS, *TRACKING, *SETTINGS)


def email_options(command: Command) -> Command:
    """Add the options of an email, given to the command as `said`: by the keys of a message file, without those that
    were not used."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        said = {name: value for name in _NAMES if (value := kwargs.pop(name)) is not None and value != ()}
        return command(*args, said=said, **kwargs)

    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), cast("Command", wrapped))


def _draft(file: Path | None, said: Mapping[str, Any]) -> Draft:
    """The draft of the file, if any, with the options laid over it. Raises ConfigurationError."""
    from connector.mail.draft import lay_over
    from pipelines.flows.sends import draft_eml, draft_file
    from pipelines.jobs.mail_models import MessageFile
    from pipelines.jobs.reader import load_model

    over = draft_file(_read_options(said))
    if file is None:
        return over
    if file.suffix.lower() == ".eml":
        return lay_over(draft_eml(file), over)
    if file.suffix.lower() not in _MESSAGE_FILES:
        raise ConfigurationError(f"{file}: a message is a .yaml, .json or .eml file; --html and --text name bodies")
    return lay_over(draft_file(load_model(file, MessageFile, os.environ, "message file")), over)


def _read_options(said: Mapping[str, Any]) -> MessageFile:
    """The options as a message file. Raises ConfigurationError naming the option."""
    from pipelines.jobs.reader import check_message

    keys: dict[str, Any] = {name: said[name] for name in _AS_IN_A_FILE if name in said}
    keys |= {name: list(said[name]) for name in ("to", "cc", "bcc", "reply_to", "attach") if name in said}
    keys["inline"] = [_parse_pair("--inline", each, "=", "FILE=ID") for each in said.get("inline", ())]
    keys["inline"] = [{"path": path, "id": content_id} for path, content_id in keys["inline"]]
    headers = [_parse_pair("--header", each, ":", "'NAME: VALUE'") for each in said.get("headers", ())]
    keys["headers"] = {name.strip(): value.strip() for name, value in headers}
    if len(keys["headers"]) < len(headers):
        raise ConfigurationError("--header: a header is given twice")
    keys["tracking"] = {name: said[name] for name in TRACKING if name in said}
    keys["settings"] = {name: said[name] for name in SETTINGS if name in said}
    if "from_" in said:
        keys["from"] = said["from_"]
    return check_message(keys)


def _parse_pair(option: str, text: str, separator: str, form: str) -> tuple[str, str]:
    first, found, second = text.rpartition(separator) if separator == "=" else text.partition(separator)
    if not found or not first.strip() or not second.strip():
        raise ConfigurationError(f"{option}: write {option} {form}")
    return first, second


@click.command("send")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@email_options
@click.option("--dry-run", "is_dry", is_flag=True, help="Only show what would be sent, and write it as an .eml file.")
@click.option(
    "--eml",
    type=click.Path(path_type=Path),
    help="Where a dry run writes the email; a file that is there is left alone.  [default: email.eml]",
)
@run_options
def send_command(file: Path | None, said: Mapping[str, Any], is_dry: bool, eml: Path | None, output: Output) -> None:
    """Send one email, at most once: FILE, the options, or both, of which the options have priority.

    FILE is a message file (.yaml, .yml, .json; its keys are in the documentation) or an .eml file. What the service
    answers is kept beside the ledger. An email whose answer is lost is never sent again: the report says that it is
    unknown (exit 1).
    """
    from connector.clock import system_clock
    from connector.mail.draft import compose_draft
    from connector.mail.single import run_send
    from connector.settings import SettingOptions
    from pipelines.flows.sends import write_new
    from pipelines.jobs.settings import read_settings

    if eml is not None and not is_dry:
        raise ConfigurationError("--eml is for --dry-run: an email that is sent is not written as a file")
    message = compose_draft(_draft(file, said), system_clock().now())
    if is_dry:
        _show(message, write_new(eml or Path("email.eml"), message), output)
    settings = read_settings(os.environ, None, SettingOptions())
    finish(run_flow(lambda stop, progress: run_send(message, settings, stop, progress), output), output)


def _show(message: Message, path: Path, output: Output) -> NoReturn:
    """What would be sent, and where it was written."""
    from pipelines.flows.sends import describe_message, show_email

    described = describe_message(message) | {"eml": str(path)}
    if not output.is_json and not output.is_quiet:
        output.show(lambda console: show_email(described, console))
    end({"command": "send", "planned": True, "email": described}, 0, output)


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
@click.option(
    "--rejected", "allows_rejected", is_flag=True, help="Send the emails again that the service refused before."
)
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
    help="Go on with a campaign of a restored ledger, which does not know the emails sent after its backup.",
)
@click.option("--wait", "wait_s", type=Duration(), default="0s", help="How long to wait for another run's lock.")
@time_limit_option
@run_options
def mail_command(
    job: Path,
    limit: int | None,
    previewed: int | None,
    preview_dir: Path | None,
    allows_rejected: bool,
    is_new_account: bool,
    is_reopening: bool,
    wait_s: float,
    time_limit_s: float | None,
    output: Output,
) -> None:
    """Send each row of JOB's source the email that the job describes, once in its campaign.

    Every row is checked before the first email leaves. No recipient gets the email twice, however often this
    is run, and an email whose answer is lost is never sent again: the rejects file names its recipient.
    """
    from connector.settings import SettingOptions
    from pipelines.flows.mail_plan import plan_mail
    from pipelines.flows.mails import preview, run_mail
    from pipelines.jobs.reader import load_job
    from pipelines.jobs.settings import read_settings

    if preview_dir is not None and previewed is None:
        raise ConfigurationError("--preview-dir is for --preview N")
    loaded = load_job(job, os.environ)
    settings = read_settings(
        os.environ, loaded, SettingOptions(time_limit_s=time_limit_s), is_writing=previewed is None
    )
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
