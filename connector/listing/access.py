"""Values that look-ups share: keys and results, subscribers and ids known to be in use, and how late the list shows
subscribers that this run has confirmed (architecture 4.5 c). Nothing here sends a request."""

import dataclasses
import os
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from connector.choices import IDENTITIES
from connector.clock import Clock
from connector.control import Stop
from connector.fields import BY_NAME
from connector.ledger.commits import LedgerWriter
from connector.ledger.entries import Known
from connector.paging.certificate import Certificate, HiddenClass, Reason
from connector.paging.overlap import IdArray, IdSet
from connector.service.client import Client
from connector.service.retry import Retrier
from connector.spool import SpooledValues
from connector.subscribers.identity import CAPITALS, InactiveIdentities, SpellingClass, classify, is_plain

_ADDED_AT_ONCE = 1024  # answered ids that are kept as Python numbers before they are added to an array together


class KnownIds:
    """The ids that the run's look-ups have shown, in every base, and those in the answers to its creates: 8 bytes each.

    An id that a look-up first shows after the run's first create may belong to an unresolved create of the run.
    `largest_kept` is the largest id that the ledger had before the run's first create (None: not read yet).
    `is_shared`: the list has shown one id in several bases, so the id of a new subscriber may exist in another base.
    """

    def __init__(self) -> None:
        self.largest_kept: int | None = None
        self.is_shared = False
        self._shown_first = IdSet()  # ids shown before the run's first create
        self._others = IdSet()
        self._answered: set[int] = set()  # answered ids that are not in an array yet
        self._largest_added = 0  # the largest id in the two arrays; a new id is nearly always larger
        self._is_creating = False

    def add_shown(self, ids: Collection[int]) -> None:
        """Add ids that a look-up shows."""
        self._add(self._others if self._is_creating else self._shown_first, ids)

    def add_answered(self, subscriber_id: int) -> None:
        """Add the id in the answer to a create."""
        self._is_creating = True
        self._answered.add(subscriber_id)
        if len(self._answered) >= _ADDED_AT_ONCE:
            self._add(self._others, self._answered)
            self._answered.clear()

    def begin_creating(self) -> None:
        """Record that the run's first create leaves."""
        self._is_creating = True

    @property
    def has_earlier(self) -> bool:
        """Whether the run knows of subscribers before its first create."""
        return bool(self.largest_kept) or len(self._shown_first) > 0

    def holds(self, subscriber_id: int) -> bool:
        """Return whether a look-up has shown the id, or an answer has had it."""
        if subscriber_id in self._answered:
            return True
        if subscriber_id > self._largest_added:
            return False
        wanted = np.array([subscriber_id], dtype=np.int64)
        return bool(self._shown_first.holds(wanted)[0] or self._others.holds(wanted)[0])

    def was_shown_first(self, subscriber_id: int) -> bool:
        """Return whether a look-up has shown the id before the run's first create."""
        return bool(self._shown_first.holds(np.array([subscriber_id], dtype=np.int64))[0])

    def _add(self, known: IdSet, ids: Collection[int]) -> None:
        added: IdArray = np.unique(np.fromiter(ids, dtype=np.int64, count=len(ids)))
        known.add(added[~known.holds(added)])
        self._largest_added = max(self._largest_added, max(ids, default=0))


IDENTITY_PATHS = tuple((name, BY_NAME[name].path[0]) for name in IDENTITIES)
"""The fields that an identity may be, with the service's names for them."""

_MASKS = "*•…"  # in an address they stand for characters that a service does not show

_SENTINELS = 1000  # the latest confirmations: the visibility of a later one proves absence (architecture 4.5 c)
_SAMPLES_OF_A_CLASS = 3  # as many as are tried before the filter is held to fail: one or two may have vanished
_CLASSES = 500  # of all that a list of millions holds; a class beyond them has no control, and is swept for
_OF_ONE_MOMENT = frozenset({Reason.ONE_ANSWER, Reason.TWO_SWEEPS})


