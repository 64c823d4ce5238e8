"""The outcomes of the rows of one base (architecture 4), and the rows that wait for an outcome.

Two kinds of rows wait. An *unresolved* row was sent, and the effect of the create is not known. A *postponed* row was
refused or has a HELD entry. A look-up may still show its subscriber, so the run reports a postponed row only at its
end. Rows of a source and entries of earlier runs are treated alike.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import assert_never

from connector.errors import LedgerError
from connector.ledger.entries import Entry, Refusal, Transition
from connector.ledger.receipts import ReceiptKind
from connector.load.candidates import Candidate, build_row, describe_held_row
from connector.load.session import CompareReason, RunMode, Session
from connector.load.unresolved import UnresolvedCreate
from connector.outcomes import Outcome
from connector.pace.refusals import SERIES_LENGTH
from connector.rows import LoadRow
from connector.service.answers import build_refusal_kind, is_about_row
from connector.states import Event, NoResendEvent, State
from connector.tally import Problem, UnresolvedResult

_MAX_POSTPONED_ROWS = 10_000  # this many rows take about 10 MB; the run reports further rows without postponing them


@dataclass(frozen=True, slots=True)
class _PostponedRow:
    """A row that the run reports as `problem` at its end, unless a later look-up shows the subscriber.

    `is_of_this_run` and `valid_until` are described in `UnresolvedCreate`.
    """

    problem: Problem
    row: LoadRow
    is_of_this_run: bool = False
    is_unchecked: bool = False  # whether the subscriber has not been looked up after the refusal
    # Time (monotonic) at which the service refused this run's create of the row; None: no such refusal.
    refused_at: float | None = None
    valid_until: float = -inf

    @property
    def refusal_kind(self) -> str:
        """The kind of the refusal of this run's create, or "" if the refusal is about the row."""
        status, message = self.problem.http_status or 0, self.problem.message
        if not self.is_of_this_run or self.refused_at is None or is_about_row(status, message, self.row.identity_text):
            return ""
        return build_refusal_kind(status, message)


