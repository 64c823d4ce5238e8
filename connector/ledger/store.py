"""The ledger's moves: one function for each, a compare-and-set on the state that it leaves (design 4.2).

Every function runs inside a transaction that its caller opened by `Ledger.transaction`; nothing here commits.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, TextClause

from connector.errors import LedgerError
from connector.ledger import statements as sql
from connector.ledger.bases import Base
from connector.ledger.faults import translated
from connector.ledger.schema import HOW, IDENTITY_FIELDS
from connector.states import Event, State, decide_state

_LOOKUP_ROWS = 900  # below the 999 variables that every SQLite allows in one statement


class StaleMoveError(LedgerError):
    """An entry was not in the state that a move leaves: somebody else wrote, or the code is wrong."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the ledger knows of one identity: `status` and `message` of a refusal, None in other states."""

    state: State
    subscriber_id: int | None
    fingerprint: bytes | None
    status: int | None
    message: str | None
    attempts: int


@dataclass(frozen=True, slots=True)
class Intent:
    """A create that is about to be sent: digest of the identity, fingerprint, the request's body, and the field
    (email or client_user_id) that the identity is of."""

    identity: bytes
    fingerprint: bytes
    body: bytes
    field: str = "email"


@dataclass(frozen=True, slots=True)
class UnknownEntry:
    """A create of which it is not known whether it took effect; `run_id` is the run that sent it last."""

    identity: bytes
    field: str
    fingerprint: bytes
    body: bytes
    attempts: int
    run_id: str


