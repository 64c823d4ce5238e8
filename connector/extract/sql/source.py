"""A query or a table of a database as a source, streamed: rows in, chunks of texts out."""

from collections.abc import Iterator, Mapping

import sqlalchemy as sa

from connector.databases import explain, parse_url, show_url
from connector.errors import ConfigurationError, SourceError
from connector.extract.chunk import Chunk, Source
from connector.extract.closing import Closing
from connector.extract.names import name_columns
from connector.extract.sql.chunk import CHUNK_ROWS, build_chunk
from connector.extract.sql.cursor import CursorBound, CursorWatch
from connector.extract.sql.engine import build_engine, let_go
from connector.extract.sql.statement import build_query, build_select, check_bound


class SqlSource(Closing):
    """A query's result, opened by `open_sql`; `watch` sees the values of its cursor column."""

    def __init__(
        self,
        url: sa.URL,
        engine: sa.Engine,
        statement: sa.TextClause | sa.Select[tuple[object]],
        watch: CursorWatch | None = None,
    ) -> None:
        self.name = show_url(url)
        self._url, self._engine, self._watch = url, engine, watch
        self._connection: sa.Connection | None = None
        try:
            self._connection = engine.connect()
            options: dict[str, object] = {"yield_per": CHUNK_ROWS}
            if engine.dialect.name == "postgresql":
                options["postgresql_readonly"] = True
            self._connection = self._connection.execution_options(**options)
            self._result = self._connection.execute(statement)
        except (sa.exc.SQLAlchemyError, UnicodeError) as error:
            self.close()
            raise SourceError(f"{self.name}: {explain(error, url)}") from None
        if not self._result.returns_rows:
            self.close()
            raise ConfigurationError(f"{self.name}: the query gives no rows; a source needs a SELECT")
        self.columns = name_columns([str(name) for name in self._result.keys()])  # noqa: SIM118 - no mapping

    def chunks(self) -> Iterator[Chunk]:
        """Give the rows, in the query's order, once; none for an empty result. Raises SourceError."""
        number = 1
        try:
            for rows in self._result.partitions(CHUNK_ROWS):
                values = list(zip(*rows, strict=True))
                if self._watch is not None:
                    self._watch.take(values[self.columns.index(self._watch.column)], number)
                yield build_chunk(self.name, self.columns, values, number)
                number += len(rows)
        except (sa.exc.SQLAlchemyError, UnicodeError) as error:
            raise SourceError(
                f"{self.name}: reading stopped after row {number - 1}: {explain(error, self._url)}"
            ) from None

    def close(self) -> None:
        """Let go of the connection, whose transaction is rolled back; may be called more than once."""
        if self._connection is not None:
            let_go(self._connection, getattr(self, "_result", None))
        self._engine.dispose()


def open_sql(
    url: str, *, query: str | None = None, table: str | None = None, parameters: Mapping[str, object] | None = None
) -> Source:
    """Open a query, or a table (`name` or `schema.name`), of which every value comes as text.

    NULL is missing, booleans are true and false, numbers plain, dates and times ISO, lists and objects JSON. Bytes
    that are not UTF-8 make their row malformed. `parameters` fill the `:names` of the query; another colon stays what
    it is. Nothing is ever written, and no error shows a password. Raises ConfigurationError for a URL without a driver
    or a query without rows, SourceError for a database that cannot be reached or does not take the query.
    """
    return open_bound(url, query=query, table=table, parameters=parameters)


def open_bound(
    url: str,
    *,
    query: str | None,
    table: str | None,
    parameters: Mapping[str, object] | None = None,
    bound: CursorBound | None = None,
    watch: CursorWatch | None = None,
) -> Source:
    """The same, read from a cursor's `bound` on; `watch` sees its values, and its column must be there."""
    if (query is None) == (table is None):
        raise ConfigurationError("a SQL source needs either a query or a table")
    parsed, given = parse_url(url), parameters or {}
    database = parsed.get_backend_name()
    if bound is not None:
        check_bound(bound, database)
    if database == "duckdb":
        from connector.extract.sql.duckdb import open_duckdb  # whoever reads no DuckDB need not wait for it

        return open_duckdb(parsed, query, table, given, bound, watch)
    statement = (
        build_select(table or "", bound, database) if query is None else build_query(query, given, bound, database)
    )
    return SqlSource(parsed, build_engine(parsed), statement, watch)
