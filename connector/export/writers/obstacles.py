"""What about the tables that are there forbids a mode, however well their columns fit. Pure; it says what helps."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from connector.errors import ConfigurationError
from connector.export.names import OF_RUN
from connector.export.writers.fitting import FoundKey, FoundTable
from connector.export.writers.kinds import VALID_FROM, VALID_TO
from connector.export.writers.layout import Layout, TableName
from connector.export.writers.mode import Mode
from connector.export.writers.runs import name_of

_VARYING = (*OF_RUN, VALID_FROM, VALID_TO)
"""Columns that another run gives another value; without one of them a key allows a subscriber once."""

_SHOWN = 3
"""Names of one message: who owns them knows the rest."""

Found = Mapping[TableName, FoundTable]
"""The tables of a layout that are there."""


def check_names(layout: Layout, shown: str) -> None:
    """Raise ConfigurationError for a name that is too long: some databases cut it off, and do not find it again."""
    tags = layout.tags.name if layout.tags is not None else None
    dialect, unit = layout.dialect, "bytes" if layout.dialect.counts_bytes else "characters"
    for what, name in (("table", layout.target.name), ("table of tags", tags), ("schema", layout.target.schema)):
        if name is not None and not dialect.can_name(name):
            raise ConfigurationError(
                f"The name of the {what}, {name!r}, is too long for {shown}, which takes {dialect.longest_name} "
                f"{unit}: give it a shorter one"
            )


def list_shrinking(layout: Layout) -> list[sa.Table]:
    """The tables that lose rows in this mode, if only for a moment."""
    shrinks = layout.mode is Mode.REPLACE or (layout.mode is Mode.UPSERT and layout.dialect.replaces_to_update)
    tables = [layout.target] if shrinks else []
    if layout.tags is not None and layout.mode.forgets_tags:
        tables.append(layout.tags)
    return tables


def check_referrers(table: sa.Table, layout: Layout, referrers: Sequence[str], shown: str) -> None:
    """Raise ConfigurationError if other tables refer to one that loses rows: it would take theirs with it."""
    if not referrers:
        return
    names = ", ".join(referrers[:_SHOWN]) + (" and others" if len(referrers) > _SHOWN else "")
    can_upsert = table is layout.target and layout.mode is Mode.REPLACE and not layout.dialect.replaces_to_update
    advice = "--mode upsert keeps the rows" if can_upsert else "drop the foreign keys, or export to another table"
    raise ConfigurationError(
        f"Foreign keys of {names} refer to the table {name_of(table)} in {shown}, and {layout.mode} deletes rows of "
        f"it, which would delete, empty or break theirs: {advice}"
    )


def check_keys(found: Found, layout: Layout, shown: str) -> None:
    """Raise ConfigurationError for a key that allows a subscriber only one row, in a mode that keeps several."""
    if layout.mode not in (Mode.APPEND, Mode.HISTORY):
        return
    for table in layout.filled:
        there = found.get(name_of(table))
        for key in there.keys if there is not None else ():
            if _is_of_one(key, table, layout):
                raise ConfigurationError(
                    f"The table {name_of(table)} in {shown} takes a subscriber once, by its {key.shown} "
                    f"({', '.join(key.columns)}), and {layout.mode} keeps several rows of each: drop that key, or "
                    "export to another table"
                )


def check_engines(found: Found, layout: Layout, shown: str) -> None:
    """Raise ConfigurationError for a table whose engine knows no transactions, unless it is swapped for another."""
    filled = [name_of(table) for table in layout.filled]
    is_swapped = layout.mode is Mode.REPLACE and all(found[name].can_be_swapped for name in filled if name in found)
    for name, table in found.items():
        if not table.is_transactional and not (is_swapped and name in filled):
            raise ConfigurationError(
                f"The table {name} in {shown} is kept by an engine without transactions: its rows cannot change all "
                f"at once. Run ALTER TABLE {name} ENGINE=InnoDB, or export to another table"
            )


def describe_clash(layout: Layout, table: str, tags_table: str | None) -> str:
    """Why a table of this layout cannot be shared with the export to `table`, whose tags are in `tags_table`; "" if
    none is."""

    def is_same(one: str | None, other: str | None) -> bool:
        return one is not None and other is not None and layout.dialect.is_same_name(one, other)

    target, tags = layout.target.name, layout.tags.name if layout.tags is not None else None
    if is_same(table, target):
        return ""
    if is_same(tags_table, tags):
        return f"the table {tags} holds the tags of {table}, which would be lost"
    if is_same(tags_table, target):
        return f"the table {target} holds the tags of {table}, which would be lost"
    return f"the table {tags}, which is to hold tags, is one that is exported to itself" if is_same(table, tags) else ""


def _is_of_one(key: FoundKey, table: sa.Table, layout: Layout) -> bool:
    ours = [column.name for column in table.columns if column.name not in _VARYING]
    return all(any(layout.dialect.is_same_name(each, name) for name in ours) for each in key.columns)
