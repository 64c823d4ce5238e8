"""The settings of a load, the counts of a run, and the state that the parts of one base's load share."""

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from math import inf
from typing import Literal

import numpy as np
import numpy.typing as npt

from connector.clock import Clock
from connector.control import Stop
from connector.errors import RunAborted
from connector.ledger.commits import LedgerWriter
from connector.ledger.entries import Refusal
from connector.listing.access import ListAccess, ListPolicy, Sentinel
from connector.outcomes import Outcome
from connector.pace.pace import Pace
from connector.pace.refusals import PassingRefusals
from connector.rows import Chunk, LoadRow, Omission, Row
from connector.spool import SpooledValues
from connector.subscribers.identity import FINGERPRINT_BYTES, IDENTITY_BYTES, Suppression, join_digests

_SHORTEST_FRESH_S = 1.0
_ENOUGH = 100  # rows; of fewer a share says little, unless all are concerned
_ALL_OF = 10  # rows at least, that all are concerned


@dataclass(frozen=True, slots=True)
class Problem:
    """A row that needs a person: its outcome, the message of the service or of the connector, and the number of its
    attempts."""

    row: Row
    outcome: Outcome
    field: str
    code: str
    message: str
    http_status: int | None = None
    attempts: int = 0
    raw: str | None = None  # a record that is no row


@dataclass(frozen=True, slots=True)
class Change:
    """A row that differs from its subscriber in the service, or may differ.

    `identity` is the text of the identity in the source. `fields` are the different fields: name, the service's value,
    the source's value. `reason` is why the row was not compared ("": it was compared). `is_known`: an earlier run has
    reported the same difference.
    """

    row: Row
    identity: str = field(repr=False)
    fields: tuple[tuple[str, object, object], ...] = field(default=(), repr=False)
    reason: str = ""
    is_known: bool = False


@dataclass(frozen=True, slots=True)
class OptOut:
    """A subscriber whose row says inactive while the service shows the subscriber as active. Only a person can change
    that, in the service.

    `row` is None if this run has not read the row. `digest` is that of the identity. `identity` is its text as the
    source or else the service has it. `outcome` is that of the row. `reason` is why this run could not see whether the
    subscriber is still active ("": the service shows so).
    """

    row: Row | None
    digest: bytes
    identity: str = field(repr=False)
    outcome: Outcome | None = None
    reason: str = ""


class RunMode(Enum):
    """How a run treats rows. A load sends the rows and records their present values, so no unresolved entry that could
    be one of the rows may stay unresolved."""

    LOAD = "load"
    PLAN = "plan"