class Ledger:
    """The store, over one connection; use it from one thread at a time, inside `transaction`."""

    def __init__(self, connection: Connection, path: Path) -> None:
        self.connection = connection
        self._path = path

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One durable unit: all that is done inside is on the disk when it ends, or none of it."""
        with translated(self._path), self.connection.begin():
            yield self.connection

    # Reading

    def find_entries(self, base: Base, identities: Sequence[bytes]) -> dict[bytes, Entry]:
        """The entries of these identities (digests); those that have none are left out."""
        found: dict[bytes, Entry] = {}
        for start in range(0, len(identities), _LOOKUP_ROWS):
            part = list(identities[start : start + _LOOKUP_ROWS])
            for identity, state, *rest in self.connection.execute(sql.FIND, {"base": base.key, "identities": part}):
                found[bytes(identity)] = Entry(State(state), *rest)
        return found

    def find_unknown(self, base: Base) -> list[UnknownEntry]:
        """All entries of the base that are UNKNOWN, whichever run and job left them."""
        rows = self.connection.execute(sql.FIND_UNKNOWN, {"base": base.key, "state": State.UNKNOWN})
        return [UnknownEntry(identity, _FIELDS[field], *rest) for identity, field, *rest in rows]

    # Before a request

    def mark_intended(self, base: Base, run_key: int, intents: Sequence[Intent]) -> None:
        """NONE to SENDING."""
        values = [_write_intent(each) | {"field": IDENTITY_FIELDS[each.field]} for each in intents]
        self._move(sql.INSERT_INTENT, values, State.NONE, Event.INTENDED, base=base.key, run=run_key)

    def mark_intended_again(self, base: Base, run_key: int, intents: Sequence[Intent]) -> None:
        """REJECTED to SENDING: another fingerprint, looked up before."""
        self._send_again(base, run_key, intents, State.REJECTED, Event.INTENDED)

    def mark_absent(self, base: Base, run_key: int, intents: Sequence[Intent]) -> None:
        """UNKNOWN to SENDING: proved absent by design 4.5."""
        self._send_again(base, run_key, intents, State.UNKNOWN, Event.ABSENT)

    # After it

    def mark_answered(self, base: Base, answered: Sequence[tuple[bytes, int]]) -> None:
        """SENDING to CONFIRMED: (identity, subscriber id)."""
        values = [{"identity": identity, "id": subscriber_id} for identity, subscriber_id in answered]
        self._move(sql.CONFIRM, values, State.SENDING, Event.ANSWERED, base=base.key, how=HOW["created"])

    def mark_refused(self, base: Base, left: State, refused: Sequence[tuple[bytes, int, str]]) -> None:
        """SENDING, or UNKNOWN and proved absent (`left`), to REJECTED: (identity, HTTP status, the service's words)."""
        values = [{"identity": identity, "status": status, "message": words} for identity, status, words in refused]
        self._move(sql.REJECT, values, left, Event.REFUSED, base=base.key)

    def mark_not_sent(self, base: Base, identities: Sequence[bytes]) -> None:
        """SENDING to NONE: known to have had no effect."""
        self._move(sql.DELETE, _each(identities), State.SENDING, Event.NOT_SENT, base=base.key)

    def mark_lost(self, base: Base, identities: Sequence[bytes]) -> None:
        """SENDING to UNKNOWN."""
        self._move(sql.SET_STATE, _each(identities), State.SENDING, Event.LOST, base=base.key)

    def mark_died(self) -> int:
        """Every SENDING to UNKNOWN, in every base: only a run that holds the lock may say so. Returns how many."""
        values = {"to": decide_state(State.SENDING, Event.DIED), "left": State.SENDING}
        return self.connection.execute(sql.SET_ALL, values).rowcount

    # Settling

    def mark_found(self, base: Base, left: State, found: Sequence[tuple[bytes, int]]) -> None:
        """UNKNOWN, HELD or REJECTED (`left`) to CONFIRMED: (identity, subscriber id), seen in the service."""
        values = [{"identity": identity, "id": subscriber_id} for identity, subscriber_id in found]
        how = HOW["found"] if left is State.REJECTED else HOW["settled"]
        self._move(sql.CONFIRM, values, left, Event.FOUND, base=base.key, how=how)

    def mark_withheld(self, base: Base, identities: Sequence[bytes]) -> None:
        """UNKNOWN to HELD: proved absent, and left to a person."""
        self._move(sql.SET_STATE, _each(identities), State.UNKNOWN, Event.WITHHELD, base=base.key)

    def record_listed(self, base: Base, field: str, listed: Sequence[tuple[bytes, int]]) -> None:
        """NONE, REJECTED and HELD to CONFIRMED for all that a listing shows: (identity, subscriber id).

        Entries in other states stay as they are. `field` is what the identities are of.
        """
        fixed = {
            "base": base.key,
            "field": IDENTITY_FIELDS[field],
            "to": decide_state(State.NONE, Event.FOUND),
            "how": HOW["found"],
            "rejected": State.REJECTED,
            "held": State.HELD,
        }
        if listed:
            values = [{"identity": identity, "id": subscriber_id} | fixed for identity, subscriber_id in listed]
            self.connection.execute(sql.INSERT_LISTED, values)

    # What a row says now

    def record_fingerprints(self, base: Base, told: Sequence[tuple[bytes, bytes]]) -> None:
        """CONFIRMED entries that a listing brought get their fingerprint from the first row that tells it."""
        values = [{"identity": identity, "fingerprint": fingerprint} for identity, fingerprint in told]
        self._change(sql.SET_FINGERPRINT, [value | {"base": base.key, "left": State.CONFIRMED} for value in values])

    def _send_again(self, base: Base, run_key: int, intents: Sequence[Intent], left: State, event: Event) -> None:
        self._move(sql.SEND_AGAIN, [_write_intent(each) for each in intents], left, event, base=base.key, run=run_key)

    def _move(
        self, statement: TextClause, values: Sequence[Mapping[str, Any]], left: State, event: Event, **fixed: Any
    ) -> None:
        """Execute for each of `values`: from the state `left` to where the table of transitions says."""
        moved = {"left": left, "to": decide_state(left, event), **fixed}
        self._change(statement, [{**value, **moved} for value in values])

    def _change(self, statement: TextClause, values: Sequence[Mapping[str, Any]]) -> None:
        """Execute for each of `values`; anything but one row changed by each is an error, and undoes all."""
        if not values:
            return
        changed = self.connection.execute(statement, values).rowcount
        if changed != len(values):
            raise StaleMoveError(
                f"the ledger has changed under this run: {len(values) - changed} of {len(values)} entries were not in "
                "the state they were left in. Nothing of this step was recorded; run again, and report it if it recurs"
            )


_FIELDS = {number: field for field, number in IDENTITY_FIELDS.items()}


def _each(identities: Sequence[bytes]) -> list[dict[str, Any]]:
    return [{"identity": identity} for identity in identities]


def _write_intent(intent: Intent) -> dict[str, Any]:
    return {"identity": intent.identity, "fingerprint": intent.fingerprint, "body": intent.body}
