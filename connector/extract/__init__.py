"""Sources: from files and databases to chunks of text. Nothing here knows what a subscriber is."""

from connector.extract.chunk import Chunk, MalformedRow, Source
from connector.extract.csv_file import open_csv
from connector.extract.sql import open_sql
from connector.extract.sql_cursor import (
    CursorKind,
    CursorValue,
    find_kind,
    is_larger,
    look_back,
    parse_cursor,
    write_cursor,
)
from connector.extract.sql_engine import describe_place
from connector.extract.sql_incremental import IncrementalSource, open_incremental
from connector.extract.sql_statement import uses_cursor

__all__ = [
    "Chunk",
    "CursorKind",
    "CursorValue",
    "IncrementalSource",
    "MalformedRow",
    "Source",
    "describe_place",
    "find_kind",
    "is_larger",
    "look_back",
    "open_csv",
    "open_incremental",
    "open_sql",
    "parse_cursor",
    "uses_cursor",
    "write_cursor",
]
