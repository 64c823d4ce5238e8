"""Functions that read the table of an export, one for each format."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import orjson
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import python_calamine
import sqlalchemy as sa

from connector.databases import build_engine
from connector.warehouse.columns import SCHEMA
from connector.warehouse.destination import Destination, Format

ReadExport = Callable[[Path], pa.Table]
COLUMN_NAMES = ", ".join(SCHEMA.names)


def read_parquet(path: Path) -> pa.Table:
    return pq.ParquetFile(path).read()


def read_csv(path: Path) -> pa.Table:
    """Read a CSV file. An unquoted empty cell is null, and a quoted empty cell is an empty text. Tags are a JSON
    array."""
    column_types = {field.name: pa.string() if pa.types.is_list(field.type) else field.type for field in SCHEMA}
    table = arrow_csv.read_csv(
        path,
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            column_types=column_types, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
        ),
    )
    tags = [None if text is None else orjson.loads(text) for text in table["tags"].to_pylist()]
    tags_index = table.column_names.index("tags")
    return table.set_column(tags_index, SCHEMA.field("tags"), pa.array(tags, SCHEMA.field("tags").type)).cast(SCHEMA)


def read_json_lines(path: Path) -> pa.Table:
    rows = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    return pa.Table.from_pylist([_parse_times(row) for row in rows], schema=SCHEMA)


def read_excel(path: Path) -> pa.Table:
    """Read the first sheet of an Excel file. An empty cell is null. Tags are `a|b` or a JSON array."""
    header, *lines = python_calamine.load_workbook(path).get_sheet_by_index(0).to_python()
    assert header == SCHEMA.names
    rows = [dict(zip(SCHEMA.names, line, strict=True)) for line in lines]
    for row in rows:
        tags = str(row["tags"])
        row["tags"] = orjson.loads(tags) if tags.startswith("[") else tags.split("|") if tags else None
        row["id"], row["base_id"] = (int(row[name]) if row[name] != "" else None for name in ("id", "base_id"))
        row["_exported_at"] = datetime.fromisoformat(str(row["_exported_at"])).replace(tzinfo=UTC)
    return pa.Table.from_pylist(
        [{name: row[name] if row[name] != "" else None for name in row} for row in rows], SCHEMA
    )


def convert_for_excel(table: pa.Table) -> pa.Table:
    """Return the table as an Excel file stores it: empty texts and lists are null, and times have milliseconds."""
    rows = table.to_pylist()
    for row in rows:
        row |= {name: None for name, value in row.items() if value in ("", [])}
        exported_at = row["_exported_at"]
        row["_exported_at"] = exported_at.replace(microsecond=exported_at.microsecond // 1000 * 1000)
    return pa.Table.from_pylist(rows, schema=table.schema)


def read_duckdb(path: Path, table: str = "subscribers") -> pa.Table:
    quoted_name = '"' + table.replace('"', '""') + '"'
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.execute("set timezone = 'UTC'")
        return connection.sql(f"select {COLUMN_NAMES} from {quoted_name} order by rowid").to_arrow_table().cast(SCHEMA)


def read_sqlite(path: Path, table: str = "subscribers") -> pa.Table:
    """Read a table of SQLite: flags are 0 and 1, tags are a JSON array, and dates and times are ISO 8601."""
    quoted_name = '"' + table.replace('"', '""') + '"'
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        rows = [dict(row) for row in connection.execute(f"select {COLUMN_NAMES} from {quoted_name} order by rowid")]
    for row in rows:
        row["is_active"] = None if row["is_active"] is None else {0: False, 1: True}[row["is_active"]]
        row["tags"] = None if row["tags"] is None else orjson.loads(row["tags"])
    return pa.Table.from_pylist([_parse_times(row) for row in rows], schema=SCHEMA)


def _parse_times(row: dict[str, object]) -> dict[str, object]:
    assert list(row) == SCHEMA.names
    time_values: dict[str, object] = {"_exported_at": datetime.fromisoformat(str(row["_exported_at"]))}
    if row["birthday"] is not None:
        time_values["birthday"] = date.fromisoformat(str(row["birthday"]))
    return row | time_values


def read_server_table(destination: Destination) -> pa.Table:
    """Read a table on a server. A database without a type for arrays stores the tags as JSON."""
    assert destination.url is not None
    table = sa.table(destination.table, schema=destination.schema)
    engine = build_engine(destination.url)
    with engine.connect() as connection:
        rows = [dict(row) for row in connection.execute(sa.select(sa.text("*")).select_from(table)).mappings()]
    engine.dispose()
    for row in rows:
        for column in [name for name in row if name not in SCHEMA.names]:
            del row[column]
        row["is_active"] = None if row["is_active"] is None else bool(row["is_active"])
        row["tags"] = orjson.loads(row["tags"]) if isinstance(row["tags"], str) else row["tags"]
        exported_at = row["_exported_at"]
        row["_exported_at"] = exported_at if exported_at.tzinfo else exported_at.replace(tzinfo=UTC)
    return pa.Table.from_pylist(rows, schema=SCHEMA)


READ_EXPORT_BY_FORMAT: dict[Format, ReadExport] = {
    Format.PARQUET: read_parquet,
    Format.CSV: read_csv,
    Format.JSON_LINES: read_json_lines,
    Format.EXCEL: read_excel,
    Format.DUCKDB: read_duckdb,
    Format.SQLITE: read_sqlite,
}

TARGET_NAME_BY_FORMAT = {
    Format.PARQUET: "out.parquet",
    Format.CSV: "out.csv",
    Format.JSON_LINES: "out.jsonl",
    Format.EXCEL: "out.xlsx",
    Format.DUCKDB: "duckdb:///{}/w.duckdb",
    Format.SQLITE: "sqlite:///{}/w.db",
}


def build_target(folder: Path, file_format: Format) -> str:
    """Return the argument of `parse_destination` for an export of this format in `folder`."""
    name = TARGET_NAME_BY_FORMAT[file_format]
    return name.format(folder) if "{}" in name else str(folder / name)


def read_exported_table(destination: Destination) -> pa.Table:
    """Return the exported rows as a table."""
    if destination.url is not None:
        return read_server_table(destination)
    if destination.is_database:
        read_table = read_duckdb if destination.format is Format.DUCKDB else read_sqlite
        return read_table(destination.path, destination.table)
    return READ_EXPORT_BY_FORMAT[destination.format](destination.path)
