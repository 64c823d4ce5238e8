"""The ledger's tables. CHECK constraints hold for every entry.

A run upgrades a ledger of an older version if it can. Any other version is refused.
"""

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

from connector.errors import ConfigurationError, LedgerError
from connector.fields import IDENTITY_RULE
from connector.states import EmailState, State
from connector.subscribers.identity import FINGERPRINT_BYTES, IDENTITY_BYTES

SCHEMA_VERSION = 4  # counted up with every change of the columns
EMAILS_VERSION = 1  # the same for the tables of the emails
_OLDEST_VERSION = 1  # of a ledger that a run upgrades: 1 lacks entry.opted_out, 2 lacks problems, and 3 receipts
SOURCE_BYTES = 16  # of the digest that tells an incremental source from another

UNFINISHED = f"state <> {State.CONFIRMED}"
"""SQL: the condition of the index of unfinished entries. A statement that means them says it word for word, else the
databases cannot know that the index has all that it asks for."""

OPTED_OUT = "opted_out IS NOT NULL"
"""SQL: the condition of the index of opt-outs. A statement must have it word for word, as with UNFINISHED."""

_OPTED_OUT_IS_CONFIRMED = f"opted_out IS NULL OR state = {State.CONFIRMED}"

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
    Column("suppressed_by", Text),  # the job whose suppression list must be read before its creates are sent again
    Column("is_holding", Boolean),  # whether what it left and is proved absent is left to a person (null: it is not)
    Column("rows_read", BigInteger),  # of its source, when it has read all of it; null when it has not
    Column("for_account", Text),  # null: not known
)

base = Table(
    "base",
    metadata,
    Column("base_key", Integer, primary_key=True),
    Column("account", Text, nullable=False),
    Column("service_id", BigInteger),
    Column("name", Text),
    Column("folded", Text),  # the name as names are compared (connector.fields.fold_base_name)
    Column(
        "answered_id", BigInteger
    ),  # as which other base a create was answered (architecture 4.9); null: as this one
    Column("answered_name", Text),
    CheckConstraint("service_id IS NOT NULL OR name IS NOT NULL", name="base_is_named"),
    UniqueConstraint("account", "service_id", name="one_line_a_base"),
)

entry = Table(
    "entry",
    metadata,
    Column("base_key", Integer, ForeignKey(base.c.base_key), primary_key=True),
    Column("identity", LargeBinary(IDENTITY_BYTES), primary_key=True),
    Column("identity_field", SmallInteger, nullable=False),  # IDENTITY_FIELDS below
    Column("state", SmallInteger, nullable=False),
    Column("how", SmallInteger),  # HOW below
    Column("subscriber_id", BigInteger),  # of what is held: the one that was answered
    Column("fingerprint", LargeBinary(FINGERPRINT_BYTES)),  # of what was sent; null until a row has it
    Column("body", LargeBinary),
    Column("status", SmallInteger),  # HTTP status of a refusal
    Column("message", Text),  # its words, or what was answered of what is held
    Column("attempts", SmallInteger, nullable=False, server_default="0"),
    Column("run_key", Integer, ForeignKey(run.c.run_key)),
    Column("reported", LargeBinary(FINGERPRINT_BYTES)),  # the fingerprint of a changed or a rejected row
    Column("reported_at", Float),  # Unix seconds
    Column("altered", Text),  # names of fields that the service altered, with blanks between
    Column("opted_out", Text),  # the job whose row says inactive while the service shows the subscriber as active
    CheckConstraint(f"length(identity) = {IDENTITY_BYTES}", name="identity_is_whole"),
    CheckConstraint(f"state BETWEEN {State.SENDING} AND {State.REJECTED}", name="state_is_known"),
    CheckConstraint(f"state <> {State.CONFIRMED} OR subscriber_id IS NOT NULL", name="confirmed_means_an_id"),
    CheckConstraint(
        f"state IN ({State.CONFIRMED}, {State.HELD}) OR subscriber_id IS NULL", name="an_id_means_that_it_was_answered"
    ),
    CheckConstraint(
        f"state NOT IN ({State.SENDING}, {State.UNKNOWN}, {State.HELD}) OR body IS NOT NULL",
        name="a_body_until_final",
    ),
    CheckConstraint(
        f"state <> {State.CONFIRMED} OR body IS NULL",
        name="no_body_once_confirmed",
    ),
    CheckConstraint(f"(state = {State.REJECTED}) = (status IS NOT NULL)", name="rejected_means_a_status"),
    CheckConstraint(f"(state = {State.CONFIRMED}) = (how IS NOT NULL)", name="confirmed_says_how"),
    CheckConstraint("(reported IS NULL) = (reported_at IS NULL)", name="reported_at_a_time"),
    CheckConstraint(_OPTED_OUT_IS_CONFIRMED, name="opted_out_means_confirmed"),
    sqlite_with_rowid=False,
)

