"""Emails as keys of a message file and of a job's `mail`, and the webhook that a job notifies."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, WithJsonSchema, model_validator

from connector.errors import ConfigurationError, ConnectorError
from connector.jobs.key_types import STRICT, ColumnName, FilePath, Name, short_for
from connector.mail.draft import MOST_ATTACHED, Stated, build_recipient, parse_recipient
from connector.mail.message import Recipient
from connector.service.settings import parse_base_url
from connector.service.webhook import read_key
from connector.units import parse_size

_TIME_FORMS = (
    "must be a time with an offset, such as 2026-12-24T09:00+01:00 or 2026-12-24T08:00Z, or a Unix timestamp in "
    "seconds; the name of a time zone is not accepted"
)


def _read_person(value: Any) -> Any:
    try:
        if isinstance(value, str):
            return parse_recipient(value, "recipient")
        if isinstance(value, Mapping) and set(value) <= {"email", "name"} and isinstance(value.get("email"), str):
            return build_recipient(value["email"], value.get("name"), "recipient")
    except ConnectorError as error:
        raise ValueError(str(error)) from None
    raise ValueError("must be an address, as ann@example.com or Ann Lee <ann@example.com>, or {email: …, name: …}")


def _read_time(value: Any) -> Any:
    """Return the aware time of an ISO time with an offset, or of a Unix timestamp in seconds."""
    if not isinstance(value, str):
        return value
    try:
        at = datetime.fromtimestamp(int(value), UTC) if value.isdecimal() else datetime.fromisoformat(value)
    except (ValueError, OverflowError, OSError):
        raise ValueError(_TIME_FORMS) from None
    if at.tzinfo is None:
        raise ValueError(_TIME_FORMS)
    return at


def _list_one(value: Any) -> Any:
    return value if isinstance(value, list) else [] if value is None else [value]


Size = Annotated[int, BeforeValidator(parse_size), WithJsonSchema({"type": "string", "examples": ["500kB", "20MB"]})]
_PERSON = {"type": "string", "examples": ["ann@example.com", "Ann Lee <ann@example.com>"]}
Person = Annotated[Recipient, BeforeValidator(_read_person), WithJsonSchema(_PERSON)]
Time = Annotated[
    datetime, BeforeValidator(_read_time), WithJsonSchema({"type": "string", "examples": ["2026-12-24T09:00+01:00"]})
]
People = Annotated[tuple[Person, ...], BeforeValidator(_list_one)]


class EmailText(BaseModel):
    """A body: the text of a file, or the text itself."""

    model_config = STRICT

    path: FilePath | None = Field(default=None, description="a file of UTF-8 text, or")
    content: str | None = Field(default=None, description="the text itself")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.path is None) == (self.content is None):
            raise ValueError("give either path or content")
        return self


class AttachedFile(BaseModel):
    """A file that goes with the email."""

    model_config = STRICT

    path: FilePath = Field(description="the file")
    type: str | None = Field(
        default=None, description="its MIME type, for example text/calendar; guessed from its name when not given"
    )
    id: str | None = Field(
        default=None, min_length=1, description="for an inline part: what the HTML calls it, as in cid:logo"
    )


Text = Annotated[EmailText, short_for("path")]
Attached = Annotated[AttachedFile, short_for("path")]


class Tracking(BaseModel):
    """What the service tracks (service-api.md 2.2); null leaves it to the service."""

    model_config = STRICT

    track_links: bool | None = Field(default=False, description="clicks on links of the HTML part")
    track_plain_text_links: bool | None = Field(default=False, description="clicks on links of the plain-text part")
    track_open: bool | None = Field(default=False, description="that it was opened")
    track_unsubscribe: bool | None = Field(default=False, description="that a recipient unsubscribes")


class SendSettings(BaseModel):
    """How the service sends (service-api.md 2.2); null leaves it to the service."""

    model_config = STRICT

    inline_images: bool | None = Field(default=False, description="have the service put external images into the email")
    use_dkim: bool | None = Field(default=True, description="sign with DKIM")
    use_dkim_selector: str | None = Field(default=None, description="the selector of the DKIM key to sign with")


def read_stated(*groups: BaseModel | None) -> Stated:
    """Return the settings that these groups say, those alone."""
    return {name: getattr(group, name) for group in groups if group is not None for name in group.model_fields_set}


class MessageFile(BaseModel):
    """One email, as `connector send FILE` takes it."""

    model_config = STRICT

    from_: Person | None = Field(default=None, alias="from", description="the sender")
    to: People = Field(default=(), description="recipients: an address, or a list of them")
    cc: People = Field(default=(), description="recipients of a copy")
    bcc: People = Field(default=(), description="recipients of a copy that the others do not see")
    reply_to: People = Field(default=(), description="where answers go")
    subject: str | None = Field(default=None, description="the subject line")
    html: Text | None = Field(default=None, description="the HTML body: a file, or {content: text}")
    text: Text | None = Field(default=None, description="the plain-text body; made from the HTML when not given")
    attach: tuple[Attached, ...] = Field(default=(), description="files to attach: a path, or keys")
    inline: tuple[Attached, ...] = Field(default=(), description="files that the HTML shows, each with an id")
    headers: dict[str, str] = Field(default_factory=dict, description="further headers: name and value")
    at: Time | None = Field(
        default=None, description="earliest time to send, with an offset: 2026-12-24T09:00+01:00; or a Unix timestamp"
    )
    tracking: Tracking = Field(default_factory=Tracking, description="what is tracked; nothing when not given")
    settings: SendSettings = Field(default_factory=SendSettings, description="how it is sent")
    max_attached: Size = Field(default=MOST_ATTACHED, description="the size of a file that may be attached, at most")


def _refuse_templates(files: tuple[AttachedFile, ...]) -> tuple[AttachedFile, ...]:
    """Raise ValueError if a path is a template, as earlier versions allowed."""
    if any("{{" in str(file.path) or "{%" in str(file.path) for file in files):
        raise ValueError(
            "the path is a template, and every row is sent the same files. Link to the row's own file in the body, or "
            "send each such email by `connector send` with a message file"
        )
    return files


class RecipientColumns(BaseModel):
    """The columns that say who a row's email goes to."""

    model_config = STRICT

    email: ColumnName = Field(description="the column of the address")
    name: ColumnName | None = Field(default=None, description="the column of the name")


