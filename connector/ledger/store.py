"""The ledger's moves: one function for each, a compare-and-set on the state that it leaves (design 4.2).

Every function runs inside a transaction that its caller opened by `Ledger.transaction`; nothing here commits.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from connector.errors import LedgerError
from connector.ledger import statements as sql
from connector.ledger.bases import Base
from connector.ledger.batches import Rows, change, select
from connector.ledger.faults import build_error, translated
from connector.ledger.schema import HOW, IDENTITY_FIELDS
from connector.ledger.texts import keep_text
from connector.plan.field_digests import MappedFields, read_mapped
from connector.states import Event, State, decide_state
from connector.values import hot_value


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


@hot_value
class Intent:
    """A create that is about to be sent: digest of the identity, fingerprint, the request's body, and the field
    (email or client_user_id) that the identity is of.

    `digests` are two bytes for each field of the mapping with this key (0: neither is known)."""

    identity: bytes
    fingerprint: bytes
    body: bytes
    field: str = "email"
    mapping_key: int = 0
    digests: bytes = b""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An entry whose body is kept, since it may be sent again: UNKNOWN, HELD or REJECTED.

    `run_id` is the run that sent it last, `suppressed_by` the job whose suppression list that run had (None: none),
    `is_holding` whether that run left what is proved absent to a person, `status` and `message` those of a refusal,
    `mapping_key` and `digests` as an Intent has them (None: not known).
    """

    identity: bytes
    field: str
    fingerprint: bytes
    body: bytes
    attempts: int
    run_id: str
    suppressed_by: str | None = None
    status: int | None = None
    message: str | None = None
    is_holding: bool | None = None
    mapping_key: int | None = None
    digests: bytes | None = None


@dataclass(frozen=True, slots=True)
class SentFields:
    """By which mapping the row was read that told an entry's fingerprint (None: it is written in a format that this
    version does not know), and the two bytes of each of its fields."""

    mapped: MappedFields | None
    digests: bytes


@dataclass(frozen=True, slots=True)
class Known:
    """A CONFIRMED entry; `known_since` is when the run that confirmed it had ended, at the latest (Unix seconds; None:
    a listing showed it)."""

    identity: bytes
    subscriber_id: int
    known_since: float | None