class Outcomes:
    """Records the outcomes of the rows of one base in the tally of the run. Call `close` in any case, so that the sum
    of the outcomes is the number of rows read. Only this class adds and removes items of `unresolved_creates` (by
    identity).
    """

    def __init__(self, session: Session, mode: RunMode) -> None:
        self._session, self._mode = session, mode
        self.unresolved_creates: dict[bytes, UnresolvedCreate] = {}
        self._postponed_rows: list[_PostponedRow] = []
        self._stale_identities: set[bytes] = set()

    # Methods that add unresolved creates

    def add_unresolved_create(self, identity: bytes, unresolved_create: UnresolvedCreate) -> UnresolvedCreate:
        """Store an unresolved create, and return it. If the identity has a stored create already, replace only the row
        of the stored create, and return the stored create."""
        stored_create = self.unresolved_creates.setdefault(identity, unresolved_create)
        if unresolved_create.row is not None:
            stored_create.row = unresolved_create.row
        return stored_create

    def add_earlier_refusals(
        self, refusals: Mapping[bytes, Refusal], recently_refused_identities: Collection[bytes]
    ) -> None:
        """Add an unresolved create for each of these refusals of earlier runs. The caller has moved the entries from
        REJECTED to UNKNOWN. The list possibly does not show the subscribers of `recently_refused_identities` yet."""
        now = self._session.clock.monotonic()
        for identity, refusal in refusals.items():
            # Two quiet periods have passed since the refusal of an entry that is not recent, so one look-up is enough.
            first_missed_at = None if identity in recently_refused_identities else -inf
            self.unresolved_creates[identity] = UnresolvedCreate(
                now,
                status=refusal.status,
                message=refusal.message,
                is_refused=True,
                first_missed_at=first_missed_at,
            )
        postponed_rows, self._postponed_rows = self._postponed_rows, []
        for postponed_row in postponed_rows:
            if postponed_row.row.identity in refusals:
                self.unresolved_creates[postponed_row.row.identity].row = postponed_row.row
            else:
                self._postponed_rows.append(postponed_row)

    def reopen_temporary_refusals(self) -> None:
        """Make postponed rows unresolved if their refusal may be temporary. The run then settles these rows like rows
        that got a 429."""
        temporary_refusals = self._session.temporary_refusals
        postponed_rows, self._postponed_rows = self._postponed_rows, []
        refusal_counts = Counter(postponed_row.refusal_kind for postponed_row in postponed_rows)
        for refusal_kind, refusal_count in refusal_counts.items():
            if refusal_kind and refusal_count >= SERIES_LENGTH:
                temporary_refusals.mark_temporary(refusal_kind)
        for postponed_row in postponed_rows:
            if postponed_row.refused_at is None or not temporary_refusals.may_be_temporary(postponed_row.refusal_kind):
                self._postponed_rows.append(postponed_row)
                continue
            self._session.create_limits.remove_rejection()
            self.unresolved_creates[postponed_row.row.identity] = UnresolvedCreate(
                postponed_row.refused_at,
                postponed_row.row,
                postponed_row.problem.http_status,
                postponed_row.problem.message,
                is_of_this_run=True,
                valid_until=postponed_row.valid_until,
                is_refused=True,
                is_rejected_in_ledger=True,
            )

    def postpone_final_refusals(self) -> None:
        """Postpone unresolved rows if their entry is REJECTED in the ledger and the run treats refusals of their kind
        as final."""
        for identity, unresolved_create in list(self.unresolved_creates.items()):
            row = unresolved_create.row
            if (
                unresolved_create.is_rejected_in_ledger
                and row is not None
                and self._session.temporary_refusals.is_final_kind(unresolved_create.refusal_kind)
            ):
                del self.unresolved_creates[identity]
                status, message = unresolved_create.status, unresolved_create.message
                attempt_count = unresolved_create.attempt_count or 1
                problem = Problem(row.source, Outcome.REJECTED, "", "rejected", message, status, attempt_count)
                self._postponed_rows.append(
                    _PostponedRow(problem, row, unresolved_create.is_of_this_run, is_unchecked=True)
                )

    # Methods that record the results of creates

    def record_result(self, candidate: Candidate, transition: Transition) -> None:
        """Record the result of a create. Either the row gets an outcome, or the row waits for a look-up.

        A candidate of an UNKNOWN entry was sent again, because look-ups have proved that its earlier attempts had no
        effect."""
        session, tally, is_sent_again = self._session, self._session.tally, candidate.entry_state is State.UNKNOWN
        tally.altered_field_counts.update(transition.altered_fields)
        if transition.event in (Event.ANSWERED, Event.REFUSED) and not transition.is_retryable_refusal:
            is_rejected = transition.event is Event.REFUSED
            reason = session.create_limits.record_answer(
                is_rejected=is_rejected, undecided_rejection_count=session.temporary_refusals.series_length
            )
            if reason is not None:
                session.stop.request_stop(reason)
        if is_sent_again and transition.event is not Event.NOT_SENT:
            tally.settled_absent_count += 1
        match transition.event:
            case Event.ANSWERED:
                self._report_answered_create(candidate)
            case Event.REFUSED if transition.is_retryable_refusal:
                self._leave_unresolved(candidate, transition)
            case Event.REFUSED | Event.MISANSWERED:
                self._postpone_row_of_create(candidate, transition)
            case Event.LOST:
                self._leave_unresolved(candidate, transition)
            case Event.NOT_SENT if is_sent_again:
                self._leave_unresolved(candidate, transition)
            case Event.NOT_SENT:
                tally.remove_started_rows()
                if transition.has_expired_look_up:
                    self._stale_identities.add(candidate.intent.identity)
                    session.create_limits.sent_count -= 1
            case _:
                assert_never(transition.event)

    def _report_answered_create(self, candidate: Candidate) -> None:
        tally, identity = self._session.tally, candidate.intent.identity
        if candidate.entry_state is not State.UNKNOWN:
            # A plan sends no row, so a plan omits no zip code.
            omitted_zip = candidate.omitted_zip if self._mode is RunMode.LOAD else None
            tally.reactivated_count += identity in self._session.list_access.inactive_identities.reactivated
            tally.report_created_row(candidate.read_source_row, candidate.sent_values, omitted_zip)
            self._session.ledger_writer.count_created_row()
        elif (row := self.unresolved_creates.pop(identity).row) is not None:
            self._report_created_row(row)

    def _leave_unresolved(self, candidate: Candidate, transition: Transition) -> None:
        """Add the create to the unresolved creates, and begin its quiet periods."""
        was_looked_up_first, now = True, self._session.clock.monotonic()
        if candidate.entry_state is not State.UNKNOWN:
            was_looked_up_first = self._session.policy.looks_up_first
            row = build_row(candidate, candidate.read_source_row())
            self.unresolved_creates[candidate.intent.identity] = UnresolvedCreate(now, row)
        self.unresolved_creates[candidate.intent.identity].record_attempt(
            transition, now, candidate.valid_until, was_looked_up_first=was_looked_up_first
        )

    def _postpone_row_of_create(self, candidate: Candidate, transition: Transition) -> None:
        """Postpone the row of a create that was refused, or answered with another subscriber. If this run has no row
        for the create, only count the entry."""
        session, is_refused, attempt_count = self._session, transition.event is Event.REFUSED, 1
        if candidate.entry_state is State.UNKNOWN:
            unresolved_create = self.unresolved_creates.pop(candidate.intent.identity)
            if unresolved_create.row is None:
                session.tally.unread_entry_counts[
                    UnresolvedResult.REJECTED if is_refused else UnresolvedResult.HELD
                ] += 1
                return
            source_row, attempt_count = unresolved_create.row.source, (unresolved_create.attempt_count or 0) + 1
        else:
            source_row = candidate.read_source_row()
        outcome, code, message = Outcome.REJECTED, "rejected", transition.message
        if not is_refused:
            outcome, code, message = Outcome.UNKNOWN, "held", describe_held_row(transition.message)
        problem = Problem(source_row, outcome, "", code, message, transition.status, attempt_count)
        self._add_postponed_row(
            _PostponedRow(
                problem,
                build_row(candidate, source_row),
                is_of_this_run=session.policy.looks_up_first and not transition.is_subscriber_older_than_create,
                is_unchecked=is_refused,
                refused_at=session.clock.monotonic() if is_refused else None,
                valid_until=candidate.valid_until,
            )
        )

    def pop_stale_identities(self) -> set[bytes]:
        """Return the identities whose creates were not sent because their look-up expired, and forget these
        identities."""
        stale_identities, self._stale_identities = self._stale_identities, set()
        return stale_identities

    # Methods for postponed rows

    def postpone_row(self, problem: Problem, row: LoadRow, *, is_unchecked: bool) -> None:
        """Postpone a row whose entry is HELD, REJECTED or DROPPED. `is_unchecked`: the subscriber has not been looked
        up after the refusal."""
        self._add_postponed_row(_PostponedRow(problem, row, is_unchecked=is_unchecked))

    def _add_postponed_row(self, postponed_row: _PostponedRow) -> None:
        if (
            len(self._postponed_rows) < _MAX_POSTPONED_ROWS
            or postponed_row.row.identity in self._session.waiting_refusals
        ):
            self._postponed_rows.append(postponed_row)
        else:
            self._session.tally.report_problem(postponed_row.problem)
            self._session.tally.add_message(
                f"More than {_MAX_POSTPONED_ROWS:,} rows were refused or held. Further rows are reported with the "
                "service's answer, without a look-up of their subscribers."
            )

    def list_unchecked_rows(self) -> list[LoadRow]:
        """Return the refused rows whose subscribers were not looked up after the refusal."""
        return [postponed_row.row for postponed_row in self._postponed_rows if postponed_row.is_unchecked]

    # Outcomes that follow from the states of the entries after look-ups

    async def report_resolved_rows(self) -> None:
        """Give an outcome to each postponed row, and to each unresolved create that is settled in the ledger."""
        await self._report_postponed_rows()
        await self._report_resolved_creates()

    async def _report_postponed_rows(self) -> None:
        """Report all postponed rows. A row whose entry is CONFIRMED now counts as created, existing or changed. Every
        other row is reported as a problem."""
        session = self._session
        entries = await self._session.ledger_writer.find_entries(
            [postponed_row.row.identity for postponed_row in self._postponed_rows]
        )
        confirmed_ids = {
            identity: entry.subscriber_id for identity, entry in entries.items() if entry.state is State.CONFIRMED
        }
        postponed_rows = [
            replace(postponed_row, is_of_this_run=False)
            if session.list_access.known_ids.was_shown_before_creates(
                confirmed_ids.get(postponed_row.row.identity) or 0
            )
            else postponed_row
            for postponed_row in self._postponed_rows
        ]
        created_digests = [
            (postponed_row.row.identity, postponed_row.row.fingerprint)
            for postponed_row in postponed_rows
            if postponed_row.is_of_this_run and postponed_row.row.identity in confirmed_ids
        ]
        if created_digests:  # the service did not accept these creates, but the list shows their subscribers
            base = session.ledger_writer.base
            await session.ledger_writer.execute(
                lambda ledger: ledger.record_rows_equal_to_service(base, created_digests)
            )
        # The rows are removed only after the writes, so that no row loses its outcome if the ledger fails.
        self._postponed_rows = self._postponed_rows[len(postponed_rows) :]
        for postponed_row in sorted(
            postponed_rows, key=lambda postponed_row: (postponed_row.row.source.file, postponed_row.row.source.number)
        ):
            entry, problem = entries.get(postponed_row.row.identity), postponed_row.problem
            if entry is not None and entry.state is State.CONFIRMED:  # a listing has shown the subscriber
                if postponed_row.is_of_this_run and problem.outcome is Outcome.REJECTED:
                    session.create_limits.remove_rejection()
                self._report_found_row(
                    postponed_row.row,
                    _find_compare_reason(entry, postponed_row.row),
                    is_of_this_run=postponed_row.is_of_this_run,
                )
            else:
                attempt_count = entry.attempt_count if entry is not None else problem.attempt_count
                session.tally.report_problem(replace(problem, attempt_count=attempt_count))

    async def _report_resolved_creates(self) -> None:
        """Report the unresolved creates whose entries are CONFIRMED, REJECTED or DROPPED now. If the ledger has joined
        two records of one base, another load of the run may have settled these entries.
        """
        for identity, entry in (await self._session.ledger_writer.find_entries(list(self.unresolved_creates))).items():
            match entry.state:
                case State.CONFIRMED:
                    unresolved_create = self.unresolved_creates.pop(identity)
                    if unresolved_create.row is not None:
                        self._report_settled_row(
                            unresolved_create.row, unresolved_create, _find_compare_reason(entry, unresolved_create.row)
                        )
                case State.REJECTED | State.DROPPED:
                    unresolved_create = self.unresolved_creates.pop(identity)
                    message, status, attempt_count = entry.message or "", entry.status, entry.attempt_count
                    self._report_unresolved_create(
                        unresolved_create, UnresolvedResult.REJECTED, message, status, attempt_count
                    )
                case State.NONE | State.SENDING | State.UNKNOWN | State.HELD:
                    continue
                case _:
                    assert_never(entry.state)

    async def close(self) -> None:
        """Report all rows that were sent or refused and have no outcome yet. Raises LedgerError."""
        failure: LedgerError | None = None
        entries: dict[bytes, Entry] = {}
        try:
            await self._reject_unsent_entries()
            await self.report_resolved_rows()
            entries = await self._session.ledger_writer.find_entries(list(self.unresolved_creates))
        except LedgerError as error:
            failure = error
        for postponed_row in self._postponed_rows:
            self._session.tally.report_problem(postponed_row.problem)
        self._postponed_rows.clear()
        for identity, unresolved_create in self.unresolved_creates.items():
            attempt_count = entries[identity].attempt_count if identity in entries else 1
            message = (
                unresolved_create.message
                or "the create was sent, and the service has not shown whether the create took effect"
            )
            if unresolved_create.owner_job is not None:
                message = (
                    f"the subscriber is not in the service, and only the job {unresolved_create.owner_job}, which "
                    "has a suppression list, may send the create again"
                )
            status = unresolved_create.status
            self._report_unresolved_create(unresolved_create, UnresolvedResult.UNKNOWN, message, status, attempt_count)
        self.unresolved_creates.clear()
        if failure is not None:
            raise failure
        await self._session.ledger_writer.flush()

    async def _reject_unsent_entries(self) -> None:
        """Move entries from UNKNOWN back to REJECTED if their creates were refused and this run does not send them
        again. A later run then knows the refusals."""
        base = self._session.ledger_writer.base
        entries = await self._session.ledger_writer.find_entries(list(self.unresolved_creates))
        refused_entries = [
            (identity, unresolved_create.status, unresolved_create.message)
            for identity, unresolved_create in self.unresolved_creates.items()
            if unresolved_create.is_refused and unresolved_create.status is not None and identity in entries
            if entries[identity].state is State.UNKNOWN
        ]
        await self._session.ledger_writer.execute(
            lambda ledger: ledger.mark_refused(base, State.UNKNOWN, refused_entries)
        )

    # Methods that report outcomes

    def record_found_subscriber(self, identity: bytes, ids: Sequence[int]) -> None:
        """Record that a look-up found the subscriber of an unresolved entry. `ids` are all Ids of the subscriber."""
        tally, unresolved_create = self._session.tally, self.unresolved_creates.pop(identity)
        tally.record_duplicates(ids)
        if len(ids) > 1:
            ids_text = ", ".join(map(str, ids))
            tally.add_message(
                f"a subscriber whose create was unresolved is in the base {len(ids)} times: ids {ids_text}"
            )
        tally.settled_found_count += 1
        if unresolved_create.row is not None:
            compare_reason = None if unresolved_create.newer_intent is None else CompareReason.CHANGED
            self._report_settled_row(unresolved_create.row, unresolved_create, compare_reason)

    def record_no_resend(self, identity: bytes, event: NoResendEvent, attempt_count: int) -> None:
        """Record that this run does not send the create of an unresolved entry again, although no look-up found the
        subscriber. `attempt_count` is the number of times that the create was sent.
        """
        tally, unresolved_create = self._session.tally, self.unresolved_creates.pop(identity)
        row, status, message = unresolved_create.row, unresolved_create.status, unresolved_create.message
        tally.settled_absent_count += not unresolved_create.unprovable_reason
        match event:
            case Event.SUPPRESSED:
                if row is None:
                    tally.unread_entry_counts[UnresolvedResult.SUPPRESSED] += 1
                else:
                    tally.count_row(Outcome.SUPPRESSED, lambda: row.source)
            case Event.HELD:
                attempt_message = message or "the create was sent, and no answer came"
                message = f"held: the subscriber was proved absent ({attempt_message})"
                if unresolved_create.unprovable_reason:
                    message = describe_held_row(unresolved_create.unprovable_reason)
                self._report_unresolved_create(unresolved_create, UnresolvedResult.HELD, message, status, attempt_count)
            case Event.REFUSED:
                self._report_unresolved_create(
                    unresolved_create, UnresolvedResult.REJECTED, message, status, attempt_count
                )
            case _:
                assert_never(event)

    def _report_unresolved_create(
        self,
        unresolved_create: UnresolvedCreate,
        result: UnresolvedResult,
        message: str,
        status: int | None,
        attempt_count: int,
    ) -> None:
        """Report the row of an unresolved entry as a problem. If this run has no row for the entry, only count the
        entry."""
        tally = self._session.tally
        if unresolved_create.row is None:
            tally.unread_entry_counts[result] += 1
        else:
            outcome = Outcome.REJECTED if result is UnresolvedResult.REJECTED else Outcome.UNKNOWN
            tally.report_problem(
                Problem(unresolved_create.row.source, outcome, "", result.value, message, status, attempt_count)
            )

    def _report_settled_row(
        self, row: LoadRow, unresolved_create: UnresolvedCreate, compare_reason: CompareReason | None
    ) -> None:
        """Report the row of an unresolved create whose subscriber was found. After a 429 the row is compared with the
        service, because a create with a 429 rarely takes effect. If the subscriber existed before the create, the row
        counts as existing or changed."""
        if unresolved_create.is_subscriber_older_than_create:
            self._session.ledger_writer.record_receipt(row.identity, row.identity_text, ReceiptKind.EXISTED)
            self._report_found_row(row, CompareReason.NEVER_COMPARED, is_of_this_run=False)
        elif unresolved_create.has_retryable_refusal:
            self._report_found_row(row, CompareReason.RATE_LIMITED, is_of_this_run=False)
        else:
            self._report_found_row(row, compare_reason, is_of_this_run=unresolved_create.is_of_this_run)

    def _report_found_row(self, row: LoadRow, compare_reason: CompareReason | None, *, is_of_this_run: bool) -> None:
        """Report a row whose subscriber exists. With `is_of_this_run`, the row counts as created. Otherwise the row
        waits for a comparison if there is a reason for a comparison, and counts as existing if not."""
        if is_of_this_run:
            self._session.ledger_writer.record_receipt(row.identity, row.identity_text, ReceiptKind.PROVED_CREATED)
            self._report_created_row(row)
        elif compare_reason is not None:
            self._session.waiting_rows.add(self._session.ledger_writer, [(row, compare_reason)])
        else:
            self._session.tally.count_row(Outcome.EXISTS, lambda: row.source)

    def _report_created_row(self, row: LoadRow) -> None:
        tally = self._session.tally
        tally.reactivated_count += row.identity in self._session.list_access.inactive_identities.reactivated
        tally.report_created_row(lambda: row.source, row.values, row.omitted_zip)
        self._session.ledger_writer.count_created_row()


def _find_compare_reason(entry: Entry, row: LoadRow) -> CompareReason | None:
    """Return the reason to compare the row of a CONFIRMED entry with the service. Return None if the row has not
    changed since it was sent."""
    if row.fingerprint in (b"", entry.fingerprint):
        return None
    return CompareReason.NEVER_COMPARED if entry.fingerprint is None else CompareReason.CHANGED
