"""The claims about every night and about the end of a scenario. They compare the truth log, the ledger and the report.

Each claim is a function that yields a text for each contradiction. Its docstring lists the exceptions with their
reasons.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

from connector.pace.refusals import LEAST_ALIKE
from connector.states import ENTRY, State
from tests.simulation import report_checks
from tests.simulation.truth import Truth
from tests.simulation.world import EntryValues

_MAX_ATTEMPTS = 5  # lost creates of one identity, each proved absent, before the entry is held for a person

_RETRY_S = 70.0  # without a connection, a create is retried for a minute

_MOVES = {(earlier, later) for (earlier, _), later in ENTRY.transitions.items()}

Claim = Callable[[Truth], Iterator[str]]


def no_person_is_stored_twice_by_our_creates(truth: Truth) -> Iterator[str]:
    """Check that at most one of our creates of a person was stored.

    Exceptions: a first create that no rule can cover (`Truth.is_covered`), and a proxy that repeats a create.
    """
    for person in truth.persons:
        stored_by_number = {
            subscriber.call.number: subscriber
            for subscriber in truth.find_ours(person)
            if subscriber.call and not subscriber.is_update
        }
        for number in sorted(stored_by_number)[:-1]:
            if truth.is_covered(stored_by_number[number]):
                yield f"person {person} was stored by {len(stored_by_number)} creates: by {number} and later creates"


def no_create_leaves_for_a_person_whom_the_list_showed_before(truth: Truth) -> Iterator[str]:
    """Check that no create leaves for a person whom the list showed when the night began (architecture 4.7).

    It does not matter which program created the subscriber. Exception: a night whose report warns that subscribers in
    other capitals may be created again.
    """
    for played_night in truth.world.played_nights:
        for person in truth.persons:
            is_listed = any(subscriber.shown_at <= played_night.began_at for subscriber in truth.find_stored(person))
            is_listed = is_listed and not truth.is_hidden_by_spelling(played_night, person)
            for call in truth.find_calls(person, played_night.number) if is_listed else ():
                yield (
                    f"person {person} was listed when night {played_night.number} began, and was sent by {call.number}"
                )


def no_create_leaves_on_old_knowledge(truth: Truth) -> Iterator[str]:
    """Check that no create leaves for a person whom the list has shown for longer than `load.fresh` (architecture 4.7).

    `no_create_leaves_for_a_person_whom_the_list_showed_before` has the exception.
    """
    fresh_s = truth.world.scenario.policy.fresh_s
    for played_night in truth.world.played_nights:
        for person in truth.persons:
            shown_at = min((subscriber.shown_at for subscriber in truth.find_stored(person)), default=float("inf"))
            if truth.is_hidden_by_spelling(played_night, person):
                continue
            for call in truth.find_calls(person, played_night.number):
                listed_s = call.sent_at - shown_at
                if listed_s > max(fresh_s, 1.0) + _RETRY_S:
                    yield f"person {person} had been listed for {listed_s:.0f} s when {call.number} left"


def no_create_is_repeated_before_two_quiet_periods_have_passed(truth: Truth) -> Iterator[str]:
    """Check the time between two creates of a person. Exceptions: a definite refusal, and a ledger that was changed."""
    quiet_s = truth.world.scenario.quiet_s
    for person in truth.persons:
        calls = truth.find_calls(person)
        for first_call, second_call in pairwise(calls):
            waited_s = second_call.sent_at - truth.find_quiet_start(first_call)
            if (
                truth.is_in_doubt(first_call)
                and waited_s < 2 * quiet_s
                and not truth.is_forgotten(first_call, second_call)
            ):
                yield (
                    f"person {person} was sent by {first_call.number}, and {waited_s:.2f} s later again "
                    f"by {second_call.number}"
                )


def no_create_in_doubt_is_repeated_under_hold(truth: Truth) -> Iterator[str]:
    """Check the job's choice `hold`. Exceptions: a ledger that was changed, and a retry that releases held entries."""
    if truth.world.scenario.policy.on_unknown != "hold":
        return
    for person in truth.persons:
        calls = truth.find_calls(person)
        for first_call, second_call in pairwise(calls):
            is_excused = truth.is_forgotten(first_call, second_call) or truth.is_released(first_call, second_call)
            if truth.is_in_doubt(first_call) and not is_excused:
                yield (
                    f"person {person} must be held after {first_call.number}, and was sent again by "
                    f"{second_call.number}"
                )