class Since(IntEnum):
    """The reason to compare a row with the service."""

    CHANGED = 0  # the row differs from the row that was sent
    REPORTED = 1  # the row has a difference that an earlier run has reported
    FIRST = 2  # the row is the first one of a subscriber who existed before
    LIMITED = 3  # this run's create got a 429, and the list shows the subscriber: equal values prove the create
    OPTED_OUT = 4  # an earlier run has recorded an opt-out; the row has its outcome, or this run has not read it


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A waiting row, with the `owner` of its base."""

    owner: object
    row: LoadRow
    since: Since


class WaitingRows:
    """The rows of a run, all its bases together, that wait to be compared: 30 bytes each in memory, the rest in a
    temporary file without a name."""

    def __init__(self) -> None:
        self._owners: list[object] = []
        self._owner_of: array[int] = array("H")
        self._since = bytearray()
        self._digests = bytearray()  # identity and fingerprint
        self._values = SpooledValues()
        self.ended = 0  # the number of rows whose outcomes were reported

    def __len__(self) -> int:
        return len(self._owner_of)

    @property
    def unknown(self) -> list[int]:
        """The indices of rows that no earlier run has reported."""
        return [index for index, since in enumerate(self._since) if since != Since.REPORTED]

    def find_identities(self, owner: object) -> set[bytes]:
        """Return the identities of the rows that were added with this owner."""
        length = IDENTITY_BYTES + FINGERPRINT_BYTES
        return {
            bytes(self._digests[index * length : index * length + IDENTITY_BYTES])
            for index, number in enumerate(self._owner_of)
            if self._owners[number] is owner
        }

    def add(self, owner: object, rows: Sequence[tuple[LoadRow, Since]]) -> None:
        """Add these rows. Raises RunAborted when the disk is full."""
        if not any(known_owner is owner for known_owner in self._owners):
            self._owners.append(owner)
        number = next(index for index, known_owner in enumerate(self._owners) if known_owner is owner)
        self._values.add([[row.source.number, row.source.file, row.name, dict(row.values)] for row, _ in rows])
        for row, since in rows:
            self._owner_of.append(number)
            self._since.append(since)
            self._digests += row.identity + row.fingerprint

    def read(self, index: int) -> WaitingRow:
        """Return one waiting row, by its index (0-based)."""
        number, file, name, values = self._values.read(index)
        begin = index * (IDENTITY_BYTES + FINGERPRINT_BYTES)
        identity = bytes(self._digests[begin : begin + IDENTITY_BYTES])
        fingerprint = bytes(self._digests[begin + IDENTITY_BYTES : begin + IDENTITY_BYTES + FINGERPRINT_BYTES])
        row = LoadRow(Row(number, file, (), ()), identity, name, fingerprint, values)
        return WaitingRow(self._owners[self._owner_of[index]], row, Since(self._since[index]))

    def clear(self) -> None:
        """Forget them all."""
        self._values.close()
        self._owners, self._owner_of = [], array("H")
        self._since, self._digests, self.ended = bytearray(), bytearray(), 0


def _ignore(_: object) -> None:
    """Do nothing: no listener is set."""


SAMPLES = 5
"""The number of subscribers that a plan and a validation show as they would be sent."""


@dataclass(slots=True)
class Tally:
    """The counts of a run. `settled_found` and `settled_absent` count unknown creates that were found or proved absent.

    `on_problem` receives each row that needs a person, `on_change` each changed row, `on_omission` each zip code that a
    create omits, and `on_opt_out` each opt-out. `on_rows` receives all other rows: outcome, file, numbers. `on_created`
    receives each created row as well, with the values that were sent.
    """

    on_problem: Callable[[Problem], None]
    on_change: Callable[[Change], None] = _ignore
    on_omission: Callable[[Omission], None] = _ignore
    on_opt_out: Callable[[OptOut], None] = _ignore
    on_rows: Callable[[Outcome, str, Sequence[int]], None] | None = None
    on_created: Callable[[Row, Mapping[str, object]], None] | None = None
    read: int = 0  # rows of a source, or entries taken up by a retry
    taken: int = 0  # rows that the load has decided, sent or set aside: each of them must get an outcome
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    settled_found: int = 0
    settled_absent: int = 0
    leftovers: Counter[str] = field(default_factory=Counter)  # of earlier runs, with no row in this one
    active: int = 0  # of the rows that ended CREATED
    samples: list[dict[str, object]] = field(default_factory=list)  # the values of the first few creates, by field name
    reactivated: int = 0  # rows created as active whose identities the list shows as inactive
    opt_outs: int = 0  # rows that say inactive of active subscribers, also rows of earlier runs
    unseen_opt_outs: Counter[str] = field(default_factory=Counter)  # of these, the ones not looked up, by the reason
    altered: Counter[str] = field(default_factory=Counter)
    twins: set[tuple[int, ...]] = field(default_factory=set)  # the ids of each subscriber that exists twice
    messages: list[str] = field(default_factory=list)
    row_messages: list[str] = field(default_factory=list)  # messages about rows; forgotten when rows are read again

    def add_taken(self, number: int = 1) -> None:
        """Add rows that get their outcome later. Call this method before a create of a row may leave."""
        self.taken += number

    def remove_taken(self, number: int = 1) -> None:
        """Remove rows that were added, and of which no create has left."""
        self.taken -= number

    def count(self, outcome: Outcome, number: int = 1) -> None:
        """Take rows, and count them with this outcome."""
        self.taken += number
        self.outcomes[outcome] += number

    def count_positions(self, outcome: Outcome, chunk: Chunk, positions: npt.NDArray[np.int64]) -> None:
        """Take the rows at these indices of a chunk, and count them with this outcome."""
        self.count(outcome, len(positions))
        if self.on_rows is not None and len(positions):
            self.on_rows(outcome, chunk.name, chunk.numbers[positions].tolist())

    def count_row(self, outcome: Outcome, read_source: Callable[[], Row]) -> None:
        """Count a taken row with this outcome; the row leaves its columns only if a listener is set."""
        self.outcomes[outcome] += 1
        if self.on_rows is not None:
            row = read_source()
            self.on_rows(outcome, row.file, [row.number])

    def restart(self) -> None:
        """Forget the outcomes of rows, because the rows are loaded now; all other findings stay."""
        self.taken = self.active = 0
        self.samples.clear()
        self.reactivated = self.opt_outs = 0
        self.unseen_opt_outs.clear()
        self.outcomes.clear()
        self.leftovers.clear()
        self.row_messages.clear()

    def count_unsent(self) -> None:
        """Count the rows that were read and never taken as UNSENT. A taken row without an outcome does not count,
        because its create may have left."""
        self.outcomes[Outcome.UNSENT] += self.read - self.taken

    def report(self, problem: Problem) -> None:
        """Count and report a taken row that a person must see."""
        self.outcomes[problem.outcome] += 1
        self.on_problem(problem)

    def report_change(self, change: Change) -> None:
        """Count and report a taken row that ended CHANGED."""
        self.outcomes[Outcome.CHANGED] += 1
        self.on_change(change)

    def report_opt_out(self, opt_out: OptOut) -> None:
        """Count and report an opt-out; its row, if this run has read it, has an outcome beside."""
        self.opt_outs += 1
        if opt_out.reason:
            self.unseen_opt_outs[opt_out.reason] += 1
        self.on_opt_out(opt_out)

    def report_created(
        self, read_source: Callable[[], Row], sent: Mapping[str, object], omission: Omission | None
    ) -> None:
        """Count a taken row that ended CREATED with the values `sent`, and report its zip code if the create omits
        it."""
        self.count_row(Outcome.CREATED, read_source)
        if self.on_created is not None:
            self.on_created(read_source(), sent)
        self.active += sent.get("is_active") is True
        if len(self.samples) < SAMPLES:
            self.samples.append(dict(sent))
        if omission is not None:
            self.on_omission(omission)

    def add_message(self, message: str) -> None:
        """Add a message to the report, once."""
        if message not in self.messages:
            self.messages.append(message)

    def record_twins(self, ids: Collection[int]) -> None:
        """Record the ids under which the list shows one subscriber of the run in one base: two are duplicates."""
        if len(ids) > 1:
            self.twins.add(tuple(sorted(ids)))

    def add_row_message(self, message: str) -> None:
        """Add a message, once, that a survey's load need not repeat: the load settles or compares the rows itself."""
        if message not in self.row_messages:
            self.row_messages.append(message)


