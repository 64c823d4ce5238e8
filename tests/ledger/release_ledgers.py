"""Ledgers as earlier releases wrote them, with rows in every table."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, NullPool, create_engine, inspect, make_url

from connector.ledger.opening import open_email_log
from connector.ledger.schema import campaign, email, metadata
from connector.states import EmailState, State

SQL_FOLDER = Path(__file__).parent / "releases"
RELEASES = sorted({path.name.partition("-")[0] for path in SQL_FOLDER.glob("*.sql")})

Rows = list[dict[str, Any]]

DIGEST = b"d" * 16
# Column values that several rows share.
BASE_KEY_VALUES, RUN_KEY_VALUES = {"base_key": 3}, {"run_key": 5}
FINGERPRINT_VALUES = {"fingerprint": b"f" * 8, "reported": b"r" * 8, "reported_at": 4.5}
REFUSAL_VALUES = {"status": 422, "message": "no"}

ENTRIES: Rows = [
    {"state": State.SENDING, "body": b"{1}"},
    {"state": State.UNKNOWN, "body": b"{2}"},
    {"state": State.HELD, "body": b"{3}", "subscriber_id": 76, "message": "answered as bob@example.com"},
    {"state": State.HELD, "body": b"{4}", "run_key": None},
    {"state": State.REJECTED, "body": b"{5}", **REFUSAL_VALUES, **FINGERPRINT_VALUES},
    {"state": State.REJECTED, **REFUSAL_VALUES},
    {"state": State.REJECTED, "body": b"{6}", "status": 0, "message": "given up"},  # a person has dropped this entry
    {"state": State.CONFIRMED, "how": 1, "subscriber_id": 1},
    {
        "state": State.CONFIRMED,
        "how": 5,
        "subscriber_id": 2,
        "altered": "phone",
        "opted_out": "crm",
        **FINGERPRINT_VALUES,
    },
]
"""Entries in every state, with the values that the constraints allow in this state."""

ROWS_BY_TABLE: dict[str, Rows] = {
    "account": [
        {"account": "main", "largest_lag_s": 1.5, "limit_low": 5.0, "limit_high": 6.0, "limit_pause_s": 1.0}
        | {"limit_window_s": 60.0, "limit_found_at": 2.5}
    ],
    "base": [
        {**BASE_KEY_VALUES, "account": "main", "service_id": 7, "name": "News", "folded": "news"}
        | {"answered_id": 8, "answered_name": "Shop"}
    ],
    "meta": [{"name": "suppression of crm", "value": "12"}],
    "run": [
        {**RUN_KEY_VALUES, "run_id": "run-5", "job": "crm", "command": "sync", "started_at": 1.5, "finished_at": 2.5}
        | {"status": "ok", "suppressed_by": "crm", "is_holding": True, "rows_read": 100, "for_account": "main"},
        {"run_key": 6, "run_id": "run-6", "job": "crm", "command": "sync", "started_at": 3.5},
    ],
    "entry": [
        {**BASE_KEY_VALUES, "identity": bytes([index] * 16), "identity_field": 1 + index % 2, "attempts": 3}
        | RUN_KEY_VALUES
        | entry
        for index, entry in enumerate(ENTRIES)
    ],
    "problem": [
        {"account": "main", "job": "crm", "digest": DIGEST, "base": "News", "kind": "invalid", "is_identity": True}
        | {"field": "zip", "place": DIGEST, "run_id": "run-5", "first_seen": 1.5, "last_seen": 2.5}
    ],
    "receipt": [
        {**RUN_KEY_VALUES, **BASE_KEY_VALUES, "identity": DIGEST, "kind": "sent", "name": "ann@example.com"}
        | {"evidence": "answer", "message": "no"}
    ],
    "source_cursor": [{"job": "crm", "source": DIGEST, "value": "2026-01-01", **RUN_KEY_VALUES}],
}
"""Rows of all tables. For each column, at least one row has a value."""

CAMPAIGN_ROW = {"campaign_key": 1, "account": "main", "name": "spring", "is_closed": False}
EMAIL_ROW = {
    "email_key": 1, "campaign_key": 1, "recipient": DIGEST, "state": EmailState.UNKNOWN, "run_id": "run-5",
    "address": "ann@example.com", "intended_at": 1.5,
}  # fmt: skip


def write_ledger_of_release(url: str, release: str) -> None:
    """Create the tables of this release of the connector, without rows."""
    backend_name = make_url(url).get_backend_name()
    with begin_transaction(url) as connection:
        for statement in (SQL_FOLDER / f"{release}-{backend_name}.sql").read_text().split(";\n"):
            if statement:
                connection.exec_driver_sql(statement)


def write_rows_of_release(url: str) -> None:
    """Write the rows of ROWS_BY_TABLE and an email into a ledger of any version. Leave out tables and columns that the
    ledger does not have."""
    with begin_transaction(url) as connection:
        inspector = inspect(connection)
        for table in metadata.sorted_tables:
            if inspector.has_table(table.name):
                columns = {column["name"] for column in inspector.get_columns(table.name)}
                for row in ROWS_BY_TABLE[table.name]:
                    connection.execute(table.insert().values({name: row[name] for name in row if name in columns}))
    with open_email_log(url) as email_log, email_log.transaction():
        email_log.connection.execute(campaign.insert().values(CAMPAIGN_ROW))
        email_log.connection.execute(email.insert().values(EMAIL_ROW))


def read_all_rows(url: str) -> dict[str, Rows]:
    """Return the rows of every table of a ledger of any version and of its emails, in a fixed order."""
    with begin_transaction(url) as connection, open_email_log(url) as email_log, email_log.transaction():
        return read_tables(connection) | read_tables(email_log.connection)


def read_tables(connection: Connection) -> dict[str, Rows]:
    return {
        name: [dict(row) for row in connection.exec_driver_sql(f"SELECT * FROM {name} ORDER BY 1, 2").mappings()]
        for name in inspect(connection).get_table_names()
    }


def begin_transaction(url: str) -> AbstractContextManager[Connection]:
    """Return a context with a transaction on the database of a ledger of any version."""
    database_url = make_url(url)
    if database_url.get_backend_name() == "postgresql":
        database_url = database_url.set(drivername="postgresql+psycopg")
    return create_engine(database_url, poolclass=NullPool).begin()
