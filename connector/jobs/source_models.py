"""The keys `source` and `suppress` of a job file: files and databases with rows.

This module does not depend on the use of the rows.
"""

import codecs
import re
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from connector.choices import FILE_FORMATS, FileFormat, format_choices
from connector.jobs.key_types import FileLocation, Identity, JobModel, find_job_folder
from connector.units import parse_duration, resolve_url

if TYPE_CHECKING:
    from connector.sources.cursor import CursorKind, CursorValue


_SCHEME_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*:")
_DELIMITER_BY_NAME = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|"}

_UNUSED_CURSOR_MESSAGE = (
    "the query does not use :cursor; add a condition on the cursor's column, such as where updated_at >= :cursor"
)
_UNKNOWN_CURSOR_MESSAGE = "the query uses :cursor; add source.sql.cursor with the keys `column` and `start`"


class Cursor(JobModel):
    """The column that makes a source incremental. A run continues from the largest value of the earlier runs."""

    column: str = Field(
        min_length=1, description="Column of the result whose value grows when a row changes, such as updated_at."
    )
    start: str = Field(
        description="Value that the first run starts from, of the column's type: a timestamp (UTC if it has no zone), "
        "a date or a whole number."
    )
    lookback_s: Annotated[float, BeforeValidator(parse_duration)] = Field(
        default=0.0,
        ge=0,
        alias="lookback",
        description="How far before the cursor a run begins to read, such as 10m or 2h. So the run finds rows that "
        "were committed late.",
    )

    @property
    def kind(self) -> "CursorKind":
        """The kind of the cursor's values, which `start` decides."""
        from connector.sources.cursor import find_cursor_kind

        return find_cursor_kind(self.start)

    @property
    def first_value(self) -> "CursorValue":
        """The value from which the first run reads."""
        from connector.sources.cursor import parse_cursor

        return parse_cursor(self.start, self.kind)

    @field_validator("start")
    @classmethod
    def _check_start(cls, value: str) -> str:
        from connector.sources.cursor import find_cursor_kind, parse_cursor

        parse_cursor(value, find_cursor_kind(value))
        return value

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.lookback_s and self.kind == "integer":
            raise ValueError("`lookback` is for timestamps and dates, and `start` is a whole number")
        return self


def _resolve_url(value: str, validation_info: ValidationInfo) -> str:
    if not _SCHEME_PATTERN.match(
        value
    ):  # checked here, because the error of urlsplit would quote the text with its password
        raise ValueError("must be a database URL, such as sqlite:///crm.db or postgresql://user@host/crm")
    return resolve_url(value, find_job_folder(validation_info))


class FileSource(JobModel):
    """A file of rows, or the files that match a pattern."""

    path: FileLocation = Field(
        description="Path of the file (relative to the job file), an object such as s3://bucket/people.csv, or a "
        "pattern for several files, such as inbox/*.csv."
    )
    format: Literal["auto", FileFormat] = Field(
        default="auto", description=f"Format of the file: {format_choices(FILE_FORMATS)}. `auto`: detect the format."
    )
    encoding: str = Field(default="auto", description="Encoding of the file's text, such as utf-8 or cp1252.")
    delimiter: str = Field(
        default="auto",
        description="Delimiter of the cells, by its name (comma, semicolon, tab or pipe) or as the character itself.",
    )
    sheet: str | None = Field(
        default=None,
        min_length=1,
        description="Sheet of a workbook, by its name or its number. Without this key, the first visible sheet.",
    )

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, value: str) -> str:
        if value == "auto":
            return value
        try:
            "".encode(value)  # also raises LookupError for a codec that does not encode text, such as base64
            return codecs.lookup(value).name
        except LookupError:
            raise ValueError("is not a known encoding; try `auto`, `utf-8`, `utf-16`, `cp1252` or `latin-1`") from None

    @field_validator("delimiter")
    @classmethod
    def _check_delimiter(cls, value: str) -> str:
        character = _DELIMITER_BY_NAME.get(value, value)
        if character != "auto" and (len(character) != 1 or character in '"\r\n' or ord(character) > 127):
            raise ValueError("must be `auto`, `comma`, `semicolon`, `tab`, `pipe` or one character")
        return character


class SqlRows(JobModel):
    """Rows of a database: the result of a query, or a whole table."""

    url: Annotated[str, AfterValidator(_resolve_url)] = Field(
        repr=False, description="SQLAlchemy URL of the database, such as postgresql://user@host/crm."
    )
    query: str | None = Field(
        default=None, min_length=1, description="SELECT statement that returns the rows. Set either `query` or `table`."
    )
    table: str | None = Field(
        default=None, min_length=1, description="Table or view whose rows are read. Set either `query` or `table`."
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if (self.query is None) == (self.table is None):
            raise ValueError("needs either `query` or `table`, and not both")
        return self


class SqlSource(SqlRows):
    """Rows of a database: all rows, or only new and changed rows."""

    cursor: Cursor | None = Field(
        default=None, description="Read only new and changed rows. Without this key, each run reads all rows."
    )

    @model_validator(mode="after")
    def _check_cursor(self) -> Self:
        from connector.sources.cursor import uses_cursor

        backend_name = re.split("[:+]", self.url, maxsplit=1)[0]
        if self.query is not None and uses_cursor(self.query, backend_name) != (self.cursor is not None):
            raise ValueError(_UNUSED_CURSOR_MESSAGE if self.cursor is not None else _UNKNOWN_CURSOR_MESSAGE)
        return self


class JobSource(JobModel):
    """The source of the rows: a file or a database."""

    file: FileSource | None = Field(default=None, description="Read rows from a file. Set either `file` or `sql`.")
    sql: SqlSource | None = Field(default=None, description="Read rows from a database. Set either `file` or `sql`.")

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if (self.file is None) == (self.sql is None):
            raise ValueError("needs either `file` or `sql`, and not both")
        return self


class ListFile(FileSource):
    """A file with a column of identities."""

    column: str = Field(min_length=1, description="Column that holds the identities.")


class ListSql(SqlRows):
    """Rows of a database with a column of identities."""

    column: str = Field(min_length=1, description="Column that holds the identities.")


class SuppressionSettings(JobModel):
    """The subscribers that are never created: subscribers on a list, and subscribers that are inactive in the
    service."""

    file: ListFile | None = Field(
        default=None, description="Read the suppressed identities from a file. Set either `file` or `sql`."
    )
    sql: ListSql | None = Field(
        default=None, description="Read the suppressed identities from a database. Set either `file` or `sql`."
    )
    field: Identity | None = Field(
        default=None,
        description="Field that the suppressed identities belong to: `email` or `client_user_id`. Without this key, "
        "the job's identity.",
    )
    inactive: bool = Field(
        default=False,
        description="Also suppress an active row if the service's list shows its subscriber as inactive in any base.",
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        has_suppression_list = self.file is not None or self.sql is not None
        if self.file is not None and self.sql is not None:
            raise ValueError("has both `file` and `sql`: remove one of the two keys")
        if not has_suppression_list and not self.inactive:
            raise ValueError("needs `file`, `sql` or `inactive: true`")
        if self.field is not None and not has_suppression_list:
            raise ValueError("the key `field` describes a suppression list: add `file` or `sql`, or remove `field`")
        return self