# Few, among millions that are confirmed. As an Index it would import PostgreSQL's dialect for a ledger in SQLite.
_INDEX_UNFINISHED = DDL(f"CREATE INDEX unfinished_entries ON entry (state, base_key) WHERE {UNFINISHED}")  # type: ignore[no-untyped-call] # SQLAlchemy's own
event.listen(entry, "after_create", _INDEX_UNFINISHED)

# Which entry has a subscriber id (architecture 4.9): 27 bytes an entry.
_INDEX_IDS = DDL("CREATE INDEX IF NOT EXISTS subscriber_ids ON entry (subscriber_id) WHERE subscriber_id IS NOT NULL")  # type: ignore[no-untyped-call]

_INDEX_SHOWN = DDL("CREATE INDEX IF NOT EXISTS shown_entries ON entry (base_key, identity) WHERE how = 5")  # type: ignore[no-untyped-call]

# The opt-outs of a base, which each run asks for.
_ADD_OPTED_OUT = DDL(  # type: ignore[no-untyped-call]
    "ALTER TABLE entry ADD COLUMN opted_out TEXT "
    f"CONSTRAINT opted_out_means_confirmed CHECK ({_OPTED_OUT_IS_CONFIRMED})"
)

_INDEX_OPT_OUTS = DDL(f"CREATE INDEX IF NOT EXISTS opt_outs ON entry (base_key, opted_out) WHERE {OPTED_OUT}")  # type: ignore[no-untyped-call]

account = Table(
    "account",
    metadata,
    Column("account", Text, primary_key=True),
    Column("largest_lag_s", Float, nullable=False),  # how late its list has shown a create, at most, that is known of
    Column("limit_low", Float),  # requests/s, between which a run found its limit last; null while none has shown
    Column("limit_high", Float),
    Column("limit_pause_s", Float),  # that it asked for
    Column("limit_window_s", Float),  # the longest window that has shown
    Column("limit_found_at", Float),  # Unix seconds
)

source_cursor = Table(
    "source_cursor",
    metadata,
    Column("job", Text, primary_key=True),
    Column("source", LargeBinary(SOURCE_BYTES), primary_key=True),  # a digest of source, base and cursor column
    Column("value", Text, nullable=False),  # the largest that was read
    Column("run_key", Integer, ForeignKey(run.c.run_key), nullable=False),  # by this run
    CheckConstraint(f"length(source) = {SOURCE_BYTES}", name="source_is_whole"),
)

problem = Table(
    "problem",
    metadata,
    Column("account", Text, primary_key=True),
    Column("job", Text, primary_key=True),
    Column("digest", LargeBinary(IDENTITY_BYTES), primary_key=True),  # of the identity, else of the row's used cells
    Column("base", Text, primary_key=True),  # the cell of the column that names the base of each row; "": no column
    Column("kind", String(10), primary_key=True),  # connector.ledger.problems.KINDS
    Column("is_identity", Boolean, nullable=False),  # whether `digest` is the digest of an identity
    Column("field", Text, nullable=False),
    Column("place", LargeBinary(IDENTITY_BYTES), nullable=False),  # a digest of the run, file and number of the row
    Column("run_id", String(40), nullable=False),  # the last run that has seen the problem
    Column("first_seen", Float, nullable=False),  # Unix seconds
    Column("last_seen", Float, nullable=False),
    CheckConstraint(f"length(digest) = {IDENTITY_BYTES}", name="digest_is_whole"),
)

