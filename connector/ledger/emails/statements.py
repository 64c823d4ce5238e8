"""The SQL of the emails' moves, put together from constants; every UPDATE and DELETE names the state it leaves.

`connector.ledger.store` says what a `Batch` and `{told}` are.
"""

from sqlalchemy import text

from connector.ledger.store import Batch

_EMAIL = "email.campaign_key = told.column1 AND email.recipient = told.column2"
_AT = f"FROM {{told}} WHERE {_EMAIL} AND state = :left"

FIND = Batch(
    "SELECT recipient, state, request_id, message_id, sent_at, status, words, run_id "
    f"FROM {{told}} JOIN email ON {_EMAIL}",
    2,
)
INSERT_INTENT = Batch(
    "INSERT INTO email (campaign_key, recipient, address, state, run_id, intended_at) "
    "SELECT told.column1, told.column2, told.column3, :to, :run, :at FROM {told} WHERE true "
    "ON CONFLICT DO NOTHING",  # WHERE true: without it SQLite reads ON as a condition of a join
    3,
)
ACCEPT = Batch(
    "UPDATE email SET state = :to, request_id = told.column3, message_id = told.column4, sent_at = told.column5, "
    f"address = NULL {_AT}",
    5,
)
REFUSE = Batch(f"UPDATE email SET state = :to, status = told.column3, words = told.column4 {_AT}", 4)
SET_STATE = Batch(f"UPDATE email SET state = :to {_AT}", 2)
DELETE = Batch(
    "DELETE FROM email "
    "WHERE state = :left AND (campaign_key, recipient) IN (SELECT told.column1, told.column2 FROM {told})",
    2,
)

SET_ALL = text("UPDATE email SET state = :to WHERE campaign_key = :campaign AND state = :left")
COUNT = text("SELECT state, count(*) FROM email WHERE campaign_key = :campaign GROUP BY state")
_TOLD = "SELECT state, address, intended_at, run_id, status, words, recipient, email_key FROM email"
READ = text(f"{_TOLD} WHERE campaign_key = :campaign AND state = :state ORDER BY email_key")

FIND_CAMPAIGN = text("SELECT campaign_key, account, name FROM campaign WHERE account = :account AND name = :name")
ADD_CAMPAIGN = text("INSERT INTO campaign (account, name) VALUES (:account, :name) ON CONFLICT DO NOTHING")
LIST_CAMPAIGNS = text("SELECT campaign_key, account, name FROM campaign WHERE account = :account ORDER BY campaign_key")

INSERT_SINGLE = text(
    "INSERT INTO email (account, address, state, run_id, intended_at) VALUES (:account, :address, :to, :run, :at) "
    "RETURNING email_key"
)
_SINGLE = "WHERE email_key = :key AND campaign_key IS NULL AND state = :left"
ACCEPT_SINGLE = text(
    f"UPDATE email SET state = :to, request_id = :request_id, message_id = :message_id, sent_at = :at, address = NULL "
    f"{_SINGLE}"
)
REFUSE_SINGLE = text(f"UPDATE email SET state = :to, status = :status, words = :words {_SINGLE}")
SET_SINGLE = text(f"UPDATE email SET state = :to {_SINGLE}")
DELETE_SINGLE = text(f"DELETE FROM email {_SINGLE}")
READ_SINGLES = text(
    f"{_TOLD} WHERE campaign_key IS NULL AND account = :account AND state IN (:sending, :unknown) ORDER BY email_key"
)
