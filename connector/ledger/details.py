"""Reads all that a ledger knows of one identity, in every base of every account."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, text

from connector.ledger.schema import HOW, IDENTITY_FIELDS
from connector.states import State


@dataclass(frozen=True, slots=True)
class EntryDetails:
    """An entry with its base and its run. `how` is a name of HOW, or None if the state is not CONFIRMED.

    `run_id`, `job`, `command`, `started_at` and `finished_at` (Unix seconds) and `run_status` are those of the run that
    sent the create last, or that looked up its refusal last; all are None if the list alone has shown the subscriber.
    `reported_at` is when a different row was reported, or for REJECTED when a later run looked the refusal up.
    """

    account: str
    base_id: int | None
    base_name: str | None
    identity_field: str
    state: State
    how: str | None
    subscriber_id: int | None
    status: int | None
    message: str | None
    attempts: int
    reported_at: float | None
    altered: str | None
    opted_out: str | None
    run_id: str | None
    job: str | None
    command: str | None
    started_at: float | None
    finished_at: float | None
    run_status: str | None


def find_details(connection: Connection, identities: Sequence[bytes]) -> list[EntryDetails]:
    """Return the entries of these identities (digests), ordered by account and base. Call it inside a transaction."""
    rows = connection.execute(_FIND, {"identities": list(identities)})
    return [
        EntryDetails(account, base_id, base_name, _FIELDS[field], State(state), _HOW.get(how), *others)
        for account, base_id, base_name, field, state, how, *others in rows
    ]


_FIELDS = {number: field for field, number in IDENTITY_FIELDS.items()}
_HOW = {number: name for name, number in HOW.items()}

# Each base is one look-up by the primary key of `entry`: no index begins with the identity.
_FIND = text(
    "SELECT account, service_id, base.name, identity_field, state, how, subscriber_id, entry.status, message, "
    "attempts, reported_at, altered, opted_out, run_id, job, command, started_at, finished_at, run.status "
    "FROM base JOIN entry ON entry.base_key = base.base_key LEFT JOIN run ON run.run_key = entry.run_key "
    "WHERE identity IN :identities ORDER BY account, base.base_key, identity_field"
).bindparams(bindparam("identities", expanding=True))