@dataclass(frozen=True, slots=True)
class LookupKey:
    """A subscriber to look up: the digest of the identity, its field (email, client_user_id), its text as sent.

    A subscriber that we have created shows by the text as sent or by its normal form. `in_any_spelling`: the subscriber
    is absent only if other capitals do not show it either, because another program may have created it.
    """

    identity: bytes
    field: str
    value: str = dataclasses.field(repr=False)
    in_any_spelling: bool = False


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The result of one look-up. The look-up is inconclusive for an identity that is neither `found` nor `missed`.

    `found` maps identities to the ids of the base's subscribers with the identity, in ascending order. `missed` has the
    identities that are absent from an answer known to be whole. `seen` has the sentinels that the look-up showed; a
    look-up by filters looks only for the latest ones. `lag_s` is a lower bound of the list's lag (0: no sign of a lag).
    `started_at` is monotonic. `is_by_filter`: the look-up used filters; otherwise the list was read.
    """

    found: Mapping[bytes, tuple[int, ...]]
    missed: frozenset[bytes]
    seen: frozenset["Sentinel"]
    lag_s: float
    started_at: float
    is_by_filter: bool = False

    @property
    def latest_seen_at(self) -> float:
        """The time (monotonic) at which the latest of `seen` was confirmed; -inf if the look-up showed none."""
        return find_latest(self.seen)


@dataclass(slots=True, unsafe_hash=True)  # each row needs an object: a frozen one takes three times as long to create
class Sentinel:
    """A subscriber that this run created, with the identity's field and its text as sent. `confirmed_at` is when the
    answer came, `sent_at` when the request left (monotonic). `is_active` and `base_id` (None: not known) are its class:
    the list may hide another class."""

    confirmed_at: float
    subscriber_id: int
    field: str
    value: str = dataclasses.field(repr=False)
    sent_at: float = float("-inf")
    is_active: bool = False
    base_id: int | None = None


def find_latest(sentinels: Collection[Sentinel]) -> float:
    """Return the time (monotonic) at which the latest of these was confirmed; -inf if there are none."""
    return max((sentinel.confirmed_at for sentinel in sentinels), default=float("-inf"))


@dataclass(slots=True)
class ListLag:
    """The knowledge of a run about the list's lag, over all its bases: the latest sentinels, and the largest lag on
    record for the account (architecture 4.5 c)."""

    sentinels: deque[Sentinel] = field(default_factory=lambda: deque(maxlen=_SENTINELS))
    largest_lag_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ListedSubscriber:
    """A subscriber on the list, with the text of one field as the service has it."""

    subscriber_id: int
    text: str = field(repr=False)


def shows_identity(wire: Mapping[str, Any], name: str) -> bool:
    """Return whether a row of the list has a value in this identity field (email, client_user_id). A masked email does
    not count."""
    text = wire.get(BY_NAME[name].path[0])
    if not isinstance(text, str) or not text.strip():
        return False
    return name != "email" or not any(mask in text for mask in _MASKS)


@dataclass(slots=True)
class ListStats:
    """Facts about the list at `taken_at` (monotonic): TotalCount and the number of requests of a sweep (None: not
    known), the Ids and names of the bases, and a few listed subscribers of each spelling class."""

    taken_at: float
    total: int | None = None
    pages: int | None = None
    bases: set[tuple[object, object]] = field(default_factory=set)
    samples: dict[SpellingClass, list[ListedSubscriber]] = field(default_factory=dict)
    shown_fields: set[str] = field(default_factory=set)
    """The identity fields that a row has shown."""
    _has_enough_plain: set[str] = field(default_factory=set)

    def add(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        """Add the bases of these subscribers, and keep a few subscribers of each spelling class, of any base."""
        for wire in wire_objects:
            base = wire.get("Base")
            if isinstance(base, dict):
                self.bases.add((base.get("Id"), base.get("Name")))
            for name, path in IDENTITY_PATHS:
                text = wire.get(path)
                if name not in self.shown_fields and shows_identity(wire, name):
                    self.shown_fields.add(name)
                if not isinstance(text, str) or not text or (name in self._has_enough_plain and is_plain(name, text)):
                    continue
                if type(wire.get("Id")) is int and _can_be_asked_for(text):
                    self._keep(classify(name, text), ListedSubscriber(wire["Id"], text))

    def _keep(self, spelling_class: SpellingClass, sample: ListedSubscriber) -> None:
        samples = self.samples.get(spelling_class)
        if samples is None and len(self.samples) < _CLASSES:
            self.samples[spelling_class] = [sample]
        elif samples is not None and len(samples) < _SAMPLES_OF_A_CLASS:
            samples.append(sample)
        elif not spelling_class.traits:
            self._has_enough_plain.add(spelling_class.field)

    def find_with_capitals(self) -> list[ListedSubscriber]:
        """Return the samples whose email has capitals and is plain otherwise."""
        return [
            sample
            for spelling_class, samples in self.samples.items()
            if spelling_class.field == "email" and spelling_class.traits and spelling_class.traits <= CAPITALS
            for sample in samples
        ]


class ShownSubscribers:
    """Listed subscribers that a run's look-ups have shown, by id, with the values of the list.

    They are kept in a temporary file, so that a comparison needs no further request (architecture 4.12).
    """

    def __init__(self) -> None:
        self._index_of: dict[int, int] = {}
        self._values = SpooledValues()

    def keep(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        """Keep these subscribers; the latest values of an id count. Raises RunAborted if the disk is full."""
        first = self._values.add([[wire] for wire in wire_objects])
        for index, wire in enumerate(wire_objects, start=first):
            self._index_of[wire["Id"]] = index

    def read(self, subscriber_id: int) -> dict[str, Any] | None:
        """Return the subscriber with this id as the list showed it, or None."""
        index = self._index_of.get(subscriber_id)
        if index is None:
            return None
        shown: dict[str, Any] = self._values.read(index)[0]
        return shown


@dataclass(slots=True)
class LookupState:
    """The knowledge that all look-ups of a run share, in every base.

    `useless` has the fields whose filters are ignored or refused. `checked_fields` has the fields whose filter lists
    nobody for a made-up value. `controls` has, for each class of spelling that was tried, whether the filter finds a
    subscriber of the class. `is_case_blind` is whether the filter by email finds other capitals (None: not tried).
    `is_list_unreadable` is whether the last sweep was incomplete, and `swept` has the sentinels that the sweep showed.
    `shown` has subscribers that look-ups found for rows that were about to be created, `elsewhere` those that a listing
    of up to 200,000 showed in other bases than the run's. A base that the account's list hides has a state of its own:
    `base_id` is its Id, with which each sweep asks. `hidden` has the classes, each as a filter's name and value, that
    the list shows only to a request that asks for the class, and `unshown` those of which not even such a request has
    shown a subscriber. `swept_bases` has the Ids of the bases that the evidence for the last complete sweep asked for.
    `are_classes_known` is whether counts have told which
    classes the list hides. `swept_activity` and `filtered_activity` have the values of `is_active` that the last sweep
    and the filters by identity have shown. `plural_filters` has the fields whose filters have listed several
    subscribers in one answer, so that they return more than the first match.
    """

    stats: ListStats | None = None
    useless: set[str] = field(default_factory=set)
    checked_fields: set[str] = field(default_factory=set)
    controls: dict[SpellingClass, bool] = field(default_factory=dict)
    is_case_blind: bool | None = None
    is_list_unreadable: bool = False
    unreadable_because: str = ""
    swept: frozenset[int] = frozenset()
    shown: ShownSubscribers = field(default_factory=ShownSubscribers)
    elsewhere: ShownSubscribers = field(default_factory=ShownSubscribers)
    base_id: int | None = None
    hidden: tuple[HiddenClass, ...] = ()
    unshown: tuple[HiddenClass, ...] = ()
    swept_bases: frozenset[int] = frozenset()
    are_classes_known: bool = False
    is_missing_false: bool | None = None  # whether a row without IsActive is inactive; None: not asked yet
    swept_activity: set[bool] = field(default_factory=set)
    filtered_activity: set[bool] = field(default_factory=set)
    plural_filters: set[str] = field(default_factory=set)


def _can_be_asked_for(text: str) -> bool:
    """Return whether the text can be written in a URL. A lone surrogate, which JSON may contain, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class ListPolicy:
    """How the list may be used; times in seconds. `identity` (email or client_user_id) is what a listing records."""

    identity: str = "email"
    max_concurrency: int = 512  # 1,000 creates/s at a round trip of half a second; the run finds its own limit
    quiet_period_s: float = 30.0
    fresh_s: float = 900.0
    allow_truncated: bool = False  # architecture 7, rule 7
    ignores_total_count: bool = False  # architecture 7, rule 4


