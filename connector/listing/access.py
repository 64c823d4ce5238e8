"""The values that all look-ups use: the subscribers to look up, results, known subscribers and ids, and the lag of the
list (architecture 4.5 c).

The lag is the time until the list shows a subscriber that this run has confirmed. This module sends no request.
"""

import dataclasses
import os
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from connector.choices import IDENTITY_FIELDS
from connector.clock import Clock
from connector.control import Stop
from connector.fields import FIELD_BY_NAME
from connector.ledger.commits import LedgerWriter
from connector.ledger.entries import ConfirmedEntry
from connector.paging.certificate import Certificate, CertificateReason, HiddenGroup
from connector.paging.overlap import IdArray, IdSet
from connector.service.client import Client
from connector.service.retry import Retrier
from connector.spool import SpooledValues
from connector.subscribers.identity import InactiveIdentities
from connector.subscribers.spellings import CAPITAL_TRAITS, TextTraits, find_text_traits, is_plain_spelling

_MAX_RECENT_ID_COUNT = 20_000  # for at most this many ids, the time of the first look-up is in memory


class KnownIds:
    """The ids that the run's look-ups have shown in any base, and the ids in the answers to the run's creates. An id
    takes 8 bytes, and one of the latest 20,000 ids takes more.

    An id that no look-up showed before the run's first create may belong to an unresolved create of the run. An id that
    no look-up showed before a create was sent may belong to this create. The time at which a look-up showed an id is in
    memory only for the latest ids. Earlier ids count as older than every create.

    `largest_ledger_id` is the largest id that the ledger had before the run's first create (None: not read yet). A
    larger id needs no search in the ledger.
    """

    def __init__(self) -> None:
        self.largest_ledger_id: int | None = None
        self._ids_before_creates = IdSet()  # ids that look-ups have shown before the run's first create
        self._ids_after_creates = IdSet()
        # For the latest ids after the first create: the time at which a look-up first showed the id, or -inf if an
        # answer to a create contained the id.
        self._times_by_recent_id: dict[int, float] = {}
        self._largest_id = 0  # the largest id in the two IdSets; a new id is nearly always larger
        self._is_creating = False

    def add_shown_ids(self, ids: Collection[int], shown_at: float) -> None:
        """Add ids that a look-up has shown at `shown_at` (monotonic)."""
        if not self._is_creating:
            self._add_ids(self._ids_before_creates, ids)
            return
        for subscriber_id in ids:
            self._times_by_recent_id.setdefault(subscriber_id, shown_at)
        self._limit_recent_ids()

    def add_answered_id(self, subscriber_id: int) -> None:
        """Add the subscriber id that the answer to a create contains."""
        self._is_creating = True
        self._times_by_recent_id[subscriber_id] = float("-inf")  # the id belongs to no other create
        self._limit_recent_ids()

    def record_first_create(self) -> None:
        """Record that the run now sends its first create."""
        self._is_creating = True

    @property
    def has_earlier_subscribers(self) -> bool:
        """Whether the run knows subscribers that existed before its first create."""
        return bool(self.largest_ledger_id) or len(self._ids_before_creates) > 0

    def has_id(self, subscriber_id: int, sent_at: float) -> bool:
        """Return whether a look-up had shown the id before `sent_at` (monotonic), or the answer to a create has
        contained the id."""
        if self._times_by_recent_id.get(subscriber_id, float("inf")) <= sent_at:
            return True
        if subscriber_id > self._largest_id:
            return False
        contained_mask = self._ids_after_creates.mark_contained_ids(np.array([subscriber_id], dtype=np.int64))
        return self.was_shown_before_creates(subscriber_id) or bool(contained_mask[0])

    def was_shown_before_creates(self, subscriber_id: int) -> bool:
        """Return whether a look-up has shown the id before the run's first create."""
        return bool(self._ids_before_creates.mark_contained_ids(np.array([subscriber_id], dtype=np.int64))[0])

    def _limit_recent_ids(self) -> None:
        """If too many ids have a time, move the older half of the maximum number to `_ids_after_creates`."""
        if len(self._times_by_recent_id) > _MAX_RECENT_ID_COUNT:
            older_ids = list(islice(self._times_by_recent_id, _MAX_RECENT_ID_COUNT // 2))
            self._add_ids(self._ids_after_creates, older_ids)
            for subscriber_id in older_ids:
                del self._times_by_recent_id[subscriber_id]

    def _add_ids(self, id_set: IdSet, ids: Collection[int]) -> None:
        distinct_ids: IdArray = np.unique(np.fromiter(ids, dtype=np.int64, count=len(ids)))
        id_set.add(distinct_ids[~id_set.mark_contained_ids(distinct_ids)])
        self._largest_id = max(self._largest_id, max(ids, default=0))


IDENTITY_FIELDS_AND_KEYS = tuple((name, FIELD_BY_NAME[name].path[0]) for name in IDENTITY_FIELDS)
"""The identity fields, each with its key in the service's JSON."""

_MASK_CHARACTERS = "*•…"  # characters with which a service masks a part of an address

_MAX_CONFIRMED_CREATES = 1000  # number of latest confirmed creates that a run keeps (architecture 4.5 c)

_MAX_SAMPLES_WITH_SAME_TRAITS = 3
"""The largest number of sample subscribers whose texts have the same traits, such as a plus. A filter fails only if it
finds none of the samples, because one sample may have vanished."""

_MAX_SAMPLED_TRAITS = 500  # samples are stored for at most this many different traits; other texts need a sweep
_REASONS_THAT_PROVE_A_SNAPSHOT = frozenset({CertificateReason.ONE_ANSWER, CertificateReason.TWO_SWEEPS})
"""If a certificate has one of these reasons, all rows of its reading were on the list at the same moment."""


@dataclass(frozen=True, slots=True)
class LookupKey:
    """A subscriber to look up. `identity` is the digest of the identity, `field` is email or client_user_id, and
    `identity_text` is the text as sent.

    If this connector created the subscriber, a filter for the text as sent, or for its normal form, finds the
    subscriber. Another program may have created the subscriber with other capitals. So with `ignores_case`, the
    subscriber is absent only if no filter finds the text in any upper or lower case.
    """

    identity: bytes
    field: str
    identity_text: str = dataclasses.field(repr=False)
    ignores_case: bool = False


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The result of one look-up. For an identity that neither `found_ids` nor `absent_identities` has, the look-up is
    inconclusive.
    """

    found_ids: Mapping[bytes, tuple[int, ...]]  # by identity: the ids of the base's subscribers, in ascending order
    absent_identities: frozenset[bytes]  # identities whose subscribers are proved absent
    seen_confirmed_creates: frozenset["ConfirmedCreate"]
    """The confirmed creates that the look-up showed. A look-up by filters asks only for the latest confirmed
    creates."""
    lag_s: float  # the list lags by at least this many seconds; 0: no sign of a lag
    started_at: float  # monotonic
    is_filter_result: bool = False  # whether filters were used; if false, the list was read

    @property
    def latest_confirmed_create_at(self) -> float:
        """The time (monotonic) at which the latest of `seen_confirmed_creates` was confirmed, or -inf without a
        confirmed create."""
        return find_latest_confirmation_time(self.seen_confirmed_creates)


# The class is not frozen, because creating a frozen object takes three times as long.
@dataclass(slots=True, unsafe_hash=True)
class ConfirmedCreate:
    """A create of this run that the service has confirmed, with the identity's field and its text as sent.
    `confirmed_at` is the time of the answer, `sent_at` the time of the request (monotonic). `is_active` and `base_id`
    (None: not known) are the group of the subscriber: the list may show one group and hide another group.

    If a look-up shows a create that was confirmed after another create was sent, the list is fresh enough to prove
    whether the other create took effect."""

    confirmed_at: float
    subscriber_id: int
    field: str
    identity_text: str = dataclasses.field(repr=False)
    sent_at: float = float("-inf")
    is_active: bool = False
    base_id: int | None = None


def find_latest_confirmation_time(confirmed_creates: Collection[ConfirmedCreate]) -> float:
    """Return the time (monotonic) at which the latest of these confirmed creates was confirmed, or -inf without a
    confirmed create."""
    return max((create.confirmed_at for create in confirmed_creates), default=float("-inf"))


@dataclass(frozen=True, slots=True)
class ListedSubscriber:
    """A subscriber on the list, with its email or client_user_id as the service shows it."""

    subscriber_id: int
    identity_text: str = field(repr=False)


def shows_identity(wire_object: Mapping[str, Any], field_name: str) -> bool:
    """Return whether a row of the list has a value in this identity field (email, client_user_id). A masked email does
    not count."""
    identity_text = wire_object.get(FIELD_BY_NAME[field_name].path[0])
    if not isinstance(identity_text, str) or not identity_text.strip():
        return False
    return field_name != "email" or not any(character in identity_text for character in _MASK_CHARACTERS)


@dataclass(slots=True)
class ListStats:
    """Facts about the list at `read_at` (monotonic). `total_count` is TotalCount, and `sweep_request_count` the number
    of requests of a sweep (None: not known). `bases` has the Ids and names of the bases. `samples_by_traits` has
    a few listed subscribers for each combination of unusual characters, such as capitals and a plus."""

    read_at: float
    total_count: int | None = None
    sweep_request_count: int | None = None
    bases: set[tuple[object, object]] = field(default_factory=set)
    samples_by_traits: dict[TextTraits, list[ListedSubscriber]] = field(default_factory=dict)
    shown_fields: set[str] = field(default_factory=set)
    """Identity fields in which at least one row has a value."""
    _fields_with_plain_samples: set[str] = field(default_factory=set)
    """Identity fields for which enough samples with plain texts are stored."""

    def add(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        """Add the bases of these subscribers. Store a few subscribers as samples for texts with the same unusual
        characters, such as emails with a plus."""
        for wire_object in wire_objects:
            base = wire_object.get("Base")
            if isinstance(base, dict):
                self.bases.add((base.get("Id"), base.get("Name")))
            for field_name, key in IDENTITY_FIELDS_AND_KEYS:
                text = wire_object.get(key)
                if field_name not in self.shown_fields and shows_identity(wire_object, field_name):
                    self.shown_fields.add(field_name)
                if (
                    not isinstance(text, str)
                    or not text
                    or (field_name in self._fields_with_plain_samples and is_plain_spelling(field_name, text))
                ):
                    continue
                if type(wire_object.get("Id")) is not int or not _fits_url(text):
                    continue
                text_traits = find_text_traits(field_name, text)
                sample, samples = ListedSubscriber(wire_object["Id"], text), self.samples_by_traits.get(text_traits)
                if samples is None and len(self.samples_by_traits) < _MAX_SAMPLED_TRAITS:
                    self.samples_by_traits[text_traits] = [sample]
                elif samples is not None and len(samples) < _MAX_SAMPLES_WITH_SAME_TRAITS:
                    samples.append(sample)
                elif not text_traits.traits:
                    self._fields_with_plain_samples.add(field_name)

    def find_samples_with_capitals(self) -> list[ListedSubscriber]:
        """Return the samples whose email has capitals and no other special characters."""
        return [
            sample
            for text_traits, samples in self.samples_by_traits.items()
            if text_traits.field == "email" and text_traits.traits and text_traits.traits <= CAPITAL_TRAITS
            for sample in samples
        ]


class ShownSubscribers:
    """Listed subscribers that a run's look-ups have shown, by id, with the values of the list.

    The values are in a temporary file, so that a comparison needs no further request (architecture 4.12).
    """

    def __init__(self) -> None:
        self._index_by_id: dict[int, int] = {}
        self._values = SpooledValues()

    def store(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        """Store these subscribers. New values of an id replace earlier values. Raises RunAborted if the disk is
        full."""
        first_index = self._values.add([[wire_object] for wire_object in wire_objects])
        for index, wire_object in enumerate(wire_objects, start=first_index):
            self._index_by_id[wire_object["Id"]] = index

    def read(self, subscriber_id: int) -> dict[str, Any] | None:
        """Return the subscriber with this id as the list showed it, or None."""
        index = self._index_by_id.get(subscriber_id)
        if index is None:
            return None
        wire_object: dict[str, Any] = self._values.read(index)[0]
        return wire_object


@dataclass(slots=True)
class LookupState:
    """Facts that all look-ups of a run share, in every base. A base that the account's list hides has its own state. A
    sweep is a reading of the whole list."""

    confirmed_creates: deque[ConfirmedCreate] = field(default_factory=lambda: deque(maxlen=_MAX_CONFIRMED_CREATES))
    largest_lag_s: float = 0.0  # the largest recorded lag of the account's list (architecture 4.5 c)
    list_stats: ListStats | None = None
    unusable_fields: set[str] = field(default_factory=set)  # the service ignores or refuses the filters by these fields
    usable_fields: set[str] = field(default_factory=set)  # the filters by these fields list nobody for a made-up value
    trial_results: dict[TextTraits, bool] = field(default_factory=dict)
    """For all tried traits of texts, such as a plus: whether the filter found a known subscriber with these traits."""
    is_case_insensitive: bool | None = None  # whether the filter by email is case-insensitive; None: not tried
    multiple_match_fields: set[str] = field(default_factory=set)
    """Fields whose filters have listed several subscribers in one answer. So these filters can return more than the
    first match."""
    unreadable_reason: str = ""  # the reason why the last sweep proves no absence, or "" if the sweep was complete
    swept_confirmed_create_ids: frozenset[int] = frozenset()  # the confirmed creates that the last sweep showed
    activity_values_shown_by_sweep: set[bool] = field(default_factory=set)
    """Values of `is_active` that the last sweep showed."""
    activity_values_shown_by_filters: set[bool] = field(default_factory=set)
    """Values of `is_active` that the identity filters showed."""
    # Ids of the bases whose subscribers the last sweep has counted as evidence.
    swept_base_ids: frozenset[int] = frozenset()
    shown_subscribers: ShownSubscribers = field(default_factory=ShownSubscribers)
    """Subscribers that look-ups found for rows that were about to be created."""
    subscribers_of_other_bases: ShownSubscribers = field(default_factory=ShownSubscribers)
    """Subscribers in bases that are not bases of the run, from a listing of up to 200,000 subscribers."""
    base_id: int | None = None  # the Id of a base that the account's list hides; each sweep sends this BaseId
    hidden_groups: tuple[HiddenGroup, ...] = ()  # the list shows these groups only on request
    unshown_groups: tuple[HiddenGroup, ...] = ()
    """Groups without a known subscriber: no sweep and no request for the group has shown a subscriber of the group."""
    are_groups_known: bool = False  # whether counts have shown which groups the list hides


def _fits_url(text: str) -> bool:
    """Return whether a URL can contain the text. JSON may contain a lone surrogate, and a URL may not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class ListPolicy:
    """Settings of the look-ups and listings; times in seconds. A listing records the `identity_field` (email or
    client_user_id) of its subscribers."""

    identity_field: str = "email"
    max_concurrency: int = 512  # enough for 1,000 creates/s at a round trip of half a second
    # An estimate, because the interface document shows no lag. The runs measure the lag.
    quiet_period_s: float = 30.0
    # An estimate. The older a look-up is, the more subscribers other programs may have created since.
    max_lookup_age_s: float = 900.0
    allow_truncated: bool = False  # whether the run accepts a list that may be cut off (architecture 7, rule 7)
    # Whether the run accepts a list whose TotalCount is not the number of its rows (architecture 7, rule 4).
    ignores_total_count: bool = False
    # Whether the run leaves out an active row if its subscriber is inactive in at least one base.
    is_suppressing_inactive: bool = False


@dataclass(slots=True)
class ListAccess:
    """The objects and settings that a look-up in one base needs, and the state that the run's look-ups share.

    `unverified_entries` are known subscribers of the base whose look-up in the check of the account was inconclusive.
    Until a sweep has shown one of these subscribers, no subscriber of a sweep is recorded, and no filter is used.
    """

    stop: Stop
    client: Client
    retrier: Retrier
    ledger_writer: LedgerWriter
    policy: ListPolicy
    requested_base_name: str | None = None
    """The name of the base, if the job gives no id of the base. Answers must have this name."""
    # Shared by all bases of the run.
    inactive_identities: InactiveIdentities = field(default_factory=InactiveIdentities)
    # A function that returns this number of random bytes. Simulations pass another function.
    draw_bytes: Callable[[int], bytes] = os.urandom
    state: LookupState = field(default_factory=LookupState)  # shared by all bases of the run
    unverified_entries: tuple[ConfirmedEntry, ...] = ()
    known_ids: KnownIds = field(default_factory=KnownIds)  # shared by all bases of the run
    is_base_shown: bool = False  # whether the account's list has shown a subscriber of the base in this run

    @property
    def clock(self) -> Clock:
        """The clock of the run."""
        return self.stop.clock

    @property
    def confirmed_creates(self) -> deque[ConfirmedCreate]:
        """The latest creates of this run that the service has confirmed."""
        return self.state.confirmed_creates

    def record_shown_ids(self, ids: Collection[int]) -> None:
        """Record ids that a look-up has just shown."""
        self.known_ids.add_shown_ids(ids, self.clock.monotonic())

    @property
    def expected_lag_s(self) -> float:
        """Seconds after which the list should show the subscriber of a create: a quiet period, or the largest recorded
        lag of the list if this lag is longer."""
        return max(self.policy.quiet_period_s, self.state.largest_lag_s)


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """Keys to look up in one base, with the objects that the look-up needs."""

    list_access: ListAccess
    keys: Sequence[LookupKey]


@dataclass(frozen=True, slots=True)
class ConfirmedCreateVisibility:
    """The confirmed creates that a look-up showed, and a lower bound of the list's lag."""

    seen_confirmed_creates: frozenset[ConfirmedCreate] = frozenset()
    lag_s: float = 0.0


def read_confirmed_create_visibility(
    confirmed_creates: Collection[ConfirmedCreate],
    seen_ids: frozenset[int],
    previous_seen_ids: frozenset[int],
    certificate: Certificate,
    started_at: float,
) -> ConfirmedCreateVisibility:
    """Return this run's confirmed creates that a sweep (a reading of the whole list) proves to be visible, and the lag
    that the sweep proves. `seen_ids` are the ids of the confirmed creates that the sweep showed. `previous_seen_ids`
    are the ids of the confirmed creates that the previous sweep showed.

    The service may begin to show a confirmed create and another subscriber in the middle of a sweep. Then a later page
    shows the confirmed create, but the page of the other subscriber was read before. So if the pages of a complete
    sweep are from different moments, a confirmed create counts only if the previous sweep also showed the confirmed
    create.
    """
    must_count_all_seen_ids = certificate.reason in _REASONS_THAT_PROVE_A_SNAPSHOT or not certificate.is_complete
    counted_ids = seen_ids if must_count_all_seen_ids else seen_ids & previous_seen_ids
    seen_confirmed_creates = frozenset(create for create in confirmed_creates if create.subscriber_id in counted_ids)
    missed_confirmed_creates = (
        [create for create in confirmed_creates if create.subscriber_id not in seen_ids]
        if certificate.is_complete
        else []
    )
    return ConfirmedCreateVisibility(seen_confirmed_creates, measure_lag(missed_confirmed_creates, started_at))


def read_is_active_values(wire_objects: Sequence[Mapping[str, Any]]) -> set[bool]:
    """Return the values of `is_active` among listed subscribers."""
    return {is_active for wire_object in wire_objects if isinstance(is_active := wire_object.get("IsActive"), bool)}


def measure_lag(missed_confirmed_creates: Collection[ConfirmedCreate], started_at: float) -> float:
    """Return the lag of the list that these confirmed creates prove. A look-up that started at `started_at` (monotonic)
    did not show the confirmed creates. So the lag is at least the time from the answers to their creates until the
    look-up."""
    return max(
        (started_at - create.confirmed_at for create in missed_confirmed_creates if create.confirmed_at < started_at),
        default=0.0,
    )


def store_shown_subscribers(
    access: ListAccess,
    wire_objects: Sequence[dict[str, Any]],
    identities_and_ids: Sequence[tuple[bytes, int]],
    identities: Collection[bytes],
) -> None:
    """Store the subscribers of a page that have one of `identities`, with their values. `identities_and_ids` contains
    the identities of the page's subscribers, each with the subscriber's id."""
    if ids := {subscriber_id for identity, subscriber_id in identities_and_ids if identity in identities}:
        access.state.shown_subscribers.store([wire_object for wire_object in wire_objects if wire_object["Id"] in ids])
