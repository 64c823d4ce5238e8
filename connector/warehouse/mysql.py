"""A MySQL or MariaDB database, by PyMySQL: texts as utf8mb4, tags as JSON, times as TIMESTAMP.

A TIMESTAMP is compared with `now()` rightly in a session of any time zone. Rows are INSERT statements of many rows,
written column by column by Arrow; there is no LOAD DATA LOCAL, which lets a server name the file that it wants to read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from connector.databases import DatabaseUrl
from connector.warehouse.columns import EMPTY, build_text, write_lists_as_json
from connector.warehouse.dialect import ColumnKind, Dialect, TableName
from connector.warehouse.servers import ServerDatabase, open_driver, open_server
from connector.warehouse.stage import StagedRows

_LOCK_S = 30
"""For a lock of another session, by the server's own clock."""

_TIMEOUTS: Mapping[str, object] = {"connect_timeout": 10, "read_timeout": 3600, "write_timeout": 60}
"""In seconds; a server that is silent for longer is given up. One statement may delete or merge all rows: minutes for
tens of millions. They can be set in the URL."""

_MODE = "NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"  # what does not fit is an error, not cut off
_INIT = (
    f"SET SESSION sql_mode = '{_MODE}', time_zone = '+00:00', "
    f"innodb_lock_wait_timeout = {_LOCK_S}, lock_wait_timeout = {_LOCK_S}"
)
_STATEMENT = 1 << 20
"""Bytes of an INSERT: larger ones are no faster, and every server takes these unless it was set otherwise."""

_PASSING = frozenset({1040, 1053, 1203, 1205, 1213, 1226, 1317, 1684, 2003, 2006, 2013, 2014})
"""Errors of connections, locks and limits; all others would come back."""

_REFERRERS = sa.text(
    "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.key_column_usage "
    "WHERE referenced_table_schema = COALESCE(:schema, DATABASE()) AND referenced_table_name = :table "
    "AND NOT (table_schema = referenced_table_schema AND table_name = referenced_table_name)"
)

_APOSTROPHE, _COMMA = build_text("'"), build_text(",")


_UTF8 = "CHARACTER SET utf8mb4"

_DIALECT = Dialect(
    types={
        ColumnKind.TEXT: f"LONGTEXT {_UTF8}",
        ColumnKind.NAME: f"VARCHAR(64) {_UTF8} COLLATE utf8mb4_bin",
        ColumnKind.WHOLE: "BIGINT",
        ColumnKind.FLAG: "BOOL",
        ColumnKind.DATE: "DATE",
        ColumnKind.TIME: "TIMESTAMP(6) NULL",
        ColumnKind.TAGS: "JSON",
    },
    # Without a default of its own, MySQL may set the first time of a table at every update.
    key_types={ColumnKind.TIME: "TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6)"},
    quotes=("`", "`"),
    table_options="ENGINE=InnoDB DEFAULT CHARSET=utf8mb4",
    differs="NOT ({} <=> {})",
    as_bytes="CAST(CONVERT({} USING utf8mb4) AS BINARY)",  # most collations ignore case, accents and blanks at the end
    undoes_tables=False,
    casts_null=False,
    joins_by_comma=True,
)


class MysqlDatabase(ServerDatabase):
    """A server's database; `url` names PyMySQL as its driver."""

    dialect = _DIALECT

    def __init__(self, url: DatabaseUrl) -> None:
        super().__init__(open_server(url, _TIMEOUTS, {"charset": "utf8mb4", "init_command": _INIT}))

    def build_cancel(self, connection: sa.Connection) -> Callable[[], None]:
        """Return a function that cancels the running statement by a second connection."""
        driver: Any = connection.connection.driver_connection
        number = driver.thread_id()
        return lambda: self._kill(number)

    def load(self, table: str, rows: StagedRows, shared: Mapping[str, object]) -> int:
        """Load by INSERT statements of many rows."""
        head = f"INSERT INTO {table} ({_DIALECT.write_list([*rows.schema.names, *shared])}) VALUES"
        largest = self.connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar()
        most = min(_STATEMENT, int(largest or _STATEMENT) // 2)
        count = 0
        with open_driver(self.connection) as driver, driver.cursor() as cursor:
            for batch in rows.read():
                count += batch.num_rows
                for statement in write_inserts(head, batch, most, [str(value) for value in shared.values()]):
                    cursor.execute(statement)
        return count

    def find_referrers(self, name: TableName) -> Sequence[str]:
        """Read the information schema, which shows what the user may see."""
        return self.connection.scalars(_REFERRERS, {"schema": name.schema, "table": name.table}).all()

    def write_time(self, at: datetime) -> datetime:
        """Return the time in UTC, which is the session's time zone."""
        return at.astimezone(UTC).replace(tzinfo=None)

    def is_passing(self, error: Exception) -> bool:
        """Return whether the failure may be over by the next run."""
        arguments: tuple[Any, ...] = getattr(getattr(error, "orig", error), "args", ())
        return any(each in _PASSING for each in arguments[:1])

    def _kill(self, number: int) -> None:
        with self.engine.connect() as connection:
            connection.exec_driver_sql(f"KILL QUERY {number}")


def write_inserts(head: str, batch: pa.RecordBatch, most: int, shared: Sequence[str]) -> Iterator[str]:
    """Statements that begin with `head` (INSERT … VALUES) and have up to `most` bytes, or one row that is longer.

    `shared` are texts in ASCII that each row has after its own values. Nothing but an apostrophe means anything within
    a text, since the session runs under NO_BACKSLASH_ESCAPES.
    """
    tail = "".join(f",'{each.replace(chr(39), chr(39) * 2)}'" for each in shared)
    columns = [_write_literals(column) for column in pa.Table.from_batches([batch]).columns]
    joined = pc.binary_join_element_wise(*columns, _COMMA, null_handling="replace", null_replacement="NULL")
    rows: list[str] = []
    size = len(head)
    for row, length in zip(joined.to_pylist(), pc.binary_length(joined).to_pylist(), strict=True):
        length += len(tail) + 3
        if rows and size + length > most:
            yield f"{head} {','.join(rows)}"
            rows, size = [], len(head)
        rows.append(f"({row}{tail})")
        size += length
    if rows:
        yield f"{head} {','.join(rows)}"


def _write_literals(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_boolean(column.type) or pa.types.is_integer(column.type):
        whole = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
        return whole.cast(pa.string())
    if pa.types.is_list(column.type):
        column = write_lists_as_json(column)
    texts = pc.replace_substring(column.cast(pa.string()), "'", "''")
    return pc.binary_join_element_wise(_APOSTROPHE, texts, _APOSTROPHE, EMPTY)
