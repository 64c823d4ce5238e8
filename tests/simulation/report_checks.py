"""Claims that compare the report of a run with the truth log and the ledger: its counts, and the rows in its files."""

from collections import Counter
from collections.abc import Callable, Iterator

from connector.outcomes import Outcome
from connector.states import State, find_traits
from tests.simulation.facts import SimulationFacts
from tests.simulation.program import Report
from tests.simulation.rows import ValidRow
from tests.simulation.simulation import EntryValues, RunResult

_UNKNOWN_STATES = (State.UNKNOWN, State.HELD)


def check_that_the_outcomes_add_up_to_the_rows_read(facts: SimulationFacts) -> Iterator[str]:
    """Check that each row that was read has exactly one outcome."""
    for run_result, report in _list_reports(facts):
        row_count = sum(report.tally.outcomes.values())
        if row_count != report.tally.read_count:
            yield f"run {run_result.number} read {report.tally.read_count} rows, and {row_count} have an outcome"


def check_that_the_created_count_is_the_number_of_new_subscribers(facts: SimulationFacts) -> Iterator[str]:
    """Check the count of created rows.

    A row counts if a create of the run stored its person. A row may count if another program created the person
    meanwhile, and the create was lost or updated this subscriber, because the connector cannot always distinguish these
    cases. If the service merged or moved a
    subscriber that was listed before the run, the row does not count. But the row may count if the list is incomplete,
    because the pages that the run read may lack this subscriber.
    """
    for run_result, report in _list_reports(facts):
        certain_create_count, possible_create_count = 0, 0
        for row, entry in _list_confirmed_rows(facts, run_result, report):
            calls = facts.find_calls(row.person_number, run_result.number)
            stored_subscribers = [
                subscriber
                for call in calls
                for subscriber in call.stored_subscribers
                if subscriber.stored_at <= run_result.ended_at
            ]
            previous_subscribers = [
                subscriber.previous_version
                for subscriber in stored_subscribers
                if subscriber.has_id_of_other_subscriber and subscriber.previous_version is not None
            ]
            if any(
                previous_subscriber.shown_at <= run_result.started_at for previous_subscriber in previous_subscribers
            ):
                possible_create_count += facts.is_list_unreadable
                continue
            is_stored = any(
                not (subscriber.has_id_of_other_subscriber or subscriber.has_updated_subscriber_of_other_program)
                for subscriber in stored_subscribers
            )
            has_row_values = entry.fingerprint == row.fingerprint
            certain_create_count += is_stored and has_row_values
            possible_create_count += bool(calls) and not is_stored
        reported_count = report.tally.outcomes[Outcome.CREATED]
        if not certain_create_count <= reported_count <= certain_create_count + possible_create_count:
            yield (
                f"run {run_result.number} reports {reported_count} created rows, but it created {certain_create_count} "
                f"to {certain_create_count + possible_create_count} of the rows"
            )


