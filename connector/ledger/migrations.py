"""The way from each older version of the schema to the next, as SQL frozen when the step was written.

A step never asks `schema` what the tables look like today: it must still do the same when they look otherwise. It runs
inside the transaction that also writes the new version, so that a ledger is of one version or the other.
"""

from collections.abc import Callable

from sqlalchemy import Connection

_RUN_SUPPRESSED_BY = "ALTER TABLE run ADD COLUMN suppressed_by TEXT"
_RUN_IS_HOLDING = "ALTER TABLE run ADD COLUMN is_holding BOOLEAN"

# SQLite can change a CHECK only by a new table. No table refers to this one, so its foreign keys hold throughout.
_ENTRY_2 = """
CREATE TABLE entry_2 (
    base_key INTEGER NOT NULL,
    identity BLOB NOT NULL,
    identity_field SMALLINT NOT NULL,
    state SMALLINT NOT NULL,
    how SMALLINT,
    subscriber_id BIGINT,
    fingerprint BLOB,
    body BLOB,
    status SMALLINT,
    message TEXT,
    attempts SMALLINT DEFAULT '0' NOT NULL,
    run_key INTEGER,
    PRIMARY KEY (base_key, identity),
    CONSTRAINT identity_is_whole CHECK (length(identity) = 16),
    CONSTRAINT state_is_known CHECK (state BETWEEN 1 AND 5),
    CONSTRAINT confirmed_means_an_id CHECK ((state = 4) = (subscriber_id IS NOT NULL)),
    CONSTRAINT a_body_until_final CHECK (state NOT IN (1, 2, 3) OR body IS NOT NULL),
    CONSTRAINT no_body_once_confirmed CHECK (state <> 4 OR body IS NULL),
    CONSTRAINT rejected_means_a_status CHECK ((state = 5) = (status IS NOT NULL)),
    CONSTRAINT confirmed_says_how CHECK ((state = 4) = (how IS NOT NULL)),
    FOREIGN KEY(base_key) REFERENCES base (base_key),
    FOREIGN KEY(run_key) REFERENCES run (run_key)
) WITHOUT ROWID
"""
_ENTRY_COLUMNS_1 = (
    "base_key, identity, identity_field, state, how, subscriber_id, fingerprint, body, status, message, attempts, "
    "run_key"
)
_COPY_ENTRIES = f"INSERT INTO entry_2 ({_ENTRY_COLUMNS_1}) SELECT {_ENTRY_COLUMNS_1} FROM entry"  # noqa: S608 - constants only

_REFUSAL_2 = """
CREATE TABLE refusal (
    account TEXT NOT NULL,
    kind TEXT NOT NULL,
    base_key INTEGER NOT NULL,
    identity BLOB NOT NULL,
    has_created BOOLEAN NOT NULL,
    is_checked BOOLEAN NOT NULL,
    PRIMARY KEY (account, kind),
    FOREIGN KEY(base_key) REFERENCES base (base_key)
)
"""


def _from_1_to_2(connection: Connection) -> None:
    """A rejected entry may keep its body, runs say by which rules they sent, kinds of refusal are remembered.

    Version 1 was kept in SQLite alone; what it had rejected stays without a body.
    """
    for statement in (
        _RUN_SUPPRESSED_BY,
        _RUN_IS_HOLDING,
        _ENTRY_2,
        _COPY_ENTRIES,
        "DROP TABLE entry",
        "ALTER TABLE entry_2 RENAME TO entry",
        _REFUSAL_2,
    ):
        connection.exec_driver_sql(statement)


_CURSOR_3 = """
CREATE TABLE source_cursor (
    job TEXT NOT NULL,
    source {bytes} NOT NULL,
    value TEXT NOT NULL,
    run_key INTEGER NOT NULL,
    PRIMARY KEY (job, source),
    CONSTRAINT source_is_whole CHECK (length(source) = 16),
    FOREIGN KEY(run_key) REFERENCES run (run_key)
)
"""
_BYTES = {"sqlite": "BLOB", "postgresql": "BYTEA"}


def _from_2_to_3(connection: Connection) -> None:
    """Cursors of incremental sources are kept. Version 2 was kept in PostgreSQL, too."""
    connection.exec_driver_sql(_CURSOR_3.format(bytes=_BYTES[connection.dialect.name]))


_MAPPING_4 = """
CREATE TABLE mapping (
    mapping_key {key} NOT NULL,
    fields TEXT NOT NULL,
    PRIMARY KEY (mapping_key),
    UNIQUE (fields)
)
"""
_KEYS = {"sqlite": "INTEGER", "postgresql": "SERIAL"}
_MAPPING_KEY = "ALTER TABLE entry ADD COLUMN mapping_key INTEGER REFERENCES mapping (mapping_key)"
_FIELD_DIGESTS = (
    "ALTER TABLE entry ADD COLUMN field_digests {bytes} "
    "CONSTRAINT digests_have_a_mapping CHECK ((mapping_key IS NULL) = (field_digests IS NULL))"
)
_RUN_ROWS_READ = "ALTER TABLE run ADD COLUMN rows_read BIGINT"
_RUN_ACCOUNT = "ALTER TABLE run ADD COLUMN for_account TEXT"


def _from_3_to_4(connection: Connection) -> None:
    """Entries say field by field what was sent, and runs for which account they were and how many rows they read; of
    those there it is not known."""
    dialect = connection.dialect.name
    connection.exec_driver_sql(_MAPPING_4.format(key=_KEYS[dialect]))
    connection.exec_driver_sql(_MAPPING_KEY)
    connection.exec_driver_sql(_FIELD_DIGESTS.format(bytes=_BYTES[dialect]))
    connection.exec_driver_sql(_RUN_ROWS_READ)
    connection.exec_driver_sql(_RUN_ACCOUNT)


STEPS: dict[int, Callable[[Connection], None]] = {1: _from_1_to_2, 2: _from_2_to_3, 3: _from_3_to_4}
"""By the version that a step leaves."""


def migrate(connection: Connection, version: int) -> None:
    """Take a ledger of `version` through every step that there is; the caller's transaction writes the new version."""
    for step in range(version, max(STEPS) + 1):
        STEPS[step](connection)
