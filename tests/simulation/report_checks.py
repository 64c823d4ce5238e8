"""The report of a run against the truth log and the ledger: its sums, and the rows in its files."""

from collections import Counter
from collections.abc import Callable, Iterator

from connector.outcomes import Outcome
from connector.states import State
from tests.simulation.program import Report
from tests.simulation.rows import Told
from tests.simulation.truth import Truth
from tests.simulation.world import Kept, Played

_IN_DOUBT = (State.UNKNOWN, State.HELD)


def the_outcomes_sum_to_the_rows_read(truth: Truth) -> Iterator[str]:
    """Each row read has one outcome."""
    for played, report in _list_reports(truth):
        total = sum(report.tally.outcomes.values())
        if total != report.tally.read:
            yield f"night {played.number} read {report.tally.read} rows, and {total} have an outcome"


def created_is_what_the_night_made(truth: Truth) -> Iterator[str]:
    """Whoever was sent in it, and is confirmed. Somebody whose create was lost and who came by another way meanwhile
    may count as created: from outside the two are alike. Whoever was there as another before the night, and was merged
    or moved by it, never counts; nor need they who came in the night."""
    for played, report in _list_reports(truth):
        certain, possible = 0, 0
        for told, kept in _list_confirmed(truth, played, report):
            calls = truth.find_calls(told.person, played.number)
            stored = [subscriber for call in calls for subscriber in call.stored if subscriber.at <= played.ended_at]
            taken = [
                subscriber.previous for subscriber in stored if subscriber.is_taken and subscriber.previous is not None
            ]
            if any(accepted.shown_at <= played.began_at for accepted in taken):
                continue
            is_made = any(not subscriber.is_taken for subscriber in stored)
            is_as_told = kept.fingerprint == told.fingerprint
            certain += is_made and is_as_told
            possible += bool(calls) and not is_made
        counted = report.tally.outcomes[Outcome.CREATED]
        if not certain <= counted <= certain + possible:
            yield f"night {played.number} reports {counted} created, and made {certain} (to {certain + possible})"


def changed_are_those_whose_row_differs_from_what_was_sent(truth: Truth) -> Iterator[str]:
    """By the ledger's fingerprint; and in a whole night all who are confirmed and were not made in it exist. A retry
    takes up, too, those whose refusal it has come to doubt; it compares none, and the fingerprint of who was held or
    rejected goes once they are found. Excused: rows of subscribers who were there before, in a night that says that it
    could not compare some rows."""
    for played, report in _list_reports(truth):
        doubted = sum((move.earlier, move.later) == (State.REJECTED, State.UNKNOWN) for _, move in played.moves)
        more = doubted if played.night.retry is not None else 0
        confirmed = _list_confirmed(truth, played, report)
        is_retry = played.night.retry is not None
        differ = sum(
            kept.fingerprint != told.fingerprint and not (is_retry and kept.fingerprint is None)
            for told, kept in confirmed
        )
        is_uncompared = any("were not compared" in message for message in report.tally.row_messages)
        excused = sum(kept.fingerprint is None for _, kept in confirmed) if is_uncompared else 0
        outcomes = report.tally.outcomes
        counted = outcomes[Outcome.CHANGED]
        there = sum(outcomes[outcome] for outcome in (Outcome.CREATED, Outcome.EXISTS, Outcome.CHANGED))
        if counted > differ or (played.is_whole and counted < differ - excused):
            yield f"night {played.number} reports {counted} changed, and {differ} rows differ from what was sent"
        if there > len(confirmed) + more or (played.is_whole and there < len(confirmed)):
            yield f"night {played.number} reports {there} who are there, and {len(confirmed)} are confirmed"


def every_changed_row_is_told_with_its_fields(truth: Truth) -> Iterator[str]:
    """Once, and with no field that rows never change: they keep their ids, and with an id for an identity they may be
    spelt in another way. What the service and the source have of a field is not the same."""
    may_change = {"first_name", "last_name"}
    if truth.world.scenario.people.identity == "client_user_id":
        may_change.add("email")
    if any(night.newcomers for night in truth.world.scenario.nights):
        may_change.add("client_user_id")  # whoever came by another way came without one
    for played, report in _list_reports(truth):
        if len(report.changes) != report.tally.outcomes[Outcome.CHANGED]:
            yield f"night {played.number} tells of {len(report.changes)} of its changed rows"
        if len({(change.row.file, change.row.number) for change in report.changes}) != len(report.changes):
            yield f"night {played.number} tells of a changed row twice"
        wrong = {name for changed in report.changes for name, _, _ in changed.fields} - may_change
        alike = [name for changed in report.changes for name, was, now in changed.fields if was == now]
        bare = [changed for changed in report.changes if not (changed.fields or changed.reason or changed.is_known)]
        if wrong or alike or bare:
            yield f"night {played.number} names fields that have not changed: {wrong}, {alike}, {bare}"


