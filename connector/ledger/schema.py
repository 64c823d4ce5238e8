"""The ledger's tables, with CHECK constraints for every entry. A run upgrades a ledger of an older version (1 to 4) to
SCHEMA_VERSION. The connector refuses a ledger of a newer version."""

from collections.abc import Mapping

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    event,
    insert,
    inspect,
    select,
    update,
)

from connector.errors import ConfigurationError, ForeignLedgerError
from connector.fields import IDENTITY_RULE_VERSION
from connector.states import EmailState, State, list_states_sql
from connector.subscribers.identity import FINGERPRINT_BYTES, IDENTITY_BYTES

SCHEMA_VERSION = 5  # increased with every change of the columns and constraints
EMAILS_VERSION = 1  # the version of the tables of emails
# Version 1 has no column `opted_out`. Versions 1 and 2 have no table `problem`.
# Versions 1, 2 and 3 have no table `receipt`. In versions 1 to 4, a DROPPED entry is REJECTED with the status 0.
_OLDEST_UPGRADABLE_VERSION = 1
SOURCE_DIGEST_BYTES = 16  # length of the digest that identifies an incremental source

IDENTITY_FIELD_NUMBERS = {"email": 1, "client_user_id": 2}
"""The number of each field that can be the identity. The ledger stores this number in each entry, because a run can
look up an unknown create only by the field of its identity."""

CONFIRMATION_CODES = {"created": 1, "settled": 2, "found": 3, "accepted": 4, "shown": 5}
"""The numbers of the ways in which an entry was confirmed (column `how`).

- `created`: The create was answered with an id.
- `settled`: The look-up of an unknown or held create found the subscriber.
- `found`: The subscriber was found in the service without a create by the connector.
- `accepted`: The answer had another base or identity, and a person accepted the answer.
- `shown`: The list has shown the subscriber. Only a few entries of each base get this number, in place of the number
  with which they were confirmed. Later runs look up the subscribers of these entries to check the account
  (architecture 4.10)."""

IS_SHOWN_SQL = f"how = {CONFIRMATION_CODES['shown']}"
"""SQL: the condition of the index of shown entries. A statement about shown entries must have this text word for word.
Otherwise the database does not use the index."""

IS_UNFINISHED_SQL = f"state <> {State.CONFIRMED}"
"""SQL: the condition of the index of unfinished entries. A statement about unfinished entries must have this text word
for word. Otherwise the database does not use the index."""

IS_OPT_OUT_SQL = "opted_out IS NOT NULL"
"""SQL: the condition of the index of opt-outs. A statement about opt-outs must have this text word for word. Otherwise
the database does not use the index."""

_OPT_OUT_IS_CONFIRMED_SQL = f"opted_out IS NULL OR state = {State.CONFIRMED}"


def _build_stored_condition(state_class: type[State] | type[EmailState]) -> str:
    """Return the SQL condition that the state of an entry or an email is valid. The state NONE is not stored."""
    return f"state IN ({', '.join(str(state.value) for state in state_class if state is not state_class.NONE)})"


metadata = MetaData()

meta = Table("meta", metadata, Column("name", String(40), primary_key=True), Column("value", Text, nullable=False))

run = Table(
    "run",
    metadata,
    Column("run_key", Integer, primary_key=True),
    Column("run_id", String(40), nullable=False, unique=True),
    Column("job", Text, nullable=False),
    Column("command", Text, nullable=False),
    Column("started_at", Float, nullable=False),  # Unix seconds
    Column("finished_at", Float),
    Column("status", String(10)),
    # The job whose suppression list must be read before the creates of this run are sent again.
    Column("suppressed_by", Text),
    # Whether a person must decide about unknown creates of the run whose subscribers are proved absent (null: no).
    Column("is_holding", Boolean),
    Column("rows_read", BigInteger),  # number of rows of the source; null if the run has not read the whole source
    Column("for_account", Text),  # account of the run; null: not known
)

