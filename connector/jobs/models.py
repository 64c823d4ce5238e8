"""A job as values: the keys of a job file (architecture 8), their types and what each may be.

It knows neither YAML nor the environment; each description is a line of the reference.
"""

from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from connector.jobs.key_types import STRICT, Identity, Name, find_folder
from connector.jobs.mail_models import Mail, Notify
from connector.jobs.source_models import JobSource, Suppress
from connector.jobs.subscriber_models import BaseKeys, FieldName, MappedField, ZipPolicy, find_rule_faults
from connector.run_log import RETENTION_S
from connector.subscribers.rules import find_mapping_faults
from connector.units import parse_duration, parse_share, resolve_destination


def _resolve_destination(value: str, info: ValidationInfo) -> str:
    return resolve_destination(value, find_folder(info))


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema({"type": "string", "examples": ["500ms", "30s", "10m", "2h"]}),
]
Share = Annotated[
    float, BeforeValidator(parse_share), WithJsonSchema({"type": "string", "examples": ["5%", "0.5%", "50%"]})
]


ExportFormat = Literal["csv", "jsonl", "parquet", "excel"]
CsvDialect = Literal["standard", "excel"]
CsvDelimiter = Literal[",", ";", "|", "tab"]
ExportMode = Literal["replace", "upsert", "append", "history"]


class JobService(BaseModel):
    """Which service, and how it is spoken to; the token is never part of a job."""

    model_config = STRICT

    base_url: str | None = Field(
        default=None,
        min_length=1,
        repr=False,
        description="URL of the service, https://… The environment variable CONNECTOR_BASE_URL has priority.",
    )
    account: Name | None = Field(
        default=None, description="Name of the account in the ledger. Without this key, the base URL is the name."
    )
    authorization: str | None = Field(
        default=None,
        repr=False,
        description="Form of the Authorization header, with {token} for the token. Without this key, the header "
        "is the token alone.",
    )
    timeout_s: Duration | None = Field(
        default=None,
        gt=0,
        le=3600,
        alias="timeout",
        description="Longest time that one request may take. Without this key, 30s.",
    )
    proxy: str | None = Field(
        default=None,
        min_length=1,
        repr=False,
        description="URL of a proxy, or env to use the proxy of HTTPS_PROXY. Without this key, no proxy.",
    )

    @field_validator("authorization")
    @classmethod
    def _check_authorization(cls, value: str | None) -> str | None:
        if value is not None and (value.count("{token}") != 1 or not (value.isascii() and value.isprintable())):
            raise ValueError('must hold {token} once, as in "Bearer {token}"; the token itself is not written in a job')
        return value


class JobSubscriber(BaseModel):
    """How a row becomes a subscriber. Without `fields` the columns' headers are recognised."""

    model_config = STRICT

    base: BaseKeys = Field(description="Base that the subscribers go to.")
    identity: Identity = Field(
        default="email", description="Field that identifies a subscriber: email or client_user_id."
    )
    fields_: dict[FieldName, MappedField | None] | None = Field(
        default=None, alias="fields", description="Column, or rule, of each field."
    )
    by_headers: bool | None = Field(
        default=None,
        description="Find the columns of the other fields by their headers. A field that `fields` leaves empty "
        "has no column. Without this key: true if the job has no `fields`, else false.",
    )
    required: tuple[FieldName, ...] = Field(
        default=(), description="Fields that every row must have. A row without one of them is invalid."
    )
    zip: ZipPolicy = Field(
        default="omit",
        description="What to do with a zip code that is not a number: omit it, reject the row, or write it to a "
        "custom field.",
    )

    @property
    def uses_headers(self) -> bool:
        """Whether fields are mapped by the headers of columns."""
        return self.fields_ is None if self.by_headers is None else self.by_headers

    @model_validator(mode="after")
    def _check(self) -> Self:
        rules = {name: rule for name, rule in (self.fields_ or {}).items() if rule is not None}
        faults = find_rule_faults(rules, self.identity)
        if not self.uses_headers:
            faults += [f"fields.{name} is empty: name a column" for name in (self.fields_ or {}) if name not in rules]
            faults += find_mapping_faults(rules, self.identity, self.required, self.zip)
        if faults:
            raise ValueError("; ".join(faults))
        return self