def no_create_leaves_for_a_suppressed_person(truth: Truth) -> Iterator[str]:
    """Check that a night sends nothing for the persons on its suppression list, also nothing unfinished."""
    for played_night in truth.world.played_nights:
        for person in sorted(played_night.night.suppressed_persons):
            for call in truth.find_calls(person, played_night.number):
                yield f"person {person} is on the list of night {played_night.number}, and was sent by {call.number}"


def every_confirmed_person_is_stored_with_the_confirmed_id(truth: Truth) -> Iterator[str]:
    """Check the confirmed ids after every night, also after a night that died.

    Exceptions: answers with a provisional Id, and a service that has stored nothing.
    """
    for played_night in truth.world.played_nights if not truth.has_provisional_ids else ():
        for person, entry in played_night.ledger.items():
            ids = {
                subscriber.subscriber_id
                for subscriber in truth.find_stored(person)
                if subscriber.stored_at <= played_night.ended_at
            }
            if entry.state is State.CONFIRMED and entry.subscriber_id not in ids and not truth.is_discarded(person):
                yield (
                    f"after night {played_night.number} person {person} is confirmed as {entry.subscriber_id}, "
                    f"which is not one of {ids}"
                )


def every_create_leaves_after_its_intent_is_durable(truth: Truth) -> Iterator[str]:
    """Check that a commit with the intent precedes each create (architecture 4.1)."""
    for person in truth.persons:
        for call in truth.find_calls(person):
            if not call.has_intent:
                yield f"person {person} was sent by {call.number}, and no commit had stored the intent"


def a_base_that_is_answered_as_another_gets_at_most_one_wrong_subscriber(truth: Truth) -> Iterator[str]:
    """Check that all nights together create at most one subscriber in the wrong base (architecture 4.9)."""
    our_subscribers = [
        subscriber
        for subscriber in truth.world.record.stored_subscribers
        if subscriber.call is not None and subscriber.person
    ]
    wrong_subscribers = [
        subscriber for subscriber in our_subscribers if subscriber.base_id != truth.world.find_base(subscriber.person)
    ]
    if "base_alias" in truth.world.scenario.settings and len(wrong_subscribers) > 1:
        yield f"{len(wrong_subscribers)} subscribers were stored in another base"


def every_create_in_doubt_has_an_entry(truth: Truth) -> Iterator[str]:
    """Check after every night that a create that may have had an effect has an entry, even if the process died."""
    for played_night in truth.world.played_nights:
        for person in truth.persons:
            doubtful_calls = [call for call in truth.find_calls(person, played_night.number) if truth.is_in_doubt(call)]
            if doubtful_calls and person not in played_night.ledger:
                yield (
                    f"after night {played_night.number} the ledger has no entry of person {person}, sent by "
                    f"{doubtful_calls[-1].number}"
                )


def every_move_of_an_entry_is_in_the_table(truth: Truth) -> Iterator[str]:
    """Check the moves against the table in `connector/states.py`, which has no move from a state to itself."""
    for played_night in truth.world.played_nights:
        for person, move in played_night.moves:
            if (move.earlier_state, move.later_state) not in _MOVES:
                yield (
                    f"night {played_night.number}: person {person} went from {move.earlier_state.name} to "
                    f"{move.later_state.name}"
                )