base = Table(
    "base",
    metadata,
    Column("base_key", Integer, primary_key=True),
    Column("account", Text, nullable=False),
    Column("service_id", BigInteger),
    Column("name", Text),
    Column("folded", Text),  # the normal form of the name (connector.fields.fold_base_name)
    # If the answer to a create in this base named another base (architecture 4.9): the id and the name of the other
    # base. Otherwise these columns are null.
    Column("answered_id", BigInteger),
    Column("answered_name", Text),
    CheckConstraint("service_id IS NOT NULL OR name IS NOT NULL", name="base_is_named"),
    UniqueConstraint("account", "service_id", name="one_line_a_base"),
)

entry = Table(
    "entry",
    metadata,
    Column("base_key", Integer, ForeignKey(base.c.base_key), primary_key=True),
    Column("identity", LargeBinary(IDENTITY_BYTES), primary_key=True),
    Column("identity_field", SmallInteger, nullable=False),  # one of the numbers in IDENTITY_FIELD_NUMBERS
    Column("state", SmallInteger, nullable=False),
    Column("how", SmallInteger),  # one of the codes in CONFIRMATION_CODES
    Column("subscriber_id", BigInteger),  # if the state is HELD: the subscriber id in the answer
    # Fingerprint of the row that was sent; null: a list showed the subscriber, and no row has been compared yet.
    Column("fingerprint", LargeBinary(FINGERPRINT_BYTES)),
    Column("body", LargeBinary),
    Column("status", SmallInteger),  # HTTP status of a refusal
    Column("message", Text),  # message of a refusal; if the state is HELD, the service's answer to the create
    Column("attempts", SmallInteger, nullable=False, server_default="0"),
    Column("run_key", Integer, ForeignKey(run.c.run_key)),
    # If the state is CONFIRMED: the fingerprint of the row that a run reported as changed, and the time of the report.
    # If the state is REJECTED or DROPPED: the fingerprint of the row at a later look-up, and the time of this look-up.
    Column("reported", LargeBinary(FINGERPRINT_BYTES)),
    Column("reported_at", Float),  # Unix seconds
    Column("altered", Text),  # names of the fields that the service altered, separated by blanks
    Column("opted_out", Text),  # the job whose row says inactive while the service shows the subscriber as active
    CheckConstraint(f"length(identity) = {IDENTITY_BYTES}", name="identity_is_whole"),
    CheckConstraint(_build_stored_condition(State), name="state_is_known"),
    CheckConstraint(f"state <> {State.CONFIRMED} OR subscriber_id IS NOT NULL", name="confirmed_means_an_id"),
    CheckConstraint(
        f"state IN ({State.CONFIRMED}, {State.HELD}) OR subscriber_id IS NULL", name="an_id_means_that_it_was_answered"
    ),
    CheckConstraint(
        f"state NOT IN {list_states_sql(lambda traits: traits.is_unsettled)} OR body IS NOT NULL",
        name="a_body_until_final",
    ),
    CheckConstraint(f"state <> {State.CONFIRMED} OR body IS NULL", name="no_body_once_confirmed"),
    CheckConstraint(f"(state = {State.REJECTED}) = (status IS NOT NULL)", name="rejected_means_a_status"),
    CheckConstraint(f"(state = {State.CONFIRMED}) = (how IS NOT NULL)", name="confirmed_says_how"),
    CheckConstraint("(reported IS NULL) = (reported_at IS NULL)", name="reported_at_a_time"),
    CheckConstraint(_OPT_OUT_IS_CONFIRMED_SQL, name="opted_out_means_confirmed"),
    sqlite_with_rowid=False,
)

