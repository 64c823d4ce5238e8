"""The claims about every night and about the end: they compare truth log, ledger and report.

Each claim is a function that gives what speaks against it; where it has an exception it says which, and why.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

from connector.pace.refusals import LEAST_ALIKE
from connector.states import ENTRY, State
from tests.simulation import report_checks
from tests.simulation.truth import Truth
from tests.simulation.world import Kept

_ATTEMPTS = 5  # creates of one identity that were lost and proved absent each time: after those a person has to look

_SENT_AFTER_S = 70.0  # while there is no connection, a create is tried again for a minute

_MOVES = {(left, entered) for (left, _), entered in ENTRY.transitions.items()}

Claim = Callable[[Truth], Iterator[str]]


def nobody_is_stored_twice_by_us(truth: Truth) -> Iterator[str]:
    """Excused: the rule of architecture 4.5 cannot cover the first create (`Truth.is_foreseen`), and a proxy that
    repeats one create."""
    for person in truth.persons:
        ours = {stored.by.number: stored for stored in truth.find_ours(person) if stored.by and not stored.is_update}
        for number in sorted(ours)[:-1]:
            if truth.is_foreseen(ours[number]):
                yield f"person {person} was stored by {len(ours)} creates, by {number} and later ones"


def nobody_is_sent_whom_the_list_showed_when_the_night_began(truth: Truth) -> Iterator[str]:
    """Whoever brought them there: architecture 4.7. Excused: a night that says that subscribers in other capitals may
    be created once more."""
    for played in truth.world.played:
        for person in truth.persons:
            is_there = any(stored.shown_at <= played.began_at for stored in truth.find_stored(person))
            is_there = is_there and not truth.is_hidden_by_spelling(played, person)
            for call in truth.find_calls(person, played.number) if is_there else ():
                yield f"person {person} was there when night {played.number} began, and was sent by {call.number}"


def nobody_is_sent_on_old_knowledge(truth: Truth) -> Iterator[str]:
    """Whoever the list had shown for longer than `load.fresh`, however long the looking took (architecture 4.7).
    Excused as in the claim above."""
    fresh_s = truth.world.scenario.policy.fresh_s
    for played in truth.world.played:
        for person in truth.persons:
            shown_at = min((stored.shown_at for stored in truth.find_stored(person)), default=float("inf"))
            if truth.is_hidden_by_spelling(played, person):
                continue
            for call in truth.find_calls(person, played.number):
                known_s = call.sent_at - shown_at
                if known_s > max(fresh_s, 1.0) + _SENT_AFTER_S:
                    yield f"person {person} had shown for {known_s:.0f} s when {call.number} left"


def nobody_is_sent_again_before_two_quiet_periods_have_passed(truth: Truth) -> Iterator[str]:
    """Save those who were refused for sure, and those whom the ledger has forgotten because it was changed."""
    quiet_s = truth.world.scenario.quiet_s
    for person in truth.persons:
        calls = truth.find_calls(person)
        for first, second in pairwise(calls):
            waited_s = second.sent_at - truth.when_known_to_end(first)
            if truth.is_in_doubt(first) and waited_s < 2 * quiet_s and not truth.is_forgotten(first, second):
                yield f"person {person} was sent by {first.number}, and {waited_s:.2f} s later again by {second.number}"


def under_hold_nobody_in_doubt_is_sent_again(truth: Truth) -> Iterator[str]:
    """Save those whom the ledger has forgotten because it was changed, and those whom a person has let go."""
    if truth.world.scenario.policy.on_unknown != "hold":
        return
    for person in truth.persons:
        calls = truth.find_calls(person)
        for first, second in pairwise(calls):
            is_free = truth.is_forgotten(first, second) or truth.is_released(first, second)
            if truth.is_in_doubt(first) and not is_free:
                yield f"person {person} is to be held after {first.number}, and was sent again by {second.number}"


def nobody_on_the_suppression_list_is_sent(truth: Truth) -> Iterator[str]:
    """By the night that has the list, whatever earlier ones left unfinished."""
    for played in truth.world.played:
        for person in sorted(played.night.suppressed):
            for call in truth.find_calls(person, played.number):
                yield f"person {person} is on the list of night {played.number}, and was sent by {call.number}"


def whoever_is_confirmed_is_there_by_that_id(truth: Truth) -> Iterator[str]:
    """After every night, one that died included. Excused: the answer to a create has a provisional Id, or the service
    has stored nothing."""
    for played in truth.world.played if not truth.has_provisional_ids else ():
        for person, kept in played.ledger.items():
            ids = {stored.subscriber_id for stored in truth.find_stored(person) if stored.at <= played.ended_at}
            if kept.state is State.CONFIRMED and kept.subscriber_id not in ids and not truth.is_discarded(person):
                yield f"after night {played.number} person {person} is confirmed as {kept.subscriber_id}, not of {ids}"


def every_create_leaves_after_its_intent_is_durable(truth: Truth) -> Iterator[str]:
    """Design 4.1."""
    for person in truth.persons:
        for call in truth.find_calls(person):
            if not call.is_intended:
                yield f"person {person} was sent by {call.number}, and no commit had said so"


def a_base_that_is_answered_as_another_makes_one_wrong_subscriber_in_all(truth: Truth) -> Iterator[str]:
    """However many nights there are (architecture 4.9)."""
    ours = [subscriber for subscriber in truth.world.record.stored if subscriber.by is not None and subscriber.person]
    wrong = [own for own in ours if own.base_id != truth.world.find_base(own.person)]
    if "base_alias" in truth.world.scenario.settings and len(wrong) > 1:
        yield f"{len(wrong)} were stored in another base"


def whatever_was_sent_is_in_the_ledger(truth: Truth) -> Iterator[str]:
    """After every night: a create that may have had an effect has an entry, whatever became of the process."""
    for played in truth.world.played:
        for person in truth.persons:
            doubtful = [call for call in truth.find_calls(person, played.number) if truth.is_in_doubt(call)]
            if doubtful and person not in played.ledger:
                yield f"after night {played.number} nothing is known of person {person}, sent by {doubtful[-1].number}"


def every_move_of_an_entry_is_in_the_table(truth: Truth) -> Iterator[str]:
    """Of `connector/states.py`, which names no move from a state to itself; a line of a base that turns out to be
    another one's takes its entries along, and its own give way."""
    for played in truth.world.played:
        for person, move in played.moves:
            if (move.earlier, move.later) not in _MOVES:
                yield f"night {played.number}: person {person} went from {move.earlier.name} to {move.later.name}"


