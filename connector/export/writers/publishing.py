"""Brings rows into a table, in one transaction, and tells afterwards whether that was done.

They go by a stage of the database's own, or straight into the table where a database knows how and nothing forbids it.
"""

from collections import Counter
from dataclasses import dataclass

import sqlalchemy as sa

from connector.export.writers.checking import (
    count_rows,
    refuse_earlier,
    refuse_incomplete,
    refuse_lost,
    refuse_referrers,
    refuse_rows,
    refuse_shared,
)
from connector.export.writers.layout import STAGE, Layout
from connector.export.writers.making import build_index, make_tables
from connector.export.writers.merging import build_steps, count_parts
from connector.export.writers.mode import Mode
from connector.export.writers.run import Changes, Run
from connector.export.writers.runs import build_found, build_record, name_of
from connector.export.writers.session import Load, Place, Session
from connector.export.writers.staged import Rows


class Uncertain(Exception):  # noqa: N818 - a state of knowledge, not a fault
    """A commit failed in such a way that it may have been done; `error` says how, `changes` what it would have done.

    `is_swap`: it was no commit, but a table that took the place of another.
    """

    def __init__(self, error: Exception, changes: Changes, *, is_swap: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.changes = changes
        self.is_swap = is_swap


@dataclass(frozen=True, slots=True)
class Published:
    """The rows to publish: those of the target and, where there is such a table, those of the tags."""

    rows: Rows
    tags: Rows | None = None


def publish_at(place: Place, layout: Layout, published: Published, run: Run) -> Changes:
    """As `publish`, by a connection of its own."""
    with place.connect() as session:
        return publish(session, layout, published, run, place)


def publish(session: Session, layout: Layout, published: Published, run: Run, place: Place) -> Changes:
    """All of it in one transaction; what raises leaves the target as it was, but for Uncertain."""
    session.begin()
    session.take_turn(layout)
    refuse_shared(session, layout, str(place))
    refuse_incomplete(session, layout, run)
    is_staged = _find_loader(session, layout) is None
    if is_staged:
        fill_stages(session, layout, published)
    make_tables(session, layout, run.run_id, str(place))
    if not layout.dialect.undoes_tables:  # a table that was made may have ended the transaction, and with it the turn
        session.take_turn(layout)
        refuse_shared(session, layout, str(place))
    session.hold(layout)
    refuse_referrers(session, layout, str(place))
    refuse_rows(session, layout, run)
    refuse_earlier(session, layout, run)
    load = _find_loader(session, layout)
    if load is None and not is_staged:  # it was changed meanwhile, or by others as it was made
        fill_stages(session, layout, published)
    changes = take_steps(session, layout, run) if load is None else _fill(session, layout, published, run, load)
    refuse_lost(session, layout, run, changes, str(place))
    session.execute(build_record(layout, run, changes))
    try:
        session.commit()
    except place.errors as error:
        raise Uncertain(error, changes) from error
    return changes


def fill_stages(session: Session, layout: Layout, published: Published) -> None:
    """Put the rows beside the target; nobody else sees them."""
    session.fill(layout.stage, published.rows)
    if layout.tag_stage is not None and published.tags is not None:
        session.fill(layout.tag_stage, published.tags)
    if layout.dialect.wants_index and layout.mode.is_by_id:
        session.execute(build_index(layout.stage, f"{STAGE}_by_id"))


def _find_loader(session: Session, layout: Layout) -> Load | None:
    """Whose rows need not be laid beside those that are there may do without a stage."""
    return None if layout.mode.is_by_id else session.find_loader(layout)


def _fill(session: Session, layout: Layout, published: Published, run: Run, load: Load) -> Changes:
    closed = 0
    if layout.mode is Mode.REPLACE:
        closed, *_ = [session.execute(sa.delete(table)) for table in layout.filled]
    inserted = load(layout.target, published.rows, run)
    if layout.tags is not None and published.tags is not None:
        load(layout.tags, published.tags, run)
    return Changes(inserted, 0, closed)


def take_steps(session: Session, layout: Layout, run: Run) -> Changes:
    """Carry out the mode's statements, and count."""
    counts: Counter[str] = Counter()
    parts = 1
    if layout.mode.is_by_id and layout.dialect.most_joined:  # and beside few rows many find room
        parts = count_parts(layout, min(run.rows, count_rows(session, layout.target)))
    for step in build_steps(layout, run, parts):
        counts[step.counted] += session.execute(step.statement)
    return Changes(counts["inserted"], counts["updated"], counts["closed"])


def is_published(session: Session, layout: Layout, run: Run, _: Uncertain) -> bool:
    """Whether this run's transaction was committed; its session, should it live on, is waited for."""
    session.begin()
    session.take_turn(layout)
    if session.describe(name_of(layout.runs)) is None:
        return False
    return bool(session.fetch(build_found(layout, run.run_id))[0][0])