class Ledger:
    """The store, over one connection; use it from one thread at a time, inside `transaction`.

    `name` says in messages which ledger it is; it holds no password.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self._name = name

    @property
    def is_file(self) -> bool:
        """Whether it is a file on this machine, not at a server."""
        return self.connection.dialect.name == "sqlite"

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One durable unit: all that is done inside is on the disk when it ends, or none of it.

        Raises LedgerError when the database fails, and from then on if the connection is lost: it is never made anew,
        since the lock went with it.
        """
        if self.connection.invalidated:
            raise build_error(self._name, "the connection to it was lost")
        with translated(self._name), self.connection.begin():
            yield self.connection

    # Reading

    def find_entries(self, base: Base, identities: Sequence[bytes]) -> dict[bytes, Entry]:
        """The entries of these identities (digests); those that have none are left out."""
        rows = select(self.connection, sql.FIND, {}, _each(base, identities))
        return {identity: Entry(_STATES[state], *rest) for identity, state, *rest in rows}

    def find_different(self, base: Base, told: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bool]:
        """Of these (identity, fingerprint) all but those that are CONFIRMED with that fingerprint: by identity, whether
        there is an entry. Of the others nothing is handed over: mostly that is nobody."""
        rows = [(base.key, *each) for each in told]
        found = select(self.connection, sql.FIND_DIFFERENT, {"confirmed": State.CONFIRMED}, rows)
        return {identity: bool(has_entry) for identity, has_entry in found}

    def find_sent_fields(self, base: Base, identities: Sequence[bytes]) -> dict[bytes, SentFields]:
        """What is known, field by field, of what was sent of these identities; the others are left out."""
        rows = select(self.connection, sql.FIND_FIELDS, {}, _each(base, identities))
        return {identity: SentFields(read_mapped(fields), digests) for identity, fields, digests in rows}

    def find_unfinished(self, base: Base, state: State) -> list[Unfinished]:
        """All entries of the base in this state (UNKNOWN, HELD, REJECTED) that have a body, whoever left them."""
        rows = self.connection.execute(sql.FIND_UNFINISHED, {"base": base.key, "state": state})
        return [Unfinished(identity, _FIELDS[field], *rest) for identity, field, *rest in rows]

    def find_confirmed(self, base: Base, start: bytes, number: int, *, besides: int = 0) -> list[Known]:
        """At most `number` CONFIRMED entries of the base, from the identity (a digest) `start` on, and round; not those
        that the run `besides` (its key) has sent."""
        values = {"base": base.key, "state": State.CONFIRMED, "number": number, "besides": besides}
        found = [Known(*row) for row in self.connection.execute(sql.FIND_CONFIRMED, {**values, "start": start})]
        if len(found) < number and start:
            found += [Known(*row) for row in self.connection.execute(sql.FIND_CONFIRMED, {**values, "start": b""})]
        return list(dict.fromkeys(found))[:number]

    # Before a request

    def mark_intended(self, base: Base, run_key: int, intents: Sequence[Intent]) -> None:
        """NONE to SENDING."""
        key = base.key
        rows = [
            (
                key,
                each.identity,
                IDENTITY_FIELDS[each.field],
                each.fingerprint,
                each.body,
                each.mapping_key,
                each.digests,
            )
            for each in intents
        ]
        self._move(sql.INSERT_INTENT, rows, State.NONE, Event.INTENDED, run=run_key)

    def mark_intended_again(self, base: Base, run_key: int, intents: Sequence[Intent]) -> None:
        """REJECTED to SENDING: another fingerprint, looked up before."""
        self._send_again(base, run_key, intents, State.REJECTED, Event.INTENDED)

    def mark_absent(self, base: Base, run_key: int, intents: Sequence[Intent]) -> None:
        """UNKNOWN to SENDING: proved absent by design 4.5."""
        self._send_again(base, run_key, intents, State.UNKNOWN, Event.ABSENT)

    # After it

    def mark_answered(self, base: Base, answered: Sequence[tuple[bytes, int]]) -> None:
        """SENDING to CONFIRMED: (identity, subscriber id)."""
        rows = [(base.key, *each) for each in answered]
        self._move(sql.CONFIRM, rows, State.SENDING, Event.ANSWERED, how=HOW["created"])

    def mark_refused(self, base: Base, left: State, refused: Sequence[tuple[bytes, int, str]]) -> None:
        """SENDING, or UNKNOWN and proved absent (`left`), to REJECTED: (identity, HTTP status, the service's words)."""
        rows = [(base.key, identity, status, keep_text(words)) for identity, status, words in refused]
        self._move(sql.REJECT, rows, left, Event.REFUSED)

    def mark_not_sent(self, base: Base, identities: Sequence[bytes]) -> None:
        """SENDING to NONE: known to have had no effect."""
        self._move(sql.DELETE, _each(base, identities), State.SENDING, Event.NOT_SENT)

    def mark_lost(self, base: Base, identities: Sequence[bytes]) -> None:
        """SENDING to UNKNOWN."""
        self._move(sql.SET_STATE, _each(base, identities), State.SENDING, Event.LOST)

    def mark_died(self) -> int:
        """Every SENDING to UNKNOWN, in every base: only a run that holds the lock may say so. Returns how many."""
        values = {"to": decide_state(State.SENDING, Event.DIED), "left": State.SENDING}
        return self.connection.execute(sql.SET_ALL, values).rowcount

    # Settling

    def mark_found(self, base: Base, left: State, found: Sequence[tuple[bytes, int]]) -> None:
        """UNKNOWN, HELD or REJECTED (`left`) to CONFIRMED: (identity, subscriber id), seen in the service."""
        how = HOW["found"] if left is State.REJECTED else HOW["settled"]
        self._move(sql.CONFIRM, [(base.key, *each) for each in found], left, Event.FOUND, how=how)

    def mark_withheld(self, base: Base, identities: Sequence[bytes]) -> None:
        """UNKNOWN to HELD: proved absent, and left to a person."""
        self._move(sql.SET_STATE, _each(base, identities), State.UNKNOWN, Event.WITHHELD)

    def mark_suppressed(self, base: Base, identities: Sequence[bytes]) -> None:
        """UNKNOWN to NONE: proved absent, and on the suppression list by now."""
        self._move(sql.DELETE, _each(base, identities), State.UNKNOWN, Event.SUPPRESSED)

    def mark_doubted(self, base: Base, identities: Sequence[bytes]) -> None:
        """REJECTED to UNKNOWN: its kind of refusal turned out to have created. Only what has a body can be."""
        self._move(sql.DOUBT, _each(base, identities), State.REJECTED, Event.DOUBTED)

    # What a person decides

    def mark_reopened(self, base: Base, identities: Sequence[bytes]) -> None:
        """HELD to UNKNOWN: to be looked for anew, and sent again if it is absent."""
        self._move(sql.SET_STATE, _each(base, identities), State.HELD, Event.REOPENED)

    def mark_dropped(self, base: Base, identities: Sequence[bytes]) -> None:
        """HELD to NONE: given up."""
        self._move(sql.DELETE, _each(base, identities), State.HELD, Event.DROPPED)

    def mark_forgotten(self, base: Base, left: State, identities: Sequence[bytes]) -> None:
        """CONFIRMED or REJECTED (`left`) to NONE: the next row of it is new."""
        self._move(sql.DELETE, _each(base, identities), left, Event.FORGOTTEN)

    # What a listing shows

    def record_listed(self, base: Base, field: str, listed: Sequence[tuple[bytes, int]]) -> None:
        """NONE, REJECTED and HELD to CONFIRMED for all that a listing shows: (identity, subscriber id).

        Entries in other states stay as they are, and of an identity that is listed twice the first id counts.
        `field` is what the identities are of.
        """
        shared = {
            "field": IDENTITY_FIELDS[field],
            "to": decide_state(State.NONE, Event.FOUND),
            "how": HOW["found"],
            "rejected": State.REJECTED,
            "held": State.HELD,
        }
        first = dict(reversed(listed))  # PostgreSQL refuses to touch one entry twice in one statement
        change(self.connection, sql.INSERT_LISTED, shared, [(base.key, *each) for each in first.items()])

    # What a row says now

    def record_fingerprints(self, base: Base, told: Sequence[tuple[bytes, bytes, int, bytes]]) -> None:
        """CONFIRMED entries that a listing brought get from the first row that tells of them what it says: (identity,
        fingerprint, key of the mapping, two bytes for each of its fields), the last two as an Intent has them."""
        self._change(sql.SET_FINGERPRINT, {"left": State.CONFIRMED}, [(base.key, *each) for each in told])

    def _send_again(self, base: Base, run_key: int, intents: Sequence[Intent], left: State, event: Event) -> None:
        rows = [
            (base.key, each.identity, each.fingerprint, each.body, each.mapping_key, each.digests) for each in intents
        ]
        self._move(sql.SEND_AGAIN, rows, left, event, run=run_key)

    def _move(self, batch: sql.Batch, rows: Rows, left: State, event: Event, **shared: int) -> None:
        """Carry out for each of `rows`: from the state `left` to where the table of transitions says."""
        self._change(batch, {"left": left, "to": decide_state(left, event), **shared}, rows)

    def _change(self, batch: sql.Batch, shared: dict[str, Any], rows: Rows) -> None:
        """Carry out for each of `rows`; anything but one entry changed by each is an error, and undoes all."""
        changed = change(self.connection, batch, shared, rows)
        if changed != len(rows):
            raise StaleMoveError(
                f"the ledger has changed under this run: {len(rows) - changed} of {len(rows)} entries were not in "
                "the state they were left in. Nothing of this step was recorded; run again, and report it if it recurs"
            )


_FIELDS = {number: field for field, number in IDENTITY_FIELDS.items()}
_STATES = tuple(State)  # by their numbers; half the cost of a look-up by `State(number)`


def _each(base: Base, identities: Sequence[bytes]) -> list[tuple[int, bytes]]:
    return [(base.key, identity) for identity in identities]
