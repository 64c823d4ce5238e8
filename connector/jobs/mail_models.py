"""The keys of a message file and of a job's `mail` and `notify`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, WithJsonSchema, model_validator

from connector.errors import ConfigurationError, ConnectorError
from connector.jobs.key_types import ColumnName, FilePath, JobModel, Name, accept_short_form
from connector.mail.draft import MAX_ATTACHMENT_BYTES, SettingValues, build_recipient, parse_recipient
from connector.mail.message import Recipient
from connector.service.settings import parse_base_url
from connector.service.webhook import read_key
from connector.units import parse_size

_REPLY_TO_DESCRIPTION = "Addresses for replies: one address, or a list. Without this key, replies go to the sender."
_INLINE_DESCRIPTION = (
    "Files that the HTML body shows. Each item has the keys `path` and `id`. Without this key, no inline files."
)
_SEND_AT_DESCRIPTION = (
    "Earliest time to send: a time with an offset, such as 2026-12-24T09:00+01:00, or a Unix timestamp in seconds. "
    "Without this key, the email is sent immediately."
)
_TRACKING_DESCRIPTION = "Actions of recipients that the service tracks. Without this key, no tracking."
_SETTINGS_DESCRIPTION = (
    "How the service sends the email. Without this key, the email is signed with DKIM, and external images stay links."
)
_ATTACHMENT_LIMIT_DESCRIPTION = "Largest size of an attached or inline file, such as 500kB."

_TIME_ERROR = (
    "must be a time with an offset, such as 2026-12-24T09:00+01:00 or 2026-12-24T08:00Z, or a Unix timestamp in "
    "seconds; the name of a time zone is not accepted"
)


def _parse_person(value: Any) -> Any:
    try:
        if isinstance(value, str):
            return parse_recipient(value, "recipient")
        if isinstance(value, Mapping) and set(value) <= {"email", "name"} and isinstance(value.get("email"), str):
            return build_recipient(value["email"], value.get("name"), "recipient")
    except ConnectorError as error:
        raise ValueError(str(error)) from None
    raise ValueError("must be an address, such as ann@example.com or Ann Lee <ann@example.com>, or {email: …, name: …}")


def _parse_send_time(value: Any) -> Any:
    """Return an ISO time with an offset, or a Unix timestamp in seconds, as a time with a time zone."""
    if not isinstance(value, str):
        return value
    try:
        send_at = datetime.fromtimestamp(int(value), UTC) if value.isdecimal() else datetime.fromisoformat(value)
    except (ValueError, OverflowError, OSError):
        raise ValueError(_TIME_ERROR) from None
    if send_at.tzinfo is None:
        raise ValueError(_TIME_ERROR)
    return send_at


def _wrap_in_list(value: Any) -> Any:
    return value if isinstance(value, list) else [] if value is None else [value]


Size = Annotated[int, BeforeValidator(parse_size), WithJsonSchema({"type": "string", "examples": ["500kB", "20MB"]})]
_PERSON_SCHEMA = {"type": "string", "examples": ["ann@example.com", "Ann Lee <ann@example.com>"]}
Person = Annotated[Recipient, BeforeValidator(_parse_person), WithJsonSchema(_PERSON_SCHEMA)]
SendTime = Annotated[
    datetime,
    BeforeValidator(_parse_send_time),
    WithJsonSchema({"type": "string", "examples": ["2026-12-24T09:00+01:00"]}),
]
People = Annotated[tuple[Person, ...], BeforeValidator(_wrap_in_list)]


class EmailText(JobModel):
    """A body: the text of a file, or the text itself."""

    path: FilePath | None = Field(
        default=None, description="File that holds the body as UTF-8 text. Set either `path` or `content`."
    )
    content: str | None = Field(default=None, description="The body itself. Set either `path` or `content`.")

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if (self.path is None) == (self.content is None):
            raise ValueError("set either `path` or `content`")
        return self


class AttachedFile(JobModel):
    """A file that is sent with the email."""

    path: FilePath = Field(description="Path of the file.")
    type: str | None = Field(
        default=None,
        description="MIME type of the file, such as text/calendar. Without this key, the suffix of the file decides.",
    )
    id: str | None = Field(
        default=None,
        min_length=1,
        description="Id by which the HTML body refers to the file, for example `cid:logo` for the id `logo`. Without "
        "this key, no id.",
    )


EmailTextKey = Annotated[EmailText, accept_short_form("path")]
AttachedFileKey = Annotated[AttachedFile, accept_short_form("path")]


class Tracking(JobModel):
    """Actions of recipients that the service tracks (service-api.md 2.2). If a key is `null`, the service decides."""

    track_links: bool | None = Field(
        default=False, description="Track clicks on links of the HTML body. With `null`, the service decides."
    )
    track_plain_text_links: bool | None = Field(
        default=False, description="Track clicks on links of the plain-text body. With `null`, the service decides."
    )
    track_open: bool | None = Field(
        default=False, description="Track whether the email is opened. With `null`, the service decides."
    )
    track_unsubscribe: bool | None = Field(
        default=False, description="Track unsubscribes. With `null`, the service decides."
    )


class SendSettings(JobModel):
    """How the service sends the email (service-api.md 2.2). If a key is `null`, the service decides."""

    inline_images: bool | None = Field(
        default=False,
        description="Let the service copy external images into the email. With `null`, the service decides.",
    )
    use_dkim: bool | None = Field(
        default=True,
        description="Sign the email with DKIM. With `null`, the service decides.",
    )
    use_dkim_selector: str | None = Field(
        default=None,
        description="DKIM selector of the key that signs the email. Without this key, the service chooses the "
        "selector.",
    )


def collect_setting_values(*groups: BaseModel | None) -> SettingValues:
    """Return the values that are set in these groups. Defaults are not included."""
    return {name: getattr(group, name) for group in groups if group is not None for name in group.model_fields_set}


class MessageFile(JobModel):
    """One email, as `connector send FILE` reads it."""

    from_: Person | None = Field(
        default=None,
        alias="from",
        description="Sender, such as hello@example.com or News <hello@example.com>. Without this key, the option "
        "--from sets the sender.",
    )
    to: People = Field(
        default=(),
        description="Recipients: one address, or a list of addresses. Without this key, the option --to sets the "
        "recipients.",
    )
    cc: People = Field(
        default=(),
        description="Recipients of a copy: one address, or a list of addresses. Without this key, no copies.",
    )
    bcc: People = Field(
        default=(),
        description="Recipients of a copy that other recipients do not see: one address, or a list. "
        "Without this key, no hidden copies.",
    )
    reply_to: People = Field(default=(), description=_REPLY_TO_DESCRIPTION)
    subject: str | None = Field(
        default=None, description="Subject line. Without this key, the option --subject sets the subject."
    )
    html: EmailTextKey | None = Field(
        default=None,
        description="HTML body: the path of a file, or `{content: text}`. "
        "Without this key, the email has only a plain-text body.",
    )
    text: EmailTextKey | None = Field(
        default=None,
        description="Plain-text body: the path of a file, or `{content: text}`. Without this key, the HTML body is "
        "converted to text.",
    )
    attach: tuple[AttachedFileKey, ...] = Field(
        default=(),
        description="Files to attach. Each item is a path, or has the keys `path`, `type` and `id`. Without this key, "
        "no files.",
    )
    inline: tuple[AttachedFileKey, ...] = Field(default=(), description=_INLINE_DESCRIPTION)
    headers: dict[str, str] = Field(
        default_factory=dict, description="Additional headers, as pairs `name: value`. Without this key, no headers."
    )
    at: SendTime | None = Field(default=None, description=_SEND_AT_DESCRIPTION)
    tracking: Tracking = Field(default_factory=Tracking, description=_TRACKING_DESCRIPTION)
    settings: SendSettings = Field(default_factory=SendSettings, description=_SETTINGS_DESCRIPTION)
    max_attached: Size = Field(default=MAX_ATTACHMENT_BYTES, description=_ATTACHMENT_LIMIT_DESCRIPTION)


class RecipientColumns(JobModel):
    """The columns that hold the recipient of a row's email."""

    email: ColumnName = Field(description="Column of the recipient's address.")
    name: ColumnName | None = Field(
        default=None, description="Column of the recipient's name. Without this key, no name."
    )


