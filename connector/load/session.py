"""The settings and limits of a load, and the state that the modules of a load share for one base."""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from math import inf
from typing import Literal

from connector.clock import Clock
from connector.control import Stop
from connector.errors import RunAborted
from connector.ledger.commits import LedgerWriter
from connector.ledger.entries import Refusal
from connector.listing.access import ConfirmedCreate, ListAccess, ListPolicy
from connector.pace.pace import Pace
from connector.pace.refusals import TemporaryRefusals
from connector.rows import LoadRow, Row
from connector.spool import SpooledValues
from connector.subscribers.identity import FINGERPRINT_BYTES, IDENTITY_BYTES, Suppression, join_digests
from connector.tally import MIN_ROWS_FOR_SHARE, Tally, exceeds_share

_DIGEST_PAIR_BYTES = IDENTITY_BYTES + FINGERPRINT_BYTES
_MIN_FRESH_S = 1.0  # a smaller `load.fresh` counts as this value


class RunMode(Enum):
    """Whether a run sends creates (LOAD) or sends nothing (PLAN). A load must first settle every unresolved entry that
    could be one of its rows."""

    LOAD = "load"
    PLAN = "plan"


class CompareReason(IntEnum):
    """The reason to compare a row with the service."""

    CHANGED = 0  # the row has changed after it was sent
    REPORTED = 1  # the row has a difference that an earlier run has reported
    NEVER_COMPARED = 2  # the subscriber existed before, and no row of the subscriber was compared yet
    # This run's create got a 429, but the list shows the subscriber. Equal values prove that the create took effect.
    RATE_LIMITED = 3
    OPTED_OUT = 4  # the ledger has an opt-out of the subscriber; the row is unchanged, or this run has not read the row


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A row that waits for a comparison with the service. `ledger_writer` writes the entries of the row's base."""

    ledger_writer: LedgerWriter
    row: LoadRow
    reason: CompareReason


class WaitingRows:
    """The rows that wait for a comparison, in all bases of a run. The identity, the fingerprint and the reason of a row
    take 30 bytes in memory. The other values are in a temporary file without a name."""

    def __init__(self) -> None:
        self._ledger_writers: list[LedgerWriter] = []
        self._ledger_writer_indexes: array[int] = array("H")
        self._reasons = bytearray()
        self._digests = bytearray()  # identity and fingerprint of each row
        self._values = SpooledValues()
        self.reported_count = 0  # the number of rows whose outcomes were reported

    def __len__(self) -> int:
        return len(self._ledger_writer_indexes)

    @property
    def unreported_indexes(self) -> list[int]:
        """The indexes of the rows, except rows with a difference that an earlier run has reported."""
        return [index for index, reason in enumerate(self._reasons) if reason != CompareReason.REPORTED]

    def find_identities(self, ledger_writer: LedgerWriter) -> set[bytes]:
        """Return the identities of the waiting rows of the base to which `ledger_writer` belongs."""
        return {
            bytes(self._digests[index * _DIGEST_PAIR_BYTES : index * _DIGEST_PAIR_BYTES + IDENTITY_BYTES])
            for index, writer_index in enumerate(self._ledger_writer_indexes)
            if self._ledger_writers[writer_index] is ledger_writer
        }

    def add(self, ledger_writer: LedgerWriter, rows: Sequence[tuple[LoadRow, CompareReason]]) -> None:
        """Add these rows, each with the reason for its comparison. Raises RunAborted if the disk is full."""
        if ledger_writer not in self._ledger_writers:
            self._ledger_writers.append(ledger_writer)
        writer_index = self._ledger_writers.index(ledger_writer)
        self._values.add([[row.source.number, row.source.file, row.identity_text, dict(row.values)] for row, _ in rows])
        for row, reason in rows:
            self._ledger_writer_indexes.append(writer_index)
            self._reasons.append(reason)
            self._digests += row.identity + row.fingerprint

    def read(self, index: int) -> WaitingRow:
        """Return the waiting row with this index (0 = first)."""
        row_number, file_name, identity_text, values = self._values.read(index)
        digests = bytes(self._digests[index * _DIGEST_PAIR_BYTES : (index + 1) * _DIGEST_PAIR_BYTES])
        identity, fingerprint = digests[:IDENTITY_BYTES], digests[IDENTITY_BYTES:]
        row = LoadRow(Row(row_number, file_name, (), ()), identity, identity_text, fingerprint, values)
        return WaitingRow(
            self._ledger_writers[self._ledger_writer_indexes[index]], row, CompareReason(self._reasons[index])
        )

    def clear(self) -> None:
        """Remove all rows."""
        self._values.close()
        self._ledger_writers, self._ledger_writer_indexes = [], array("H")
        self._reasons, self._digests, self.reported_count = bytearray(), bytearray(), 0


