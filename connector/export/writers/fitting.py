"""Whether a table that is there can take an export's rows, and what it lacks. Pure; it says what would mend it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from connector.errors import ConfigurationError
from connector.export.writers.dialect import Dialect
from connector.export.writers.kinds import IS_CURRENT, VALID_FROM, VALID_TO
from connector.export.writers.layout import Layout, TableName
from connector.export.writers.mode import Mode
from connector.export.writers.runs import name_of

Quote = Callable[[str], str]

_MAY_BECOME: dict[Mode, frozenset[Mode]] = {
    Mode.REPLACE: frozenset(Mode),
    Mode.UPSERT: frozenset({Mode.UPSERT}),
    Mode.APPEND: frozenset({Mode.APPEND}),
    Mode.HISTORY: frozenset({Mode.HISTORY}),
}
"""Which modes a table may be exported to next: none that would lose, or mix up, what an earlier one kept."""


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column that is there: `family` is a ColumnKind, `any` or another word; `shown` the type as it is declared."""

    name: str
    family: str
    shown: str
    is_needed: bool = False  # takes no null and has no value of its own


@dataclass(frozen=True, slots=True)
class FoundKey:
    """Columns whose values no two rows may share; `shown` is what people call the key."""

    shown: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table, or a view, that is there. `indexed`: the columns that an index begins with. `keys`: those that hold for
    every row. `can_be_swapped`: nothing hangs on it that another table in its place would lack."""

    columns: Sequence[FoundColumn]
    is_view: bool = False
    indexed: frozenset[str] = field(default_factory=frozenset)
    keys: Sequence[FoundKey] = ()
    is_transactional: bool = True
    can_be_swapped: bool = False


def find_missing(found: FoundTable, table: sa.Table, dialect: Dialect) -> list[sa.Column[object]]:
    """The columns of ours that the table lacks."""
    return [column for column in table.columns if _find(found, column.name, dialect) is None]


def is_indexed(found: FoundTable, name: str, dialect: Dialect) -> bool:
    """Whether an index begins with this column."""
    return any(dialect.is_same_name(name, each) for each in found.indexed)


def check_fit(found: FoundTable, table: sa.Table, dialect: Dialect, quote: Quote, shown: str) -> None:
    """Raise ConfigurationError, which names each fault and what would mend it, if the table cannot take the rows.

    `quote` writes a name as a statement has it, `shown` says which database it is.
    """
    name = name_of(table)
    if found.is_view:
        raise ConfigurationError(
            f"{name} in {shown} is a view, and rows go into tables: export to another table, or drop the view"
        )
    faults = [
        _describe_clash(found, column, each, dialect, quote, name)
        for column in table.columns
        if (each := _find(found, column.name, dialect)) is not None
        and not dialect.can_hold(column.info["kind"], each.family)
    ]
    ours = [column.name for column in table.columns]
    faults += [
        f"its column {each.name} must be given a value and has none of its own (give it a DEFAULT, or drop NOT NULL)"
        for each in found.columns
        if each.is_needed and not any(dialect.is_same_name(each.name, name) for name in ours)
    ]
    if faults:
        raise ConfigurationError(f"The table {name} in {shown} cannot take the rows: {'; '.join(faults)}")


def check_mode(found: FoundTable, layout: Layout, last_mode: str | None, shown: str) -> None:
    """Raise ConfigurationError if the table is kept in another mode, whose rows this one would lose or mix up.

    `last_mode` is that of the table's last run, None where none is known: then its columns tell a history.
    """
    keeps_history = all(_find(found, name, layout.dialect) for name in (VALID_FROM, VALID_TO, IS_CURRENT))
    last = Mode(last_mode) if last_mode in set(Mode) else Mode.HISTORY if keeps_history else Mode.REPLACE
    if layout.mode not in _MAY_BECOME[last]:
        raise ConfigurationError(
            f"The table {name_of(layout.target)} in {shown} is kept in the mode {last}, and {layout.mode} would spoil "
            f"it: export to another table, drop this one, or go on with {last}"
        )


def _find(found: FoundTable, name: str, dialect: Dialect) -> FoundColumn | None:
    return next((each for each in found.columns if dialect.is_same_name(each.name, name)), None)


def _describe_clash(
    found: FoundTable, column: sa.Column[object], there: FoundColumn, dialect: Dialect, quote: Quote, name: TableName
) -> str:
    kind = column.info["kind"]
    old = next(
        free
        for number in range(1, len(found.columns) + 2)
        if _find(found, free := f"{there.name}_old{number if number > 1 else ''}", dialect) is None
    )
    statement = dialect.mend.format(
        table=".".join(quote(part) for part in (name.schema, name.table) if part),
        column=quote(there.name),
        old=quote(old),
        type=column.type.compile(dialect=_any_dialect(column)) if "{type}" in dialect.mend else "",
    )
    return f"its column {there.name} is {there.shown}, and holds no {kind} as it is (mend it by: {statement})"


def _any_dialect(column: sa.Column[object]) -> sa.Dialect:
    """MySQL's own types are told by their module; all others are written as in the standard."""
    if type(column.type).__module__.startswith("sqlalchemy.dialects.mysql"):
        from sqlalchemy.dialects import mysql

        return mysql.dialect()
    from sqlalchemy.dialects import postgresql

    return postgresql.dialect()  # type: ignore[no-untyped-call] # SQLAlchemy's own
