"""A table of a DuckDB file, by DuckDB's own package and Arrow: tags are VARCHAR[], times TIMESTAMP WITH TIME ZONE."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from connector.export.writers.table_writer import Database, TableName

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {"memory_limit": "128MB", "threads": 1}
"""DuckDB takes 80 % of the machine's memory otherwise; a load by Arrow comes from one thread and gains nothing."""

_STAGED = "_connector_staged"

_FROM_ROWS = "auto_checkpoint_skip_wal_threshold"
"""The rows from which on a commit may do without the log, in DuckDB 1.5 and later; before, it does at any number."""


def _has_table(name: TableName) -> bool:
    with duckdb.connect(str(name.path), read_only=True) as connection:
        found = connection.execute(
            "select 1 from information_schema.tables where lower(table_schema) = ? and lower(table_name) = ?",
            [(name.schema or "main").lower(), name.table.lower()],
        )
        return found.fetchone() is not None


def _replace(name: TableName, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    """In one transaction: until it is committed every reader sees the old table, and after a crash so does the next."""
    target = f"{_quote(name.schema or 'main')}.{_quote(name.table)}"
    with _open(name.path) as connection:
        connection.register(_STAGED, pa.RecordBatchReader.from_batches(schema, batches))
        connection.begin()
        connection.execute(f"create schema if not exists {_quote(name.schema or 'main')}")
        connection.execute(f"create or replace table {target} as select * from {_STAGED}")  # noqa: S608 - quoted
        connection.commit()


def _open(path: Path) -> duckdb.DuckDBPyConnection:
    if "?" not in str(path):
        return duckdb.connect(str(path), config=_SETTINGS)
    spill = {"temp_directory": f"{path}.tmp"}
    connection = duckdb.connect(str(path), config=_SETTINGS | spill)
    _go_without_log(connection)
    return connection


def _go_without_log(connection: duckdb.DuckDBPyConnection) -> None:
    """Let a commit go straight into the database file, as DuckDB does by itself with large ones.

    It takes what follows a `?` in a path, a folder's too, for options, and seeks its log in a folder that is not there.
    """
    connection.execute("set checkpoint_threshold = '0B'")
    if connection.execute("select 1 from duckdb_settings() where name = ?", [_FROM_ROWS]).fetchone():
        connection.execute(f"set {_FROM_ROWS} = 0")


def _quote(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


DUCKDB = Database(_has_table, _replace, (duckdb.Error,))
