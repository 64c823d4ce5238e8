"""A PostgreSQL database, by psycopg 3: rows by COPY of Arrow's CSV, tags as text[], times as timestamptz."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from connector.databases import DatabaseUrl
from connector.warehouse.columns import build_text, quote_lists
from connector.warehouse.interruption import Interruption
from connector.warehouse.runs import ColumnKind
from connector.warehouse.stage import StagedRows
from connector.warehouse.tables import Types, commit, open_driver, open_server

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
"""For the transaction: a lock of another session ends a run and does not hang it; times are in UTC; a commit lasts."""

_ISOLATION = "READ COMMITTED"  # an export that waited for another sees what that wrote, whatever the role's default is

_PASSING = ("08", "40", "53", "55", "57")
"""Classes of SQLSTATE: connection, serialisation and deadlock, resources, locks, an operator's intervention."""

_CANCEL_S = 3.0

_REFERRERS = sa.text(
    "WITH RECURSIVE family AS (SELECT cast(to_regclass(cast(:name AS text)) AS oid) AS id UNION "
    "SELECT i.inhrelid FROM pg_inherits i JOIN family ON i.inhparent = family.id) "
    "SELECT cast(cast(c.conrelid AS regclass) AS text) FROM pg_constraint c WHERE c.contype = 'f' "
    "AND c.confrelid IN (SELECT id FROM family) AND c.conrelid NOT IN (SELECT id FROM family)"
)
"""Those of partitions too: what is deleted from the table is deleted from them."""

_NAMES = postgresql.dialect(paramstyle="named").identifier_preparer  # type: ignore[no-untyped-call] # no % doubled
_CSV = arrow_csv.WriteOptions(include_header=False, quoting_style="needed")  # a text is quoted, null is nothing at all

_TYPES: Types = {
    ColumnKind.TEXT: sa.Text(),
    ColumnKind.NAME: sa.Text(),
    ColumnKind.WHOLE: sa.BigInteger(),
    ColumnKind.FLAG: sa.Boolean(),
    ColumnKind.DATE: sa.Date(),
    ColumnKind.TIME: sa.TIMESTAMP(timezone=True),
    ColumnKind.TAGS: sa.ARRAY(sa.Text()),
}


class PostgresDatabase:
    """A server's database; `url` names psycopg as its driver."""

    types = _TYPES
    table_options: Mapping[str, str] = {}
    undoes_tables = casts_null = True
    holds_nul = False
    longest_name = 63
    path = None
    commit = staticmethod(commit)

    def __init__(self, url: DatabaseUrl) -> None:
        self.engine = open_server(url, _CONNECT, isolation_level=_ISOLATION)

    @contextmanager
    def connect(self, interruption: Interruption) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction; an interruption cancels its statement."""
        with self.engine.connect() as connection:
            driver = connection.connection.driver_connection
            with interruption.cancel_by(lambda: driver.cancel_safe(timeout=_CANCEL_S)):  # type: ignore[union-attr] # psycopg's
                connection.exec_driver_sql(_STARTS)
                yield connection

    def load(self, connection: sa.Connection, table: sa.Table, rows: StagedRows, shared: Mapping[str, object]) -> int:
        """Load by COPY. The stage is named with its schema: a table of its name may come first in the search path."""
        name = f"pg_temp.{_NAMES.quote(table.name)}" if table.dialect_kwargs else _NAMES.format_table(table)
        texts = {key: str(value) for key, value in shared.items()}
        columns = ", ".join(map(_NAMES.quote_identifier, (*rows.schema.names, *texts)))
        with open_driver(connection) as driver, driver.cursor() as cursor:
            with cursor.copy(f"COPY {name} ({columns}) FROM STDIN (FORMAT csv)") as copy:
                for text in _write_ahead(rows, texts):
                    copy.write(text)
            return int(cursor.rowcount)

    def differ(self, ours: sa.ColumnElement[Any], theirs: sa.ColumnElement[Any], _: ColumnKind) -> Any:
        """Collations of PostgreSQL tell texts apart by their bytes, unless declared otherwise."""
        return ours.is_distinct_from(theirs)

    def find_referrers(self, connection: sa.Connection, table: sa.Table) -> Sequence[str]:
        """Read the catalogue, which every role may read."""
        return connection.scalars(_REFERRERS, {"name": _NAMES.format_table(table)}).all()

    def write_time(self, at: datetime) -> datetime:
        """Return the time in UTC."""
        return at.astimezone(UTC)

    def is_passing(self, error: Exception) -> bool:
        """Return whether the failure may be over by the next run."""
        state = getattr(getattr(error, "orig", error), "sqlstate", None)
        if state is not None:
            return str(state).startswith(_PASSING)
        said = str(error)  # what a server says to a connection that it refuses comes without its code
        is_lasting = "authentication failed" in said or "does not exist" in said or "pg_hba.conf" in said
        return isinstance(error, sa.exc.DBAPIError) and not is_lasting


def _write_ahead(rows: StagedRows, shared: Mapping[str, str]) -> Iterator[bytes]:
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