_CREATE_UNFINISHED_INDEX = DDL(f"CREATE INDEX unfinished_entries ON entry (state, base_key) WHERE {IS_UNFINISHED_SQL}")  # type: ignore[no-untyped-call] # SQLAlchemy's own
"""The index contains only unfinished entries. Few entries are unfinished, and millions are confirmed. The index is
written as DDL, because an `Index` of SQLAlchemy would import PostgreSQL's dialect for a ledger in SQLite."""

event.listen(entry, "after_create", _CREATE_UNFINISHED_INDEX)

# Finds the entry with a subscriber id (architecture 4.9). The index has 27 bytes for each entry.
_CREATE_ID_INDEX = DDL(
    "CREATE INDEX IF NOT EXISTS subscriber_ids ON entry (subscriber_id) WHERE subscriber_id IS NOT NULL"
)  # type: ignore[no-untyped-call]

_CREATE_SHOWN_INDEX = DDL(
    f"CREATE INDEX IF NOT EXISTS shown_entries ON entry (base_key, identity) WHERE {IS_SHOWN_SQL}"
)  # type: ignore[no-untyped-call]

# Adds the column of opt-outs to a ledger of version 1 in PostgreSQL.
_ADD_OPT_OUT_COLUMN = DDL(  # type: ignore[no-untyped-call]
    "ALTER TABLE entry ADD COLUMN IF NOT EXISTS opted_out TEXT "
    f"CONSTRAINT opted_out_means_confirmed CHECK ({_OPT_OUT_IS_CONFIRMED_SQL})"
)

_CREATE_OPT_OUT_INDEX = DDL(
    f"CREATE INDEX IF NOT EXISTS opt_outs ON entry (base_key, opted_out) WHERE {IS_OPT_OUT_SQL}"
)  # type: ignore[no-untyped-call]

account = Table(
    "account",
    metadata,
    Column("account", Text, primary_key=True),
    # The longest known time from a create until the list showed the subscriber.
    Column("largest_lag_s", Float, nullable=False),
    # The limit that the last run found is from limit_low to limit_high requests/s; null: no limit is known.
    Column("limit_low", Float),
    Column("limit_high", Float),
    Column("limit_pause_s", Float),  # the pause that the service asked for
    Column("limit_window_s", Float),  # the longest period in which the limit may count requests
    Column("limit_found_at", Float),  # Unix seconds
)

source_cursor = Table(
    "source_cursor",
    metadata,
    Column("job", Text, primary_key=True),
    Column("source", LargeBinary(SOURCE_DIGEST_BYTES), primary_key=True),  # a digest of source, base and cursor column
    Column("value", Text, nullable=False),  # the largest value that was read
    Column("run_key", Integer, ForeignKey(run.c.run_key), nullable=False),  # the run that read the value
    CheckConstraint(f"length(source) = {SOURCE_DIGEST_BYTES}", name="source_is_whole"),
)

problem = Table(
    "problem",
    metadata,
    Column("account", Text, primary_key=True),
    Column("job", Text, primary_key=True),
    # Digest of the identity, or of the row's used cells if no identity can be read.
    Column("digest", LargeBinary(IDENTITY_BYTES), primary_key=True),
    Column("base", Text, primary_key=True),  # the cell of the column that names the base of each row; "": no column
    Column("kind", String(10), primary_key=True),  # the name of an outcome, `held` or `opted_out`
    Column("is_identity", Boolean, nullable=False),  # whether `digest` is the digest of an identity
    Column("field", Text, nullable=False),
    Column("place", LargeBinary(IDENTITY_BYTES), nullable=False),  # digest of the run, the file and the row number
    Column("run_id", String(40), nullable=False),  # the last run that has seen the problem
    Column("first_seen", Float, nullable=False),  # Unix seconds
    Column("last_seen", Float, nullable=False),
    CheckConstraint(f"length(digest) = {IDENTITY_BYTES}", name="digest_is_whole"),
)

