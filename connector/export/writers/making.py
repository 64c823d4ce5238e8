"""The tables of an export made where they are missing, and what they lack added to them."""

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


def make_tables(session: Session, layout: Layout, shown: str) -> None:
    """Make the schema, the tables, their missing columns and the index on the id, as far as they are not there.

    Raises ConfigurationError for a table that cannot take the rows: it may have been changed since it was looked at.
    """
    if layout.target.schema is not None:
        session.make_schema(layout.target.schema)
    for table in layout.kept:
        make_table(session, layout, table, shown)


def make_table(session: Session, layout: Layout, table: sa.Table, shown: str) -> None:
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
        session.execute(build_index(table))


def build_index(table: sa.Table) -> CreateIndex:
    """An index on the id; its name is free unless somebody else used it."""
    prefix = "_connector_stage" if "TEMPORARY" in table._prefixes else f"{table.name[:40]}"
    return CreateIndex(sa.Index(f"{prefix}_by_id", table.c[ID], quote=True))