def check_that_the_changed_count_is_the_number_of_different_rows(facts: SimulationFacts) -> Iterator[str]:
    """Check that a row counts as changed if its fingerprint differs from the fingerprint of its entry. Also check that
    a finished run counts each confirmed row as created, exists or changed.

    - A row whose entry has no fingerprint was not compared. In a retry, this row does not count as changed. If the
      report says that some rows were not compared, this row may count as changed or not.
    - A retry moves some entries from REJECTED to UNKNOWN. The retry may count these entries as created, exists or
      changed, in addition to the confirmed rows.
    """
    for run_result, report in _list_reports(facts):
        reopened_entry_count = sum(
            (state_change.earlier_state, state_change.later_state) == (State.REJECTED, State.UNKNOWN)
            for _, state_change in run_result.state_changes
        )
        additional_count = reopened_entry_count if run_result.job_run.retry is not None else 0
        confirmed_rows = _list_confirmed_rows(facts, run_result, report)
        is_retry = run_result.job_run.retry is not None
        differing_row_count = sum(
            entry.fingerprint != row.fingerprint and not (is_retry and entry.fingerprint is None)
            for row, entry in confirmed_rows
        )
        has_uncompared_rows = any("without a comparison" in message for message in report.tally.row_messages)
        uncompared_row_count = (
            sum(entry.fingerprint is None for _, entry in confirmed_rows) if has_uncompared_rows else 0
        )
        outcomes = report.tally.outcomes
        reported_count = outcomes[Outcome.CHANGED]
        present_row_count = sum(outcomes[outcome] for outcome in (Outcome.CREATED, Outcome.EXISTS, Outcome.CHANGED))
        if reported_count > differing_row_count or (
            run_result.is_finished and reported_count < differing_row_count - uncompared_row_count
        ):
            yield (
                f"run {run_result.number} reports {reported_count} changed, and {differing_row_count} rows "
                "differ from what was sent"
            )
        if present_row_count > len(confirmed_rows) + additional_count or (
            run_result.is_finished and present_row_count < len(confirmed_rows)
        ):
            yield (
                f"run {run_result.number} reports {present_row_count} present rows, and {len(confirmed_rows)} "
                "entries are confirmed"
            )


def check_that_each_changed_row_is_reported_with_its_fields(facts: SimulationFacts) -> Iterator[str]:
    """Check that each changed row is reported once. The two reported values of each reported field must differ.

    The rows of a person have different names. If client_user_id is the identity, the email also has different
    spellings. No other field differs, except the fields of subscribers that other programs created.
    """
    changeable_fields = {"first_name", "last_name"}
    if facts.simulation.scenario.people.identity_field == "client_user_id":
        changeable_fields.add("email")
    if any(job_run.foreign_creates for job_run in facts.simulation.scenario.job_runs):
        changeable_fields.add("client_user_id")  # other programs may create subscribers without `client_user_id`
    for run_result, report in _list_reports(facts):
        if len(report.changes) != report.tally.outcomes[Outcome.CHANGED]:
            yield (
                f"run {run_result.number} reports the fields of {len(report.changes)} changed rows, and "
                f"counts {report.tally.outcomes[Outcome.CHANGED]}"
            )
        if len({(change.row.file, change.row.number) for change in report.changes}) != len(report.changes):
            yield f"run {run_result.number} reports a changed row twice"
        impossible_fields = {name for change in report.changes for name, _, _ in change.fields} - changeable_fields
        equal_fields = [
            name for change in report.changes for name, old_value, new_value in change.fields if old_value == new_value
        ]
        rows_without_fields = [
            change for change in report.changes if not (change.fields or change.reason or change.is_reported_before)
        ]
        if impossible_fields or equal_fields or rows_without_fields:
            yield (
                f"run {run_result.number} reports wrong differences: {impossible_fields}, {equal_fields}, "
                f"{rows_without_fields}"
            )


def check_that_unknown_rows_are_those_of_unknown_and_held_entries(facts: SimulationFacts) -> Iterator[str]:
    """Check the rows reported as unknown. The report of an unfinished run may lack an unknown entry if the run did not
    send the create of the entry."""
    for run_result, report in _list_reports(facts):
        reported_persons = _find_problem_persons(facts, report, Outcome.UNKNOWN)
        for row in _list_loaded_rows(run_result, report):
            entry = run_result.entries_after.get(row.person_number)
            is_entry_unknown = entry is not None and entry.state in _UNKNOWN_STATES
            may_have_been_sent = any(
                facts.may_have_had_effect(call) for call in facts.find_calls(row.person_number, run_result.number)
            )
            if row.person_number in reported_persons and not is_entry_unknown:
                yield f"run {run_result.number} reports person {row.person_number} as unknown: {entry}"
            elif (
                row.person_number not in reported_persons
                and is_entry_unknown
                and (run_result.is_finished or may_have_been_sent)
            ):
                yield f"run {run_result.number} does not report person {row.person_number} as unknown: {entry}"


