"""The settings of a load, the counts of a run, and the state that the parts of one base's load share."""

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from math import inf
from typing import Literal, assert_never

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

_SHORTEST_FRESH_S = 1.0  # the least `load.fresh`; a smaller value is raised to this value
_MIN_ROWS_FOR_SHARE = 100  # the least number of rows for which the share of a guard is computed
_MIN_ROWS_IF_ALL_COUNT = 10  # enough rows if all of them count against the guard


@dataclass(frozen=True, slots=True)
class Problem:
    """A row that needs a person, with its outcome and the message of the service or of the connector."""

    row: Row
    outcome: Outcome
    field: str
    code: str
    message: str
    http_status: int | None = None
    attempt_count: int = 0  # number of creates
    raw_record: str | None = None  # the text of a record that is not a row


@dataclass(frozen=True, slots=True)
class Change:
    """A row whose values differ, or may differ, from its subscriber in the service."""

    row: Row
    identity: str = field(repr=False)  # the text in the source
    fields: tuple[tuple[str, object, object], ...] = field(default=(), repr=False)
    """The different fields: name, the service's value, the source's value."""
    reason: str = ""  # the reason why the row was not compared; "": it was compared
    is_reported_before: bool = False  # whether an earlier run has reported the same difference


@dataclass(frozen=True, slots=True)
class OptOut:
    """A subscriber that is inactive in its row and active in the service. Only a person can make the
    subscriber inactive, on the service's own pages."""

    row: Row | None  # None: this run has not read the row
    digest: bytes  # the digest of the identity
    identity: str = field(repr=False)  # the text in the source; without a row, the text in the service
    outcome: Outcome | None = None  # the outcome of the row
    reason: str = ""  # the reason why this run does not know whether the subscriber is still active; "": it is active


class RunMode(Enum):
    """Whether a run sends creates (LOAD) or sends nothing (PLAN). A load must first settle every unresolved entry that
    could be one of its rows."""

    LOAD = "load"
    PLAN = "plan"


class Leftover(Enum):
    """The result of an unresolved entry of an earlier run, if this run has not read its row. The values are codes of
    problems."""

    HELD = "held"
    REJECTED = "rejected"
    SUPPRESSED = "suppressed"  # given up, because the suppression list has the subscriber
    UNKNOWN = "unknown"  # the entry stays unresolved

    @property
    def needs_person(self) -> bool:
        """Whether the entry makes the run partial."""
        match self:
            case Leftover.HELD | Leftover.REJECTED | Leftover.UNKNOWN:
                return True
            case Leftover.SUPPRESSED:
                return False
        assert_never(self)