receipt = Table(
    "receipt",  # an outbox: a row stays until its receipt is at the destination
    metadata,
    Column("run_key", Integer, ForeignKey(run.c.run_key), primary_key=True),
    Column("base_key", Integer, primary_key=True),
    Column("identity", LargeBinary(IDENTITY_BYTES), primary_key=True),
    Column("kind", String(8), nullable=False),  # connector.ledger.receipts.ReceiptKind
    Column("name", Text, nullable=False),  # the identity in clear
    Column("evidence", String(8)),
    Column("message", Text),
    sqlite_with_rowid=False,
)

# The emails: in SQLite a file of their own, in PostgreSQL the same schema

emails_metadata = MetaData()

email_meta = Table(
    "email_meta", emails_metadata, Column("name", String(40), primary_key=True), Column("value", Text, nullable=False)
)  # beside the version: restored_at, when a backup took the place of what was there

campaign = Table(
    "campaign",
    emails_metadata,
    Column("campaign_key", Integer, primary_key=True),
    Column("account", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("is_closed", Boolean, nullable=False),  # since a restore, until a person reopens it
    UniqueConstraint("account", "name", name="one_line_a_campaign"),
)

email = Table(
    "email",
    emails_metadata,
    Column("email_key", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("campaign_key", Integer, ForeignKey(campaign.c.campaign_key)),  # null: an email sent by itself
    Column("account", Text),  # of an email sent by itself; any other's is its campaign's
    Column("recipient", LargeBinary(IDENTITY_BYTES)),  # the digest of the normalised address
    Column("state", SmallInteger, nullable=False),
    Column("address", Text),  # in clear, for as long as a person may have to hear of it
    Column("run_id", String(40), nullable=False),
    Column("intended_at", Float, nullable=False),  # Unix seconds
    Column("sent_at", Float),  # when the answer came
    Column("request_id", BigInteger),  # SendMessageRequestId and MessageId (service-api.md 2.3)
    Column("message_id", Text),
    Column("status", SmallInteger),  # HTTP status of a refusal
    Column("words", Text),  # its words
    CheckConstraint(f"length(recipient) = {IDENTITY_BYTES}", name="recipient_is_whole"),
    CheckConstraint("(campaign_key IS NULL) = (recipient IS NULL)", name="a_campaign_knows_its_recipients"),
    CheckConstraint("(campaign_key IS NULL) = (account IS NOT NULL)", name="an_email_has_one_account"),
    CheckConstraint(f"state BETWEEN {EmailState.SENDING} AND {EmailState.REFUSED}", name="state_is_known"),
    CheckConstraint(f"(state = {EmailState.SENT}) = (request_id IS NOT NULL)", name="sent_means_a_number"),
    CheckConstraint(f"(state = {EmailState.SENT}) = (message_id IS NOT NULL)", name="sent_means_a_message_id"),
    CheckConstraint(f"(state = {EmailState.SENT}) = (sent_at IS NOT NULL)", name="sent_means_a_time"),
    CheckConstraint(f"(state = {EmailState.SENT}) = (address IS NULL)", name="an_address_until_sent"),
    CheckConstraint(f"(state = {EmailState.REFUSED}) = (status IS NOT NULL)", name="refused_means_a_status"),
    CheckConstraint(f"(state = {EmailState.REFUSED}) = (words IS NOT NULL)", name="refused_means_words"),
    UniqueConstraint("campaign_key", "recipient", name="one_email_a_recipient"),
)

IDENTITY_FIELDS = {"email": 1, "client_user_id": 2}
"""What the identity is a digest of: an unknown can be looked for by nothing else."""

HOW = {"created": 1, "settled": 2, "found": 3, "accepted": 4, "shown": 5}
"""How an entry came to be confirmed: answered at once, found by settling an unknown, found where we had not sent, or
answered with another base or identity and accepted by a person. A few entries of each base are `shown`, however they
came to be confirmed: the list has shown them, so that they tell whether this is the same account (architecture
4.10)."""

SHOWN = f"how = {HOW['shown']}"
"""SQL: the condition of the index of shown entries. A statement must have it word for word, as with UNFINISHED."""


_VERSIONS = {
    table.name: {"schema_version": str(version), "identity_rule": str(IDENTITY_RULE)}
    for table, version in ((meta, SCHEMA_VERSION), (email_meta, EMAILS_VERSION))
}
"""The content of each table `meta`, for the tables beside it."""


def create_or_check(connection: Connection, name: str, *, may_make: bool) -> bool:
    """Create missing tables (with `may_make`), and upgrade the tables of an older version. Return whether the ledger
    exists now. Call this function inside a transaction.

    The function always writes, so that a ledger that cannot be written fails before anything is sent. Raises
    ConfigurationError if the ledger has another version or identity rule, and LedgerError if the database belongs to
    another application.
    """
    if not inspect(connection).has_table(meta.name):
        if may_make:
            create_tables(connection, name, metadata, meta)
            _create_indexes(connection)
        return may_make
    if is_upgradable(read_version(connection)):
        if all(column["name"] != entry.c.opted_out.name for column in inspect(connection).get_columns(entry.name)):
            connection.execute(_ADD_OPTED_OUT)
        metadata.create_all(connection, [problem, receipt], checkfirst=True)
    else:
        check_version(connection, name)
    _create_indexes(connection)
    written = update(meta).where(meta.c.name == "schema_version")
    connection.execute(written.values(value=str(SCHEMA_VERSION)))
    return True


def _create_indexes(connection: Connection) -> None:
    """Create the indexes that an older ledger lacks: two seconds for a million entries, once."""
    for index in (_INDEX_IDS, _INDEX_SHOWN, _INDEX_OPT_OUTS):
        connection.execute(index)


def has_emails(connection: Connection, name: str) -> bool:
    """Return whether there are tables of emails; call it inside a transaction. Raises as `check_version` does."""
    if not inspect(connection).has_table(email_meta.name):
        return False
    check_version(connection, name, email_meta)
    return True


def read_version(connection: Connection, meta: Table = meta) -> dict[str, str]:
    """Return the content of the table `meta` of a ledger; call it inside a transaction."""
    stored: dict[str, str] = dict(connection.execute(select(meta.c.name, meta.c.value)).all())
    return stored


MOVED_TO = "moved_to"
"""The name of the line of a table `meta` with the place that the ledger was copied to. Such a ledger is closed."""


def is_upgradable(version: Mapping[str, str]) -> bool:
    """Return whether this is the version (the content of a table `meta`) of an older ledger that a run can upgrade."""
    number = version.get("schema_version", "")
    is_older = number.isdecimal() and _OLDEST_VERSION <= int(number) < SCHEMA_VERSION and MOVED_TO not in version
    return is_older and version.get("identity_rule") == str(IDENTITY_RULE)


def is_current(version: Mapping[str, str], meta: Table = meta) -> bool:
    """Return whether this is the version (the content of the table `meta`) that this program reads and writes."""
    return _VERSIONS[meta.name].items() <= version.items() and MOVED_TO not in version


def check_version(connection: Connection, name: str, meta: Table = meta) -> None:
    """Check that an existing ledger has this schema version and identity rule. Call this function inside a transaction.

    Raises ConfigurationError if its table `meta` has other values.
    """
    stored = read_version(connection, meta)
    if is_current(stored, meta):
        return
    if MOVED_TO in stored:
        raise ConfigurationError(
            f"the ledger {name} was copied to {stored[MOVED_TO]}, and is closed. Nothing was changed. Set "
            "CONNECTOR_LEDGER to the URL of the copy"
        )
    if meta.name != email_meta.name and is_upgradable(stored):
        raise ConfigurationError(
            f"the ledger {name} was written by an older version of the connector, and this command only reads it. "
            "Nothing was changed. The next load upgrades the ledger: run an import or a sync, then this command again"
        )
    for key, ours in _VERSIONS[meta.name].items():
        if stored.get(key) != ours:
            raise ConfigurationError(
                f"the ledger {name} has {key} {stored.get(key) or 'none'}, and this version of the connector reads "
                f"{key} {ours} alone. Nothing was changed. Either use the version of the connector that wrote the "
                "ledger, or name a new ledger (CONNECTOR_LEDGER): a load finds existing subscribers in the service, "
                "but a new ledger does not know which emails were sent"
            )


def create_tables(connection: Connection, name: str, metadata: MetaData, meta: Table) -> None:
    """Make all tables, and write the version into the table `meta`. Call this function inside a transaction.

    Raises LedgerError if there are tables of another application: any table in a file, or a table with one of these
    names in a server's schema.
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
    connection.execute(insert(meta), [{"name": key, "value": value} for key, value in _VERSIONS[meta.name].items()])