def the_last_night_comes_to_its_end(truth: Truth) -> Iterator[str]:
    """It is calm. Save where the list cannot be read whole and no filter need work, so that nobody can be known to
    be absent; where the service's refusals are no definite ones, since its first three end a run, or where it
    answers with another base or identity than was sent (architecture 4.9); where any look takes longer than it may
    be relied on; where the answers of replicas that lag contradict each other, or some of them lack a shard of the
    list; and where the list leaves out subscribers with old ids, whom only their Id shows."""
    last = truth.world.played[-1]
    words = last.report.describe() if last.report is not None else ""
    is_slow = "load.fresh" in words
    is_unread = "leaves others out" in words or "could not be read whole" in words
    torn = truth.world.scenario.settings.keys() & {"replica_lags_ms", "lost_shard"}
    is_torn = is_unread and (bool(torn) or truth.hides_old_ids)
    is_unable = truth.is_list_unreadable or truth.has_unclear_refusals or truth.world.scenario.is_astray
    is_blind = truth.shows_nobody_created and ("has not shown yet" in words or "does not show that" in words)
    is_excused = is_slow or is_torn or is_unable or is_blind
    if not (last.is_whole or is_excused):
        yield f"night {last.number} was calm: {words or 'it died'}"


def nobody_is_lost(truth: Truth) -> Iterator[str]:
    """After the last night everybody whom it told of is there, refused by the service, or held: as the job wants it, or
    since the service answered with somebody else. Unknown may stay who cannot be looked for: where the list cannot be
    read whole, and no filter is known to work, where no request shows who was created, or where the list shows nobody
    by the answered Id, so that nobody proves how late the list is. There, whoever was refused stays rejected, too.
    Where only the list is unreadable, that holds for an address outside of ASCII, whose spelling no control covers.
    Rejected may stay fewer than 20 whom the service has refused for a while, and those who share the words with rows
    that it does not take."""
    last = truth.world.played[-1]
    told = {row.person for portion in last.night.portions for row in portion.told}
    is_hold = truth.world.scenario.policy.on_unknown == "hold"
    wronged, has_sentinels = list[int](), not (truth.shows_nobody_created or truth.has_provisional_ids)
    is_blind = truth.is_list_unreadable or not has_sentinels
    for person in sorted(told | last.ledger.keys()) if last.is_whole else ():
        kept = last.ledger.get(person)
        if kept is None:
            yield f"person {person} has no entry after a whole night"
        elif kept.state in (State.SENDING, State.UNKNOWN) and not is_blind:
            yield f"person {person} is still {kept.state.name}"
        elif kept.state is State.HELD and not (is_hold or kept.attempts >= _ATTEMPTS or truth.is_misdirected(person)):
            yield f"person {person} is held, and the job does not hold"
        elif kept.state is State.REJECTED and person in told and has_sentinels and _is_wronged(truth, person, kept):
            is_ascii = all(spelling.isascii() for spelling in truth.world.scenario.people.persons[person].spellings)
            if is_ascii or not truth.is_list_unreadable:
                wronged.append(person)
    if not truth.has_passing_refusals or (
        len(wronged) >= LEAST_ALIKE and not truth.world.scenario.settings.get("required")
    ):
        yield from (f"person {person} counts as rejected, and nothing is wrong with them" for person in wronged)


