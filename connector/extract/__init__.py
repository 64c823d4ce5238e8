"""Sources: from files and databases to chunks of text. Nothing here knows what a subscriber is."""

from connector.extract.chunk import Chunk, MalformedRow, Source
from connector.extract.csv_file import open_csv
from connector.extract.files import FORMATS, STANDARD_INPUT, open_file, open_files, refuse_lacking
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
    "FORMATS",
    "STANDARD_INPUT",
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
    "open_file",
    "open_files",
    "open_incremental",
    "open_sql",
    "parse_cursor",
    "refuse_lacking",
    "uses_cursor",
    "write_cursor",
]
