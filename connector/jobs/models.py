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
    proxy: str | None = Field(
        default=None,
        min_length=1,
        repr=False,
        description="the URL of a proxy, or env for the one that HTTPS_PROXY names; none when not given",
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

    base: BaseKeys = Field(description="the base to load into")
    identity: Identity = Field(default="email", description="what makes two rows the same subscriber")
    fields_: dict[FieldName, MappedField | None] | None = Field(
        default=None, alias="fields", description="field: column, or field: rule"
    )
    by_headers: bool | None = Field(
        default=None,
        description="recognise the columns of other fields by their headers. A field that `fields` leaves empty has no "
        "column. True without `fields`, else false when not given",
    )
    required: tuple[FieldName, ...] = Field(default=(), description="fields that no row may leave empty")
    zip: ZipPolicy = Field(default="omit", description="what becomes of a zip that is no number")

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
        description="requests a second, at most",
    )
    max_concurrency: int = Field(default=512, ge=1, le=1000, description="creates in flight at once, at most")
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
    allow_truncated: bool = Field(default=False, description="take a list that the service may cut off unseen")
    ignore_total_count: bool = Field(
        default=False, description="accept a list whose TotalCount is missing or disagrees with the list"
    )


class Guard(BaseModel):
    """What ends a run, most of it before anything is sent: then the source is read twice."""

    model_config = STRICT

    max_invalid: Share | None = Field(default=None, description="the share of invalid rows, such as 5%, at most")
    max_rejected: Share | None = Field(
        default=None, description="the share that the service rejects, at most; judged while the run goes on"
    )
    max_creates: int | None = Field(default=None, ge=0, description="how many may be created, at most")
    max_shrink: Share = Field(
        default=0.5,
        description="how much smaller the source, or the suppression list, may be than at the last whole run; neither "
        "may be empty",
    )


class Filters(BaseModel):
    """Which subscribers are exported (service-api.md 4.3); one that is not given does not filter."""

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

    to: Annotated[str, AfterValidator(_resolve_destination)] = Field(
        repr=False, description="a file, an object in a store, such as s3://bucket/people.parquet, or a database URL"
    )
    table: Name = Field(default="subscribers", description="the table in a database")
    schema_: Name | None = Field(
        default=None, alias="schema", description="the table's schema; the database's own when not given"
    )
    mode: ExportMode = Field(
        default="replace",
        description="what becomes of rows that are there already: replace, upsert (gone ones are marked), append, or "
        "history (a row for each version)",
    )
    max_shrink: Share = Field(
        default=0.5, description="how much smaller the list may be than at the last certified export; more is refused"
    )
    max_rate: float | None = Field(
        default=None, gt=0, le=100_000, allow_inf_nan=False, description="list requests a second, at most"
    )
    allow_incomplete: bool = Field(
        default=False, description="write the list even if it cannot be certified; in replace only where nothing is yet"
    )
    ignore_total_count: bool = Field(default=False, description="take a list against which TotalCount alone stands")
    allow_truncated: bool = Field(default=False, description="take a list that the service may cut off unseen")
    guard_formulas: bool = Field(
        default=False, description="in CSV, an apostrophe before texts that a spreadsheet would run"
    )
    csv_dialect: CsvDialect = Field(
        default="standard",
        description="how CSV is written; excel: with a byte order mark, so that Excel reads UTF-8, and tags as a|b",
    )
    delimiter: CsvDelimiter | None = Field(
        default=None, description="the separator of cells in CSV: a comma when not given"
    )
    run_columns: bool = Field(
        default=True, description="write _run_id and _exported_at to a file; a table always has them"
    )
    columns: list[Name] | None = Field(
        default=None, description="only these fields, beside the id and the run's columns; all when not given"
    )
    overwrite: bool = Field(default=False, description="take over a table or a file that no export made")
    format: ExportFormat | None = Field(
        default=None, description="what a file holds whose name does not say it, such as - (csv when not given)"
    )
    group_readable: bool = Field(default=False, description="let the group of a file read it, too (0640)")
    filters: Filters = Field(default_factory=Filters, description="which subscribers; all when not given")


class Job(BaseModel):
    """One job: a name and either source and subscriber (it loads), source and mail, or export."""

    model_config = STRICT

    name: Name = Field(alias="job", description="the job's name in reports and in the ledger")
    service: JobService = Field(default_factory=JobService, description="which service")
    source: JobSource | None = Field(default=None, description="where rows come from")
    subscriber: JobSubscriber | None = Field(default=None, description="how a row becomes a subscriber")
    suppress: Suppress | None = Field(default=None, description="subscribers that are never created; read by each run")
    ignore: tuple[Name, ...] = Field(
        default=(), description="columns that seem to say who wants no email, and mean something else"
    )
    skip_inactive: bool = Field(
        default=True, description="mail: send nothing to an address that the service lists as inactive"
    )
    load: Load = Field(default_factory=Load, description="how rows are sent")
    guard: Guard | None = Field(
        default=None, description="what ends a run before anything is sent; none: all may be sent"
    )
    export: Export | None = Field(default=None, description="in place of source and subscriber: where the list goes")
    mail: Mail | None = Field(default=None, description="in place of subscriber: the email that each row is sent")
    notify: Notify | None = Field(default=None, description="where the report of a run goes; nowhere when not given")
    ledger: Literal["may_be_new", "must_exist"] = Field(
        default="may_be_new",
        description="must_exist: a run without its ledger ends before it sends, say on a machine that lost its disk",
    )
    time_limit_s: Duration | None = Field(
        default=None,
        gt=0,
        alias="time_limit",
        description="end a run that takes longer in order (exit 3); the next one goes on; no limit when not given",
    )
    retention_s: Annotated[float, BeforeValidator(parse_duration)] = Field(
        default=RETENTION_S,
        ge=0,
        alias="retention",
        description="after this time a run deletes rejects, drift files and reports of earlier runs",
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