def unknown_are_those_whom_the_ledger_holds_in_doubt(truth: Truth) -> Iterator[str]:
    """In a night that was cut short, somebody in doubt whose row was not reached may be unsent; nobody sent in it."""
    for played, report in _list_reports(truth):
        reported = _list_problems(truth, report, Outcome.UNKNOWN)
        for told in _list_told(played, report):
            kept = played.ledger.get(told.person)
            is_in_doubt = kept is not None and kept.state in _IN_DOUBT
            is_sent = any(truth.is_in_doubt(call) for call in truth.find_calls(told.person, played.number))
            if told.person in reported and not is_in_doubt:
                yield f"night {played.number} reports person {told.person} as unknown: {kept}"
            elif told.person not in reported and is_in_doubt and (played.is_whole or is_sent):
                yield f"night {played.number} does not report person {told.person} as unknown: {kept}"


def rejected_are_those_whom_the_ledger_holds_as_rejected(truth: Truth) -> Iterator[str]:
    """In a night that was cut short, somebody rejected earlier whose row was not reached may be unsent; in a retry,
    somebody rejected may be suppressed."""
    for played, report in _list_reports(truth):
        reported = _list_problems(truth, report, Outcome.REJECTED)
        for told in _list_told(played, report):
            kept = played.ledger.get(told.person)
            is_rejected = kept is not None and kept.state is State.REJECTED
            if told.person in reported and not is_rejected:
                yield f"night {played.number} reports person {told.person} as rejected: {kept}"
            elif played.is_whole and is_rejected and told.person not in reported | played.night.suppressed:
                yield f"night {played.number} does not report person {told.person} as rejected: {kept}"


def nobody_reported_rejected_is_shown_by_the_list(truth: Truth) -> Iterator[str]:
    """In a whole night, and where the list does not lag: there the next night finds out. Excused: a held entry that a
    person has dropped in that night."""
    if truth.world.scenario.lag_s:
        return
    for played, report in _list_reports(truth):
        moves = played.moves
        dropped = {person for person, move in moves if (move.earlier, move.later) == (State.HELD, State.REJECTED)}
        rejected = _list_problems(truth, report, Outcome.REJECTED) - dropped
        seen = {row for row in rejected if not truth.is_hidden_by_spelling(played, row)}
        for person in sorted(seen) if played.is_whole else ():
            ours = [own for own in truth.find_ours(person) if own.at <= played.ended_at and truth.is_foreseen(own)]
            if ours:
                yield f"night {played.number} reports person {person} as rejected: stored as {ours[0].subscriber_id}"


def unsent_were_not_sent(truth: Truth) -> Iterator[str]:
    """Nobody of whom a create left counts as unsent, unless each was refused for its rate alone. In a whole night those
    are unsent whom a person has dropped."""
    for played, report in _list_reports(truth):
        told = _list_told(played, report)
        still = sum(not any(map(truth.is_in_doubt, truth.find_calls(row.person, played.number))) for row in told)
        counted = report.tally.outcomes[Outcome.UNSENT]
        if counted > still:
            yield f"night {played.number} reports {counted} unsent, and {len(told) - still} of {len(told)} were sent"
        dropped = sum((move.earlier, move.later) == (State.HELD, State.NONE) for _, move in played.moves)
        if played.is_whole and counted != dropped:
            yield f"night {played.number} came to its end, left {counted} unsent and dropped {dropped}"


def what_was_stored_is_what_the_row_said(truth: Truth) -> Iterator[str]:
    """Of everybody whom the night reports as created; a retry has no rows."""
    for played, report in _list_reports(truth):
        for told, kept in _list_confirmed(truth, played, report):
            is_as_told = told.first_name and kept.fingerprint == told.fingerprint
            for call in truth.find_calls(told.person, played.number) if is_as_told else ():
                for stored in call.stored:
                    if stored.subscriber_id == kept.subscriber_id and stored.first_name != told.first_name:
                        yield f"person {told.person} was stored as {stored.first_name} and is {told.first_name}"


