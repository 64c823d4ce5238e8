"""Looks at the tables that are there: before anything is read, and again when it is this export's turn to write."""

import sqlalchemy as sa

from connector.errors import ConfigurationError, RunAborted
from connector.export.names import RUN_ID
from connector.export.writers.fitting import check_fit, check_mode, find_missing
from connector.export.writers.layout import Layout, TableName
from connector.export.writers.making import make_tables
from connector.export.writers.merging import build_lost, build_rehearsal, count_parts
from connector.export.writers.mode import Mode
from connector.export.writers.obstacles import (
    check_engines,
    check_keys,
    check_names,
    check_referrers,
    describe_clash,
    list_shrinking,
)
from connector.export.writers.run import Changes, Run
from connector.export.writers.runs import LastRun, build_last, build_later, build_roles, name_of
from connector.export.writers.session import Session


def check_target(session: Session, layout: Layout, shown: str) -> None:
    """Look at the tables that are there. Raises ConfigurationError for what would stop a publishing later."""
    check_names(layout, shown)
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
    refuse_shared(session, layout, shown)


def rehearse(session: Session, layout: Layout, shown: str) -> None:
    """Do what a publishing does, with no row, and take it back: what is not allowed fails here.

    Where a table that was made cannot be taken back, none is made, and a grant that this would need is not looked for.
    """
    session.prepare_turns(layout)
    session.begin()
    if layout.dialect.undoes_tables:
        make_tables(session, layout, "rehearsal", shown)
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


def refuse_referrers(session: Session, layout: Layout, shown: str) -> None:
    """Raise ConfigurationError if other tables refer to one whose rows would be deleted."""
    for table in list_shrinking(layout):
        check_referrers(table, layout, session.list_referrers(name_of(table)), shown)


def refuse_shared(session: Session, layout: Layout, shown: str) -> None:
    """Raise ConfigurationError if a table of this export is one of another's, which is still there."""
    runs = session.describe(name_of(layout.runs))
    if runs is None or find_missing(runs, layout.runs, layout.dialect):  # written before there were such columns
        return
    for table, tags_table in session.fetch(build_roles(layout)):
        clash = describe_clash(layout, table, tags_table)
        if clash and session.describe(TableName(table, layout.target.schema)) is not None:
            raise ConfigurationError(f"In {shown} {clash}: name another one, or drop {table} if it is not needed")


def refuse_incomplete(session: Session, layout: Layout, run: Run) -> None:
    """Raise RunAborted if an incomplete run would take the place of a table that was made since it began."""
    for table in layout.filled if is_place_needed(layout, run) else ():
        if session.describe(name_of(table)) is not None:
            raise _is_taken(table)


def refuse_rows(session: Session, layout: Layout, run: Run) -> None:
    """Raise RunAborted if an incomplete run would take the place of rows. A table of its own may hold some, where one
    is there for everybody as soon as it is made."""
    for table in layout.filled if is_place_needed(layout, run) else ():
        if count_rows(session, table):
            raise _is_taken(table)


def refuse_earlier(session: Session, layout: Layout, run: Run) -> None:
    """Raise RunAborted if a run that began later has been published meanwhile: time would run backwards."""
    if session.fetch(build_later(layout, run.exported_at))[0][0]:
        raise RunAborted(
            f"An export to {name_of(layout.target)} that began later has been written meanwhile: this one would put "
            "older rows in its place, and was not written. Run it again."
        )


def refuse_lost(session: Session, layout: Layout, run: Run, changes: Changes, shown: str) -> None:
    """Raise ConfigurationError if the target, before the commit, lacks rows that were written, or kept what was to go.

    A trigger, a rule or a policy may see to that, and the database says nothing. Where its counts tell that all is
    well, the table is not read; that it was replaced, they do not tell.
    """
    if layout.mode is Mode.REPLACE:
        refuse_other_count(session, layout, layout.target, run.rows, shown)
        return
    touched = changes.inserted + changes.updated
    if layout.mode is not Mode.HISTORY and touched == run.rows:
        return
    if layout.mode is Mode.APPEND:
        of_run = layout.target.c[RUN_ID] == run.run_id
        lost = run.rows - count_rows(session, layout.target, of_run)
    else:
        counts = build_lost(layout, run, count_parts(layout, run.rows))
        lost = sum(session.fetch(each)[0][0] for each in counts)
    if lost:
        raise ConfigurationError(
            f"{lost:,} of {run.rows:,} rows did not get into the table {name_of(layout.target)} in {shown}: {_WHO_ELSE}"
        )


def refuse_other_count(session: Session, layout: Layout, filled: sa.Table, rows: int, shown: str) -> None:
    """Raise ConfigurationError if `filled`, the target or what is to take its place, holds more or fewer rows."""
    found = count_rows(session, filled)
    if found != rows:
        raise ConfigurationError(
            f"The table {name_of(layout.target)} in {shown} would hold {found:,} rows, and the export has {rows:,}: "
            f"{_WHO_ELSE}"
        )


def is_place_needed(layout: Layout, run: Run) -> bool:
    """Whether this run may replace nothing, though its mode would."""
    return layout.mode is Mode.REPLACE and not run.certificate.is_complete


_WHO_ELSE = (
    "something else decides what it keeps, such as a trigger, a rule, a conflict clause or row-level security (or "
    "somebody wrote to it at the same time): change that, or export to another table"
)


def count_rows(session: Session, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
    """Those of a table that meet the conditions."""
    return int(session.fetch(sa.select(sa.func.count()).select_from(table).where(*conditions))[0][0])


def _is_taken(table: sa.Table) -> RunAborted:
    return RunAborted(
        f"The table {name_of(table)} was made meanwhile, and an incomplete export replaces nothing: it was left as it "
        "is. Export to another place, or remove it first."
    )
