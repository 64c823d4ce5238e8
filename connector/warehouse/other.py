"""Any other database that SQLAlchemy reaches: `replace` and `append`, by plain inserts in one transaction."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from connector.databases import DatabaseUrl
from connector.warehouse.columns import write_lists_as_json
from connector.warehouse.dialect import ColumnKind, Dialect, TableName
from connector.warehouse.servers import ServerDatabase, escape_names, open_server
from connector.warehouse.stage import StagedRows
from connector.warehouse.statements import read_kinds

_BATCH = 1000
"""Rows of one call to the driver."""

_TYPES: Mapping[ColumnKind, sa.types.TypeEngine[Any]] = {
    ColumnKind.TEXT: sa.Text(),
    ColumnKind.NAME: sa.String(255),
    ColumnKind.WHOLE: sa.BigInteger(),
    ColumnKind.FLAG: sa.Boolean(),
    ColumnKind.DATE: sa.Date(),
    ColumnKind.TIME: sa.DateTime(timezone=True),
    ColumnKind.TAGS: sa.Text(),
}


class OtherDatabase(ServerDatabase):
    """A database by a dialect of SQLAlchemy's; lists are JSON texts there."""

    def __init__(self, url: DatabaseUrl) -> None:
        super().__init__(open_server(url))
        self.dialect = _build_dialect(self.engine.dialect)

    def load(self, table: str, rows: StagedRows, shared: Mapping[str, object]) -> int:
        """Load by the driver's `executemany`."""
        kinds = read_kinds(rows.schema) | {name: _find_kind(value) for name, value in shared.items()}
        marks = ", ".join(f":{name}" for name in kinds)
        text = f"INSERT INTO {table} ({self.dialect.write_list(list(kinds))}) VALUES ({marks})"  # noqa: S608 - names, quoted
        insert = sa.text(escape_names(text)).bindparams(
            *(sa.bindparam(name, type_=_TYPES[kind]) for name, kind in kinds.items())
        )
        count = 0
        for batch in rows.read():
            for begin in range(0, batch.num_rows, _BATCH):
                part = batch.slice(begin, _BATCH)
                self.connection.execute(insert, [{**row, **shared} for row in _read_rows(part)])
            count += batch.num_rows
        return count

    def find_referrers(self, name: TableName) -> Sequence[str]:
        """Inspect all schemas by SQLAlchemy."""
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
        """Return the time in UTC."""
        return at.astimezone(UTC)

    def is_passing(self, error: Exception) -> bool:
        """Return whether it is a failure of the connection rather than of a statement."""
        return isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated


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


def _find_kind(value: object) -> ColumnKind:
    return ColumnKind.TIME if isinstance(value, datetime) else ColumnKind.NAME


def _read_rows(batch: pa.RecordBatch) -> Iterator[dict[str, object]]:
    table = pa.Table.from_batches([batch])
    columns = [write_lists_as_json(each) if pa.types.is_list(each.type) else each for each in table.columns]
    values = zip(*(column.to_pylist() for column in columns), strict=True)
    return (dict(zip(table.column_names, row, strict=True)) for row in values)
