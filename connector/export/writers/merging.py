"""The statements of each mode, once for all databases: from the stage into the target. Pure.

Each statement names the stage once, since MySQL reads a temporary table only once in a statement, and DuckDB reads a
stream. Texts are compared by the dialect, to the byte. The run's own columns, which no stage has, are values here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa

from connector.export.names import EXPORTED_AT, RUN_ID
from connector.export.writers.kinds import (
    DELETED_AT,
    ID,
    IS_CURRENT,
    VALID_FROM,
    VALID_TO,
)
from connector.export.writers.layout import Layout
from connector.export.writers.mode import Mode
from connector.export.writers.run import Run

Counted = Literal["inserted", "updated", "closed", "none"]


@dataclass(frozen=True, slots=True)
class Step:
    """One statement, and as what the rows that it touches are counted."""

    counted: Counted
    statement: sa.Executable


def build_steps(layout: Layout, run: Run) -> list[Step]:
    """What brings the staged rows into the target and the table of tags, in this order.

    Who is not in the stage of a run that is whole has gone; of another, nobody is closed or marked as deleted.
    """
    return _build_row_steps(layout, run) + _build_tag_steps(layout, run)


def build_adoption(layout: Layout) -> Step:
    """Rows of a table that had no history yet become versions, valid from when they were exported."""
    target = layout.target.c
    adopt = (
        sa.update(layout.target)
        .where(target[VALID_FROM].is_(None), target[EXPORTED_AT].is_not(None))
        .values({VALID_FROM: target[EXPORTED_AT], IS_CURRENT: sa.true()})
    )
    return Step("none", adopt)


def build_lost(layout: Layout, run_id: str) -> sa.Select[Any]:
    """How many of the staged rows the target lacks once they were laid beside it by their id: those without a row
    that this run wrote or, in a history, without a current version."""
    keeps_history = layout.mode is Mode.HISTORY
    is_kept = _is_current(layout) if keeps_history else layout.target.c[RUN_ID] == run_id
    return sa.select(sa.func.count()).select_from(layout.stage).where(~_is_there(layout, is_kept))


def build_rehearsal(layout: Layout, names: Sequence[str]) -> list[sa.Executable]:
    """The same kinds of statements upon no row: what a missing grant forbids, it forbids here as well.

    `names` are the columns that the target has by now, of those that come from the list.
    """
    target = layout.target
    nobody = sa.false()
    insert = sa.insert(target).from_select(names, sa.select(*(target.c[name] for name in names)).where(nobody))
    update = sa.update(target).where(nobody).values({names[0]: target.c[names[0]]})
    delete = sa.delete(target).where(nobody)
    also: dict[Mode, list[sa.Executable]] = {Mode.REPLACE: [delete], Mode.UPSERT: [update], Mode.HISTORY: [update]}
    return [insert, *also.get(layout.mode, [])]


def _build_row_steps(layout: Layout, run: Run) -> list[Step]:
    match layout.mode:
        case Mode.REPLACE:
            return [Step("closed", sa.delete(layout.target)), *_append(layout, run)]
        case Mode.APPEND:
            return _append(layout, run)
        case Mode.UPSERT:
            return _upsert(layout, run)
        case Mode.HISTORY:
            return _keep_history(layout, run)


def _append(layout: Layout, run: Run) -> list[Step]:
    return [Step("inserted", _insert(layout, _take(layout, run)))]


def _upsert(layout: Layout, run: Run) -> list[Step]:
    target, taken = layout.target, _take(layout, run)
    staged = {name: value for name, value in taken.items() if name != ID}
    steps = [
        Step("updated", _update(layout, staged | {DELETED_AT: sa.null()}, sa.true())),
        Step("inserted", _insert(layout, taken, ~_is_there(layout))),
    ]
    if run.is_whole:
        gone = (target.c[DELETED_AT].is_(None), target.c[ID].is_not(None), ~_is_staged(layout))
        steps.append(Step("closed", sa.update(target).where(*gone).values({DELETED_AT: taken[EXPORTED_AT]})))
    return steps


def _keep_history(layout: Layout, run: Run) -> list[Step]:
    target, stage, dialect = layout.target, layout.stage, layout.dialect
    taken = _take(layout, run)
    at = taken[EXPORTED_AT]
    closed = {VALID_TO: at, IS_CURRENT: sa.false()}
    differs = sa.or_(*(dialect.differs(stage.c[name], target.c[name], layout.kinds[name]) for name in layout.compared))
    steps = [build_adoption(layout), Step("closed", _update(layout, closed, _is_current(layout) & differs))]
    if run.is_whole:
        gone = (_is_current(layout), target.c[ID].is_not(None), ~_is_staged(layout))
        steps.append(Step("closed", sa.update(target).where(*gone).values(closed)))
    version = taken | {VALID_FROM: at, IS_CURRENT: sa.true()}
    return [*steps, Step("inserted", _insert(layout, version, ~_is_there(layout, _is_current(layout))))]


def _build_tag_steps(layout: Layout, run: Run) -> list[Step]:
    tags, staged = layout.tags, layout.tag_stage
    if tags is None or staged is None:
        return []
    of_run = _write_of_run(layout, run)[RUN_ID]
    copy = sa.insert(tags).from_select([*staged.c.keys(), RUN_ID], sa.select(*staged.c, of_run))
    if layout.mode is Mode.APPEND:
        return [Step("none", copy)]
    if layout.mode is Mode.HISTORY:
        return [Step("none", _copy_version_tags(layout, tags, staged))]
    stale = sa.delete(tags)
    if layout.mode is Mode.UPSERT:
        stale = stale.where(sa.exists().where(layout.stage.c[ID] == tags.c[ID]).select_from(layout.stage))
    return [Step("none", stale), Step("none", copy)]


def _copy_version_tags(layout: Layout, tags: sa.Table, staged: sa.Table) -> sa.Insert:
    """The tags of each current version that has none there yet, under the run that made the version."""
    target = layout.target
    version = sa.and_(target.c[ID] == staged.c[ID], _is_current(layout))
    known = tags.alias("known")
    is_known = sa.exists().where(known.c[ID] == target.c[ID], known.c[RUN_ID] == target.c[RUN_ID]).select_from(known)
    rows = (
        sa.select(staged.c[ID], staged.c["position"], staged.c["tag"], target.c[RUN_ID])
        .select_from(staged.join(target, version))
        .where(~is_known)
    )
    return sa.insert(tags).from_select(list(tags.c.keys()), rows)


def _take(layout: Layout, run: Run) -> dict[str, sa.ColumnElement[Any]]:
    """What each column of the rows is given."""
    of_run = _write_of_run(layout, run)
    return {name: of_run[name] if name in of_run else layout.stage.c[name] for name in layout.names}


def _write_of_run(layout: Layout, run: Run) -> dict[str, sa.ColumnElement[Any]]:
    """The run's own columns, as values of a statement."""
    values = {RUN_ID: run.run_id, EXPORTED_AT: layout.dialect.write_time(run.exported_at)}
    return {name: sa.bindparam(None, value, layout.target.c[name].type) for name, value in values.items()}


