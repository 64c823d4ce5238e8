"""A query or a table of any SQLAlchemy database as a source, streamed: rows in, chunks of texts out."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

import numpy as np
import pandas as pd
import pyarrow as pa
import sqlalchemy as sa

from connector.errors import ConfigurationError, SourceError
from connector.extract.chunk import Chunk, MalformedRow, Source
from connector.extract.names import name_columns
from connector.extract.sql_engine import build_engine, explain, parse_url, show_url
from connector.extract.sql_text import build_texts, show_record

_CHUNK_ROWS = 20_000  # as Python objects they weigh about ten times what they do as text
_TEXT = pd.StringDtype(na_value=np.nan)
_PARAMETER = re.compile(r"(?<![:\w\\]):(\w+)(?!:)")


class SqlSource:
    """A query's result, opened by `open_sql`."""

    def __init__(self, url: sa.URL, engine: sa.Engine, statement: sa.TextClause | sa.Select[tuple[object]]) -> None:
        self.name = show_url(url)
        self._url, self._engine = url, engine
        self._connection: sa.Connection | None = None
        try:
            self._connection = engine.connect()
            options: dict[str, object] = {"yield_per": _CHUNK_ROWS}
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
            for rows in self._result.partitions(_CHUNK_ROWS):
                yield self._build_chunk(rows, number)
                number += len(rows)
        except sa.exc.SQLAlchemyError as error:
            raise SourceError(
                f"{self.name}: reading stopped after row {number - 1}: {explain(error, self._url)}"
            ) from None

    def close(self) -> None:
        """Let go of the connection, whose transaction is rolled back; may be called more than once."""
        if self._connection is not None:
            self._connection.close()
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _build_chunk(self, rows: Sequence[sa.Row[tuple[object, ...]]], first: int) -> Chunk:
        texts, wrong = [], dict[int, str]()
        for column, values in zip(self.columns, zip(*rows, strict=True), strict=True):
            array, wrong_here = build_texts(values)
            texts.append(array)
            for place, why in wrong_here.items():
                wrong.setdefault(place, f"column {column} {why}")
        malformed = tuple(
            MalformedRow(first + place, None, show_record(self.columns, rows[place]), "encoding", wrong[place])
            for place in sorted(wrong)
        )
        is_good = np.ones(len(rows), dtype=bool)
        is_good[list(wrong)] = False
        table = pa.table(texts, names=list(self.columns))
        if wrong:
            table = table.filter(pa.array(is_good))
        frame = table.to_pandas(types_mapper=lambda _: _TEXT)
        return Chunk(frame, first + np.flatnonzero(is_good), malformed, self.name)


def open_sql(
    url: str, *, query: str | None = None, table: str | None = None, parameters: Mapping[str, object] | None = None
) -> Source:
    """Open a query, or a table (`name` or `schema.name`), of which every value comes as text.

    NULL is missing, booleans are true and false, numbers plain, dates and times ISO, lists and objects JSON. Bytes
    that are not UTF-8 make their row malformed. `parameters` fill the `:names` of the query; another colon stays what
    it is. Nothing is ever written, and no error shows a password. Raises ConfigurationError for a URL without a driver
    or a query without rows, SourceError for a database that cannot be reached or does not take the query.
    """
    if (query is None) == (table is None):
        raise ConfigurationError("a SQL source needs either a query or a table")
    parsed = parse_url(url)
    statement = _build_query(query, parameters or {}) if query is not None else _build_select(table or "")
    return SqlSource(parsed, build_engine(parsed), statement)


def _build_query(query: str, parameters: Mapping[str, object]) -> sa.TextClause:
    """Bind the names that have a value; a colon elsewhere, as in '… :draft' within quotes, is not a parameter."""
    escaped = _PARAMETER.sub(lambda found: found[0] if found[1] in parameters else f"\\{found[0]}", query)
    used = {name for name in parameters if re.search(rf"(?<![:\w\\]):{re.escape(name)}(?!\w|:)", query)}
    if missing := sorted(set(parameters) - used):
        raise ConfigurationError(f"the query does not use :{missing[0]}")
    return sa.text(escaped).bindparams(**parameters)


def _build_select(table: str) -> sa.Select[tuple[object]]:
    schema, _, name = table.rpartition(".")
    return sa.select(sa.text("*")).select_from(sa.table(name, schema=schema or None))