@dataclass(slots=True)
class ListAccess:
    """The objects and settings that a look-up in one base needs, and the state that the run's look-ups share.

    `known` are subscribers of the base for which the account guard had no conclusive answer. Until a sweep has shown
    one of them, nothing that a sweep shows is recorded, and no filter is asked before a sweep.
    """

    control: Stop
    client: Client
    retrier: Retrier
    journal: LedgerWriter
    policy: ListPolicy
    asked_name: str | None = None  # the base's name, if the job names the base without an id: answers must agree
    inactive: InactiveIdentities = field(default_factory=InactiveIdentities)  # shared by all bases of the run
    draw: Callable[[int], bytes] = os.urandom  # returns this many random bytes; simulations pass their own function
    lag: ListLag = field(default_factory=ListLag)  # shared by all bases of the run
    state: LookupState = field(default_factory=LookupState)  # shared by all bases of the run
    known: tuple[Known, ...] = ()
    known_ids: KnownIds = field(default_factory=KnownIds)  # shared by all bases of the run
    is_base_shown: bool = False  # whether the account's list has shown a subscriber of the base in this run

    @property
    def clock(self) -> Clock:
        """The clock of the run."""
        return self.control.clock

    @property
    def sentinels(self) -> deque[Sentinel]:
        """The subscribers that this run has confirmed last."""
        return self.lag.sentinels

    @property
    def shown_after_s(self) -> float:
        """Seconds after which the list should show a create: a quiet period, or the largest lag on record."""
        return max(self.policy.quiet_period_s, self.lag.largest_lag_s)


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """Keys to look up in one base."""

    access: ListAccess
    keys: Sequence[LookupKey]