@dataclass(frozen=True, slots=True)
class LoadPolicy(ListPolicy):
    """A job's `load` section: the settings of look-ups and of creates. Times are in seconds."""

    max_rate: float = inf  # the largest number of requests a second
    on_unknown: Literal["resend", "hold"] = "resend"
    # Seconds in which requests in flight may end after a stop; `docker stop` kills the process after 10 s.
    grace_s: float = 8.0
    looks_up_first: bool = True  # whether creates need a look-up (architecture 4.7); False: `load.look: none`

    def compute_expiry(self, started_at: float) -> float:
        """Return the time (monotonic) until which a create may rely on a look-up that started at `started_at`."""
        return started_at + max(self.max_lookup_age_s, _MIN_FRESH_S) if self.looks_up_first else inf

    def compute_valid_until(self, started_at: float, ended_at: float) -> float:
        """Return the time (monotonic) until which a row may be created after a look-up that did not find its
        subscriber.

        `started_at` and `ended_at` are the times of the look-up. Raises RunAborted if the returned time would be before
        `ended_at`, because every look-up would then take too long."""
        expires_at = self.compute_expiry(started_at)
        if expires_at <= ended_at:
            raise RunAborted(
                f"a look-up of all subscribers took {ended_at - started_at:,.0f} s, longer than load.fresh "
                f"({self.max_lookup_age_s:g} s) allows, and no faster look-up exists. No row was sent after the "
                "look-up. Set load.fresh longer than a look-up takes, then run again"
            )
        return expires_at


@dataclass(frozen=True, slots=True)
class LoadGuard:
    """Limits that end a load. Most limits end the load before anything is sent. `max_creates` is a number, and the
    other limits are shares from 0 to 1. None: no limit."""

    max_invalid: float | None
    max_rejected: float | None
    max_creates: int | None
    max_shrink: float


@dataclass(slots=True)
class CreateLimits:
    """The limits of the creates of a run, and the counts of these creates. A limit of None means no limit."""

    max_creates: int | None = None  # largest number of creates
    max_rejected: float | None = None  # largest share of answered creates that may be rejected, 0 to 1
    sent_count: int = 0  # number of creates that were sent, or are about to be sent
    answered_count: int = 0  # number of creates that got an answer
    rejected_count: int = 0  # number of creates that the service rejected

    def begin(self, max_creates: int | None, max_rejected: float | None) -> None:
        """Set the limits, and count from 0 again. Call this method after the survey (the first pass, which only plans
        the rows), because the survey also counts creates."""
        self.max_creates, self.max_rejected = max_creates, max_rejected
        self.sent_count = self.answered_count = self.rejected_count = 0

    def compute_sendable_row_count(self, row_count: int) -> int:
        """Return the number of rows, at most `row_count`, that may still be sent."""
        return row_count if self.max_creates is None else max(0, min(row_count, self.max_creates - self.sent_count))

    def record_answer(self, *, is_rejected: bool, undecided_rejection_count: int = 0) -> str | None:
        """Count an answer to a create. Return the reason to end the run, or None. `undecided_rejection_count` is a
        number of rejected creates that do not count yet, because their refusals may be temporary."""
        self.answered_count += 1
        self.rejected_count += is_rejected
        # With fewer answers, `check_rejected_share` decides after all rows have been sent.
        return (
            self._describe_exceeded_limit(undecided_rejection_count)
            if self.answered_count >= MIN_ROWS_FOR_SHARE
            else None
        )

    def remove_rejection(self) -> None:
        """Remove a rejection, because a look-up has shown that the row was created, or because the refusal may be
        temporary."""
        self.rejected_count -= 1

    def check_rejected_share(self) -> None:
        """Check the share of rejected rows after all rows have been sent. Raises RunAborted."""
        if reason := self._describe_exceeded_limit():
            raise RunAborted(reason)

    def describe_reached_limit(self) -> str:
        """Return the message that `max_creates` is reached and no more rows are created."""
        return (
            f"guard.max_creates: {self.sent_count:,} rows were sent, which is the limit. The remaining rows were not "
            "sent. There are more rows to create than the run counted, because subscribers have left the service since "
            "then. Look at the service, or raise the limit"
        )

    def _describe_exceeded_limit(self, undecided_rejection_count: int = 0) -> str | None:
        rejected_count = self.rejected_count - undecided_rejection_count
        if self.max_rejected is None or not exceeds_share(rejected_count, self.max_rejected, self.answered_count):
            return None
        return (
            f"guard.max_rejected: the service rejected {self.rejected_count:,} of {self.answered_count:,} answered "
            f"creates, and {100 * self.max_rejected:.3g} % are allowed. No other row was sent. The rejects file has "
            "the service's messages: correct the rows or the mapping, or raise the limit"
        )


