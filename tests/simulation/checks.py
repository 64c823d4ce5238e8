"""Claims about every run of a job and about the end of a scenario. The claims compare the truth log, the ledger and the
report.

Each claim is a function that yields a text for each contradiction. The docstring of the claim lists the exceptions with
their reasons.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

from connector.pace.refusals import SERIES_LENGTH
from connector.states import ENTRY_STATE_MACHINE, State, find_traits
from tests.simulation import report_checks
from tests.simulation.facts import SimulationFacts
from tests.simulation.simulation import EntryValues

_MAX_ATTEMPTS = 5  # after five lost creates of an identity, a person must decide about its entry

_LONGEST_RETRY_S = 70.0  # without a connection, a create is retried for 60 s; the last attempt may take 10 s more

_ALLOWED_STATE_CHANGES = {
    (old_state, new_state) for (old_state, _), new_state in ENTRY_STATE_MACHINE.transitions.items()
}

Claim = Callable[[SimulationFacts], Iterator[str]]


def check_that_no_person_is_stored_twice_by_the_connector(facts: SimulationFacts) -> Iterator[str]:
    """Check that at most one create that the connector sent for a person was stored.

    Exceptions: a first create that no run can find in time (`SimulationFacts.must_prevent_second_create`), and a proxy
    that repeats a create.
    """
    for person_number in facts.person_numbers:
        subscriber_by_call_number = {
            subscriber.call.number: subscriber
            for subscriber in facts.find_created_subscribers(person_number)
            if subscriber.call and not subscriber.was_updated
        }
        for call_number in sorted(subscriber_by_call_number)[:-1]:
            if facts.must_prevent_second_create(subscriber_by_call_number[call_number]):
                yield f"request {call_number} and a later request both stored person {person_number}"


def check_that_no_create_is_sent_for_a_listed_person(facts: SimulationFacts) -> Iterator[str]:
    """Check that no create is sent for a person whom the list showed at the start of the run (architecture 4.7).

    The claim also holds for a subscriber that another program created. Exception: a run whose report warns that
    look-ups may miss subscribers with other capitals in the email.
    """
    for run_result in facts.simulation.run_results:
        for person_number in facts.person_numbers:
            is_listed = any(
                subscriber.shown_at <= run_result.started_at
                for subscriber in facts.find_stored_subscribers(person_number)
            )
            is_listed = is_listed and not facts.is_hidden_by_spelling(run_result, person_number)
            for call in facts.find_calls(person_number, run_result.number) if is_listed else ():
                yield (
                    f"the list showed person {person_number} at the start of run {run_result.number}, and request "
                    f"{call.number} created the person again"
                )


def check_that_no_create_relies_on_an_expired_look_up(facts: SimulationFacts) -> Iterator[str]:
    """Check that no create is sent for a person whom the list has shown for longer than `load.fresh` and the longest
    retry of a create together (architecture 4.7).

    Exception: a run whose report warns that look-ups may miss subscribers with other capitals in the email.
    """
    max_lookup_age_s = facts.simulation.scenario.policy.max_lookup_age_s
    for run_result in facts.simulation.run_results:
        for person_number in facts.person_numbers:
            shown_at = min(
                (subscriber.shown_at for subscriber in facts.find_stored_subscribers(person_number)),
                default=float("inf"),
            )
            if facts.is_hidden_by_spelling(run_result, person_number):
                continue
            for call in facts.find_calls(person_number, run_result.number):
                listed_duration_s = call.sent_at - shown_at
                if listed_duration_s > max(max_lookup_age_s, 1.0) + _LONGEST_RETRY_S:
                    yield (
                        f"the list had shown person {person_number} for {listed_duration_s:.0f} s when request "
                        f"{call.number} left"
                    )


def check_that_no_create_is_repeated_before_two_quiet_periods_have_passed(facts: SimulationFacts) -> Iterator[str]:
    """Check that two quiet periods lie between two creates of a person. Exceptions: a definite refusal, a ledger that
    was lost or restored, and a refused create whose subscriber a lagging replica hides."""
    quiet_period_s = facts.simulation.scenario.quiet_period_s
    for person_number in facts.person_numbers:
        calls = facts.find_calls(person_number)
        for first_call, second_call in pairwise(calls):
            pause_s = second_call.sent_at - facts.find_quiet_period_start(first_call)
            if (
                facts.may_have_had_effect(first_call)
                and pause_s < 2 * quiet_period_s
                and not facts.is_ledger_changed_between(first_call, second_call)
                and not facts.may_replica_hide_subscriber(first_call)
            ):
                yield (
                    f"request {first_call.number} was a create of person {person_number}, and request "
                    f"{second_call.number} sent the create again {pause_s:.2f} s later"
                )


def check_that_no_create_with_a_possible_effect_is_repeated_with_on_unknown_hold(
    facts: SimulationFacts,
) -> Iterator[str]:
    """Check that a job with `on_unknown: hold` sends no unknown create again. Exceptions: a ledger that was lost or
    restored, a retry that releases held entries, and a create that was refused but took effect, if a lagging replica
    may hide its subscriber."""
    if facts.simulation.scenario.policy.on_unknown != "hold":
        return
    for person_number in facts.person_numbers:
        calls = facts.find_calls(person_number)
        for first_call, second_call in pairwise(calls):
            is_excused = (
                facts.is_ledger_changed_between(first_call, second_call)
                or facts.are_held_entries_released_between(first_call, second_call)
                or facts.may_replica_hide_subscriber(first_call)
            )
            if facts.may_have_had_effect(first_call) and not is_excused:
                yield (
                    f"the create of person {person_number} must be held after request {first_call.number}, and request "
                    f"{second_call.number} sent the create again"
                )


def check_that_no_create_is_sent_for_a_suppressed_person(facts: SimulationFacts) -> Iterator[str]:
    """Check that a run sends no create for the persons on its suppression list, not even to finish an
    entry of an earlier run."""
    for run_result in facts.simulation.run_results:
        for person_number in sorted(run_result.job_run.suppressed_person_numbers):
            for call in facts.find_calls(person_number, run_result.number):
                yield (
                    f"person {person_number} is on the suppression list of run {run_result.number}, and request "
                    f"{call.number} sent the person"
                )


def check_that_every_confirmed_person_is_stored_with_the_confirmed_id(facts: SimulationFacts) -> Iterator[str]:
    """Check the confirmed ids after every run, even after a run that was killed.

    Exceptions: answers with a provisional Id, a service that has stored nothing, and ids that a person has accepted.
    """
    for run_result in facts.simulation.run_results if not facts.has_provisional_ids else ():
        for person_number, entry in run_result.entries_after.items():
            subscriber_ids = {
                subscriber.subscriber_id
                for subscriber in facts.find_stored_subscribers(person_number)
                if subscriber.stored_at <= run_result.ended_at
            }
            if (
                entry.state is State.CONFIRMED
                and entry.subscriber_id not in subscriber_ids
                and not facts.has_discarded_create(person_number)
                and not facts.has_accepted_answer(person_number)
            ):
                yield (
                    f"after run {run_result.number} person {person_number} is confirmed as {entry.subscriber_id}, "
                    f"which is not one of {subscriber_ids}"
                )


def check_that_every_create_is_sent_after_its_intent_is_durable(facts: SimulationFacts) -> Iterator[str]:
    """Check that a commit with the intent precedes each create (architecture 4.1)."""
    for person_number in facts.person_numbers:
        for call in facts.find_calls(person_number):
            if not call.has_intent:
                yield f"request {call.number} created person {person_number}, and no commit had stored the intent"


def check_that_the_runs_create_at_most_one_subscriber_in_a_wrong_base(facts: SimulationFacts) -> Iterator[str]:
    """Check that the runs of a scenario together create at most one subscriber in the wrong base (architecture 4.9)."""
    created_subscribers = [
        subscriber
        for subscriber in facts.simulation.record.stored_subscribers
        if subscriber.call is not None and subscriber.person_number
    ]
    wrong_subscribers = [
        subscriber
        for subscriber in created_subscribers
        if subscriber.base_id != facts.simulation.find_base_id(subscriber.person_number)
    ]
    if "base_alias" in facts.simulation.scenario.settings and len(wrong_subscribers) > 1:
        yield f"{len(wrong_subscribers)} subscribers were stored in another base"


def check_that_every_create_with_a_possible_effect_has_an_entry(facts: SimulationFacts) -> Iterator[str]:
    """Check the ledger after every run, even if the process was killed."""
    for run_result in facts.simulation.run_results:
        for person_number in facts.person_numbers:
            calls_with_possible_effect = [
                call for call in facts.find_calls(person_number, run_result.number) if facts.may_have_had_effect(call)
            ]
            if calls_with_possible_effect and person_number not in run_result.entries_after:
                yield (
                    f"after run {run_result.number} the ledger has no entry of person {person_number}, which request "
                    f"{calls_with_possible_effect[-1].number} sent"
                )


def check_that_every_state_change_of_an_entry_is_allowed(facts: SimulationFacts) -> Iterator[str]:
    """Check the changes of state against the table in `connector/states.py`."""
    for run_result in facts.simulation.run_results:
        for person_number, state_change in run_result.state_changes:
            if (state_change.earlier_state, state_change.later_state) not in _ALLOWED_STATE_CHANGES:
                yield (
                    f"run {run_result.number}: the entry of person {person_number} went from "
                    f"{state_change.earlier_state.name} to {state_change.later_state.name}"
                )


def check_that_the_last_run_finishes(facts: SimulationFacts) -> Iterator[str]:
    """Check that the last run, in which no fault is injected, finishes. Exceptions:

    - The list cannot be read whole, so no absence can be proved.
    - Refusals are unclear: three such answers at the start of a run, or a minute of such answers, end the run.
    - Creates are answered with another base or identity (architecture 4.9).
    - The list never shows created subscribers, and the ledger may have the base twice.
    - Each look-up takes longer than `load.fresh`.
    - Replicas contradict each other, or lack a shard of the list.
    - The list leaves out subscribers with old ids.
    """
    last_run = facts.simulation.run_results[-1]
    report_text = last_run.report.describe() if last_run.report is not None else ""
    reports_slow_look_up = "load.fresh" in report_text
    reports_incomplete_list = "leaves others out" in report_text or "could not be read whole" in report_text
    replica_switches = facts.simulation.scenario.settings.keys() & {"replica_lags_ms", "lost_shard"}
    is_incomplete_list_excused = reports_incomplete_list and (bool(replica_switches) or facts.hides_old_ids)
    cannot_settle = (
        facts.is_list_unreadable or facts.has_unclear_refusals or facts.simulation.scenario.has_wrong_answers
    )
    may_have_base_twice = facts.hides_created_subscribers and "the ledger may have this base twice" in report_text
    is_excused = reports_slow_look_up or is_incomplete_list_excused or cannot_settle or may_have_base_twice
    if not (last_run.is_finished or is_excused):
        yield (
            f"run {last_run.number} had no injected faults and did not finish: "
            f"{report_text or 'the process was killed'}"
        )


def check_that_each_entry_has_an_outcome(facts: SimulationFacts) -> Iterator[str]:
    """Check the entries after a finished last run. Each entry is confirmed or dropped, or is rejected or held with
    a reason.

    Reasons to be held:

    - The job has `on_unknown: hold`.
    - Five creates of the entry were lost.
    - A create of the entry was answered with another person.
    - No request shows created subscribers, so nothing proves a subscriber absent.

    `_is_rejected_without_reason` has the reasons to be rejected. Exceptions:

    - An entry may stay unknown if no look-up can prove absence, for example because the list cannot be read whole.
    - An entry may stay rejected if no request shows created subscribers, or if answers have provisional Ids.
    - An entry with a capital or non-ASCII letter in an address may stay rejected if the list cannot be read whole.
    - Fewer than 20 entries may stay rejected after temporary refusals.
    - Any number of entries may stay rejected if the service requires a field and also has temporary refusals. Both
      kinds of refusals have the same message.
    """
    last_run = facts.simulation.run_results[-1]
    persons_in_rows = {
        row.person_number for prepared_chunk in last_run.job_run.prepared_chunks for row in prepared_chunk.rows
    }
    holds_unknown_creates = facts.simulation.scenario.policy.on_unknown == "hold"
    wrongly_rejected_persons, has_confirmed_creates = (
        list[int](),
        not (facts.hides_created_subscribers or facts.has_provisional_ids),
    )
    has_lost_shard = "lost_shard" in facts.simulation.scenario.settings
    has_discarded_creates = any(map(facts.has_discarded_create, facts.person_numbers))
    cannot_prove_absence = (
        facts.is_list_unreadable or has_lost_shard or has_discarded_creates or not has_confirmed_creates
    )
    for person_number in sorted(persons_in_rows | last_run.entries_after.keys()) if last_run.is_finished else ():
        entry = last_run.entries_after.get(person_number)
        if entry is None:
            yield f"person {person_number} has no entry after a finished run"
        elif entry.state in (State.SENDING, State.UNKNOWN) and not cannot_prove_absence:
            yield f"person {person_number} is still {entry.state.name}"
        elif entry.state is State.HELD and not (
            holds_unknown_creates
            or entry.attempt_count >= _MAX_ATTEMPTS
            or facts.has_misdirected_answer(person_number)
            or facts.hides_created_subscribers
        ):
            yield f"person {person_number} is held without a reason"
        elif (
            entry.state is State.REJECTED
            and person_number in persons_in_rows
            and has_confirmed_creates
            and _is_rejected_without_reason(facts, person_number, entry)
        ):
            spellings = facts.simulation.scenario.people.person_by_number[person_number].spellings
            is_plain_spelling = all(spelling.isascii() and spelling == spelling.lower() for spelling in spellings)
            if is_plain_spelling or not facts.is_list_unreadable:
                wrongly_rejected_persons.append(person_number)
    if not facts.has_temporary_refusals or (
        len(wrongly_rejected_persons) >= SERIES_LENGTH and not facts.simulation.scenario.settings.get("required")
    ):
        yield from (
            f"person {person_number} counts as rejected without a reason" for person_number in wrongly_rejected_persons
        )


def _is_rejected_without_reason(facts: SimulationFacts, person_number: int, entry: EntryValues) -> bool:
    """Return whether a rejected entry has no reason. The reasons are: the row is wrong, the person is stored, or five
    creates were lost."""
    return (
        facts.is_acceptable(person_number)
        and not facts.find_stored_subscribers(person_number)
        and entry.attempt_count < _MAX_ATTEMPTS
    )


def check_that_a_dropped_create_is_sent_again_only_for_a_changed_row(facts: SimulationFacts) -> Iterator[str]:
    """Check that no retry sends a dropped create again, and that a load does so only if the row has changed."""
    for run_result in facts.simulation.run_results:
        for person_number, state_change in run_result.state_changes:
            if (
                state_change.earlier_state is not State.DROPPED
                or state_change.later_state in _STATES_REACHED_WITHOUT_A_CREATE
            ):
                continue
            entry = run_result.entries_before.get(person_number)
            fingerprints = {
                row.fingerprint
                for prepared_chunk in run_result.job_run.prepared_chunks
                for row in prepared_chunk.rows
                if row.person_number == person_number
            }
            is_row_unchanged = (
                entry is not None and entry.state is State.DROPPED and fingerprints == {entry.fingerprint}
            )
            if run_result.job_run.retry is not None or is_row_unchanged:
                yield f"run {run_result.number} sends the dropped create of person {person_number} again"


# A dropped entry can change to these states without a create.
_STATES_REACHED_WITHOUT_A_CREATE = (State.CONFIRMED, State.NONE)


def check_that_no_person_whom_the_connector_created_stays_rejected(facts: SimulationFacts) -> Iterator[str]:
    """Check that the look-up of refused rows has found each subscriber whose create took effect (architecture 4.8).

    Exceptions:

    - A list that lags, because the look-up may come too early.
    - A subscriber that the list did not show before the last run.
    - A subscriber that the service stored so late that the rule of architecture 4.5 cannot prevent a second create.
    - A person whose email has several spellings, if the report warns that look-ups may miss some spellings.
    - A person who is suppressed in the last run, because no row of a suppressed person is looked up.
    """
    last_run = facts.simulation.run_results[-1]
    if facts.simulation.scenario.lag_s:
        return
    for person_number, entry in last_run.entries_after.items() if last_run.is_finished else ():
        if person_number in last_run.job_run.suppressed_person_numbers:
            continue
        listed_subscribers = [
            subscriber
            for subscriber in facts.find_created_subscribers(person_number)
            if subscriber.shown_at <= last_run.started_at
        ]
        created_subscribers = [
            subscriber for subscriber in listed_subscribers if facts.must_prevent_second_create(subscriber)
        ]
        if (
            find_traits(entry.state).counts_as_rejected
            and created_subscribers
            and not facts.is_hidden_by_spelling(last_run, person_number)
        ):
            yield f"person {person_number} counts as rejected, and is stored as {created_subscribers[0].subscriber_id}"


def check_that_the_run_after_a_finished_run_without_faults_sends_nothing(facts: SimulationFacts) -> Iterator[str]:
    """Check that the last run sends no create if the previous run had no faults, finished, and left no unknown entry.

    Exceptions:

    - Rows that the service does not accept. The last run may have such rows with other values.
    - Rejected entries if refusals may be temporary. The row that the previous run tried may be suppressed or changed
      now.
    - Rejected entries if no request shows created subscribers. The service may have refused these creates as
      duplicates.
    - A last run with rows of new persons, or with a ledger that was lost or restored.
    """
    *_, previous_run, last_run = facts.simulation.run_results
    is_settled = all(entry.state is not State.UNKNOWN for entry in previous_run.entries_after.values())
    if (
        not (previous_run.is_finished and is_settled and previous_run.job_run.fault_period is None)
        or last_run.job_run.ledger_accident != "none"
    ):
        return
    if {
        row.person_number for prepared_chunk in last_run.job_run.prepared_chunks for row in prepared_chunk.rows
    } - previous_run.entries_after.keys():
        return
    rejected_persons = {
        person_number for person_number, entry in previous_run.entries_after.items() if entry.state is State.REJECTED
    }
    may_send_rejected_entries = facts.has_temporary_refusals or facts.hides_created_subscribers
    for person_number in set(facts.person_numbers) - (rejected_persons if may_send_rejected_entries else set()):
        for call in facts.find_calls(person_number, last_run.number) if facts.is_acceptable(person_number) else ():
            yield f"person {person_number} had an outcome, and request {call.number} sent the create again"


CLAIMS: tuple[Claim, ...] = (
    check_that_no_person_is_stored_twice_by_the_connector,
    check_that_no_create_is_sent_for_a_listed_person,
    check_that_no_create_relies_on_an_expired_look_up,
    check_that_no_create_is_repeated_before_two_quiet_periods_have_passed,
    check_that_no_create_with_a_possible_effect_is_repeated_with_on_unknown_hold,
    check_that_no_create_is_sent_for_a_suppressed_person,
    check_that_every_confirmed_person_is_stored_with_the_confirmed_id,
    check_that_every_create_is_sent_after_its_intent_is_durable,
    check_that_the_runs_create_at_most_one_subscriber_in_a_wrong_base,
    check_that_every_create_with_a_possible_effect_has_an_entry,
    check_that_every_state_change_of_an_entry_is_allowed,
    check_that_the_last_run_finishes,
    check_that_each_entry_has_an_outcome,
    check_that_a_dropped_create_is_sent_again_only_for_a_changed_row,
    check_that_no_person_whom_the_connector_created_stays_rejected,
    check_that_the_run_after_a_finished_run_without_faults_sends_nothing,
    *report_checks.CLAIMS,
)


def find_contradictions(facts: SimulationFacts) -> list[str]:
    """Return the contradictions of all claims, each with the name of its claim."""
    return [f"{claim.__name__}: {contradiction}" for claim in CLAIMS for contradiction in claim(facts)]
