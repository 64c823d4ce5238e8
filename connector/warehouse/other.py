"""Any other database that SQLAlchemy reaches: `replace` and `append`, by plain inserts in one transaction."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from connector.databases import DatabaseUrl
from connector.warehouse.columns import write_lists_as_json
from connector.warehouse.interruption import Interruption
from connector.warehouse.runs import ColumnKind
from connector.warehouse.stage import StagedRows
from connector.warehouse.tables import Types, commit, open_server

_BATCH = 1000
"""Rows of one call to the driver."""

_TYPES: Types = {
    ColumnKind.TEXT: sa.Text(),
    ColumnKind.NAME: sa.String(255),
    ColumnKind.WHOLE: sa.BigInteger(),
    ColumnKind.FLAG: sa.Boolean(),
    ColumnKind.DATE: sa.Date(),
    ColumnKind.TIME: sa.DateTime(timezone=True),
    ColumnKind.TAGS: sa.Text(),
}


class OtherDatabase:
    """A database by a dialect of SQLAlchemy's; lists are JSON texts there."""

    types = _TYPES
    table_options: Mapping[str, str] = {}
    undoes_tables = casts_null = holds_nul = False
    path = None  # a file, if it has one, is its driver's to make
    commit = staticmethod(commit)

    def __init__(self, url: DatabaseUrl) -> None:
        self.engine = open_server(url)
        is_postgresql = self.engine.dialect.name == "postgresql"
        self.longest_name = self.engine.dialect.max_identifier_length if is_postgresql else None

    @contextmanager
    def connect(self, interruption: Interruption) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction; an interruption is heard between batches of rows."""
        interruption.check()
        with self.engine.connect() as connection:
            yield connection

    def load(self, connection: sa.Connection, table: sa.Table, rows: StagedRows, shared: Mapping[str, object]) -> int:
        """Load by the driver's `executemany`."""
        count = 0
        for batch in rows.read():
            for begin in range(0, batch.num_rows, _BATCH):
                part = batch.slice(begin, _BATCH)
                connection.execute(sa.insert(table), [{**row, **shared} for row in _read_rows(part)])
            count += batch.num_rows
        return count

    def differ(self, ours: sa.ColumnElement[Any], theirs: sa.ColumnElement[Any], _: ColumnKind) -> Any:
        """Compare as the database does; none of its modes needs more."""
        return ours.is_distinct_from(theirs)

    def find_referrers(self, connection: sa.Connection, table: sa.Table) -> Sequence[str]:
        """Inspect all schemas by SQLAlchemy."""
        inspector = sa.inspect(connection)
        home = (table.schema or inspector.default_schema_name or "").lower(), table.name.lower()
        found = []
        for schema in inspector.get_schema_names():
            for (_, name), keys in inspector.get_multi_foreign_keys(schema=schema).items():
                referred = [((key["referred_schema"] or schema).lower(), key["referred_table"].lower()) for key in keys]
                if home in referred and (schema.lower(), name.lower()) != home:
                    found.append(f"{schema}.{name}")
        return found

    def write_time(self, at: datetime) -> datetime:
        """Return the time in UTC."""
        return at.astimezone(UTC)

    def is_passing(self, error: Exception) -> bool:
        """Return whether it is a failure of the connection rather than of a statement."""
        return isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated


def _read_rows(batch: pa.RecordBatch) -> Iterator[dict[str, object]]:
    table = pa.Table.from_batches([batch])
    columns = [write_lists_as_json(each) if pa.types.is_list(each.type) else each for each in table.columns]
    values = zip(*(column.to_pylist() for column in columns), strict=True)
    return (dict(zip(table.column_names, row, strict=True)) for row in values)
