"""Counts the seeds and the events for each fault, each setting and each ending of a run.

The counts come from the counts of the service and from the truth log, and not from the input of a scenario.
"""

from collections import Counter
from dataclasses import dataclass, field

from connector.states import ENTRY_STATE_MACHINE, Event, State
from tests.simulation.facts import SimulationFacts
from tests.simulation.network import MIXED_UP_ENDING
from tests.simulation.random_scenarios import DUPLICATE_BEHAVIOURS, ERROR_SHAPES, FILTER_BEHAVIOURS, ORDERS
from tests.simulation.requests import Call

SituationKey = tuple[str, str]

_LABEL_BY_FAULT = {  # the label of each fault that the sandbox counts
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
    "executed_status": "answered 401, 403, 404, 405 or a stated refusal, but created",
    "wrong_answer": "answer about another person",
    "repeat": "executed twice",
    "discard": "answered, but not stored",
    "list_error": "5xx of a list",
}
_LABEL_BY_REQUEST_ENDING = {
    "408": "408",
    "409": "409",
    "307": "redirect",
    "time-out": "time-out",
    "not sent": "no connection",
    "killed": "request open when the process was killed",
    MIXED_UP_ENDING: "answers mixed up",
    "cancelled": "request open when a second signal came",
}
_RARE_SETTINGS = (
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
_LATE_EVENTS = ("late visibility", "late execution inside the quiet period", "late execution after the quiet period")
_RUN_ENDINGS = ("killed", "stopped by a signal", "ended early", "finished")
_LEDGER_CHANGES = ("lost", "restored")
_STATE_CHANGES = sorted(
    {
        (earlier_state, later_state)
        for (earlier_state, event), later_state in ENTRY_STATE_MACHINE.transitions.items()
        if event is not Event.FORGOTTEN  # no scenario has the command `forget`
    }
    # For this change, one run must send the dropped create and another create that is refused. The row of the dropped
    # create must then change within two quiet periods. None of 1,250 seeds has such a row.
    - {(State.DROPPED, State.UNKNOWN)}
)


def _label_state_change(earlier_state: State, later_state: State) -> str:
    return f"{earlier_state.name} to {later_state.name}"


SITUATION_KEYS: tuple[SituationKey, ...] = (
    *(("fault", name) for name in (*_LABEL_BY_FAULT.values(), *_LABEL_BY_REQUEST_ENDING.values(), *_LATE_EVENTS)),
    *(("duplicates", name) for name in DUPLICATE_BEHAVIOURS),
    *(("filters", name) for name in FILTER_BEHAVIOURS),
    *(("order", name) for name in ORDERS),
    *(("setting", name) for name in _RARE_SETTINGS),
    *(("error shape", name) for name in ERROR_SHAPES),
    *(("end of run", name) for name in _RUN_ENDINGS),
    *(("ledger", name) for name in _LEDGER_CHANGES),
    *(("entries", _label_state_change(*states)) for states in _STATE_CHANGES),
)


@dataclass(slots=True)
class Coverage:
    """The counts of all seeds: `event_counts` has the number of events of each key, and `seed_counts` the number of
    seeds with such an event."""

    seed_counts: Counter[SituationKey] = field(default_factory=Counter)
    event_counts: Counter[SituationKey] = field(default_factory=Counter)

    def add(self, facts: SimulationFacts) -> None:
        """Add the counts of one seed."""
        event_counts = _count_events(facts)
        self.event_counts.update(event_counts)
        self.seed_counts.update(key for key, count in event_counts.items() if count)

    def list_missing_keys(self) -> list[SituationKey]:
        """Return the keys without an event in any seed."""
        return [key for key in SITUATION_KEYS if not self.seed_counts[key]]

    def list_rows(self) -> list[tuple[str, str, int, int]]:
        """Return a row for each key: group, name, number of seeds, number of events."""
        return [(*key, self.seed_counts[key], self.event_counts[key]) for key in SITUATION_KEYS]


def _count_events(facts: SimulationFacts) -> Counter[SituationKey]:
    simulation, calls = facts.simulation, facts.simulation.record.calls
    settings, faults = simulation.scenario.settings, simulation.service.state.stats.faults
    event_counts = _count_events_of_runs(facts)
    event_counts.update({("fault", name): faults[fault] for fault, name in _LABEL_BY_FAULT.items()})
    event_counts.update(
        {
            ("fault", name): sum(call.ending == ending for call in calls)
            for ending, name in _LABEL_BY_REQUEST_ENDING.items()
        }
    )
    event_counts.update(
        {("fault", name): count for name, count in zip(_LATE_EVENTS, _count_late_events(facts), strict=True)}
    )
    event_counts["duplicates", str(settings["duplicates"])] += sum(_is_second_create(facts, call) for call in calls)
    event_counts["filters", str(settings["filters"])] += sum(
        "Email=" in call.query or "UserId=" in call.query for call in calls
    )
    event_counts["order", str(settings["order"])] += sum(
        (call.operation, call.ending) == ("list", "200") for call in calls
    )
    event_counts.update(
        {("setting", name): sum(call.was_sent for call in calls) for name in _RARE_SETTINGS if name in settings}
    )
    event_counts["error shape", str(settings["error_shape"])] += sum(call.ending[:1] in ("4", "5") for call in calls)
    return event_counts


def _count_events_of_runs(facts: SimulationFacts) -> Counter[SituationKey]:
    event_counts = Counter[SituationKey]()
    for run_result in facts.simulation.run_results:
        if run_result.report is None:
            event_counts["end of run", "killed"] += 1
        elif run_result.report.is_stopped:
            event_counts["end of run", "stopped by a signal"] += 1
        else:
            event_counts["end of run", "finished" if run_result.is_finished else "ended early"] += 1
        event_counts["ledger", run_result.job_run.ledger_accident] += 1
        event_counts.update(
            ("entries", _label_state_change(state_change.earlier_state, state_change.later_state))
            for person_number, state_change in run_result.state_changes
            if person_number
        )
    return event_counts


def _count_late_events(facts: SimulationFacts) -> tuple[int, int, int]:
    """Return three counts of the subscribers that the connector created.

    1. Subscribers that a list request did not show, because they were too new.
    2. Subscribers that the service stored late: after the attempt had ended, but inside the quiet period.
    3. Subscribers that the service stored after the quiet period.
    """
    late_shown_subscriber_count = subscriber_in_quiet_period_count = subscriber_after_quiet_period_count = 0
    times_of_list_requests = [
        call.arrived_at for call in facts.simulation.record.calls if call.operation == "list" and call.arrived_at
    ]
    for subscriber in facts.simulation.record.stored_subscribers:
        if subscriber.call is None or not subscriber.person_number:
            continue
        late_shown_subscriber_count += subscriber.shown_at > subscriber.stored_at and any(
            subscriber.stored_at < requested_at < subscriber.shown_at for requested_at in times_of_list_requests
        )
        lateness_s = subscriber.stored_at - facts.find_quiet_period_start(subscriber.call)
        subscriber_in_quiet_period_count += 0 < lateness_s <= facts.simulation.scenario.quiet_period_s
        subscriber_after_quiet_period_count += lateness_s > facts.simulation.scenario.quiet_period_s
    return late_shown_subscriber_count, subscriber_in_quiet_period_count, subscriber_after_quiet_period_count


def _is_second_create(facts: SimulationFacts, call: Call) -> bool:
    """Return whether a create reached the service when the service already had the person."""
    if call.operation != "create" or call.arrived_at is None:
        return False
    return any(
        subscriber.stored_at < call.arrived_at and subscriber.call is not call
        for subscriber in facts.find_stored_subscribers(call.person_number)
    )