def _is_wronged(truth: Truth, person: int, kept: Kept) -> bool:
    """Whether nothing is wrong with a row, nobody is there because of whom the service might refuse it, it was not
    tried as often as any is, and no person has given it up (`connector retry --held drop`)."""
    moves = [move for played in truth.world.played for number, move in played.moves if number == person]
    if any((move.earlier, move.later) == (State.HELD, State.REJECTED) for move in moves):
        return False
    return truth.is_acceptable(person) and not truth.find_stored(person) and kept.attempts < _ATTEMPTS


def nobody_whom_we_created_is_left_rejected(truth: Truth) -> Iterator[str]:
    """After the last night, if it was whole: the look-up of refused rows has found the subscribers that the service
    created and refused. Excused: a list that lags (the look-up may come too early), a subscriber that came by another
    way after the refusal, and one that the service stored so late that the create was sent again (4.8)."""
    last = truth.world.played[-1]
    if truth.world.scenario.lag_s:
        return
    for person, kept in last.ledger.items() if last.is_whole else ():
        shown = [own for own in truth.find_ours(person) if own.shown_at <= last.began_at]
        ours = [subscriber for subscriber in shown if truth.is_foreseen(subscriber)]
        if kept.state is State.REJECTED and ours and not truth.is_hidden_by_spelling(last, person):
            yield f"person {person} counts as rejected, and is there as {ours[0].subscriber_id}"


def a_night_after_a_whole_calm_one_sends_nobody(truth: Truth) -> Iterator[str]:
    """Save those whom the service will not take: their rows may be another try. Save, too, those whom it has refused
    for a while, if the one of them that the calm night chose was suppressed or has another row by then, and those whom
    it refuses because they are there, though no request shows them."""
    *_, before, last = truth.world.played
    is_settled = all(kept.state is not State.UNKNOWN for kept in before.ledger.values())
    if not (before.is_whole and is_settled and before.night.storm is None) or last.night.ledger != "kept":
        return
    if {row.person for portion in last.night.portions for row in portion.told} - before.ledger.keys():
        return
    rejected = {person for person, kept in before.ledger.items() if kept.state is State.REJECTED}
    is_again = truth.has_passing_refusals or truth.shows_nobody_created
    for person in set(truth.persons) - (rejected if is_again else set()):
        for call in truth.find_calls(person, last.number) if truth.is_acceptable(person) else ():
            yield f"person {person} was settled, and was sent by {call.number}"


CLAIMS: tuple[Claim, ...] = (
    nobody_is_stored_twice_by_us,
    nobody_is_sent_whom_the_list_showed_when_the_night_began,
    nobody_is_sent_on_old_knowledge,
    nobody_is_sent_again_before_two_quiet_periods_have_passed,
    under_hold_nobody_in_doubt_is_sent_again,
    nobody_on_the_suppression_list_is_sent,
    whoever_is_confirmed_is_there_by_that_id,
    every_create_leaves_after_its_intent_is_durable,
    a_base_that_is_answered_as_another_makes_one_wrong_subscriber_in_all,
    whatever_was_sent_is_in_the_ledger,
    every_move_of_an_entry_is_in_the_table,
    the_last_night_comes_to_its_end,
    nobody_is_lost,
    nobody_whom_we_created_is_left_rejected,
    a_night_after_a_whole_calm_one_sends_nobody,
    *report_checks.CLAIMS,
)


def find_faults(truth: Truth) -> list[str]:
    """All that speaks against any claim, each with the claim's name."""
    return [f"{claim.__name__}: {words}" for claim in CLAIMS for words in claim(truth)]
