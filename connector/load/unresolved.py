"""An unresolved create: an entry whose create may or may not have taken effect, with the facts that this run knows.
Only the methods of this class begin quiet periods, and count attempts and look-ups (architecture 4.5)."""

from dataclasses import dataclass, field
from math import inf

from connector.ledger.entries import Intent, Transition
from connector.rows import LoadRow
from connector.service.answers import build_refusal_kind
from connector.states import Event

# Maximum number of attempts to create one subscriber. If 2 % of all attempts are lost, the chance that five attempts in
# a row are lost is 3 in a billion.
_MAX_ATTEMPTS = 5


@dataclass(slots=True)
class UnresolvedCreate:
    """An unresolved create, with the facts that this run knows about it. All times are monotonic."""

    attempt_ended_at: float  # the end of the last attempt, or the time when this run found the entry
    row: LoadRow | None = None  # None: this run has not read the row
    status: int | None = None  # the status of the last answer
    message: str = ""  # the message of the last answer
    is_of_this_run: bool = False  # whether this run sent the create; before, a look-up showed the subscriber absent
    valid_until: float = -inf  # the time until which a create may rely on the last look-up of the subscriber
    # Whether the last attempt was refused. A refused attempt of this run got a 429, or a refusal that may be temporary.
    is_refused: bool = False
    is_rejected_in_ledger: bool = False
    """Whether the entry is REJECTED in the ledger. The next look-up makes the entry UNKNOWN."""
    first_missed_at: float | None = None  # the beginning of the first look-up that did not find the subscriber
    uncounted_attempt_count: int = 0
    """The number of recorded attempts that do not count toward `_MAX_ATTEMPTS`. These are attempts of earlier runs,
    attempts that were not sent, and attempts that got a 429.
    """
    newer_intent: Intent | None = None  # the create of the row, if the row has changed since the last attempt
    newer_values: dict[str, object] = field(default_factory=dict)  # the values of `newer_intent`
    attempt_count: int | None = None
    """The ledger's number of attempts at the last look-up. A larger number means that another load of the run has sent
    the create again."""
    is_subscriber_older_than_create: bool = False  # whether the found subscriber existed before the create
    unprovable_reason: str = ""  # the reason why no look-up can prove the subscriber absent
    owner_job: str | None = None
    """The only job that may send the create again, because this run lacks the job's suppression list."""

    @property
    def has_retryable_refusal(self) -> bool:
        """Whether the last attempt of this run got a 429, or a refusal that may be temporary."""
        return self.is_of_this_run and self.is_refused

    @property
    def may_be_foreign(self) -> bool:
        """Whether the found subscriber may come from another create than the create of this entry."""
        return self.is_subscriber_older_than_create or self.has_retryable_refusal

    @property
    def refusal_kind(self) -> str:
        """The kind of the refusal, or "" if the last attempt was not refused."""
        return build_refusal_kind(self.status or 0, self.message) if self.is_refused else ""

    @property
    def has_no_remaining_attempt(self) -> bool:
        """Whether this run has used all attempts to send the create."""
        return self.is_of_this_run and (self.attempt_count or 0) - self.uncounted_attempt_count >= _MAX_ATTEMPTS

    def record_attempt(
        self, transition: Transition, ended_at: float, valid_until: float, *, was_looked_up_first: bool
    ) -> None:
        """Record an attempt of this run that was lost or limited, and begin the quiet periods again. If the attempt was
        not sent, the quiet periods do not begin again."""
        self.newer_intent = None  # the ledger now has the newer create
        self.attempt_count = None if self.attempt_count is None else self.attempt_count + 1
        if transition.event is Event.NOT_SENT:
            self.uncounted_attempt_count += 1
            return
        self.is_of_this_run = was_looked_up_first
        # After a lost attempt, both values are False.
        self.is_refused = self.is_rejected_in_ledger = transition.is_retryable_refusal
        self.uncounted_attempt_count += transition.is_retryable_refusal and not transition.is_refusal_possibly_temporary
        self.valid_until = valid_until
        self.attempt_ended_at, self.first_missed_at = ended_at, None
        self.status, self.message = transition.status, transition.message

    def begin_look_up(self, attempt_count: int, now: float) -> None:
        """Record the ledger's number of attempts before a look-up. If another load of the run has sent the create
        again, begin the quiet periods again at `now` (monotonic)."""
        if self.attempt_count not in (None, attempt_count):
            self.attempt_ended_at, self.first_missed_at = now, None
        self.attempt_count = attempt_count
        if not self.is_of_this_run:  # attempts of earlier runs do not count
            self.uncounted_attempt_count = attempt_count

    def record_missed_look_up(self, started_at: float, quiet_period_s: float, *, is_conclusive: bool) -> None:
        """Record that a look-up which began at `started_at` (monotonic) did not find the subscriber. Absence needs
        two conclusive look-ups in a row."""
        if not is_conclusive:
            self.first_missed_at = None
        elif self.first_missed_at is None and started_at >= self.attempt_ended_at + quiet_period_s:
            self.first_missed_at = started_at
