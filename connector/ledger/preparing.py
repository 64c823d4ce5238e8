"""Makes a database a ledger of this version: new tables where there are none, migrations where they are old.

All in one transaction, which writes in any case: what cannot be written says so here, before anything is sent.
"""

from sqlalchemy import Connection, MetaData, Table, insert, inspect, select, update

from connector.errors import LedgerError
from connector.fields import IDENTITY_RULE
from connector.ledger import schema
from connector.ledger.faults import build_missing, translated
from connector.ledger.migrations import migrate


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
            create_tables(connection, name, schema.metadata, schema.meta, schema.SCHEMA_VERSION)
            return
        migrate(connection, read_version(connection, name))
        written = update(schema.meta).where(schema.meta.c.name == "schema_version")
        connection.execute(written.values(value=str(schema.SCHEMA_VERSION)))


def read_version(
    connection: Connection, name: str, meta: Table = schema.meta, newest: int = schema.SCHEMA_VERSION
) -> int:
    """The schema's version of the ledger that is there, as its table `meta` tells it; call it inside a transaction.

    Raises LedgerError when it is none that can be read here: newer than `newest`, or of another identity rule.
    """
    stored: dict[str, str] = dict(connection.execute(select(meta.c.name, meta.c.value)).all())
    if stored.get("identity_rule") != str(IDENTITY_RULE):
        raise _build_stranger(name, "identity_rule", stored.get("identity_rule"), IDENTITY_RULE)
    version = stored.get("schema_version", "")
    if not version.isascii() or not version.isdigit() or not 1 <= int(version) <= newest:
        raise _build_stranger(name, "schema_version", version, newest)
    return int(version)


def create_tables(connection: Connection, name: str, metadata: MetaData, meta: Table, version: int) -> None:
    """Make all tables, and write the version into `meta`, one of them; call it inside a transaction.

    Raises LedgerError where there are tables of something else: in a file any, in a server's schema any of that name.
    """
    tables = set(inspect(connection).get_table_names())
    if connection.dialect.name != "sqlite":
        tables &= set(metadata.tables)  # a server's database may be shared; a file may not
    if tables:
        raise LedgerError(
            f"{name}: there is no ledger, but tables of something else ({', '.join(sorted(tables)[:3])}): "
            "give the ledger a file, a database or a schema of its own"
        )
    metadata.create_all(connection, checkfirst=False)
    values = {"schema_version": version, "identity_rule": IDENTITY_RULE}
    connection.execute(insert(meta), [{"name": key, "value": str(value)} for key, value in values.items()])


def _build_stranger(name: str, what: str, theirs: str | None, ours: int) -> LedgerError:
    return LedgerError(
        f"{name}: this ledger has {what} {theirs or 'none'}, and this version of the connector knows {ours}: "
        "use the version that wrote it, or a newer one"
    )
