"""What a table of a DuckDB file is like, by DuckDB's own catalogue, in the words of `fitting`."""

from collections.abc import Sequence

import duckdb

from connector.export.writers.fitting import FoundColumn, FoundKey, FoundTable
from connector.export.writers.kinds import ColumnKind
from connector.export.writers.layout import TableName

_COLUMNS = (
    "select column_name, data_type, is_nullable, column_default from duckdb_columns() where database_name = "
    "current_database() and lower(schema_name) = $1 and lower(table_name) = $2 order by column_index"
)
_VIEWS = (
    "select 1 from duckdb_views() where database_name = current_database() and lower(schema_name) = $1 "
    "and lower(view_name) = $2"
)
_CONSTRAINTS = (
    "select lower(constraint_type), constraint_column_names from duckdb_constraints() where database_name = "
    "current_database() and lower(schema_name) = $1 and lower(table_name) = $2 "
    "and constraint_type in ('PRIMARY KEY', 'UNIQUE')"
)
_INDEXES = (
    "select index_name, expressions from duckdb_indexes() where database_name = current_database() "
    "and lower(schema_name) = $1 and lower(table_name) = $2 and is_unique and not is_primary"
)
_REFERRERS = (
    "select distinct schema_name || '.' || table_name from duckdb_constraints() where database_name = "
    "current_database() and constraint_type = 'FOREIGN KEY' and lower(schema_name) = $1 "
    "and lower(referenced_table) = $2 and lower(table_name) <> $2 order by all"
)

_FAMILIES = {
    "VARCHAR": ColumnKind.TEXT,
    "BOOLEAN": ColumnKind.FLAG,
    "DATE": ColumnKind.DATE,
    "VARCHAR[]": ColumnKind.TAGS,
    "JSON": "json",
} | dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), ColumnKind.WHOLE)


def describe_duckdb_table(connection: duckdb.DuckDBPyConnection, name: TableName) -> FoundTable | None:
    """The table or view of that name; None where there is none."""
    where = _place(name)
    columns = connection.execute(_COLUMNS, where).fetchall()
    if not columns:
        return None
    found = [
        FoundColumn(column, _read_family(kind), kind, not is_nullable and default is None)
        for column, kind, is_nullable, default in columns
    ]
    is_view = connection.execute(_VIEWS, where).fetchone() is not None
    return FoundTable(found, is_view, keys=_list_keys(connection, where))


def find_referrers_in_duckdb(connection: duckdb.DuckDBPyConnection, name: TableName) -> Sequence[str]:
    """The other tables that refer to this one by a foreign key; they are in the same schema."""
    return [row[0] for row in connection.execute(_REFERRERS, _place(name)).fetchall()]


def _list_keys(connection: duckdb.DuckDBPyConnection, where: list[str]) -> list[FoundKey]:
    """The primary key and the unique constraints and indexes; no part that is an expression has a column's name."""
    constraints = connection.execute(_CONSTRAINTS, where).fetchall()
    keys = [FoundKey(kind.replace("unique", "unique constraint"), tuple(names)) for kind, names in constraints]
    for name, columns in connection.execute(_INDEXES, where).fetchall():
        parts = tuple(part.strip("'\"") for part in str(columns).strip("[]").split(", "))
        keys.append(FoundKey(f"unique index {name}", parts))
    return keys


def _place(name: TableName) -> list[str]:
    return [str.lower(name.schema or "main"), str.lower(name.table)]


def _read_family(kind: str) -> str:
    if kind.startswith("TIMESTAMP"):
        return ColumnKind.TIME
    return _FAMILIES.get(kind, "other")
