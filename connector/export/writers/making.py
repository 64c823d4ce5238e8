"""The tables of an export made where they are missing, and what they lack added to them."""

from hashlib import blake2b
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from connector.export.writers.fitting import check_fit, find_missing, is_indexed
from connector.export.writers.kinds import ID
from connector.export.writers.layout import Layout
from connector.export.writers.runs import name_of
from connector.export.writers.session import Session


class AddColumn(ExecutableDDLElement):
    """ALTER TABLE … ADD COLUMN, which SQLAlchemy has no word for."""

    inherit_cache = False

    def __init__(self, column: sa.Column[Any]) -> None:
        self.column = column


@compiles(AddColumn)
def _write_add_column(element: AddColumn, compiler: Any, **_: Any) -> str:
    table = compiler.preparer.format_table(element.column.table)
    return f"ALTER TABLE {table} ADD COLUMN {compiler.get_column_specification(element.column)}"


def make_tables(session: Session, layout: Layout, run_id: str, shown: str) -> None:
    """Make the schema, the tables, their missing columns and the index on the id, as far as they are not there.

    Raises ConfigurationError for a table that cannot take the rows: it may have been changed since it was looked at.
    """
    if layout.target.schema is not None:
        session.make_schema(layout.target.schema)
    for table in layout.kept:
        make_table(session, layout, table, run_id, shown)


def make_table(session: Session, layout: Layout, table: sa.Table, run_id: str, shown: str) -> None:
    """Make one of the layout's tables, or add what it lacks."""
    found = session.describe(name_of(table))
    if found is None:
        session.execute(CreateTable(table))
    else:
        check_fit(found, table, layout.dialect, session.quote, shown)
        for column in find_missing(found, table, layout.dialect):
            session.execute(AddColumn(column))
    wants_index = layout.dialect.wants_index and layout.mode.is_by_id and ID in table.c
    if wants_index and (found is None or not is_indexed(found, ID, layout.dialect)):
        session.execute(build_index(table, _name_index(table, run_id)))


def build_index(table: sa.Table, name: str) -> CreateIndex:
    """An index on the id."""
    return CreateIndex(sa.Index(name, table.c[ID], quote=True))


def _name_index(table: sa.Table, run_id: str) -> str:
    """A name that no other index has, though a database has it once for all tables: not those of a table whose name
    begins alike, and not that of an earlier table of this name, which took it along when it was renamed.

    Its 29 characters are few enough for every database.
    """
    return f"_connector_by_id_{blake2b(f'{table.name} {run_id}'.encode(), digest_size=6).hexdigest()}"
