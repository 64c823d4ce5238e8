"""The models of a job: the keys of a job file (architecture 8), their types and their allowed values.

This module reads no YAML and no environment variables. Each description is also a row in the reference.
"""

import shlex
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from connector.choices import (
    CUSTOM_FIELDS_FOR_ZIPS,
    EXPORT_FORMATS,
    GENDERS,
    CsvDelimiter,
    CsvDialect,
    ExportFormat,
    Gender,
    format_choices,
)
from connector.jobs.key_types import Identity, JobModel, Name, find_job_folder
from connector.jobs.mail_models import Mail, NotificationSettings
from connector.jobs.source_models import JobSource, SuppressionSettings
from connector.jobs.subscriber_models import BaseKeys, FieldName, MappedField, ZipPolicy, find_rule_faults
from connector.settings import RETENTION_S
from connector.subscribers.rules import find_mapping_faults
from connector.units import parse_duration, parse_share, resolve_destination


def _resolve_destination(value: str, validation_info: ValidationInfo) -> str:
    return resolve_destination(value, find_job_folder(validation_info))


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema({"type": "string", "examples": ["500ms", "30s", "10m", "2h"]}),
]
Share = Annotated[
    float, BeforeValidator(parse_share), WithJsonSchema({"type": "string", "examples": ["5%", "0.5%", "50%"]})
]

Rate = Annotated[float | None, Field(gt=0, le=100_000, allow_inf_nan=False)]
FilterText = Annotated[str | None, Field(min_length=1, repr=False)]
SchemaName = Annotated[
    Name | None,
    Field(
        alias="schema",
        description="For a database: schema of the table. Without this key, the default schema of the database.",
    ),
]


class JobService(JobModel):
    """The service and its connection. The token is never part of a job."""

    base_url: str | None = Field(
        default=None,
        min_length=1,
        repr=False,
        description="URL of the service, https://… If the environment variable CONNECTOR_BASE_URL is set, the key is "
        "ignored. Without this key, the value of CONNECTOR_BASE_URL.",
    )
    account: Name | None = Field(
        default=None, description="Name of the account in the ledger. Without this key, the base URL is the name."
    )
    authorization: str | None = Field(
        default=None,
        repr=False,
        description="Value of the Authorization header, such as `Bearer {token}`. The connector replaces `{token}` by "
        "the token. Without this key, the header has only the token.",
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
        description="URL of a proxy, or `env` to use the proxy in the variable `HTTPS_PROXY`. Without this key, no "
        "proxy.",
    )

    @field_validator("authorization")
    @classmethod
    def _check_authorization(cls, value: str | None) -> str | None:
        if value is not None and (value.count("{token}") != 1 or not (value.isascii() and value.isprintable())):
            raise ValueError(
                'must contain {token} once, as in "Bearer {token}"; do not write the token itself into a job'
            )
        return value


class JobSubscriber(JobModel):
    """The mapping of a row to a subscriber. Without `fields`, the header of a column decides its field."""

    base: BaseKeys = Field(description="Base that the subscribers are created in.")
    identity: Identity = Field(
        default="email", description="Field that identifies a subscriber: `email` or `client_user_id`."
    )
    fields_: dict[FieldName, MappedField | None] | None = Field(
        default=None,
        alias="fields",
        description="Source of each field. Write `field: column`, or the field with the keys below. "
        "Without this key, the column headers decide.",
    )
    by_headers: bool | None = Field(
        default=None,
        description="`true`: a field that is not in `fields` gets the column with a matching header; `false`: the "
        "field stays empty. With `true`, an entry without a value, such as `phone:`, leaves the field empty. Without "
        "this key: true if the job has no `fields`, else false.",
    )
    required: tuple[FieldName, ...] = Field(
        default=(),
        description="Fields that every row must have. A row that lacks one of these fields is invalid. Without this "
        "key, only the identity is required.",
    )
    zip: ZipPolicy = Field(
        default="omit",
        description="What to do with a zip code that is not a number. `omit`: send the row without the zip code; "
        f"`reject`: the row is invalid; {format_choices(CUSTOM_FIELDS_FOR_ZIPS)}: send the zip code in this field.",
    )

    @property
    def uses_headers(self) -> bool:
        """Whether the header of a column decides its field."""
        return self.fields_ is None if self.by_headers is None else self.by_headers

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        rule_by_field = {name: rule for name, rule in (self.fields_ or {}).items() if rule is not None}
        faults = find_rule_faults(rule_by_field, self.identity)
        if not self.uses_headers:
            faults += [
                f"fields.{name} is empty: name a column" for name in (self.fields_ or {}) if name not in rule_by_field
            ]
            faults += find_mapping_faults(rule_by_field, self.identity, self.required, self.zip)
        if faults:
            raise ValueError("; ".join(faults))
        return self


