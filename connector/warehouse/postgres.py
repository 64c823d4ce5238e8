"""A PostgreSQL database, by psycopg 3: rows by COPY of Arrow's CSV, tags as text[], times as timestamptz."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import sqlalchemy as sa

from connector.databases import DatabaseUrl
from connector.warehouse.columns import build_text, quote_lists
from connector.warehouse.dialect import ColumnKind, Dialect, TableName
from connector.warehouse.servers import ServerDatabase, open_driver, open_server
from connector.warehouse.stage import StagedRows

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

_CSV = arrow_csv.WriteOptions(include_header=False, quoting_style="needed")  # a text is quoted, null is nothing at all

_DIALECT = Dialect(
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


class PostgresDatabase(ServerDatabase):
    """A server's database; `url` names psycopg as its driver."""

    dialect = _DIALECT

    def __init__(self, url: DatabaseUrl) -> None:
        super().__init__(open_server(url, _CONNECT, isolation_level=_ISOLATION))

    def build_cancel(self, connection: sa.Connection) -> Callable[[], None]:
        """Return a function that cancels the running statement by a message to the server."""
        driver: Any = connection.connection.driver_connection
        return lambda: driver.cancel_safe(timeout=_CANCEL_S)

    def begin(self, connection: sa.Connection) -> None:
        """Set up the transaction."""
        connection.exec_driver_sql(_STARTS)

    def load(self, table: str, rows: StagedRows, shared: Mapping[str, object]) -> int:
        """Load by COPY."""
        texts = {key: str(value) for key, value in shared.items()}
        columns = _DIALECT.write_list([*rows.schema.names, *texts])
        with open_driver(self.connection) as driver, driver.cursor() as cursor:
            with cursor.copy(f"COPY {table} ({columns}) FROM STDIN (FORMAT csv)") as copy:
                for text in _write_ahead(rows, texts):
                    copy.write(text)
            return int(cursor.rowcount)

    def find_referrers(self, name: TableName) -> Sequence[str]:
        """Read the catalogue, which every role may read."""
        return self.connection.scalars(_REFERRERS, {"name": _DIALECT.write_name(name)}).all()

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