class CompareReason(IntEnum):
    """The reason to compare a row with the service."""

    CHANGED = 0  # the row has changed after it was sent
    REPORTED = 1  # the row has a difference that an earlier run has reported
    FIRST = 2  # the row is the first row of a subscriber that existed before
    LIMITED = 3  # this run's create got a 429, and the list shows the subscriber; equal values prove the create
    OPTED_OUT = 4  # an earlier run has recorded an opt-out; the row has an outcome, or this run has not read the row


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A row that waits for a comparison with the service. `owner` identifies its base."""

    owner: object
    row: LoadRow
    reason: CompareReason


class WaitingRows:
    """The rows of all bases of a run that wait for a comparison: 30 bytes each in memory, the other bytes in a
    temporary file without a name."""

    def __init__(self) -> None:
        self._owners: list[object] = []
        self._owner_indexes: array[int] = array("H")
        self._reasons = bytearray()
        self._digests = bytearray()  # identity and fingerprint of each row
        self._values = SpooledValues()
        self.reported_count = 0  # the number of rows whose outcomes were reported

    def __len__(self) -> int:
        return len(self._owner_indexes)

    @property
    def new_indexes(self) -> list[int]:
        """The indexes of rows that no earlier run has reported."""
        return [index for index, reason in enumerate(self._reasons) if reason != CompareReason.REPORTED]

    def find_identities(self, owner: object) -> set[bytes]:
        """Return the identities of the rows that were added with this owner."""
        digests_length = IDENTITY_BYTES + FINGERPRINT_BYTES
        return {
            bytes(self._digests[index * digests_length : index * digests_length + IDENTITY_BYTES])
            for index, owner_index in enumerate(self._owner_indexes)
            if self._owners[owner_index] is owner
        }

    def add(self, owner: object, rows: Sequence[tuple[LoadRow, CompareReason]]) -> None:
        """Add these rows, each with the reason for its comparison. Raises RunAborted if the disk is full."""
        if not any(known_owner is owner for known_owner in self._owners):
            self._owners.append(owner)
        owner_index = next(index for index, known_owner in enumerate(self._owners) if known_owner is owner)
        self._values.add([[row.source.number, row.source.file, row.identity_text, dict(row.values)] for row, _ in rows])
        for row, reason in rows:
            self._owner_indexes.append(owner_index)
            self._reasons.append(reason)
            self._digests += row.identity + row.fingerprint

    def read(self, index: int) -> WaitingRow:
        """Return the waiting row with this index (0 = first)."""
        row_number, file, name, values = self._values.read(index)
        begin = index * (IDENTITY_BYTES + FINGERPRINT_BYTES)
        identity = bytes(self._digests[begin : begin + IDENTITY_BYTES])
        fingerprint = bytes(self._digests[begin + IDENTITY_BYTES : begin + IDENTITY_BYTES + FINGERPRINT_BYTES])
        row = LoadRow(Row(row_number, file, (), ()), identity, name, fingerprint, values)
        return WaitingRow(self._owners[self._owner_indexes[index]], row, CompareReason(self._reasons[index]))

    def clear(self) -> None:
        """Remove all rows."""
        self._values.close()
        self._owners, self._owner_indexes = [], array("H")
        self._reasons, self._digests, self.reported_count = bytearray(), bytearray(), 0


class RowRecorder:
    """Receives the rows of a run. The methods of this class record nothing."""

    @property
    def needs_all_rows(self) -> bool:
        """Whether the recorder also receives the rows that need no person, and the values of created rows."""
        return False

    def write_problem(self, problem: Problem) -> None:
        """Record a row that needs a person."""

    def write_change(self, change: Change) -> None:
        """Record a changed row."""

    def write_omission(self, omission: Omission) -> None:
        """Record a zip code that a create omits."""

    def write_opt_out(self, opt_out: OptOut) -> None:
        """Record an opt-out."""

    def write_row_numbers(self, outcome: Outcome, file: str, row_numbers: Sequence[int]) -> None:
        """Record the other rows of a file by their numbers. The rows have this outcome."""

    def write_created(self, row: Row, sent_values: Mapping[str, object]) -> None:
        """Record the values that were sent for a created row."""


SAMPLE_COUNT = 5
"""The number of example subscribers in a plan and in a validation."""


@dataclass(slots=True)
class Tally:
    """The counts of a run, and the recorder that receives its rows."""

    recorder: RowRecorder = field(default_factory=RowRecorder)
    read_count: int = 0  # rows of a source, or entries of a retry
    started_count: int = 0  # rows whose processing has begun; each of them must get an outcome
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    settled_found_count: int = 0  # unknown creates whose subscriber was found
    settled_absent_count: int = 0  # unknown creates whose subscriber was proved absent
    leftovers: Counter[Leftover] = field(default_factory=Counter)
    """The number of entries of earlier runs that this run left unresolved and has read no row for, by their result."""
    active_count: int = 0  # created rows that are active
    samples: list[dict[str, object]] = field(default_factory=list)  # the values of the first few creates, by field name
    reactivated_count: int = 0  # rows created as active whose identities the list shows as inactive
    opt_out_count: int = 0  # opt-outs of rows of this run and of earlier runs
    unchecked_opt_outs: Counter[str] = field(default_factory=Counter)
    """The number of opt-outs that were not looked up, by the reason."""
    altered_fields: Counter[str] = field(default_factory=Counter)
    """The number of creates that the service has altered, by field."""
    duplicate_ids: set[tuple[int, ...]] = field(default_factory=set)  # the ids of each subscriber that exists twice
    messages: list[str] = field(default_factory=list)
    row_messages: list[str] = field(default_factory=list)  # messages about rows; `reset_row_counts` removes them

    def add_started(self, row_count: int = 1) -> None:
        """Add rows that get their outcome later. Call this method before the create of such a row may leave."""
        self.started_count += row_count

    def remove_started(self, row_count: int = 1) -> None:
        """Remove started rows whose creates have not left."""
        self.started_count -= row_count

    def count_rows(self, outcome: Outcome, row_count: int = 1) -> None:
        """Add rows that have this outcome."""
        self.started_count += row_count
        self.outcomes[outcome] += row_count

    def count_positions(self, outcome: Outcome, chunk: Chunk, positions: npt.NDArray[np.int64]) -> None:
        """Add the rows at these positions of a chunk, which have this outcome."""
        self.count_rows(outcome, len(positions))
        if self.recorder.needs_all_rows and len(positions):
            self.recorder.write_row_numbers(outcome, chunk.name, chunk.numbers[positions].tolist())

    def count_row(self, outcome: Outcome, read_source: Callable[[], Row]) -> None:
        """Count the outcome of a started row. `read_source` is called only if the recorder needs all rows."""
        self.outcomes[outcome] += 1
        if self.recorder.needs_all_rows:
            row = read_source()
            self.recorder.write_row_numbers(outcome, row.file, [row.number])

    def reset_row_counts(self) -> None:
        """Reset the counts of rows before the load, because the survey has counted the same rows. All other findings of
        the survey stay."""
        self.started_count = self.active_count = 0
        self.samples.clear()
        self.reactivated_count = self.opt_out_count = 0
        self.unchecked_opt_outs.clear()
        self.outcomes.clear()
        self.leftovers.clear()
        self.row_messages.clear()

    def count_unsent(self) -> None:
        """Give the outcome UNSENT to the rows that were read and not started. A started row without an outcome does not
        get this outcome, because its create may have left."""
        self.outcomes[Outcome.UNSENT] += self.read_count - self.started_count

    def report_problem(self, problem: Problem) -> None:
        """Count and report a started row that needs a person."""
        self.outcomes[problem.outcome] += 1
        self.recorder.write_problem(problem)

    def report_change(self, change: Change) -> None:
        """Count and report a started row with the outcome CHANGED."""
        self.outcomes[Outcome.CHANGED] += 1
        self.recorder.write_change(change)

    def report_opt_out(self, opt_out: OptOut) -> None:
        """Count and report an opt-out. `opt_out.outcome` is the outcome of its row, or None if this run has not read
        the row."""
        self.opt_out_count += 1
        if opt_out.reason:
            self.unchecked_opt_outs[opt_out.reason] += 1
        self.recorder.write_opt_out(opt_out)

    def report_created(
        self, read_source: Callable[[], Row], sent_values: Mapping[str, object], omission: Omission | None
    ) -> None:
        """Count a started row with the outcome CREATED and the sent values. Report the zip code that the create
        omits."""
        self.count_row(Outcome.CREATED, read_source)
        if self.recorder.needs_all_rows:
            self.recorder.write_created(read_source(), sent_values)
        self.active_count += sent_values.get("is_active") is True
        if len(self.samples) < SAMPLE_COUNT:
            self.samples.append(dict(sent_values))
        if omission is not None:
            self.recorder.write_omission(omission)

    def add_message(self, message: str) -> None:
        """Add a message to the report, unless the report has it already."""
        if message not in self.messages:
            self.messages.append(message)

    def record_duplicates(self, ids: Collection[int]) -> None:
        """Record the ids under which the list shows one subscriber of the run in one base. Several ids are
        duplicates."""
        if len(ids) > 1:
            self.duplicate_ids.add(tuple(sorted(ids)))

    def add_row_message(self, message: str) -> None:
        """Add a message about rows to the report, unless the report has it already. A load clears such messages of its
        survey, because the load settles or compares the rows itself."""
        if message not in self.row_messages:
            self.row_messages.append(message)


@dataclass(frozen=True, slots=True)
class LoadPolicy(ListPolicy):
    """A job's `load` section: the settings of look-ups and of creates. Times are in seconds."""

    max_rate: float = inf  # requests/s
    on_unknown: Literal["resend", "hold"] = "resend"
    grace_s: float = 8.0  # for requests in flight when a run is stopped; `docker stop` kills after 10 s
    looks_up_first: bool = True  # whether creates need a look-up (architecture 4.7); False: `load.look: none`

    def find_expiry(self, started_at: float) -> float:
        """Return the time (monotonic) until which a create may rely on a look-up that started at `started_at`."""
        return started_at + max(self.fresh_s, _SHORTEST_FRESH_S) if self.looks_up_first else inf

    def find_valid_until(self, started_at: float, ended_at: float) -> float:
        """Return the time (monotonic) until which a row may be created after a look-up that did not find its
        subscriber.

        `started_at` and `ended_at` are the times of the look-up. Raises RunAborted if the returned time would be before
        `ended_at`, because every look-up would then take too long."""
        expires_at = self.find_expiry(started_at)
        if expires_at <= ended_at:
            raise RunAborted(
                f"a look-up of all subscribers took {ended_at - started_at:,.0f} s, longer than load.fresh "
                f"({self.fresh_s:g} s) allows, and no faster look-up exists. No row was sent after the look-up. "
                "Set load.fresh longer than a look-up takes, then run again"
            )
        return expires_at


