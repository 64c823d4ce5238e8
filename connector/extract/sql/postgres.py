"""Dates and times of PostgreSQL that Python does not have (infinity, years before Christ, 24:00) as the texts that
PostgreSQL writes.

One of them costs its cell, and not the query. It is imported only once psycopg is there: it comes with an extra.
"""

from typing import Any

from psycopg import DataError
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format

_TYPES = ("date", "timestamp", "timestamptz", "time", "timetz")


def keep_strange_dates(connection: Any) -> None:
    """Have this connection of psycopg's read them so."""
    adapters = connection.adapters
    for name in _TYPES:
        oid = adapters.types[name].oid
        adapters.register_loader(oid, _build_loader(adapters.get_loader(oid, Format.TEXT)))


def _build_loader(usual: Any) -> type[Loader]:
    class StrangeDates(Loader):
        """psycopg asks for a class, and its own are compiled: one that has an own one to ask."""

        def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
            super().__init__(oid, context)
            self._usual = usual(oid, context)

        def load(self, data: Buffer) -> object:
            try:
                return self._usual.load(data)
            except DataError:
                return bytes(data).decode()

    return StrangeDates
