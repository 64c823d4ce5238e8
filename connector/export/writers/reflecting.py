"""What a table is like that is there, by SQLAlchemy's inspection, in the words of `fitting`."""

import warnings
from typing import Any

import sqlalchemy as sa

from connector.export.writers.dialect import ANY, COARSE, PADDED
from connector.export.writers.fitting import FoundColumn, FoundKey, FoundTable
from connector.export.writers.kinds import ColumnKind
from connector.export.writers.layout import TableName


def describe_table(connection: sa.Connection, name: TableName) -> FoundTable | None:
    """The table or view of that name; None where there is none."""
    inspector = sa.inspect(connection)
    if not inspector.has_table(name.table, schema=name.schema):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sa.exc.SAWarning)  # of types that it does not know: they are told as `other`
        columns = inspector.get_columns(name.table, schema=name.schema)
        indexes = inspector.get_indexes(name.table, schema=name.schema)
        keys = _list_keys(inspector, name, indexes)
        key = inspector.get_pk_constraint(name.table, schema=name.schema)["constrained_columns"]
    begins = [each["column_names"][0] for each in indexes if each["column_names"]]
    views = inspector.get_view_names(schema=name.schema)
    if connection.dialect.name == "postgresql":
        views += inspector.get_materialized_view_names(schema=name.schema)
    return FoundTable(
        [
            FoundColumn(
                each["name"],
                read_family(each["type"]),
                _show(each["type"], connection),
                not each["nullable"] and not _has_value(each, key),
            )
            for each in columns
        ],
        name.table in views or (_folds_tables(connection) and str.lower(name.table) in map(str.lower, views)),
        frozenset([*key[:1], *(each for each in begins if each is not None)]),
        keys,
    )


def _list_keys(
    inspector: sa.Inspector, name: TableName, indexes: list[sa.engine.interfaces.ReflectedIndex]
) -> list[FoundKey]:
    """The primary key, and what else is unique in every row: no index of some rows only, or of expressions."""
    primary = inspector.get_pk_constraint(name.table, schema=name.schema)
    keys = [FoundKey(" ".join(filter(None, ("primary key", primary["name"]))), tuple(primary["constrained_columns"]))]
    try:
        uniques = inspector.get_unique_constraints(name.table, schema=name.schema)
    except NotImplementedError:  # not every dialect tells of them; their indexes are told all the same
        uniques = []
    for unique in uniques:
        shown = " ".join(filter(None, ("unique constraint", unique["name"])))
        keys.append(FoundKey(shown, tuple(unique["column_names"])))
    known = {key.columns for key in keys}
    for index in indexes:
        columns = tuple(each for each in index["column_names"] if each is not None)
        is_of_some = any(option.endswith("_where") for option in index.get("dialect_options", {}))
        is_plain = len(columns) == len(index["column_names"]) and not is_of_some
        if index["unique"] and is_plain and columns not in known:
            keys.append(FoundKey(f"unique index {index['name']}", columns))
    return [key for key in keys if key.columns]


def read_family(kind: sa.types.TypeEngine[Any]) -> str:
    """Which kind of values a declared type is for: a ColumnKind, `any`, `padded`, `coarse time`, `json`, or `other`."""
    if isinstance(kind, sa.DateTime) and _count_digits(kind) < _DIGITS:
        return COARSE
    for types, family in _FAMILIES:
        if isinstance(kind, types):
            return family
    if isinstance(kind, sa.Numeric) and kind.scale == 0 and kind.precision is not None:
        return ColumnKind.WHOLE
    if isinstance(kind, sa.ARRAY) and isinstance(kind.item_type, sa.String):
        return ColumnKind.TAGS
    return "other"


_FAMILIES: tuple[tuple[tuple[type[Any], ...], str], ...] = (
    ((sa.types.NullType,), ANY),
    ((sa.Enum,), "other"),  # a String to SQLAlchemy, and takes only its own words
    ((sa.Boolean,), ColumnKind.FLAG),
    ((sa.Integer,), ColumnKind.WHOLE),
    ((sa.DateTime,), ColumnKind.TIME),
    ((sa.Date,), ColumnKind.DATE),
    ((sa.JSON,), "json"),
    ((sa.CHAR, sa.NCHAR), PADDED),  # a String to SQLAlchemy as well
    ((sa.String,), ColumnKind.TEXT),
)


_DIGITS = 6
"""Of a second's fraction: what our times have."""


def _count_digits(kind: sa.DateTime) -> int:
    """How many a column keeps: in MySQL none unless it says so, elsewhere enough unless it says so."""
    if hasattr(kind, "fsp"):
        return int(kind.fsp or 0)
    told = getattr(kind, "precision", None)
    return _DIGITS if told is None else int(told)


def _has_value(column: sa.engine.interfaces.ReflectedColumn, key: list[str]) -> bool:
    """Whether a row gets one without being given it; SQLite numbers the rows of an integer key."""
    makes_own = column.get("default") is not None or column.get("computed") or column.get("identity")
    is_counted = column.get("autoincrement") is True or (
        [column["name"]] == key and isinstance(column["type"], sa.Integer)
    )
    return bool(makes_own or is_counted)


def _show(kind: sa.types.TypeEngine[Any], connection: sa.Connection) -> str:
    try:
        return kind.compile(dialect=connection.dialect)
    except sa.exc.CompileError:
        return "of a type that SQLAlchemy does not know"


def _folds_tables(connection: sa.Connection) -> bool:
    if connection.dialect.name in ("mysql", "mariadb"):
        return bool(connection.scalar(sa.text("SELECT @@lower_case_table_names")))
    return connection.dialect.name == "sqlite"
