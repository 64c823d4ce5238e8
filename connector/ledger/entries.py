"""The ledger's entries and their moves. Each move is one function: a compare-and-set on the state that the move leaves
(architecture 4.2).

Every function runs inside a transaction that its caller has opened by `Ledger.transaction`. Every UPDATE and DELETE
names the state that the move leaves.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from sqlalchemy import Connection, text

from connector.ledger.schema import HOW, IDENTITY_FIELDS, OPTED_OUT, SHOWN, UNFINISHED
from connector.ledger.store import Base, Batch, Rows, Store, make_storable
from connector.shards import WHOLE, Shard
from connector.states import ENTRY, Event, State

NOT_FINAL = frozenset({401, 402, 403, 404, 405, 408, 409, 429})
"""Statuses of refusals that are about the account, the token, the address or the pace, or that may follow a create that
took effect: the next run looks the entry up, and sends it again once it is proved absent (architecture 4.8)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The entry of one identity. If the state is REJECTED, `status` and `message` are those of the refusal. If the
    state is HELD, `subscriber_id` and `message` are from the answer (None: no readable answer). In other states they
    are None."""

    state: State
    subscriber_id: int | None
    fingerprint: bytes | None
    status: int | None
    message: str | None
    attempts: int
    # The fingerprint that was reported as changed, and when (Unix seconds). REJECTED: that a later run has looked up.
    reported: bytes | None = None
    reported_at: float | None = None
    altered: str | None = None  # fields that the service altered in its answer, separated by blanks (architecture 4.13)
    run_key: int | None = None  # the run that sent the entry last, or checked its refusal; None: a listing showed it
    opted_out: str | None = None  # the job whose row says inactive while the service shows the subscriber as active


@dataclass(slots=True, unsafe_hash=True)  # one for each row or more: frozen ones take three times as long to make
class Intent:
    """A create that is about to be sent: digest of the identity, fingerprint, the request's body, and the field
    (email or client_user_id) that the identity is of."""

    identity: bytes
    fingerprint: bytes
    body: bytes
    field: str = "email"


@dataclass(slots=True, unsafe_hash=True)  # one for each row or more: frozen ones take three times as long to make
class Move:
    """The move of an entry whose create was intended: the event and its values.

    `answered_base` are id and name of the base in the answer, if that is not the base of the request. `is_stale`: the
    entry was not sent, and must be looked up again. `is_known`: the answered subscriber existed before the create.
    `may_pass`: the refusal is about the service, and not the row.
    """

    event: Event
    subscriber_id: int | None = None
    status: int | None = None
    message: str = ""
    altered: tuple[str, ...] = ()
    answered_base: tuple[int | None, str | None] | None = None
    is_stale: bool = False
    is_known: bool = False
    may_pass: bool = False

    @property
    def is_limited(self) -> bool:
        """Whether the service refused the create with 429 (too many requests), or with a refusal that may pass."""
        return self.event is Event.REFUSED and (self.status == 429 or self.may_pass)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An entry whose body is kept because the create may be sent again: UNKNOWN, HELD or REJECTED.

    `run_id` and `run_key` are the id and the key of the run that sent the create last. `suppressed_by` is the job whose
    suppression list that run had (None: no list). `is_holding` is whether that run had `on_unknown: hold`. `status` and
    `message` are those of a refusal. `answered_id` is the subscriber id in the answer to a create that is HELD.
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
    answered_id: int | None = None
    run_key: int = 0

    @property
    def is_final(self) -> bool:
        """Whether the refusal is final: only a person sends the create again."""
        return self.status is not None and self.status not in NOT_FINAL


@dataclass(frozen=True, slots=True)
class Refusal:
    """How the service refused the create of a REJECTED entry, and the run that recorded it."""

    identity: bytes
    status: int
    message: str
    run_key: int


@dataclass(frozen=True, slots=True)
class Known:
    """A CONFIRMED entry. `known_since` is the end of the run that confirmed the entry, or a later time (Unix seconds;
    infinity: the run has not ended; None: a listing showed the subscriber)."""

    identity: bytes
    subscriber_id: int
    known_since: float | None


@dataclass(frozen=True, slots=True)
class Holder:
    """An entry that has a subscriber id: its base, the Id and the name of that base in the service, and the run that
    sent the entry last (None: a listing showed it)."""

    subscriber_id: int
    base_key: int
    base_id: int | None
    base_name: str | None
    run_key: int | None


ListedEntry = tuple[bytes, int, int | None, int | None, str | None]
"""Identity, state, subscriber id, status and message of an entry."""

LAST_RUN_KEY = 2**31 - 1


class Ledger:
    """The entries of a ledger, with the connection and the transactions of its store. `is_file` is whether the ledger
    is a file on this machine, and not on a server.

    A run of a `shard` moves only entries of the shard. A method that moves entries without their identities as
    arguments is limited to the shard's range of identities.
    """

    def __init__(self, store: Store, shard: Shard = WHOLE) -> None:
        self.store, self.shard = store, shard
        self._range = {"range_start": shard.start, "range_end": shard.end}
        self.connection, self.is_file, self.transaction = store.connection, store.is_file, store.transaction

    # Reading

    def find_entries(self, base: Base, identities: Sequence[bytes]) -> dict[bytes, Entry]:
        """Return the entries of these identities (digests). Identities without an entry are left out."""
        rows = self.store.select(_FIND, {}, _build_rows(base, identities))
        return {identity: Entry(_STATES[state], *rest) for identity, state, *rest in rows}

    def find_different(self, base: Base, digests: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bool]:
        """Return the identities of changed rows, each with whether the identity has an entry. `digests` are (identity,
        fingerprint).

        A row is unchanged if its entry is CONFIRMED with the same fingerprint and is not an opt-out.
        """
        rows = [(base.key, *digest) for digest in digests]
        found = self.store.select(_FIND_DIFFERENT, {"confirmed": State.CONFIRMED}, rows)
        return {identity: bool(has_entry) for identity, has_entry in found}

    def find_not_final(self, base: Base) -> list[bytes]:
        """Return the identities of the base's REJECTED entries whose refusals are not final; each has a body."""
        return [refusal.identity for refusal in self.find_refused(base) if refusal.status in NOT_FINAL]

    def find_refused(self, base: Base) -> list[Refusal]:
        """Return the refusals of the base's REJECTED entries that have a body, without entries that a person gave
        up."""
        values = {"base": base.key, "state": State.REJECTED, **self._range}
        return [Refusal(*row) for row in self.connection.execute(_FIND_REFUSED, values)]

    def find_unfinished(self, base: Base, state: State) -> list[Unfinished]:
        """Return all entries of the base in this state (UNKNOWN, HELD, REJECTED) that have a body, of any run."""
        rows = self.connection.execute(_FIND_UNFINISHED, {"base": base.key, "state": state, **self._range})
        return [Unfinished(identity, _FIELDS[field], *rest) for identity, field, *rest in rows]

    def find_confirmed(self, base: Base, start: bytes, number: int, *, before: int = LAST_RUN_KEY) -> list[Known]:
        """Return at most `number` CONFIRMED entries of the base, from the identity (a digest) `start` on, and then from
        the first identity.

        Entries that the run `before` (its key) or a later one has sent, or that a person has accepted under another
        identity, are left out.
        """
        values: dict[str, object] = {"base": base.key, "state": State.CONFIRMED, "number": number, "before": before}
        values |= {"accepted": HOW["accepted"], "not_ended": inf, **self._range}
        start = self.shard.place(start)
        found = [Known(*row) for row in self.connection.execute(_FIND_CONFIRMED, {**values, "start": start})]
        if len(found) < number and start:
            found += [Known(*row) for row in self.connection.execute(_FIND_CONFIRMED, {**values, "start": b""})]
        return list(dict.fromkeys(found))[:number]

    def list_confirmed(self, base: Base, field: str, before: int, since: float) -> "tuple[bytes, array[int]]":
        """Return the identities of `field`, joined, and the subscriber ids of all CONFIRMED entries of the base that a
        listing should show: confirmed by a listing, or by a run before the run `before` (its key) that ended by `since`
        (Unix seconds)."""
        values: dict[str, object] = {"base": base.key, "state": State.CONFIRMED, "field": IDENTITY_FIELDS[field]}
        values |= {"before": before, "accepted": HOW["accepted"], "since": since, **self._range}
        identities, ids = bytearray(), array("q")
        for identity, subscriber_id in self.connection.execute(_LIST_CONFIRMED, values):
            identities += identity
            ids.append(subscriber_id)
        return bytes(identities), ids

    def find_shown(self, base: Base, start: bytes, number: int) -> list[Known]:
        """Return at most `number` CONFIRMED entries of the base that the list has shown, in the order of
        `find_confirmed`."""
        values = {"base": base.key, "state": State.CONFIRMED, "number": number, "not_ended": inf, **self._range}
        start = self.shard.place(start)
        found = [Known(*row) for row in self.connection.execute(_FIND_SHOWN, {**values, "start": start})]
        found += [Known(*row) for row in self.connection.execute(_FIND_SHOWN, {**values, "start": b""})]
        return list(dict.fromkeys(found))[:number]

    def find_opt_outs(self, base: Base, job: str) -> list[bytes]:
        """Return the identities of the base's opt-outs that the job has recorded."""
        values = {"base": base.key, "job": make_storable(job), **self._range}
        return [bytes(identity) for (identity,) in self.connection.execute(_FIND_OPT_OUTS, values)]

    def list_entries(self, base: Base, field: str, after: bytes, number: int) -> list[ListedEntry]:
        """Return at most `number` entries of the base whose identity is of `field`, in the order of identities, from
        behind the identity `after` (b"": from the first)."""
        values = {"base": base.key, "field": IDENTITY_FIELDS[field], "after": after, "number": number}
        return [(bytes(identity), *others) for identity, *others in self.connection.execute(_LIST_ENTRIES, values)]

    def find_last_confirming(self, since: float, now: float) -> float | None:
        """Return when the latest run ended that confirmed an entry which is still CONFIRMED, if that was after `since`.

        `now` if that run has not ended. Unix seconds.
        """
        values = {"since": since, "now": now, "state": State.CONFIRMED}
        found: float | None = self.connection.execute(_LAST_CONFIRMING, values).scalar_one()
        return found

    def find_holders(self, account: str, subscriber_ids: Sequence[int]) -> list[Holder]:
        """Return the entries of the account, in any base, that have one of these subscriber ids."""
        rows = [(subscriber_id,) for subscriber_id in subscriber_ids]
        return [Holder(*row) for row in self.store.select(_FIND_HOLDERS, {"account": make_storable(account)}, rows)]

    def read_largest_id(self) -> int:
        """Return the largest subscriber id of all entries, of any account; 0 if no entry has one."""
        return self.connection.execute(_LARGEST_ID).scalar_one_or_none() or 0

    def has_unknown_of_another_kind(self, base: Base, field: str) -> bool:
        """Return whether an UNKNOWN entry of the base has an identity of another field than this one."""
        values = {"base": base.key, "state": State.UNKNOWN, "field": IDENTITY_FIELDS[field]}
        return bool(self.connection.execute(_HAS_OF_ANOTHER_KIND, values).scalar_one())

    # Before a request

    def mark_intended(self, base: Base, run_key: int, intents: Sequence[Intent]) -> None:
        """Move NONE to SENDING."""
        key = base.key
        rows = [
            (key, intent.identity, IDENTITY_FIELDS[intent.field], intent.fingerprint, intent.body) for intent in intents
        ]
        self._move(_INSERT_INTENT, rows, State.NONE, Event.INTENDED, run=run_key)

    def mark_intended_again(self, base: Base, run_key: int, intents: Sequence[Intent]) -> None:
        """Move REJECTED to SENDING: another fingerprint, looked up before."""
        self._send_again(base, run_key, intents, State.REJECTED, Event.INTENDED)

    def mark_absent(self, base: Base, run_key: int, intents: Sequence[Intent]) -> None:
        """Move UNKNOWN to SENDING: proved absent by architecture 4.5."""
        self._send_again(base, run_key, intents, State.UNKNOWN, Event.ABSENT)

    # After it

    def mark_answered(self, base: Base, answered: Sequence[tuple[bytes, int]]) -> None:
        """Move SENDING to CONFIRMED: (identity, subscriber id)."""
        rows = [(base.key, *item) for item in answered]
        self._move(_CONFIRM, rows, State.SENDING, Event.ANSWERED, how=HOW["created"])

    def mark_misanswered(self, base: Base, answered: Sequence[tuple[bytes, int, str]]) -> None:
        """Move SENDING to HELD: (identity, the answered subscriber id, the description of the answer)."""
        rows = [(base.key, identity, answered_id, make_storable(words)) for identity, answered_id, words in answered]
        self._move(_HOLD, rows, State.SENDING, Event.MISANSWERED)

    def mark_refused(self, base: Base, left: State, refused: Sequence[tuple[bytes, int, str]]) -> None:
        """Move SENDING, or UNKNOWN that is proved absent (`left`), to REJECTED: (identity, HTTP status, message)."""
        rows = [(base.key, identity, status, make_storable(words)) for identity, status, words in refused]
        self._move(_REJECT, rows, left, Event.REFUSED)

    def mark_not_sent(self, base: Base, identities: Sequence[bytes]) -> None:
        """Move SENDING to NONE: known to have had no effect."""
        self._move(_DELETE, _build_rows(base, identities), State.SENDING, Event.NOT_SENT)

    def mark_lost(self, base: Base, identities: Sequence[bytes]) -> None:
        """Move SENDING to UNKNOWN."""
        self._move(_SET_STATE, _build_rows(base, identities), State.SENDING, Event.LOST)

    def mark_died(self) -> int:
        """Move every SENDING to UNKNOWN, in every base: only a run that holds the lock may say so. Returns how many."""
        values = {"to": ENTRY.decide(State.SENDING, Event.DIED), "left": State.SENDING}
        return self.connection.execute(_SET_ALL, values | self._range).rowcount

    # Settling

    def mark_found(self, base: Base, left: State, found: Sequence[tuple[bytes, int]], *, is_ours: bool = True) -> None:
        """Move UNKNOWN, HELD or REJECTED (`left`) to CONFIRMED: (identity, subscriber id), seen in the service.

        The subscriber of an UNKNOWN entry is this connector's create if `is_ours`. Any other subscriber may have come
        by another way: the entry loses its fingerprint, so that the next row is compared.
        """
        how = HOW["found"] if left is State.REJECTED else HOW["settled"]
        batch = _CONFIRM if left is State.UNKNOWN and is_ours else _CONFIRM_OTHER
        self._move(batch, [(base.key, *pair) for pair in found], left, Event.FOUND, how=how)

    def mark_withheld(self, base: Base, withheld: Sequence[tuple[bytes, str | None]]) -> None:
        """Move UNKNOWN to HELD, for a person to decide: (identity, why nothing proves the absence; None: proved)."""
        rows = [(base.key, identity, None, message) for identity, message in withheld]
        self._move(_HOLD, rows, State.UNKNOWN, Event.WITHHELD)

    def mark_suppressed(self, base: Base, identities: Sequence[bytes]) -> None:
        """Move UNKNOWN to NONE: proved absent, and on the suppression list by now."""
        self._move(_DELETE, _build_rows(base, identities), State.UNKNOWN, Event.SUPPRESSED)

    def mark_unresolved(self, base: Base, identities: Sequence[bytes]) -> None:
        """Move REJECTED to UNKNOWN, so that the entry is looked up before it is sent again. The entry needs a body."""
        self._move(_TO_UNKNOWN, _build_rows(base, identities), State.REJECTED, Event.UNRESOLVED)

    # What a person decides

    def mark_reopened(self, base: Base, identities: Sequence[bytes]) -> None:
        """Move HELD to UNKNOWN: the entry is looked up again, and sent again if it is absent."""
        self._move(_TO_UNKNOWN, _build_rows(base, identities), State.HELD, Event.REOPENED)

    def mark_accepted(self, base: Base, accepted: Sequence[tuple[bytes, int]]) -> None:
        """Move HELD to CONFIRMED: (identity, the subscriber id that was answered)."""
        rows = [(base.key, *entry) for entry in accepted]
        self._move(_CONFIRM, rows, State.HELD, Event.ACCEPTED, how=HOW["accepted"])

    def mark_dropped(self, base: Base, identities: Sequence[bytes], words: str) -> None:
        """Move HELD to REJECTED with this message: given up until the row changes."""
        rows = [(base.key, identity, 0, words) for identity in identities]
        self._move(_REJECT, rows, State.HELD, Event.DROPPED)

    def mark_forgotten(self, base: Base, left: State, identities: Sequence[bytes]) -> None:
        """Move CONFIRMED, HELD or REJECTED (`left`) to NONE: the next row of the identity is new."""
        self._move(_DELETE, _build_rows(base, identities), left, Event.FORGOTTEN)

    # What a listing shows

    def record_listed(self, base: Base, field: str, listed: Sequence[tuple[bytes, int]]) -> None:
        """Move NONE, REJECTED and HELD to CONFIRMED for all subscribers that a listing shows: (identity, subscriber
        id).

        The entries have no fingerprint, because the service may have other values than the row. Entries in other states
        do not change. If an identity is listed twice, its first id counts. `field` is the field of the identities.
        """
        shared = {
            "field": IDENTITY_FIELDS[field],
            "to": ENTRY.decide(State.NONE, Event.FOUND),
            "how": HOW["found"],
            "rejected": State.REJECTED,
            "held": State.HELD,
        }
        own = [subscriber for subscriber in listed if self.shard.is_whole or self.shard.holds(subscriber[0])]
        first = dict(reversed(own))  # PostgreSQL refuses to touch one entry twice in one statement
        self.store.write(_INSERT_LISTED, shared, [(base.key, *pair) for pair in first.items()])

    def record_shown(self, base: Base, identities: Sequence[bytes]) -> None:
        """Record in CONFIRMED entries that the list has shown their subscribers. Entries that a person has accepted
        stay as they are."""
        shared = {"left": State.CONFIRMED, "shown": HOW["shown"], "accepted": HOW["accepted"]}
        self.store.write(_SET_SHOWN, shared, _build_rows(base, identities))

    # What a row says now

    def record_equal(self, base: Base, digests: Sequence[tuple[bytes, bytes]]) -> None:
        """Record the fingerprints of rows that equal the service's values, in their CONFIRMED entries.

        `digests` are (identity, fingerprint).
        """
        self.store.change(_SET_FINGERPRINT, {"left": State.CONFIRMED}, [(base.key, *digest) for digest in digests])

    def record_reported(self, base: Base, digests: Sequence[tuple[bytes, bytes]], at: float) -> None:
        """Record that these rows differ from the service, as was reported at `at` (Unix seconds), in their CONFIRMED
        entries. `digests` are (identity, the row's fingerprint)."""
        rows = [(base.key, *digest) for digest in digests]
        self.store.change(_SET_REPORTED, {"left": State.CONFIRMED, "at": float(at)}, rows)

    def record_opt_outs(self, base: Base, job: str, identities: Sequence[bytes]) -> None:
        """Record in CONFIRMED entries that a row of the job says inactive while the service shows the subscriber as
        active."""
        self.store.change(
            _SET_OPTED_OUT, {"left": State.CONFIRMED, "job": make_storable(job)}, _build_rows(base, identities)
        )

    def clear_opt_outs(self, base: Base, identities: Sequence[bytes]) -> None:
        """Record that these entries are not opt-outs. Rows that were reported as changed are compared again."""
        self.store.write(_CLEAR_OPTED_OUT, {}, _build_rows(base, identities))

    def record_checked(self, base: Base, run_key: int, identities: Sequence[bytes], at: float) -> None:
        """Record in REJECTED entries that this run has looked the refused subscribers up. If an earlier run sent the
        create, the look-up at `at` (Unix seconds) came long after the refusal: `reported_at` has its time."""
        shared = {"left": State.REJECTED, "run": run_key, "at": at}
        self.store.write(_SET_CHECKED, shared, _build_rows(base, identities))

    def record_altered(self, base: Base, altered: Sequence[tuple[bytes, Sequence[str]]]) -> None:
        """Record in CONFIRMED entries the fields that the service altered when it created them: (identity, names)."""
        rows = [(base.key, identity, " ".join(names)) for identity, names in altered]
        self.store.change(_SET_ALTERED, {"left": State.CONFIRMED}, rows)

    def _send_again(self, base: Base, run_key: int, intents: Sequence[Intent], left: State, event: Event) -> None:
        rows = [(base.key, intent.identity, intent.fingerprint, intent.body) for intent in intents]
        self._move(_SEND_AGAIN, rows, left, event, run=run_key)

    def _move(self, batch: Batch, rows: Rows, left: State, event: Event, **shared: int) -> None:
        """Move the entry of each row from the state `left` to the state that the table of transitions has for the
        event."""
        self.store.change(batch, {"left": left, "to": ENTRY.decide(left, event), **shared}, rows)


