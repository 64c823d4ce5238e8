"""Databases that SQLAlchemy connects to: PostgreSQL, MySQL, MariaDB, and any other database.

- PostgreSQL: rows are loaded by COPY of Arrow's CSV. Tags are text[], and times are timestamptz.
- MySQL and MariaDB: rows are loaded by INSERT statements of many rows. Texts are utf8mb4, tags are JSON, and times are
  DATETIME in UTC, because TIMESTAMP ends in 2038. Tables that an earlier version created keep TIMESTAMP. Sessions are
  in UTC, so both types have the same times.
- Any other database: only the modes `replace` and `append`. Rows are loaded by the driver's `executemany`, and tags are
  JSON.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import sqlalchemy as sa

from connector.arrow import EMPTY_TEXT, build_text_scalar
from connector.databases import DatabaseUrl, build_engine, explain, format_url
from connector.errors import ConfigurationError
from connector.warehouse.columns import format_lists_as_json, quote_lists
from connector.warehouse.database import ColumnKind, Dialect, Interruption, StagedRows, Statement, TableName
from connector.warehouse.statements import read_kinds

_BATCH_ROWS = 1000
"""The number of rows in one call of `executemany`."""

_SQL_TYPE_BY_PYTHON_TYPE: Mapping[type, sa.types.TypeEngine[Any]] = {
    bool: sa.Boolean(), int: sa.BigInteger(), str: sa.String(), datetime: sa.DateTime(timezone=True)
}  # fmt: skip
"""SQL types of parameters, by the Python type of the value. Some drivers cannot infer the SQL types."""

_ALREADY_EXISTS_CODES = ("42P06", "42P07", "42710", 1050, 1684)
"""Error codes for a schema or table that already exists: SQLSTATEs of PostgreSQL (42710 for the row type of a table),
and error numbers of MySQL."""


class SqlalchemyDatabase:
    """Any database with an SQLAlchemy dialect. A subclass overrides a method if its database offers a better way."""

    dialect: Dialect
    connection: sa.Connection  # the connection of the last `connect`

    def __init__(self, url: DatabaseUrl, default_arguments: Mapping[str, object] | None = None, **options: Any) -> None:
        """Create the engine. `default_arguments` are arguments for the driver. The URL may override them."""
        driver_arguments = {name: value for name, value in (default_arguments or {}).items() if name not in url.query}
        driver_arguments |= options.pop("connect_args", {})
        self.engine = build_engine(url, hide_parameters=True, connect_args=driver_arguments, **options)
        if type(self) is SqlalchemyDatabase:
            self.dialect = _build_dialect(self.engine.dialect)

    def __str__(self) -> str:
        return format_url(self.engine.url)

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        # The errors of SQLAlchemy, and the errors of the driver for calls without SQLAlchemy.
        return sa.exc.SQLAlchemyError, self.engine.dialect.loaded_dbapi.Error

    @contextmanager
    def connect(self, interruption: Interruption) -> Iterator[None]:
        with self.engine.connect() as connection, interruption.register_cancel(self.build_cancel(connection)):
            self.connection = connection
            self.begin(connection)
            yield

    def build_cancel(self, connection: sa.Connection) -> Callable[[], None]:
        """Return a function that cancels the running statement. A subclass that can cancel statements overrides this
        method."""
        return lambda: None

    def begin(self, connection: sa.Connection) -> None:
        """Set up the transaction. A subclass that has something to set up overrides this method."""

    def commit(self, interruption: Interruption) -> None:
        interruption.begin_commit()
        self.connection.commit()

    def run(self, statement: Statement) -> int:
        cursor_result = self.connection.execute(
            self.build_text_clause(statement), execution_options={"preserve_rowcount": True}
        )
        return max(0, cursor_result.rowcount)

    def fetch(self, statement: Statement, max_rows: int) -> Sequence[Sequence[Any]]:
        with self.connection.execute(self.build_text_clause(statement)) as cursor_result:
            return cursor_result.fetchmany(max_rows)

    def load(self, table: str, rows: StagedRows, shared_values: Mapping[str, object]) -> int:
        type_by_column = {name: _find_generic_type(kind) for name, kind in read_kinds(rows.schema).items()}
        type_by_column |= {name: _SQL_TYPE_BY_PYTHON_TYPE[type(value)] for name, value in shared_values.items()}
        placeholders_sql = ", ".join(f":{name}" for name in type_by_column)
        insert_sql = (
            f"INSERT INTO {table} ({self.dialect.format_names(list(type_by_column))}) VALUES ({placeholders_sql})"  # noqa: S608 - names, quoted
        )
        insert_statement = sa.text(insert_sql).bindparams(
            *(sa.bindparam(name, type_=column_type) for name, column_type in type_by_column.items())
        )
        row_count = 0
        for batch in rows.read():
            for first_index in range(0, batch.num_rows, _BATCH_ROWS):
                table_rows = pa.Table.from_batches([batch.slice(first_index, _BATCH_ROWS)])
                for index, column in enumerate(table_rows.columns):
                    if pa.types.is_list(column.type):
                        column_name = table_rows.column_names[index]
                        table_rows = table_rows.set_column(index, column_name, format_lists_as_json(column))
                self.connection.execute(insert_statement, [{**row, **shared_values} for row in table_rows.to_pylist()])
            row_count += batch.num_rows
        return row_count

    def build_text_clause(self, statement: Statement) -> sa.TextClause:
        """Return the statement with its values and the types of the values."""
        bind_parameters = [
            sa.bindparam(name, value, _SQL_TYPE_BY_PYTHON_TYPE.get(type(value)))
            for name, value in statement.values.items()
        ]
        return sa.text(statement.text).bindparams(*bind_parameters)

    @contextmanager
    def open_driver(self) -> Iterator[Any]:
        """Yield the driver's own connection. If the connection is lost, invalidate SQLAlchemy's connection, because its
        rollback would fail and hide the first error."""
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
        table_names = inspector.get_table_names(name.schema)
        matching_names = [known_name for known_name in table_names if known_name.lower() == name.table.lower()]
        stored_name = matching_names[0] if matching_names and name.table not in matching_names else name.table
        return stored_name, {
            column["name"]: not (column["nullable"] or column.get("default") or column.get("identity"))
            and column.get("autoincrement") is not True
            and not column.get("computed")
            for column in inspector.get_columns(name.table, name.schema)
        }

    def find_referrers(self, name: TableName) -> Sequence[str]:
        inspector = sa.inspect(self.connection)
        target_schema_and_table = (name.schema or inspector.default_schema_name or "").lower(), name.table.lower()
        referrers = []
        for schema in inspector.get_schema_names():
            for (_, table), foreign_keys in inspector.get_multi_foreign_keys(schema=schema).items():
                referenced_schemas_and_tables = [
                    ((key["referred_schema"] or schema).lower(), key["referred_table"].lower()) for key in foreign_keys
                ]
                if (
                    target_schema_and_table in referenced_schemas_and_tables
                    and (schema.lower(), table.lower()) != target_schema_and_table
                ):
                    referrers.append(f"{schema}.{table}")
        return referrers

    def convert_time(self, time: datetime) -> datetime:
        return time.astimezone(UTC)

    def explain(self, error: Exception) -> str:
        return explain(error, self.engine.url)

    def is_transient(self, error: Exception) -> bool:
        return isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated

    def is_refusal(self, error: Exception) -> bool:
        driver = self.engine.dialect.loaded_dbapi
        return isinstance(getattr(error, "orig", error), driver.IntegrityError | driver.DataError)

    def is_concurrency_error(self, error: Exception) -> bool:
        first_argument = _read_first_argument(error)
        # The first argument of an error of pg8000 is a dict.
        sql_state = first_argument.get("C") if isinstance(first_argument, dict) else _read_sql_state(error)
        return (
            isinstance(error, sa.exc.IntegrityError)
            or sql_state in _ALREADY_EXISTS_CODES
            or (type(first_argument) is int and first_argument in _ALREADY_EXISTS_CODES)
        )


def _read_first_argument(error: Exception) -> Any:
    return next(iter(getattr(getattr(error, "orig", error), "args", ())), None)


def _read_sql_state(error: Exception) -> Any:
    return getattr(getattr(error, "orig", error), "sqlstate", None)


def _find_generic_type(kind: ColumnKind) -> sa.types.TypeEngine[Any]:
    """Return the generic type of SQLAlchemy, which SQLAlchemy translates to a type of the database."""
    match kind:
        case ColumnKind.TEXT | ColumnKind.TAGS:
            return sa.Text()
        case ColumnKind.NAME:
            return sa.String(255)
        case ColumnKind.WHOLE_NUMBER:
            return sa.BigInteger()
        case ColumnKind.FLAG:
            return sa.Boolean()
        case ColumnKind.DATE:
            return sa.Date()
        case ColumnKind.TIME:
            return sa.DateTime(timezone=True)
    assert_never(kind)


def _build_dialect(dialect: sa.Dialect) -> Dialect:
    preparer = dialect.identifier_preparer
    first_row_template: sa.Select[Any] = sa.select(sa.literal_column("1")).select_from(sa.text("{}")).limit(1)
    return Dialect(
        type_by_kind={kind: str(_find_generic_type(kind).compile(dialect)) for kind in ColumnKind},
        quotes=(preparer.initial_quote, preparer.final_quote),
        first_row_template=str(first_row_template.compile(dialect=dialect, compile_kwargs={"literal_binds": True})),
        can_roll_back_tables=False,
        can_cast_null=False,
        can_store_nul=False,
        max_name_bytes=dialect.max_identifier_length if dialect.name == "postgresql" else None,
    )


_COPIED_COLUMN_PATTERN = re.compile(r"COPY [^,]+, line \d+, column ([^:]+):")
"""The beginning of PostgreSQL's error context, which ends before the refused value."""


