"""Opens a ledger: the lock, the database and its schema. Nothing is sent before all of that has gone well."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import StaticPool

from connector.errors import ConfigurationError, LedgerError
from connector.fields import IDENTITY_RULE
from connector.ledger import schema
from connector.ledger.faults import translated
from connector.ledger.lock import hold_lock
from connector.ledger.store import Ledger


@contextmanager
def open_ledger(url: str, *, wait_s: float = 0.0, is_stopped: Callable[[], bool] = lambda: False) -> Iterator[Ledger]:
    """Open the ledger at a SQLAlchemy URL, alone, for as long as the context lasts.

    Its connection may be used from one thread at a time. Raises LockedError when another run holds it for longer
    than `wait_s` seconds (or until `is_stopped`), LedgerError when it cannot be used, ConfigurationError when the URL
    is none.
    """
    path = _parse_path(url)
    with translated(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    with hold_lock(path.with_name(path.name + ".lock"), wait_s, is_stopped=is_stopped):
        engine = _build_engine(path)
        try:
            with translated(path):
                connection = engine.connect()
                _prepare_schema(connection, path)
            with closing(connection):
                yield Ledger(connection, path)
        finally:
            engine.dispose()


def _parse_path(url: str) -> Path:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ConfigurationError("CONNECTOR_LEDGER is no URL: write sqlite:////path/to/ledger.db") from None
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
        raise ConfigurationError(
            f"a ledger cannot be kept at {parsed.render_as_string(hide_password=True)}: "
            "use a SQLite file, sqlite:////path/to/ledger.db"
        )
    return Path(parsed.database)


def _build_engine(path: Path) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=StaticPool,
        connect_args={"check_same_thread": False},
        hide_parameters=True,
    )

    @event.listens_for(engine, "connect")
    def set_pragmas(dbapi_connection: Any, _record: object) -> None:
        dbapi_connection.isolation_level = None  # SQLAlchemy begins transactions, below; the driver never does
        for pragma in (
            "locking_mode = EXCLUSIVE",  # SQLite up to 3.51.2 can corrupt a WAL that two connections write
            "journal_mode = WAL",
            "synchronous = FULL",  # an intent is on the disk before its request leaves
            "secure_delete = ON",  # a body that has served its time is overwritten
            "cache_size = -16000",  # 16 MB
            "foreign_keys = ON",
        ):
            dbapi_connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin_immediately(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _prepare_schema(connection: Connection, path: Path) -> None:
    with connection.begin():
        if not inspect(connection).has_table("meta"):
            schema.metadata.create_all(connection)
            values = {"schema_version": schema.SCHEMA_VERSION, "identity_rule": IDENTITY_RULE}
            connection.execute(
                schema.meta.insert(), [{"name": name, "value": str(value)} for name, value in values.items()]
            )
            return
        stored: dict[str, str] = dict(connection.execute(text("SELECT name, value FROM meta")).all())
    for name, ours in (("schema_version", schema.SCHEMA_VERSION), ("identity_rule", IDENTITY_RULE)):
        if stored.get(name) != str(ours):
            raise LedgerError(
                f"{path}: this ledger has {name} {stored.get(name)}, and this version of the connector knows {ours}: "
                "use the version that wrote it, or a newer one"
            )
