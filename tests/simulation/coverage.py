"""Counts how many seeds, and how many requests, have reached each phase and each setting.

The counts come from events, in the service's counts and in the truth log, and not from the plan of a scenario.
"""

from collections import Counter
from dataclasses import dataclass, field

from connector.states import State
from tests.simulation.calls import Call
from tests.simulation.chances import DUPLICATES, ERROR_SHAPES, FILTERS, ORDERS
from tests.simulation.network import MIXED_UP_ENDING
from tests.simulation.truth import Truth

Key = tuple[str, str]

_PHASES = {  # the label of each fault that the sandbox counts
    "drop_before": "connection lost before storing",
    "drop_after": "connection lost after storing",
    "cut_answer": "cut in the middle of an answer",
    "error_before": "5xx before storing",
    "error_after": "5xx after storing",
    "hang_after": "hang",
    "garbage_after": "unreadable answer",
    "created_422": "422-but-created",
    "refuse": "429",
    "created_429": "429-but-created",
    "blocked": "all creates refused for a while",
    "stray_refusal": "a single refusal",
    "executed_status": "401, 403, 404, 405 or a stated refusal, but created",
    "wrong_answer": "answer about another person",
    "repeat": "executed twice",
    "discard": "answered, but not stored",
    "list_error": "5xx of a list",
}
_REQUEST_ENDINGS = {
    "408": "408",
    "409": "409",
    "307": "redirect",
    "time-out": "time-out",
    "not sent": "no connection",
    "died": "under way when the process died",
    MIXED_UP_ENDING: "answers mixed up",
    "cancelled": "under way at a second signal",
}
_STANCES = (
    "base_alias",
    "alter_identity",
    "base_names",
    "replica_lags_ms",
    "result_window",
    "merge_by",
    "provisional_ids",
    "hide",
    "lost_shard",
)
_LATE_EVENTS = ("late visibility", "late execution inside the quiet period", "late execution outside the quiet period")
_NIGHT_ENDINGS = ("died", "stopped by a signal", "ended early", "came to its end")
_LEDGER_CHANGES = ("lost", "restored")
_MOVE_LABELS = (
    "held",
    "answered with another base or identity",
    "withdrawn because of the suppression list",
    "unknown after a refusal",
)

KEYS: tuple[Key, ...] = (
    *(("phase", name) for name in (*_PHASES.values(), *_REQUEST_ENDINGS.values(), *_LATE_EVENTS)),
    *(("duplicates", name) for name in DUPLICATES),
    *(("filters", name) for name in FILTERS),
    *(("order", name) for name in ORDERS),
    *(("stance", name) for name in _STANCES),
    *(("error shape", name) for name in ERROR_SHAPES),
    *(("night", name) for name in _NIGHT_ENDINGS),
    *(("ledger", name) for name in _LEDGER_CHANGES),
    *(("entries", name) for name in _MOVE_LABELS),
)


@dataclass(slots=True)
class Coverage:
    """The counts of all seeds: `seeds` has the number of seeds that reached a key, `hits` the number of events."""

    seeds: Counter[Key] = field(default_factory=Counter)
    hit_counts: Counter[Key] = field(default_factory=Counter)

    def add(self, truth: Truth) -> None:
        """Add the counts of one seed."""
        counts = _count(truth)
        self.hit_counts.update(counts)
        self.seeds.update(key for key, count in counts.items() if count)

    def list_missing_keys(self) -> list[Key]:
        """Return the keys that no seed has reached."""
        return [key for key in KEYS if not self.seeds[key]]

    def list_rows(self) -> list[tuple[str, str, int, int]]:
        """Return a row for each key: group, name, number of seeds, number of hits."""
        return [(*key, self.seeds[key], self.hit_counts[key]) for key in KEYS]


def _count(truth: Truth) -> Counter[Key]:
    world, calls = truth.world, truth.world.record.calls
    settings, faults = world.scenario.settings, world.far_end.state.stats.faults
    counts = _count_nights(truth)
    counts.update({("phase", name): faults[fault] for fault, name in _PHASES.items()})
    counts.update(
        {("phase", name): sum(call.ending == ending for call in calls) for ending, name in _REQUEST_ENDINGS.items()}
    )
    counts.update({("phase", name): count for name, count in zip(_LATE_EVENTS, _count_late_events(truth), strict=True)})
    counts["duplicates", str(settings["duplicates"])] += sum(_finds_person_stored(truth, call) for call in calls)
    counts["filters", str(settings["filters"])] += sum(
        "Email=" in call.query or "UserId=" in call.query for call in calls
    )
    counts["order", str(settings["order"])] += sum((call.operation, call.ending) == ("list", "200") for call in calls)
    counts.update({("stance", name): sum(call.has_left for call in calls) for name in _STANCES if name in settings})
    counts["error shape", str(settings["error_shape"])] += sum(call.ending[:1] in ("4", "5") for call in calls)
    return counts


def _count_nights(truth: Truth) -> Counter[Key]:
    counts = Counter[Key]()
    for played_night in truth.world.played_nights:
        if played_night.report is None:
            counts["night", "died"] += 1
        elif played_night.report.is_stopped:
            counts["night", "stopped by a signal"] += 1
        else:
            counts["night", "came to its end" if played_night.is_finished else "ended early"] += 1
        counts["ledger", played_night.night.ledger] += 1
        moves = Counter((move.earlier_state, move.later_state) for person, move in played_night.moves if person)
        counts["entries", "held"] += moves[State.UNKNOWN, State.HELD]
        counts["entries", "answered with another base or identity"] += moves[State.SENDING, State.HELD]
        counts["entries", "withdrawn because of the suppression list"] += moves[State.UNKNOWN, State.NONE]
        counts["entries", "unknown after a refusal"] += moves[State.REJECTED, State.UNKNOWN]
    return counts


def _count_late_events(truth: Truth) -> tuple[int, int, int]:
    """Return three counts of the subscribers that our requests stored.

    The three counts: subscribers that a list request did not show because they were too new, subscribers that the
    service stored late but inside the quiet period, and subscribers that the service stored after the quiet period.
    """
    hidden_count = inside_count = outside_count = 0
    read_at = [call.arrived_at for call in truth.world.record.calls if call.operation == "list" and call.arrived_at]
    for subscriber in truth.world.record.stored_subscribers:
        if subscriber.call is None or not subscriber.person:
            continue
        hidden_count += subscriber.shown_at > subscriber.stored_at and any(
            subscriber.stored_at < at < subscriber.shown_at for at in read_at
        )
        late_s = subscriber.stored_at - truth.find_quiet_start(subscriber.call)
        inside_count += 0 < late_s <= truth.world.scenario.quiet_s
        outside_count += late_s > truth.world.scenario.quiet_s
    return hidden_count, inside_count, outside_count


def _finds_person_stored(truth: Truth, call: Call) -> bool:
    """Return whether a create reached the service when the service already had the person."""
    if call.operation != "create" or call.arrived_at is None:
        return False
    return any(
        subscriber.stored_at < call.arrived_at and subscriber.call is not call
        for subscriber in truth.find_stored(call.person)
    )
