"""Databases that SQLAlchemy connects to: PostgreSQL, MySQL and MariaDB, and any other one.

PostgreSQL: rows by COPY of Arrow's CSV, tags as text[], times as timestamptz. MySQL and MariaDB: rows by INSERT
statements of many rows, texts as utf8mb4, tags as JSON, times in UTC as DATETIME, because a TIMESTAMP ends in 2038. A
table of an earlier version keeps its TIMESTAMP: sessions are in UTC, so both types hold the same times. Any other
database: only `replace` and `append`, by the driver's `executemany`, tags as JSON.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import sqlalchemy as sa

from connector.databases import DatabaseUrl, build_engine, explain, list_errors, show_url
from connector.warehouse.columns import EMPTY, build_text, quote_lists, write_lists_as_json
from connector.warehouse.database import ColumnKind, Dialect, Interruption, StagedRows, Statement, TableName
from connector.warehouse.statements import read_kinds

_BATCH = 1000
"""Rows of one call of `executemany`."""

_TYPES: Mapping[ColumnKind, sa.types.TypeEngine[Any]] = {
    ColumnKind.TEXT: sa.Text(),
    ColumnKind.NAME: sa.String(255),
    ColumnKind.WHOLE: sa.BigInteger(),
    ColumnKind.FLAG: sa.Boolean(),
    ColumnKind.DATE: sa.Date(),
    ColumnKind.TIME: sa.DateTime(timezone=True),
    ColumnKind.TAGS: sa.Text(),
}

_VALUE_TYPES: Mapping[type, sa.types.TypeEngine[Any]] = {
    bool: sa.Boolean(), int: sa.BigInteger(), str: sa.String(), datetime: sa.DateTime(timezone=True)
}  # fmt: skip
"""Types of parameters, which some drivers cannot infer."""

_RACES = ("42P06", "42P07", "42710", 1050, 1684)
"""Codes for a schema or table that exists already: SQLSTATE of PostgreSQL (also for the row type), and of MySQL for
tables."""


class SqlalchemyDatabase:
    """Any database with a dialect of SQLAlchemy. A subclass adds what its server can do better."""

    dialect: Dialect

    def __init__(self, url: DatabaseUrl, defaults: Mapping[str, object] | None = None, **options: Any) -> None:
        """Make the engine; `defaults` are arguments of the driver that the URL may override."""
        arguments = {name: value for name, value in (defaults or {}).items() if name not in url.query}
        arguments |= options.pop("connect_args", {})
        self.engine = build_engine(url, hide_parameters=True, connect_args=arguments, **options)
        self._connection: sa.Connection | None = None
        if type(self) is SqlalchemyDatabase:
            self.dialect = _build_dialect(self.engine.dialect)

    def __str__(self) -> str:
        return show_url(self.engine.url)

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        return list_errors(self.engine)

    @property
    def connection(self) -> sa.Connection:
        if self._connection is None:
            raise ValueError("connect() comes first")
        return self._connection

    @contextmanager
    def connect(self, interruption: Interruption) -> Iterator[None]:
        with self.engine.connect() as connection, interruption.cancel_by(self.build_cancel(connection)):
            self._connection = connection
            try:
                self.begin(connection)
                yield
            finally:
                self._connection = None

    def build_cancel(self, connection: sa.Connection) -> Callable[[], None]:
        """Return a function that cancels the running statement, or does nothing."""
        return lambda: None

    def begin(self, connection: sa.Connection) -> None:
        """Set up the transaction."""

    def commit(self, interruption: Interruption) -> None:
        interruption.begin_commit()
        self.connection.commit()

    def run(self, statement: Statement) -> int:
        result = self.connection.execute(self.build_text(statement), execution_options={"preserve_rowcount": True})
        return max(0, result.rowcount)

    def fetch(self, statement: Statement, most: int) -> Sequence[Sequence[Any]]:
        with self.connection.execute(self.build_text(statement)) as result:
            return result.fetchmany(most)

    def load(self, table: str, rows: StagedRows, shared: Mapping[str, object]) -> int:
        types = {name: _TYPES[kind] for name, kind in read_kinds(rows.schema).items()}
        types |= {name: _VALUE_TYPES[type(value)] for name, value in shared.items()}
        marks = ", ".join(f":{name}" for name in types)
        text = f"INSERT INTO {table} ({self.dialect.write_list(list(types))}) VALUES ({marks})"  # noqa: S608 - names, quoted
        insert = sa.text(text).bindparams(*(sa.bindparam(name, type_=kind) for name, kind in types.items()))
        count = 0
        for batch in rows.read():
            for begin in range(0, batch.num_rows, _BATCH):
                table_rows = pa.Table.from_batches([batch.slice(begin, _BATCH)])
                for index, column in enumerate(table_rows.columns):
                    if pa.types.is_list(column.type):
                        name = table_rows.column_names[index]
                        table_rows = table_rows.set_column(index, name, write_lists_as_json(column))
                self.connection.execute(insert, [{**row, **shared} for row in table_rows.to_pylist()])
            count += batch.num_rows
        return count

    def build_text(self, statement: Statement) -> sa.TextClause:
        """Return the statement with its values and their types."""
        values = [sa.bindparam(name, value, _VALUE_TYPES.get(type(value))) for name, value in statement.values.items()]
        return sa.text(statement.text).bindparams(*values)

    @contextmanager
    def open_driver(self) -> Iterator[Any]:
        """Yield the driver's own connection. If the connection is lost, tell SQLAlchemy: its rollback would fail
        otherwise, and hide the first failure."""
        connection = self.connection
        try:
            yield connection.connection.driver_connection
        except connection.dialect.loaded_dbapi.Error as error:
            if connection.dialect.is_disconnect(error, connection.connection.dbapi_connection, None):
                connection.invalidate(error)
            raise

    def has_schema(self, schema: str) -> bool:
        return sa.inspect(self.connection).has_schema(schema)

    def find_table(self, name: TableName) -> tuple[str | None, Mapping[str, bool]]:
        inspector = sa.inspect(self.connection)
        if not inspector.has_table(name.table, schema=name.schema):
            return None, {}
        names = inspector.get_table_names(name.schema)
        like = [each for each in names if each.lower() == name.table.lower()]
        stored_as = like[0] if like and name.table not in like else name.table
        return stored_as, {
            column["name"]: not (column["nullable"] or column.get("default") or column.get("identity"))
            and column.get("autoincrement") is not True
            and not column.get("computed")
            for column in inspector.get_columns(name.table, name.schema)
        }

    def find_referrers(self, name: TableName) -> Sequence[str]:
        inspector = sa.inspect(self.connection)
        home = (name.schema or inspector.default_schema_name or "").lower(), name.table.lower()
        found = []
        for schema in inspector.get_schema_names():
            for (_, table), keys in inspector.get_multi_foreign_keys(schema=schema).items():
                referred = [((key["referred_schema"] or schema).lower(), key["referred_table"].lower()) for key in keys]
                if home in referred and (schema.lower(), table.lower()) != home:
                    found.append(f"{schema}.{table}")
        return found

    def write_time(self, at: datetime) -> datetime:
        return at.astimezone(UTC)

    def explain(self, error: Exception) -> str:
        return explain(error, self.engine.url)

    def is_passing(self, error: Exception) -> bool:
        return isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated

    def is_refusal(self, error: Exception) -> bool:
        driver = self.engine.dialect.loaded_dbapi
        return isinstance(getattr(error, "orig", error), driver.IntegrityError | driver.DataError)

    def is_race(self, error: Exception) -> bool:
        orig = getattr(error, "orig", error)
        first = next(iter(getattr(orig, "args", ())), None)
        state = first.get("C") if isinstance(first, dict) else getattr(orig, "sqlstate", None)  # pg8000 gives a dict
        return isinstance(error, sa.exc.IntegrityError) or state in _RACES or (type(first) is int and first in _RACES)


def _build_dialect(dialect: sa.Dialect) -> Dialect:
    preparer = dialect.identifier_preparer
    first_row: sa.Select[Any] = sa.select(sa.literal_column("1")).select_from(sa.text("{}")).limit(1)
    return Dialect(
        types={kind: str(form.compile(dialect)) for kind, form in _TYPES.items()},
        quotes=(preparer.initial_quote, preparer.final_quote),
        first_row=str(first_row.compile(dialect=dialect, compile_kwargs={"literal_binds": True})),
        undoes_tables=False,
        casts_null=False,
        holds_nul=False,
        longest_name=dialect.max_identifier_length if dialect.name == "postgresql" else None,
    )


_COPIED_COLUMN = re.compile(r"COPY [^,]+, line \d+, column ([^:]+):")
"""The beginning of PostgreSQL's context of an error; the value follows."""


