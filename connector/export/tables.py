"""The writer of a destination that is a table, by the kind of its database; only that kind's package is imported."""

from collections.abc import Callable
from pathlib import Path

from connector.databases import DatabaseUrl
from connector.export.columns import select_columns
from connector.export.destination import Destination, Format
from connector.export.writers.generic_place import GenericPlace
from connector.export.writers.homes import FileHome, ServerHome
from connector.export.writers.layout import TableName
from connector.export.writers.mysql_place import MysqlPlace
from connector.export.writers.mysql_publishing import publish_to_mysql, settle_in_mysql
from connector.export.writers.postgres_place import PostgresPlace
from connector.export.writers.session import Place
from connector.export.writers.sqlite_place import SqlitePlace
from connector.export.writers.table_writer import ONE_TRANSACTION, TableWriter, Way

_SERVERS: dict[Format, Callable[[DatabaseUrl], Place]] = {
    Format.POSTGRESQL: PostgresPlace,
    Format.MYSQL: MysqlPlace,
    Format.SQL: GenericPlace,
}


def open_table_writer(destination: Destination) -> TableWriter:
    """It touches nothing yet. Raises ConfigurationError for a driver that is missing."""
    if destination.url is None:
        home: FileHome | ServerHome = FileHome(destination.path, _choose_file(destination.format))
    else:
        home = ServerHome(_SERVERS[destination.format](destination.url))
    name = TableName(destination.table, destination.schema)
    way = _choose_way(destination.format)
    return TableWriter(name, home, select_columns(destination.columns), destination.mode, destination.tags_table, way)


def _choose_way(form: Format) -> Way:
    if form is Format.MYSQL:
        return Way(publish_to_mysql, settle_in_mysql)
    if form is Format.DUCKDB:
        from connector.export.writers.duckdb_publishing import publish_to_duckdb  # as the place

        return Way(publish_to_duckdb)
    return ONE_TRANSACTION


def _choose_file(form: Format) -> Callable[[Path], Place]:
    if form is Format.SQLITE:
        return SqlitePlace
    from connector.export.writers.duckdb_place import DuckdbPlace  # whoever writes to no DuckDB need not wait for it

    return DuckdbPlace
