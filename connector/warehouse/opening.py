"""The writer of a destination; only the package of its kind is imported."""

from typing import TYPE_CHECKING

import pyarrow as pa

from connector.warehouse.columns import select_columns
from connector.warehouse.destination import Destination, Format
from connector.warehouse.runs import Writer

if TYPE_CHECKING:
    from connector.warehouse.table_writer import Database


def open_writer(destination: Destination) -> Writer:
    """Return the writer of a destination; it touches nothing yet. Raises ConfigurationError for a missing driver."""
    schema = select_columns(destination.columns)
    return _open_table(destination, schema) if destination.is_database else _open_file(destination, schema)


def _open_file(destination: Destination, schema: pa.Schema) -> Writer:
    from connector.atomic_file import GROUP_READABLE, OWNER_ONLY
    from connector.warehouse.file_targets import DiskTarget, FileTarget, ObjectTarget
    from connector.warehouse.files import CsvFormat, FileFormat, FileWriter, JsonLinesFormat
    from connector.warehouse.parquet import ParquetFormat

    forms: dict[Format, type[FileFormat]] = {
        Format.PARQUET: ParquetFormat,
        Format.CSV: CsvFormat,
        Format.JSON_LINES: JsonLinesFormat,
    }
    target: FileTarget | None = None
    if destination.object_url is not None:
        target = ObjectTarget(destination.object_url)
    elif not destination.is_standard_output:
        target = DiskTarget(destination.path, GROUP_READABLE if destination.is_group_readable else OWNER_ONLY)
    return FileWriter(
        target,
        forms[destination.format],
        schema,
        is_packed=destination.is_packed,
        is_adopting=destination.is_adopting,
        is_guarded=destination.guard_formulas,
    )


def _open_table(destination: Destination, schema: pa.Schema) -> Writer:
    from connector.warehouse.dialect import TableName
    from connector.warehouse.table_writer import TableWriter

    return TableWriter(
        TableName(destination.table, destination.schema),
        schema,
        destination.mode,
        _open_database(destination),
        overwrite=destination.is_adopting,
        folder=None if destination.url is not None else destination.path.resolve().parent,
    )


def _open_database(destination: Destination) -> "Database":
    if destination.format is Format.DUCKDB:
        from connector.warehouse.duckdb import MEMORY, MEMORY_TO_MERGE, DuckdbDatabase

        memory = MEMORY_TO_MERGE if destination.mode.is_by_id else MEMORY
        return DuckdbDatabase(destination.path.resolve(), memory=memory)
    if destination.url is None:
        from connector.warehouse.sqlite import SqliteDatabase

        return SqliteDatabase(destination.path.resolve())
    if destination.format is Format.POSTGRESQL:
        from connector.warehouse.postgres import PostgresDatabase

        return PostgresDatabase(destination.url)
    if destination.format is Format.MYSQL:
        from connector.warehouse.mysql import MysqlDatabase

        return MysqlDatabase(destination.url)
    from connector.warehouse.other import OtherDatabase

    return OtherDatabase(destination.url)
