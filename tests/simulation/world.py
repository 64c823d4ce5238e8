"""Plays a scenario: the service, the ledger, and a process for each night. It keeps the results of the nights."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import orjson

from connector.ledger.commits import Commits
from connector.service.wire import Request
from connector.states import State
from tests.simulation.calls import Call, Record
from tests.simulation.far_end import FarEnd
from tests.simulation.memory_ledger import Ledgers, Move
from tests.simulation.network import Network, Weather
from tests.simulation.process import Life, Process
from tests.simulation.program import Program, Report
from tests.simulation.scenario import BASE_ID, Ending, Night, Scenario
from tests.simulation.slow_disk import SlowDisk
from tests.simulation.timeline import Timeline, Timer

_LAST_DEEDS_S = 100_000.0  # after the last night: whatever the service may still execute has been executed by then
_MOST_TELLING = (State.REJECTED, State.SENDING, State.HELD, State.UNKNOWN, State.CONFIRMED)  # the last wins


@dataclass(frozen=True, slots=True)
class Kept:
    """What the ledger holds of one person: state, subscriber id, fingerprint and number of attempts."""

    state: State
    subscriber_id: int | None
    fingerprint: bytes | None
    attempts: int


@dataclass(slots=True)
class Played:
    """One night as it went: `report` None if the process died. `before` and `ledger` are by person, as the night found
    and left it; `moves` are those of its entries, with the person (0: nobody of ours)."""

    number: int
    night: Night
    began_at: float
    ended_at: float
    report: Report | None
    life: Life
    before: dict[int, Kept]
    ledger: dict[int, Kept]
    moves: list[tuple[int, Move]]
    largest_lag_s: float  # that the ledger knew of when it began

    @property
    def is_whole(self) -> bool:
        """Whether it came to the end of its work."""
        return self.report is not None and self.report.reason is None and not self.report.is_stopped


class World:
    """All that is there while a scenario is played; `play` it once."""

    def __init__(self, scenario: Scenario, ledgers: Ledgers) -> None:
        self.scenario = scenario
        self.timeline = Timeline()
        self.record = Record()
        self.played: list[Played] = []
        self.base_id: int | None = BASE_ID
        settings = {**scenario.settings, "seed": scenario.seed}
        self.far_end = FarEnd(self.timeline, settings, scenario.people, self.record)
        self._stance = self.far_end.state.settings
        self._ledgers = ledgers
        self._store = ledgers.create()
        self._copy = self._store.copy()
        self._moves: list[tuple[int, Move]] = []
        self._durable: dict[int, State] = {}
        told = (told for night in scenario.nights for portion in night.portions for told in portion.told)
        self._persons = {row.identity: row.person for row in told}

    def play(self) -> None:
        """Every night, and what the service still does after the last. Raises what a process fails with."""
        bases = self.far_end.state.store.bases
        if self.scenario.has_base:
            bases.add(BASE_ID, self.scenario.base_name)
        for wire in self.scenario.strangers:
            self.far_end.put(wire)
        for number, night in enumerate(self.scenario.nights, 1):
            self._pass_time_before(night)
            self._change_ledger(night)
            self._play(number, night)
        self.timeline.pass_until(self.timeline.now_s + _LAST_DEEDS_S)
        self.base_id = next((base_id for base_id, name in bases.items() if name == self.scenario.base_name), None)

    def find_base(self, person: int) -> int | None:
        """The id of the base that a person's rows are for."""
        bases = self.scenario.nights[0].bases
        return bases[person % len(bases)] if bases else self.base_id

    def close(self) -> None:
        """Let go of the ledger."""
        self._store.close()

    def _pass_time_before(self, night: Night) -> None:
        begins_at = self.timeline.now_s + night.gap_s
        for newcomer in night.newcomers:
            self.timeline.call_at(begins_at + newcomer.at_s, partial(self.far_end.put, newcomer.wire))
        self.timeline.pass_until(begins_at)

    def _change_ledger(self, night: Night) -> None:
        before, self._copy = self._copy, self._store.copy()
        if night.ledger != "kept":
            self._store.close()
            self._store = self._ledgers.create(before if night.ledger == "restored" else None)
            self._copy = self._store.copy()
            self.record.tell(self.timeline.now_s, f"the ledger is {night.ledger}")

    def _play(self, number: int, night: Night) -> None:
        began_at, ending, before = self.timeline.now_s, night.ending, self._read_ledger()
        largest_lag_s = self._store.read_largest_lag()
        self.record.tell(began_at, f"--- night {number} begins")
        self._durable = {person: kept.state for person, kept in before.items()}
        life = Life(ending.at_step, ending.at_commit, ending.is_after)
        life.on_commit = self._note_commit
        process = Process(self.timeline, life)
        network = Network(
            self.timeline, self.far_end, life, partial(self._begin_call, number),
            self._draw("way", number), self.scenario.timeout_s,
        )  # fmt: skip
        timers = self._let_storm(night, network)
        with self._ledgers.open(self._store, life, night.shard) as ledger:
            disk = SlowDisk(self.timeline, life, self.scenario.commit_s)
            commits = Commits(ledger, disk)
            chances = self._draw("program", number)
            program = Program(number, ledger, commits, network, self.timeline, self.scenario.policy, night, chances)
            timers += self._time_ending(ending, life, program)
            report = process.run(program.run())
        for timer in timers:
            timer.cancel()
        self._end_storm(night, network)
        self._note_played(number, night, began_at, report, life, before, largest_lag_s)

    def _let_storm(self, night: Night, network: Network) -> list[Timer]:
        """Set it off, now or in its time; what is returned may still begin or end it."""
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
            self._switch({name: getattr(self._stance, name) for name in night.storm.switches})
        network.weather = Weather(self.scenario.latency_s)

    def _switch(self, switches: Mapping[str, object]) -> None:
        if switches:
            self.far_end.state.change(switches)
            shown = ", ".join(f"{name}={value}" for name, value in switches.items())
            self.record.tell(self.timeline.now_s, f"service: {shown}")

    def _time_ending(self, ending: Ending, life: Life, program: Program) -> list[Timer]:
        def die() -> None:
            life.is_over = True

        planned = ((ending.die_at_s, die), (ending.stop_at_s, program.stop), (ending.cut_at_s, program.cut_off))
        return [self.timeline.call_later(at_s, act) for at_s, act in planned if at_s is not None]

    def _begin_call(self, night: int, request: Request) -> Call:
        person = 0
        if request.operation == "create" and request.body is not None:
            person = self.scenario.people.recognise(orjson.loads(request.body)["Subscriber"])
        about = " ".join(f"{name}={value}" for name, value in request.query)
        calls = self.record.calls
        now, number = self.timeline.now_s, len(calls) + 1
        whom = f" of person {person}" if person else ""
        self.record.tell(now, f"request {number}: {request.operation}{whom} {about}")
        call = Call(number, night, request.operation, person, about, now, self.record.tell)
        call.is_intended = request.operation != "create" or self._durable.get(person) is State.SENDING
        calls.append(call)
        return call

    def _note_commit(self, number: int) -> None:
        """What it has changed, as far as it concerns our people."""
        now = self.timeline.now_s
        self.record.tell(now, f"ledger: commit {number}")
        for move in self._store.take_moves():
            person = self._persons.get(move.identity, 0)
            self._moves.append((person, move))
            self._durable[person] = move.later
            if person:
                self.record.tell(now, f"ledger: person {person} {move.earlier.name} -> {move.later.name}")

    def _note_played(
        self,
        number: int,
        night: Night,
        began_at: float,
        report: Report | None,
        life: Life,
        before: dict[int, Kept],
        largest_lag_s: float,
    ) -> None:
        now = self.timeline.now_s
        moves, self._moves = self._moves, []
        ledger = self._read_ledger()
        self.played.append(Played(number, night, began_at, now, report, life, before, ledger, moves, largest_lag_s))
        how = "the process died" if report is None else report.describe()
        self.record.tell(now, f"--- night {number} ends after {life.steps} steps, {life.commits} commits: {how}")

    def _read_ledger(self) -> dict[int, Kept]:
        """The entries of our people; where a base has two lines for the moment, the more telling one."""
        kept: dict[int, Kept] = {}
        for identity, state, subscriber_id, fingerprint, attempts in self._store.read_entries():
            person = self._persons.get(identity)
            if person is None:
                continue
            entry = Kept(State(state), subscriber_id, fingerprint, attempts)
            other = kept.get(person)
            if other is None or _MOST_TELLING.index(entry.state) > _MOST_TELLING.index(other.state):
                kept[person] = entry
        return kept

    def _draw(self, purpose: str, night: int) -> Random:
        """Chances of its own for each purpose, so that one more draw for one does not change another's."""
        return Random(f"{self.scenario.seed} {purpose} {night}")
