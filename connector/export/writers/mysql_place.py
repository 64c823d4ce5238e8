"""A MySQL or MariaDB database, by PyMySQL: texts as utf8mb4, tags as JSON, times as DATETIME in UTC."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateTable
from sqlalchemy.sql.functions import FunctionElement

from connector.databases import DatabaseUrl, build_engine, explain, list_errors, show_url
from connector.errors import RunAborted
from connector.export.writers.dialect import Dialect
from connector.export.writers.fitting import FoundTable
from connector.export.writers.kinds import ColumnKind
from connector.export.writers.layout import Layout, TableName
from connector.export.writers.mysql_rows import write_inserts
from connector.export.writers.referring import find_referrers_in_mysql
from connector.export.writers.reflecting import describe_table
from connector.export.writers.session import Session
from connector.export.writers.sql_session import SqlSession, open_driver
from connector.export.writers.staged import Rows

_MODE = "NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"  # what does not fit is an error, not cut off
_INIT = (
    f"SET SESSION sql_mode = '{_MODE}', time_zone = '+00:00', "
    "innodb_lock_wait_timeout = {wait_s}, lock_wait_timeout = {wait_s}"
)
_STATEMENT = 1 << 20
"""Bytes of an INSERT: larger ones are no faster, and every server takes these unless it was told otherwise."""

_PASSING = frozenset({1040, 1053, 1203, 1205, 1213, 1226, 1317, 2003, 2006, 2013, 2014})
"""Errors of connections, locks and limits; all others would come back."""


class _Bytes(FunctionElement[Any]):
    """A text as its bytes in UTF-8, whatever its column's character set and collation."""

    inherit_cache = True


@compiles(_Bytes)
def _write_bytes(element: _Bytes, compiler: Any, **options: Any) -> str:
    return f"CAST(CONVERT({compiler.process(element.clauses, **options)} USING utf8mb4) AS BINARY)"


def _differ(ours: sa.ColumnElement[Any], theirs: sa.ColumnElement[Any], kind: ColumnKind) -> sa.ColumnElement[bool]:
    if kind in (ColumnKind.TEXT, ColumnKind.TAGS):
        return _Bytes(ours).is_distinct_from(_Bytes(theirs))
    return ours.is_distinct_from(theirs)


