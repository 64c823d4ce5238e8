"""The SQL of the ledger's moves, put together from constants; every UPDATE and DELETE names the state it leaves.

A `Batch` speaks of many rows at once: `{told}` is what the caller tells of them, with columns column1, column2…
"""

from dataclasses import dataclass

from sqlalchemy import text

from connector.ledger.schema import UNFINISHED


@dataclass(frozen=True, slots=True)
class Batch:
    """SQL over rows of `width` values each, in both dialects; `:name` is a value that all of them share."""

    sql: str
    width: int


# The base is told in every row. As a shared value it would lead PostgreSQL, before the table is first analysed, to read
# the whole base for each batch: 54 ms in place of 3 among 300,000 entries, measured.
_ENTRY = "entry.base_key = told.column1 AND entry.identity = told.column2"
# A mapping of 0 is none: NULL itself, where all rows have it, would have no type in PostgreSQL.
_MAPPING = "NULLIF(told.column{0}, 0)"
_DIGESTS = "CASE WHEN told.column{0} > 0 THEN told.column{1} END"
_AT = f"WHERE {_ENTRY} AND state = :left"

FIND = Batch(
    "SELECT identity, state, subscriber_id, fingerprint, status, message, attempts "
    f"FROM {{told}} JOIN entry ON {_ENTRY}",
    2,
)
FIND_DIFFERENT = Batch(
    "SELECT told.column2, entry.identity IS NOT NULL "
    f"FROM {{told}} LEFT JOIN entry ON {_ENTRY} "
    "WHERE entry.identity IS NULL OR state <> :confirmed OR fingerprint IS NULL OR fingerprint <> told.column3",
    3,
)
FIND_FIELDS = Batch(
    "SELECT identity, mapping.fields, field_digests "
    f"FROM {{told}} JOIN entry ON {_ENTRY} JOIN mapping ON mapping.mapping_key = entry.mapping_key",
    2,
)
INSERT_INTENT = Batch(
    "INSERT INTO entry (base_key, identity, identity_field, state, fingerprint, body, attempts, run_key, mapping_key, "
    "field_digests) SELECT told.column1, told.column2, told.column3, :to, told.column4, told.column5, 1, :run, "
    f"{_MAPPING.format(6)}, {_DIGESTS.format(6, 7)} FROM {{told}} WHERE true "
    "ON CONFLICT DO NOTHING",  # WHERE true: without it SQLite reads ON as a condition of a join
    7,
)
INSERT_LISTED = Batch(
    "INSERT INTO entry (base_key, identity, identity_field, state, how, subscriber_id) "
    "SELECT told.column1, told.column2, :field, :to, :how, told.column3 FROM {told} WHERE true "
    "ON CONFLICT (base_key, identity) DO UPDATE SET state = excluded.state, how = excluded.how, "
    "subscriber_id = excluded.subscriber_id, body = NULL, status = NULL, message = NULL "
    "WHERE entry.state IN (:rejected, :held)",
    3,
)
SEND_AGAIN = Batch(
    "UPDATE entry SET state = :to, fingerprint = told.column3, body = told.column4, status = NULL, message = NULL, "
    f"attempts = attempts + 1, run_key = :run, mapping_key = {_MAPPING.format(5)}, "
    f"field_digests = {_DIGESTS.format(5, 6)} FROM {{told}} {_AT}",
    6,
)
CONFIRM = Batch(
    "UPDATE entry SET state = :to, how = :how, subscriber_id = told.column3, body = NULL, status = NULL, "
    f"message = NULL FROM {{told}} {_AT}",
    3,
)
REJECT = Batch(f"UPDATE entry SET state = :to, status = told.column3, message = told.column4 FROM {{told}} {_AT}", 4)
DOUBT = Batch(
    f"UPDATE entry SET state = :to, status = NULL, message = NULL FROM {{told}} {_AT} AND body IS NOT NULL", 2
)
SET_STATE = Batch(f"UPDATE entry SET state = :to FROM {{told}} {_AT}", 2)
SET_FINGERPRINT = Batch(
    f"UPDATE entry SET fingerprint = told.column3, mapping_key = {_MAPPING.format(4)}, "
    f"field_digests = {_DIGESTS.format(4, 5)} FROM {{told}} {_AT} AND fingerprint IS NULL",
    5,
)
DELETE = Batch(
    "DELETE FROM entry WHERE state = :left AND (base_key, identity) IN (SELECT told.column1, told.column2 FROM {told})",
    2,
)

SET_ALL = text(f"UPDATE entry SET state = :to WHERE state = :left AND {UNFINISHED}")
FIND_UNFINISHED = text(
    "SELECT identity, identity_field, fingerprint, body, attempts, run_id, suppressed_by, entry.status, message, "
    "is_holding, mapping_key, field_digests FROM entry JOIN run USING (run_key) "
    f"WHERE base_key = :base AND state = :state AND {UNFINISHED} AND body IS NOT NULL ORDER BY identity"
)
FIND_CONFIRMED = text(
    "SELECT identity, subscriber_id, coalesce(run.finished_at, "
    "(SELECT min(later.started_at) FROM run AS later WHERE later.run_key > run.run_key)) "
    "FROM entry LEFT JOIN run USING (run_key) "
    "WHERE base_key = :base AND state = :state AND identity >= :start "
    "AND (entry.run_key IS NULL OR entry.run_key <> :besides) ORDER BY identity LIMIT :number"
)
