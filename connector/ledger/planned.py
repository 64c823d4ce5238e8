"""The ledger as a plan and a reconciliation see it: without a lock, beside a run that writes it, and never written.

A plan runs the code of a load, which records what its look-ups found and reads the records again. These records go into
a database in memory. At the start it gets the account's bases, problems and unfinished entries, all runs and all
cursors. Other entries, of which there may be millions, are read from the ledger when the plan asks for their
identities.
"""

import sqlite3
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Table, insert, select, text

from connector.databases import parse_ledger_location, show_ledger_location
from connector.fields import fold_base_name
from connector.ledger import schema
from connector.ledger.entries import LAST_RUN_KEY, Entry, Known, Ledger, ListedEntry
from connector.ledger.opening import connect_file, read_ledger, wrap_connection
from connector.ledger.records import LIST_SIZE, list_bases
from connector.ledger.store import Base, Batch, Store, build_missing, make_storable
from connector.states import State

P = ParamSpec("P")
T = TypeVar("T")

_CACHE = "PRAGMA cache_size = -16000"  # 16 MB; SQLite writes what exceeds it to a temporary file without a name
_COLUMNS = [column.name for column in schema.entry.c]
_READ_WHOLE = Batch(
    f"SELECT {', '.join(f'entry.{name}' for name in _COLUMNS)} FROM {{item}} "  # noqa: S608 - constants only
    "JOIN entry ON entry.base_key = item.column1 AND entry.identity = item.column2",
    "integer bytea",
)
_FIND_CONFIRMED = Batch(
    "SELECT identity FROM {item} JOIN entry ON entry.base_key = item.column1 AND entry.identity = item.column2 "
    "WHERE state = :confirmed",
    "integer bytea",
)
_KEEP_WHOLE = f"INSERT OR IGNORE INTO entry ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' for _ in _COLUMNS)})"  # noqa: S608
_STATE = _COLUMNS.index("state")


