"""A SQLite file: flags are 0 and 1, tags a JSON array, times texts as SQLite's own functions write them, in UTC."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import sqlalchemy as sa

from connector.warehouse.columns import write_lists_as_json
from connector.warehouse.database_file import LOCK_S, wait_for_lock
from connector.warehouse.interruption import Interruption
from connector.warehouse.runs import ColumnKind
from connector.warehouse.stage import StagedRows
from connector.warehouse.tables import Types

_TRY_S = 0.5
"""How long SQLite itself waits, deaf to interruptions, before it is asked again."""

_PAGE = 16_384
"""Bytes of a page of a new file, which takes 7 % less time to write than with SQLite's own 4,096."""

_PASSING = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM})

_REFERRERS = sa.text(
    "SELECT m.name FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) f WHERE m.type = 'table' "
    'AND lower(f."table") = lower(:table) AND lower(m.name) <> lower(:table)'
)

_TYPES: Types = {
    ColumnKind.TEXT: sa.Text(),
    ColumnKind.NAME: sa.Text(),
    ColumnKind.WHOLE: sa.Integer(),
    ColumnKind.FLAG: sa.Boolean(),
    ColumnKind.DATE: sa.Date(),
    ColumnKind.TIME: sa.Text(),
    ColumnKind.TAGS: sa.Text(),
}


class SqliteDatabase:
    """A file, which need not be there yet; `lock_s` is how long a lock of others is waited for."""

    types = _TYPES
    table_options: Mapping[str, str] = {}
    undoes_tables = holds_nul = True
    casts_null = False
    longest_name = None

    def __init__(self, path: Path, lock_s: float = LOCK_S) -> None:
        self.path, self._lock_s = path, lock_s
        make = partial(sqlite3.connect, path, timeout=_TRY_S, isolation_level=None)
        self.engine = sa.create_engine("sqlite://", creator=make, poolclass=sa.pool.NullPool, hide_parameters=True)

    @contextmanager
    def connect(self, interruption: Interruption) -> Iterator[sa.Connection]:
        """Yield a connection that begins by taking the only right to write."""
        with self.engine.connect() as connection:
            driver = connection.connection.driver_connection
            connection.exec_driver_sql(f"PRAGMA page_size = {_PAGE}")
            with interruption.cancel_by(lambda: driver.interrupt()):  # type: ignore[union-attr] # the standard library's
                wait_for_lock(
                    partial(connection.exec_driver_sql, "BEGIN IMMEDIATE"), _is_busy, self._lock_s, interruption
                )
                yield connection

    def commit(self, connection: sa.Connection, interruption: Interruption) -> None:
        """Commit, once no reader is in the way; until then an interruption is heard."""
        wait_for_lock(partial(connection.exec_driver_sql, "COMMIT"), _is_busy, self._lock_s, interruption)
        connection.commit()

    def load(self, connection: sa.Connection, table: sa.Table, rows: StagedRows, shared: Mapping[str, object]) -> int:
        """Load by prepared statements."""
        quote = connection.dialect.identifier_preparer
        columns = ", ".join(map(quote.quote_identifier, (*rows.schema.names, *shared)))
        marks = ", ".join("?" * (len(rows.schema.names) + len(shared)))
        insert = f"INSERT INTO {quote.format_table(table)} ({columns}) VALUES ({marks})"  # noqa: S608 - names, quoted
        tail = tuple(shared.values())
        count = 0
        driver: Any = connection.connection.driver_connection
        for batch in rows.read():
            driver.executemany(insert, _read_rows(batch, tail))
            count += batch.num_rows
        return count

    def differ(self, ours: sa.ColumnElement[Any], theirs: sa.ColumnElement[Any], _: ColumnKind) -> Any:
        """SQLite compares texts by their bytes, unless declared otherwise."""
        return ours.is_distinct_from(theirs)

    def find_referrers(self, connection: sa.Connection, table: sa.Table) -> Sequence[str]:
        """Read the declarations, enforced or not: our connection does not enforce them, another may."""
        return connection.scalars(_REFERRERS, {"table": table.name}).all()

    def write_time(self, at: datetime) -> str:
        """As `strftime('%Y-%m-%d %H:%M:%f', 'now')` writes it, with which it can be compared as text."""
        return at.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")

    def is_passing(self, error: Exception) -> bool:
        """Return whether it is a lock, or a lack of room."""
        return _read_code(error) in _PASSING


def _is_busy(error: Exception) -> bool:
    return _read_code(error) == sqlite3.SQLITE_BUSY


def _read_code(error: Exception) -> int:
    return int(getattr(getattr(error, "orig", error), "sqlite_errorcode", 0)) & 0xFF


def _read_rows(batch: pa.RecordBatch, tail: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    """Rows as Python values: lists as JSON, dates as ISO 8601 texts."""
    columns = []
    for column in pa.Table.from_batches([batch]).columns:
        if pa.types.is_list(column.type):
            column = write_lists_as_json(column)
        elif pa.types.is_date(column.type):
            column = column.cast(pa.string())
        is_text = pa.types.is_string(column.type)
        columns.append(_read_texts(column.chunk(0)) if is_text else column.to_pylist())
    return zip(*columns, *([value] * len(batch) for value in tail), strict=True)


def _read_texts(column: pa.StringArray) -> list[str | None]:
    """One object for all texts that are equal: cities, tags and nulls recur, and each object takes time to make."""
    encoded = column.dictionary_encode("encode")
    texts = encoded.dictionary.to_pylist()
    return [texts[index] for index in np.from_dlpack(encoded.indices).tolist()]
