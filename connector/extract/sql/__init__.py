"""Databases: a query or a table streamed, all of it (`source`) or what is new in it (`incremental`); never written to.

`engine` opens a database by its URL, `duckdb` one that SQLAlchemy does not read well, `statement` makes what is asked
of it (`names` finds its `:names`), `cursor` knows how new a row is, `chunk` makes texts of what it answers.
"""

from connector.extract.sql.cursor import (
    CursorKind,
    CursorValue,
    find_kind,
    is_larger,
    look_back,
    parse_cursor,
    write_cursor,
)
from connector.extract.sql.engine import describe_place
from connector.extract.sql.incremental import IncrementalSource, open_incremental
from connector.extract.sql.source import open_sql
from connector.extract.sql.statement import uses_cursor

__all__ = [
    "CursorKind",
    "CursorValue",
    "IncrementalSource",
    "describe_place",
    "find_kind",
    "is_larger",
    "look_back",
    "open_incremental",
    "open_sql",
    "parse_cursor",
    "uses_cursor",
    "write_cursor",
]
