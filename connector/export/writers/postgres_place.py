"""A PostgreSQL database, by psycopg 3: rows by COPY of Arrow's CSV, tags as text[]."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateTable, ExecutableDDLElement

from connector.databases import DatabaseUrl, build_engine, explain, list_errors, show_url
from connector.export.arrow_values import build_text
from connector.export.writers.dialect import Dialect, differ_in_bytes, is_table_to_the_letter
from connector.export.writers.kinds import ColumnKind
from connector.export.writers.layout import Layout
from connector.export.writers.lists import quote_lists
from connector.export.writers.referring import find_referrers_in_postgresql
from connector.export.writers.run import Run
from connector.export.writers.session import Load, Session
from connector.export.writers.sql_session import SqlSession, open_driver
from connector.export.writers.staged import Rows

_CONNECT: dict[str, object] = {
    "connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
    "tcp_user_timeout": 60_000, "application_name": "connector export", "client_encoding": "utf8",
    "prepare_threshold": None,
}  # fmt: skip
"""A server that cannot be reached any more is given up within about a minute."""

_STARTS = (
    "SELECT set_config('lock_timeout', '30s', true), set_config('timezone', 'UTC', true), "
    "set_config('datestyle', 'ISO, YMD', true), set_config('synchronous_commit', 'on', true)"
)
"""For the transaction: somebody else's lock ends a run and does not hang it; times are in UTC; a commit lasts."""

_ISOLATION = "READ COMMITTED"  # whoever waited for another export sees what it wrote, whatever the role's default is

_PASSING = ("08", "40", "53", "55", "57")
"""Classes of SQLSTATE: connection, serialisation and deadlock, resources, locks, an operator's intervention."""


POSTGRESQL = Dialect(
    types={
        ColumnKind.TEXT: sa.Text(),
        ColumnKind.WHOLE: sa.BigInteger(),
        ColumnKind.FLAG: sa.Boolean(),
        ColumnKind.DATE: sa.Date(),
        ColumnKind.TIME: sa.TIMESTAMP(timezone=True),
        ColumnKind.TAGS: sa.ARRAY(sa.Text()),
    },
    mend="ALTER TABLE {table} ALTER COLUMN {column} TYPE {type} USING {column}::text::{type}",
    differs=differ_in_bytes,
    folds_case=False,
    is_table=is_table_to_the_letter,
    holds_nul=False,
    longest_name=63,  # it cuts off the rest, and finds no table by its whole name
    counts_bytes=True,
)


class PostgresPlace:
    """A server's database; `url` names psycopg as its driver."""

    dialect = POSTGRESQL
    can_rehearse = True

    def __init__(self, url: DatabaseUrl) -> None:
        self._url = url
        given = {name: value for name, value in _CONNECT.items() if name not in url.query}
        self._engine = build_engine(url, hide_parameters=True, connect_args=given, isolation_level=_ISOLATION)
        self.errors = list_errors(self._engine)

    def __str__(self) -> str:
        return show_url(self._url)

    @contextmanager
    def connect(self, *, is_reading: bool = False) -> Iterator[Session]:
        """A connection of its own."""
        with self._engine.connect() as connection:
            yield SqlSession(
                connection,
                POSTGRESQL,
                _fill,
                _wait,
                _hold,
                starts=None if is_reading else _STARTS,
                refer=find_referrers_in_postgresql,
                find_loader=_find_copy,
            )

    def explain(self, error: Exception) -> str:
        """The first line of what the server said, without values of rows."""
        return explain(error, self._url)

    def is_passing(self, error: Exception) -> bool:
        """Whether the failure may be over by the next run."""
        state = getattr(getattr(error, "orig", error), "sqlstate", None)
        if state is not None:
            return str(state).startswith(_PASSING)
        said = str(error)  # what a server says to a connection that it refuses comes without its code
        return not ("authentication failed" in said or "does not exist" in said or "pg_hba.conf" in said)


