"""A table of a SQLite file: flags are 0 and 1, tags a JSON array, dates and times ISO 8601 texts."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from connector.export.writers.plain import flatten_table
from connector.export.writers.table_writer import Database, TableName

_WAIT_S = 30.0
"""For a lock that another connection holds: a reader's lasts moments."""


def _has_table(name: TableName) -> bool:
    with closing(sqlite3.connect(name.path, timeout=_WAIT_S)) as connection:
        found = connection.execute("select 1 from sqlite_master where name = ? collate nocase", [name.table])
        return found.fetchone() is not None


def _replace(name: TableName, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    """In one transaction: until it is committed every reader sees the old table, and after a crash so does the next."""
    table = _quote(name.table)
    columns = ", ".join(f"{_quote(field.name)} {_declare(field.type)}" for field in schema)
    insert = f"insert into {table} values ({', '.join('?' * len(schema))})"  # noqa: S608 - quoted
    with closing(sqlite3.connect(name.path, timeout=_WAIT_S, isolation_level=None)) as connection:
        connection.execute("begin immediate")
        connection.execute(f"drop table if exists {table}")
        connection.execute(f"create table {table} ({columns})")
        for batch in batches:
            connection.executemany(insert, _read_rows(batch))
        connection.execute("commit")


def _read_rows(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    columns = flatten_table(pa.Table.from_batches([batch])).columns
    return zip(*(_read_column(column) for column in columns), strict=True)


def _read_column(column: pa.ChunkedArray) -> list[object]:
    plain: list[object] = (column.cast(pa.string()) if pa.types.is_date(column.type) else column).to_pylist()
    return plain


def _declare(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "INTEGER"
    if pa.types.is_boolean(kind):
        return "BOOLEAN"
    return "DATE" if pa.types.is_date(kind) else "TEXT"


def _quote(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


SQLITE = Database(_has_table, _replace, (sqlite3.Error,))