class Load(BaseModel):
    """How rows are sent (architecture 4 and 6)."""

    model_config = STRICT

    max_rate: float | None = Field(
        default=None,
        gt=0,
        le=100_000,
        allow_inf_nan=False,
        description="Maximum number of requests per second. Without this key, the run finds the rate.",
    )
    max_concurrency: int = Field(default=512, ge=1, le=1000, description="Maximum number of creates in flight.")
    on_unknown: Literal["resend", "hold"] = Field(
        default="resend",
        description="What to do with a create that got no answer and is proved absent: resend it, or hold it for "
        "review.",
    )
    quiet_period_s: Duration = Field(
        default=30.0,
        ge=0,
        alias="quiet_period",
        description="Longest time that the service needs to list a new subscriber. The connector waits this long "
        "before a missing subscriber counts as absent.",
    )
    fresh_s: Duration = Field(
        default=900.0,
        ge=0,
        alias="fresh",
        description="How long the result of a look-up is valid. An older result is looked up again before the create.",
    )
    look: Literal["auto", "none"] = Field(
        default="auto",
        description="With auto, look up each subscriber before creating it; with none, create without a look-up.",
    )
    allow_truncated: bool = Field(
        default=False,
        description="Accept the list even if the service may have cut it off, for example at 10,000 subscribers.",
    )
    ignore_total_count: bool = Field(
        default=False, description="Accept the list even if its TotalCount is missing or disagrees."
    )


class Guard(BaseModel):
    """What ends a run, most of it before anything is sent: then the source is read twice."""

    model_config = STRICT

    max_invalid: Share | None = Field(
        default=None,
        description="Largest share of invalid rows, for example 5%. A run with more ends before it sends anything.",
    )
    max_rejected: Share | None = Field(
        default=None,
        description="Largest share of rows that the service rejects, for example 5%. The run checks the share "
        "while it sends.",
    )
    max_creates: int | None = Field(
        default=None,
        ge=0,
        description="Largest number of subscribers to create. A run with more ends before it sends anything.",
    )
    max_shrink: Share = Field(
        default=0.5,
        description="Largest share by which the source, or the suppression list, may shrink since the last "
        "complete run. Neither may be empty.",
    )


class Filters(BaseModel):
    """Which subscribers are exported (service-api.md 4.3); one that is not given does not filter."""

    model_config = STRICT

    id: int | None = Field(default=None, ge=1, description="Export only the subscriber with this id.")
    base_id: int | None = Field(default=None, ge=1, description="Export only subscribers of the base with this id.")
    client_user_id: str | None = Field(
        default=None,
        min_length=1,
        repr=False,
        description="Export only subscribers with this client_user_id, the key in your own system.",
    )
    email: str | None = Field(
        default=None, min_length=1, repr=False, description="Export only subscribers with this email address."
    )
    is_active: bool | None = Field(
        default=None, description="Export only active (true), or only inactive subscribers (false)."
    )
    first_name: str | None = Field(
        default=None, min_length=1, repr=False, description="Export only subscribers with this first name."
    )
    last_name: str | None = Field(
        default=None, min_length=1, repr=False, description="Export only subscribers with this last name."
    )
    gender: Literal["male", "female", "unspecified"] | None = Field(
        default=None, description="Export only subscribers of this gender: male, female or unspecified."
    )


class Export(BaseModel):
    """Where the list goes."""

    model_config = STRICT

    to: Annotated[str, AfterValidator(_resolve_destination)] = Field(
        repr=False,
        description="File, object such as s3://bucket/people.parquet, or database URL that the list goes to.",
    )
    table: Name = Field(default="subscribers", description="Name of the table, if the list goes to a database.")
    schema_: Name | None = Field(
        default=None, alias="schema", description="Schema of the table. Without this key, the database's default."
    )
    mode: ExportMode = Field(
        default="replace",
        description="What to do with rows that the destination has. replace: overwrite all rows; upsert: update "
        "rows by id, and mark subscribers that left the list; append: keep them beside the new rows; "
        "history: keep each version of a row.",
    )
    max_shrink: Share = Field(
        default=0.5, description="Largest share by which the list may shrink since the last certified export."
    )
    max_rate: float | None = Field(
        default=None,
        gt=0,
        le=100_000,
        allow_inf_nan=False,
        description="Maximum number of list requests per second. Without this key, the run finds the rate.",
    )
    allow_incomplete: bool = Field(
        default=False,
        description="Write the list even if the connector cannot prove that the list is complete. In mode "
        "replace, the destination must not exist.",
    )
    ignore_total_count: bool = Field(
        default=False, description="Accept the list even if its TotalCount is missing or disagrees."
    )
    allow_truncated: bool = Field(
        default=False,
        description="Accept the list even if the service may have cut it off, for example at 10,000 subscribers.",
    )
    guard_formulas: bool = Field(
        default=False, description="Put an apostrophe before CSV cells that a spreadsheet would run as a formula."
    )
    csv_dialect: CsvDialect = Field(
        default="standard",
        description="How to write CSV. standard: plain UTF-8; excel: with a byte order mark, and tags as a|b, so "
        "that Excel shows all letters.",
    )
    delimiter: CsvDelimiter | None = Field(
        default=None, description="Character between two cells of CSV. Without this key, a comma."
    )
    run_columns: bool = Field(
        default=True, description="Write the columns _run_id and _exported_at to a file. A table always has them."
    )
    columns: list[Name] | None = Field(
        default=None,
        description="Export only these fields. The id and the columns of the run are always there. Without this "
        "key, all fields.",
    )
    overwrite: bool = Field(default=False, description="Overwrite a table or file that the connector did not create.")
    format: ExportFormat | None = Field(
        default=None,
        description="Format of the file. Without this key, the file's name decides; csv for standard output.",
    )
    group_readable: bool = Field(
        default=False,
        description="Allow the file's group to read the file (mode 0640). Otherwise only the owner can read the file.",
    )
    filters: Filters = Field(default_factory=Filters, description="Which subscribers to export. Without this key, all.")