def _is_table(column: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
    """As the server itself tells tables apart: by each letter on Linux, unless it was told otherwise."""
    given = sa.literal(name)
    is_so = _Bytes(column) == _Bytes(given)
    return sa.case(
        (sa.literal_column("@@lower_case_table_names") == 0, is_so),
        else_=_Bytes(sa.func.lower(column)) == _Bytes(sa.func.lower(given)),
    )


def _write_time(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(tzinfo=None)


MYSQL = Dialect(
    types={
        ColumnKind.TEXT: mysql.LONGTEXT(charset="utf8mb4"),
        ColumnKind.WHOLE: sa.BigInteger(),
        ColumnKind.FLAG: mysql.BOOLEAN(),
        ColumnKind.DATE: sa.Date(),
        ColumnKind.TIME: mysql.DATETIME(fsp=6),
        ColumnKind.TAGS: mysql.JSON(),
    },
    mend="ALTER TABLE {table} MODIFY COLUMN {column} {type}",
    also={
        ColumnKind.FLAG: frozenset({ColumnKind.WHOLE}),  # a BOOLEAN is a TINYINT
        ColumnKind.TAGS: frozenset({"json", ColumnKind.TEXT}),  # MariaDB's JSON is a LONGTEXT
    },
    write_time=_write_time,
    differs=_differ,
    is_table=_is_table,
    undoes_tables=False,
    longest_name=64,
    table_options={"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4"},
)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a server is waited for, in seconds: `lock` for what somebody else has locked, by the server's own clock;
    `look` for the answer to a statement that touches no row, `write` to one that may touch all; `send` until it takes
    what is sent. A server that is silent for longer is given up. The last three can be set in the URL."""

    lock: int = 30
    look: int = 90  # it may wait for a lock or two
    write: int = 3600  # one statement deletes, merges or copies all rows: minutes for tens of millions
    send: int = 60


class MysqlPlace:
    """A server's database; `url` names PyMySQL as its driver."""

    dialect = MYSQL
    can_rehearse = True

    def __init__(self, url: DatabaseUrl, patience: Patience = Patience()) -> None:
        self._url, self._patience = url, patience
        self._writing, self._reading = (self._build_engine(seconds) for seconds in (patience.write, patience.look))
        self.errors = list_errors(self._writing)

    def __str__(self) -> str:
        return show_url(self._url)

    @contextmanager
    def connect(self, *, is_reading: bool = False) -> Iterator[Session]:
        """A connection of its own."""
        with (self._reading if is_reading else self._writing).connect() as connection:
            wait = partial(_wait, lock_s=self._patience.lock)
            yield SqlSession(connection, MYSQL, _fill, wait, look=_look, refer=find_referrers_in_mysql)

    def explain(self, error: Exception) -> str:
        """The first line of what the server said, without values of rows."""
        return explain(error, self._url)

    def is_passing(self, error: Exception) -> bool:
        """Whether the failure may be over by the next run."""
        arguments: tuple[Any, ...] = getattr(getattr(error, "orig", error), "args", ())
        return any(each in _PASSING for each in arguments[:1])

    def _build_engine(self, answer_s: int) -> sa.Engine:
        times = {"connect_timeout": 10, "read_timeout": answer_s, "write_timeout": self._patience.send}
        given: dict[str, object] = {name: value for name, value in times.items() if name not in self._url.query}
        given |= {"charset": "utf8mb4", "init_command": _INIT.format(wait_s=self._patience.lock)}
        return build_engine(self._url, hide_parameters=True, connect_args=given)


def insert_rows(connection: sa.Connection, table: sa.Table, rows: Rows, shared: Mapping[str, object] = {}) -> None:
    """Put the rows into the table, whose columns may be more than theirs; `shared` are values that all of them have."""
    preparer = mysql.dialect(paramstyle="named").identifier_preparer  # without a % doubled
    names = ", ".join(preparer.quote_identifier(name) for name in (*rows.schema.names, *shared))
    head = f"INSERT INTO {preparer.format_table(table)} ({names}) VALUES"
    largest = connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar()
    most = min(_STATEMENT, int(largest or _STATEMENT) // 2)
    with open_driver(connection) as driver, driver.cursor() as cursor:
        for batch in rows.read():
            for statement in write_inserts(head, batch, most, [str(value) for value in shared.values()]):
                cursor.execute(statement)


def _fill(connection: sa.Connection, stage: sa.Table, rows: Rows) -> None:
    connection.execute(CreateTable(stage))
    insert_rows(connection, stage, rows)


def _wait(connection: sa.Connection, layout: Layout, lock_s: int) -> None:
    """By locks with names, which the connection holds until its end."""
    schema = layout.target.schema or connection.scalar(sa.select(sa.func.database()))
    for table in layout.turns:
        name = f"{schema}.{table}"
        key = f"connector {blake2b(name.lower().encode(), digest_size=16).hexdigest()}"
        if connection.scalar(sa.select(sa.func.get_lock(key, lock_s))) != 1:
            raise RunAborted(f"Another export is writing to {name}; it is as that one leaves it. Run it again.")


def _look(connection: sa.Connection, name: TableName) -> FoundTable | None:
    """What MySQL's tables may be more than others: without transactions, or with something that hangs on them."""
    found = describe_table(connection, name)
    if found is None or found.is_view:
        return found
    place = {"schema": name.schema or connection.scalar(sa.select(sa.func.database())), "table": name.table}
    kind, is_safe = connection.execute(_ENGINE, place).one()
    hangs = connection.scalar(_HANGS, place)
    may = set(connection.execute(_GRANTS, place).scalars())
    can_be_swapped = kind == "BASE TABLE" and not hangs and may >= _TO_SWAP
    return replace(found, is_transactional=is_safe == "YES", can_be_swapped=can_be_swapped)


_TO_SWAP = {"CREATE", "DROP", "ALTER", "INSERT", "TRIGGER"}
"""What swapping asks for; without TRIGGER the triggers that would be lost are not even shown."""

_ENGINE = sa.text(
    "SELECT t.table_type, e.transactions FROM information_schema.tables t "
    "LEFT JOIN information_schema.engines e ON e.engine = t.engine "
    "WHERE t.table_schema = :schema AND t.table_name = :table"
)
_HANGS = sa.text(
    "SELECT (SELECT COUNT(*) FROM information_schema.triggers WHERE event_object_schema = :schema "
    "AND event_object_table = :table) + (SELECT COUNT(*) FROM information_schema.key_column_usage "
    "WHERE (table_schema = :schema AND table_name = :table AND referenced_table_name IS NOT NULL) "
    "OR (referenced_table_schema = :schema AND referenced_table_name = :table))"
)
_ME = "CONCAT('''', SUBSTRING_INDEX(CURRENT_USER(), '@', 1), '''@''', SUBSTRING_INDEX(CURRENT_USER(), '@', -1), '''')"
_GRANTS = sa.text(  # those of a role are not among them: then rows are deleted and inserted, which is always right
    f"SELECT privilege_type FROM information_schema.user_privileges WHERE grantee = {_ME} "  # noqa: S608 - constants
    f"UNION SELECT privilege_type FROM information_schema.schema_privileges WHERE grantee = {_ME} "
    "AND :schema LIKE table_schema"
)