class PostgresDatabase(SqlalchemyDatabase):
    """A PostgreSQL database. `url` names psycopg as the driver."""

    _CONNECT_ARGUMENTS: Mapping[str, object] = {
        "connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
        "tcp_user_timeout": 60_000, "application_name": "connector export", "client_encoding": "utf8",
        "prepare_threshold": None,
    }  # fmt: skip
    """With these settings, an export fails within about a minute if the server can no longer be reached."""

    _BEGIN_SQL = (
        "SELECT set_config('lock_timeout', '30s', true), set_config('timezone', 'UTC', true), "
        "set_config('datestyle', 'ISO, YMD', true), set_config('synchronous_commit', 'on', true)"
    )
    """Settings of a transaction. A statement waits at most 30 s for the lock of another session, times are in UTC, and
    commits are durable."""

    _TEMPORARY_ERROR_CODES = ("08", "40", "53", "55", "57")
    """Classes of SQLSTATE for temporary failures: connection, serialisation and deadlock, resources, locks, and
    intervention by an operator."""

    _CANCEL_TIMEOUT_S = 3.0

    _REFERRERS_SQL = sa.text(
        "WITH RECURSIVE family AS (SELECT cast(to_regclass(cast(:name AS text)) AS oid) AS id UNION "
        "SELECT i.inhrelid FROM pg_inherits i JOIN family ON i.inhparent = family.id) "
        "SELECT cast(cast(c.conrelid AS regclass) AS text) FROM pg_constraint c WHERE c.contype = 'f' "
        "AND c.confrelid IN (SELECT id FROM family) AND c.conrelid NOT IN (SELECT id FROM family)"
    )
    """The query for tables with a foreign key to the table or to its partitions."""

    # Texts are quoted, and null is an empty cell.
    _CSV_OPTIONS = arrow_csv.WriteOptions(include_header=False, quoting_style="needed")

    dialect = Dialect(
        type_by_kind={kind: kind.value.postgresql for kind in ColumnKind},
        temporary_prefix="pg_temp.",  # the search path may have another table with the name of the stage
        stage_table_options="ON COMMIT DROP",  # with a connection pooler, the connection does not end with the export
        can_store_nul=False,
        max_name_bytes=63,
    )

    def __init__(self, url: DatabaseUrl) -> None:
        # With READ COMMITTED, an export that waited for another export sees the rows of this other export.
        super().__init__(url, self._CONNECT_ARGUMENTS, isolation_level="READ COMMITTED")

    def build_cancel(self, connection: sa.Connection) -> Callable[[], None]:
        driver: Any = connection.connection.driver_connection
        return lambda: driver.cancel_safe(timeout=self._CANCEL_TIMEOUT_S)

    def begin(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql(self._BEGIN_SQL)

    def load(self, table: str, rows: StagedRows, shared_values: Mapping[str, object]) -> int:
        text_by_shared_column = {column: str(value) for column, value in shared_values.items()}
        columns_sql = self.dialect.format_names([*rows.schema.names, *text_by_shared_column])
        with self.open_driver() as driver, driver.cursor() as cursor:
            with cursor.copy(f"COPY {table} ({columns_sql}) FROM STDIN (FORMAT csv)") as copy:
                for csv_text in self._format_csv_ahead(rows, text_by_shared_column):
                    copy.write(csv_text)
            return int(cursor.rowcount)

    def _format_csv_ahead(self, rows: StagedRows, shared_values: Mapping[str, str]) -> Iterator[bytes]:
        """Yield each batch as CSV. A thread writes the next batch as CSV while the server receives this batch."""
        with ThreadPoolExecutor(1, thread_name_prefix="connector writes") as thread_pool:
            next_text: Future[bytes] | None = None
            for batch in rows.read():
                previous_text, next_text = next_text, thread_pool.submit(self._format_csv, batch, shared_values)
                if previous_text is not None:
                    yield previous_text.result()
            if next_text is not None:
                yield next_text.result()

    def _format_csv(self, batch: pa.RecordBatch, shared_values: Mapping[str, str]) -> bytes:
        columns = [
            quote_lists(column, "{", "}") if pa.types.is_list(column.type) else column for column in batch.columns
        ]
        columns += [pa.repeat(build_text_scalar(value), batch.num_rows) for value in shared_values.values()]
        csv_buffer = BytesIO()
        arrow_csv.write_csv(
            pa.record_batch(columns, names=[*batch.schema.names, *shared_values]), csv_buffer, self._CSV_OPTIONS
        )
        return csv_buffer.getvalue()

    def find_table(self, name: TableName) -> tuple[str | None, Mapping[str, bool]]:
        """Raises ConfigurationError for a view, because COPY cannot write to a view."""
        if name.table in sa.inspect(self.connection).get_view_names(name.schema):
            raise ConfigurationError(f"{name} is a view, and an export writes only to tables. Export to another table.")
        return super().find_table(name)

    def find_referrers(self, name: TableName) -> Sequence[str]:
        return self.connection.scalars(self._REFERRERS_SQL, {"name": self.dialect.format_name(name)}).all()

    def explain(self, error: Exception) -> str:
        """Return the driver's message. If COPY could not read a value, add the name of the column."""
        message = super().explain(error)
        error_context = getattr(getattr(getattr(error, "orig", error), "diag", None), "context", None) or ""
        column_match = _COPIED_COLUMN_PATTERN.match(error_context)
        return message if column_match is None or column_match[1] in message else f"{message}, column {column_match[1]}"

    def is_refusal(self, error: Exception) -> bool:
        """Return whether the SQLSTATE means wrong data, a violated constraint, or an error that a trigger has
        raised."""
        return str(_read_sql_state(error)).startswith(("22", "23", "P0"))

    def is_transient(self, error: Exception) -> bool:
        sql_state = _read_sql_state(error)
        if sql_state is not None:
            return str(sql_state).startswith(self._TEMPORARY_ERROR_CODES)
        message = str(error)  # the message decides, because the error of a refused connection has no SQLSTATE
        is_permanent = "authentication failed" in message or "does not exist" in message or "pg_hba.conf" in message
        return isinstance(error, sa.exc.DBAPIError) and not is_permanent


_APOSTROPHE, _COMMA = build_text_scalar("'"), build_text_scalar(",")


class MysqlDatabase(SqlalchemyDatabase):
    """A MySQL or MariaDB database. `url` names PyMySQL as the driver. LOAD DATA LOCAL is not used, because this
    statement lets a server read any file of the client."""

    _TIMEOUTS: Mapping[str, object] = {"connect_timeout": 10, "read_timeout": 3600, "write_timeout": 60}
    """Timeouts in seconds, which the URL can override. `read_timeout` is long, because merging tens of millions of rows
    in one statement takes minutes."""

    _INIT_SQL = (  # a value that does not fit is an error, and a statement waits at most 30 s for a lock
        "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', "
        "time_zone = '+00:00', innodb_lock_wait_timeout = 30, lock_wait_timeout = 30"
    )

    _MAX_STATEMENT_BYTES = 1 << 19
    """The maximum length of an INSERT statement. Every server accepts 1 MB, and larger statements are not faster."""

    _TEMPORARY_ERROR_CODES = frozenset({1040, 1053, 1203, 1205, 1213, 1226, 1317, 1684, 2003, 2006, 2013, 2014})
    """Error numbers for temporary failures: connections, locks and limits."""

    _REFUSAL_CODES = frozenset({1048, 1062, 1264, 1265, 1292, 1364, 1366, 1406, 1452, 1644, 3819, 4025})
    """Error numbers for a refused value: NULL, duplicates, ranges, lengths, types, foreign keys, SIGNAL and CHECK."""

    _REFERRERS_SQL = sa.text(
        "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.key_column_usage "
        "WHERE referenced_table_schema = COALESCE(:schema, DATABASE()) AND referenced_table_name = :table "
        "AND NOT (table_schema = referenced_table_schema AND table_name = referenced_table_name)"
    )

    dialect = Dialect(
        type_by_kind={kind: kind.value.mysql for kind in ColumnKind},
        quotes=("`", "`"),
        table_options="ENGINE=InnoDB DEFAULT CHARSET=utf8mb4",
        difference_template="NOT ({} <=> {})",
        # Collations ignore case, accents and final blanks, so texts are compared by bytes.
        text_to_bytes_template="CAST(CONVERT({} USING utf8mb4) AS BINARY)",
        can_roll_back_tables=False,
        can_cast_null=False,
        has_comma_join_in_update=True,
    )

    def __init__(self, url: DatabaseUrl) -> None:
        super().__init__(url, self._TIMEOUTS, connect_args={"charset": "utf8mb4", "init_command": self._INIT_SQL})

    def build_cancel(self, connection: sa.Connection) -> Callable[[], None]:
        """Return a function that cancels the running statement by a second connection."""
        driver: Any = connection.connection.driver_connection
        thread_id = driver.thread_id()

        def kill_statement() -> None:
            with self.engine.connect() as second_connection:
                second_connection.exec_driver_sql(f"KILL QUERY {thread_id}")

        return kill_statement

    def load(self, table: str, rows: StagedRows, shared_values: Mapping[str, object]) -> int:
        columns_sql = self.dialect.format_names([*rows.schema.names, *shared_values])
        insert_prefix = f"INSERT INTO {table} ({columns_sql}) VALUES"
        shared_texts = [str(value) for value in shared_values.values()]
        row_count = 0
        with self.open_driver() as driver, driver.cursor() as cursor:
            for batch in rows.read():
                row_count += batch.num_rows
                for statement in format_inserts(insert_prefix, batch, self._MAX_STATEMENT_BYTES, shared_texts):
                    cursor.execute(statement)
        return row_count

    def find_referrers(self, name: TableName) -> Sequence[str]:
        return self.connection.scalars(self._REFERRERS_SQL, {"schema": name.schema, "table": name.table}).all()

    def convert_time(self, time: datetime) -> datetime:
        """Return the time in UTC without a zone, because the session is in UTC."""
        return time.astimezone(UTC).replace(tzinfo=None)

    def is_transient(self, error: Exception) -> bool:
        return _read_first_argument(error) in self._TEMPORARY_ERROR_CODES

    def is_refusal(self, error: Exception) -> bool:
        return _read_first_argument(error) in self._REFUSAL_CODES

    def build_text_clause(self, statement: Statement) -> sa.TextClause:
        """Return the statement. A text with a backslash is written in hexadecimal digits, as in `format_inserts`."""
        statement_sql, parameter_values = statement.text, dict(statement.values)
        for name, value in statement.values.items():
            if isinstance(value, str) and "\\" in value:
                statement_sql = re.sub(rf":{name}\b", _format_hex(value), statement_sql)
                del parameter_values[name]
        return super().build_text_clause(Statement(statement_sql, parameter_values))


def _format_hex(text: str) -> str:
    return f"_utf8mb4 X'{text.encode().hex()}'"


def format_inserts(
    insert_prefix: str, batch: pa.RecordBatch, max_bytes: int, shared_texts: Sequence[str]
) -> Iterator[str]:
    """Yield statements that begin with `insert_prefix` (INSERT … VALUES). A statement with more than one row has at
    most `max_bytes` bytes.

    Each inserted row has the values of a row of `batch`, followed by all `shared_texts`, which are ASCII. A text with a
    backslash is written in hexadecimal digits, because a connection pooler may reset the session's setting
    NO_BACKSLASH_ESCAPES.
    """
    shared_values_sql = "".join(f",'{text.replace(chr(39), chr(39) * 2)}'" for text in shared_texts)
    columns = [_format_literals(column) for column in pa.Table.from_batches([batch]).columns]
    joined_rows = pc.binary_join_element_wise(*columns, _COMMA, null_handling="replace", null_replacement="NULL")
    rows: list[str] = []
    statement_byte_count = len(insert_prefix)
    for row, row_byte_count in zip(joined_rows.to_pylist(), pc.binary_length(joined_rows).to_pylist(), strict=True):
        row_byte_count += len(shared_values_sql) + 3
        if rows and statement_byte_count + row_byte_count > max_bytes:
            yield f"{insert_prefix} {','.join(rows)}"
            rows, statement_byte_count = [], len(insert_prefix)
        rows.append(f"({row}{shared_values_sql})")
        statement_byte_count += row_byte_count
    if rows:
        yield f"{insert_prefix} {','.join(rows)}"


def _format_literals(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_boolean(column.type) or pa.types.is_integer(column.type):
        whole_numbers = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
        return whole_numbers.cast(pa.string())
    if pa.types.is_list(column.type):
        column = format_lists_as_json(column)
    elif pa.types.is_timestamp(column.type):  # a DATETIME has no time zone, and all times are in UTC
        column = column.cast(pa.timestamp("us"))
    cells = column.cast(pa.string())
    quoted_cells = pc.binary_join_element_wise(
        _APOSTROPHE, pc.replace_substring(cells, "'", "''"), _APOSTROPHE, EMPTY_TEXT
    )
    backslash_mask = pc.match_substring(cells, "\\")
    if not pc.any(backslash_mask).as_py():
        return quoted_cells
    hex_texts = [None if text is None else _format_hex(text) for text in cells.to_pylist()]
    return pc.if_else(backslash_mask, pa.chunked_array([pa.array(hex_texts, pa.string())]), quoted_cells)
