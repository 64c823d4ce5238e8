"""A query or table of which only what is new is read: from a cursor's value on, and to its end or not.

Nothing is asked of the database for longer than it takes to learn the columns until the rows are wanted: the value is
the ledger's, which is opened later.
"""

from collections.abc import Iterator
from difflib import get_close_matches

from connector.databases import parse_url
from connector.errors import ConfigurationError, SourceError
from connector.extract.chunk import Chunk, Source
from connector.extract.closing import Closing
from connector.extract.sql.cursor import CursorBound, CursorKind, CursorValue, CursorWatch
from connector.extract.sql.source import open_bound
from connector.extract.sql.statement import check_bound


class IncrementalSource(Closing):
    """What `open_incremental` opens: `begin_at` a value, then read its chunks, as often as is wanted."""

    def __init__(self, url: str, query: str | None, table: str | None, column: str, kind: CursorKind) -> None:
        self.watch = CursorWatch(column, kind)
        self.is_read_to_end = False
        self._url, self._query, self._table = url, query, table
        self._source: Source | None = None
        self._value: CursorValue | None = None
        with self._open(None) as nothing:
            self.name, self.columns = nothing.name, nothing.columns
        self._check_column()

    def begin_at(self, value: CursorValue) -> None:
        """Read from this value on. Raises ConfigurationError for one that the database cannot compare."""
        check_bound(self._bind(value), parse_url(self._url).get_backend_name())
        self._value = value

    def chunks(self) -> Iterator[Chunk]:
        """Ask for the rows, and give them as any source does; what was seen of them before is forgotten.

        Raises SourceError.
        """
        self.close()
        self.is_read_to_end = False
        self.watch = CursorWatch(self.watch.column, self.watch.kind)
        self._source = self._open(self._value)
        if self._source.columns != self.columns:
            raise SourceError(f"{self.name}: its columns have changed since the run began; run again")
        yield from self._source.chunks()
        self.is_read_to_end = True

    def close(self) -> None:
        """Let go of the connection, if there is one; may be called more than once."""
        if self._source is not None:
            self._source.close()

    def _open(self, value: CursorValue | None) -> Source:
        watch = None if value is None else self.watch
        return open_bound(self._url, query=self._query, table=self._table, bound=self._bind(value), watch=watch)

    def _bind(self, value: CursorValue | None) -> CursorBound:
        return CursorBound(self.watch.column, self.watch.kind, value)

    def _check_column(self) -> None:
        column = self.watch.column
        if f"{column} (2)" in self.columns:  # so sources name a second one
            raise ConfigurationError(f"{self.name}: more than one column is named {column}: which is the cursor?")
        if column not in self.columns:
            meant = get_close_matches(column, self.columns, n=1)
            hint = f" (did you mean {meant[0]}?)" if meant else ""
            raise ConfigurationError(
                f"{self.name}: the cursor's column {column} is not in the result{hint}; select it, too. "
                f"Its columns: {', '.join(self.columns)}"
            )


def open_incremental(
    url: str, *, query: str | None = None, table: str | None = None, column: str, kind: CursorKind
) -> IncrementalSource:
    """Open a query with a `:cursor` in it, or a table, of which rows are read whose `column` is not below a value.

    Of a table, rows that have no value there are read each time. The database is asked with NULL for the cursor, to
    which no value compares, so that it tells its columns and gives no rows. Raises as `open_sql` does, and
    ConfigurationError if the column is not in the result.
    """
    return IncrementalSource(url, query, table, column, kind)
