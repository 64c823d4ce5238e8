"""Sources: from files and databases to chunks of text. Nothing here knows what a subscriber is."""

from connector.extract.chunk import Chunk, MalformedRow, Source
from connector.extract.csv_file import open_csv
from connector.extract.files import FORMATS, STANDARD_INPUT, open_file, open_files, refuse_lacking
from connector.extract.sql import open_sql

__all__ = [
    "FORMATS",
    "STANDARD_INPUT",
    "Chunk",
    "MalformedRow",
    "Source",
    "open_csv",
    "open_file",
    "open_files",
    "open_sql",
    "refuse_lacking",
]
