"""One writer for each kind of destination; they know Arrow tables and nothing of subscribers."""

from connector.export.writers.csv_rows import count_csv_rows, open_csv_rows, open_guarded_csv_rows
from connector.export.writers.duckdb_place import DuckdbPlace
from connector.export.writers.file_writer import CountRows, FileWriter, OpenRows
from connector.export.writers.generic_place import GenericPlace
from connector.export.writers.homes import FileHome, ServerHome
from connector.export.writers.json_rows import count_json_rows, open_json_rows
from connector.export.writers.layout import TableName
from connector.export.writers.mode import Mode
from connector.export.writers.mysql_place import MysqlPlace
from connector.export.writers.mysql_publishing import publish_to_mysql, settle_in_mysql
from connector.export.writers.parquet_rows import count_parquet_rows, open_parquet_rows
from connector.export.writers.postgres_place import PostgresPlace
from connector.export.writers.runs import Changes, Run
from connector.export.writers.sqlite_place import SqlitePlace
from connector.export.writers.table_writer import TableWriter, Way
from connector.export.writers.writer import Writer

__all__ = [
    "Changes",
    "CountRows",
    "DuckdbPlace",
    "FileHome",
    "FileWriter",
    "GenericPlace",
    "Mode",
    "MysqlPlace",
    "OpenRows",
    "PostgresPlace",
    "Run",
    "ServerHome",
    "SqlitePlace",
    "TableName",
    "TableWriter",
    "Way",
    "Writer",
    "count_csv_rows",
    "count_json_rows",
    "count_parquet_rows",
    "open_csv_rows",
    "open_guarded_csv_rows",
    "open_json_rows",
    "open_parquet_rows",
    "publish_to_mysql",
    "settle_in_mysql",
]
