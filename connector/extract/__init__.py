"""Sources: from files and databases to chunks of text. Nothing here knows what a subscriber is."""

from connector.extract.chunk import Chunk, MalformedRow, Source
from connector.extract.csv_file import open_csv
from connector.extract.files import find_lacking, open_file, open_files
from connector.extract.sql import open_sql

__all__ = ["Chunk", "MalformedRow", "Source", "find_lacking", "open_csv", "open_file", "open_files", "open_sql"]
