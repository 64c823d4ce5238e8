"""One writer for each kind of destination; they know Arrow tables and nothing of subscribers.

Here are those of files. What concerns tables is imported where it is used: nobody waits for SQLAlchemy, or for a
database's package, who writes a file.
"""

from connector.export.writers.csv_rows import count_csv_rows, open_csv_rows, open_guarded_csv_rows
from connector.export.writers.file_writer import CountRows, FileWriter, OpenRows
from connector.export.writers.json_rows import count_json_rows, open_json_rows
from connector.export.writers.mode import Mode
from connector.export.writers.parquet_rows import count_parquet_rows, open_parquet_rows
from connector.export.writers.run import Changes, Run
from connector.export.writers.writer import Writer

__all__ = [
    "Changes",
    "CountRows",
    "FileWriter",
    "Mode",
    "OpenRows",
    "Run",
    "Writer",
    "count_csv_rows",
    "count_json_rows",
    "count_parquet_rows",
    "open_csv_rows",
    "open_guarded_csv_rows",
    "open_json_rows",
    "open_parquet_rows",
]