receipt = Table(
    "receipt",  # the outbox; a row is deleted when its receipt is at the destination
    metadata,
    Column("run_key", Integer, ForeignKey(run.c.run_key), primary_key=True),
    Column("base_key", Integer, primary_key=True),
    Column("identity", LargeBinary(IDENTITY_BYTES), primary_key=True),
    Column("kind", String(8), nullable=False),  # a value of connector.ledger.receipts.ReceiptKind
    Column("name", Text, nullable=False),  # the text of the identity
    Column("evidence", String(8)),
    Column("message", Text),
    sqlite_with_rowid=False,
)

# The tables of emails, which are in a separate file for SQLite, and in the ledger's schema for PostgreSQL

emails_metadata = MetaData()

email_meta = Table(
    "email_meta", emails_metadata, Column("name", String(40), primary_key=True), Column("value", Text, nullable=False)
)
"""Values by their names: the version of these tables, the time at which a backup was restored (`restored_at`), the
latest start and reopening of each campaign, and the sizes of suppression lists."""

campaign = Table(
    "campaign",
    emails_metadata,
    Column("campaign_key", Integer, primary_key=True),
    Column("account", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("is_closed", Boolean, nullable=False),  # true after a restore, until a person reopens the campaign
    UniqueConstraint("account", "name", name="one_line_a_campaign"),
)

email = Table(
    "email",
    emails_metadata,
    Column("email_key", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("campaign_key", Integer, ForeignKey(campaign.c.campaign_key)),  # null: a single email (release 0.2.0)
    Column("account", Text),  # only for a single email; a campaign has its own account
    Column("recipient", LargeBinary(IDENTITY_BYTES)),  # the digest of the normalised address
    Column("state", SmallInteger, nullable=False),
    Column("address", Text),  # the address as a text; null as soon as the email is SENT
    Column("run_id", String(40), nullable=False),
    Column("intended_at", Float, nullable=False),  # Unix seconds
    Column("sent_at", Float),  # time of the answer, Unix seconds
    Column("request_id", BigInteger),  # SendMessageRequestId and MessageId (service-api.md 2.3)
    Column("message_id", Text),
    Column("status", SmallInteger),  # HTTP status of a refusal
    Column("words", Text),  # message of the refusal
    CheckConstraint(f"length(recipient) = {IDENTITY_BYTES}", name="recipient_is_whole"),
    CheckConstraint("(campaign_key IS NULL) = (recipient IS NULL)", name="a_campaign_knows_its_recipients"),
    CheckConstraint("(campaign_key IS NULL) = (account IS NOT NULL)", name="an_email_has_one_account"),
    CheckConstraint(_build_stored_condition(EmailState), name="state_is_known"),
    CheckConstraint(f"(state = {EmailState.SENT}) = (request_id IS NOT NULL)", name="sent_means_a_number"),
    CheckConstraint(f"(state = {EmailState.SENT}) = (message_id IS NOT NULL)", name="sent_means_a_message_id"),
    CheckConstraint(f"(state = {EmailState.SENT}) = (sent_at IS NOT NULL)", name="sent_means_a_time"),
    CheckConstraint(f"(state = {EmailState.SENT}) = (address IS NULL)", name="an_address_until_sent"),
    CheckConstraint(f"(state = {EmailState.REFUSED}) = (status IS NOT NULL)", name="refused_means_a_status"),
    CheckConstraint(f"(state = {EmailState.REFUSED}) = (words IS NOT NULL)", name="refused_means_words"),
    UniqueConstraint("campaign_key", "recipient", name="one_email_a_recipient"),
)

_VERSION_BY_TABLE = {
    table.name: {"schema_version": str(version), "identity_rule": str(IDENTITY_RULE_VERSION)}
    for table, version in ((meta, SCHEMA_VERSION), (email_meta, EMAILS_VERSION))
}
"""The rows with the version in `meta` and in `email_meta`, by the name of the table."""


def create_or_check_tables(connection: Connection, name: str, *, may_create: bool) -> bool:
    """Create missing tables (with `may_create`), and upgrade the tables of an older version. Return whether the ledger
    exists now. Call this function inside a transaction.

    The function always writes to the ledger. So the run fails before it sends anything if the ledger cannot be written.
    Raises ConfigurationError if the ledger has another version or identity rule, and ForeignLedgerError if the
    database belongs to another application.
    """
    if not is_ledger(connection):
        if may_create:
            create_tables(connection, name, metadata, meta)
            _create_indexes(connection)
        return may_create
    if is_upgradable_version(read_version(connection)):
        _upgrade_entries(connection)
        metadata.create_all(connection, [problem, receipt], checkfirst=True)
    else:
        check_version(connection, name)
    _create_indexes(connection)
    connection.execute(update(meta).where(meta.c.name == "schema_version").values(value=str(SCHEMA_VERSION)))
    return True


def _upgrade_entries(connection: Connection) -> None:
    """Give the table of entries the columns and constraints of this version. Change dropped creates to the state
    DROPPED. In old ledgers, dropped creates are REJECTED and have the status 0.

    SQLite cannot change a constraint, so in SQLite the function copies the table, in ten seconds for a million
    entries."""
    if connection.dialect.name == "sqlite":
        names = ", ".join(column["name"] for column in inspect(connection).get_columns(entry.name))
        connection.exec_driver_sql("DROP INDEX unfinished_entries")  # the new table has an index of this name
        # A user may have made a view of this table. Without this setting, the view would follow the renamed table, and
        # break when the renamed table is deleted.
        connection.exec_driver_sql("PRAGMA legacy_alter_table = ON")
        connection.exec_driver_sql("ALTER TABLE entry RENAME TO old_entry")
        connection.exec_driver_sql("PRAGMA legacy_alter_table = OFF")
        entry.create(connection)
        connection.exec_driver_sql(f"INSERT INTO entry ({names}) SELECT {names} FROM old_entry")  # noqa: S608
        connection.exec_driver_sql("DROP TABLE old_entry")
    else:
        connection.execute(_ADD_OPT_OUT_COLUMN)
        connection.exec_driver_sql("ALTER TABLE entry DROP CONSTRAINT state_is_known")
        condition_sql = _build_stored_condition(State)
        connection.exec_driver_sql(f"ALTER TABLE entry ADD CONSTRAINT state_is_known CHECK ({condition_sql})")
    is_dropped = (entry.c.state == State.REJECTED.value) & (entry.c.status == 0)
    connection.execute(update(entry).where(is_dropped).values(state=State.DROPPED.value, status=None))


def _create_indexes(connection: Connection) -> None:
    """Create the indexes that an older ledger lacks. For a million entries, this takes two seconds."""
    for create_index in (_CREATE_ID_INDEX, _CREATE_SHOWN_INDEX, _CREATE_OPT_OUT_INDEX):
        connection.execute(create_index)


def has_email_tables(connection: Connection, ledger_name: str) -> bool:
    """Return whether the database has the tables of emails. Call this function inside a transaction. Raises the errors
    of `check_version`."""
    if not inspect(connection).has_table(email_meta.name):
        return False
    check_version(connection, ledger_name, email_meta)
    return True


def is_ledger(connection: Connection) -> bool:
    """Return whether the database has the table `meta` with the columns of a ledger. Call this function inside a
    transaction."""
    inspector = inspect(connection)
    return inspector.has_table(meta.name) and {column["name"] for column in inspector.get_columns(meta.name)} == set(
        meta.columns.keys()
    )


def is_upgrade_due(connection: Connection) -> bool:
    """Return whether the database has an older ledger that a run can upgrade. Call this function inside a
    transaction."""
    return is_ledger(connection) and is_upgradable_version(read_version(connection))


def read_version(connection: Connection, meta: Table = meta) -> dict[str, str]:
    """Return the content of the table `meta` of a ledger. Call this function inside a transaction."""
    value_by_name: dict[str, str] = dict(connection.execute(select(meta.c.name, meta.c.value)).all())
    return value_by_name


MOVED_TO_KEY = "moved_to"
"""The name of the row in `meta` that has the location of the ledger's copy. No run can use a ledger with this row."""


def is_upgradable_version(stored_version: Mapping[str, str]) -> bool:
    """Return whether a run can upgrade a ledger with this version. The version is the content of the table `meta`, and
    must be older than the version of this program."""
    version_number = stored_version.get("schema_version", "")
    return (
        version_number.isdecimal()
        and _OLDEST_UPGRADABLE_VERSION <= int(version_number) < SCHEMA_VERSION
        and MOVED_TO_KEY not in stored_version
        and stored_version.get("identity_rule") == str(IDENTITY_RULE_VERSION)
    )


def is_current(stored_version: Mapping[str, str], meta: Table) -> bool:
    """Return whether this program reads and writes the stored version, which is the content of the table `meta`."""
    return _VERSION_BY_TABLE[meta.name].items() <= stored_version.items() and MOVED_TO_KEY not in stored_version


def check_version(connection: Connection, ledger_name: str, meta: Table = meta) -> None:
    """Check that an existing ledger has the schema version and the identity rule of this program. Call this function
    inside a transaction.

    Raises ConfigurationError if the table `meta` has other values.
    """
    stored_version = read_version(connection, meta)
    if is_current(stored_version, meta):
        return
    if MOVED_TO_KEY in stored_version:
        raise ConfigurationError(
            f"the ledger {ledger_name} was copied to {stored_version[MOVED_TO_KEY]}, and is closed. Nothing was "
            "changed. Set CONNECTOR_LEDGER to the URL of the copy"
        )
    if meta.name != email_meta.name and is_upgradable_version(stored_version):
        raise ConfigurationError(
            f"the ledger {ledger_name} was written by an older version of the connector, and this command only reads "
            "it. Nothing was changed. The next load upgrades the ledger: run an import or a sync, then this command "
            "again"
        )
    for key, expected_value in _VERSION_BY_TABLE[meta.name].items():
        if stored_version.get(key) != expected_value:
            raise ConfigurationError(
                f"the ledger {ledger_name} has {key} {stored_version.get(key) or 'none'}, and this version of the "
                f"connector reads only {key} {expected_value}. Nothing was changed. Use the version of the "
                "connector that wrote the ledger, or name a new ledger (CONNECTOR_LEDGER). With a new ledger, a load "
                "finds existing subscribers in the service, but the connector does not know which emails were sent"
            )


def create_tables(connection: Connection, name: str, metadata: MetaData, meta: Table) -> None:
    """Create all tables, and write the version into the table `meta`. Call this function inside a transaction.

    Raises ForeignLedgerError if there are tables of another application.
    """
    refuse_foreign_tables(connection, name, metadata)
    metadata.create_all(connection, checkfirst=False)
    version_rows = [{"name": key, "value": value} for key, value in _VERSION_BY_TABLE[meta.name].items()]
    connection.execute(insert(meta), version_rows)


def refuse_foreign_tables(connection: Connection, name: str, metadata: MetaData = metadata) -> None:
    """Raise ForeignLedgerError if a database without a ledger has tables of another application. Call this function
    inside a transaction.

    In a file, every existing table belongs to another application. On a server, other applications may share the
    schema, so only tables with the names of the ledger's tables are refused.
    """
    existing_table_names = set(inspect(connection).get_table_names())
    is_file = connection.dialect.name == "sqlite"
    conflicting_table_names = existing_table_names if is_file else existing_table_names & set(metadata.tables)
    if conflicting_table_names:
        raise ForeignLedgerError(
            f"{name}: there is no ledger, but there are tables of another program "
            f"({', '.join(sorted(conflicting_table_names)[:3])}): use a separate file, database or schema for the "
            "ledger"
        )
