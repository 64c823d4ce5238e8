"""The statements of `upsert` and `history`, from the stage into the target, the same for all databases. Pure.

Each statement names the stage once, since MySQL reads a temporary table only once in a statement. Texts are compared to
the byte. The run's own columns, which no stage has, are values here. A row that did not change is not touched; of a
row that did, `_run_id` and `_exported_at` say when.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa

from connector.warehouse.columns import EXPORTED_AT, OF_RUN, RUN_ID
from connector.warehouse.destination import Mode
from connector.warehouse.runs import DELETED_AT, ID, IS_CURRENT, VALID_FROM, VALID_TO, ColumnKind
from connector.warehouse.tables import TableSet
from connector.warehouse.writer import Run

Differ = Callable[[sa.ColumnElement[Any], sa.ColumnElement[Any], ColumnKind], Any]
WriteTime = Callable[[datetime], object]


@dataclass(frozen=True, slots=True)
class MergeStep:
    """One statement, and as what the rows that it touches are counted."""

    counted: Literal["inserted", "updated", "closed"]
    statement: sa.Executable


def build_steps(tables: TableSet, run: Run, differ: Differ, write_time: WriteTime) -> list[MergeStep]:
    """What brings the staged rows into the target, in this order.

    A row that the stage lacks has gone, if the run is whole and the row is one that its filters would list.
    """
    merge = _Merge(tables, run, differ, write_time)
    return merge.upsert() if tables.mode is Mode.UPSERT else merge.keep_history()


def build_rehearsal(tables: TableSet, *, is_staged: bool, casts_null: bool) -> list[sa.Executable]:
    """The same kinds of statements upon no row: what is missing, clashes or is not allowed shows here as well."""
    target, names = tables.target, list(tables.kinds)
    values: dict[str, Any] = {name: target.c[name] for name in names}
    source: sa.FromClause = target
    if is_staged:
        source = tables.stage
        values = {name: tables.stage.c[name] if name in tables.stage.c else sa.null() for name in names}
    elif casts_null:
        values = {name: sa.cast(sa.null(), target.c[name].type) for name in names}
    nothing = sa.false()
    insert = sa.insert(target).from_select(names, sa.select(*values.values()).select_from(source).where(nothing))
    changed = {Mode.UPSERT: DELETED_AT, Mode.HISTORY: VALID_TO}.get(tables.mode)
    if changed is not None:
        return [insert, sa.update(target).where(nothing).values({changed: target.c[changed]})]
    return [insert] if tables.mode is Mode.APPEND else [sa.delete(target).where(nothing), insert]


class _Merge:
    """The parts that the statements of both modes share."""

    def __init__(self, tables: TableSet, run: Run, differ: Differ, write_time: WriteTime) -> None:
        self._tables, self._run, self._differ = tables, run, differ
        self._target, self._stage = tables.target, tables.stage
        at = write_time(run.exported_at)
        self._at = sa.bindparam(None, at, self._target.c[EXPORTED_AT].type)
        self._stamps = {RUN_ID: sa.bindparam(None, run.run_id, self._target.c[RUN_ID].type), EXPORTED_AT: self._at}
        staged = {name: self._stage.c[name] for name in tables.kinds if name not in OF_RUN}
        self._values: dict[str, Any] = {**staged, **self._stamps}

    def upsert(self) -> list[MergeStep]:
        is_gone = self._target.c[DELETED_AT]
        changed = {name: value for name, value in self._values.items() if name != ID} | {DELETED_AT: sa.null()}
        steps = [
            MergeStep("updated", self._update(changed, sa.or_(self._is_changed(), is_gone.is_not(None)))),
            MergeStep("inserted", self._insert(self._values, sa.true())),
        ]
        return [*steps, *self._close({DELETED_AT: self._at, **self._stamps}, is_gone.is_(None))]

    def keep_history(self) -> list[MergeStep]:
        is_current = self._target.c[IS_CURRENT] == sa.true()
        ended: dict[str, Any] = {VALID_TO: self._at, IS_CURRENT: sa.false(), **self._stamps}
        version = self._values | {VALID_FROM: self._at, IS_CURRENT: sa.true()}
        return [
            MergeStep("closed", self._update(ended, sa.and_(is_current, self._is_changed()))),
            *self._close(ended, is_current),
            MergeStep("inserted", self._insert(version, is_current)),
        ]

    def _is_changed(self) -> sa.ColumnElement[bool]:
        kinds = self._tables.kinds
        pairs = ((self._stage.c[name], self._target.c[name], kinds[name]) for name in self._tables.compared)
        return sa.or_(*(self._differ(*pair) for pair in pairs))

    def _update(self, values: dict[str, Any], condition: sa.ColumnElement[bool]) -> sa.Update:
        """The target's rows that are staged too and meet the condition, which may name both tables."""
        return sa.update(self._target).where(self._target.c[ID] == self._stage.c[ID], condition).values(values)

    def _insert(self, values: dict[str, Any], condition: sa.ColumnElement[bool]) -> sa.Insert:
        """The staged rows of which the target has none that meets the condition."""
        is_same = (self._target.c[ID] == self._stage.c[ID], condition)
        is_there = sa.exists().where(*is_same).select_from(self._target).correlate(self._stage)
        rows = sa.select(*values.values()).select_from(self._stage).where(~is_there)
        return sa.insert(self._target).from_select(list(values), rows)

    def _close(self, values: dict[str, Any], condition: sa.ColumnElement[bool]) -> list[MergeStep]:
        """The target's rows that meet the condition and have gone from the list, as far as that is known."""
        if not self._run.is_whole:
            return []
        target, kinds = self._target, self._tables.kinds
        asked = self._run.certificate.filters.get("asked", {})
        listed = [
            ~self._differ(target.c[name], sa.bindparam(None, value, target.c[name].type), kinds[name])
            for name, value in asked.items()
        ]
        is_staged = sa.exists().where(self._stage.c[ID] == target.c[ID]).select_from(self._stage).correlate(target)
        return [MergeStep("closed", sa.update(target).where(condition, *listed, ~is_staged).values(values))]
