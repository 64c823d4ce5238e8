"""The ledger for a plan or a reconciliation. Opening this ledger takes no lock, and is possible while another run
writes the ledger. Nothing is written to the ledger.

A plan runs the code of a load, which records the results of its look-ups and reads the records again. These records are
written to a database in memory. At the start, this database gets the account's bases, problems and unfinished entries,
all runs and all cursors. The ledger may have millions of other entries. The plan reads such an entry from the ledger
when it looks up the identity.
"""

import sqlite3
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Table, insert, select, text

from connector.databases import format_ledger_location, parse_ledger_location
from connector.fields import fold_base_name
from connector.ledger import schema
from connector.ledger.entries import MAX_RUN_KEY, ConfirmedEntry, Entry, EntryValues, Ledger
from connector.ledger.opening import connect_file, read_ledger, wrap_connection
from connector.ledger.records import SUPPRESSION_SIZE_KEY_PREFIX, list_bases
from connector.ledger.store import Base, BatchStatement, Store, build_missing_ledger_error, make_storable
from connector.states import ENTRY_STATE_MACHINE, Event, State

P = ParamSpec("P")
T = TypeVar("T")

_ENTRY_COLUMNS = [column.name for column in schema.entry.c]
_READ_ENTRIES = BatchStatement(
    f"SELECT {', '.join(f'entry.{name}' for name in _ENTRY_COLUMNS)} FROM {{item}} "  # noqa: S608 - constants only
    "JOIN entry ON entry.base_key = item.column1 AND entry.identity = item.column2",
    "integer bytea",
)
_FIND_CONFIRMED_IDENTITIES = BatchStatement(
    "SELECT identity FROM {item} JOIN entry ON entry.base_key = item.column1 AND entry.identity = item.column2 "
    "WHERE state = :confirmed",
    "integer bytea",
)
_INSERT_ENTRY_SQL = (
    f"INSERT OR IGNORE INTO entry ({', '.join(_ENTRY_COLUMNS)}) VALUES ({', '.join('?' for _ in _ENTRY_COLUMNS)})"  # noqa: S608
)
_STATE_INDEX = _ENTRY_COLUMNS.index("state")


