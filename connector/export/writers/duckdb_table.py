"""A table of a DuckDB file, by DuckDB's own package and Arrow: tags are VARCHAR[], times TIMESTAMP WITH TIME ZONE."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from connector.export.writers.table_writer import Database, TableName

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {"memory_limit": "128MB", "threads": 1}
"""DuckDB takes 80 % of the machine's memory otherwise; a load by Arrow comes from one thread and gains nothing."""

_STAGED = "_connector_staged"


def _has_table(name: TableName) -> bool:
    with _reach(name.path) as path, duckdb.connect(path, read_only=True) as connection:
        found = connection.execute(
            "select 1 from information_schema.tables where lower(table_schema) = ? and lower(table_name) = ?",
            [(name.schema or "main").lower(), name.table.lower()],
        )
        return found.fetchone() is not None


def _replace(name: TableName, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    """In one transaction: until it is committed every reader sees the old table, and after a crash so does the next."""
    target = f"{_quote(name.schema or 'main')}.{_quote(name.table)}"
    with _reach(name.path) as path, duckdb.connect(path, config=_SETTINGS) as connection:
        connection.register(_STAGED, pa.RecordBatchReader.from_batches(schema, batches))
        connection.begin()
        connection.execute(f"create schema if not exists {_quote(name.schema or 'main')}")
        connection.execute(f"create or replace table {target} as select * from {_STAGED}")  # noqa: S608 - quoted
        connection.commit()


@contextmanager
def _reach(path: Path) -> Iterator[str]:
    """The path as DuckDB can use it: it takes what follows a `?` for options and puts its log's suffix before them, so
    a folder with one in its name is reached by a link."""
    if "?" not in str(path.parent):
        yield str(path)
        return
    with tempfile.TemporaryDirectory() as room:
        link = Path(room) / "folder"
        link.symlink_to(path.parent, target_is_directory=True)
        yield str(link / path.name)


def _quote(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


DUCKDB = Database(_has_table, _replace, (duckdb.Error,))
