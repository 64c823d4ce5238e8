"""Makes a database a ledger of this version: new tables where there are none, migrations where they are old.

All in one transaction, which writes in any case: what cannot be written says so here, before anything is sent.
"""

from sqlalchemy import Connection, inspect, text

from connector.errors import LedgerError
from connector.fields import IDENTITY_RULE
from connector.ledger import schema
from connector.ledger.faults import build_missing, translated
from connector.ledger.migrations import migrate

_READ = text("SELECT name, value FROM meta")
_WRITE = text("UPDATE meta SET value = :value WHERE name = :name")
_ADD = text("INSERT INTO meta (name, value) VALUES (:name, :value)")


def prepare_schema(connection: Connection, name: str, *, may_make: bool) -> None:
    """Make the tables, if it `may_make` them, or bring them up to this version; the connection must be in no
    transaction, and alone.

    Raises LedgerError, and leaves all as it was: the ledger is of a newer version or another identity rule, the
    database is another application's, it cannot be written, there is no ledger and none may be made.
    """
    with translated(name), connection.begin():
        if not inspect(connection).has_table("meta"):
            if not may_make:
                raise build_missing(name)
            _create(connection, name)
            return
        migrate(connection, read_version(connection, name))
        connection.execute(_WRITE, {"name": "schema_version", "value": str(schema.SCHEMA_VERSION)})


def read_version(connection: Connection, name: str) -> int:
    """The schema's version of the ledger that is there; call it inside a transaction.

    Raises LedgerError when it is none that can be read here: of a newer version, or of another identity rule.
    """
    stored: dict[str, str] = dict(connection.execute(_READ).all())
    if stored.get("identity_rule") != str(IDENTITY_RULE):
        raise _build_stranger(name, "identity_rule", stored.get("identity_rule"), IDENTITY_RULE)
    version = stored.get("schema_version", "")
    if not version.isascii() or not version.isdigit() or not 1 <= int(version) <= schema.SCHEMA_VERSION:
        raise _build_stranger(name, "schema_version", version, schema.SCHEMA_VERSION)
    return int(version)


def _create(connection: Connection, name: str) -> None:
    tables = set(inspect(connection).get_table_names())
    if connection.dialect.name != "sqlite":
        tables &= set(schema.metadata.tables)  # a server's database may be shared; a file may not
    if tables:
        raise LedgerError(
            f"{name}: there is no ledger, but tables of something else ({', '.join(sorted(tables)[:3])}): "
            "give the ledger a file, a database or a schema of its own"
        )
    schema.metadata.create_all(connection, checkfirst=False)
    values = {"schema_version": schema.SCHEMA_VERSION, "identity_rule": IDENTITY_RULE}
    connection.execute(_ADD, [{"name": key, "value": str(value)} for key, value in values.items()])


def _build_stranger(name: str, what: str, theirs: str | None, ours: int) -> LedgerError:
    return LedgerError(
        f"{name}: this ledger has {what} {theirs or 'none'}, and this version of the connector knows {ours}: "
        "use the version that wrote it, or a newer one"
    )
