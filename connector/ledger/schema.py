"""The ledger's tables. What must always be true of an entry is a CHECK here, whoever writes it."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from connector.plan.digests import FINGERPRINT_BYTES, IDENTITY_BYTES
from connector.states import State

SCHEMA_VERSION = 1  # until the first release; any other is refused
SOURCE_BYTES = 16  # of the digest that tells an incremental source from another

UNFINISHED = f"state <> {State.CONFIRMED}"
"""SQL: the condition of the index of unfinished entries. A statement that means them says it word for word, else the
databases cannot know that the index has all that it asks for."""

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
    CheckConstraint("service_id IS NOT NULL OR name IS NOT NULL", name="base_is_named"),
    UniqueConstraint("account", "service_id", name="one_line_a_base"),
)

mapping = Table(
    "mapping",
    metadata,
    Column("mapping_key", Integer, primary_key=True),
    Column("fields", Text, nullable=False, unique=True),  # each mapped field with a digest of its rule
)

entry = Table(
    "entry",
    metadata,
    Column("base_key", Integer, ForeignKey(base.c.base_key), primary_key=True),
    Column("identity", LargeBinary(IDENTITY_BYTES), primary_key=True),
    Column("identity_field", SmallInteger, nullable=False),  # IDENTITY_FIELDS below
    Column("state", SmallInteger, nullable=False),
    Column("how", SmallInteger),  # HOW below
    Column("subscriber_id", BigInteger),
    Column("fingerprint", LargeBinary(FINGERPRINT_BYTES)),  # of what was sent; null until a row has told it
    Column("body", LargeBinary),
    Column("status", SmallInteger),  # HTTP status of a refusal
    Column("message", Text),  # its words
    Column("attempts", SmallInteger, nullable=False, server_default="0"),
    Column("run_key", Integer, ForeignKey(run.c.run_key)),
    Column("mapping_key", Integer, ForeignKey(mapping.c.mapping_key)),  # by which the fingerprint's row was read
    Column("field_digests", LargeBinary),  # two bytes for each of the mapping's fields (connector.plan.field_digests)
    CheckConstraint(f"length(identity) = {IDENTITY_BYTES}", name="identity_is_whole"),
    CheckConstraint(f"state BETWEEN {State.SENDING} AND {State.REJECTED}", name="state_is_known"),
    CheckConstraint(f"(state = {State.CONFIRMED}) = (subscriber_id IS NOT NULL)", name="confirmed_means_an_id"),
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
    CheckConstraint("(mapping_key IS NULL) = (field_digests IS NULL)", name="digests_have_a_mapping"),
    sqlite_with_rowid=False,
)

Index(
    "unfinished_entries",  # few, among millions that are confirmed
    entry.c.state,
    entry.c.base_key,
    sqlite_where=text(UNFINISHED),
    postgresql_where=text(UNFINISHED),
)

refusal = Table(
    "refusal",
    metadata,
    Column("account", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("base_key", Integer, ForeignKey(base.c.base_key), nullable=False),
    Column("identity", LargeBinary(IDENTITY_BYTES), nullable=False),  # whom the last run met it with first
    Column("has_created", Boolean, nullable=False),  # ever: then it is never again taken for a refusal
    Column("is_checked", Boolean, nullable=False),  # by a run after the one that met it
)

source_cursor = Table(
    "source_cursor",
    metadata,
    Column("job", Text, primary_key=True),
    Column("source", LargeBinary(SOURCE_BYTES), primary_key=True),  # a digest of whence, whither and by which column
    Column("value", Text, nullable=False),  # the largest that was read
    Column("run_key", Integer, ForeignKey(run.c.run_key), nullable=False),  # by this run
    CheckConstraint(f"length(source) = {SOURCE_BYTES}", name="source_is_whole"),
)

IDENTITY_FIELDS = {"email": 1, "client_user_id": 2}
"""What the identity is a digest of: an unknown can be looked for by nothing else."""

HOW = {"created": 1, "settled": 2, "found": 3}
"""How an entry came to be confirmed: answered at once, found by settling an unknown, found where we had not sent."""
