"""Chooses the writer, the file format and the database of a destination. These functions open no connection.

Only the libraries of the destination's kind are imported.
"""

from typing import TYPE_CHECKING, assert_never

from connector.warehouse.columns import select_columns
from connector.warehouse.destination import Destination, Format
from connector.warehouse.runs import Writer

if TYPE_CHECKING:
    from connector.warehouse.database import Database
    from connector.warehouse.files import FileFormat, FileTarget


def open_writer(destination: Destination) -> Writer:
    """Return the writer of a destination. Raises ConfigurationError for a missing driver."""
    schema = select_columns(destination.columns, has_run_columns=destination.has_run_columns)
    if destination.format is Format.DELTA:
        from connector.warehouse.delta import DeltaWriter

        return DeltaWriter(
            destination.object_url or str(destination.path),
            schema,
            destination.mode,
            destination.partition_by,
            overwrite=destination.overwrite,
            is_group_readable=destination.is_group_readable,
        )
    if not destination.is_database:
        from connector.warehouse.files import FileWriter

        return FileWriter(
            open_target(destination),
            find_format(destination),
            schema,
            destination.file_options,
            is_packed=destination.is_packed,
            overwrite=destination.overwrite,
        )
    from connector.warehouse.database import TableName
    from connector.warehouse.table_writer import TableWriter

    return TableWriter(
        TableName(destination.table, destination.schema),
        schema,
        destination.mode,
        open_database(destination),
        overwrite=destination.overwrite,
        folder=None if destination.url is not None else destination.path.resolve().parent,
    )


def open_target(destination: Destination) -> "FileTarget":
    """Return the target of a file: a file on disk, an object in a store, or standard output."""
    from connector.atomic_file import GROUP_READABLE, OWNER_ONLY
    from connector.warehouse.files import DiskTarget, ObjectTarget, StandardOutput

    if destination.object_url is not None:
        return ObjectTarget(destination.object_url)
    if destination.is_standard_output:
        return StandardOutput()
    return DiskTarget(destination.path, GROUP_READABLE if destination.is_group_readable else OWNER_ONLY)


def find_format(destination: Destination) -> "type[FileFormat]":
    """Return the format of a file."""
    from connector.warehouse.file_formats import CsvFormat, ExcelFormat, JsonLinesFormat, ParquetFormat

    match destination.format:
        case Format.PARQUET:
            return ParquetFormat
        case Format.CSV:
            return CsvFormat
        case Format.JSON_LINES:
            return JsonLinesFormat
        case Format.EXCEL:
            return ExcelFormat
        case Format.DUCKDB | Format.SQLITE | Format.POSTGRESQL | Format.MYSQL | Format.SQL | Format.DELTA:
            raise ValueError(f"{destination} is not a file")
    assert_never(destination.format)


def open_database(destination: Destination) -> "Database":
    """Return the database of a table. Raises ConfigurationError for a missing driver."""
    match destination.format:
        case Format.DUCKDB:
            from connector.warehouse.duckdb import MEMORY_LIMIT, MERGE_MEMORY_LIMIT, DuckdbDatabase

            memory = MERGE_MEMORY_LIMIT if destination.mode.merges_by_id else MEMORY_LIMIT
            return DuckdbDatabase(destination.path.resolve(), memory=memory)
        case Format.SQLITE:
            from connector.warehouse.sqlite import SqliteDatabase

            return SqliteDatabase(destination.path.resolve())
        case Format.POSTGRESQL | Format.MYSQL | Format.SQL:
            from connector.warehouse.servers import MysqlDatabase, PostgresDatabase, SqlalchemyDatabase

            if destination.url is None:
                raise ValueError(f"{destination} has no URL")
            if destination.format is Format.POSTGRESQL:
                return PostgresDatabase(destination.url)
            is_mysql = destination.format is Format.MYSQL
            return MysqlDatabase(destination.url) if is_mysql else SqlalchemyDatabase(destination.url)
        case Format.PARQUET | Format.CSV | Format.JSON_LINES | Format.EXCEL | Format.DELTA:
            raise ValueError(f"no class opens a database of the format {destination.format}")
    assert_never(destination.format)
