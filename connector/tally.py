"""The counts of a run, and the recorder that receives the rows for reports: problems, changes and opt-outs."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt

from connector.outcomes import Outcome
from connector.rows import Chunk, OmittedZip, Row

MIN_ROWS_FOR_SHARE = 100  # the least number of rows for which the share of a guard is computed
_MIN_ROWS_IF_ALL_HAVE_FAULT = 10  # with 10 to 99 rows, a guard ends the run only if every row has the guarded fault


@dataclass(frozen=True, slots=True)
class Problem:
    """A row that a person must look at, with its outcome and the message of the service or of the connector."""

    row: Row
    outcome: Outcome
    field: str
    code: str
    message: str
    http_status: int | None = None
    attempt_count: int = 0  # number of creates that were sent for the row
    raw_record: str | None = None  # the text of a malformed record; None for an ordinary row


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A row whose values differ, or may differ, from its subscriber in the service."""

    row: Row
    identity: str = field(repr=False)  # the text of the identity in the source
    fields: tuple[tuple[str, object, object], ...] = field(default=(), repr=False)
    """The name, the service's value and the source's value of each field that differs."""
    reason: str = ""  # the reason why the row was not compared; "" for a row that was compared
    is_reported_before: bool = False  # whether an earlier run has reported the same difference


@dataclass(frozen=True, slots=True)
class OptOut:
    """A subscriber that is inactive in its row and active in the service. Only a person can make the
    subscriber inactive, on the service's own pages."""

    row: Row | None  # None: this run has not read the row, and an earlier run has recorded the opt-out
    digest: bytes  # the digest of the identity
    # The identity as the source writes it. If `row` is None: the email or the id that the service shows.
    identity: str = field(repr=False)
    outcome: Outcome | None = None  # the outcome of the row; None: this run has not read the row
    reason: str = ""
    """The reason why this run does not know whether the subscriber is still active, or "" if the service shows the
    subscriber as active."""


class UnresolvedResult(Enum):
    """The result of an unresolved entry whose subscriber was not found. The values are codes of problems."""

    HELD = "held"
    REJECTED = "rejected"
    SUPPRESSED = "suppressed"  # the create is given up, because the suppression list has the subscriber
    UNKNOWN = "unknown"  # the entry stays unresolved

    @property
    def needs_person(self) -> bool:
        """Whether the entry makes the run partial."""
        return self is not UnresolvedResult.SUPPRESSED


class RowRecorder:
    """Receives the rows of a run. This class ignores the rows, and its subclasses record the rows."""

    @property
    def needs_all_rows(self) -> bool:
        """Whether the recorder also receives the rows that no person must look at, and the values of created rows."""
        return False

    def write_problem(self, problem: Problem) -> None:
        """Record a row that a person must look at."""

    def write_change(self, change: ChangedRow) -> None:
        """Record a changed row."""

    def write_omitted_zip_code(self, omitted_zip: OmittedZip) -> None:
        """Record a zip code that a create omits."""

    def write_opt_out(self, opt_out: OptOut) -> None:
        """Record an opt-out."""

    def write_row_numbers(self, outcome: Outcome, file: str, row_numbers: Sequence[int]) -> None:
        """Record that the rows with these numbers in `file` have this outcome. No person needs to look at these
        rows."""

    def write_created_row(self, row: Row, sent_values: Mapping[str, object]) -> None:
        """Record the values that were sent for a created row."""


SAMPLE_COUNT = 5  # the number of example subscribers in a plan and in a validation


