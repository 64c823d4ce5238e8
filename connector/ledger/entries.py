"""The ledger's entries and their state transitions. Each transition is one function, which does a compare-and-set on
the old state (architecture 4.2).

Call every function inside a transaction of `Ledger.transaction`. Every UPDATE and DELETE of a transition has the old
state as a condition.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from sqlalchemy import Connection, TextClause, text

from connector.ledger.schema import (
    CONFIRMATION_CODES,
    IDENTITY_FIELD_NUMBERS,
    IS_OPT_OUT_SQL,
    IS_SHOWN_SQL,
    IS_UNFINISHED_SQL,
)
from connector.ledger.store import Base, BatchStatement, Rows, Store, make_storable
from connector.shards import SINGLE_SHARD, Shard
from connector.states import ENTRY_STATE_MACHINE, CreateEvent, Event, State, find_traits, list_states_sql

NOT_FINAL_STATUSES = frozenset({401, 402, 403, 404, 405, 408, 409, 429})
"""HTTP statuses of refusals that are not final. The refusal may be about the account, the token, the URL or the request
rate, or the create may have taken effect. The next run looks the entry up, and sends the create again if the subscriber
is proved absent (architecture 4.8)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The entry of one identity in one base. If the state is REJECTED, `status` and `message` are from the refusal. If
    the state is DROPPED, `message` names the decision of the person. If the state is HELD, `subscriber_id` and
    `message` are from the answer to the create (None: the answer was not readable)."""

    state: State
    subscriber_id: int | None
    fingerprint: bytes | None
    status: int | None
    message: str | None
    attempt_count: int
    # The fingerprint of the row that was reported as changed, and the time of the report (Unix seconds).
    # If the state is REJECTED or DROPPED: the fingerprint of the row at a later look-up, and the time of this look-up.
    reported_fingerprint: bytes | None = None
    reported_at: float | None = None
    altered_fields: str | None = None
    """Fields that the service altered in its answer, separated by blanks (architecture 4.13)."""
    # The key of the run that sent the create last, or that looked the subscriber up after a refusal.
    # None: only a listing has shown the subscriber.
    run_key: int | None = None
    opt_out_job: str | None = None  # the job whose row says inactive while the service shows the subscriber as active


@dataclass(slots=True, unsafe_hash=True)  # not frozen, because creating a frozen object takes three times as long
class Intent:
    """A create that is about to be sent: the digest of the identity, the fingerprint, the request's body, and the field
    of the identity (email or client_user_id)."""

    identity: bytes
    fingerprint: bytes
    body: bytes
    identity_field: str = "email"


@dataclass(slots=True, unsafe_hash=True)  # not frozen, because creating a frozen object takes three times as long
class Transition:
    """The state transition of an entry that is SENDING: the event, and its values.

    `answered_base` has the id and the name of the base in the answer, if this is not the base of the request.
    `has_expired_look_up` means that the create was not sent, because its look-up had expired. The subscriber is looked
    up again. `is_subscriber_older_than_create` means that the subscriber in the answer existed before the create.
    `is_refusal_possibly_temporary` means that the refusal may be about the service instead of the row.
    """

    event: CreateEvent
    subscriber_id: int | None = None
    status: int | None = None
    message: str = ""
    altered_fields: tuple[str, ...] = ()  # fields whose values in the answer are not those of the create
    answered_base: tuple[int | None, str | None] | None = None
    has_expired_look_up: bool = False
    is_subscriber_older_than_create: bool = False
    is_refusal_possibly_temporary: bool = False

    @property
    def is_retryable_refusal(self) -> bool:
        """Whether the service refused the create with 429 (too many requests), or with a refusal that may be
        temporary."""
        return self.event is Event.REFUSED and (self.status == 429 or self.is_refusal_possibly_temporary)


@dataclass(frozen=True, slots=True)
class UnfinishedEntry:
    """An entry in the state UNKNOWN, HELD or REJECTED that has a body, because the create may be sent again.

    `run_id` and `run_key` are the id and the key of the run that sent the create last. `suppressing_job` is the job of
    the run's suppression list (None: no list). `run_holds_absent_creates` shows whether the run had `on_unknown: hold`.
    `status` and `message` are the HTTP status and the message of a refusal. `id_in_answer` is the subscriber id in the
    answer if the entry is HELD.
    """

    identity: bytes
    identity_field: str
    fingerprint: bytes
    body: bytes
    attempt_count: int
    run_id: str
    suppressing_job: str | None = None
    status: int | None = None
    message: str | None = None
    run_holds_absent_creates: bool | None = None
    id_in_answer: int | None = None
    run_key: int = 0

    @property
    def is_dropped_create(self) -> bool:
        """Whether this UNKNOWN entry was DROPPED before. A run moved the entry to UNKNOWN because the row had changed,
        and the run ended before it sent the row. Only such an UNKNOWN entry has a message."""
        return self.message is not None

    @property
    def has_final_refusal(self) -> bool:
        """Whether the service refused the create, and only a person can decide that the create is sent again."""
        return self.status is not None and self.status not in NOT_FINAL_STATUSES


@dataclass(frozen=True, slots=True)
class Refusal:
    """The HTTP status and the message of a refused create, and the key of the run that recorded the refusal."""

    identity: bytes
    status: int
    message: str
    run_key: int


@dataclass(frozen=True, slots=True)
class ConfirmedEntry:
    """A CONFIRMED entry. `known_since` is the recorded end of the run that sent the create (Unix seconds), or infinity
    if this run has not ended. If only a listing has shown the subscriber, `known_since` is None."""

    identity: bytes
    subscriber_id: int
    known_since: float | None


@dataclass(frozen=True, slots=True)
class EntryWithId:
    """An entry that has a subscriber id. `base_key` is the key of the entry's base. `base_id` and `base_name` are the
    Id and the name of this base in the service. `run_key` is the run that sent the create last (None: a listing showed
    the subscriber)."""

    subscriber_id: int
    base_key: int
    base_id: int | None
    base_name: str | None
    run_key: int | None


EntryValues = tuple[bytes, int, int | None, int | None, str | None]
"""The values of an entry that a reconciliation needs: identity, state, subscriber id, status and message."""

MAX_RUN_KEY = 2**31 - 1
"""A key that is larger than the key of every run."""


class Ledger:
    """The entries of a ledger, with the connection and the transactions of its store. `is_file` is true for a file on
    this machine, and false for a ledger on a server.

    A run of a `shard` changes only entries of the shard. A method that changes entries without their identities as
    arguments is limited to the shard's range of identities.
    """

    def __init__(self, store: Store, shard: Shard = SINGLE_SHARD) -> None:
        self.store, self.shard = store, shard
        self._range = {"range_start": shard.smallest_digest, "range_end": shard.end_digest}
        self.connection, self.is_file, self.transaction = store.connection, store.is_file, store.transaction

    # Methods that read entries

    def find_entries(self, base: Base, identities: Sequence[bytes]) -> dict[bytes, Entry]:
        """Return the entry of each of these identities (digests), by identity. Leave out identities that have no
        entry."""
        rows = self.store.select(_FIND_ENTRIES, {}, _build_rows(base, identities))
        return {identity: Entry(_STATE_BY_NUMBER[state], *other_values) for identity, state, *other_values in rows}

    def find_identities_of_changed_rows(
        self, base: Base, digest_pairs: Sequence[tuple[bytes, bytes]]
    ) -> dict[bytes, bool]:
        """Return the identities of changed rows as keys. The value is true if the identity has an entry. `digest_pairs`
        are (identity, fingerprint).

        A row is unchanged if its entry is CONFIRMED with the same fingerprint and is not an opt-out.
        """
        rows = [(base.key, *digest_pair) for digest_pair in digest_pairs]
        changed_rows = self.store.select(_FIND_CHANGED_ENTRIES, {"confirmed": State.CONFIRMED}, rows)
        return {identity: bool(has_entry) for identity, has_entry in changed_rows}

    def find_not_final_refusals(self, base: Base) -> list[bytes]:
        """Return the identities of the base's REJECTED entries that have a body and a refusal that is not final."""
        return [refusal.identity for refusal in self.find_refusals(base) if refusal.status in NOT_FINAL_STATUSES]

    def find_refusals(self, base: Base) -> list[Refusal]:
        """Return the refusals of the base's REJECTED entries that have a body."""
        parameters = {"base": base.key, "state": State.REJECTED, **self._range}
        return [Refusal(*row) for row in self.connection.execute(_FIND_REFUSALS, parameters)]

    def find_unfinished_entries(self, base: Base, state: State) -> list[UnfinishedEntry]:
        """Return all entries of the base in this state (UNKNOWN, HELD or REJECTED) that have a body, whichever run sent
        them."""
        rows = self.connection.execute(_FIND_UNFINISHED_ENTRIES, {"base": base.key, "state": state, **self._range})
        return [
            UnfinishedEntry(identity, _FIELD_BY_NUMBER[field], *other_values) for identity, field, *other_values in rows
        ]

    def find_confirmed_entries(
        self, base: Base, first_identity: bytes, max_count: int, *, before_run_key: int = MAX_RUN_KEY
    ) -> list[ConfirmedEntry]:
        """Return at most `max_count` CONFIRMED entries of the base in the order of identities (digests). The search
        begins at `first_identity`. After the last entry of the base, the search continues at the first entry.

        Leave out entries that the run with the key `before_run_key` or a later run has sent. Also leave out entries
        that a person has accepted, because the service's answer did not show the expected subscriber.
        """
        parameters = {"base": base.key, "before": before_run_key, "accepted": CONFIRMATION_CODES["accepted"]}
        return self._find_entries_starting_at(_FIND_CONFIRMED_ENTRIES, parameters, first_identity, max_count)

    def list_confirmed_ids(
        self, base: Base, field: str, before_run_key: int, latest_run_end: float
    ) -> "tuple[bytes, array[int]]":
        """Return the identities (joined to one bytes object) and the subscriber ids of CONFIRMED entries of the base.
        All returned identities are values of `field`. Return only entries that a listing should show: a listing or an
        early run has confirmed these entries. An early run has a smaller key than `before_run_key`, and ended at
        `latest_run_end` (Unix seconds) or earlier.
        """
        parameters = {
            "base": base.key,
            "state": State.CONFIRMED,
            "field": IDENTITY_FIELD_NUMBERS[field],
            "before": before_run_key,
            "accepted": CONFIRMATION_CODES["accepted"],
            "latest_run_end": latest_run_end,
            **self._range,
        }
        joined_identities, subscriber_ids = bytearray(), array("q")
        for identity, subscriber_id in self.connection.execute(_LIST_CONFIRMED_ENTRIES, parameters):
            joined_identities += identity
            subscriber_ids.append(subscriber_id)
        return bytes(joined_identities), subscriber_ids

    def find_shown_entries(self, base: Base, first_identity: bytes, max_count: int) -> list[ConfirmedEntry]:
        """Return at most `max_count` CONFIRMED entries of the base that the list has shown, in the order of
        `find_confirmed_entries`."""
        return self._find_entries_starting_at(_FIND_SHOWN_ENTRIES, {"base": base.key}, first_identity, max_count)

    def _find_entries_starting_at(
        self, statement: TextClause, parameters: Mapping[str, object], first_identity: bytes, max_count: int
    ) -> list[ConfirmedEntry]:
        """Return at most `max_count` entries that the statement finds in the shard. The search begins at
        `first_identity`. After the last entry of the shard, the search continues at the first entry."""
        parameters = {**parameters, "state": State.CONFIRMED, "number": max_count, "not_ended": inf, **self._range}
        entries = dict[ConfirmedEntry, None]()
        for first_shard_identity in dict.fromkeys((self.shard.map_digest_into_shard(first_identity), b"")):
            if len(entries) < max_count:
                rows = self.connection.execute(statement, {**parameters, "start": first_shard_identity})
                entries |= dict.fromkeys(ConfirmedEntry(*row) for row in rows)
        return list(entries)[:max_count]

    def find_opt_outs(self, base: Base, job: str) -> list[bytes]:
        """Return the identities of the base's opt-outs that the job has recorded."""
        parameters = {"base": base.key, "job": make_storable(job), **self._range}
        return [bytes(identity) for (identity,) in self.connection.execute(_FIND_OPT_OUTS, parameters)]

    def list_entries(self, base: Base, field: str, after_identity: bytes, max_count: int) -> list[EntryValues]:
        """Return at most `max_count` entries of the base whose identities are values of `field`, in the order of
        identities. Begin after `after_identity`, or at the first identity if `after_identity` is b""."""
        field_number = IDENTITY_FIELD_NUMBERS[field]
        parameters = {"base": base.key, "field": field_number, "after": after_identity, "number": max_count}
        rows = self.connection.execute(_LIST_ENTRIES, parameters)
        return [(bytes(identity), *other_values) for identity, *other_values in rows]

    def find_end_of_last_confirming_run(self, earliest_run_end: float, now: float) -> float | None:
        """Return the latest end (Unix seconds) of the runs that sent entries which are now CONFIRMED. `now` counts as
        the end of a run that has not ended. Return None if no such run ended after `earliest_run_end`.
        """
        parameters = {"since": earliest_run_end, "now": now, "state": State.CONFIRMED}
        last_run_ended_at: float | None = self.connection.execute(
            _FIND_END_OF_LAST_CONFIRMING_RUN, parameters
        ).scalar_one()
        return last_run_ended_at

    def find_entries_with_ids(self, account: str, subscriber_ids: Sequence[int]) -> list[EntryWithId]:
        """Return the entries of the account, in any base, that have one of these subscriber ids."""
        shared_values = {"account": make_storable(account)}
        rows = [(subscriber_id,) for subscriber_id in subscriber_ids]
        return [EntryWithId(*row) for row in self.store.select(_FIND_ENTRIES_WITH_IDS, shared_values, rows)]

    def read_largest_subscriber_id(self) -> int:
        """Return the largest subscriber id of all entries in all accounts, or 0 if no entry has a subscriber id."""
        return self.connection.execute(_READ_LARGEST_ID).scalar_one_or_none() or 0

    def has_unknown_entry_of_another_field(self, base: Base, field: str) -> bool:
        """Return whether the base has an UNKNOWN entry whose identity is not a value of `field`."""
        parameters = {"base": base.key, "state": State.UNKNOWN, "field": IDENTITY_FIELD_NUMBERS[field]}
        return bool(self.connection.execute(_HAS_UNKNOWN_ENTRY_OF_ANOTHER_FIELD, parameters).scalar_one())

    # Methods for state transitions before a request leaves

    def mark_intended(self, base: Base, run_key: int, intents: Sequence[Intent]) -> None:
        """Add entries in the state SENDING for identities that have no entry."""
        rows = [
            (base.key, intent.identity, IDENTITY_FIELD_NUMBERS[intent.identity_field], intent.fingerprint, intent.body)
            for intent in intents
        ]
        self._change_state(_INSERT_INTENT, rows, State.NONE, Event.INTENDED, run=run_key)

    def mark_intended_again(self, base: Base, run_key: int, old_state: State, intents: Sequence[Intent]) -> None:
        """Move entries from `old_state` to SENDING. The old state is REJECTED, or DROPPED if the rows have changed.
        Before this call, the run must look up the subscribers."""
        self._mark_sent_again(base, run_key, intents, old_state, Event.INTENDED)

    def mark_absent(self, base: Base, run_key: int, intents: Sequence[Intent]) -> None:
        """Move entries from UNKNOWN to SENDING. Their subscribers are proved absent (architecture 4.5)."""
        self._mark_sent_again(base, run_key, intents, State.UNKNOWN, Event.ABSENT)

    # Methods for state transitions after an answer, or after a failed request

    def mark_answered(self, base: Base, answered_entries: Sequence[tuple[bytes, int]]) -> None:
        """Move entries from SENDING to CONFIRMED. `answered_entries` are (identity, subscriber id in the answer)."""
        rows = [(base.key, *entry) for entry in answered_entries]
        self._change_state(
            _SET_ENTRIES_CONFIRMED, rows, State.SENDING, Event.ANSWERED, how=CONFIRMATION_CODES["created"]
        )

    def mark_wrongly_answered(self, base: Base, wrong_answers: Sequence[tuple[bytes, int, str]]) -> None:
        """Move entries from SENDING to HELD. `wrong_answers` are (identity, subscriber id in the answer, description of
        the answer)."""
        rows = [
            (base.key, identity, id_in_answer, make_storable(description))
            for identity, id_in_answer, description in wrong_answers
        ]
        self._change_state(_SET_ENTRIES_HELD_OR_DROPPED, rows, State.SENDING, Event.MISANSWERED)

    def mark_refused(self, base: Base, old_state: State, refusals: Sequence[tuple[bytes, int, str]]) -> None:
        """Move entries from `old_state` to REJECTED. The old state is SENDING, or UNKNOWN if the subscribers are proved
        absent. `refusals` are (identity, HTTP status, message)."""
        rows = [(base.key, identity, status, make_storable(message)) for identity, status, message in refusals]
        self._change_state(_SET_ENTRIES_REJECTED, rows, old_state, Event.REFUSED)

    def mark_not_sent(self, base: Base, identities: Sequence[bytes]) -> None:
        """Delete these SENDING entries, because their requests are known to have had no effect."""
        self._change_state(_DELETE_ENTRIES, _build_rows(base, identities), State.SENDING, Event.NOT_SENT)

    def mark_lost(self, base: Base, identities: Sequence[bytes]) -> None:
        """Move these entries from SENDING to UNKNOWN, because the answers to their creates were lost."""
        self._change_state(_SET_STATE, _build_rows(base, identities), State.SENDING, Event.LOST)

    def mark_sending_entries_unknown(self) -> int:
        """Move every SENDING entry in every base to UNKNOWN, and return the number of these entries. Only a run that
        holds the lock may call this function."""
        parameters = {"new_state": ENTRY_STATE_MACHINE.decide(State.SENDING, Event.DIED), "old_state": State.SENDING}
        return self.connection.execute(_SET_STATE_OF_ALL_ENTRIES, parameters | self._range).rowcount

    # Methods for state transitions that settle unresolved, held or rejected entries

    def mark_found(
        self,
        base: Base,
        old_state: State,
        found_subscribers: Sequence[tuple[bytes, int]],
        *,
        is_own_create: bool = True,
    ) -> None:
        """Move entries from `old_state` (UNKNOWN, HELD, REJECTED or DROPPED) to CONFIRMED. `found_subscribers` are
        (identity, subscriber id) of subscribers that the service has shown.

        With `is_own_create`, UNKNOWN entries keep their fingerprints, because this connector created the subscribers.
        All other entries lose their fingerprints, because another program may have created the subscribers. So the next
        run compares their rows with the subscribers.
        """
        confirmation_code = CONFIRMATION_CODES["found" if find_traits(old_state).counts_as_rejected else "settled"]
        keeps_fingerprints = old_state is State.UNKNOWN and is_own_create
        statement = _SET_ENTRIES_CONFIRMED if keeps_fingerprints else _SET_ENTRIES_CONFIRMED_WITHOUT_FINGERPRINT
        rows = [(base.key, *subscriber) for subscriber in found_subscribers]
        self._change_state(statement, rows, old_state, Event.FOUND, how=confirmation_code)

    def mark_held(self, base: Base, held_entries: Sequence[tuple[bytes, str | None]]) -> None:
        """Move entries from UNKNOWN to HELD, so that a person decides. `held_entries` are (identity, message). The
        message is the reason why the absence is not proved, or None if the absence is proved."""
        rows = [(base.key, identity, None, message) for identity, message in held_entries]
        self._change_state(_SET_ENTRIES_HELD_OR_DROPPED, rows, State.UNKNOWN, Event.HELD)

    def mark_suppressed(self, base: Base, identities: Sequence[bytes]) -> None:
        """Delete these UNKNOWN entries. Their subscribers are proved absent, and are on the suppression list now."""
        self._change_state(_DELETE_ENTRIES, _build_rows(base, identities), State.UNKNOWN, Event.SUPPRESSED)

    def mark_unresolved(self, base: Base, identities: Sequence[bytes], old_state: State = State.REJECTED) -> None:
        """Move these entries from `old_state` (REJECTED or DROPPED) to UNKNOWN, so that a run looks up the subscribers
        before it sends the creates again. Each entry must have a body. An entry that was DROPPED keeps its message."""
        self._change_state(_SET_ENTRIES_UNKNOWN, _build_rows(base, identities), old_state, Event.UNRESOLVED)

    # Methods for state transitions that a person has decided

    def mark_reopened(self, base: Base, identities: Sequence[bytes]) -> None:
        """Move these entries from HELD to UNKNOWN. A run looks up the subscribers again, and sends the creates of
        absent subscribers again."""
        self._change_state(_SET_ENTRIES_UNKNOWN, _build_rows(base, identities), State.HELD, Event.REOPENED)

    def mark_accepted(self, base: Base, accepted_entries: Sequence[tuple[bytes, int]]) -> None:
        """Move entries from HELD to CONFIRMED. `accepted_entries` are (identity, subscriber id in the answer)."""
        rows = [(base.key, *entry) for entry in accepted_entries]
        self._change_state(_SET_ENTRIES_CONFIRMED, rows, State.HELD, Event.ACCEPTED, how=CONFIRMATION_CODES["accepted"])

    def mark_dropped(self, base: Base, identities: Sequence[bytes], message: str) -> None:
        """Move these entries from HELD to DROPPED with this message. No run sends the creates again until their rows
        change."""
        rows = [(base.key, identity, None, message) for identity in identities]
        self._change_state(_SET_ENTRIES_HELD_OR_DROPPED, rows, State.HELD, Event.DROPPED)

    def mark_forgotten(self, base: Base, old_state: State, identities: Sequence[bytes]) -> None:
        """Delete these entries of the state `old_state` (CONFIRMED, HELD, REJECTED or DROPPED). A run then treats
        the next row of each identity as new."""
        self._change_state(_DELETE_ENTRIES, _build_rows(base, identities), old_state, Event.FORGOTTEN)

    # Methods that record subscribers which the list has shown

    def record_listed_subscribers(
        self, base: Base, field: str, listed_subscribers: Sequence[tuple[bytes, int]]
    ) -> None:
        """Record all subscribers that a listing shows. Add CONFIRMED entries for new identities, and move REJECTED,
        DROPPED and HELD entries to CONFIRMED. `listed_subscribers` are (identity, subscriber id).

        The entries have no fingerprint, because the service may have other values than the row. Entries in other states
        do not change. If an identity is listed twice, its first id counts. `field` is the field whose values are the
        identities.
        """
        shared_values = {
            "field": IDENTITY_FIELD_NUMBERS[field],
            "new_state": ENTRY_STATE_MACHINE.decide(State.NONE, Event.FOUND),
            "how": CONFIRMATION_CODES["found"],
        }
        shard_subscribers = [
            subscriber
            for subscriber in listed_subscribers
            if self.shard.is_whole or self.shard.has_digest(subscriber[0])
        ]
        # A list may show an identity twice, but PostgreSQL refuses to change one entry twice in one statement.
        id_by_identity = dict(reversed(shard_subscribers))
        rows = [(base.key, *identity_and_id) for identity_and_id in id_by_identity.items()]
        self.store.write(_INSERT_LISTED_ENTRIES, shared_values, rows)

    def record_shown_identities(self, base: Base, identities: Sequence[bytes]) -> None:
        """Record in CONFIRMED entries that the list has shown their subscribers. Do not change entries that a person
        has accepted."""
        shared_values = {
            "old_state": State.CONFIRMED,
            "shown": CONFIRMATION_CODES["shown"],
            "accepted": CONFIRMATION_CODES["accepted"],
        }
        self.store.write(_SET_ENTRIES_SHOWN, shared_values, _build_rows(base, identities))

    # Methods that record how rows compare with the service

    def record_rows_equal_to_service(self, base: Base, digest_pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Store in CONFIRMED entries the fingerprints of rows whose values are the values of the service.
        `digest_pairs` are (identity, fingerprint)."""
        rows = [(base.key, *digest_pair) for digest_pair in digest_pairs]
        self.store.change(_SET_FINGERPRINT, {"old_state": State.CONFIRMED}, rows)

    def record_reported_rows(self, base: Base, digest_pairs: Sequence[tuple[bytes, bytes]], reported_at: float) -> None:
        """Record in CONFIRMED entries that these rows were reported as changed at `reported_at` (Unix seconds).
        `digest_pairs` are (identity, fingerprint of the row)."""
        rows = [(base.key, *digest_pair) for digest_pair in digest_pairs]
        self.store.change(_SET_REPORTED_FINGERPRINT, {"old_state": State.CONFIRMED, "at": float(reported_at)}, rows)

    def record_opt_outs(self, base: Base, job: str, identities: Sequence[bytes]) -> None:
        """Record an opt-out in CONFIRMED entries: a row of the job says inactive, and the service shows the subscriber
        as active."""
        shared_values = {"old_state": State.CONFIRMED, "job": make_storable(job)}
        self.store.change(_SET_OPT_OUTS, shared_values, _build_rows(base, identities))

    def clear_opt_outs(self, base: Base, identities: Sequence[bytes]) -> None:
        """Record that these entries are no longer opt-outs. Also forget earlier reports of changed rows, so that the
        next run compares the rows again."""
        self.store.write(_CLEAR_OPT_OUTS, {}, _build_rows(base, identities))

    def record_checked_identities(
        self, base: Base, run_key: int, identities: Sequence[bytes], checked_at: float
    ) -> None:
        """Record in REJECTED and DROPPED entries that this run has looked up the subscribers at `checked_at` (Unix
        seconds). Store the time in the column `reported_at` only if an earlier run sent the create. A look-up in the
        run that sent the create comes too soon after the answer."""
        shared_values = {"run": run_key, "at": checked_at}
        self.store.write(_SET_ENTRIES_CHECKED, shared_values, _build_rows(base, identities))

    def record_altered_fields(
        self, base: Base, altered_fields_of_entries: Sequence[tuple[bytes, Sequence[str]]]
    ) -> None:
        """Record in CONFIRMED entries the fields that the service altered when it created the subscribers.
        `altered_fields_of_entries` are (identity, names of the fields)."""
        rows = [(base.key, identity, " ".join(names)) for identity, names in altered_fields_of_entries]
        self.store.change(_SET_ALTERED_FIELDS, {"old_state": State.CONFIRMED}, rows)

    def _mark_sent_again(
        self, base: Base, run_key: int, intents: Sequence[Intent], old_state: State, event: Event
    ) -> None:
        rows = [(base.key, intent.identity, intent.fingerprint, intent.body) for intent in intents]
        self._change_state(_SET_ENTRIES_SENDING_AGAIN, rows, old_state, event, run=run_key)

    def _change_state(
        self, statement: BatchStatement, rows: Rows, old_state: State, event: Event, **shared_values: int
    ) -> None:
        """Change the entry of each row from the state `old_state` to the new state that the state machine has for the
        event."""
        new_state = ENTRY_STATE_MACHINE.decide(old_state, event)
        self.store.change(statement, {"old_state": old_state, "new_state": new_state, **shared_values}, rows)


_FIELD_BY_NUMBER = {field_number: field for field, field_number in IDENTITY_FIELD_NUMBERS.items()}
_STATE_BY_NUMBER = {state.value: state for state in State}  # `State(number)` would take twice as long


def _build_rows(base: Base, identities: Sequence[bytes]) -> list[tuple[int, bytes]]:
    return [(base.key, identity) for identity in identities]


def count_unsettled_entries(connection: Connection) -> dict[str, int]:
    """Return the number of unsettled entries of each account that has such entries."""
    return dict(connection.execute(_COUNT_UNSETTLED_ENTRIES).all())


# Each row of a statement contains the key of the base. PostgreSQL would make a bad plan with one shared key.
# The bad plan reads all entries of the base: 54 ms instead of 3 ms among 300,000 entries (measured).
_IS_ENTRY_OF_ITEM_SQL = "entry.base_key = item.column1 AND entry.identity = item.column2"
_WHERE_OLD_STATE_SQL = f"WHERE {_IS_ENTRY_OF_ITEM_SQL} AND state = :old_state"

_FIND_ENTRIES = BatchStatement(
    "SELECT identity, state, subscriber_id, fingerprint, status, message, attempts, reported, reported_at, altered, "
    f"run_key, opted_out FROM {{item}} JOIN entry ON {_IS_ENTRY_OF_ITEM_SQL}",
    "integer bytea",
)
_FIND_CHANGED_ENTRIES = BatchStatement(
    "SELECT item.column2, entry.identity IS NOT NULL "
    f"FROM {{item}} LEFT JOIN entry ON {_IS_ENTRY_OF_ITEM_SQL} "
    "WHERE entry.identity IS NULL OR state <> :confirmed OR fingerprint IS NULL OR fingerprint <> item.column3 "
    f"OR {IS_OPT_OUT_SQL}",
    "integer bytea bytea",
)
_FIND_ENTRIES_WITH_IDS = BatchStatement(
    "SELECT item.column1, entry.base_key, base.service_id, base.name, entry.run_key FROM {item} "
    "JOIN entry ON entry.subscriber_id = item.column1 JOIN base ON base.base_key = entry.base_key "
    "WHERE base.account = :account",
    "bigint",
)
_READ_LARGEST_ID = text(
    "SELECT subscriber_id FROM entry WHERE subscriber_id IS NOT NULL ORDER BY subscriber_id DESC LIMIT 1"
)
_INSERT_INTENT = BatchStatement(
    "INSERT INTO entry (base_key, identity, identity_field, state, fingerprint, body, attempts, run_key) "
    "SELECT item.column1, item.column2, item.column3, :new_state, item.column4, item.column5, 1, :run "
    "FROM {item} WHERE true "
    "ON CONFLICT DO NOTHING",  # the statement has WHERE true, because SQLite otherwise reads ON as a part of a join
    "integer bytea smallint bytea bytea",
)
_INSERT_LISTED_ENTRIES = BatchStatement(
    "INSERT INTO entry (base_key, identity, identity_field, state, how, subscriber_id) "
    "SELECT item.column1, item.column2, :field, :new_state, :how, item.column3 FROM {item} WHERE true "
    "ON CONFLICT (base_key, identity) DO UPDATE SET state = excluded.state, how = excluded.how, "
    "subscriber_id = excluded.subscriber_id, fingerprint = NULL, body = NULL, status = NULL, message = NULL, "
    "reported = NULL, reported_at = NULL "
    f"WHERE entry.state IN {list_states_sql(lambda traits: traits.is_confirmed_by_list)}",
    "integer bytea bigint",
)
_SET_ENTRIES_SENDING_AGAIN = BatchStatement(
    "UPDATE entry SET state = :new_state, fingerprint = item.column3, body = item.column4, status = NULL, "
    "message = NULL, attempts = attempts + 1, run_key = :run, reported = NULL, reported_at = NULL "
    f"FROM {{item}} {_WHERE_OLD_STATE_SQL}",
    "integer bytea bytea bytea",
)
_SET_ENTRIES_CONFIRMED = BatchStatement(
    "UPDATE entry SET state = :new_state, how = :how, subscriber_id = item.column3, body = NULL, status = NULL, "
    f"message = NULL FROM {{item}} {_WHERE_OLD_STATE_SQL}",
    "integer bytea bigint",
)
_SET_ENTRIES_CONFIRMED_WITHOUT_FINGERPRINT = BatchStatement(
    "UPDATE entry SET state = :new_state, how = :how, subscriber_id = item.column3, fingerprint = NULL, body = NULL, "
    f"status = NULL, message = NULL FROM {{item}} {_WHERE_OLD_STATE_SQL}",
    "integer bytea bigint",
)
_SET_ENTRIES_HELD_OR_DROPPED = BatchStatement(
    "UPDATE entry SET state = :new_state, subscriber_id = item.column3, message = item.column4 "
    f"FROM {{item}} {_WHERE_OLD_STATE_SQL}",
    "integer bytea bigint text",
)
_SET_ENTRIES_REJECTED = BatchStatement(
    "UPDATE entry SET state = :new_state, subscriber_id = NULL, status = item.column3, message = item.column4 "
    f"FROM {{item}} {_WHERE_OLD_STATE_SQL}",
    "integer bytea smallint text",
)
_SET_ENTRIES_UNKNOWN = BatchStatement(
    "UPDATE entry SET state = :new_state, subscriber_id = NULL, status = NULL, reported = NULL, reported_at = NULL, "
    f"message = CASE WHEN state = {State.DROPPED} THEN message END "
    f"FROM {{item}} {_WHERE_OLD_STATE_SQL} AND body IS NOT NULL",
    "integer bytea",
)
_SET_STATE = BatchStatement(
    f"UPDATE entry SET state = :new_state FROM {{item}} {_WHERE_OLD_STATE_SQL}", "integer bytea"
)
_SET_FINGERPRINT = BatchStatement(
    f"UPDATE entry SET fingerprint = item.column3, reported = NULL, reported_at = NULL "
    f"FROM {{item}} {_WHERE_OLD_STATE_SQL}",
    "integer bytea bytea",
)
_SET_REPORTED_FINGERPRINT = BatchStatement(
    f"UPDATE entry SET reported = item.column3, reported_at = :at FROM {{item}} {_WHERE_OLD_STATE_SQL}",
    "integer bytea bytea",
)
_SET_ENTRIES_SHOWN = BatchStatement(
    f"UPDATE entry SET how = :shown FROM {{item}} {_WHERE_OLD_STATE_SQL} AND how <> :accepted", "integer bytea"
)
_SET_ALTERED_FIELDS = BatchStatement(
    f"UPDATE entry SET altered = item.column3 FROM {{item}} {_WHERE_OLD_STATE_SQL}", "integer bytea text"
)
_SET_OPT_OUTS = BatchStatement(
    f"UPDATE entry SET opted_out = :job FROM {{item}} {_WHERE_OLD_STATE_SQL}", "integer bytea"
)
_CLEAR_OPT_OUTS = BatchStatement(
    "UPDATE entry SET opted_out = NULL, reported = NULL, reported_at = NULL "
    f"FROM {{item}} WHERE {_IS_ENTRY_OF_ITEM_SQL}",
    "integer bytea",
)
_SET_ENTRIES_CHECKED = BatchStatement(
    "UPDATE entry SET run_key = :run, reported = CASE WHEN run_key <> :run THEN fingerprint ELSE reported END, "
    "reported_at = CASE WHEN run_key <> :run AND fingerprint IS NOT NULL THEN CAST(:at AS double precision) "
    f"ELSE reported_at END FROM {{item}} WHERE {_IS_ENTRY_OF_ITEM_SQL} "
    f"AND state IN {list_states_sql(lambda traits: traits.counts_as_rejected)}",
    "integer bytea",
)
_DELETE_ENTRIES = BatchStatement(
    "DELETE FROM entry WHERE state = :old_state "
    "AND (base_key, identity) IN (SELECT item.column1, item.column2 FROM {item})",
    "integer bytea",
)

_IS_IN_RANGE_SQL = "identity >= :range_start AND identity < :range_end"
_SET_STATE_OF_ALL_ENTRIES = text(
    f"UPDATE entry SET state = :new_state WHERE state = :old_state AND {IS_UNFINISHED_SQL} AND {_IS_IN_RANGE_SQL}"
)
_FIND_UNFINISHED_ENTRIES = text(
    "SELECT identity, identity_field, fingerprint, body, attempts, run_id, suppressed_by, entry.status, message, "
    "is_holding, subscriber_id, run_key FROM entry JOIN run USING (run_key) "
    f"WHERE base_key = :base AND state = :state AND {IS_UNFINISHED_SQL} AND {_IS_IN_RANGE_SQL} AND body IS NOT NULL "
    "ORDER BY identity"
)
_FIND_REFUSALS = text(
    "SELECT identity, status, message, run_key FROM entry WHERE base_key = :base AND state = :state AND "
    f"{IS_UNFINISHED_SQL} AND {_IS_IN_RANGE_SQL} AND body IS NOT NULL ORDER BY identity"
)
_HAS_UNKNOWN_ENTRY_OF_ANOTHER_FIELD = text(
    f"SELECT EXISTS (SELECT 1 FROM entry WHERE base_key = :base AND state = :state AND {IS_UNFINISHED_SQL} "
    "AND identity_field <> :field)"
)
_SELECT_CONFIRMED_ENTRIES_SQL = (
    "SELECT identity, subscriber_id, CASE WHEN entry.run_key IS NULL THEN NULL "
    "ELSE coalesce(run.finished_at, CAST(:not_ended AS double precision)) END FROM entry LEFT JOIN run USING (run_key) "
)
_FIND_SHOWN_ENTRIES = text(
    f"{_SELECT_CONFIRMED_ENTRIES_SQL} WHERE base_key = :base AND state = :state AND {IS_SHOWN_SQL} "
    f"AND identity >= :start AND {_IS_IN_RANGE_SQL} ORDER BY identity LIMIT :number"
)
_FIND_CONFIRMED_ENTRIES = text(
    f"{_SELECT_CONFIRMED_ENTRIES_SQL} WHERE base_key = :base AND state = :state AND identity >= :start "
    f"AND {_IS_IN_RANGE_SQL} AND how <> :accepted AND (entry.run_key IS NULL OR entry.run_key < :before) "
    "ORDER BY identity LIMIT :number"
)
_LIST_CONFIRMED_ENTRIES = text(
    "SELECT identity, subscriber_id FROM entry LEFT JOIN run USING (run_key) WHERE base_key = :base AND "
    f"identity_field = :field AND state = :state AND {_IS_IN_RANGE_SQL} AND how <> :accepted AND (entry.run_key IS "
    "NULL OR (entry.run_key < :before AND run.finished_at <= CAST(:latest_run_end AS double precision)))"
)
_FIND_OPT_OUTS = text(
    f"SELECT identity FROM entry WHERE base_key = :base AND opted_out = :job AND {IS_OPT_OUT_SQL} AND "
    f"{_IS_IN_RANGE_SQL} ORDER BY identity"
)
_LIST_ENTRIES = text(
    "SELECT identity, state, subscriber_id, status, message FROM entry WHERE base_key = :base "
    "AND identity_field = :field AND identity > :after ORDER BY identity LIMIT :number"
)
_RUN_END_SQL = "coalesce(run.finished_at, CAST(:now AS double precision))"
_FIND_END_OF_LAST_CONFIRMING_RUN = text(
    f"SELECT max({_RUN_END_SQL}) FROM run WHERE {_RUN_END_SQL} > :since "
    "AND EXISTS (SELECT 1 FROM entry WHERE entry.run_key = run.run_key AND state = :state)"
)
_COUNT_UNSETTLED_ENTRIES = text(
    "SELECT account, count(*) FROM entry JOIN base USING (base_key) "
    f"WHERE state IN {list_states_sql(lambda traits: traits.is_unsettled)} AND {IS_UNFINISHED_SQL} "
    "GROUP BY account ORDER BY account"
)