def check_that_rejected_rows_are_those_of_rejected_entries(facts: SimulationFacts) -> Iterator[str]:
    """Check the rows reported as rejected.

    Exceptions: an unfinished run may have ended before the row, and a retry may report the row as suppressed.
    """
    for run_result, report in _list_reports(facts):
        reported_persons = _find_problem_persons(facts, report, Outcome.REJECTED)
        for row in _list_loaded_rows(run_result, report):
            entry = run_result.entries_after.get(row.person_number)
            is_rejected = entry is not None and find_traits(entry.state).counts_as_rejected
            if row.person_number in reported_persons and not is_rejected:
                yield f"run {run_result.number} reports person {row.person_number} as rejected: {entry}"
            elif (
                run_result.is_finished
                and is_rejected
                and row.person_number not in reported_persons | run_result.job_run.suppressed_person_numbers
            ):
                yield f"run {run_result.number} does not report person {row.person_number} as rejected: {entry}"


def check_that_no_person_reported_as_rejected_was_created_by_the_connector(facts: SimulationFacts) -> Iterator[str]:
    """Check that the connector created no person whom a finished run reports as rejected.

    Exceptions:

    - A list that lags, because only the next run finds the subscriber.
    - An entry that the run dropped (`connector retry --held drop`).
    - A person whom look-ups may have missed, because the email has several spellings.
    """
    if facts.simulation.scenario.lag_s:
        return
    for run_result, report in _list_reports(facts):
        state_changes = run_result.state_changes
        persons_with_dropped_entries = {
            person_number
            for person_number, state_change in state_changes
            if (state_change.earlier_state, state_change.later_state) == (State.HELD, State.DROPPED)
        }
        rejected_persons = _find_problem_persons(facts, report, Outcome.REJECTED) - persons_with_dropped_entries
        visible_persons = {
            person_number
            for person_number in rejected_persons
            if not facts.is_hidden_by_spelling(run_result, person_number)
        }
        for person_number in sorted(visible_persons) if run_result.is_finished else ():
            created_subscribers = [
                subscriber
                for subscriber in facts.find_created_subscribers(person_number)
                if subscriber.stored_at <= run_result.ended_at and facts.must_prevent_second_create(subscriber)
            ]
            if created_subscribers:
                yield (
                    f"run {run_result.number} reports person {person_number} as rejected: stored as "
                    f"{created_subscribers[0].subscriber_id}"
                )


def check_that_no_unsent_row_was_sent(facts: SimulationFacts) -> Iterator[str]:
    """Check that a row counts as unsent only if the run sent no create of the row, or the service refused each create.

    In a finished run, the unsent count must equal the number of held entries that were deleted.
    """
    for run_result, report in _list_reports(facts):
        rows = _list_loaded_rows(run_result, report)
        unsent_row_count = sum(
            not any(map(facts.may_have_had_effect, facts.find_calls(row.person_number, run_result.number)))
            for row in rows
        )
        reported_count = report.tally.outcomes[Outcome.UNSENT]
        if reported_count > unsent_row_count:
            yield (
                f"run {run_result.number} reports {reported_count} unsent, and "
                f"{len(rows) - unsent_row_count} of {len(rows)} were sent"
            )
        deleted_entry_count = sum(
            (state_change.earlier_state, state_change.later_state) == (State.HELD, State.NONE)
            for _, state_change in run_result.state_changes
        )
        if run_result.is_finished and reported_count != deleted_entry_count:
            yield (
                f"run {run_result.number} finished with {reported_count} unsent rows and "
                f"{deleted_entry_count} deleted held entries"
            )