def settled_are_those_who_left_the_unknown(truth: Truth) -> Iterator[str]:
    """Found: all whose entry went from UNKNOWN to CONFIRMED. Absent: all others who left it, each time.

    Found may be, too, who was refused or held and turned out to be there, and either who had two entries, of which one
    went when two lines of the ledger turned out to be one base. Not absent need be whom the run did not come to send:
    what it knew of them may have been too old by then, each time. Neither need those be who were rejected when the
    night began, and whom it leaves so.
    """
    for played, report in _list_reports(truth):
        moves = Counter((move.earlier, move.later) for _, move in played.moves)
        found, merged = moves[State.UNKNOWN, State.CONFIRMED], moves[State.UNKNOWN, State.NONE]
        again = moves[State.UNKNOWN, State.SENDING]
        absent = again + moves[State.UNKNOWN, State.HELD] + moves[State.UNKNOWN, State.REJECTED]
        unsent = again - _count_sent_again(truth, played) + _count_left_rejected(played)
        settled = report.tally.settled_found, report.tally.settled_absent
        others = merged + moves[State.REJECTED, State.CONFIRMED] + moves[State.HELD, State.CONFIRMED]
        if not found <= settled[0] <= found + others:
            yield f"night {played.number} reports {settled[0]} found, and {found} entries say so"
        if not absent - unsent <= settled[1] <= absent + merged:
            yield f"night {played.number} reports {settled[1]} absent, and {absent} entries say so"


def _count_left_rejected(played: Played) -> int:
    """How many entries went from REJECTED to UNKNOWN and back."""
    doubted, returned = (
        {person for person, move in played.moves if (move.earlier, move.later) == ends}
        for ends in ((State.REJECTED, State.UNKNOWN), (State.UNKNOWN, State.REJECTED))
    )
    return len(doubted & returned)


def _count_sent_again(truth: Truth, played: Played) -> int:
    """How many at least of those who were to be sent once more left in that night, each time."""
    begun = [(person, move.earlier is State.UNKNOWN) for person, move in played.moves if move.later is State.SENDING]
    again, anew = (Counter(person for person, is_again in begun if is_again is wanted) for wanted in (True, False))
    calls = [other for other in truth.world.record.calls if (other.night, other.operation) == (played.number, "create")]
    sent = Counter(call.person for call in calls if call.has_left and call.seen != "429")
    return sum(((sent - anew) & again).values())


def the_requests_are_counted(truth: Truth) -> Iterator[str]:
    """Creates: how many were attempted, and how many of them were refused for their rate."""
    for played, report in _list_reports(truth):
        calls = [
            other for other in truth.world.record.calls if (other.night, other.operation) == (played.number, "create")
        ]
        limited = sum(call.seen == "429" for call in calls)
        if (report.attempts, report.limited) != (len(calls), limited):
            yield f"night {played.number} counts {report.attempts} ({report.limited}), made {len(calls)} ({limited})"


CLAIMS: tuple[Callable[[Truth], Iterator[str]], ...] = (
    the_outcomes_sum_to_the_rows_read,
    created_is_what_the_night_made,
    changed_are_those_whose_row_differs_from_what_was_sent,
    every_changed_row_is_told_with_its_fields,
    unknown_are_those_whom_the_ledger_holds_in_doubt,
    rejected_are_those_whom_the_ledger_holds_as_rejected,
    nobody_reported_rejected_is_shown_by_the_list,
    unsent_were_not_sent,
    what_was_stored_is_what_the_row_said,
    settled_are_those_who_left_the_unknown,
    the_requests_are_counted,
)


def _list_reports(truth: Truth) -> list[tuple[Played, Report]]:
    """The nights whose process lived to tell of them."""
    return [(played, played.report) for played in truth.world.played if played.report is not None]


def _list_told(played: Played, report: Report) -> list[Told]:
    """The rows that the night took up, each of another person; of a retry the entries, with the refusals that are not
    final."""
    retry = played.night.retry
    if retry is None:
        return [told for portion in played.night.portions[: report.portions] for told in portion.told]
    taken = {*_IN_DOUBT, State.SENDING, *((State.REJECTED,) if retry.is_rejected else ())}
    moved = {person for person, move in played.moves if (move.earlier, move.later) == (State.REJECTED, State.UNKNOWN)}
    entries = [(person, kept) for person, kept in played.before.items() if kept.state in taken or person in moved]
    return [Told(person, b"", kept.fingerprint or b"", "") for person, kept in entries]


def _list_confirmed(truth: Truth, played: Played, report: Report) -> list[tuple[Told, Kept]]:
    kept = ((told, played.ledger.get(told.person)) for told in _list_told(played, report))
    return [(told, entry) for told, entry in kept if entry is not None and entry.state is State.CONFIRMED]


def _list_problems(truth: Truth, report: Report, outcome: Outcome) -> set[int]:
    """Whom the rows tell of that a person is shown with this outcome."""
    rows = [problem.row for problem in report.problems if problem.outcome is outcome]
    cells = [dict(zip(row.columns, row.cells, strict=True)) for row in rows]
    recognise = truth.world.scenario.people.recognise
    return {recognise({"Email": cell["email"], "ClientUserId": cell["client_user_id"]}) for cell in cells}
