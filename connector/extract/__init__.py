"""Sources: from files and databases to chunks of text. Nothing here knows what a subscriber is."""

from connector.extract.again import open_repeatedly
from connector.extract.chunk import Chunk, MalformedRow, Source
from connector.extract.csv import open_csv
from connector.extract.files import (
    FORMATS,
    STANDARD_INPUT,
    KeptInput,
    keep_input,
    open_file,
    open_files,
    open_kept,
    refuse_lacking,
)
from connector.extract.sql import (
    CursorKind,
    CursorValue,
    IncrementalSource,
    describe_place,
    find_kind,
    is_larger,
    look_back,
    open_incremental,
    open_sql,
    parse_cursor,
    uses_cursor,
    write_cursor,
)

__all__ = [
    "FORMATS",
    "STANDARD_INPUT",
    "Chunk",
    "CursorKind",
    "CursorValue",
    "IncrementalSource",
    "KeptInput",
    "MalformedRow",
    "Source",
    "describe_place",
    "find_kind",
    "is_larger",
    "keep_input",
    "look_back",
    "open_csv",
    "open_file",
    "open_files",
    "open_incremental",
    "open_kept",
    "open_repeatedly",
    "open_sql",
    "parse_cursor",
    "refuse_lacking",
    "uses_cursor",
    "write_cursor",
]
