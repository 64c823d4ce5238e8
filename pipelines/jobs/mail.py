"""`mail` of a job: one email a row, each text of it a template over the row's columns. It composes nothing."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

from pipelines.jobs.bases import Name
from pipelines.jobs.emails import (
    MOST_ATTACHED,
    Attached,
    People,
    Person,
    SendSettings,
    Size,
    Text,
    Tracking,
)
from pipelines.jobs.fields import STRICT, ColumnName


def _name_column(value: Any) -> Any:
    """`to: COLUMN` is short for `to: {email: COLUMN}`."""
    return {"email": value} if isinstance(value, str) else value


class RecipientColumns(BaseModel):
    """The columns that say who a row's email goes to."""

    model_config = STRICT

    email: ColumnName = Field(description="the column of the address")
    name: ColumnName | None = Field(default=None, description="the column of the name")


class Mail(BaseModel):
    """One email to each row, once in a campaign. Texts are Jinja2 templates, whose variables are the columns."""

    model_config = STRICT

    campaign: Name = Field(description="what makes two emails to one recipient the same: it is sent once in a campaign")
    to: Annotated[RecipientColumns, BeforeValidator(_name_column)] = Field(
        description="the column of the address, or keys"
    )
    from_: Person = Field(alias="from", description="the sender")
    reply_to: People = Field(default=(), description="where answers go")
    subject: str = Field(description="the subject line, a template")
    html: Text | None = Field(default=None, description="the HTML body, a template: a file, or {content: text}")
    text: Text | None = Field(
        default=None, description="the plain-text body, a template; made from the HTML when not given"
    )
    attach: tuple[Attached, ...] = Field(
        default=(), description="files to attach; a path may be a template, within its folder"
    )
    inline: tuple[Attached, ...] = Field(default=(), description="files that the HTML shows, each with an id")
    headers: dict[str, str] = Field(default_factory=dict, description="further headers: name, and value as a template")
    at: str | None = Field(default=None, description="when to send, with its zone: 2026-12-24T09:00+01:00")
    tracking: Tracking = Field(default_factory=Tracking, description="what is tracked; nothing when not given")
    settings: SendSettings = Field(default_factory=SendSettings, description="how it is sent")
    max_attached: Size = Field(default=MOST_ATTACHED, description="the size of a file that may be attached, at most")
    retry_limited: bool = Field(
        default=False,
        description="send an email again that the service refused for its rate (429), and trust that it sent none",
    )