def check_that_created_subscribers_have_the_values_of_their_rows(facts: SimulationFacts) -> Iterator[str]:
    """Check that each created subscriber has the first name of the row. A retry is not checked, because a retry has no
    rows."""
    for run_result, report in _list_reports(facts):
        for row, entry in _list_confirmed_rows(facts, run_result, report):
            has_row_values = row.first_name and entry.fingerprint == row.fingerprint
            for call in facts.find_calls(row.person_number, run_result.number) if has_row_values else ():
                for subscriber in call.stored_subscribers:
                    if subscriber.subscriber_id == entry.subscriber_id and subscriber.first_name != row.first_name:
                        yield (
                            f"person {row.person_number} was stored as {subscriber.first_name}, and "
                            f"the row says {row.first_name}"
                        )


def check_that_the_settled_counts_are_the_entries_that_left_unknown(facts: SimulationFacts) -> Iterator[str]:
    """Check the counts of found and absent entries against the entries that left the state UNKNOWN.

    An entry that went to CONFIRMED was found. An entry that went to another state was absent. Exceptions:

    - An entry that was refused, dropped or held, and is found, may count as found.
    - If the ledger joins two records of one base, a merged entry may count as found or absent.
    - An entry that the run did not send may be missing in the absent count, because its look-up had expired.
    - An entry that goes from REJECTED to UNKNOWN and back may be missing in the absent count.
    - If no request shows created subscribers, an entry that is held may be missing in the absent count, because nothing
      proves the subscriber absent.
    """
    for run_result, report in _list_reports(facts):
        state_changes = Counter(
            (state_change.earlier_state, state_change.later_state) for _, state_change in run_result.state_changes
        )
        found_count, merged_count = (
            state_changes[State.UNKNOWN, State.CONFIRMED],
            state_changes[State.UNKNOWN, State.NONE],
        )
        sending_count = state_changes[State.UNKNOWN, State.SENDING]
        absent_count = (
            sending_count + state_changes[State.UNKNOWN, State.HELD] + state_changes[State.UNKNOWN, State.REJECTED]
        )
        uncounted_entry_count = (
            sending_count - _count_creates_sent_again(facts, run_result) + _count_entries_rejected_again(run_result)
        )
        if facts.hides_created_subscribers:
            uncounted_entry_count += state_changes[State.UNKNOWN, State.HELD]
        settled_counts = report.tally.settled_found_count, report.tally.settled_absent_count
        other_found_count = merged_count + sum(
            state_changes[state, State.CONFIRMED] for state in (State.REJECTED, State.DROPPED, State.HELD)
        )
        if not found_count <= settled_counts[0] <= found_count + other_found_count:
            yield (
                f"run {run_result.number} reports {settled_counts[0]} found, and {found_count} entries went from "
                "UNKNOWN to CONFIRMED"
            )
        if not absent_count - uncounted_entry_count <= settled_counts[1] <= absent_count + merged_count:
            yield (
                f"run {run_result.number} reports {settled_counts[1]} absent, and {absent_count} entries went from "
                "UNKNOWN to another state"
            )


def _count_entries_rejected_again(run_result: RunResult) -> int:
    """Return the number of entries that went from REJECTED to UNKNOWN and back."""
    persons_with_reopened_entries, persons_with_entries_rejected_again = (
        {
            person_number
            for person_number, state_change in run_result.state_changes
            if (state_change.earlier_state, state_change.later_state) == state_pair
        }
        for state_pair in ((State.REJECTED, State.UNKNOWN), (State.UNKNOWN, State.REJECTED))
    )
    return len(persons_with_reopened_entries & persons_with_entries_rejected_again)


def _count_creates_sent_again(facts: SimulationFacts, run_result: RunResult) -> int:
    """Return the smallest possible number of creates that the run sent again."""
    changes_to_sending = [
        (person_number, state_change.earlier_state is State.UNKNOWN)
        for person_number, state_change in run_result.state_changes
        if state_change.later_state is State.SENDING
    ]
    repeated_send_counts, first_send_counts = (
        Counter(person_number for person_number, is_repeated in changes_to_sending if is_repeated is is_repeat)
        for is_repeat in (True, False)
    )
    calls = facts.simulation.record.list_creates(run_result.number)
    sent_call_counts = Counter(call.person_number for call in calls if call.was_sent and call.ending != "429")
    return sum(((sent_call_counts - first_send_counts) & repeated_send_counts).values())


