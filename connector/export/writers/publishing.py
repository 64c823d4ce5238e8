"""Brings staged rows into a table, in one transaction, and finds out before whether that will be possible."""

from collections import Counter
from dataclasses import dataclass

import sqlalchemy as sa

from connector.errors import RunAborted
from connector.export.writers.fitting import check_fit, check_mode, find_missing
from connector.export.writers.layout import Layout
from connector.export.writers.making import build_index, make_tables
from connector.export.writers.merging import build_rehearsal, build_steps
from connector.export.writers.mode import Mode
from connector.export.writers.obstacles import check_engines, check_keys, check_referrers, list_shrinking
from connector.export.writers.runs import (
    Changes,
    LastRun,
    Run,
    build_found,
    build_last,
    build_later,
    build_record,
    name_of,
)
from connector.export.writers.session import Place, Session
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


def check_target(session: Session, layout: Layout, shown: str) -> None:
    """Look at the tables that are there. Raises ConfigurationError for what would stop a publishing later."""
    found = {}
    for table in layout.kept:
        there = session.describe(name_of(table))
        if there is not None:
            check_fit(there, table, layout.dialect, session.quote, shown)
            found[name_of(table)] = there
    target = found.get(name_of(layout.target))
    if target is not None:
        last = read_last_runs(session, layout)
        check_mode(target, layout, last[0].mode if last else None, shown)
    check_engines(found, layout, shown)
    check_keys(found, layout, shown)
    refuse_referrers(session, layout, shown)


def refuse_referrers(session: Session, layout: Layout, shown: str) -> None:
    """Raise ConfigurationError if other tables refer to one whose rows would be deleted."""
    for table in list_shrinking(layout):
        check_referrers(table, layout, session.list_referrers(name_of(table)), shown)


def rehearse(session: Session, layout: Layout, shown: str) -> None:
    """Do what a publishing does, with no row, and take it back: what is not allowed fails here.

    Where a table that was made cannot be taken back, none is made, and a grant that this would need is not looked for.
    """
    session.begin()
    if layout.dialect.undoes_tables:
        make_tables(session, layout, shown)
    found = session.describe(name_of(layout.target))
    if found is not None:
        missing = {column.name for column in find_missing(found, layout.target, layout.dialect)}
        names = [name for name in layout.names if name not in missing]
        for statement in build_rehearsal(layout, names) if names else ():
            session.execute(statement)
    session.rollback()


def read_last_runs(session: Session, layout: Layout) -> list[LastRun]:
    """The earlier exports to this table, the last first; none where no run is recorded."""
    if session.describe(name_of(layout.runs)) is None:
        return []
    return [LastRun(*row) for row in session.fetch(build_last(layout))]


def publish(session: Session, layout: Layout, published: Published, run: Run, place: Place) -> Changes:
    """All of it in one transaction; what raises leaves the target as it was, but for Uncertain."""
    session.begin()
    session.take_turn(layout)
    refuse_incomplete(session, layout, run)
    fill_stages(session, layout, published)
    make_tables(session, layout, str(place))
    session.hold(layout)
    refuse_referrers(session, layout, str(place))
    refuse_rows(session, layout, run)
    refuse_earlier(session, layout, run)
    changes = take_steps(session, layout, run)
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
        session.execute(build_index(layout.stage))


def refuse_incomplete(session: Session, layout: Layout, run: Run) -> None:
    """Raise RunAborted if an incomplete run would take the place of a table that was made since it began."""
    for table in layout.filled if is_place_needed(layout, run) else ():
        if session.describe(name_of(table)) is not None:
            raise _is_taken(table)


def refuse_rows(session: Session, layout: Layout, run: Run) -> None:
    """Raise RunAborted if an incomplete run would take the place of rows. A table of its own may hold some, where one
    is there for everybody as soon as it is made."""
    for table in layout.filled if is_place_needed(layout, run) else ():
        if session.fetch(sa.select(sa.func.count()).select_from(table))[0][0]:
            raise _is_taken(table)


def is_place_needed(layout: Layout, run: Run) -> bool:
    """Whether this run may replace nothing, though its mode would."""
    return layout.mode is Mode.REPLACE and not run.certificate.is_complete


def _is_taken(table: sa.Table) -> RunAborted:
    return RunAborted(
        f"The table {name_of(table)} was made meanwhile, and an incomplete export replaces nothing: it was left as it "
        "is. Export to another place, or remove it first."
    )


def refuse_earlier(session: Session, layout: Layout, run: Run) -> None:
    """Raise RunAborted if a run that began later has been published meanwhile: time would run backwards."""
    if session.fetch(build_later(layout, run.exported_at))[0][0]:
        raise RunAborted(
            f"An export to {name_of(layout.target)} that began later has been written meanwhile: this one would put "
            "older rows in its place, and was not written. Run it again."
        )


def take_steps(session: Session, layout: Layout, run: Run) -> Changes:
    """Carry out the mode's statements, and count."""
    counts: Counter[str] = Counter()
    for step in build_steps(layout, run.exported_at, is_whole=run.is_whole):
        counts[step.counted] += session.execute(step.statement)
    return Changes(counts["inserted"], counts["updated"], counts["closed"])


def is_published(session: Session, layout: Layout, run: Run, _: Uncertain) -> bool:
    """Whether this run's transaction was committed; its session, should it live on, is waited for."""
    session.begin()
    session.take_turn(layout)
    if session.describe(name_of(layout.runs)) is None:
        return False
    return bool(session.fetch(build_found(layout, run.run_id))[0][0])
