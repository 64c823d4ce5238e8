"""Makes a database a ledger of emails of this version; several processes may come to it at once.

All in one transaction, in which the others wait: whoever comes second finds what the first has made.
"""

from sqlalchemy import Connection, inspect, text

from connector.ledger.emails import schema
from connector.ledger.postgres import compute_key
from connector.ledger.schema import check_version, create_tables
from connector.ledger.store import translated

_ALONE = text("SELECT pg_advisory_xact_lock(:key)")
_KEY = compute_key("", b"connector emails")  # the whole database's, for a moment


def prepare_emails(connection: Connection, name: str) -> None:
    """Make the tables if there are none; the connection must be in no transaction.

    Raises LedgerError, and leaves all as it was: the ledger is of another version or identity rule, or the
    database is another application's.
    """
    with translated(name), connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(_ALONE, {"key": _KEY})  # in SQLite the transaction itself keeps others out
        if not _has_emails(connection, name):
            create_tables(connection, name, schema.metadata, schema.meta, schema.EMAILS_VERSION)


def has_emails(connection: Connection, name: str) -> bool:
    """Whether there are tables that can be used; raises LedgerError as `prepare_emails` does."""
    with translated(name), connection.begin():
        return _has_emails(connection, name)


def _has_emails(connection: Connection, name: str) -> bool:
    if not inspect(connection).has_table(schema.meta.name):
        return False
    check_version(connection, name, schema.meta, schema.EMAILS_VERSION)
    return True
