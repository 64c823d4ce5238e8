"""An email in a job or a message file: what it holds, and the settings that go with it. It composes nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, Field, ValidationInfo, WithJsonSchema, model_validator

from connector.errors import ConnectorError
from connector.mail.draft import Stated, build_recipient, parse_recipient
from connector.mail.message import Recipient
from pipelines.jobs.fields import STRICT
from pipelines.jobs.places import resolve_path
from pipelines.jobs.sizes import parse_size
from pipelines.jobs.sources import find_folder

MOST_ATTACHED = 20_000_000
"""Bytes of one attached file, unless somebody says otherwise: the service's own limit is not shown (service-api.md
8)."""


def _name_path(value: Any) -> Any:
    """`FILE` is short for `{path: FILE}`."""
    return {"path": value} if isinstance(value, str) else value


def _resolve(value: Any, info: ValidationInfo) -> Any:
    return resolve_path(value, find_folder(info)) if isinstance(value, str) else value


def _read_person(value: Any) -> Any:
    try:
        if isinstance(value, str):
            return parse_recipient(value, "recipient")
        if isinstance(value, Mapping) and set(value) <= {"email", "name"} and isinstance(value.get("email"), str):
            return build_recipient(value["email"], value.get("name"), "recipient")
    except ConnectorError as error:
        raise ValueError(str(error)) from None
    raise ValueError("must be an address, as ann@example.com or Ann Lee <ann@example.com>, or {email: …, name: …}")


def _list_one(value: Any) -> Any:
    return value if isinstance(value, list) else [] if value is None else [value]


def _read_size(value: Any) -> int:
    return parse_size(value)


File = Annotated[Path, BeforeValidator(_resolve)]
Size = Annotated[int, BeforeValidator(_read_size), WithJsonSchema({"type": "string", "examples": ["500kB", "20MB"]})]
_PERSON = {"type": "string", "examples": ["ann@example.com", "Ann Lee <ann@example.com>"]}
Person = Annotated[Recipient, BeforeValidator(_read_person), WithJsonSchema(_PERSON)]
People = Annotated[tuple[Person, ...], BeforeValidator(_list_one)]


class EmailText(BaseModel):
    """A body: the text of a file, or the text itself."""

    model_config = STRICT

    path: File | None = Field(default=None, description="a file of UTF-8 text, or")
    content: str | None = Field(default=None, description="the text itself")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.path is None) == (self.content is None):
            raise ValueError("give either path or content")
        return self


class AttachedFile(BaseModel):
    """A file that goes with the email."""

    model_config = STRICT

    path: File = Field(description="the file")
    type: str | None = Field(default=None, description="its MIME type; guessed from its name when not given")
    id: str | None = Field(
        default=None, min_length=1, description="for an inline part: what the HTML calls it, as in cid:logo"
    )


Text = Annotated[EmailText, BeforeValidator(_name_path)]
Attached = Annotated[AttachedFile, BeforeValidator(_name_path)]


class Tracking(BaseModel):
    """What the service tracks (service-api.md 2.2); null leaves it to the service."""

    model_config = STRICT

    track_links: bool | None = Field(default=False, description="clicks on links of the HTML part")
    track_plain_text_links: bool | None = Field(default=False, description="clicks on links of the plain-text part")
    track_open: bool | None = Field(default=False, description="that it was opened")
    track_unsubscribe: bool | None = Field(default=False, description="that somebody unsubscribes")


class SendSettings(BaseModel):
    """How the service sends (service-api.md 2.2); null leaves it to the service."""

    model_config = STRICT

    inline_images: bool | None = Field(default=False, description="have the service put external images into the email")
    use_dkim: bool | None = Field(default=True, description="sign with DKIM")
    use_dkim_selector: str | None = Field(default=None, description="the selector of the DKIM key to sign with")


def read_stated(*groups: BaseModel | None) -> Stated:
    """The settings that these groups say, those alone."""
    return {name: getattr(group, name) for group in groups if group is not None for name in group.model_fields_set}


class MessageFile(BaseModel):
    """One email, as `connector send FILE` takes it."""

    model_config = STRICT

    from_: Person | None = Field(default=None, alias="from", description="the sender")
    to: People = Field(default=(), description="recipients: an address, or a list of them")
    cc: People = Field(default=(), description="recipients of a copy")
    bcc: People = Field(default=(), description="recipients of a copy whom nobody sees")
    reply_to: People = Field(default=(), description="where answers go")
    subject: str | None = Field(default=None, description="the subject line")
    html: Text | None = Field(default=None, description="the HTML body: a file, or {content: text}")
    text: Text | None = Field(default=None, description="the plain-text body; made from the HTML when not given")
    attach: tuple[Attached, ...] = Field(default=(), description="files to attach: a path, or keys")
    inline: tuple[Attached, ...] = Field(default=(), description="files that the HTML shows, each with an id")
    headers: dict[str, str] = Field(default_factory=dict, description="further headers: name and value")
    at: str | None = Field(default=None, description="when to send, with its zone: 2026-12-24T09:00+01:00")
    tracking: Tracking = Field(default_factory=Tracking, description="what is tracked; nothing when not given")
    settings: SendSettings = Field(default_factory=SendSettings, description="how it is sent")
    max_attached: Size = Field(default=MOST_ATTACHED, description="the size of a file that may be attached, at most")
