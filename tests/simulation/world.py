"""Plays a scenario with the service, the ledger and a process for each night, and stores the results of the nights."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import orjson

from connector.ledger.commits import Commits
from connector.service.wire import Request
from connector.states import State
from tests.simulation.calls import Call, EventRecord
from tests.simulation.far_end import SimulatedService
from tests.simulation.memory_ledger import Ledgers, Move
from tests.simulation.network import Network, Weather
from tests.simulation.process import Life, Process
from tests.simulation.program import Program, Report
from tests.simulation.scenario import BASE_ID, Ending, Night, Scenario
from tests.simulation.slow_disk import SlowDisk
from tests.simulation.timeline import Timeline, Timer

_FINAL_WAIT_S = 100_000.0  # after the last night, so that the service executes all requests that it still has
_PRIORITY = (State.REJECTED, State.SENDING, State.HELD, State.UNKNOWN, State.CONFIRMED)  # the last state wins


@dataclass(frozen=True, slots=True)
class EntryValues:
    """The entry of one person in the ledger."""

    state: State
    subscriber_id: int | None
    fingerprint: bytes | None
    attempts: int


@dataclass(slots=True)
class PlayedNight:
    """The results of one night."""

    number: int
    night: Night
    began_at: float
    ended_at: float
    report: Report | None  # None: the process died
    life: Life
    entries_before: dict[int, EntryValues]  # the ledger at the start of the night, by person
    ledger: dict[int, EntryValues]  # the ledger at the end of the night, by person
    moves: list[tuple[int, Move]]  # the moves of entries, each with the person (0: not a person of the scenario)
    largest_lag_s: float  # the largest lag that the ledger knew at the start of the night

    @property
    def is_finished(self) -> bool:
        """Whether the run did all of its work."""
        return self.report is not None and self.report.reason is None and not self.report.is_stopped


class World:
    """The service, the ledger and the nights of a scenario. Call `play` once."""

    def __init__(self, scenario: Scenario, ledgers: Ledgers) -> None:
        self.scenario = scenario
        self.timeline = Timeline()
        self.record = EventRecord()
        self.played_nights: list[PlayedNight] = []
        self.base_id: int | None = BASE_ID
        settings = {**scenario.settings, "seed": scenario.seed}
        self.far_end = SimulatedService(self.timeline, settings, scenario.people, self.record)
        self._settings = self.far_end.state.settings
        self._ledgers = ledgers
        self._store = ledgers.create()
        self._copy_before_night = self._store.copy()
        self._moves: list[tuple[int, Move]] = []
        self._durable_states: dict[int, State] = {}
        rows = (rows for night in scenario.nights for portion in night.portions for rows in portion.rows)
        self._persons = {row.identity: row.person for row in rows}

    def play(self) -> None:
        """Play every night, and wait until the service has executed all requests. Raise the exception of a process."""
        bases = self.far_end.state.store.bases
        if self.scenario.has_base:
            bases.add(BASE_ID, self.scenario.base_name)
        for wire in self.scenario.strangers:
            self.far_end.create_by_other_program(wire)
        for number, night in enumerate(self.scenario.nights, 1):
            self._pass_time_before(night)
            self._change_ledger(night)
            self._play(number, night)
        self.timeline.pass_until(self.timeline.now_s + _FINAL_WAIT_S)
        self.base_id = next((base_id for base_id, name in bases.items() if name == self.scenario.base_name), None)

    def find_base(self, person: int) -> int | None:
        """Return the id of the base that the person's rows are for."""
        bases = self.scenario.nights[0].bases
        return bases[person % len(bases)] if bases else self.base_id

    def close(self) -> None:
        """Close the ledger."""
        self._store.close()

    def _pass_time_before(self, night: Night) -> None:
        begins_at = self.timeline.now_s + night.gap_s
        for newcomer in night.newcomers:
            self.timeline.call_at(
                begins_at + newcomer.comes_at_s, partial(self.far_end.create_by_other_program, newcomer.wire)
            )
        self.timeline.pass_until(begins_at)

    def _change_ledger(self, night: Night) -> None:
        copy_before, self._copy_before_night = self._copy_before_night, self._store.copy()
        if night.ledger != "kept":
            self._store.close()
            self._store = self._ledgers.create(copy_before if night.ledger == "restored" else None)
            self._copy_before_night = self._store.copy()
            self.record.add_line(self.timeline.now_s, f"the ledger is {night.ledger}")

    def _play(self, number: int, night: Night) -> None:
        began_at, ending, entries_before = self.timeline.now_s, night.ending, self._read_ledger()
        largest_lag_s = self._store.read_largest_lag()
        self.record.add_line(began_at, f"--- night {number} begins")
        self._durable_states = {person: entry.state for person, entry in entries_before.items()}
        life = Life(ending.at_step, ending.at_commit, ending.is_after)
        life.on_commit = self._record_commit
        process = Process(self.timeline, life)
        network = Network(
            self.timeline, self.far_end, life, partial(self._begin_call, number),
            self._create_random("way", number), self.scenario.timeout_s,
        )  # fmt: skip
        timers = self._start_storm(night, network)
        with self._ledgers.open(self._store, life, night.shard) as ledger:
            disk = SlowDisk(self.timeline, life, self.scenario.commit_s)
            commits = Commits(ledger, disk)
            random = self._create_random("program", number)
            program = Program(number, ledger, commits, network, self.timeline, self.scenario.policy, night, random)
            timers += self._time_ending(ending, life, program)
            report = process.run(program.run())
        for timer in timers:
            timer.cancel()
        self._end_storm(night, network)
        self._record_night(number, night, began_at, report, life, entries_before, largest_lag_s)

    def _start_storm(self, night: Night, network: Network) -> list[Timer]:
        """Start the storm now or at its time. Return the timers that start or end the storm."""
        network.weather = Weather(self.scenario.latency_s)
        storm = night.storm
        if storm is None:
            return []

        def begin() -> None:
            self._switch(storm.switches)
            network.weather = replace(storm.weather, latency_s=self.scenario.latency_s)

        if storm.after_s > 0:
            timers = [self.timeline.call_later(storm.after_s, begin)]
        else:
            begin()
            timers = []
        if storm.until_s != float("inf"):
            timers.append(self.timeline.call_later(storm.until_s, partial(self._end_storm, night, network)))
        return timers

    def _end_storm(self, night: Night, network: Network) -> None:
        if night.storm is not None:
            self._switch({name: getattr(self._settings, name) for name in night.storm.switches})
        network.weather = Weather(self.scenario.latency_s)

    def _switch(self, switches: Mapping[str, object]) -> None:
        if switches:
            self.far_end.state.change_switches(switches)
            description = ", ".join(f"{name}={value}" for name, value in switches.items())
            self.record.add_line(self.timeline.now_s, f"service: {description}")

    def _time_ending(self, ending: Ending, life: Life, program: Program) -> list[Timer]:
        def die() -> None:
            life.is_over = True

        events = (
            (ending.die_at_s, die),
            (ending.first_signal_at_s, program.stop),
            (ending.second_signal_at_s, program.stop_at_once),
        )
        return [self.timeline.call_later(at_s, callback) for at_s, callback in events if at_s is not None]

    def _begin_call(self, night: int, request: Request) -> Call:
        person = 0
        if request.operation == "create" and request.body is not None:
            person = self.scenario.people.find_person(orjson.loads(request.body)["Subscriber"])
        query = " ".join(f"{name}={value}" for name, value in request.query)
        calls = self.record.calls
        now, number = self.timeline.now_s, len(calls) + 1
        person_text = f" of person {person}" if person else ""
        self.record.add_line(now, f"request {number}: {request.operation}{person_text} {query}")
        call = Call(number, night, request.operation, person, query, now, self.record.add_line)
        call.has_intent = request.operation != "create" or self._durable_states.get(person) is State.SENDING
        calls.append(call)
        return call

    def _record_commit(self, number: int) -> None:
        """Record the moves of entries in this commit, with their persons."""
        now = self.timeline.now_s
        self.record.add_line(now, f"ledger: commit {number}")
        for move in self._store.pop_moves():
            person = self._persons.get(move.identity, 0)
            self._moves.append((person, move))
            self._durable_states[person] = move.later_state
            if person:
                self.record.add_line(
                    now, f"ledger: person {person} {move.earlier_state.name} -> {move.later_state.name}"
                )

    def _record_night(
        self,
        number: int,
        night: Night,
        began_at: float,
        report: Report | None,
        life: Life,
        entries_before: dict[int, EntryValues],
        largest_lag_s: float,
    ) -> None:
        now = self.timeline.now_s
        moves, self._moves = self._moves, []
        ledger = self._read_ledger()
        self.played_nights.append(
            PlayedNight(number, night, began_at, now, report, life, entries_before, ledger, moves, largest_lag_s)
        )
        description = "the process died" if report is None else report.describe()
        self.record.add_line(
            now, f"--- night {number} ends after {life.step_count} steps, {life.commit_count} commits: {description}"
        )

    def _read_ledger(self) -> dict[int, EntryValues]:
        """Return the entries of the people. If a person has two entries, return the entry whose state has priority."""
        entries: dict[int, EntryValues] = {}
        for identity, state, subscriber_id, fingerprint, attempts in self._store.read_entries():
            person = self._persons.get(identity)
            if person is None:
                continue
            entry = EntryValues(State(state), subscriber_id, fingerprint, attempts)
            other_entry = entries.get(person)
            if other_entry is None or _PRIORITY.index(entry.state) > _PRIORITY.index(other_entry.state):
                entries[person] = entry
        return entries

    def _create_random(self, purpose: str, night: int) -> Random:
        """Return a random generator for a purpose and a night, so that draws for one purpose do not change other
        draws."""
        return Random(f"{self.scenario.seed} {purpose} {night}")