class PostgresDatabase(SqlalchemyDatabase):
    """A PostgreSQL database; `url` names psycopg as its driver."""

    _CONNECT: Mapping[str, object] = {
        "connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
        "tcp_user_timeout": 60_000, "application_name": "connector export", "client_encoding": "utf8",
        "prepare_threshold": None,
    }  # fmt: skip
    """A server that cannot be reached any more is given up within about a minute."""

    _BEGIN = (
        "SELECT set_config('lock_timeout', '30s', true), set_config('timezone', 'UTC', true), "
        "set_config('datestyle', 'ISO, YMD', true), set_config('synchronous_commit', 'on', true)"
    )
    """Settings of a transaction: a lock of another session ends a run after 30 s; times are in UTC; a commit lasts."""

    _PASSING = ("08", "40", "53", "55", "57")
    """Classes of SQLSTATE: connection, serialisation and deadlock, resources, locks, an operator's intervention."""

    _CANCEL_S = 3.0

    _REFERRERS = sa.text(
        "WITH RECURSIVE family AS (SELECT cast(to_regclass(cast(:name AS text)) AS oid) AS id UNION "
        "SELECT i.inhrelid FROM pg_inherits i JOIN family ON i.inhparent = family.id) "
        "SELECT cast(cast(c.conrelid AS regclass) AS text) FROM pg_constraint c WHERE c.contype = 'f' "
        "AND c.confrelid IN (SELECT id FROM family) AND c.conrelid NOT IN (SELECT id FROM family)"
    )
    """Referrers of the table and of its partitions."""

    _CSV = arrow_csv.WriteOptions(include_header=False, quoting_style="needed")  # texts are quoted, null is empty

    dialect = Dialect(
        types={
            ColumnKind.TEXT: "TEXT",
            ColumnKind.NAME: "TEXT",
            ColumnKind.WHOLE: "BIGINT",
            ColumnKind.FLAG: "BOOLEAN",
            ColumnKind.DATE: "DATE",
            ColumnKind.TIME: "TIMESTAMP WITH TIME ZONE",
            ColumnKind.TAGS: "TEXT[]",
        },
        temporary="pg_temp.",  # a table of the stage's name may come first in the search path
        stage_options="ON COMMIT DROP",  # behind a pooler the connection goes on
        holds_nul=False,
        longest_name=63,
    )

    def __init__(self, url: DatabaseUrl) -> None:
        # An export that waited for another one sees its rows, whatever the role's default isolation is.
        super().__init__(url, self._CONNECT, isolation_level="READ COMMITTED")

    def build_cancel(self, connection: sa.Connection) -> Callable[[], None]:
        driver: Any = connection.connection.driver_connection
        return lambda: driver.cancel_safe(timeout=self._CANCEL_S)

    def begin(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql(self._BEGIN)

    def load(self, table: str, rows: StagedRows, shared: Mapping[str, object]) -> int:
        texts = {key: str(value) for key, value in shared.items()}
        columns = self.dialect.write_list([*rows.schema.names, *texts])
        with self.open_driver() as driver, driver.cursor() as cursor:
            with cursor.copy(f"COPY {table} ({columns}) FROM STDIN (FORMAT csv)") as copy:
                for text in self._write_ahead(rows, texts):
                    copy.write(text)
            return int(cursor.rowcount)

    def _write_ahead(self, rows: StagedRows, shared: Mapping[str, str]) -> Iterator[bytes]:
        """Yield each batch as CSV; a thread writes the next batch while the server receives this one."""
        with ThreadPoolExecutor(1, thread_name_prefix="connector writes") as thread:
            begun: Future[bytes] | None = None
            for batch in rows.read():
                before, begun = begun, thread.submit(self._write_csv, batch, shared)
                if before is not None:
                    yield before.result()
            if begun is not None:
                yield begun.result()

    def _write_csv(self, batch: pa.RecordBatch, shared: Mapping[str, str]) -> bytes:
        columns = [
            quote_lists(column, "{", "}") if pa.types.is_list(column.type) else column for column in batch.columns
        ]
        columns += [pa.repeat(build_text(each), batch.num_rows) for each in shared.values()]
        written = BytesIO()
        arrow_csv.write_csv(pa.record_batch(columns, names=[*batch.schema.names, *shared]), written, self._CSV)
        return written.getvalue()

    def find_referrers(self, name: TableName) -> Sequence[str]:
        return self.connection.scalars(self._REFERRERS, {"name": self.dialect.write_name(name)}).all()

    def explain(self, error: Exception) -> str:
        """Return the driver's message, with the column of a value that COPY could not read."""
        message = super().explain(error)
        context = getattr(getattr(getattr(error, "orig", error), "diag", None), "context", None) or ""
        column = _COPIED_COLUMN.match(context)
        return message if column is None or column[1] in message else f"{message}, column {column[1]}"

    def is_refusal(self, error: Exception) -> bool:
        """Return whether the SQLSTATE is of data, of constraints, or of a trigger's own error."""
        return str(getattr(getattr(error, "orig", error), "sqlstate", None)).startswith(("22", "23", "P0"))

    def is_passing(self, error: Exception) -> bool:
        state = getattr(getattr(error, "orig", error), "sqlstate", None)
        if state is not None:
            return str(state).startswith(self._PASSING)
        message = str(error)  # a refused connection has no code
        is_lasting = "authentication failed" in message or "does not exist" in message or "pg_hba.conf" in message
        return isinstance(error, sa.exc.DBAPIError) and not is_lasting


_APOSTROPHE, _COMMA = build_text("'"), build_text(",")
_UTF8 = "CHARACTER SET utf8mb4"


class MysqlDatabase(SqlalchemyDatabase):
    """A MySQL or MariaDB database; `url` names PyMySQL as its driver. LOAD DATA LOCAL is not used: it lets a server
    read any file of the client."""

    _TIMEOUTS: Mapping[str, object] = {"connect_timeout": 10, "read_timeout": 3600, "write_timeout": 60}
    """In seconds; the URL can override them. One statement may merge tens of millions of rows, which takes minutes."""

    _INIT = (  # a value that does not fit is an error; a lock of another session ends a run after 30 s
        "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', "
        "time_zone = '+00:00', innodb_lock_wait_timeout = 30, lock_wait_timeout = 30"
    )

    _STATEMENT = 1 << 19
    """Bytes of an INSERT statement; every server accepts 1 MB, and larger statements are not faster."""

    _PASSING = frozenset({1040, 1053, 1203, 1205, 1213, 1226, 1317, 1684, 2003, 2006, 2013, 2014})
    """Errors of connections, locks and limits."""

    _REFUSING = frozenset({1048, 1062, 1264, 1265, 1292, 1364, 1366, 1406, 1452, 1644, 3819, 4025})
    """Errors of a value: NULL, duplicates, ranges, lengths, types, foreign keys, SIGNAL and CHECK."""

    _REFERRERS = sa.text(
        "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.key_column_usage "
        "WHERE referenced_table_schema = COALESCE(:schema, DATABASE()) AND referenced_table_name = :table "
        "AND NOT (table_schema = referenced_table_schema AND table_name = referenced_table_name)"
    )

    dialect = Dialect(
        types={
            ColumnKind.TEXT: f"LONGTEXT {_UTF8}",
            ColumnKind.NAME: f"VARCHAR(64) {_UTF8} COLLATE utf8mb4_bin",
            ColumnKind.WHOLE: "BIGINT",
            ColumnKind.FLAG: "BOOL",
            ColumnKind.DATE: "DATE",
            ColumnKind.TIME: "DATETIME(6)",
            ColumnKind.TAGS: "JSON",
        },
        quotes=("`", "`"),
        table_options="ENGINE=InnoDB DEFAULT CHARSET=utf8mb4",
        differs="NOT ({} <=> {})",
        as_bytes="CAST(CONVERT({} USING utf8mb4) AS BINARY)",  # most collations ignore case, accents and final blanks
        undoes_tables=False,
        casts_null=False,
        joins_by_comma=True,
    )

    def __init__(self, url: DatabaseUrl) -> None:
        super().__init__(url, self._TIMEOUTS, connect_args={"charset": "utf8mb4", "init_command": self._INIT})

    def build_cancel(self, connection: sa.Connection) -> Callable[[], None]:
        """Return a function that cancels the running statement by a second connection."""
        driver: Any = connection.connection.driver_connection
        number = driver.thread_id()

        def kill() -> None:
            with self.engine.connect() as second:
                second.exec_driver_sql(f"KILL QUERY {number}")

        return kill

    def load(self, table: str, rows: StagedRows, shared: Mapping[str, object]) -> int:
        head = f"INSERT INTO {table} ({self.dialect.write_list([*rows.schema.names, *shared])}) VALUES"
        texts = [str(value) for value in shared.values()]
        count = 0
        with self.open_driver() as driver, driver.cursor() as cursor:
            for batch in rows.read():
                count += batch.num_rows
                for statement in write_inserts(head, batch, self._STATEMENT, texts):
                    cursor.execute(statement)
        return count

    def find_referrers(self, name: TableName) -> Sequence[str]:
        return self.connection.scalars(self._REFERRERS, {"schema": name.schema, "table": name.table}).all()

    def write_time(self, at: datetime) -> datetime:
        """Return the time in UTC, which is the session's time zone."""
        return at.astimezone(UTC).replace(tzinfo=None)

    def is_passing(self, error: Exception) -> bool:
        return _read_number(error) in self._PASSING

    def is_refusal(self, error: Exception) -> bool:
        return _read_number(error) in self._REFUSING

    def build_text(self, statement: Statement) -> sa.TextClause:
        """Write a text with a backslash in hexadecimal digits, as `write_inserts` does."""
        text, values = statement.text, dict(statement.values)
        for name, value in statement.values.items():
            if isinstance(value, str) and "\\" in value:
                text = re.sub(rf":{name}\b", _write_hex(value), text)
                del values[name]
        return super().build_text(Statement(text, values))


def _read_number(error: Exception) -> object:
    return next(iter(getattr(getattr(error, "orig", error), "args", ())), None)


def _write_hex(text: str) -> str:
    return f"_utf8mb4 X'{text.encode().hex()}'"


def write_inserts(head: str, batch: pa.RecordBatch, most: int, shared: Sequence[str]) -> Iterator[str]:
    """Yield statements that begin with `head` (INSERT … VALUES) and have up to `most` bytes, or one longer row.

    Each row ends with the ASCII texts `shared`. A text with a backslash is written in hexadecimal digits, because a
    pooler may reset the setting NO_BACKSLASH_ESCAPES of the session.
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
    cells = column.cast(pa.string())
    quoted = pc.binary_join_element_wise(_APOSTROPHE, pc.replace_substring(cells, "'", "''"), _APOSTROPHE, EMPTY)
    has_backslash = pc.match_substring(cells, "\\")
    if not pc.any(has_backslash).as_py():
        return quoted
    digits = [None if text is None else _write_hex(text) for text in cells.to_pylist()]
    return pc.if_else(has_backslash, pa.chunked_array([pa.array(digits, pa.string())]), quoted)
