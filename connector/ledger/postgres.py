"""A ledger in PostgreSQL: one session, and commits that are on the server's disk.

A session that is lost is not opened again, since a campaign's lock went with it. It must be a session of its own: a
pooler that shares sessions between transactions would share the lock too. A body that has served its time goes with the
next vacuum.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b

from sqlalchemy import URL, Connection, create_engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from connector.databases import mask_secrets, show_place
from connector.driver_errors import describe_error
from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger.store import (
    Hold,
    build_error,
    describe_holder,
    describe_since,
    digest_campaign,
    translated,
    wait_for_lock,
)

_CONNECT_TIMEOUT_S = 10  # libpq's own is the kernel's, two minutes and more
_PREPARE_THRESHOLD = None  # never: a plan made when the tables were empty would be kept when they are large
_APPLICATION = "connector: "

_LEDGER = ("meta",)
# The schema in which the search path finds the first of these tables that there is; where there are none, the one they
# will be made in.
_ABOUT = text(
    "SELECT coalesce((SELECT nspname FROM unnest(CAST(:tables AS text[])) WITH ORDINALITY AS sought (name, rank) "
    "JOIN pg_class ON pg_class.oid = to_regclass(sought.name) JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "ORDER BY rank LIMIT 1), current_schema()), current_setting('server_encoding')"
)
# From there on it is the only one: the lock is the schema's, and no statement may reach past it.
_STAY = text("SELECT set_config('search_path', quote_ident(:schema), false)")
_SETTINGS = (
    "SET SESSION synchronous_commit = on",  # an intent is on the disk before its request leaves
    "SET SESSION idle_in_transaction_session_timeout = '60s'",  # a process that stands still keeps no lease for good
    "SET SESSION lock_timeout = '30s'",  # another client's lock on a table ends a run, and does not hang it
)
_ALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
"""libpq's: a server that cannot be reached any more is given up within about a minute."""
_TRY_LOCK = text("SELECT pg_try_advisory_lock(:key)")
_RELEASE = text("SELECT pg_advisory_unlock(:key)")
_ENDING_S = 1.0
"""A session that was just closed, or whose process was killed, keeps its locks until the server has seen its end."""

_HOLDER = text(
    "SELECT application_name, pid, backend_start FROM pg_locks JOIN pg_stat_activity USING (pid) "
    "WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND CAST(classid AS bigint) = :high AND CAST(objid AS bigint) = :low"  # the key's halves, as PostgreSQL shows it
)


@contextmanager
def open_session(url: URL, tables: Sequence[str] = _LEDGER) -> Iterator[tuple[Connection, str]]:
    """Yield a connection that takes no lock, and the one schema that it reaches: where the first of these tables is, or
    where they will be made. Raises LedgerError when the server cannot be used, and ConfigurationError when there is
    no driver."""
    name = show_place(url)
    with closing(_connect(url, name)) as connection:
        with translated(name):
            with connection.begin():
                schema, encoding = connection.execute(_ABOUT, {"tables": list(tables)}).one()
                for setting in _SETTINGS:
                    connection.exec_driver_sql(setting)
            _check_place(name, schema, encoding)
            with connection.begin():
                connection.execute(_STAY, {"schema": schema})
        yield connection, schema


@contextmanager
def read_server(url: URL) -> Iterator[Connection]:
    """Yield a connection to the ledger at `url` that only reads, in one transaction and as it is at one moment; it
    takes no lock. Raises as `open_session` does."""
    name = show_place(url)
    with closing(_connect(url, name)) as connection:
        connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with translated(name), connection.begin():
            schema, encoding = connection.execute(_ABOUT, {"tables": list(_LEDGER)}).one()
            _check_place(name, schema, encoding)
            connection.execute(_STAY, {"schema": schema})
            yield connection


def _connect(url: URL, name: str) -> Connection:
    given = {"connect_timeout": _CONNECT_TIMEOUT_S} | _ALIVE
    given = {name: value for name, value in given.items() if name not in url.query}
    options = {
        "application_name": _APPLICATION + describe_holder(),
        "client_encoding": "utf8",  # of a server without one SQLAlchemy could not even read the version
        "prepare_threshold": _PREPARE_THRESHOLD,
    }
    try:
        engine = create_engine(url, poolclass=NullPool, hide_parameters=True, connect_args=options | given)
        return engine.connect()
    except ImportError:
        raise ConfigurationError(
            "a ledger in PostgreSQL needs a driver that is not installed: pip install 'subscriber-connector[postgres]'"
        ) from None
    except SQLAlchemyError as error:
        raise build_error(name, mask_secrets(describe_error(error), url)) from None


def _check_place(name: str, schema: str | None, encoding: str) -> None:
    if schema is None:
        raise LedgerError(f"the ledger {name} has no schema: create one that the user's search_path names")
    if encoding != "UTF8":
        raise LedgerError(f"the ledger {name} is in a database whose encoding is {encoding}: use one in UTF8")


def compute_key(schema: str, purpose: bytes = b"connector ledger", what: bytes = b"") -> int:
    """Return the lock's number: PostgreSQL keeps them by database, and here by schema. Locks of others are no ledger's.

    `purpose` (at most 16 bytes) tells the kinds of lock apart, `what` (at most 64) those of one kind.
    """
    digest = blake2b(schema.encode(), key=what, digest_size=8, person=purpose).digest()
    return int.from_bytes(digest, "big", signed=True)


# The emails


def hold_campaigns(connection: Connection, schema: str, ledger: str) -> Hold:
    """Campaigns held by advisory locks of the session that also writes, so that both are lost at once; `ledger` says in
    messages where they are."""
    held: set[int] = set()

    @contextmanager
    def hold(name: str, wait_s: float, is_stopped: Callable[[], bool]) -> Iterator[None]:
        key = compute_key(schema, b"connector mail", digest_campaign(name))
        if key in held:  # PostgreSQL would give it to the same session once more
            raise LockedError(f"the campaign {name} is held by this very run")

        def try_lock() -> bool:
            with connection.begin():
                return bool(connection.execute(_TRY_LOCK, {"key": key}).scalar_one())

        def read_holder() -> str:
            high, low = divmod(key % 2**64, 2**32)
            with connection.begin():
                holder = connection.execute(_HOLDER, {"high": high, "low": low}).first()
            if holder is None:  # it has ended in this very moment
                return "another run"
            process = holder.application_name.removeprefix(_APPLICATION) or "another session"
            return f"{process}, {describe_since(holder.backend_start)} (PostgreSQL's process {holder.pid})"

        with translated(ledger):
            wait_for_lock(f"the campaign {name}", try_lock, read_holder, max(wait_s, _ENDING_S), is_stopped)
        held.add(key)
        try:
            yield
        finally:
            held.remove(key)
            if not connection.invalidated:  # it would be opened again, and has no lock to give back
                with suppress(SQLAlchemyError), connection.begin():  # lost in this very moment, the lock is, too
                    connection.execute(_RELEASE, {"key": key})

    return hold
