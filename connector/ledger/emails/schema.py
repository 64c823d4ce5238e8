"""The tables of the ledger of emails. What must always be true of an email is a CHECK here, whoever writes it."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
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
)

from connector.email_states import EmailState
from connector.plan.digests import IDENTITY_BYTES

EMAILS_VERSION = 1

metadata = MetaData()

meta = Table(
    "email_meta", metadata, Column("name", String(40), primary_key=True), Column("value", Text, nullable=False)
)

campaign = Table(
    "campaign",
    metadata,
    Column("campaign_key", Integer, primary_key=True),
    Column("account", Text, nullable=False),
    Column("name", Text, nullable=False),
    UniqueConstraint("account", "name", name="one_line_a_campaign"),
)

email = Table(
    "email",
    metadata,
    Column("email_key", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("campaign_key", Integer, ForeignKey(campaign.c.campaign_key)),  # null: an email sent by itself
    Column("account", Text),  # of an email sent by itself; any other's is its campaign's
    Column("recipient", LargeBinary(IDENTITY_BYTES)),  # the digest of the normalised address
    Column("state", SmallInteger, nullable=False),
    Column("address", Text),  # in clear, for as long as a person may have to be told whom it was for
    Column("run_id", String(40), nullable=False),
    Column("intended_at", Float, nullable=False),  # Unix seconds
    Column("sent_at", Float),  # when the answer came
    Column("request_id", BigInteger),  # SendMessageRequestId and MessageId (api.md 2.3)
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
