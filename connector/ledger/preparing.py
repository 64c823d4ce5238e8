"""Makes a database a ledger of this version: new tables where there are none; another version is refused.

All in one transaction, which writes in any case: what cannot be written says so here, before anything is sent.
"""

from sqlalchemy import Connection, MetaData, Table, insert, inspect, select, update

from connector.errors import LedgerError
from connector.fields import IDENTITY_RULE
from connector.ledger import schema
from connector.ledger.faults import build_missing, translated


def prepare_schema(connection: Connection, name: str, *, may_make: bool) -> None:
    """Make the tables, if it `may_make` them and there are none; the connection must be in no transaction, and alone.

    Raises LedgerError, and leaves all as it was: the ledger is of another version or identity rule, the database is
    another application's, it cannot be written, there is no ledger and none may be made.
    """
    with translated(name), connection.begin():
        if not inspect(connection).has_table("meta"):
            if not may_make:
                raise build_missing(name)
            create_tables(connection, name, schema.metadata, schema.meta, schema.SCHEMA_VERSION)
            return
        check_version(connection, name)
        written = update(schema.meta).where(schema.meta.c.name == "schema_version")
        connection.execute(written.values(value=str(schema.SCHEMA_VERSION)))


def check_version(
    connection: Connection, name: str, meta: Table = schema.meta, version: int = schema.SCHEMA_VERSION
) -> None:
    """See that the ledger which is there has this `version` and identity rule; call it inside a transaction.

    Raises LedgerError when its table `meta` says otherwise.
    """
    stored: dict[str, str] = dict(connection.execute(select(meta.c.name, meta.c.value)).all())
    for key, ours in _describe_version(version).items():
        if stored.get(key) != ours:
            raise LedgerError(
                f"the ledger {name} has {key} {stored.get(key) or 'none'}, and this version of the connector reads "
                f"{key} {ours} alone. Nothing was changed: use the version of the connector that wrote the ledger"
            )


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
    connection.execute(
        insert(meta), [{"name": key, "value": value} for key, value in _describe_version(version).items()]
    )


def _describe_version(version: int) -> dict[str, str]:
    """What `meta` says of the tables beside it."""
    return {"schema_version": str(version), "identity_rule": str(IDENTITY_RULE)}