class Mail(BaseModel):
    """One email to each row, once in a campaign. Texts are Jinja2 templates, whose variables are the columns."""

    model_config = STRICT

    campaign: Name = Field(description="what makes two emails to one recipient the same: it is sent once in a campaign")
    to: Annotated[RecipientColumns, short_for("email")] = Field(description="the column of the address, or keys")
    from_: Person = Field(alias="from", description="the sender")
    reply_to: People = Field(default=(), description="where answers go")
    subject: str = Field(description="the subject line, a template")
    html: Text | None = Field(default=None, description="the HTML body, a template: a file, or {content: text}")
    text: Text | None = Field(
        default=None, description="the plain-text body, a template; made from the HTML when not given"
    )
    attach: Annotated[tuple[Attached, ...], AfterValidator(_refuse_templates)] = Field(
        default=(), description="files to attach to every email: paths, or keys"
    )
    inline: tuple[Attached, ...] = Field(default=(), description="files that the HTML shows, each with an id")
    headers: dict[str, str] = Field(default_factory=dict, description="further headers: name, and value as a template")
    at: Time | None = Field(
        default=None, description="earliest time to send, with an offset: 2026-12-24T09:00+01:00; or a Unix timestamp"
    )
    tracking: Tracking = Field(default_factory=Tracking, description="what is tracked; nothing when not given")
    settings: SendSettings = Field(default_factory=SendSettings, description="how it is sent")
    max_attached: Size = Field(default=MOST_ATTACHED, description="the size of a file that may be attached, at most")
    retry_limited: bool = Field(
        default=False,
        description="send an email again that the service refused for its rate (429), and trust that it sent none",
    )


def _check_url(url: str) -> str:
    """https, or http on this machine; the path, which often is a secret, is never shown."""
    try:
        parse_base_url(url.partition("?")[0])
    except ConfigurationError:
        raise ValueError("must be an https address, or http on this machine") from None
    return url


def _check_secret(secret: str) -> str:
    read_key(secret)
    return secret


class Webhook(BaseModel):
    """The receiver of alerts by POST."""

    model_config = STRICT

    url: Annotated[str, AfterValidator(_check_url)] = Field(
        repr=False, description="Address of the receiver, best as ${NAME}."
    )
    secret: Annotated[str, AfterValidator(_check_secret)] | None = Field(
        default=None,
        repr=False,
        description="Secret that signs each alert (Standard Webhooks): whsec_ and base64, best as ${NAME}.",
    )


class Notify(BaseModel):
    """The webhook that receives alerts. A failed alert never changes the outcome of a run."""

    model_config = STRICT

    on: Literal["change", "problem", "always"] = Field(
        default="change",
        description="When to send an alert: `change` (a first failure, another cause, new problems, recovery, and one "
        "reminder a day), `problem` (each run that is not ok) or `always` (each run).",
    )
    webhook: Webhook = Field(description="Receiver of each alert, by POST: a text and the report.")
