"""The SQL of the ledger's moves, put together from constants; every UPDATE and DELETE names the state it leaves."""

from sqlalchemy import bindparam, text

_AT = "WHERE base_key = :base AND identity = :identity AND state = :left"

FIND = text(
    "SELECT identity, state, subscriber_id, fingerprint, status, message, attempts FROM entry "
    "WHERE base_key = :base AND identity IN :identities"
).bindparams(bindparam("identities", expanding=True))
FIND_UNKNOWN = text(
    "SELECT identity, identity_field, fingerprint, body, attempts, run_id FROM entry JOIN run USING (run_key) "
    "WHERE base_key = :base AND state = :state ORDER BY identity"
)
INSERT_INTENT = text(
    "INSERT INTO entry (base_key, identity, identity_field, state, fingerprint, body, attempts, run_key) "
    "VALUES (:base, :identity, :field, :to, :fingerprint, :body, 1, :run) ON CONFLICT DO NOTHING"
)
INSERT_LISTED = text(
    "INSERT INTO entry (base_key, identity, identity_field, state, how, subscriber_id) "
    "VALUES (:base, :identity, :field, :to, :how, :id) "
    "ON CONFLICT (base_key, identity) DO UPDATE SET state = :to, how = :how, subscriber_id = :id, body = NULL, "
    "status = NULL, message = NULL WHERE entry.state IN (:rejected, :held)"
)
SEND_AGAIN = text(
    "UPDATE entry SET state = :to, fingerprint = :fingerprint, body = :body, status = NULL, message = NULL, "
    f"attempts = attempts + 1, run_key = :run {_AT}"
)
CONFIRM = text(
    "UPDATE entry SET state = :to, subscriber_id = :id, how = :how, body = NULL, status = NULL, message = NULL " + _AT
)
REJECT = text(f"UPDATE entry SET state = :to, status = :status, message = :message, body = NULL {_AT}")
DELETE = text(f"DELETE FROM entry {_AT}")
SET_STATE = text(f"UPDATE entry SET state = :to {_AT}")
SET_ALL = text("UPDATE entry SET state = :to WHERE state = :left")
SET_FINGERPRINT = text(f"UPDATE entry SET fingerprint = :fingerprint {_AT} AND fingerprint IS NULL")
