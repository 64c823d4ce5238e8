"""The phases and settings that the seeds met: the number of seeds, and the number of requests.

Counted by what happened, in the service's own counts and the truth log, and never by what a scenario intended.
"""

from collections import Counter
from dataclasses import dataclass, field

from connector.states import State
from tests.simulation.calls import Call
from tests.simulation.chances import DUPLICATES, ERROR_SHAPES, FILTERS, ORDERS
from tests.simulation.network import MIXED_UP
from tests.simulation.truth import Truth

Key = tuple[str, str]

_PHASES = {  # the sandbox's faults, which it counts itself, in the words of the issue
    "drop_before": "lost before storing",
    "drop_after": "lost after storing",
    "cut_answer": "cut in the middle of an answer",
    "error_before": "5xx before",
    "error_after": "5xx after",
    "hang_after": "hang",
    "garbage_after": "unreadable answer",
    "created_422": "422-but-created",
    "refuse": "429",
    "created_429": "429-but-created",
    "blocked": "all creates refused for a while",
    "stray_refusal": "a stray refusal",
    "executed_status": "401, 403, 404, 405 or a stated refusal, but created",
    "wrong_answer": "answer about somebody else",
    "repeat": "executed twice",
    "discard": "answered, but not stored",
    "list_error": "5xx of a list",
}
_SEEN = {
    "408": "408",
    "409": "409",
    "307": "redirect",
    "time-out": "time-out",
    "not sent": "no connection",
    "died": "under way at a death",
    MIXED_UP: "answers mixed up",
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
_TRUTH = ("late visibility", "late execution inside the quiet period", "late execution outside the quiet period")
_ENDINGS = ("died", "stopped by a signal", "ended early", "came to its end")
_LEDGERS = ("lost", "restored")
_MOVES = (
    "held",
    "answered with another base or identity",
    "given up by the suppression list",
    "doubted after a refusal",
)

KEYS: tuple[Key, ...] = (
    *(("phase", name) for name in (*_PHASES.values(), *_SEEN.values(), *_TRUTH)),
    *(("duplicates", name) for name in DUPLICATES),
    *(("filters", name) for name in FILTERS),
    *(("order", name) for name in ORDERS),
    *(("stance", name) for name in _STANCES),
    *(("error shape", name) for name in ERROR_SHAPES),
    *(("night", name) for name in _ENDINGS),
    *(("ledger", name) for name in _LEDGERS),
    *(("entries", name) for name in _MOVES),
)


@dataclass(slots=True)
class Coverage:
    """Sums over seeds: how many met a key, and how often all of them together."""

    seeds: Counter[Key] = field(default_factory=Counter)
    hits: Counter[Key] = field(default_factory=Counter)

    def add(self, truth: Truth) -> None:
        """One more seed."""
        met = _count(truth)
        self.hits.update(met)
        self.seeds.update(key for key, number in met.items() if number)

    def list_missed(self) -> list[Key]:
        """Whatever no seed has met."""
        return [key for key in KEYS if not self.seeds[key]]

    def list_rows(self) -> list[tuple[str, str, int, int]]:
        """The table: group, name, seeds, hits."""
        return [(*key, self.seeds[key], self.hits[key]) for key in KEYS]


def _count(truth: Truth) -> Counter[Key]:
    world, calls = truth.world, truth.world.record.calls
    settings, faults = world.scenario.settings, world.far_end.state.stats.faults
    met = _count_nights(truth)
    met.update({("phase", name): faults[fault] for fault, name in _PHASES.items()})
    met.update({("phase", name): sum(call.seen == seen for call in calls) for seen, name in _SEEN.items()})
    met.update({("phase", name): number for name, number in zip(_TRUTH, _count_late(truth), strict=True)})
    met["duplicates", str(settings["duplicates"])] += sum(_has_met_somebody(truth, call) for call in calls)
    met["filters", str(settings["filters"])] += sum("Email=" in call.about or "UserId=" in call.about for call in calls)
    met["order", str(settings["order"])] += sum((call.operation, call.seen) == ("list", "200") for call in calls)
    met.update({("stance", name): sum(call.has_left for call in calls) for name in _STANCES if name in settings})
    met["error shape", str(settings["error_shape"])] += sum(call.seen[:1] in ("4", "5") for call in calls)
    return met


def _count_nights(truth: Truth) -> Counter[Key]:
    met = Counter[Key]()
    for played in truth.world.played:
        if played.report is None:
            met["night", "died"] += 1
        elif played.report.is_stopped:
            met["night", "stopped by a signal"] += 1
        else:
            met["night", "came to its end" if played.is_whole else "ended early"] += 1
        met["ledger", played.night.ledger] += 1
        moves = Counter((move.earlier, move.later) for person, move in played.moves if person)
        met["entries", "held"] += moves[State.UNKNOWN, State.HELD]
        met["entries", "answered with another base or identity"] += moves[State.SENDING, State.HELD]
        met["entries", "given up by the suppression list"] += moves[State.UNKNOWN, State.NONE]
        met["entries", "doubted after a refusal"] += moves[State.REJECTED, State.UNKNOWN]
    return met


def _count_late(truth: Truth) -> tuple[int, int, int]:
    """Of all that our requests stored: whom a list request did not show yet, and who was stored late."""
    hidden = inside = outside = 0
    read_at = [call.arrived_at for call in truth.world.record.calls if call.operation == "list" and call.arrived_at]
    for stored in truth.world.record.stored:
        if stored.by is None or not stored.person:
            continue
        hidden += stored.shown_at > stored.at and any(stored.at < at < stored.shown_at for at in read_at)
        late_s = stored.at - truth.when_known_to_end(stored.by)
        inside += 0 < late_s <= truth.world.scenario.quiet_s
        outside += late_s > truth.world.scenario.quiet_s
    return hidden, inside, outside


def _has_met_somebody(truth: Truth, call: Call) -> bool:
    """Whether a create reached the service when it had the same person already."""
    if call.operation != "create" or call.arrived_at is None:
        return False
    return any(stored.at < call.arrived_at and stored.by is not call for stored in truth.find_stored(call.person))