@dataclass(frozen=True, slots=True)
class LoadPolicy(ListPolicy):
    """A job's `load` section: the settings of look-ups, and those of creates. Times are in seconds."""

    max_rate: float = inf  # requests/s
    on_unknown: Literal["resend", "hold"] = "resend"
    grace_s: float = 8.0  # for requests under way when a run is stopped; `docker stop` kills after 10 s
    is_looking: bool = True  # look before creating (architecture 4.7); `load.look: none` turns it off

    def expires_at(self, began_at: float) -> float:
        """Return until when (monotonic) a create may rely on a look-up that began then."""
        return began_at + max(self.fresh_s, _SHORTEST_FRESH_S) if self.is_looking else inf

    def known_until(self, began_at: float, ended_at: float) -> float:
        """Return until when (monotonic) a row may be created whose subscriber a look-up from `began_at` to
        `ended_at` missed. Raises RunAborted when that time has passed by `ended_at`: every look-up would come too
        late."""
        until = self.expires_at(began_at)
        if until <= ended_at:
            raise RunAborted(
                f"looking which subscribers exist took {ended_at - began_at:,.0f} s, longer than load.fresh "
                f"({self.fresh_s:g} s) allows a create to rely on it, and no quicker look tells. Nothing was created "
                "since. Make load.fresh longer than a look takes, then run again"
            )
        return until


def is_excess(number: int, allowed: float | None, of: int) -> bool:
    """Return whether `number` of `of` rows exceed the share of a guard (0 to 1; None: no limit) (architecture 8).

    With fewer than 100 rows, only all of at least 10 rows exceed a share.
    """
    if allowed is None or (of < _ENOUGH and not (of >= _ALL_OF and number == of)):
        return False
    return number > allowed * of


@dataclass(frozen=True, slots=True)
class LoadGuard:
    """Limits that end a load, most of them before anything is sent: shares (0 to 1), and a number of creates. None: no
    limit."""

    max_invalid: float | None
    max_rejected: float | None
    max_creates: int | None
    max_shrink: float