def check_that_the_report_counts_every_request(facts: SimulationFacts) -> Iterator[str]:
    """Check the number of creates that were sent, and the number of creates that were answered 429."""
    for run_result, report in _list_reports(facts):
        calls = facts.simulation.record.list_creates(run_result.number)
        limited_count = sum(call.ending == "429" for call in calls)
        if (report.attempt_count, report.limited_count) != (len(calls), limited_count):
            yield (
                f"run {run_result.number} reports {report.attempt_count} creates, {report.limited_count} of them "
                f"answered 429; the network counted {len(calls)} creates, {limited_count} of them answered 429"
            )


CLAIMS: tuple[Callable[[SimulationFacts], Iterator[str]], ...] = (
    check_that_the_outcomes_add_up_to_the_rows_read,
    check_that_the_created_count_is_the_number_of_new_subscribers,
    check_that_the_changed_count_is_the_number_of_different_rows,
    check_that_each_changed_row_is_reported_with_its_fields,
    check_that_unknown_rows_are_those_of_unknown_and_held_entries,
    check_that_rejected_rows_are_those_of_rejected_entries,
    check_that_no_person_reported_as_rejected_was_created_by_the_connector,
    check_that_no_unsent_row_was_sent,
    check_that_created_subscribers_have_the_values_of_their_rows,
    check_that_the_settled_counts_are_the_entries_that_left_unknown,
    check_that_the_report_counts_every_request,
)


def _list_reports(facts: SimulationFacts) -> list[tuple[RunResult, Report]]:
    """Return the runs whose process was not killed, with their reports."""
    return [
        (run_result, run_result.report) for run_result in facts.simulation.run_results if run_result.report is not None
    ]


def _list_loaded_rows(run_result: RunResult, report: Report) -> list[ValidRow]:
    """Return the rows of the loaded chunks, one for each person. For a retry, return a row for each entry that the
    retry settles."""
    retry = run_result.job_run.retry
    if retry is None:
        return [
            row
            for prepared_chunk in run_result.job_run.prepared_chunks[: report.chunk_count]
            for row in prepared_chunk.rows
        ]
    states = {*_UNKNOWN_STATES, State.SENDING, *((State.REJECTED,) if retry.is_rejected else ())}
    persons_with_reopened_entries = {
        person_number
        for person_number, state_change in run_result.state_changes
        if (state_change.earlier_state, state_change.later_state) == (State.REJECTED, State.UNKNOWN)
    }
    numbered_entries = [
        (person_number, entry)
        for person_number, entry in run_result.entries_before.items()
        if entry.state in states or person_number in persons_with_reopened_entries
    ]
    return [ValidRow(person_number, b"", entry.fingerprint or b"", "") for person_number, entry in numbered_entries]


def _list_confirmed_rows(
    facts: SimulationFacts, run_result: RunResult, report: Report
) -> list[tuple[ValidRow, EntryValues]]:
    rows_and_entries = (
        (row, run_result.entries_after.get(row.person_number)) for row in _list_loaded_rows(run_result, report)
    )
    return [(row, entry) for row, entry in rows_and_entries if entry is not None and entry.state is State.CONFIRMED]


def _find_problem_persons(facts: SimulationFacts, report: Report, outcome: Outcome) -> set[int]:
    """Return the persons of the rows that the report lists with this outcome."""
    problem_rows = [problem.row for problem in report.problems if problem.outcome is outcome]
    rows = [dict(zip(row.columns, row.cells, strict=True)) for row in problem_rows]
    find_person_number = facts.simulation.scenario.people.find_person_number
    return {find_person_number({"Email": row["email"], "ClientUserId": row["client_user_id"]}) for row in rows}