def exceeds_share(count: int, allowed_share: float | None, row_count: int) -> bool:
    """Return whether `count` of `row_count` rows exceed the share of a guard (0 to 1; None: no limit) (architecture 8).

    If there are fewer than 100 rows, the share is exceeded only if all rows count and there are at least 10.
    """
    if allowed_share is None or (
        row_count < _MIN_ROWS_FOR_SHARE and not (row_count >= _MIN_ROWS_IF_ALL_COUNT and count == row_count)
    ):
        return False
    return count > allowed_share * row_count


@dataclass(frozen=True, slots=True)
class LoadGuard:
    """Limits that end a load, most of them before anything is sent: shares (0 to 1), and the largest number of creates.
    None: no limit."""

    max_invalid: float | None
    max_rejected: float | None
    max_creates: int | None
    max_shrink: float


@dataclass(slots=True)
class Limits:
    """The limits of creates in a run, and the counts that they limit. None: no limit."""

    max_creates: int | None = None  # largest number of creates
    max_rejected: float | None = None  # largest share of answered creates that may be rejected, 0 to 1
    sent_count: int = 0  # creates that were sent, or are about to be sent
    answered_count: int = 0  # creates with an answer
    rejected_count: int = 0  # creates that were rejected

    def begin(self, max_creates: int | None, max_rejected: float | None) -> None:
        """Set the limits, and begin to count. Call this method after the survey, which counts the creates as well."""
        self.max_creates, self.max_rejected = max_creates, max_rejected
        self.sent_count = self.answered_count = self.rejected_count = 0

    def compute_sendable_row_count(self, row_count: int) -> int:
        """Return the number of rows, at most `row_count`, that may still be sent."""
        return row_count if self.max_creates is None else max(0, min(row_count, self.max_creates - self.sent_count))

    def record_answer(self, *, is_rejected: bool, undecided_count: int = 0) -> str | None:
        """Record an answer. Return the reason to end the run, or None. `undecided_count` of the rejected creates may
        still pass."""
        self.answered_count += 1
        self.rejected_count += is_rejected
        # With fewer answers, `check_rejected_share` decides after all rows have been sent.
        return self._find_excess(undecided_count) if self.answered_count >= _MIN_ROWS_FOR_SHARE else None

    def remove_rejection(self) -> None:
        """Remove a rejection, because a look-up has shown that the row was created, or because the refusal may pass."""
        self.rejected_count -= 1

    def check_rejected_share(self) -> None:
        """Check the share of rejected rows after all rows have been sent. Raises RunAborted."""
        if reason := self._find_excess():
            raise RunAborted(reason)

    def describe_creates(self) -> str:
        """Return the reason why no more rows are created."""
        return (
            f"guard.max_creates: {self.sent_count:,} rows were sent, which is the limit, and more rows remain: "
            "subscribers have left the service since the run counted the rows to create. The other rows were not "
            "sent. Look at the "
            "service, or raise the guard"
        )

    def _find_excess(self, undecided_count: int = 0) -> str | None:
        rejected_count = self.rejected_count - undecided_count
        if self.max_rejected is None or not exceeds_share(rejected_count, self.max_rejected, self.answered_count):
            return None
        return (
            f"guard.max_rejected: the service rejected {self.rejected_count:,} of {self.answered_count:,} answered "
            f"creates, and {100 * self.max_rejected:.3g} % are allowed. No other row was sent. The rejects file has "
            "the service's messages: correct the rows or the mapping, or raise "
            "the guard"
        )


