"""Whom a job tells of its runs, and when."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from connector.errors import ConfigurationError
from connector.service import parse_base_url
from pipelines.jobs.emails import People, Person
from pipelines.jobs.fields import STRICT


def _check_url(url: str) -> str:
    """https, or http on this machine; the path, which often is a secret, is never shown."""
    try:
        parse_base_url(url.partition("?")[0])
    except ConfigurationError:
        raise ValueError("must be an https address, or http on this machine") from None
    return url


class NotifyEmail(BaseModel):
    """The report by email, through the same service."""

    model_config = STRICT

    from_: Person = Field(alias="from", description="the sender")
    to: People = Field(min_length=1, description="who is told")
    attach_rejects: bool = Field(default=False, description="attach the rejects file: it holds people's data")


class Webhook(BaseModel):
    """The report's JSON by POST."""

    model_config = STRICT

    url: Annotated[str, AfterValidator(_check_url)] = Field(repr=False, description="where to; best as ${NAME}")
    secret: str | None = Field(
        default=None, min_length=1, repr=False, description="signs the body, best as ${NAME}: X-Connector-Signature"
    )


class Notify(BaseModel):
    """Who is told of a run; a notification that fails never changes the run's outcome."""

    model_config = STRICT

    when: Literal["problem", "always"] = Field(
        default="problem", description="problem: when the status is not ok; or always"
    )
    email: NotifyEmail | None = Field(default=None, description="the report as an email, and/or")
    webhook: Webhook | None = Field(default=None, description="the report's JSON, posted to an address")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.email is None and self.webhook is None:
            raise ValueError("give email, webhook or both")
        return self