class Load(JobModel):
    """The settings of a load (architecture 4 and 6)."""

    max_rate: Rate = Field(
        default=None,
        description="Maximum number of requests per second. Without this key, the run finds the rate.",
    )
    max_concurrency: int = Field(default=512, ge=1, le=1000, description="Maximum number of creates in flight.")
    on_unknown: Literal["resend", "hold"] = Field(
        default="resend",
        description="What to do with a create that got no answer, if its subscriber is proved absent. `resend`: send "
        "the create again; `hold`: wait for your decision.",
    )
    quiet_period_s: Duration = Field(
        default=30.0,
        ge=0,
        alias="quiet_period",
        description="Longest time that the service needs to list a new subscriber. A subscriber counts as absent only "
        "if a look-up after this time does not find the subscriber.",
    )
    max_lookup_age_s: Duration = Field(
        default=900.0,
        ge=0,
        alias="fresh",
        description="How long the result of a look-up is valid. After this time, the subscriber is looked up again "
        "before the create.",
    )
    look: Literal["auto", "none"] = Field(
        default="auto",
        description="Whether to look up each subscriber before its create. `auto`: look up the subscriber; `none`: "
        "skip the look-up.",
    )
    allow_truncated: bool = Field(
        default=False,
        description="Accept the list even if the service may have cut it off, for example at 10,000 subscribers.",
    )
    ignore_total_count: bool = Field(
        default=False, description="Accept the list even if its TotalCount is missing or wrong."
    )


class Guard(JobModel):
    """The limits that end a run. All but `max_rejected` are checked before the run sends anything."""

    max_invalid: Share | None = Field(
        default=None,
        description="Largest share of invalid rows, such as 5%. If the share is larger, the run ends before it sends "
        "anything. Without this key, no limit.",
    )
    max_rejected: Share | None = Field(
        default=None,
        description="Largest share of rows that the service may reject, such as 5%. The run ends when the share is "
        "larger. Without this key, no limit.",
    )
    max_creates: int | None = Field(
        default=None,
        ge=0,
        description="Largest number of subscribers to create. If more would be created, the run ends before it sends "
        "anything. Without this key, no limit.",
    )
    max_shrink: Share = Field(
        default=0.5,
        description="Largest share by which the source, or the suppression list, may shrink since the last complete "
        "run. If the source or the suppression list is empty, the run ends. But a source with a cursor may have no new "
        "rows.",
    )


class Filters(JobModel):
    """The filters of an export (service-api.md 4.3). A filter that is not set matches all subscribers."""

    id: int | None = Field(
        default=None, ge=1, description="Export only the subscriber with this id. Without this key, all subscribers."
    )
    base_id: int | None = Field(
        default=None,
        ge=1,
        description="Export only subscribers of the base with this id. Without this key, all subscribers.",
    )
    client_user_id: FilterText = Field(
        default=None,
        description="Export only subscribers with this client_user_id, the id in your own system. "
        "Without this key, all subscribers.",
    )
    email: FilterText = Field(
        default=None,
        description="Export only subscribers with this email address. Without this key, all subscribers.",
    )
    is_active: bool | None = Field(
        default=None,
        description="`true`: export only active subscribers; `false`: export only inactive subscribers. Without this "
        "key, all subscribers.",
    )
    first_name: FilterText = Field(
        default=None,
        description="Export only subscribers with this first name. Without this key, all subscribers.",
    )
    last_name: FilterText = Field(
        default=None,
        description="Export only subscribers with this last name. Without this key, all subscribers.",
    )
    gender: Gender | None = Field(
        default=None,
        description=f"Export only subscribers of this gender: {format_choices(GENDERS)}. Without this key, all "
        "subscribers.",
    )


