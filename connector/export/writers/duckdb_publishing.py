"""How DuckDB, whose memory is this process's own, gets as much of it as a publishing needs, and no more."""

import duckdb

from connector.export.writers import publishing
from connector.export.writers.duckdb_place import DuckdbSession
from connector.export.writers.layout import Layout
from connector.export.writers.publishing import Published
from connector.export.writers.run import Changes, Run
from connector.export.writers.session import Place, Session

MORE_MEMORY_MB = (320, 1280, 5120)
"""What it is given, one after the other, when it says that it needs more. A million rows never need it; an `upsert` or
a `history` of many millions does, for what a transaction changed stays in memory until it ends."""


def publish_to_duckdb(session: Session, layout: Layout, published: Published, run: Run, place: Place) -> Changes:
    """As `publishing.publish`, again from the beginning with more memory where it ran out."""
    for memory_mb in MORE_MEMORY_MB:
        try:
            return publishing.publish(session, layout, published, run, place)
        except duckdb.OutOfMemoryException:
            if not isinstance(session, DuckdbSession):
                raise
            session.rollback()
            session.allow_memory(memory_mb)
    return publishing.publish(session, layout, published, run, place)