def _wait(connection: sa.Connection, layout: Layout) -> None:
    """By advisory locks, which a transaction holds: also while the table is not there yet."""
    schema = layout.target.schema or connection.scalar(sa.select(sa.func.current_schema())) or ""
    for name in layout.turns:
        _lock(connection, f"{schema}.{name}")
    if not sa.inspect(connection).has_table(layout.runs.name, schema=layout.runs.schema):
        _lock(connection, schema)  # the first export of all makes what the others share


def _lock(connection: sa.Connection, what: str) -> None:
    key = int.from_bytes(blake2b(f"connector export {what}".encode(), digest_size=8).digest(), signed=True)
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.cast(key, sa.BigInteger))))


class _LockTable(ExecutableDDLElement):
    """LOCK TABLE."""

    inherit_cache = False

    def __init__(self, table: sa.Table) -> None:
        self.table = table


@compiles(_LockTable)
def _write_lock_table(element: _LockTable, compiler: Any, **_: Any) -> str:
    return f"LOCK TABLE {compiler.preparer.format_table(element.table)} IN SHARE ROW EXCLUSIVE MODE"


def _hold(connection: sa.Connection, layout: Layout) -> None:
    """Others may read, and not write."""
    for table in layout.filled:
        connection.execute(_LockTable(table))


_CSV = arrow_csv.WriteOptions(include_header=False, quoting_style="needed")  # a text is quoted, null is nothing at all


def _fill(connection: sa.Connection, stage: sa.Table, rows: Rows) -> None:
    connection.execute(CreateTable(stage))
    _send(connection, f'COPY pg_temp."{stage.name}" FROM STDIN (FORMAT csv)', rows, {})


_NAMES = postgresql.dialect(paramstyle="named").identifier_preparer  # type: ignore[no-untyped-call] # no % doubled
_IS_PLAIN = sa.text(
    "SELECT relkind IN ('r', 'p') AND NOT relhasrules AND NOT relrowsecurity "
    "FROM pg_class WHERE oid = to_regclass(:name)"
)


def _find_copy(connection: sa.Connection, layout: Layout) -> Load | None:
    """COPY passes by rules, and is forbidden under row-level security; a table that is yet to be made has neither, as a
    rule: once it is made, this is asked again."""
    found = (connection.scalar(_IS_PLAIN, {"name": _NAMES.format_table(table)}) for table in layout.filled)
    return partial(_copy, connection) if all(each is None or each for each in found) else None


def _copy(connection: sa.Connection, table: sa.Table, rows: Rows, run: Run) -> int:
    shared = {name: str(POSTGRESQL.write(value)) for name, value in run.columns.items() if name in table.c}
    names = ", ".join(map(_NAMES.quote_identifier, (*rows.schema.names, *shared)))
    return _send(connection, f"COPY {_NAMES.format_table(table)} ({names}) FROM STDIN (FORMAT csv)", rows, shared)


def _send(connection: sa.Connection, statement: str, rows: Rows, shared: Mapping[str, str]) -> int:
    """Carry out the COPY; how many rows it took. `shared` are texts that each row has after its own values."""
    with open_driver(connection) as driver, driver.cursor() as cursor:
        with cursor.copy(statement) as copy:
            for text in _write_ahead(rows, shared):
                copy.write(text)
        return int(cursor.rowcount)


def _write_ahead(rows: Rows, shared: Mapping[str, str]) -> Iterator[bytes]:
    """Each batch as CSV, the next of which a thread writes while the server takes the one before."""
    with ThreadPoolExecutor(1, thread_name_prefix="connector writes") as thread:
        begun: Future[bytes] | None = None
        for batch in rows.read():
            before, begun = begun, thread.submit(_write_csv, batch, shared)
            if before is not None:
                yield before.result()
        if begun is not None:
            yield begun.result()


def _write_csv(batch: pa.RecordBatch, shared: Mapping[str, str]) -> bytes:
    columns = [quote_lists(each, "{", "}") if pa.types.is_list(each.type) else each for each in batch.columns]
    columns += [pa.repeat(build_text(each), batch.num_rows) for each in shared.values()]
    written = BytesIO()
    arrow_csv.write_csv(pa.record_batch(columns, names=[*batch.schema.names, *shared]), written, _CSV)
    return written.getvalue()