_FIELDS = {number: field for field, number in IDENTITY_FIELDS.items()}
_STATES = tuple(State)  # by their numbers; half the cost of a look-up by `State(number)`


def _build_rows(base: Base, identities: Sequence[bytes]) -> list[tuple[int, bytes]]:
    return [(base.key, identity) for identity in identities]


def count_unsettled(connection: Connection) -> dict[str, int]:
    """Return the number of unsettled entries (SENDING, UNKNOWN, HELD) of each account that has such entries."""
    values = {"sending": State.SENDING, "unknown": State.UNKNOWN, "held": State.HELD}
    return dict(connection.execute(_UNSETTLED, values).all())


# The base is in every row. As a shared value it would lead PostgreSQL, before the table is first analysed, to read
# the whole base for each batch: 54 ms in place of 3 among 300,000 entries, measured.
_ENTRY = "entry.base_key = item.column1 AND entry.identity = item.column2"
_AT = f"WHERE {_ENTRY} AND state = :left"

_FIND = Batch(
    "SELECT identity, state, subscriber_id, fingerprint, status, message, attempts, reported, reported_at, altered, "
    f"run_key, opted_out FROM {{item}} JOIN entry ON {_ENTRY}",
    "integer bytea",
)
_FIND_DIFFERENT = Batch(
    "SELECT item.column2, entry.identity IS NOT NULL "
    f"FROM {{item}} LEFT JOIN entry ON {_ENTRY} "
    "WHERE entry.identity IS NULL OR state <> :confirmed OR fingerprint IS NULL OR fingerprint <> item.column3 "
    f"OR {OPTED_OUT}",
    "integer bytea bytea",
)
_FIND_HOLDERS = Batch(
    "SELECT item.column1, entry.base_key, base.service_id, base.name, entry.run_key FROM {item} "
    "JOIN entry ON entry.subscriber_id = item.column1 JOIN base ON base.base_key = entry.base_key "
    "WHERE base.account = :account",
    "bigint",
)
_LARGEST_ID = text(
    "SELECT subscriber_id FROM entry WHERE subscriber_id IS NOT NULL ORDER BY subscriber_id DESC LIMIT 1"
)
_INSERT_INTENT = Batch(
    "INSERT INTO entry (base_key, identity, identity_field, state, fingerprint, body, attempts, run_key) "
    "SELECT item.column1, item.column2, item.column3, :to, item.column4, item.column5, 1, :run FROM {item} WHERE true "
    "ON CONFLICT DO NOTHING",  # WHERE true: without it SQLite reads ON as a condition of a join
    "integer bytea smallint bytea bytea",
)
_INSERT_LISTED = Batch(
    "INSERT INTO entry (base_key, identity, identity_field, state, how, subscriber_id) "
    "SELECT item.column1, item.column2, :field, :to, :how, item.column3 FROM {item} WHERE true "
    "ON CONFLICT (base_key, identity) DO UPDATE SET state = excluded.state, how = excluded.how, "
    "subscriber_id = excluded.subscriber_id, fingerprint = NULL, body = NULL, status = NULL, message = NULL, "
    "reported = NULL, reported_at = NULL WHERE entry.state IN (:rejected, :held)",
    "integer bytea bigint",
)
_SEND_AGAIN = Batch(
    "UPDATE entry SET state = :to, fingerprint = item.column3, body = item.column4, status = NULL, message = NULL, "
    f"attempts = attempts + 1, run_key = :run, reported = NULL, reported_at = NULL FROM {{item}} {_AT}",
    "integer bytea bytea bytea",
)
_CONFIRM = Batch(
    "UPDATE entry SET state = :to, how = :how, subscriber_id = item.column3, body = NULL, status = NULL, "
    f"message = NULL FROM {{item}} {_AT}",
    "integer bytea bigint",
)
_CONFIRM_OTHER = Batch(
    "UPDATE entry SET state = :to, how = :how, subscriber_id = item.column3, fingerprint = NULL, body = NULL, "
    f"status = NULL, message = NULL FROM {{item}} {_AT}",
    "integer bytea bigint",
)
_HOLD = Batch(
    f"UPDATE entry SET state = :to, subscriber_id = item.column3, message = item.column4 FROM {{item}} {_AT}",
    "integer bytea bigint text",
)
_REJECT = Batch(
    "UPDATE entry SET state = :to, subscriber_id = NULL, status = item.column3, message = item.column4 "
    f"FROM {{item}} {_AT}",
    "integer bytea smallint text",
)
_TO_UNKNOWN = Batch(
    "UPDATE entry SET state = :to, subscriber_id = NULL, status = NULL, message = NULL, reported = NULL, "
    f"reported_at = NULL FROM {{item}} {_AT} AND body IS NOT NULL",
    "integer bytea",
)
_SET_STATE = Batch(f"UPDATE entry SET state = :to FROM {{item}} {_AT}", "integer bytea")
_SET_FINGERPRINT = Batch(
    f"UPDATE entry SET fingerprint = item.column3, reported = NULL, reported_at = NULL FROM {{item}} {_AT}",
    "integer bytea bytea",
)
_SET_REPORTED = Batch(
    f"UPDATE entry SET reported = item.column3, reported_at = :at FROM {{item}} {_AT}", "integer bytea bytea"
)
_SET_SHOWN = Batch(f"UPDATE entry SET how = :shown FROM {{item}} {_AT} AND how <> :accepted", "integer bytea")
_SET_ALTERED = Batch(f"UPDATE entry SET altered = item.column3 FROM {{item}} {_AT}", "integer bytea text")
_SET_OPTED_OUT = Batch(f"UPDATE entry SET opted_out = :job FROM {{item}} {_AT}", "integer bytea")
_CLEAR_OPTED_OUT = Batch(
    f"UPDATE entry SET opted_out = NULL, reported = NULL, reported_at = NULL FROM {{item}} WHERE {_ENTRY}",
    "integer bytea",
)
_SET_CHECKED = Batch(
    "UPDATE entry SET run_key = :run, reported = CASE WHEN run_key <> :run THEN fingerprint ELSE reported END, "
    "reported_at = CASE WHEN run_key <> :run AND fingerprint IS NOT NULL THEN CAST(:at AS double precision) "
    f"ELSE reported_at END FROM {{item}} {_AT}",
    "integer bytea",
)
_DELETE = Batch(
    "DELETE FROM entry WHERE state = :left AND (base_key, identity) IN (SELECT item.column1, item.column2 FROM {item})",
    "integer bytea",
)

