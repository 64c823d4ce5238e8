"""The differences between the databases of exports: how each writes SQL, and what each can do. Pure."""

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

    `types` has the type of each kind of column, and `key_types` has other types for columns of a primary key. `quotes`
    open and close a name. `mark` begins the name of a parameter. `catalog` and `default_schema` are written before the
    name of a table, and `temporary` before the name of a temporary table. Three fields are templates: `differs`
    (whether two values differ, null included), `as_bytes` (the bytes of a text) and `first_row` (a query of one row).

    `undoes_tables`: a rollback also undoes the creation of tables. `casts_null`: null can be cast to the type of a
    column, so that a mismatch of types shows without rows. `holds_nul`: texts may contain U+0000. `longest_name`: the
    database truncates longer names of tables (in bytes) without an error. `joins_by_comma`: an UPDATE lists both
    tables, as in MySQL. `is_columnar`: joins need no index, and an UPDATE of a list is slow (see
    connector.warehouse.duckdb).
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
        """Return a table's quoted name, with its catalog and schema."""
        parts = (self.catalog, name.schema or self.default_schema, name.table)
        return ".".join(self.quote(part) for part in parts if part is not None)

    def write_list(self, names: Sequence[str]) -> str:
        """Return the quoted names, separated by commas."""
        return ", ".join(map(self.quote, names))

    def write_differs(self, ours: str, theirs: str, kind: ColumnKind) -> str:
        """Return the condition that two values differ; texts are compared by bytes, and null equals null."""
        if kind in (ColumnKind.TEXT, ColumnKind.TAGS):
            ours, theirs = self.as_bytes.format(ours), self.as_bytes.format(theirs)
        return self.differs.format(ours, theirs)


Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, and its values by the names that follow the dialect's mark in the text."""

    text: str
    values: Values = field(default_factory=dict)
