"""A job as values: the keys of a job file (design, section 8), their types and what each may be.

It knows neither YAML nor the environment; each description is a line of the reference in the README.
"""

import codecs
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from pipelines.jobs.durations import parse_duration
from pipelines.jobs.fields import (
    STRICT,
    FieldName,
    Identity,
    MappedField,
    ZipPolicy,
    find_mapping_faults,
    find_rule_faults,
)
from pipelines.jobs.places import resolve_destination, resolve_path, resolve_url

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*:")
_DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|"}


def _folder(info: ValidationInfo) -> Path:
    """The folder that relative paths start from: the job file's, by the context of `Job.model_validate`."""
    return Path(info.context["folder"]) if info.context else Path.cwd()


def _resolve_path(value: Any, info: ValidationInfo) -> Any:
    return resolve_path(value, _folder(info)) if isinstance(value, str) else value


def _resolve_url(value: str, info: ValidationInfo) -> str:
    if not _SCHEME.match(value):  # urlsplit would quote what it cannot read, password and all
        raise ValueError("must be a database URL, such as sqlite:///crm.db or postgresql://user@host/crm")
    return resolve_url(value, _folder(info))


def _resolve_destination(value: str, info: ValidationInfo) -> str:
    return resolve_destination(value, _folder(info))


def _read_duration(value: Any) -> float:
    return parse_duration(value)


def _find_encoding(name: str) -> str:
    "".encode(name)  # raises LookupError for a codec that is not of text, such as base64, too
    return codecs.lookup(name).name


def _check_name(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError("must be a name in printable characters")
    return value.strip()


Duration = Annotated[float, BeforeValidator(_read_duration)]
Name = Annotated[str, AfterValidator(_check_name)]


class JobService(BaseModel):
    """Which service, and how it is spoken to; the token is never part of a job."""

    model_config = STRICT

    base_url: str | None = Field(
        default=None, min_length=1, repr=False, description="https://…; CONNECTOR_BASE_URL has priority"
    )
    account: Name | None = Field(
        default=None, description="the account's name in the ledger; the base URL when not given"
    )
    authorization: str | None = Field(
        default=None, repr=False, description='the header\'s form; "{token}" when not given'
    )
    timeout_s: Duration | None = Field(
        default=None, gt=0, le=3600, alias="timeout", description="per request; 30s when not given"
    )

    @field_validator("authorization")
    @classmethod
    def _check_authorization(cls, value: str | None) -> str | None:
        if value is not None and (value.count("{token}") != 1 or not (value.isascii() and value.isprintable())):
            raise ValueError('must hold {token} once, as in "Bearer {token}"; the token itself is not written in a job')
        return value


class FileSource(BaseModel):
    """A file of rows."""

    model_config = STRICT

    path: Annotated[Path, BeforeValidator(_resolve_path)] = Field(description="the file, relative to the job file")
    format: Literal["auto", "csv"] = Field(default="auto", description="what the file holds")
    encoding: str = Field(default="auto", description="how its text is encoded, such as utf-8 or cp1252")
    delimiter: str = Field(default="auto", description="what stands between two cells: a character or its name")

    @field_validator("path")
    @classmethod
    def _refuse_patterns(cls, value: Path) -> Path:
        if any(mark in value.name for mark in "*?"):
            raise ValueError("must name one file; patterns such as *.csv are not read yet")
        return value

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, value: str) -> str:
        try:
            return value if value == "auto" else _find_encoding(value)
        except LookupError:
            raise ValueError("is no encoding that is known here; try auto, utf-8, utf-16, cp1252 or latin-1") from None

    @field_validator("delimiter")
    @classmethod
    def _check_delimiter(cls, value: str) -> str:
        character = _DELIMITERS.get(value, value)
        if character != "auto" and (len(character) != 1 or character in '"\r\n' or ord(character) > 127):
            raise ValueError("must be auto, comma, semicolon, tab, pipe or one character")
        return character


class SqlSource(BaseModel):
    """Rows of a database, by a query or a whole table."""

    model_config = STRICT

    url: Annotated[str, AfterValidator(_resolve_url)] = Field(repr=False, description="SQLAlchemy URL of the database")
    query: str | None = Field(default=None, min_length=1, description="a SELECT, or")
    table: str | None = Field(default=None, min_length=1, description="the name of a table or view")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.query is None) == (self.table is None):
            raise ValueError("needs either query or table, and not both")
        return self


