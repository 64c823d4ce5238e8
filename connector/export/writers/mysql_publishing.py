"""How MySQL and MariaDB get a table whole, though none of their statements about tables can be taken back.

A table that is replaced, or new, is filled under another name and takes its place by one RENAME, which is atomic. Where
triggers or foreign keys hang on the table, which would stay behind, and in all other modes, rows change in one
transaction. The line of the run follows the RENAME: a kill between the two leaves the rows without it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import DropTable, ExecutableDDLElement

from connector.export.names import RUN_ID
from connector.export.writers import publishing
from connector.export.writers.checking import (
    is_place_needed,
    refuse_earlier,
    refuse_incomplete,
    refuse_other_count,
    refuse_shared,
)
from connector.export.writers.fitting import find_missing
from connector.export.writers.layout import Layout
from connector.export.writers.making import make_table
from connector.export.writers.merging import build_adoption
from connector.export.writers.mode import Mode
from connector.export.writers.mysql_place import insert_rows
from connector.export.writers.publishing import Published, Uncertain
from connector.export.writers.run import Changes, Run
from connector.export.writers.runs import build_record, name_of
from connector.export.writers.session import Place, Session
from connector.export.writers.sql_session import SqlSession


def publish_to_mysql(place: Place, layout: Layout, published: Published, run: Run) -> Changes:
    """As `publishing.publish_at`, by a RENAME where that loses nothing."""
    with place.connect() as session:
        return _publish(session, layout, published, run, place)


def _publish(session: Session, layout: Layout, published: Published, run: Run, place: Place) -> Changes:
    session.take_turn(layout)
    refuse_shared(session, layout, str(place))
    refuse_incomplete(session, layout, run)
    _drop_leftovers(session, layout)
    if not isinstance(session, SqlSession) or not _can_swap(session, layout):
        return publishing.publish(session, layout, published, run, place)
    with _clearing_away(session, layout, place):
        changes = _fill_new(session, layout, published, run, str(place))
        refuse_incomplete(session, layout, run)
    replaces = layout.mode is Mode.REPLACE and not is_place_needed(layout, run)
    try:
        session.execute(_Swap(_list_pairs(session, layout, replaces=replaces)))
        _record(session, layout, run, changes)
    except place.errors as error:
        raise Uncertain(error, changes, is_swap=True) from error
    return changes


def settle_in_mysql(session: Session, layout: Layout, run: Run, lost: Uncertain) -> bool:
    """As `publishing.is_published`; a swap that was done, and whose line was not written, is brought to its end."""
    is_published = publishing.is_published(session, layout, run, lost)
    if is_published or not lost.is_swap:
        return is_published
    if not _is_swapped(session, layout, run):
        _drop_leftovers(session, layout)
        return False
    _record(session, layout, run, lost.changes)
    return True


@contextmanager
def _clearing_away(session: SqlSession, layout: Layout, place: Place) -> Iterator[None]:
    """What was filled is dropped when it comes to nothing. Where the connection is gone, and with it the lock that
    keeps other exports away, the next export drops it."""
    try:
        yield
    except Exception:
        if not session.connection.invalidated:  # SQLAlchemy would make a new one
            with suppress(*place.errors):
                session.rollback()
                _drop_leftovers(session, layout)
        raise


def _is_swapped(session: Session, layout: Layout, run: Run) -> bool:
    """Whether the target holds this run's rows; of none at all it cannot be told, and is not claimed. That the filled
    table is gone proves nothing: another export clears it away."""
    found = session.describe(name_of(layout.target))
    if found is None or RUN_ID in {column.name for column in find_missing(found, layout.target, layout.dialect)}:
        return False
    of_run = layout.target.c[RUN_ID] == run.run_id
    return bool(session.fetch(sa.select(sa.func.count()).select_from(layout.target).where(of_run))[0][0])


class _Like(ExecutableDDLElement):
    """CREATE TABLE … LIKE."""

    inherit_cache = False

    def __init__(self, new: sa.Table, old: sa.Table) -> None:
        self.new, self.old = new, old


@compiles(_Like)
def _write_like(element: _Like, compiler: Any, **_: Any) -> str:
    write = compiler.preparer.format_table
    return f"CREATE TABLE {write(element.new)} LIKE {write(element.old)}"


class _Swap(ExecutableDDLElement):
    """RENAME TABLE, of all pairs at once."""

    inherit_cache = False

    def __init__(self, pairs: list[tuple[sa.Table, sa.Table]]) -> None:
        self.pairs = pairs


@compiles(_Swap)
def _write_swap(element: _Swap, compiler: Any, **_: Any) -> str:
    write = compiler.preparer.format_table
    return "RENAME TABLE " + ", ".join(f"{write(old)} TO {write(new)}" for old, new in element.pairs)


def _can_swap(session: Session, layout: Layout) -> bool:
    """Whether each table is new, or is replaced and nothing hangs on it."""
    found = [session.describe(name_of(table)) for table in layout.filled]
    if layout.mode is Mode.REPLACE:
        return all(each is None or each.can_be_swapped for each in found)
    return all(each is None for each in found)


def _fill_new(session: SqlSession, layout: Layout, published: Published, run: Run, shown: str) -> Changes:
    if layout.target.schema is not None:
        session.make_schema(layout.target.schema)
    make_table(session, layout, layout.runs, run.run_id, shown)
    closed = 0
    if session.describe(name_of(layout.target)) is not None:
        closed = int(session.fetch(sa.select(sa.func.count()).select_from(layout.target))[0][0])
    for table, rows in zip(layout.filled, (published.rows, published.tags), strict=False):
        new = _rename(table, "new")
        if session.describe(name_of(table)) is not None:
            session.execute(_Like(new, table))
        make_table(session, layout, new, run.run_id, shown)
        if rows is not None:
            shared = {name: layout.dialect.write(value) for name, value in run.columns.items() if name in new.c}
            insert_rows(session.connection, new, rows, shared)
    refuse_other_count(session, layout, _rename(layout.target, "new"), run.rows, shown)
    if layout.mode is Mode.HISTORY:
        session.execute(build_adoption(replace(layout, target=_rename(layout.target, "new"))).statement)
    refuse_earlier(session, layout, run)
    session.commit()
    return Changes(run.rows, 0, closed)


def _record(session: Session, layout: Layout, run: Run, changes: Changes) -> None:
    session.execute(build_record(layout, run, changes))
    session.commit()
    _drop_leftovers(session, layout)


def _list_pairs(session: Session, layout: Layout, *, replaces: bool) -> list[tuple[sa.Table, sa.Table]]:
    """What to rename. Unless the run `replaces`, nothing is put aside: RENAME fails where a table came meanwhile."""
    pairs = []
    for table in layout.filled:
        if replaces and session.describe(name_of(table)) is not None:
            pairs.append((table, _rename(table, "old")))
        pairs.append((_rename(table, "new"), table))
    return pairs


def _drop_leftovers(session: Session, layout: Layout) -> None:
    """What an export that was killed left, and what this one put aside; nobody else has tables of these names."""
    for table in layout.filled:
        for part in ("new", "old"):
            session.execute(DropTable(_rename(table, part), if_exists=True))


def _rename(table: sa.Table, part: str) -> sa.Table:
    digest = blake2b(str.lower(table.name).encode(), digest_size=8).hexdigest()
    return table.to_metadata(sa.MetaData(), name=sa.quoted_name(f"_connector_{part}_{digest}", True))