@dataclass(slots=True)
class Canaries:
    """The results of the first creates of a run (architecture 4.9). After a create was accepted in any base, each base
    has its own results."""

    unknown_entries: set[tuple[int, bytes]] = field(default_factory=set)  # key of the base, and identity
    refusal_counts: Counter[str] = field(default_factory=Counter)  # the number of refusals of each kind
    lost_count: int = 0  # requests in a row without a usable answer
    is_answered: bool = False  # whether a create was accepted
    existing_ids: list[int] = field(default_factory=list)  # answered subscribers that existed before
    shown_base_count: int = 0  # bases in which a created subscriber was looked up at the end of the load
    first_sentinel: Sentinel | None = None  # the first subscriber that the run has created
    look_up_delays_s: list[float] = field(default_factory=lambda: [0.0, 2.0, 10.0, 30.0])
    """Times (seconds after the answer) at which the first new subscriber is looked up, until the list shows this
    subscriber.
    """


@dataclass(slots=True)
class Session:
    """The state that the parts of one base's load share. All bases of a run share the fields whose comments say "of the
    run"."""

    access: ListAccess
    policy: LoadPolicy
    tally: Tally
    job: str = ""  # name of the job, whose earlier creates this run may send again
    suppression: Suppression | None = None  # identities on the job's suppression list are not sent again
    pace: Pace | None = None  # pace of the run; None: only `policy` limits the run
    canaries: Canaries = field(default_factory=Canaries)  # of the run
    limits: Limits = field(default_factory=Limits)  # of the run
    waiting_rows: WaitingRows = field(default_factory=WaitingRows)  # of the run: rows to be compared with the service
    passing_refusals: PassingRefusals = field(default_factory=PassingRefusals)  # of the run
    retried_refusals: dict[bytes, Refusal] = field(default_factory=dict)
    """Refusals of earlier runs, by identity, whose creates this run sends again. This run has made them UNKNOWN."""
    withheld_refusals: dict[bytes, Refusal] = field(default_factory=dict)
    """Refusals of earlier runs, by identity, whose creates are sent again if one create of their kind is accepted."""
    source_job: str = ""  # the name of the job or the file in reports; opt-outs are recorded with this name

    @property
    def stop(self) -> Stop:
        """The control of the run."""
        return self.access.stop

    @property
    def clock(self) -> Clock:
        """The clock of the run."""
        return self.access.stop.clock

    @property
    def journal(self) -> LedgerWriter:
        """The writer of the base's entries."""
        return self.access.journal

    def has_confirmed_after(self, reference_time: float) -> bool:
        """Return whether this run has confirmed a subscriber after `reference_time` (monotonic)."""
        sentinels = self.access.sentinels
        return bool(sentinels) and sentinels[-1].confirmed_at > reference_time

    def find_sentinels(self, confirmed_after: float, *, is_active: bool) -> set[Sentinel]:
        """Return the subscribers of the base with this `is_active` that this run has confirmed after `confirmed_after`
        (monotonic). Other subscribers prove nothing, because the list may hide one class or base and show another."""
        base_id = self.journal.base.service_id
        return {
            sentinel
            for sentinel in self.access.sentinels
            if sentinel.confirmed_at > confirmed_after
            and sentinel.is_active is is_active
            and sentinel.base_id == base_id
        }

    def is_suppressed(self, identity: bytes, sent_values: Mapping[str, object]) -> bool:
        """Return whether a create must not be sent again: the job's suppression list has the subscriber, or the
        service's list shows the subscriber as inactive and the job suppresses inactive subscribers."""
        if self.suppression is not None and self.suppression.has_subscriber(sent_values):
            return True
        inactive_identities = self.access.inactive_identities
        digests = join_digests([identity], IDENTITY_BYTES)
        if not inactive_identities.build_digest_mask(digests)[0] or sent_values.get("is_active") is not True:
            return False
        if not self.policy.is_suppressing_inactive:
            inactive_identities.reactivated.add(identity)
        return self.policy.is_suppressing_inactive