class JobSource(BaseModel):
    """Where rows come from."""

    model_config = STRICT

    file: FileSource | None = Field(default=None, description="rows of a file, or")
    sql: SqlSource | None = Field(default=None, description="rows of a database")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.file is None) == (self.sql is None):
            raise ValueError("needs either file or sql, and not both")
        return self


class Base(BaseModel):
    """The base that the job's subscribers belong to."""

    model_config = STRICT

    id: int | None = Field(default=None, ge=1, description="the base's number, or")
    name: Name | None = Field(default=None, description="its name")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.id is None) == (self.name is None):
            raise ValueError("needs either id or name, and not both")
        return self


class JobSubscriber(BaseModel):
    """How a row becomes a subscriber. Without `fields` the columns' headers are recognised."""

    model_config = STRICT

    base: Base = Field(description="the base to load into")
    identity: Identity = Field(default="email", description="what makes two rows the same subscriber")
    fields_: dict[FieldName, MappedField] | None = Field(
        default=None, alias="fields", description="field: column, or field: rule"
    )
    required: tuple[FieldName, ...] = Field(default=(), description="fields that no row may leave empty")
    zip: ZipPolicy = Field(default="omit", description="what becomes of a zip that is no number")

    @model_validator(mode="after")
    def _check(self) -> Self:
        faults = find_rule_faults(self.fields_ or {})
        if self.fields_ is not None:
            faults += find_mapping_faults(self.fields_, self.identity, self.required, self.zip)
        if faults:
            raise ValueError("; ".join(faults))
        return self


class Load(BaseModel):
    """How rows are sent (design, sections 4 and 6)."""

    model_config = STRICT

    max_concurrency: int = Field(default=64, ge=1, le=1000, description="requests in flight at once")
    on_unknown: Literal["resend", "hold"] = Field(
        default="resend", description="what becomes of an unknown proved absent"
    )
    quiet_period_s: Duration = Field(
        default=30.0, ge=0, alias="quiet_period", description="wait before absence can be proved"
    )
    fresh_s: Duration = Field(
        default=900.0, ge=0, alias="fresh", description="how long what a look-up said may be used"
    )
    look: Literal["auto", "none"] = Field(default="auto", description="look before creating; none: create unlooked")


class Filters(BaseModel):
    """Which subscribers are exported (api.md 4.3); one that is not given does not filter."""

    model_config = STRICT

    id: int | None = Field(default=None, ge=1, description="by subscriber id")
    base_id: int | None = Field(default=None, ge=1, description="by base")
    client_user_id: str | None = Field(
        default=None, min_length=1, repr=False, description="by the key in your own system"
    )
    email: str | None = Field(default=None, min_length=1, repr=False, description="by address")
    is_active: bool | None = Field(default=None, description="true for active, false for inactive")
    first_name: str | None = Field(default=None, min_length=1, repr=False, description="by first name")
    last_name: str | None = Field(default=None, min_length=1, repr=False, description="by last name")
    gender: Literal["male", "female", "unspecified"] | None = Field(default=None, description="by gender")


class Export(BaseModel):
    """Where the list goes."""

    model_config = STRICT

    to: Annotated[str, AfterValidator(_resolve_destination)] = Field(repr=False, description="a file or a database URL")
    table: Name = Field(default="subscribers", description="the table in a database")
    schema_: Name | None = Field(
        default=None, alias="schema", description="the table's schema; the database's own when not given"
    )
    mode: Literal["replace"] = Field(default="replace", description="what becomes of rows that are there already")
    filters: Filters = Field(default_factory=Filters, description="which subscribers; all when not given")


class Job(BaseModel):
    """One job: a name and either source and subscriber (it loads) or export."""

    model_config = STRICT

    name: Name = Field(alias="job", description="the job's name in reports and in the ledger")
    service: JobService = Field(default_factory=JobService, description="which service")
    source: JobSource | None = Field(default=None, description="where rows come from")
    subscriber: JobSubscriber | None = Field(default=None, description="how a row becomes a subscriber")
    load: Load = Field(default_factory=Load, description="how rows are sent")
    export: Export | None = Field(default=None, description="in place of source and subscriber: where the list goes")

    @property
    def is_export(self) -> bool:
        """Whether the job moves the list out rather than rows in."""
        return self.export is not None

    @model_validator(mode="after")
    def _check(self) -> Self:
        loads = self.source is not None or self.subscriber is not None or "load" in self.model_fields_set
        if loads and self.is_export:
            raise ValueError("a job has either source and subscriber or export, and not both")
        if not self.is_export and (self.source is None or self.subscriber is None):
            raise ValueError("a job needs source and subscriber (to load) or export")
        return self
