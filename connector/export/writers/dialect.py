"""What one kind of database differs in from another, as values: types, what a column may be, how values compare."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from connector.export.writers.kinds import ColumnKind

Differs = Callable[[sa.ColumnElement[Any], sa.ColumnElement[Any], ColumnKind], sa.ColumnElement[bool]]
IsTable = Callable[[sa.ColumnElement[Any], str], sa.ColumnElement[bool]]

ANY = "any"
"""The family of a column that takes every value as it is, such as one without a type in SQLite."""

PADDED = "padded"
"""The family of CHAR: most databases fill its texts up with blanks, or lose those at their ends."""

COARSE = "coarse time"
"""The family of times with fewer digits of a second's fraction than ours have."""


def keep_time(at: datetime) -> object:
    """For a database that has times with a zone."""
    return at.astimezone(UTC)


def differ(ours: sa.ColumnElement[Any], theirs: sa.ColumnElement[Any], _: ColumnKind) -> sa.ColumnElement[bool]:
    """Null-safe, by the database's own operator for it. Where each side has a collation the first one's counts."""
    return ours.is_distinct_from(theirs)


def differ_in_bytes(
    ours: sa.ColumnElement[Any], theirs: sa.ColumnElement[Any], kind: ColumnKind
) -> sa.ColumnElement[bool]:
    """Texts by their bytes: a column may be citext, or have a collation that knows no case. In words of
    PostgreSQL and of DuckDB."""
    if kind is not ColumnKind.TEXT:
        return ours.is_distinct_from(theirs)
    return sa.cast(ours, sa.Text).collate("C").is_distinct_from(sa.cast(theirs, sa.Text).collate("C"))


def is_table_in_any_letters(column: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
    """Where `Subscribers` and `subscribers` are one table."""
    return sa.func.lower(column) == sa.func.lower(name)


def is_table_to_the_letter(column: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
    """Where they are two."""
    return column == name


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of database.

    `types`: what a new column is declared as. `also`: other families of types that hold a kind's values as they are.
    `mend`: the statement that makes a column fit, with {table}, {column}, {old} (a free name) and {type}. `write_time`:
    a time as a value of a statement. `differs`: whether two values differ, to the byte. `can_update_from`: it knows
    UPDATE with a second table. `wants_index`: joins by id need one. `folds_case`: columns whose names differ in case
    are the same column; `is_table`: whether a column, of names, has that of a table. `holds_nul`: texts may hold
    U+0000. `undoes_tables`: a rolled back transaction takes back tables and columns too. `replaces_to_update`: an
    UPDATE may delete a row and insert it anew. `most_joined`: the rows for which a statement that lays the stage beside
    the target has room, where that is the process's own memory. `longest_name`: how long the name of a table or a
    schema may be, in characters or, where it `counts_bytes`, in bytes of UTF-8. `table_options`: what else SQLAlchemy's
    Table is given.
    """

    types: Mapping[ColumnKind, sa.types.TypeEngine[Any]]
    mend: str
    also: Mapping[ColumnKind, frozenset[str]] = field(default_factory=dict)
    write_time: Callable[[datetime], object] = keep_time
    differs: Differs = differ
    can_update_from: bool = True
    wants_index: bool = True
    folds_case: bool = True
    is_table: IsTable = is_table_in_any_letters
    holds_nul: bool = True
    undoes_tables: bool = True
    replaces_to_update: bool = False
    most_joined: int | None = None
    longest_name: int | None = None
    counts_bytes: bool = False
    table_options: Mapping[str, str] = field(default_factory=dict)

    def write(self, value: object) -> object:
        """A value as a statement takes it."""
        return self.write_time(value) if isinstance(value, datetime) else value

    def can_hold(self, kind: ColumnKind, family: str) -> bool:
        """Whether a column of this family takes every value of the kind."""
        return family in (kind, ANY) or family in self.also.get(kind, frozenset())

    def can_name(self, name: str) -> bool:
        """Whether a table or a schema may have this name, and keeps the whole of it."""
        length = len(name.encode() if self.counts_bytes else name)
        return self.longest_name is None or length <= self.longest_name

    def is_same_name(self, one: str, other: str) -> bool:
        """Whether two names mean one column. Not by `name.lower()`: that of SQLAlchemy's quoted names does nothing."""
        return one == other or (self.folds_case and str.lower(one) == str.lower(other))
