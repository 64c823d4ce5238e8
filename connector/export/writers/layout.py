"""The tables that an export touches, as SQLAlchemy knows tables: the target, its stage, its tags, and the runs.

Pure: it says what they should be, and not what is there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from connector.export.names import OF_RUN, RUN_ID
from connector.export.writers.dialect import Dialect
from connector.export.writers.kinds import (
    DELETED_AT,
    ID,
    IS_CURRENT,
    VALID_FROM,
    VALID_TO,
    ColumnKind,
    read_kind,
)
from connector.export.writers.mode import Mode

STAGE, TAG_STAGE = "_connector_stage", "_connector_tag_stage"
RUNS, TURNS = "_connector_runs", "_connector_turns"

_OF_MODE: Mapping[Mode, Mapping[str, ColumnKind]] = {
    Mode.UPSERT: {DELETED_AT: ColumnKind.TIME},
    Mode.HISTORY: {VALID_FROM: ColumnKind.TIME, VALID_TO: ColumnKind.TIME, IS_CURRENT: ColumnKind.FLAG},
}
TAG_COLUMNS: Mapping[str, ColumnKind] = {
    ID: ColumnKind.WHOLE,
    "position": ColumnKind.WHOLE,
    "tag": ColumnKind.TEXT,
    RUN_ID: ColumnKind.TEXT,
}
"""One row for each tag of a row; `position` counts from 1."""

RUN_COLUMNS: Mapping[str, ColumnKind] = {
    "run_id": ColumnKind.TEXT,
    "job": ColumnKind.TEXT,
    "table_name": ColumnKind.TEXT,
    "tags_table": ColumnKind.TEXT,
    "mode": ColumnKind.TEXT,
    "verdict": ColumnKind.TEXT,
    "reason": ColumnKind.TEXT,
    "list_order": ColumnKind.TEXT,
    "sweeps": ColumnKind.WHOLE,
    "pages": ColumnKind.WHOLE,
    "distinct_ids": ColumnKind.WHOLE,
    "total_first": ColumnKind.WHOLE,
    "total_last": ColumnKind.WHOLE,
    "appeared": ColumnKind.WHOLE,
    "vanished": ColumnKind.WHOLE,
    "filters": ColumnKind.TEXT,
    "rows_read": ColumnKind.WHOLE,
    "rows_written": ColumnKind.WHOLE,
    "rows_inserted": ColumnKind.WHOLE,
    "rows_updated": ColumnKind.WHOLE,
    "rows_closed": ColumnKind.WHOLE,
    "started_at": ColumnKind.TIME,
    "finished_at": ColumnKind.TIME,
}


@dataclass(frozen=True, slots=True)
class TableName:
    """A table, and the schema that it is in where the database has any and one was given."""

    table: str
    schema: str | None = None

    def __str__(self) -> str:
        return ".".join(filter(None, (self.schema, self.table)))


@dataclass(frozen=True, slots=True)
class Layout:
    """The tables of one export; `kinds` are those of the columns of its rows, by name. The stages lack the run's own.

    `tags` and `tag_stage` are None where no table of tags was asked for.
    """

    mode: Mode
    dialect: Dialect
    kinds: Mapping[str, ColumnKind]
    target: sa.Table
    stage: sa.Table
    runs: sa.Table
    tags: sa.Table | None = None
    tag_stage: sa.Table | None = None

    @property
    def names(self) -> list[str]:
        """The columns of its rows."""
        return list(self.kinds)

    @property
    def compared(self) -> list[str]:
        """The columns that make a version of a row: all but the run's own."""
        return [name for name in self.kinds if name not in (ID, *OF_RUN)]

    @property
    def filled(self) -> list[sa.Table]:
        """The tables that take rows of the list."""
        return [self.target] if self.tags is None else [self.target, self.tags]

    @property
    def turns(self) -> list[str]:
        """The names by which exports that touch the same tables take turns, in the same order for all."""
        names = (str(table.name) for table in self.filled)
        return sorted(name.lower() if self.dialect.folds_case else name for name in names)

    @property
    def kept(self) -> list[sa.Table]:
        """The tables that stay."""
        return [*self.filled, self.runs]


def build_layout(
    schema: pa.Schema, name: TableName, mode: Mode, dialect: Dialect, tags_table: str | None = None
) -> Layout:
    """The tables of an export of `schema` to `name`."""
    kinds = {field.name: read_kind(field.type) for field in schema}
    has_tags = tags_table is not None
    return Layout(
        mode,
        dialect,
        kinds,
        build_table(name, {**kinds, **_OF_MODE.get(mode, {})}, dialect),
        _build_stage(STAGE, kinds, dialect),
        build_table(TableName(RUNS, name.schema), RUN_COLUMNS, dialect),
        build_table(TableName(tags_table or "", name.schema), TAG_COLUMNS, dialect) if has_tags else None,
        _build_stage(TAG_STAGE, TAG_COLUMNS, dialect) if has_tags else None,
    )


def build_table(name: TableName, kinds: Mapping[str, ColumnKind], dialect: Dialect) -> sa.Table:
    """A table that stays."""
    return _build(name, kinds, dialect)


def _build_stage(name: str, kinds: Mapping[str, ColumnKind], dialect: Dialect) -> sa.Table:
    """A table that ends with the connection, at the latest; in PostgreSQL with the transaction, since behind a pooler
    the connection goes on. What has one value in all rows is not staged, but put in by the statements that read it."""
    staged = {column: kind for column, kind in kinds.items() if column not in OF_RUN}
    return _build(TableName(name), staged, dialect, prefixes=["TEMPORARY"], postgresql_on_commit="DROP")


def _build(name: TableName, kinds: Mapping[str, ColumnKind], dialect: Dialect, **more: Any) -> sa.Table:
    columns: list[sa.Column[Any]] = [
        sa.Column(column, dialect.types[kind], quote=True, info={"kind": kind}, autoincrement=False)
        for column, kind in kinds.items()
    ]
    options: dict[str, Any] = {"quote": True, "quote_schema": True, **dialect.table_options, **more}
    return sa.Table(name.table, sa.MetaData(), *columns, schema=name.schema, **options)