def the_last_night_finishes(truth: Truth) -> Iterator[str]:
    """Check that the last night, which has no storm, finishes. These services are excepted:

    - The list cannot be read whole, so no absence can be proved.
    - Refusals are unclear, and the first three answers of this kind end the run.
    - Creates are answered with another base or identity (architecture 4.9).
    - The list never shows created subscribers.
    - Each look-up takes longer than `load.fresh`.
    - Replicas contradict each other, or lack a shard of the list.
    - The list leaves out subscribers with old ids.
    """
    last_night = truth.world.played_nights[-1]
    report_text = last_night.report.describe() if last_night.report is not None else ""
    is_slow = "load.fresh" in report_text
    is_list_incomplete = "leaves others out" in report_text or "could not be read whole" in report_text
    replica_switches = truth.world.scenario.settings.keys() & {"replica_lags_ms", "lost_shard"}
    is_contradictory = is_list_incomplete and (bool(replica_switches) or truth.hides_old_ids)
    is_unable = truth.is_list_unreadable or truth.has_unclear_refusals or truth.world.scenario.is_misanswering
    hides_created_subscribers = truth.shows_nobody_created and "has not shown yet" in report_text
    is_excused = is_slow or is_contradictory or is_unable or hides_created_subscribers
    if not (last_night.is_finished or is_excused):
        yield f"night {last_night.number} was calm and did not finish: {report_text or 'the process died'}"


def no_person_is_lost(truth: Truth) -> Iterator[str]:
    """Check that each person of the last night's rows is confirmed, rejected with a reason, or held with a reason.

    A held entry needs the job's choice `hold`, five lost creates, or an answer about somebody else. Exceptions:

    - An entry may stay unknown if the list cannot be read whole or lacks a shard at random, if no request shows created
      subscribers, if answers have provisional Ids, or if the service answered creates with success and stored nothing.
      Then no subscriber proves how much the list lags.
    - If no request shows created subscribers, an entry may be held, because nothing proves the subscriber absent.
    - In the same services, a refused entry may stay rejected. If the list is only unreadable, this is excused for
      addresses with capitals or outside of ASCII, because there may be no control with such a spelling.
    - Fewer than 20 entries may stay rejected after refusals that passed, or any number if the service requires a field:
      then their refusals have the same words as refusals for the row.
    """
    last_night = truth.world.played_nights[-1]
    persons_in_rows = {row.person for portion in last_night.night.portions for row in portion.rows}
    is_hold = truth.world.scenario.policy.on_unknown == "hold"
    wrongly_rejected, has_sentinels = list[int](), not (truth.shows_nobody_created or truth.has_provisional_ids)
    lacks_shards = "lost_shard" in truth.world.scenario.settings
    has_discarded = any(map(truth.is_discarded, truth.persons))
    proves_no_absence = truth.is_list_unreadable or lacks_shards or has_discarded or not has_sentinels
    for person in sorted(persons_in_rows | last_night.ledger.keys()) if last_night.is_finished else ():
        entry = last_night.ledger.get(person)
        if entry is None:
            yield f"person {person} has no entry after a finished night"
        elif entry.state in (State.SENDING, State.UNKNOWN) and not proves_no_absence:
            yield f"person {person} is still {entry.state.name}"
        elif entry.state is State.HELD and not (
            is_hold or entry.attempts >= _MAX_ATTEMPTS or truth.is_misdirected(person) or truth.shows_nobody_created
        ):
            yield f"person {person} is held without a reason"
        elif (
            entry.state is State.REJECTED
            and person in persons_in_rows
            and has_sentinels
            and _is_rejected_without_reason(truth, person, entry)
        ):
            spellings = truth.world.scenario.people.persons[person].spellings
            is_plain = all(spelling.isascii() and spelling == spelling.lower() for spelling in spellings)
            if is_plain or not truth.is_list_unreadable:
                wrongly_rejected.append(person)
    if not truth.has_passing_refusals or (
        len(wrongly_rejected) >= LEAST_ALIKE and not truth.world.scenario.settings.get("required")
    ):
        yield from (f"person {person} counts as rejected without a reason" for person in wrongly_rejected)


