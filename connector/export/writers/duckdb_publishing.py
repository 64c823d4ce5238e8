"""How DuckDB, whose memory is this process's own, gets as much of it as a publishing needs."""

import duckdb

from connector.export.writers import publishing
from connector.export.writers.duckdb_place import DuckdbPlace
from connector.export.writers.layout import Layout
from connector.export.writers.publishing import Published, Uncertain
from connector.export.writers.run import Changes, Run
from connector.export.writers.session import Place

MORE_MEMORY_MB = (320, 1280, 5120)
"""What it is given, one after the other, when it says that it needs more. A million rows of the usual width do not; an
`upsert` or a `history` of many millions does, for what a transaction changed stays in memory until it ends."""


def publish_to_duckdb(place: Place, layout: Layout, published: Published, run: Run) -> Changes:
    """As `publishing.publish_at`, again from the beginning with more memory where it ran out. Each time by a connection
    of its own: what an aborted transaction had changed is in the way of the next one of the same connection."""
    for memory_mb in MORE_MEMORY_MB:
        try:
            return publishing.publish_at(place, layout, published, run)
        except duckdb.OutOfMemoryException:
            place = _allow(place, memory_mb)
        except Uncertain as lost:
            if not isinstance(lost.error, duckdb.OutOfMemoryException):
                raise
            place = _allow(place, memory_mb)
            if _is_published(place, layout, run, lost):
                return lost.changes
    return publishing.publish_at(place, layout, published, run)


def _allow(place: Place, memory_mb: int) -> DuckdbPlace:
    if not isinstance(place, DuckdbPlace):
        raise TypeError("a place that DuckDB writes to is a DuckdbPlace")
    return place.allow(memory_mb)


def _is_published(place: Place, layout: Layout, run: Run, lost: Uncertain) -> bool:
    with place.connect(is_reading=True) as session:
        return publishing.is_published(session, layout, run, lost)
