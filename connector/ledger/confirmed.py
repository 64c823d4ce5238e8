"""Whom a ledger has confirmed, a few thousand at a time, for whoever lays the service's list beside it. It only reads.

To be called inside a transaction, as all that reads a ledger.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, text

from connector.ledger.bases import Base
from connector.ledger.schema import IDENTITY_FIELDS
from connector.states import State


def list_confirmed(
    connection: Connection, base: Base, field: str, after: bytes, number: int
) -> Sequence[tuple[bytes, int]]:
    """(identity, subscriber id) of at most `number` CONFIRMED entries of the base, in the order of their identities,
    those behind `after` (b"": from the first on); `field` is what the identities are of."""
    values = {"base": base.key, "field": IDENTITY_FIELDS[field], "state": State.CONFIRMED}
    rows = connection.execute(_CONFIRMED, {**values, "after": after, "number": number})
    return [(bytes(identity), subscriber_id) for identity, subscriber_id in rows]


def find_last_confirming(connection: Connection, since: float, now: float) -> float | None:
    """When the latest run ended that has confirmed somebody who is known still, if that was after `since`; `now` if it
    has not ended. Unix seconds."""
    values = {"since": since, "now": now, "state": State.CONFIRMED}
    found: float | None = connection.execute(_LAST_CONFIRMING, values).scalar_one()
    return found


_CONFIRMED = text(
    "SELECT identity, subscriber_id FROM entry WHERE base_key = :base AND state = :state AND identity_field = :field "
    "AND identity > :after ORDER BY identity LIMIT :number"
)
_ENDED = (
    "coalesce(run.finished_at, (SELECT min(later.started_at) FROM run AS later WHERE later.run_key > run.run_key), "
    "CAST(:now AS double precision))"
)
_LAST_CONFIRMING = text(
    f"SELECT max({_ENDED}) FROM run WHERE {_ENDED} > :since "  # noqa: S608 - constants
    "AND EXISTS (SELECT 1 FROM entry WHERE entry.run_key = run.run_key AND state = :state)"
)
