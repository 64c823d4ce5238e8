"""The writer of a destination that is a table, by the kind of its database; only that kind's package is imported."""

import pyarrow as pa

from connector.export.destination import Destination, Format
from connector.warehouse.table_writer import TableBackend, TableName, TableWriter
from connector.warehouse.tables import Database


def open_table_writer(destination: Destination, schema: pa.Schema) -> TableWriter:
    """It touches nothing yet. Raises ConfigurationError for a driver that is missing."""
    name = TableName(destination.table, destination.schema)
    mode, overwrite = destination.mode, destination.is_adopting
    folder = None if destination.url is not None else destination.path.resolve().parent
    if destination.format is Format.DUCKDB:
        from connector.warehouse.duckdb import DuckdbTables

        backend: TableBackend = DuckdbTables(destination.path.resolve(), name, schema, mode, overwrite=overwrite)
    else:
        from connector.warehouse.sql_tables import SqlTables

        backend = SqlTables(name, schema, mode, _open_database(destination), overwrite=overwrite)
    return TableWriter(backend, schema, mode, folder)


def _open_database(destination: Destination) -> Database:
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
