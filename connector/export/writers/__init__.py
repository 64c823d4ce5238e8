"""One writer for each kind of destination; they know Arrow tables and nothing of subscribers."""

from connector.export.writers.csv_rows import open_csv_rows
from connector.export.writers.duckdb_table import DUCKDB
from connector.export.writers.file_writer import FileWriter, OpenRows
from connector.export.writers.json_rows import open_json_rows
from connector.export.writers.parquet_rows import open_parquet_rows
from connector.export.writers.sqlite_table import SQLITE
from connector.export.writers.table_writer import TableName, TableWriter
from connector.export.writers.writer import Writer

__all__ = [
    "DUCKDB",
    "SQLITE",
    "FileWriter",
    "OpenRows",
    "TableName",
    "TableWriter",
    "Writer",
    "open_csv_rows",
    "open_json_rows",
    "open_parquet_rows",
]