@dataclass(slots=True)
class Canaries:
    """The results of the first creates of a run (architecture 4.9). All bases share one object until the service
    accepts a create of the run. Then each base has its own object."""

    # The creates without a usable answer, each as the key of its base and its identity.
    unknown_entries: set[tuple[int, bytes]] = field(default_factory=set)
    refusal_counts: Counter[str] = field(default_factory=Counter)  # the number of refusals of each kind
    lost_create_count: int = 0  # number of consecutive creates without a usable answer
    has_accepted_create: bool = False  # whether the service has accepted a create of the run
    existing_ids: list[int] = field(default_factory=list)  # ids in answers whose subscribers existed before
    checked_base_count: int = 0  # number of bases in which a created subscriber was looked up at the end of the load
    first_confirmed_create: ConfirmedCreate | None = None  # the first subscriber that the run has created
    look_up_delays_s: list[float] = field(default_factory=lambda: [0.0, 2.0, 10.0, 30.0])
    """Times (seconds after the answer) at which the first new subscriber is looked up, until the list shows this
    subscriber.
    """


@dataclass(slots=True)
class Session:
    """The state of one base's load, which the modules of the load share. If the comment of a field says "of the run",
    all bases of the run share the field."""

    list_access: ListAccess
    policy: LoadPolicy
    tally: Tally
    job: str = ""  # name of the job, whose earlier creates this run may send again
    suppression: Suppression | None = None  # identities on the job's suppression list are not sent again
    pace: Pace | None = None  # pace of the run; None: only `policy` limits the run
    canaries: Canaries = field(default_factory=Canaries)  # the results of the run's first creates
    create_limits: CreateLimits = field(default_factory=CreateLimits)  # the limits and counts of the run's creates
    waiting_rows: WaitingRows = field(default_factory=WaitingRows)  # rows of the run to compare with the service
    temporary_refusals: TemporaryRefusals = field(default_factory=TemporaryRefusals)
    """Decides which refusals of the run may be temporary."""
    retried_refusals: dict[bytes, Refusal] = field(default_factory=dict)
    """Refusals of earlier runs, by identity. This run sends the refused creates again, so it has made their entries
    UNKNOWN."""
    waiting_refusals: dict[bytes, Refusal] = field(default_factory=dict)
    """Refusals of earlier runs, by identity. This run sends a refused create again only after another create with the
    same kind of refusal was sent again and accepted."""
    source_job: str = ""  # the name of the job or the file in reports; opt-outs are recorded with this name

    @property
    def stop(self) -> Stop:
        """The object that stops the run, with the clock of the run."""
        return self.list_access.stop

    @property
    def clock(self) -> Clock:
        """The clock of the run."""
        return self.list_access.stop.clock

    @property
    def ledger_writer(self) -> LedgerWriter:
        """The writer of the base's entries."""
        return self.list_access.ledger_writer

    def find_confirmed_creates(self, confirmed_after: float, *, is_active: bool) -> set[ConfirmedCreate]:
        """Return this run's creates in the base with this `is_active` that the service confirmed after
        `confirmed_after` (monotonic). Other creates prove nothing, because the list may show one base or activity and
        hide another."""
        base_id = self.ledger_writer.base.service_id
        return {
            create
            for create in self.list_access.confirmed_creates
            if create.confirmed_at > confirmed_after and create.is_active is is_active and create.base_id == base_id
        }

    def is_suppressed(self, identity: bytes, sent_values: Mapping[str, object]) -> bool:
        """Return whether a create must not be sent again, because the job's suppression list has the subscriber. The
        create also must not be sent again if the service's list shows the subscriber as inactive and the job suppresses
        inactive subscribers."""
        if self.suppression is not None and self.suppression.has_subscriber(sent_values):
            return True
        inactive_identities = self.list_access.inactive_identities
        digests = join_digests([identity], IDENTITY_BYTES)
        if not inactive_identities.build_digest_mask(digests)[0] or sent_values.get("is_active") is not True:
            return False
        if not self.policy.is_suppressing_inactive:
            inactive_identities.reactivated.add(identity)
        return self.policy.is_suppressing_inactive
