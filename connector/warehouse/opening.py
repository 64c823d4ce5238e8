"""The writer of a destination; only the package of its kind is imported."""

from typing import TYPE_CHECKING

import pyarrow as pa

from connector.warehouse.columns import select_columns
from connector.warehouse.destination import Destination, Format
from connector.warehouse.runs import Parts, PartWriter, Writer

if TYPE_CHECKING:
    from connector.warehouse.tables import Database, TableParts


def open_writer(destination: Destination) -> Writer:
    """Return the writer of a destination; it touches nothing yet. Raises ConfigurationError for a missing driver."""
    return open_parted_writer(destination)[0]


def open_parted_writer(destination: Destination) -> tuple[Writer, Parts | None]:
    """Return the writer of a destination, and of one that `is_in_parts` what workers stage of it. Raises as
    `open_writer`."""
    schema = select_columns(destination.columns)
    if destination.is_database:
        return _open_table(destination, schema)
    writer = _open_file(destination, schema)
    return writer, writer if isinstance(writer, Parts) and destination.is_in_parts else None


def open_part_writer(destination: Destination, name: str) -> PartWriter:
    """Return what stages one part of a destination that `is_in_parts`, under a name that begins with the tag of its
    Parts."""
    schema = select_columns(destination.columns)
    if destination.is_database:
        from connector.warehouse.table_parts import TablePartWriter

        database = _open_database(destination)
        return TablePartWriter(_build_parts(destination, schema, database), schema, database, name)
    from connector.warehouse.dataset_places import FolderPart, PartPlace, StorePart
    from connector.warehouse.datasets import DatasetPartWriter

    url, path = destination.object_url, destination.path
    place: PartPlace = StorePart(url) if url else FolderPart(path, is_shared=destination.is_group_readable)
    return DatasetPartWriter(place, schema, destination.partition_by, name)


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
    if destination.is_folder:
        from connector.warehouse.dataset_places import DatasetPlace, FolderPlace, StorePlace
        from connector.warehouse.datasets import DatasetWriter

        url, path = destination.object_url, destination.path
        place: DatasetPlace = StorePlace(url) if url else FolderPlace(path, is_shared=destination.is_group_readable)
        return DatasetWriter(place, schema, destination.partition_by)
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


def _open_table(destination: Destination, schema: pa.Schema) -> tuple[Writer, Parts | None]:
    from connector.warehouse.table_writer import TableName, TableWriter

    name = TableName(destination.table, destination.schema)
    mode, overwrite = destination.mode, destination.is_adopting
    folder = None if destination.url is not None else destination.path.resolve().parent
    if destination.format is Format.DUCKDB:
        from connector.warehouse.duckdb import DuckdbTables

        duck = DuckdbTables(destination.path.resolve(), name, schema, mode, overwrite=overwrite)
        return TableWriter(duck, schema, mode, folder), None
    from connector.warehouse.sql_tables import SqlTables

    database = _open_database(destination)
    parts = _build_parts(destination, schema, database) if destination.format is Format.POSTGRESQL else None
    tables = SqlTables(name, schema, mode, database, overwrite=overwrite, parts=parts)
    return TableWriter(tables, schema, mode, folder), parts if destination.is_in_parts else None


def _build_parts(destination: Destination, schema: pa.Schema, database: "Database") -> "TableParts":
    from connector.warehouse.tables import TableParts

    names = destination.table, destination.schema
    return TableParts(*names, schema, database.types, is_wanted=destination.is_in_parts)


def _open_database(destination: Destination) -> "Database":
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