class PlannedLedger(Ledger):
    """A ledger in memory, which copies entries from the real ledger at `url` when the plan needs them. The real ledger
    is not changed."""

    def __init__(self, store: Store, url: str, account: str) -> None:
        super().__init__(store)
        # The real ledger may be on a server, which may answer slowly. So `LedgerQueue` must run whole transactions in
        # its thread, as for a ledger that is not a file.
        self.is_file = False
        self._url = url
        with self.transaction() as connection:
            self._real_bases = list_bases(connection, account)

    def find_entries(self, base: Base, identities: Sequence[bytes]) -> dict[bytes, Entry]:
        """Return the entries of these identities, as `Ledger.find_entries` does."""
        self._copy_entries(base, identities)
        return super().find_entries(base, identities)

    def find_identities_of_changed_rows(
        self, base: Base, digest_pairs: Sequence[tuple[bytes, bytes]]
    ) -> dict[bytes, bool]:
        """Return the identities of changed rows, as `Ledger.find_identities_of_changed_rows` does."""
        for real_base in self._find_real_bases(base):
            changed_identities = self._read_real_ledger(Ledger.find_identities_of_changed_rows, real_base, digest_pairs)
            digest_pairs = [digest_pair for digest_pair in digest_pairs if digest_pair[0] in changed_identities]
        self._copy_entries(base, [identity for identity, _ in digest_pairs])
        return super().find_identities_of_changed_rows(base, digest_pairs)

    def find_confirmed_entries(
        self, base: Base, first_identity: bytes, max_count: int, *, before_run_key: int = MAX_RUN_KEY
    ) -> list[ConfirmedEntry]:
        """Return CONFIRMED entries of the real ledger in the order of identities, as `Ledger.find_confirmed_entries`
        does."""
        find_entries = partial(Ledger.find_confirmed_entries, before_run_key=before_run_key)
        return [
            entry
            for real_base in self._find_real_bases(base)
            for entry in self._read_real_ledger(find_entries, real_base, first_identity, max_count)
        ][:max_count]

    def find_shown_entries(self, base: Base, first_identity: bytes, max_count: int) -> list[ConfirmedEntry]:
        """Return entries of the real ledger that the list has shown, as `Ledger.find_shown_entries` does."""
        return [
            entry
            for real_base in self._find_real_bases(base)
            for entry in self._read_real_ledger(Ledger.find_shown_entries, real_base, first_identity, max_count)
        ][:max_count]

    def list_confirmed_ids(
        self, base: Base, field: str, before_run_key: int, latest_run_end: float
    ) -> "tuple[bytes, array[int]]":
        """Return the identities and ids of CONFIRMED entries of the real ledger, as `Ledger.list_confirmed_ids`
        does."""
        identities, subscriber_ids = b"", array("q")
        for real_base in self._find_real_bases(base):
            identities_of_base, ids_of_base = self._read_real_ledger(
                Ledger.list_confirmed_ids, real_base, field, before_run_key, latest_run_end
            )
            identities += identities_of_base
            subscriber_ids += ids_of_base
        return identities, subscriber_ids

    def find_end_of_last_confirming_run(self, earliest_run_end: float, now: float) -> float | None:
        """Return the result of `Ledger.find_end_of_last_confirming_run` for the real ledger."""
        return read_ledger(self._url, lambda ledger: ledger.find_end_of_last_confirming_run(earliest_run_end, now))

    def find_opt_outs(self, base: Base, job: str) -> list[bytes]:
        """Return the job's opt-outs, as `Ledger.find_opt_outs` does, including opt-outs that the plan has recorded."""
        for real_base in self._find_real_bases(base):
            self._copy_entries(base, self._read_real_ledger(Ledger.find_opt_outs, real_base, job))
        return super().find_opt_outs(base, job)

    def list_entries(self, base: Base, field: str, after_identity: bytes, max_count: int) -> list[EntryValues]:
        """Return the next entries of the real ledger in the order of identities, as `Ledger.list_entries` does."""
        entry_lists = [
            self._read_real_ledger(Ledger.list_entries, real_base, field, after_identity, max_count)
            for real_base in self._find_real_bases(base)
        ]
        entry_by_identity = {entry[0]: entry for entry_list in entry_lists for entry in entry_list}
        return [entry_by_identity[identity] for identity in sorted(entry_by_identity)][:max_count]

    def record_listed_subscribers(
        self, base: Base, field: str, listed_subscribers: Sequence[tuple[bytes, int]]
    ) -> None:
        """Record in memory the subscribers that a listing shows, as `Ledger.record_listed_subscribers` does."""
        entry_keys = [
            (real_base.key, identity) for real_base in self._find_real_bases(base) for identity, _ in listed_subscribers
        ]
        confirmed_identities = self._read_real_ledger(_find_confirmed_identities, entry_keys) if entry_keys else set()
        # The entries of these identities are only in the real ledger.
        uncopied_identities = confirmed_identities - super().find_entries(base, list(confirmed_identities)).keys()
        subscribers = [subscriber for subscriber in listed_subscribers if subscriber[0] not in uncopied_identities]
        super().record_listed_subscribers(base, field, subscribers)

    def _find_real_bases(self, base: Base) -> list[Base]:
        """Return the bases of the real ledger that have the Id of `base`, or that have no Id and the name of `base`. In
        the ledger in memory, several of these bases may have become one base."""
        folded_name = None if base.name is None else fold_base_name(base.name)
        return [
            real_base
            for real_base in self._real_bases
            if (real_base.service_id is not None and real_base.service_id == base.service_id)
            or (
                real_base.service_id is None
                and real_base.name is not None
                and fold_base_name(real_base.name) == folded_name
            )
        ]

    def _copy_entries(self, base: Base, identities: Sequence[bytes]) -> None:
        """Copy entries from the real ledger, unless the ledger in memory has them. If another run is sending an entry,
        the copy is UNKNOWN."""
        for real_base in self._find_real_bases(base):
            entry_keys = [(real_base.key, identity) for identity in identities]
            rows = [[*row] for row in self._read_real_ledger(_read_entries, entry_keys)]
            for row in rows:
                row[0] = base.key
                state = State(row[_STATE_INDEX])
                row[_STATE_INDEX] = ENTRY_STATE_MACHINE.transitions.get((state, Event.DIED), state)
            if rows:
                self.connection.exec_driver_sql(_INSERT_ENTRY_SQL, [tuple(row) for row in rows])

    def _read_real_ledger(self, method: Callable[Concatenate[Ledger, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        result = read_ledger(self._url, lambda ledger: method(ledger, *args, **kwargs))
        if result is None:  # the ledger was deleted after the start of the plan
            raise build_missing_ledger_error(format_ledger_location(parse_ledger_location(self._url)))
        return result


@contextmanager
def open_planned_ledger(url: str, account: str) -> Iterator[PlannedLedger]:
    """Yield the ledger at `url` for a plan of this account. The ledger may be missing, and is not locked.

    Raises LedgerError if the ledger cannot be read. Raises ConfigurationError if the ledger has another version, the
    URL is invalid, or its driver is missing.
    """
    with closing(sqlite3.connect("", check_same_thread=False, isolation_level=None)) as memory_database:
        # 16 MB of memory; SQLite writes further pages of the database to a temporary file without a name.
        memory_database.execute("PRAGMA cache_size = -16000")
        with closing(connect_file(memory_database)) as connection:
            ledger_name = format_ledger_location(parse_ledger_location(url))
            store = wrap_connection(connection, f"{ledger_name}, as planned").store
            rows_by_table = read_ledger(url, partial(_read_rows_to_copy, account=make_storable(account))) or {}
            with store.transaction():
                for table, rows in rows_by_table.items():
                    if rows:
                        connection.execute(insert(table), rows)
            yield PlannedLedger(store, url, account)


def _read_rows_to_copy(ledger: Ledger, account: str) -> dict[Table, list[dict[str, Any]]]:
    base, entry = schema.base, schema.entry
    base_keys = select(base.c.base_key).where(base.c.account == account)
    statements = {
        schema.run: select(schema.run),
        schema.account: select(schema.account),
        schema.source_cursor: select(schema.source_cursor),
        schema.meta: select(schema.meta).where(schema.meta.c.name.startswith(SUPPRESSION_SIZE_KEY_PREFIX)),
        schema.problem: select(schema.problem).where(schema.problem.c.account == account),
        base: select(base).where(base.c.account == account),
        entry: select(entry).where(text(schema.IS_UNFINISHED_SQL), entry.c.base_key.in_(base_keys)),
    }
    return {
        table: [dict(row) for row in ledger.connection.execute(statement).mappings()]
        for table, statement in statements.items()
    }


def _find_confirmed_identities(ledger: Ledger, entry_keys: Sequence[tuple[int, bytes]]) -> set[bytes]:
    return {
        identity
        for (identity,) in ledger.store.select(_FIND_CONFIRMED_IDENTITIES, {"confirmed": State.CONFIRMED}, entry_keys)
    }


def _read_entries(ledger: Ledger, entry_keys: Sequence[tuple[int, bytes]]) -> list[Sequence[Any]]:
    return list(ledger.store.select(_READ_ENTRIES, {}, entry_keys))