class Export(JobModel):
    """The export of the list: its destination, its limits and its format."""

    to: Annotated[str, AfterValidator(_resolve_destination)] = Field(
        repr=False,
        description="Destination of the list: a file, an object such as s3://bucket/people.parquet, a database URL, a "
        "Delta table such as delta://lake/subscribers, or `-` for standard output.",
    )
    table: Name = Field(default="subscribers", description="For a database: name of the table.")
    schema_: SchemaName = None
    mode: Literal["replace", "upsert", "append", "history"] = Field(
        default="replace",
        description="How to write rows to a destination that has rows. `replace`: overwrite all rows; `upsert`: "
        "update rows by id, and mark subscribers that left the list; `append`: add the new rows to the old rows; "
        "`history`: keep each version of a row. A file allows only `replace`.",
    )
    max_shrink: Share = Field(
        default=0.5, description="Largest share by which the list may shrink since the last complete export."
    )
    max_rate: Rate = Field(
        default=None,
        description="Maximum number of list requests per second. Without this key, the run finds the rate.",
    )
    allow_incomplete: bool = Field(
        default=False,
        description="Write the list even if the connector cannot prove that the list is complete. In mode `replace`, "
        "the destination must be new or empty.",
    )
    ignore_total_count: bool = Field(
        default=False, description="Accept the list even if its TotalCount is missing or wrong."
    )
    allow_truncated: bool = Field(
        default=False,
        description="Accept the list even if the service may have cut it off, for example at 10,000 subscribers.",
    )
    guard_formulas: bool = Field(
        default=False, description="For CSV: put an apostrophe before cells that a spreadsheet would run as a formula."
    )
    csv_dialect: CsvDialect = Field(
        default="standard",
        description="Dialect of CSV. `standard`: plain UTF-8, tags as JSON; `excel`: with a byte order mark, so that "
        "Excel shows all letters, and tags as a|b.",
    )
    delimiter: CsvDelimiter | None = Field(
        default=None,
        description='For CSV: character between two cells: ",", ";", "|" or tab. Without this key, a comma.',
    )
    run_columns: bool = Field(
        default=True,
        description="Write the columns `_run_id` and `_exported_at` to a file. A table always has both columns.",
    )
    partition_by: list[Name] = Field(
        default_factory=list,
        description="For a Delta table: fields whose values divide the table into folders, such as base_id. Without "
        "this key, the table is not divided.",
    )
    columns: list[Name] | None = Field(
        default=None, description="Fields to export. The id is always exported. Without this key, all fields."
    )
    overwrite: bool = Field(default=False, description="Overwrite a table or file that the connector did not create.")
    format: ExportFormat | None = Field(
        default=None,
        description=f"Format of the file: {format_choices(EXPORT_FORMATS)}. Without this key, the file's suffix "
        "decides, and standard output gets csv.",
    )
    group_readable: bool = Field(
        default=False,
        description="Let the file's group read the file (mode 0640). By default, only the owner can read the file "
        "(mode 0600).",
    )
    filters: Filters = Field(
        default_factory=Filters, description="Filters of the list to export. Without this key, all subscribers."
    )


class Receipts(JobModel):
    """The destination of receipts: one row for each subscriber that a run created, found changed, rejected, held or
    left unknown."""

    to: Annotated[str, AfterValidator(_resolve_destination)] = Field(
        repr=False,
        description="Destination of the receipts: a database URL, a Delta table, or a folder that gets one file for "
        "each run. The name of the folder ends in .parquet, .csv or .jsonl, for example s3://bucket/receipts.parquet.",
    )
    table: Name = Field(default="subscriber_receipts", description="For a database: name of the table.")
    schema_: SchemaName = None