class Mail(JobModel):
    """The email for each row. A recipient gets one email of a campaign at most. Texts are Jinja2 templates with the
    columns as variables."""

    campaign: Name = Field(description="Name of the campaign. A recipient gets one email of a campaign at most.")
    to: Annotated[RecipientColumns, accept_short_form("email")] = Field(
        description="Column of the recipient's address, or the keys `email` and `name`."
    )
    from_: Person = Field(alias="from", description="Sender, as hello@example.com or News <hello@example.com>.")
    reply_to: People = Field(default=(), description=_REPLY_TO_DESCRIPTION)
    subject: str = Field(description="Subject line, a template such as Hello {{ first_name }}.")
    html: EmailTextKey | None = Field(
        default=None,
        description="Template of the HTML body: the path of a file, or `{content: text}`. "
        "Without this key, the email has only a plain-text body.",
    )
    text: EmailTextKey | None = Field(
        default=None,
        description="Template of the plain-text body: the path of a file, or `{content: text}`. Without this key, the "
        "HTML body is converted to text.",
    )
    attach: tuple[AttachedFileKey, ...] = Field(
        default=(),
        description="Files to attach to every email. Each item is a path, or has the keys `path`, `type` and `id`. "
        "Without this key, no files.",
    )
    inline: tuple[AttachedFileKey, ...] = Field(default=(), description=_INLINE_DESCRIPTION)
    headers: dict[str, str] = Field(
        default_factory=dict,
        description="Additional headers, as pairs `name: value`. The values are templates. Without this key, no "
        "headers.",
    )
    at: SendTime | None = Field(default=None, description=_SEND_AT_DESCRIPTION)
    tracking: Tracking = Field(default_factory=Tracking, description=_TRACKING_DESCRIPTION)
    settings: SendSettings = Field(default_factory=SendSettings, description=_SETTINGS_DESCRIPTION)
    max_attached: Size = Field(default=MAX_ATTACHMENT_BYTES, description=_ATTACHMENT_LIMIT_DESCRIPTION)
    retry_limited: bool = Field(
        default=False,
        description="Send an email again after the service refused it with 429 (too many requests). Set `true` only if "
        "the service never sends an email that it refused.",
    )


