"""The facts about each person, from the truth log of the service and the times of every request."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from connector.load.lookups import UNCHECKED_SPELLINGS_MESSAGE
from connector.states import State
from tests.simulation.network import MIXED_UP_ENDING
from tests.simulation.requests import Call, StoredSubscriber
from tests.simulation.simulation import RunResult, Simulation

_STATUS_SWITCHES = ("blocked_status", "limit_status", "quota_status")


@dataclass(slots=True)
class SimulationFacts:
    """The facts about each person of a finished simulation. Only subscribers in the base of the person's rows count."""

    simulation: Simulation
    _subscribers_by_person: dict[int, list[StoredSubscriber]] = field(default_factory=dict)
    _creates_by_person: dict[int, list[Call]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for subscriber in self.simulation.record.stored_subscribers:
            if subscriber.person_number and subscriber.base_id == self.simulation.find_base_id(
                subscriber.person_number
            ):
                self._subscribers_by_person.setdefault(subscriber.person_number, []).append(subscriber)
        for call in self.simulation.record.calls:
            if call.operation == "create":
                self._creates_by_person.setdefault(call.person_number, []).append(call)

    @property
    def person_numbers(self) -> list[int]:
        """The numbers of all people of the scenario, with or without rows."""
        return list(self.simulation.scenario.people.person_by_number)

    def find_stored_subscribers(self, person_number: int) -> list[StoredSubscriber]:
        """Return each subscriber that the service stored for a person, whoever created the subscriber."""
        return self._subscribers_by_person.get(person_number, [])

    def find_created_subscribers(self, person_number: int) -> list[StoredSubscriber]:
        """Return each subscriber that creates of the connector stored for a person."""
        return [subscriber for subscriber in self.find_stored_subscribers(person_number) if subscriber.call is not None]

    def find_calls(self, person_number: int, run_number: int | None = None) -> list[Call]:
        """Return the creates that were sent for a person, in their order, in all runs or in one run."""
        calls = self._creates_by_person.get(person_number, [])
        return [call for call in calls if call.was_sent and run_number in (None, call.run_number)]

    def may_have_had_effect(self, call: Call) -> bool:
        """Return whether the create may have had an effect (architecture 2), so that it must not be sent again at once.

        Each create counts, except a create that was refused and stored nothing.
        """
        return not call.is_refusal or bool(call.stored_subscribers)

    def may_replica_hide_subscriber(self, call: Call) -> bool:
        """Return whether a lagging replica may hide the subscriber of a create that was refused, for example with a
        429. A single look-up resolves such a create (architecture 4.8), and the replica may answer this look-up."""
        has_lagging_replicas = "replica_lags_ms" in self.simulation.scenario.settings
        return has_lagging_replicas and call.is_refusal and bool(call.stored_subscribers)

    def is_ledger_changed_between(self, first_call: Call, second_call: Call) -> bool:
        """Return whether the ledger was lost or restored between two creates."""
        runs_between_creates = [
            run_result.job_run
            for run_result in self.simulation.run_results
            if first_call.run_number < run_result.number <= second_call.run_number
        ]
        return any(job_run.ledger_accident != "none" for job_run in runs_between_creates)

    def are_held_entries_released_between(self, first_call: Call, second_call: Call) -> bool:
        """Return whether a retry has released or dropped held entries between two creates."""
        retries_between_creates = [
            run_result.job_run.retry
            for run_result in self.simulation.run_results
            if first_call.run_number <= run_result.number <= second_call.run_number
        ]
        return any(retry is not None and retry.held_decision is not None for retry in retries_between_creates)

    def has_misdirected_answer(self, person_number: int) -> bool:
        """Return whether an answer to one of the person's creates showed, or may have shown, another person."""
        calls = self.find_calls(person_number)
        spellings = self.simulation.scenario.people.person_by_number[person_number].spellings
        if "alter_identity" in self.simulation.scenario.settings and any("+" in spelling for spelling in spellings):
            return True
        subscribers = [subscriber for call in calls for subscriber in call.stored_subscribers]
        is_answer_wrong = any(
            subscriber.has_id_of_other_subscriber or subscriber.answer_kind == "wrong_answer"
            for subscriber in subscribers
        )
        return is_answer_wrong or any(call.ending == MIXED_UP_ENDING for call in calls)

    def has_discarded_create(self, person_number: int) -> bool:
        """Return whether the service answered one of the person's creates with success and stored nothing."""
        return any(
            call.ending in ("200", "201") and not call.stored_subscribers for call in self.find_calls(person_number)
        )

    def has_accepted_answer(self, person_number: int) -> bool:
        """Return whether a retry with `--held accept` has confirmed the held entry of the person."""
        run_results = self.simulation.run_results
        return any(
            (later_run.job_run.retry is not None and later_run.job_run.retry.held_decision == "accept")
            and _has_state(earlier_run, person_number, State.HELD)
            and _has_state(later_run, person_number, State.CONFIRMED)
            for earlier_run, later_run in pairwise(run_results)
        )

    def is_acceptable(self, person_number: int) -> bool:
        """Return whether the service accepts the rows of the person in the last two runs, which have equal rows."""
        run_with_source_count = sum(run_result.job_run.retry is None for run_result in self.simulation.run_results)
        return (
            self.simulation.scenario.people.person_by_number[person_number].first_run_number_with_required_fields
            < run_with_source_count
        )

    @property
    def is_list_unreadable(self) -> bool:
        """Whether the list cannot prove absence, because the list is cut off, or is shuffled and has several pages."""
        settings = self.simulation.scenario.settings
        has_several_pages = (
            settings.get("max_limit") != 1000 or len(self.simulation.scenario.existing_subscribers) >= 900
        )
        return (settings.get("order") == "shuffled" and has_several_pages) or "result_window" in settings

    @property
    def hides_created_subscribers(self) -> bool:
        """Whether no request ever shows the subscribers that creates have stored."""
        return self._hides_group("unconfirmed")

    @property
    def hides_old_ids(self) -> bool:
        """Whether the list and its filters by identity leave out subscribers with old ids."""
        return self._hides_group("old_ids")

    @property
    def has_provisional_ids(self) -> bool:
        """Whether the Id in the answer to a create differs from the Id in the list."""
        return "provisional_ids" in self.simulation.scenario.settings

    def _hides_group(self, name: str) -> bool:
        hidden_group_names = self.simulation.scenario.settings.get("hide", ())
        return isinstance(hidden_group_names, list) and name in hidden_group_names

    @property
    def has_unclear_refusals(self) -> bool:
        """Whether the service refuses rows without an error message, and with status 200 or with the status of a
        temporary refusal. The service may refuse only the rows of subscribers that its list hides."""
        settings = self.simulation.scenario.settings
        if settings.get("error_shape") not in ("html", "empty"):
            return False
        if settings["duplicates"] == "reject_200" and self.hides_created_subscribers:
            return True
        if all(map(self.is_acceptable, self.person_numbers)):
            return False
        temporary_statuses = [switches.get(name) for switches in self._list_switches() for name in _STATUS_SWITCHES]
        return settings.get("error_status") in (200, *temporary_statuses)

    @property
    def has_temporary_refusals(self) -> bool:
        """Whether the service refuses all creates for a while in one of the runs."""
        return any(name in switches for switches in self._list_switches() for name in _STATUS_SWITCHES)

    def _list_switches(self) -> list[Mapping[str, object]]:
        """Return the sandbox switches that each run with faults sets."""
        return [
            job_run.fault_period.switches
            for job_run in self.simulation.scenario.job_runs
            if job_run.fault_period is not None
        ]

    def is_hidden_by_spelling(self, run_result: RunResult, person_number: int) -> bool:
        """Return whether look-ups of the run may have missed the person. The email of the person has several spellings,
        and the report warns that look-ups may miss subscribers with other capitals in the email."""
        has_warning = run_result.report is not None and UNCHECKED_SPELLINGS_MESSAGE in run_result.report.tally.messages
        spellings = self.simulation.scenario.people.person_by_number[person_number].spellings
        return has_warning and len({spelling.strip() for spelling in spellings}) > 1

    def find_quiet_period_start(self, call: Call) -> float:
        """Return the time at which the quiet period of an attempt begins (architecture 4.5): the end of the attempt. If
        the process was killed, the quiet period begins at the start of the next run."""
        if call.ending != "killed":
            return call.ended_at if call.ended_at is not None else float("inf")
        later_start_times = [
            run_result.started_at for run_result in self.simulation.run_results if run_result.number > call.run_number
        ]
        return later_start_times[0] if later_start_times else float("inf")

    def must_prevent_second_create(self, subscriber: StoredSubscriber) -> bool:
        """Return whether the rule of architecture 4.5 must prevent a second create of this subscriber.

        Waiting cannot help in three cases. All times are counted from the end of the attempt:

        - The service stores the subscriber after more than a quiet period.
        - The service stores the subscriber after the end of the attempt, and the list shows the subscriber after more
          than two quiet periods.
        - The list shows the subscriber after more than two quiet periods and more than twice the largest recorded lag,
          and no confirmed create shows that the list lags. The changed row of a rejected create needs no such confirmed
          create (architecture 4.8).
        """
        if subscriber.call is None:
            return False
        attempt_ended_at, quiet_period_s = (
            self.find_quiet_period_start(subscriber.call),
            self.simulation.scenario.quiet_period_s,
        )
        if subscriber.stored_at > attempt_ended_at:
            return (
                subscriber.stored_at <= attempt_ended_at + quiet_period_s
                and subscriber.shown_at <= attempt_ended_at + 2 * quiet_period_s
            )
        shown_after_s = subscriber.shown_at - attempt_ended_at
        second_create = self._find_second_create(subscriber.call, attempt_ended_at)
        if second_create is None:
            return shown_after_s <= 2 * quiet_period_s
        recorded_lag_s = self.simulation.run_results[second_create.run_number - 1].largest_lag_s
        return shown_after_s <= max(2 * quiet_period_s, 2 * recorded_lag_s) or (
            self._has_confirmed_create_before(second_create, attempt_ended_at)
            and not self._is_for_changed_row(second_create)
        )

    def _find_second_create(self, call: Call, attempt_ended_at: float) -> Call | None:
        """Return the first create of the call's person that was sent after the end of the attempt, or None."""
        return next(
            (create for create in self.find_calls(call.person_number) if create.sent_at > attempt_ended_at), None
        )

    def _is_for_changed_row(self, second_create: Call) -> bool:
        """Return whether the run sent the create for the changed row of a REJECTED entry."""
        return any(
            (person_number, state_change.earlier_state, state_change.later_state)
            == (second_create.person_number, State.REJECTED, State.SENDING)
            for person_number, state_change in self.simulation.run_results[second_create.run_number - 1].state_changes
        )

    def _has_confirmed_create_before(self, second_create: Call, attempt_ended_at: float) -> bool:
        """Return whether the run of `second_create` got the confirmation of another create between the end of the first
        attempt and `second_create`."""
        return any(
            call.operation == "create"
            and call.run_number == second_create.run_number
            and call.ending in ("200", "201")
            and call.ended_at is not None
            and attempt_ended_at < call.ended_at < second_create.sent_at
            for call in self.simulation.record.calls
        )


def _has_state(run_result: RunResult, person_number: int, state: State) -> bool:
    """Return whether the person's entry is in this state after the run."""
    entry = run_result.entries_after.get(person_number)
    return entry is not None and entry.state is state
