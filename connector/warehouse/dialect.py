"""What differs between the databases that an export is written to: how each writes SQL, and what it can do. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class ColumnKind(StrEnum):
    """What the values of a column are. A name is a text that is short enough for a key."""

    TEXT = "text"
    NAME = "name"
    WHOLE = "whole number"
    FLAG = "flag"
    DATE = "date"
    TIME = "time"
    TAGS = "list of texts"


@dataclass(frozen=True, slots=True)
class TableName:
    """A table, and its schema if one was given."""

    table: str
    schema: str | None = None

    def __str__(self) -> str:
        return ".".join(filter(None, (self.schema, self.table)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one kind of database writes SQL, and what it can do.

    `types` has the type of each kind of column, `key_types` those that differ in a primary key. `quotes` open and close
    a name, `mark` begins the name of a value. `catalog` and `default_schema` come before the name of a table,
    `temporary` before the name of a temporary table. `differs` (whether two values differ, null included), `as_bytes`
    (a text as its bytes) and `first_row` (a query of one row of a table) are templates.

    `undoes_tables`: a rolled back transaction takes back tables too. `casts_null`: a null can be given a column's type,
    so that a clash shows without rows. `holds_nul`: texts may hold U+0000. `longest_name`: bytes of a table's name
    beyond which the database cuts the name off without an error. `joins_by_comma`: an UPDATE lists both tables, as in
    MySQL. `is_columnar`: joins need no index, and an UPDATE of a list is slow (see connector.warehouse.duckdb).
    """

    types: Mapping[ColumnKind, str]
    key_types: Mapping[ColumnKind, str] = field(default_factory=dict)
    quotes: tuple[str, str] = ('"', '"')
    mark: str = ":"
    catalog: str | None = None
    default_schema: str | None = None
    temporary: str = ""
    table_options: str = ""
    stage_options: str = ""
    differs: str = "{} IS DISTINCT FROM {}"
    as_bytes: str = "{}"
    first_row: str = "SELECT 1 FROM {} LIMIT 1"
    undoes_tables: bool = True
    casts_null: bool = True
    holds_nul: bool = True
    longest_name: int | None = None
    joins_by_comma: bool = False
    is_columnar: bool = False

    def quote(self, name: str) -> str:
        """Return a name in quotes."""
        opening, closing = self.quotes
        return f"{opening}{name.replace(closing, closing * 2)}{closing}"

    def write_name(self, name: TableName) -> str:
        """Return a table's name, with all that comes before it."""
        parts = (self.catalog, name.schema or self.default_schema, name.table)
        return ".".join(self.quote(part) for part in parts if part is not None)

    def write_list(self, names: Sequence[str]) -> str:
        """Return names in quotes, with commas."""
        return ", ".join(map(self.quote, names))

    def write_differs(self, ours: str, theirs: str, kind: ColumnKind) -> str:
        """Return the condition that two values differ, to the byte; null equals null."""
        if kind in (ColumnKind.TEXT, ColumnKind.TAGS):
            ours, theirs = self.as_bytes.format(ours), self.as_bytes.format(theirs)
        return self.differs.format(ours, theirs)


Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, and its values by the names that the text has behind the dialect's mark."""

    text: str
    values: Values = field(default_factory=dict)