class Job(JobModel):
    """One job. A load has `source` and `subscriber`, a campaign has `source` and `mail`, and an export has `export`."""

    name: Name = Field(alias="job", description="Name of the job in reports and in the ledger.")
    service: JobService = Field(
        default_factory=JobService,
        description="The service and its connection. Without this key, the values of the environment.",
    )
    source: JobSource | None = Field(
        default=None, description="Source of the rows: a file or a database. Without this key, the job is an export."
    )
    subscriber: JobSubscriber | None = Field(
        default=None,
        description="Base of the subscribers, and the columns that fill their fields. "
        "Without this key, the job is an export or a campaign.",
    )
    suppress: SuppressionSettings | None = Field(
        default=None,
        description="List of people who are never created or mailed. Each run reads the list again. Without this key, "
        "no list.",
    )
    ignore: tuple[Name, ...] = Field(
        default=(),
        description="Columns whose headers look like a consent or an opt-out, but mean something else. The job does "
        "not use these columns. Without this key, no columns.",
    )
    skip_inactive: bool = Field(
        default=True, description="For mail: send nothing to an address that the service lists as inactive."
    )
    load: Load = Field(
        default_factory=Load,
        description="How to look up and create the subscribers. Without this key, the defaults of the keys below.",
    )
    guard: Guard | None = Field(
        default=None,
        description="Limits that end a run, most of them before the run sends anything. Without this key, no limits.",
    )
    receipts: Receipts | None = Field(
        default=None, description="For a load: destination of the receipts of each run. Without this key, no receipts."
    )
    fail_on: Literal["any", "new"] = Field(
        default="any",
        description="For a load: problems that give a run exit code 1. `any`: each row that a person must look at; "
        "`new`: only rows whose problem no earlier run of the job has reported.",
    )
    export: Export | None = Field(
        default=None,
        description="Export of the service's list. A job with `export` must not have `source` or `subscriber`. "
        "Without this key, the job exports nothing.",
    )
    mail: Mail | None = Field(
        default=None,
        description="Email to send for each row. A job with `mail` must not have the key `subscriber`. "
        "Without this key, the job sends no emails.",
    )
    notify: NotificationSettings | None = Field(
        default=None, description="Webhook that receives alerts. Without this key, no alerts."
    )
    ledger: Literal["may_be_new", "must_exist"] = Field(
        default="may_be_new",
        description="Whether a run may create a missing ledger. `may_be_new`: create the ledger; `must_exist`: end "
        "the run before the run sends anything, for example on a machine that lost its disk.",
    )
    time_limit_s: Duration | None = Field(
        default=None,
        gt=0,
        alias="time_limit",
        description="Time after which a run stops cleanly (exit code 3). The next run continues. Without this key, no "
        "limit.",
    )
    retention_s: Duration = Field(
        default=RETENTION_S,
        ge=0,
        alias="retention",
        description="Age at which a run deletes reports, rejects files and drift files of earlier runs, such as 30d.",
    )

    _path: Path | None = PrivateAttr(default=None)

    @property
    def path(self) -> Path | None:
        """The absolute path of the job file, or None if the job does not come from a file."""
        return self._path

    def set_path(self, path: Path) -> Self:
        """Set the path of the job file, and return the job."""
        self._path = path.absolute()
        return self

    @property
    def command(self) -> Literal["sync", "export", "mail"]:
        """The command that runs the job."""
        if self.export is not None:
            return "export"
        return "sync" if self.mail is None else "mail"

    def explain_command(self) -> str:
        """Return the message for a command that cannot run this kind of job."""
        action = {"sync": "loads subscribers", "export": "exports the list", "mail": "sends emails"}[self.command]
        path = "" if self._path is None else f" {shlex.quote(str(self._path))}"
        return f"The job {self.name} {action}. Run: connector {self.command}{path}"

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        source_sections = (self.source, self.subscriber, self.suppress, self.guard, self.mail)
        has_source_keys = "load" in self.model_fields_set or any(section is not None for section in source_sections)
        if has_source_keys and self.export is not None:
            raise ValueError(
                "a job cannot both load subscribers and export the list: remove `export`, or remove the other sections"
            )
        if self.mail is not None and (self.source is None or self.subscriber is not None):
            raise ValueError("a job with `mail` needs a source: add `source`, and remove `subscriber`")
        if self.suppress is not None and self.suppress.inactive:
            if self.mail is not None:
                raise ValueError(
                    "`suppress.inactive` is for a job that loads subscribers: in a job with `mail`, use `skip_inactive`"
                )
            if self.load.look == "none":
                raise ValueError("`suppress.inactive` needs look-ups: remove this key, or remove `look: none`")
        for key in ("fail_on", "receipts"):
            if key in self.model_fields_set and self.command != "sync":
                raise ValueError(f"`{key}` is for a job that loads subscribers: remove the key")
        if self.command == "sync" and self.subscriber is None:
            raise ValueError(
                "a job needs the sections `source` and `subscriber` (to load), `source` and `mail`, or `export`"
            )
        return self