@dataclass(slots=True)
class Limits:
    """`max_creates` rows may be sent, and a share of `max_rejected` (0 to 1) of the answered be rejected; None: all."""

    max_creates: int | None = None
    max_rejected: float | None = None
    begun: int = 0  # rows that were sent, or are about to be
    answered: int = 0
    rejected: int = 0  # of the answered

    def allow(self, number: int) -> int:
        """Return how many of `number` further rows may be sent."""
        return number if self.max_creates is None else max(0, min(number, self.max_creates - self.begun))

    def record(self, *, is_rejected: bool, undecided: int = 0) -> str | None:
        """Record an answer; return the reason to end the run, or None. Of the rejected, `undecided` may yet turn out to
        be refusals that pass."""
        self.answered += 1
        self.rejected += is_rejected
        # Fewer are judged once all have been sent.
        return self._find_excess(undecided) if self.answered >= _ENOUGH else None

    def take_back(self) -> None:
        """Take back a rejection: a look-up has shown that the row was created, or the refusal may pass."""
        self.rejected -= 1

    def check(self) -> None:
        """Check the share of rejected rows once all rows have been sent. Raises RunAborted."""
        if reason := self._find_excess():
            raise RunAborted(reason)

    def describe_creates(self) -> str:
        """Return why no more rows are created."""
        return (
            f"guard.max_creates: {self.begun:,} were sent, as many as it allows, and there are more: subscribers have "
            "left the service since the survey. The others were not sent; look at the service, or raise the guard"
        )

    def _find_excess(self, undecided: int = 0) -> str | None:
        if self.max_rejected is None or not is_excess(self.rejected - undecided, self.max_rejected, self.answered):
            return None
        return (
            f"guard.max_rejected: of {self.answered:,} creates that were answered {self.rejected:,} "
            f"were rejected, and {100 * self.max_rejected:.3g} % are allowed. No other row was sent; "
            "the service's words are in the rejects file: correct the rows or the mapping, or raise "
            "the guard"
        )


@dataclass(slots=True)
class Canaries:
    """The results of the first creates (architecture 4.9): of the run, until a create in any base is accepted; then of
    each base by itself.

    `unknown` has the entries that stayed unknown, `refused` the number of refusals by kind, and `lost` the number of
    requests in a row without a usable answer. `existing` are answered subscribers that existed before. `shown_bases` is
    the number of bases in which a created subscriber was looked up at the end. `first` is the first subscriber that the
    run has created, and `looks_after_s` are the times after its answer at which the subscriber is looked up, until the
    list shows it.
    """

    unknown: set[tuple[int, bytes]] = field(default_factory=set)  # key of the base, identity
    refused: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    is_answered: bool = False
    existing: list[int] = field(default_factory=list)
    shown_bases: int = 0
    first: Sentinel | None = None
    looks_after_s: list[float] = field(default_factory=lambda: [0.0, 2.0, 10.0, 30.0])


@dataclass(slots=True)
class Session:
    """The state of the load of one base. All bases of a run share the fields that are of the run."""

    access: ListAccess
    policy: LoadPolicy
    tally: Tally
    job: str = ""  # the job's name: this run may send creates of the job's earlier runs again
    suppression: Suppression | None = None  # the job's list, as this run read it: its identities are not sent again
    pace: Pace | None = None  # the pace of the run; None: `policy` alone limits it
    canaries: Canaries = field(default_factory=Canaries)  # of the run
    limits: Limits = field(default_factory=Limits)  # of the run
    waiting: WaitingRows = field(default_factory=WaitingRows)  # to be compared with the service, of the run
    passing: PassingRefusals = field(default_factory=PassingRefusals)  # of the run
    retried: dict[bytes, Refusal] = field(default_factory=dict)  # made unknown by this run, to be sent again
    withheld: dict[bytes, Refusal] = field(default_factory=dict)  # sent again if one of their kind is accepted
    source_job: str = ""  # the name of the job or the file in reports, with which opt-outs are recorded

    @property
    def control(self) -> Stop:
        """The run's."""
        return self.access.control

    @property
    def clock(self) -> Clock:
        """The run's."""
        return self.access.control.clock

    @property
    def journal(self) -> LedgerWriter:
        """The writer of the base's entries."""
        return self.access.journal

    def has_confirmed_since(self, at: float) -> bool:
        """Return whether this run has confirmed a subscriber after `at` (monotonic)."""
        sentinels = self.access.sentinels
        return bool(sentinels) and sentinels[-1].confirmed_at > at

    def find_sentinels(self, at: float, *, is_active: bool) -> set[Sentinel]:
        """Return the subscribers of the base, as active, that this run has confirmed after `at` (monotonic). The list
        may hide subscribers of another class, or another base."""
        base_id = self.journal.base.service_id
        return {
            sentinel
            for sentinel in self.access.sentinels
            if sentinel.confirmed_at > at and sentinel.is_active is is_active and sentinel.base_id == base_id
        }

    def is_suppressed(self, identity: bytes, sent: Mapping[str, object]) -> bool:
        """Return whether the job's suppression list, or the service's list, forbids to send a create again."""
        if self.suppression is not None and self.suppression.holds(sent):
            return True
        inactive = self.access.inactive_identities
        digests = join_digests([identity], IDENTITY_BYTES)
        if not inactive.find(digests)[0] or sent.get("is_active") is not True:
            return False
        if not self.policy.is_suppressing_inactive:
            inactive.reactivated.add(identity)
        return self.policy.is_suppressing_inactive