def _check_url(url: str) -> str:
    """Return the URL if it is https, or http on this machine. The error does not show the path, because the path is
    often a secret."""
    try:
        parse_base_url(url.partition("?")[0])
    except ConfigurationError:
        raise ValueError("must be an https address, or http on this machine") from None
    return url


def _check_secret(secret: str) -> str:
    read_key(secret)
    return secret


class Webhook(JobModel):
    """The receiver of alerts, which are sent by POST."""

    url: Annotated[str, AfterValidator(_check_url)] = Field(
        repr=False,
        description="URL that receives each alert. Keep the URL in the environment, and write `${NAME}` here.",
    )
    secret: Annotated[str, AfterValidator(_check_secret)] | None = Field(
        default=None,
        repr=False,
        description="Secret that signs each alert (Standard Webhooks): `whsec_` and base64. Keep the secret in the "
        "environment, and write `${NAME}` here. Without this key, no signature.",
    )


class NotificationSettings(JobModel):
    """The webhook that receives alerts. A failed alert never changes the outcome of a run."""

    on: Literal["change", "problem", "always"] = Field(
        default="change",
        description="When to send an alert. `change`: when a job first fails, when the cause changes, at new problems, "
        "at recovery, and once a day as a reminder; `problem`: after each run that is not ok; "
        "`always`: after each run.",
    )
    webhook: Webhook = Field(
        description="Receiver of the alerts. Each alert is a POST request whose JSON has a text and the report.",
    )