_IN_RANGE = "identity >= :range_start AND identity < :range_end"
_SET_ALL = text(f"UPDATE entry SET state = :to WHERE state = :left AND {UNFINISHED} AND {_IN_RANGE}")
_UNFINISHED = (
    "SELECT identity, identity_field, fingerprint, body, attempts, run_id, suppressed_by, entry.status, message, "
    "is_holding, subscriber_id, run_key "
    "FROM entry JOIN run USING (run_key) "
    f"WHERE base_key = :base AND state = :state AND {UNFINISHED} AND {_IN_RANGE} AND body IS NOT NULL"
)
_FIND_UNFINISHED = text(f"{_UNFINISHED} ORDER BY identity")
_FIND_REFUSED = text(
    f"SELECT identity, status, message, run_key FROM entry WHERE base_key = :base AND state = :state AND {UNFINISHED} "
    f"AND {_IN_RANGE} AND body IS NOT NULL AND status <> 0 ORDER BY identity"
)
_HAS_OF_ANOTHER_KIND = text(
    f"SELECT EXISTS (SELECT 1 FROM entry WHERE base_key = :base AND state = :state AND {UNFINISHED} "
    "AND identity_field <> :field)"
)
_KNOWN = (
    "SELECT identity, subscriber_id, CASE WHEN entry.run_key IS NULL THEN NULL "
    "ELSE coalesce(run.finished_at, CAST(:not_ended AS double precision)) END FROM entry LEFT JOIN run USING (run_key) "
)
_FIND_SHOWN = text(
    f"{_KNOWN} WHERE base_key = :base AND state = :state AND {SHOWN} AND identity >= :start AND {_IN_RANGE} "
    "ORDER BY identity LIMIT :number"
)
_FIND_CONFIRMED = text(
    f"{_KNOWN} WHERE base_key = :base AND state = :state AND identity >= :start AND {_IN_RANGE} AND how <> :accepted "
    "AND (entry.run_key IS NULL OR entry.run_key < :before) ORDER BY identity LIMIT :number"
)
_LIST_CONFIRMED = text(
    "SELECT identity, subscriber_id FROM entry LEFT JOIN run USING (run_key) WHERE base_key = :base "
    f"AND identity_field = :field AND state = :state AND {_IN_RANGE} AND how <> :accepted AND (entry.run_key IS NULL "
    "OR (entry.run_key < :before AND run.finished_at <= CAST(:since AS double precision)))"
)
_FIND_OPT_OUTS = text(
    f"SELECT identity FROM entry WHERE base_key = :base AND opted_out = :job AND {OPTED_OUT} AND {_IN_RANGE} "
    "ORDER BY identity"
)
_LIST_ENTRIES = text(
    "SELECT identity, state, subscriber_id, status, message FROM entry WHERE base_key = :base "
    "AND identity_field = :field AND identity > :after ORDER BY identity LIMIT :number"
)
_ENDED = "coalesce(run.finished_at, CAST(:now AS double precision))"
_LAST_CONFIRMING = text(
    f"SELECT max({_ENDED}) FROM run WHERE {_ENDED} > :since "
    "AND EXISTS (SELECT 1 FROM entry WHERE entry.run_key = run.run_key AND state = :state)"
)
_UNSETTLED = text(
    "SELECT account, count(*) FROM entry JOIN base USING (base_key) "
    f"WHERE state IN (:sending, :unknown, :held) AND {UNFINISHED} GROUP BY account ORDER BY account"
)