class PlannedLedger(Ledger):
    """A ledger in memory, over the ledger at `url` that stays as it is."""

    def __init__(self, store: Store, url: str, account: str) -> None:
        super().__init__(store)
        self.is_file = False  # a step may wait for a server, so `Commits` carries the step out in its thread
        self._url = url
        with self.transaction() as connection:
            self._lines = list_bases(connection, account)

    def find_entries(self, base: Base, identities: Sequence[bytes]) -> dict[bytes, Entry]:
        """Return the entries of these identities, as `Ledger.find_entries` does."""
        self._copy(base, identities)
        return super().find_entries(base, identities)

    def find_different(self, base: Base, digests: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bool]:
        """Return the identities whose rows are not CONFIRMED so, as `Ledger.find_different` does."""
        for line in self._find_lines(base):
            different = self._read(Ledger.find_different, line, digests)
            digests = [digest for digest in digests if digest[0] in different]
        self._copy(base, [identity for identity, _ in digests])
        return super().find_different(base, digests)

    def find_confirmed(self, base: Base, start: bytes, number: int, *, before: int = LAST_RUN_KEY) -> list[Known]:
        """Return some CONFIRMED entries of the real ledger, as `Ledger.find_confirmed` does."""
        read = partial(Ledger.find_confirmed, before=before)
        return [known for line in self._find_lines(base) for known in self._read(read, line, start, number)][:number]

    def find_shown(self, base: Base, start: bytes, number: int) -> list[Known]:
        """Return some entries of the real ledger that the list has shown, as `Ledger.find_shown` does."""
        lines = self._find_lines(base)
        return [known for line in lines for known in self._read(Ledger.find_shown, line, start, number)][:number]

    def list_confirmed(self, base: Base, field: str, before: int, since: float) -> "tuple[bytes, array[int]]":
        """Return CONFIRMED entries of the real ledger, as `Ledger.list_confirmed` does."""
        identities, ids = b"", array("q")
        for line in self._find_lines(base):
            of_line = self._read(Ledger.list_confirmed, line, field, before, since)
            identities, ids = identities + of_line[0], ids + of_line[1]
        return identities, ids

    def find_last_confirming(self, since: float, now: float) -> float | None:
        """Return when the latest run ended that confirmed an entry, as `Ledger.find_last_confirming` does."""
        return read_ledger(self._url, lambda ledger: ledger.find_last_confirming(since, now))

    def find_opt_outs(self, base: Base, job: str) -> list[bytes]:
        """Return the job's opt-outs, as `Ledger.find_opt_outs` does; the plan's own records count."""
        for line in self._find_lines(base):
            self._copy(base, self._read(Ledger.find_opt_outs, line, job))
        return super().find_opt_outs(base, job)

    def list_entries(self, base: Base, field: str, after: bytes, number: int) -> list[ListedEntry]:
        """Return the next entries of the real ledger in the order of identities, as `Ledger.list_entries` does."""
        pages = [self._read(Ledger.list_entries, line, field, after, number) for line in self._find_lines(base)]
        entries = {entry[0]: entry for page in pages for entry in page}
        return [entries[identity] for identity in sorted(entries)][:number]

    def record_listed(self, base: Base, field: str, listed: Sequence[tuple[bytes, int]]) -> None:
        """Record in memory what a listing shows, as `Ledger.record_listed` does."""
        pairs = [(line.key, identity) for line in self._find_lines(base) for identity, _ in listed]
        confirmed = self._read(_find_confirmed, pairs) if pairs else set()
        known = confirmed.difference(super().find_entries(base, list(confirmed)))
        super().record_listed(base, field, [subscriber for subscriber in listed if subscriber[0] not in known])

    def _find_lines(self, base: Base) -> list[Base]:
        """Return the lines that the real ledger had for this base at the start; the base may have been joined since."""
        folded = None if base.name is None else fold_base_name(base.name)
        return [
            line
            for line in self._lines
            if (line.service_id is not None and line.service_id == base.service_id)
            or (line.service_id is None and line.name is not None and fold_base_name(line.name) == folded)
        ]

    def _copy(self, base: Base, identities: Sequence[bytes]) -> None:
        """Copy the entries of these identities that memory does not have. What another run is sending is UNKNOWN."""
        for line in self._find_lines(base):
            pairs = [(line.key, identity) for identity in identities]
            rows = [[*row] for row in self._read(_read_whole, pairs)]
            for row in rows:
                row[0] = base.key
                row[_STATE] = State.UNKNOWN if row[_STATE] == State.SENDING else row[_STATE]
            if rows:
                self.connection.exec_driver_sql(_KEEP_WHOLE, [tuple(row) for row in rows])

    def _read(self, method: Callable[Concatenate[Ledger, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        found = read_ledger(self._url, lambda ledger: method(ledger, *args, **kwargs))
        if found is None:  # the ledger was there at the start
            raise build_missing(show_ledger_location(parse_ledger_location(self._url)))
        return found


@contextmanager
def open_planned_ledger(url: str, account: str) -> Iterator[PlannedLedger]:
    """Yield the ledger at `url` for a plan of this account; the ledger may be missing, and is not locked.

    Raises LedgerError when the ledger cannot be read, ConfigurationError when the ledger is of another version, the URL
    is invalid or its driver is missing.
    """
    with closing(sqlite3.connect("", check_same_thread=False, isolation_level=None)) as memory:
        memory.execute(_CACHE)
        with closing(connect_file(memory)) as connection:
            store = wrap_connection(connection, f"{show_ledger_location(parse_ledger_location(url))}, as planned").store
            tables = read_ledger(url, partial(_read_start, account=make_storable(account))) or {}
            with store.transaction():
                for table, rows in tables.items():
                    if rows:
                        connection.execute(insert(table), rows)
            yield PlannedLedger(store, url, account)


def _read_start(ledger: Ledger, account: str) -> dict[Table, list[dict[str, Any]]]:
    base, entry = schema.base, schema.entry
    of_account = select(base.c.base_key).where(base.c.account == account)
    statements = {
        schema.run: select(schema.run),
        schema.account: select(schema.account),
        schema.source_cursor: select(schema.source_cursor),
        schema.meta: select(schema.meta).where(schema.meta.c.name.startswith(LIST_SIZE)),
        schema.problem: select(schema.problem).where(schema.problem.c.account == account),
        base: select(base).where(base.c.account == account),
        entry: select(entry).where(text(schema.UNFINISHED), entry.c.base_key.in_(of_account)),
    }
    return {
        table: [dict(row) for row in ledger.connection.execute(statement).mappings()]
        for table, statement in statements.items()
    }


def _find_confirmed(ledger: Ledger, pairs: Sequence[tuple[int, bytes]]) -> set[bytes]:
    return {identity for (identity,) in ledger.store.select(_FIND_CONFIRMED, {"confirmed": State.CONFIRMED}, pairs)}


def _read_whole(ledger: Ledger, pairs: Sequence[tuple[int, bytes]]) -> list[Sequence[Any]]:
    return list(ledger.store.select(_READ_WHOLE, {}, pairs))
