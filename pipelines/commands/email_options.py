"""What the command line of `send` says of an email, as a message file would say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from connector.choices import SETTINGS, TRACKING
from connector.errors import ConfigurationError
from pipelines.commands.options import Command, refuse_empty

if TYPE_CHECKING:
    from connector.mail.draft import Draft
    from pipelines.jobs import MessageFile

_MESSAGE_FILES = (".yaml", ".yml", ".json")


def _many(name: str, parameter: str, metavar: str, text: str) -> Callable[[Command], Command]:
    return click.option(name, parameter, multiple=True, metavar=metavar, help=text)


def _flag(name: str, text: str, parameter: str | None = None) -> Callable[[Command], Command]:
    return click.option(f"--{name}/--no-{name}", parameter or name.replace("-", "_"), default=None, help=text)


_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    _many("--to", "to", "ADDRESS", "A recipient: ann@example.com, or 'Ann Lee <ann@example.com>'. Repeatable."),
    _many("--cc", "cc", "ADDRESS", "A recipient of a copy. Repeatable."),
    _many("--bcc", "bcc", "ADDRESS", "A recipient of a copy whom nobody sees. Repeatable."),
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
    _flag("track-unsubscribe", "Whether it is tracked that somebody unsubscribes.  [default: no]"),
    _flag("inline-images", "Whether the service puts external images into the email.  [default: no]"),
    _flag("dkim", "Whether it is signed with DKIM.  [default: yes]", "use_dkim"),
    click.option("--dkim-selector", "use_dkim_selector", callback=refuse_empty, help="Sign with this selector's key."),
    click.option("--max-attached", metavar="SIZE", help="The size of an attached file, at most.  [default: 20MB]"),
)


_AS_IN_A_FILE = ("subject", "html", "text", "at", "max_attached")
_LISTS = ("from_", "to", "cc", "bcc", "reply_to", "attach", "inline", "headers")
_NAMES = (*_AS_IN_A_FILE, *_LISTS, *TRACKING, *SETTINGS)
_OPTION_OF = {"reply_to": "reply-to", "headers": "header", "max_attached": "max-attached"}


@dataclass(frozen=True, slots=True)
class EmailGiven:
    """The options by the keys of a message file; what was not given is not there."""

    said: Mapping[str, Any]

    def draft(self, file: Path | None, environ: Mapping[str, str]) -> Draft:
        """The draft of the file, if any, with the options laid over it. Raises ConfigurationError."""
        from connector.mail.draft import lay_over
        from pipelines.flows.sends import draft_eml, draft_file
        from pipelines.jobs import MessageFile, load_model

        over = draft_file(_read_options(self.said))
        if file is None:
            return over
        if file.suffix.lower() == ".eml":
            return lay_over(draft_eml(file), over)
        if file.suffix.lower() not in _MESSAGE_FILES:
            raise ConfigurationError(f"{file}: a message is a .yaml, .json or .eml file; --html and --text name bodies")
        message = load_model(file, MessageFile, environ, "message file")
        return lay_over(draft_file(message), over)


def email_options(command: Command) -> Command:
    """All of them, given to the command as `given`, an EmailGiven."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        said = {name: value for name in _NAMES if (value := kwargs.pop(name)) is not None and value != ()}
        return command(*args, given=EmailGiven(said), **kwargs)

    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), cast("Command", wrapped))


def _read_options(said: Mapping[str, Any]) -> MessageFile:
    """The options as a message file. Raises ConfigurationError naming the option."""
    from pipelines.jobs import check_message

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
    return check_message(keys, Path.cwd(), _OPTION_OF)


def _parse_pair(option: str, text: str, separator: str, form: str) -> tuple[str, str]:
    first, found, second = text.rpartition(separator) if separator == "=" else text.partition(separator)
    if not found or not first.strip() or not second.strip():
        raise ConfigurationError(f"{option}: write {option} {form}")
    return first, second
