"""Sources: from files and databases to chunks of text. Nothing here knows what a subscriber is."""

from typing import TYPE_CHECKING

from connector.faces import open_face

if TYPE_CHECKING:
    from connector.sources.cursor import (
        CursorKind,
        CursorValue,
        find_kind,
        is_larger,
        look_back,
        parse_cursor,
        write_cursor,
    )
    from connector.sources.files import open_file, open_files, open_repeatedly, refuse_lacking
    from connector.sources.inputs import STANDARD_INPUT, spool_pipe
    from connector.sources.sql import IncrementalSource, describe_place, open_incremental, open_sql
    from connector.sources.statement import uses_cursor

FORMATS = ("csv", "tsv", "excel", "parquet", "jsonl")
"""What `open_file` takes as a format, beside `auto`."""

__all__ = [
    "FORMATS",
    "STANDARD_INPUT",
    "CursorKind",
    "CursorValue",
    "IncrementalSource",
    "describe_place",
    "find_kind",
    "is_larger",
    "look_back",
    "open_file",
    "open_files",
    "open_incremental",
    "open_repeatedly",
    "open_sql",
    "parse_cursor",
    "refuse_lacking",
    "spool_pipe",
    "uses_cursor",
    "write_cursor",
]

__getattr__ = open_face(
    __name__,
    {
        "cursor": ("CursorKind", "CursorValue", "find_kind", "is_larger", "look_back", "parse_cursor", "write_cursor"),
        "files": ("open_file", "open_files", "open_repeatedly", "refuse_lacking"),
        "inputs": ("STANDARD_INPUT", "spool_pipe"),
        "sql": ("IncrementalSource", "describe_place", "open_incremental", "open_sql"),
        "statement": ("uses_cursor",),
    },
)