class Job(BaseModel):
    """One job: a name and either source and subscriber (it loads), source and mail, or export."""

    model_config = STRICT

    name: Name = Field(alias="job", description="Name of the job in reports and in the ledger.")
    service: JobService = Field(default_factory=JobService, description="The service, and how to connect to it.")
    source: JobSource | None = Field(default=None, description="Where the rows come from.")
    subscriber: JobSubscriber | None = Field(default=None, description="How a row becomes a subscriber.")
    suppress: Suppress | None = Field(
        default=None, description="Subscribers that are never created. Each run reads the list again."
    )
    ignore: tuple[Name, ...] = Field(
        default=(),
        description="Columns that look like a consent or an opt-out, and are not. The job does not use them.",
    )
    skip_inactive: bool = Field(
        default=True, description="In a mail job: send nothing to an address that the service lists as inactive."
    )
    load: Load = Field(default_factory=Load, description="How to send the rows.")
    guard: Guard | None = Field(
        default=None,
        description="Limits that end a run, most of them before it sends anything. Without this key, no limits.",
    )
    export: Export | None = Field(
        default=None, description="Where the service's list goes. A job with this key has no source and no subscriber."
    )
    mail: Mail | None = Field(
        default=None, description="The email that each row is sent. A job with this key has no subscriber."
    )
    notify: Notify | None = Field(default=None, description="Where to send alerts. Without this key, nowhere.")
    ledger: Literal["may_be_new", "must_exist"] = Field(
        default="may_be_new",
        description="With must_exist, a run without its ledger ends before it sends anything, for example on a "
        "machine that lost its disk.",
    )
    time_limit_s: Duration | None = Field(
        default=None,
        gt=0,
        alias="time_limit",
        description="Stop cleanly after this long (exit code 3). The next run continues. Without this key, no limit.",
    )
    retention_s: Annotated[float, BeforeValidator(parse_duration)] = Field(
        default=RETENTION_S,
        ge=0,
        alias="retention",
        description="Age at which a run deletes reports, rejects files and drift files of earlier runs.",
    )

    @property
    def command(self) -> Literal["sync", "export", "mail"]:
        """The command that runs the job."""
        if self.export is not None:
            return "export"
        return "sync" if self.mail is None else "mail"

    def explain_command(self) -> str:
        """Return the error for a command that cannot run this kind of job."""
        does = {"sync": "loads subscribers", "export": "exports the list", "mail": "sends emails"}[self.command]
        return f"The job {self.name} {does}. Run it by connector {self.command}"

    @property
    def is_export(self) -> bool:
        """Whether the job moves the list out rather than rows in."""
        return self.export is not None

    @model_validator(mode="after")
    def _check(self) -> Self:
        loads = any(part is not None for part in (self.source, self.subscriber, self.suppress, self.guard))
        loads = loads or "load" in self.model_fields_set or self.mail is not None
        if loads and self.is_export:
            raise ValueError("a job has either source and subscriber or export, and not both")
        if self.mail is not None and (self.source is None or self.subscriber is not None):
            raise ValueError("a job that mails needs a source, and has no subscriber")
        if self.suppress is not None and self.suppress.inactive and (self.mail is not None or self.load.look == "none"):
            raise ValueError(
                "suppress.inactive needs the service's list, which email and load.look: none leave unread; take it out"
            )
        if not self.is_export and self.mail is None and self.subscriber is None:
            raise ValueError("a job needs source and subscriber (to load), source and mail, or export")
        return self
