"""Runs a scenario with the service, the ledger and a process for each run of the job, and stores the results."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import orjson

from connector.ledger.commits import LedgerQueue
from connector.service.wire import Request
from connector.states import State
from tests.simulation.memory_ledger import Ledgers, StateChange
from tests.simulation.network import Network, NetworkFaults
from tests.simulation.process import Process, ProcessState
from tests.simulation.program import Program, Report
from tests.simulation.requests import Call, EventRecord
from tests.simulation.scenario import BASE_ID, JobRun, RunEnding, Scenario
from tests.simulation.service import SimulatedService
from tests.simulation.slow_disk import SlowDisk
from tests.simulation.timeline import Timeline, Timer

_FINAL_WAIT_S = 100_000.0  # after the last run, until the service has executed all requests
_PRIORITY = (State.REJECTED, State.SENDING, State.HELD, State.UNKNOWN, State.CONFIRMED)  # the last state wins


@dataclass(frozen=True, slots=True)
class EntryValues:
    """The entry of one person in the ledger."""

    state: State
    subscriber_id: int | None
    fingerprint: bytes | None
    attempt_count: int


@dataclass(slots=True)
class RunResult:
    """The results of one run."""

    number: int
    job_run: JobRun
    started_at: float
    ended_at: float
    report: Report | None  # None: the process was killed
    process_state: ProcessState
    entries_before: dict[int, EntryValues]  # the ledger at the start of the run, by person
    entries_after: dict[int, EntryValues]  # the ledger at the end of the run, by person
    state_changes: list[
        tuple[int, StateChange]
    ]  # the changes of entries, each with the person (0: not a person of the scenario)
    largest_lag_s: float  # the largest lag that the ledger knew at the start of the run

    @property
    def is_finished(self) -> bool:
        """Whether the run did all of its work."""
        return self.report is not None and self.report.reason is None and not self.report.is_stopped


class Simulation:
    """The service, the ledger and the runs of a scenario. Call `run_all` once."""

    def __init__(self, scenario: Scenario, ledgers: Ledgers) -> None:
        self.scenario = scenario
        self.timeline = Timeline()
        self.record = EventRecord()
        self.run_results: list[RunResult] = []
        self.base_id: int | None = BASE_ID
        settings = {**scenario.settings, "seed": scenario.seed}
        self.service = SimulatedService(self.timeline, settings, scenario.people, self.record)
        self._settings = self.service.state.settings
        self._ledgers = ledgers
        self._store = ledgers.create()
        self._copy_before_run = self._store.copy()
        self._state_changes: list[tuple[int, StateChange]] = []
        self._durable_states: dict[int, State] = {}
        rows = (
            rows
            for job_run in scenario.job_runs
            for prepared_chunk in job_run.prepared_chunks
            for rows in prepared_chunk.rows
        )
        self._persons = {row.identity: row.person for row in rows}

    def run_all(self) -> None:
        """Carry out every run, and wait until the service has executed all requests. Raise the exception of a
        process."""
        bases = self.service.state.store.bases
        if self.scenario.has_base:
            bases.add(BASE_ID, self.scenario.base_name)
        for subscriber_object in self.scenario.existing_subscribers:
            self.service.create_by_other_program(subscriber_object)
        for run_number, job_run in enumerate(self.scenario.job_runs, 1):
            self._wait_before(job_run)
            self._change_ledger(job_run)
            self._run_job(run_number, job_run)
        self.timeline.advance_to(self.timeline.now_s + _FINAL_WAIT_S)
        self.base_id = next((base_id for base_id, name in bases.items() if name == self.scenario.base_name), None)

    def find_base(self, person: int) -> int | None:
        """Return the id of the base that the person's rows are for."""
        bases = self.scenario.job_runs[0].bases
        return bases[person % len(bases)] if bases else self.base_id

    def close(self) -> None:
        """Close the ledger."""
        self._store.close()

    def _wait_before(self, job_run: JobRun) -> None:
        starts_at = self.timeline.now_s + job_run.gap_s
        for foreign_create in job_run.foreign_creates:
            self.timeline.call_at(
                starts_at + foreign_create.created_at_s,
                partial(self.service.create_by_other_program, foreign_create.subscriber_object),
            )
        self.timeline.advance_to(starts_at)

    def _change_ledger(self, job_run: JobRun) -> None:
        copy_before, self._copy_before_run = self._copy_before_run, self._store.copy()
        if job_run.ledger_accident != "none":
            self._store.close()
            self._store = self._ledgers.create(copy_before if job_run.ledger_accident == "restored" else None)
            self._copy_before_run = self._store.copy()
            self.record.add_line(self.timeline.now_s, f"the ledger is {job_run.ledger_accident}")

    def _run_job(self, run_number: int, job_run: JobRun) -> None:
        started_at, ending, entries_before = self.timeline.now_s, job_run.ending, self._read_ledger()
        largest_lag_s = self._store.read_largest_lag()
        self.record.add_line(started_at, f"--- run {run_number} starts")
        self._durable_states = {person: entry.state for person, entry in entries_before.items()}
        process_state = ProcessState(ending.kill_at_step, ending.kill_at_commit, ending.kills_after_commit)
        process_state.on_commit = self._record_commit
        process = Process(self.timeline, process_state)
        network = Network(
            self.timeline, self.service, process_state, partial(self._begin_call, run_number),
            self._create_random("way", run_number), self.scenario.timeout_s,
        )  # fmt: skip
        timers = self._start_faults(job_run, network)
        with self._ledgers.open(self._store, process_state, job_run.shard) as ledger:
            disk = SlowDisk(self.timeline, process_state, self.scenario.commit_s)
            ledger_queue = LedgerQueue(ledger, disk)
            random = self._create_random("program", run_number)
            program = Program(
                run_number, ledger, ledger_queue, network, self.timeline, self.scenario.policy, job_run, random
            )
            timers += self._time_ending(ending, process_state, program)
            report = process.run(program.run())
        for timer in timers:
            timer.cancel()
        self._end_faults(job_run, network)
        self._record_run(run_number, job_run, started_at, report, process_state, entries_before, largest_lag_s)

    def _start_faults(self, job_run: JobRun, network: Network) -> list[Timer]:
        """Start the faults of the run now or at their time. Return the timers that start or end the faults."""
        network.network_faults = NetworkFaults(self.scenario.latency_s)
        fault_period = job_run.fault_period
        if fault_period is None:
            return []

        def begin() -> None:
            self._set_switches(fault_period.switches)
            network.network_faults = replace(fault_period.network_faults, latency_s=self.scenario.latency_s)

        if fault_period.after_s > 0:
            timers = [self.timeline.call_later(fault_period.after_s, begin)]
        else:
            begin()
            timers = []
        if fault_period.until_s != float("inf"):
            timers.append(self.timeline.call_later(fault_period.until_s, partial(self._end_faults, job_run, network)))
        return timers

    def _end_faults(self, job_run: JobRun, network: Network) -> None:
        if job_run.fault_period is not None:
            self._set_switches({name: getattr(self._settings, name) for name in job_run.fault_period.switches})
        network.network_faults = NetworkFaults(self.scenario.latency_s)

    def _set_switches(self, switches: Mapping[str, object]) -> None:
        if switches:
            self.service.state.change_switches(switches)
            description = ", ".join(f"{name}={value}" for name, value in switches.items())
            self.record.add_line(self.timeline.now_s, f"service: {description}")

    def _time_ending(self, ending: RunEnding, process_state: ProcessState, program: Program) -> list[Timer]:
        def kill() -> None:
            process_state.has_ended = True

        events = (
            (ending.kill_at_s, kill),
            (ending.first_signal_at_s, program.stop),
            (ending.second_signal_at_s, program.stop_at_once),
        )
        return [
            self.timeline.call_later(event_at_s, callback) for event_at_s, callback in events if event_at_s is not None
        ]

    def _begin_call(self, run_number: int, request: Request) -> Call:
        person = 0
        if request.operation == "create" and request.body is not None:
            person = self.scenario.people.find_person(orjson.loads(request.body)["Subscriber"])
        query = " ".join(f"{name}={value}" for name, value in request.query)
        calls = self.record.calls
        now, call_number = self.timeline.now_s, len(calls) + 1
        person_text = f" of person {person}" if person else ""
        self.record.add_line(now, f"request {call_number}: {request.operation}{person_text} {query}")
        call = Call(call_number, run_number, request.operation, person, query, now, self.record.add_line)
        call.has_intent = request.operation != "create" or self._durable_states.get(person) is State.SENDING
        calls.append(call)
        return call

    def _record_commit(self, commit_number: int) -> None:
        """Record the changes of entries in this commit, with their persons."""
        now = self.timeline.now_s
        self.record.add_line(now, f"ledger: commit {commit_number}")
        for state_change in self._store.pop_state_changes():
            person = self._persons.get(state_change.identity, 0)
            self._state_changes.append((person, state_change))
            self._durable_states[person] = state_change.later_state
            if person:
                self.record.add_line(
                    now, f"ledger: person {person} {state_change.earlier_state.name} -> {state_change.later_state.name}"
                )

    def _record_run(
        self,
        run_number: int,
        job_run: JobRun,
        started_at: float,
        report: Report | None,
        process_state: ProcessState,
        entries_before: dict[int, EntryValues],
        largest_lag_s: float,
    ) -> None:
        now = self.timeline.now_s
        state_changes, self._state_changes = self._state_changes, []
        entries_after = self._read_ledger()
        self.run_results.append(
            RunResult(
                run_number,
                job_run,
                started_at,
                now,
                report,
                process_state,
                entries_before,
                entries_after,
                state_changes,
                largest_lag_s,
            )
        )
        description = "the process was killed" if report is None else report.describe()
        self.record.add_line(
            now,
            f"--- run {run_number} ends after {process_state.step_count} steps, {process_state.commit_count} commits: "
            f"{description}",
        )

    def _read_ledger(self) -> dict[int, EntryValues]:
        """Return the entries of the people. If a person has two entries, return the entry whose state has priority."""
        entries: dict[int, EntryValues] = {}
        for identity, state, subscriber_id, fingerprint, attempt_count in self._store.read_entries():
            person = self._persons.get(identity)
            if person is None:
                continue
            entry = EntryValues(State(state), subscriber_id, fingerprint, attempt_count)
            other_entry = entries.get(person)
            if other_entry is None or _PRIORITY.index(entry.state) > _PRIORITY.index(other_entry.state):
                entries[person] = entry
        return entries

    def _create_random(self, purpose: str, run_number: int) -> Random:
        """Return a random generator for a purpose and a run: random numbers for one purpose do not change the
        others."""
        return Random(f"{self.scenario.seed} {purpose} {run_number}")