@dataclass(frozen=True, slots=True)
class Visibility:
    """The sentinels that a look-up showed, and a lower bound of the list's lag."""

    seen: frozenset[Sentinel] = frozenset()
    lag_s: float = 0.0

    @property
    def latest_seen_at(self) -> float:
        """The time (monotonic) at which the latest of `seen` was confirmed; -inf if there is none."""
        return find_latest(self.seen)


def read_visibility(
    sentinels: Collection[Sentinel],
    seen: frozenset[int],
    seen_before: frozenset[int],
    certificate: Certificate,
    started_at: float,
) -> Visibility:
    """Return what a sweep proves of the list's lag: it showed the ids `seen`, and the sweep before it `seen_before`.

    Pages are read one after another. A sweep in id order may show a sentinel on a late page and miss an older
    subscriber, if the service began to show both just after the older one's page was read. The ranks reveal that,
    unless another subscriber vanished there. A sentinel that the sweep before had shown already has no such weakness.
    """
    is_sure = certificate.reason in _OF_ONE_MOMENT or not certificate.is_complete
    counted = seen if is_sure else seen & seen_before
    shown = frozenset(sentinel for sentinel in sentinels if sentinel.subscriber_id in counted)
    missed = (
        [sentinel for sentinel in sentinels if sentinel.subscriber_id not in seen] if certificate.is_complete else []
    )
    return Visibility(shown, measure_lag(missed, started_at))


def read_activity(wire_objects: Sequence[Mapping[str, Any]]) -> set[bool]:
    """Return the values of `is_active` among listed subscribers."""
    return {is_active for wire in wire_objects if isinstance(is_active := wire.get("IsActive"), bool)}


def measure_lag(missed: Collection[Sentinel], started_at: float) -> float:
    """Return the lag that these missed sentinels prove: at least the time since their creates were answered."""
    return max(
        (started_at - sentinel.confirmed_at for sentinel in missed if sentinel.confirmed_at < started_at), default=0.0
    )


def keep_shown(
    access: ListAccess,
    wire_objects: Sequence[dict[str, Any]],
    listed: Sequence[tuple[bytes, int]],
    identities: Collection[bytes],
) -> None:
    """Keep the subscribers of a page that have one of `identities`; `listed` has the page's identities and ids."""
    if ids := {subscriber_id for identity, subscriber_id in listed if identity in identities}:
        access.state.shown.keep([wire for wire in wire_objects if wire["Id"] in ids])