def _insert(layout: Layout, values: dict[str, sa.ColumnElement[Any]], *conditions: sa.ColumnElement[bool]) -> sa.Insert:
    rows = sa.select(*values.values()).select_from(layout.stage).where(*conditions)
    return sa.insert(layout.target).from_select(list(values), rows)


def _update(layout: Layout, values: dict[str, Any], condition: sa.ColumnElement[bool]) -> sa.Update:
    """The target's rows that are in the stage, too, and meet the condition, which may name both tables."""
    target, stage = layout.target, layout.stage
    is_same = target.c[ID] == stage.c[ID]
    if layout.dialect.can_update_from:
        return sa.update(target).where(is_same, condition).values(values)
    return (
        sa.update(target)
        .where(sa.exists().where(is_same, condition).select_from(stage).correlate(target))
        .values({name: _look_up(layout, value, is_same) for name, value in values.items()})
    )


def _look_up(layout: Layout, value: Any, is_same: sa.ColumnElement[bool]) -> Any:
    """A value of the stage, for a database that has no other way to name a second table in an UPDATE."""
    if not isinstance(value, sa.Column):
        return value
    return sa.select(value).where(is_same).correlate(layout.target).scalar_subquery()


def _is_staged(layout: Layout) -> sa.ColumnElement[bool]:
    is_same = layout.stage.c[ID] == layout.target.c[ID]
    return sa.exists().where(is_same).select_from(layout.stage).correlate(layout.target)


def _is_there(layout: Layout, condition: sa.ColumnElement[bool] | None = None) -> sa.ColumnElement[bool]:
    conditions = [layout.target.c[ID] == layout.stage.c[ID]] + ([] if condition is None else [condition])
    return sa.exists().where(*conditions).select_from(layout.target).correlate(layout.stage)


def _is_current(layout: Layout) -> sa.ColumnElement[bool]:
    return layout.target.c[IS_CURRENT] == sa.true()