@dataclass(slots=True)
class Tally:
    """The counts of a run, and the recorder that receives its rows."""

    recorder: RowRecorder = field(default_factory=RowRecorder)
    read_count: int = 0  # rows of a source, or entries of a retry
    started_count: int = 0  # rows whose processing has begun; each of them must get an outcome
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    settled_found_count: int = 0  # unknown creates whose subscriber was found
    settled_absent_count: int = 0  # unknown creates whose subscriber was proved absent
    unread_entry_counts: Counter[UnresolvedResult] = field(default_factory=Counter)
    """The number of unresolved entries of earlier runs whose rows this run has not read, by the result of the entry."""
    active_count: int = 0  # created rows that are active
    samples: list[dict[str, object]] = field(default_factory=list)  # the values of the first few creates, by field name
    reactivated_count: int = 0  # rows created as active whose identities the list shows as inactive
    opt_out_count: int = 0  # opt-outs of rows of this run and of earlier runs
    unchecked_opt_out_counts: Counter[str] = field(default_factory=Counter)
    """The number of opt-outs that were not looked up, by the reason."""
    altered_field_counts: Counter[str] = field(default_factory=Counter)
    """The number of creates in which the service has altered a value, by the name of the field."""
    duplicate_ids: set[tuple[int, ...]] = field(default_factory=set)  # the ids of each subscriber that exists twice
    messages: list[str] = field(default_factory=list)
    row_messages: list[str] = field(default_factory=list)  # messages about rows; `reset_row_counts` removes them

    def add_started_rows(self, row_count: int = 1) -> None:
        """Count rows as started. They get their outcome later. Call this method before the creates of these rows may
        leave."""
        self.started_count += row_count

    def remove_started_rows(self, row_count: int = 1) -> None:
        """Take rows out of the started rows, because their creates have not left."""
        self.started_count -= row_count

    def count_rows(self, outcome: Outcome, row_count: int = 1) -> None:
        """Count rows with this outcome."""
        self.started_count += row_count
        self.outcomes[outcome] += row_count

    def count_rows_at_positions(self, outcome: Outcome, chunk: Chunk, positions: npt.NDArray[np.int64]) -> None:
        """Count the rows at these positions of the chunk with this outcome."""
        self.count_rows(outcome, len(positions))
        if self.recorder.needs_all_rows and len(positions):
            self.recorder.write_row_numbers(outcome, chunk.name, chunk.row_numbers[positions].tolist())

    def count_row(self, outcome: Outcome, read_source_row: Callable[[], Row]) -> None:
        """Count the outcome of a row that was added by `add_started_rows`. `read_source_row` is called only if the
        recorder needs all rows."""
        self.outcomes[outcome] += 1
        if self.recorder.needs_all_rows:
            row = read_source_row()
            self.recorder.write_row_numbers(outcome, row.file, [row.number])

    def reset_row_counts(self) -> None:
        """Reset the counts of rows between planning and loading, because the load counts the same rows again. All other
        findings of the planning stay."""
        self.started_count = self.active_count = 0
        self.samples.clear()
        self.reactivated_count = self.opt_out_count = 0
        self.unchecked_opt_out_counts.clear()
        self.outcomes.clear()
        self.unread_entry_counts.clear()
        self.row_messages.clear()

    def count_unsent_rows(self) -> None:
        """Give the outcome UNSENT to the rows that were read and not started (`add_started_rows`). A started row does
        not get this outcome, because its create may have left."""
        self.outcomes[Outcome.UNSENT] += self.read_count - self.started_count

    def report_problem(self, problem: Problem) -> None:
        """Report a row that a person must look at, and count its outcome. The row was added by `add_started_rows`."""
        self.outcomes[problem.outcome] += 1
        self.recorder.write_problem(problem)

    def report_change(self, change: ChangedRow) -> None:
        """Report a row with the outcome CHANGED, and count the outcome. The row was added by `add_started_rows`."""
        self.outcomes[Outcome.CHANGED] += 1
        self.recorder.write_change(change)

    def report_opt_out(self, opt_out: OptOut) -> None:
        """Count and report an opt-out."""
        self.opt_out_count += 1
        if opt_out.reason:
            self.unchecked_opt_out_counts[opt_out.reason] += 1
        self.recorder.write_opt_out(opt_out)

    def report_created_row(
        self, read_source_row: Callable[[], Row], sent_values: Mapping[str, object], omitted_zip: OmittedZip | None
    ) -> None:
        """Count a row as CREATED, and keep the values of the first few creates. The row was added by
        `add_started_rows`. `omitted_zip` is the zip code that the create omits."""
        self.count_row(Outcome.CREATED, read_source_row)
        if self.recorder.needs_all_rows:
            self.recorder.write_created_row(read_source_row(), sent_values)
        self.active_count += sent_values.get("is_active") is True
        if len(self.samples) < SAMPLE_COUNT:
            self.samples.append(dict(sent_values))
        if omitted_zip is not None:
            self.recorder.write_omitted_zip_code(omitted_zip)

    def add_message(self, message: str) -> None:
        """Add a message to the report, unless the report has it already."""
        if message not in self.messages:
            self.messages.append(message)

    def record_duplicates(self, ids: Collection[int]) -> None:
        """Record the ids that the list shows for one subscriber in one base. Several ids are duplicates."""
        if len(ids) > 1:
            self.duplicate_ids.add(tuple(sorted(ids)))

    def add_row_message(self, message: str) -> None:
        """Add a message about rows to the report, unless the report has it already. A load that has planned its rows
        first clears these messages, because the load looks up or compares the rows again."""
        if message not in self.row_messages:
            self.row_messages.append(message)


def exceeds_share(count: int, allowed_share: float | None, row_count: int) -> bool:
    """Return whether `count` of `row_count` rows exceed the share of a guard (0 to 1; None: no limit) (architecture 8).

    With fewer than 100 rows, the share is exceeded only if `count` is equal to `row_count` and at least 10.
    """
    if allowed_share is None or (
        row_count < MIN_ROWS_FOR_SHARE and not (row_count >= _MIN_ROWS_IF_ALL_HAVE_FAULT and count == row_count)
    ):
        return False
    return count > allowed_share * row_count
