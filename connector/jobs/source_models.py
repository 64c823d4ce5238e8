"""Where a job's rows come from, and its suppression list: files and databases as keys of a job file.

It knows nothing of what the rows are for.
"""

import codecs
import re
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from connector.jobs.key_types import STRICT, FilePlace, Identity, find_folder
from connector.units import parse_duration, resolve_url

if TYPE_CHECKING:
    from connector.sources.cursor import CursorKind, CursorValue


_WITHOUT_LOOKBACK = {"integer": "a whole number", "text": "text"}

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*:")
_DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|"}

_UNUSED = "the query does not use :cursor; add, say, where updated_at >= :cursor, the column being the cursor's"
_UNKNOWN = "the query uses :cursor; say by source.sql.cursor which column it is and where it starts"


class Cursor(BaseModel):
    """What makes a source incremental: each run reads on from the largest value that was read."""

    model_config = STRICT

    column: str = Field(min_length=1, description="the result's column that says how new a row is")
    start: str = Field(
        description="where the first run begins: a timestamp (without a zone in UTC), a date, a whole number or text, "
        "as the column's values are"
    )
    lookback_s: Annotated[float, BeforeValidator(parse_duration)] = Field(
        default=0.0, ge=0, alias="lookback", description="begin so much earlier, for rows that are committed late"
    )

    @property
    def kind(self) -> "CursorKind":
        """What the cursor's values are: what `start` is."""
        from connector.sources.cursor import find_kind

        return find_kind(self.start)

    @property
    def first(self) -> "CursorValue":
        """The value that the first run begins at."""
        from connector.sources.cursor import parse_cursor

        return parse_cursor(self.start, self.kind)

    @field_validator("start")
    @classmethod
    def _check_start(cls, value: str) -> str:
        from connector.sources.cursor import find_kind, parse_cursor

        parse_cursor(value, find_kind(value))
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.lookback_s and self.kind in _WITHOUT_LOOKBACK:
            raise ValueError(f"lookback is for timestamps and dates, and start is {_WITHOUT_LOOKBACK[self.kind]}")
        return self


def _resolve_url(value: str, info: ValidationInfo) -> str:
    if not _SCHEME.match(value):  # urlsplit would quote what it cannot read, password and all
        raise ValueError("must be a database URL, such as sqlite:///crm.db or postgresql://user@host/crm")
    return resolve_url(value, find_folder(info))


def _find_encoding(name: str) -> str:
    "".encode(name)  # raises LookupError for a codec that is not of text, such as base64, too
    return codecs.lookup(name).name


class FileSource(BaseModel):
    """A file of rows, or the files of a pattern."""

    model_config = STRICT

    path: FilePlace = Field(
        description="the file, relative to the job file, an object such as s3://bucket/people.csv, or a pattern of "
        "several, such as inbox/*.csv"
    )
    format: Literal["auto", "csv", "tsv", "excel", "parquet", "jsonl"] = Field(
        default="auto", description="what the file holds; auto: what it looks like"
    )
    encoding: str = Field(default="auto", description="how its text is encoded, such as utf-8 or cp1252")
    delimiter: str = Field(default="auto", description="what stands between two cells: a character or its name")
    sheet: str | None = Field(
        default=None, min_length=1, description="a workbook's sheet, by name or number; the first when not given"
    )

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


class SqlRows(BaseModel):
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


class SqlSource(SqlRows):
    """The same, all of them or what is new; inherited, so that a list is read like any other rows."""

    cursor: Cursor | None = Field(default=None, description="read only what is new; everything when not given")

    @model_validator(mode="after")
    def _check_cursor(self) -> Self:
        from connector.sources.cursor import uses_cursor

        database = re.split("[:+]", self.url, maxsplit=1)[0]
        if self.query is not None and uses_cursor(self.query, database) != (self.cursor is not None):
            raise ValueError(_UNUSED if self.cursor is not None else _UNKNOWN)
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


class ListFile(FileSource):
    """A file with a column of identities; inherited, so that a list is read like any other file."""

    column: str = Field(min_length=1, description="the column that holds them")


class ListSql(SqlRows):
    """Rows of a database with a column of identities; inherited, so that a list is read like any other rows."""

    column: str = Field(min_length=1, description="the column that holds them")


class Suppress(BaseModel):
    """Which subscribers are never created: those of a list, and those that the service has as inactive."""

    model_config = STRICT

    file: ListFile | None = Field(default=None, description="identities from a file, or")
    sql: ListSql | None = Field(default=None, description="identities from a database")
    field: Identity | None = Field(default=None, description="what they are; the job's identity when not given")
    inactive: bool = Field(
        default=False, description="create no row as active that the list shows as inactive in any base"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        is_listed = self.file is not None or self.sql is not None
        if (self.file is not None and self.sql is not None) or not (is_listed or self.inactive):
            raise ValueError("needs either file or sql, and not both, or inactive: true")
        if self.field is not None and not is_listed:
            raise ValueError("field is of a list: give file or sql, too, or leave it out")
        return self
