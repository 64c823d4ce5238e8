"""The statements of each mode, once for all databases: from the stage into the target. Pure.

Each statement names the stage once, since MySQL reads a temporary table only once in a statement, and DuckDB reads a
stream. Texts are compared by the dialect, to the byte. The run's own columns, which no stage has, are values here.
Where a database has room for some rows only, stage and target are laid beside each other part by part, by their ids;
so two people who swap what a unique index of the target's allows once are then a clash.
"""

from collections.abc import Iterator, Sequence
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


@dataclass(frozen=True, slots=True)
class _Part:
    """Those whose id, divided by `of`, leaves `number`; everybody staged has an id."""

    number: int
    of: int

    def holds(self, table: sa.FromClause) -> sa.ColumnElement[bool]:
        """Whether a row of the table is among them."""
        if self.of == 1:
            return sa.true()
        return sa.func.abs(sa.func.mod(table.c[ID], self.of)) == self.number


def count_parts(layout: Layout, rows: int) -> int:
    """In how many parts so many rows are laid beside others."""
    return max(1, -(-rows // layout.dialect.most_joined)) if layout.dialect.most_joined else 1


def build_steps(layout: Layout, run: Run, parts: int = 1) -> list[Step]:
    """What brings the staged rows into the target and the table of tags, in this order.

    Who is not in the stage of a run that is whole has gone; of another, nobody is closed or marked as deleted.
    """
    return _build_row_steps(layout, run, parts) + _build_tag_steps(layout, run, parts)


def build_adoption(layout: Layout) -> Step:
    """Rows of a table that had no history yet become versions, valid from when they were exported."""
    target = layout.target.c
    adopt = (
        sa.update(layout.target)
        .where(target[VALID_FROM].is_(None), target[EXPORTED_AT].is_not(None))
        .values({VALID_FROM: target[EXPORTED_AT], IS_CURRENT: sa.true()})
    )
    return Step("none", adopt)


def build_lost(layout: Layout, run: Run, parts: int = 1) -> list[sa.Select[Any]]:
    """How many of the staged rows the target lacks once they were laid beside it by their id: those without a row
    that this run wrote or, in a history, without a current version. The counts are to be added up."""
    keeps_history = layout.mode is Mode.HISTORY
    is_kept = _is_current(layout) if keeps_history else layout.target.c[RUN_ID] == run.run_id
    return [
        sa.select(sa.func.count())
        .select_from(layout.stage)
        .where(part.holds(layout.stage), ~_is_there(layout, part, is_kept))
        for part in _split(parts)
    ]


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


def _build_row_steps(layout: Layout, run: Run, parts: int) -> list[Step]:
    match layout.mode:
        case Mode.REPLACE:
            return [Step("closed", sa.delete(layout.target)), *_append(layout, run)]
        case Mode.APPEND:
            return _append(layout, run)
        case Mode.UPSERT:
            return _upsert(layout, run, parts)
        case Mode.HISTORY:
            return _keep_history(layout, run, parts)


def _append(layout: Layout, run: Run) -> list[Step]:
    return [Step("inserted", _insert(layout, _take(layout, run)))]


def _upsert(layout: Layout, run: Run, parts: int) -> list[Step]:
    target, taken = layout.target, _take(layout, run)
    staged = {name: value for name, value in taken.items() if name != ID}
    steps = []
    for part in _split(parts):
        steps.append(Step("updated", _update(layout, part, staged | {DELETED_AT: sa.null()}, sa.true())))
        steps.append(Step("inserted", _insert(layout, taken, part.holds(layout.stage), ~_is_there(layout, part))))
        if run.is_whole:
            is_gone = _is_gone(layout, part, target.c[DELETED_AT].is_(None))
            steps.append(Step("closed", sa.update(target).where(is_gone).values({DELETED_AT: taken[EXPORTED_AT]})))
    return steps


def _keep_history(layout: Layout, run: Run, parts: int) -> list[Step]:
    target, stage, dialect = layout.target, layout.stage, layout.dialect
    taken, is_current = _take(layout, run), _is_current(layout)
    at = taken[EXPORTED_AT]
    closed = {VALID_TO: at, IS_CURRENT: sa.false()}
    version = taken | {VALID_FROM: at, IS_CURRENT: sa.true()}
    differs = sa.or_(*(dialect.differs(stage.c[name], target.c[name], layout.kinds[name]) for name in layout.compared))
    steps = [build_adoption(layout)]
    for part in _split(parts):
        steps.append(Step("closed", _update(layout, part, closed, is_current & differs)))
        if run.is_whole:
            steps.append(Step("closed", sa.update(target).where(_is_gone(layout, part, is_current)).values(closed)))
        is_new = ~_is_there(layout, part, is_current)
        steps.append(Step("inserted", _insert(layout, version, part.holds(stage), is_new)))
    return steps


def _build_tag_steps(layout: Layout, run: Run, parts: int) -> list[Step]:
    tags, staged = layout.tags, layout.tag_stage
    if tags is None or staged is None:
        return []
    of_run = _write_of_run(layout, run)[RUN_ID]
    copy = sa.insert(tags).from_select([*staged.c.keys(), RUN_ID], sa.select(*staged.c, of_run))
    if layout.mode is Mode.APPEND:
        return [Step("none", copy)]
    if layout.mode is Mode.HISTORY:
        return [Step("none", _copy_version_tags(layout, tags, staged, part)) for part in _split(parts)]
    stale = sa.delete(tags)
    if layout.mode is Mode.UPSERT:
        stale = stale.where(sa.exists().where(layout.stage.c[ID] == tags.c[ID]).select_from(layout.stage))
    return [Step("none", stale), Step("none", copy)]


def _copy_version_tags(layout: Layout, tags: sa.Table, staged: sa.Table, part: _Part) -> sa.Insert:
    """The tags of each current version that has none there yet, under the run that made the version."""
    target = layout.target
    version = sa.and_(target.c[ID] == staged.c[ID], _is_current(layout))
    known = tags.alias("known")
    is_same = sa.and_(known.c[ID] == target.c[ID], known.c[RUN_ID] == target.c[RUN_ID])
    is_known = sa.exists().where(is_same, part.holds(known)).select_from(known)
    rows = (
        sa.select(staged.c[ID], staged.c["position"], staged.c["tag"], target.c[RUN_ID])
        .select_from(staged.join(target, version))
        .where(part.holds(staged), part.holds(target), ~is_known)
    )
    return sa.insert(tags).from_select(list(tags.c.keys()), rows)


def _split(parts: int) -> Iterator[_Part]:
    return (_Part(number, parts) for number in range(parts))


def _take(layout: Layout, run: Run) -> dict[str, sa.ColumnElement[Any]]:
    """What each column of the rows is given."""
    of_run = _write_of_run(layout, run)
    return {name: of_run[name] if name in of_run else layout.stage.c[name] for name in layout.names}


def _write_of_run(layout: Layout, run: Run) -> dict[str, sa.ColumnElement[Any]]:
    """The run's own columns, as values of a statement."""
    values = {name: layout.dialect.write(value) for name, value in run.columns.items()}
    return {name: sa.bindparam(None, value, layout.target.c[name].type) for name, value in values.items()}


def _insert(layout: Layout, values: dict[str, sa.ColumnElement[Any]], *conditions: sa.ColumnElement[bool]) -> sa.Insert:
    rows = sa.select(*values.values()).select_from(layout.stage).where(*conditions)
    return sa.insert(layout.target).from_select(list(values), rows)


def _update(layout: Layout, part: _Part, values: dict[str, Any], condition: sa.ColumnElement[bool]) -> sa.Update:
    """The target's rows that are in the stage, too, and meet the condition, which may name both tables."""
    target, stage = layout.target, layout.stage
    is_same = sa.and_(target.c[ID] == stage.c[ID], part.holds(target), part.holds(stage))
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


def _is_gone(layout: Layout, part: _Part, condition: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Whether a row of the target that meets the condition has an id, and that is not in the stage."""
    target, stage = layout.target, layout.stage
    is_staged = sa.exists().where(stage.c[ID] == target.c[ID], part.holds(stage))
    has_left = ~is_staged.select_from(stage).correlate(target)
    return sa.and_(part.holds(target), condition, target.c[ID].is_not(None), has_left)


def _is_there(layout: Layout, part: _Part, *conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Whether a row of the stage is in the target, where that meets the conditions."""
    is_same = (layout.target.c[ID] == layout.stage.c[ID], part.holds(layout.target), *conditions)
    return sa.exists().where(*is_same).select_from(layout.target).correlate(layout.stage)


def _is_current(layout: Layout) -> sa.ColumnElement[bool]:
    return layout.target.c[IS_CURRENT] == sa.true()