def _is_rejected_without_reason(truth: Truth, person: int, entry: EntryValues) -> bool:
    """Return whether a rejected entry has no reason.

    Reasons are: the row is wrong, the person is stored, the creates reached their maximum, or a user has dropped the
    entry (`connector retry --held drop`).
    """
    moves = [
        move for played_night in truth.world.played_nights for number, move in played_night.moves if number == person
    ]
    if any((move.earlier_state, move.later_state) == (State.HELD, State.REJECTED) for move in moves):
        return False
    return truth.is_acceptable(person) and not truth.find_stored(person) and entry.attempts < _MAX_ATTEMPTS


def no_person_whom_we_created_stays_rejected(truth: Truth) -> Iterator[str]:
    """Check that the look-up of refused rows has found each subscriber whose create took effect (architecture 4.8).

    Exceptions:

    - A list that lags, because the look-up may come too early.
    - A subscriber that another program created after the refusal.
    - A subscriber that the service stored so late that the create was sent again.
    - A person who is suppressed in the last night, because no row of a suppressed person is looked up.
    """
    last_night = truth.world.played_nights[-1]
    if truth.world.scenario.lag_s:
        return
    for person, entry in last_night.ledger.items() if last_night.is_finished else ():
        if person in last_night.night.suppressed_persons:
            continue
        listed_subscribers = [
            subscriber for subscriber in truth.find_ours(person) if subscriber.shown_at <= last_night.began_at
        ]
        our_subscribers = [subscriber for subscriber in listed_subscribers if truth.is_covered(subscriber)]
        if entry.state is State.REJECTED and our_subscribers and not truth.is_hidden_by_spelling(last_night, person):
            yield f"person {person} counts as rejected, and is stored as {our_subscribers[0].subscriber_id}"


def the_night_after_a_finished_calm_night_sends_nothing(truth: Truth) -> Iterator[str]:
    """Check that no create leaves in the last night if the night before was calm and finished, and left no unknowns.

    Exceptions:

    - Rows that the service does not accept, because their values may have changed.
    - Rejected entries if refusals may pass. The row that the calm night tried may be suppressed or changed now.
    - Rejected entries if no request shows created subscribers. The service may have refused them as duplicates.
    """
    *_, night_before, last_night = truth.world.played_nights
    is_settled = all(entry.state is not State.UNKNOWN for entry in night_before.ledger.values())
    if (
        not (night_before.is_finished and is_settled and night_before.night.storm is None)
        or last_night.night.ledger != "kept"
    ):
        return
    if {row.person for portion in last_night.night.portions for row in portion.rows} - night_before.ledger.keys():
        return
    rejected_persons = {person for person, entry in night_before.ledger.items() if entry.state is State.REJECTED}
    is_rejected_excused = truth.has_passing_refusals or truth.shows_nobody_created
    for person in set(truth.persons) - (rejected_persons if is_rejected_excused else set()):
        for call in truth.find_calls(person, last_night.number) if truth.is_acceptable(person) else ():
            yield f"person {person} had an outcome, and was sent again by {call.number}"


CLAIMS: tuple[Claim, ...] = (
    no_person_is_stored_twice_by_our_creates,
    no_create_leaves_for_a_person_whom_the_list_showed_before,
    no_create_leaves_on_old_knowledge,
    no_create_is_repeated_before_two_quiet_periods_have_passed,
    no_create_in_doubt_is_repeated_under_hold,
    no_create_leaves_for_a_suppressed_person,
    every_confirmed_person_is_stored_with_the_confirmed_id,
    every_create_leaves_after_its_intent_is_durable,
    a_base_that_is_answered_as_another_gets_at_most_one_wrong_subscriber,
    every_create_in_doubt_has_an_entry,
    every_move_of_an_entry_is_in_the_table,
    the_last_night_finishes,
    no_person_is_lost,
    no_person_whom_we_created_stays_rejected,
    the_night_after_a_finished_calm_night_sends_nothing,
    *report_checks.CLAIMS,
)


def find_faults(truth: Truth) -> list[str]:
    """Return the contradictions of all claims, each with the name of its claim."""
    return [f"{claim.__name__}: {fault}" for claim in CLAIMS for fault in claim(truth)]
