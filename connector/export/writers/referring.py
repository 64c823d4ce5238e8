"""Which other tables refer to a table by foreign keys: whoever deletes its rows deletes or breaks theirs.

Each database is asked in its own words, which know all its schemas; MySQL shows only what the user may see.
"""

from collections.abc import Sequence

import sqlalchemy as sa

from connector.export.writers.layout import TableName

_OF_POSTGRESQL = sa.text(
    "WITH RECURSIVE family AS (SELECT cast(to_regclass(cast(:name AS text)) AS oid) AS id UNION "
    "SELECT i.inhrelid FROM pg_inherits i JOIN family ON i.inhparent = family.id) "
    "SELECT cast(cast(c.conrelid AS regclass) AS text) FROM pg_constraint c WHERE c.contype = 'f' "
    "AND c.confrelid IN (SELECT id FROM family) AND c.conrelid NOT IN (SELECT id FROM family)"
)
"""Those of its partitions too: what is deleted from the table is deleted from them."""

_OF_MYSQL = sa.text(
    "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.key_column_usage "
    "WHERE referenced_table_schema = COALESCE(:schema, DATABASE()) AND referenced_table_name = :table "
    "AND NOT (table_schema = referenced_table_schema AND table_name = referenced_table_name)"
)

_OF_SQLITE = sa.text(
    "SELECT m.name FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) f WHERE m.type = 'table' "
    'AND lower(f."table") = lower(:table) AND lower(m.name) <> lower(:table)'
)


def find_referrers_in_postgresql(connection: sa.Connection, name: TableName) -> Sequence[str]:
    """By the catalogue, which everybody may read."""
    quote = connection.dialect.identifier_preparer.quote_identifier
    written = ".".join(quote(part) for part in (name.schema, name.table) if part)
    return connection.scalars(_OF_POSTGRESQL, {"name": written}).all()


def find_referrers_in_mysql(connection: sa.Connection, name: TableName) -> Sequence[str]:
    """By the information schema."""
    return connection.scalars(_OF_MYSQL, {"schema": name.schema, "table": name.table}).all()


def find_referrers_in_sqlite(connection: sa.Connection, name: TableName) -> Sequence[str]:
    """By the declarations, whether they are enforced or not: our own connection does not, another will."""
    return connection.scalars(_OF_SQLITE, {"table": name.table}).all()


def inspect_referrers(connection: sa.Connection, name: TableName) -> Sequence[str]:
    """By SQLAlchemy's inspection of all schemas, for any other database."""
    inspector = sa.inspect(connection)
    home = name.schema or inspector.default_schema_name
    found = []
    for schema in inspector.get_schema_names():
        for (_, table), keys in inspector.get_multi_foreign_keys(schema=schema).items():
            referred = [_fold(key["referred_schema"] or schema, key["referred_table"]) for key in keys]
            is_itself = _fold(schema, table) == _fold(home, name.table)
            if _fold(home, name.table) in referred and not is_itself:
                found.append(f"{schema}.{table}")
    return found


def _fold(schema: str | None, table: str) -> tuple[str, str]:
    return str.lower(schema or ""), str.lower(table)
