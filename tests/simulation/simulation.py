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

_FINAL_WAIT_S = 100_000.0  # virtual seconds after the last run, in which the service executes all open requests
# If a person has several entries, the checks use the entry whose state comes last in this tuple.
_STATE_PRIORITY = (State.REJECTED, State.DROPPED, State.SENDING, State.HELD, State.UNKNOWN, State.CONFIRMED)


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
    entries_before: dict[int, EntryValues]  # the ledger at the start of the run, by person number
    entries_after: dict[int, EntryValues]  # the ledger at the end of the run, by person number
    # The changes of entries, each with the person number. The number is 0 if no person of the scenario has the entry.
    state_changes: list[tuple[int, StateChange]]
    largest_lag_s: float  # the largest lag that the ledger knew at the start of the run

    @property
    def written_report(self) -> Report:
        """The report of a run that was not killed."""
        assert self.report is not None, f"the process of run {self.number} was killed"
        return self.report

    @property
    def is_finished(self) -> bool:
        """Whether the run did all of its work."""
        return self.report is not None and self.report.reason is None and not self.report.is_stopped


class Simulation:
    """The service, the ledger and the runs of a scenario. Call `run_scenario` once."""

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
        self._ledger_database = ledgers.create()
        self._copy_before_run = self._ledger_database.copy()
        self._state_changes: list[tuple[int, StateChange]] = []
        self._durable_state_by_person: dict[int, State] = {}
        rows = (
            row
            for job_run in scenario.job_runs
            for prepared_chunk in job_run.prepared_chunks
            for row in prepared_chunk.rows
        )
        self._number_by_identity = {row.identity: row.person_number for row in rows}

    def run_scenario(self) -> None:
        """Carry out every run, and wait until the service has executed all requests. If a process fails, raise its
        error."""
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

    def find_base_id(self, person_number: int) -> int | None:
        """Return the id of the base that the person's rows are for."""
        base_ids = self.scenario.job_runs[0].base_ids
        return base_ids[person_number % len(base_ids)] if base_ids else self.base_id

    def close(self) -> None:
        """Close the ledger."""
        self._ledger_database.close()

    def _wait_before(self, job_run: JobRun) -> None:
        starts_at = self.timeline.now_s + job_run.gap_s
        for foreign_create in job_run.foreign_creates:
            self.timeline.call_at(
                starts_at + foreign_create.created_at_s,
                partial(self.service.create_by_other_program, foreign_create.subscriber_object),
            )
        self.timeline.advance_to(starts_at)

    def _change_ledger(self, job_run: JobRun) -> None:
        older_copy, self._copy_before_run = self._copy_before_run, self._ledger_database.copy()
        if job_run.ledger_accident != "none":
            self._ledger_database.close()
            self._ledger_database = self._ledgers.create(older_copy if job_run.ledger_accident == "restored" else None)
            self._copy_before_run = self._ledger_database.copy()
            self.record.add_line(self.timeline.now_s, f"the ledger is {job_run.ledger_accident}")

    def _run_job(self, run_number: int, job_run: JobRun) -> None:
        started_at, ending, entries_before = self.timeline.now_s, job_run.ending, self._read_ledger()
        largest_lag_s = self._ledger_database.read_largest_lag()
        self.record.add_line(started_at, f"--- run {run_number} starts")
        self._durable_state_by_person = {person_number: entry.state for person_number, entry in entries_before.items()}
        process_state = ProcessState(ending.kill_at_step, ending.kill_at_commit, ending.kills_after_commit)
        process_state.on_commit = self._record_commit
        process = Process(self.timeline, process_state)
        network = Network(
            self.timeline, self.service, process_state, partial(self._begin_call, run_number),
            self._create_rng("way", run_number), self.scenario.timeout_s,
        )  # fmt: skip
        timers = self._start_faults(job_run, network)
        with self._ledgers.open(self._ledger_database, process_state, job_run.shard) as ledger:
            disk = SlowDisk(self.timeline, process_state, self.scenario.commit_s)
            ledger_queue = LedgerQueue(ledger, disk)
            rng = self._create_rng("program", run_number)
            program = Program(
                run_number, ledger, ledger_queue, network, self.timeline, self.scenario.policy, job_run, rng
            )
            timers += self._schedule_ending(ending, process_state, program)
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

        def apply_faults() -> None:
            self._set_switches(fault_period.switches)
            network.network_faults = replace(fault_period.network_faults, latency_s=self.scenario.latency_s)

        if fault_period.starts_after_s > 0:
            timers = [self.timeline.call_later(fault_period.starts_after_s, apply_faults)]
        else:
            apply_faults()
            timers = []
        if fault_period.ends_after_s != float("inf"):
            timers.append(
                self.timeline.call_later(fault_period.ends_after_s, partial(self._end_faults, job_run, network))
            )
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

    def _schedule_ending(self, ending: RunEnding, process_state: ProcessState, program: Program) -> list[Timer]:
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
        person_number = 0
        if request.operation == "create" and request.body is not None:
            person_number = self.scenario.people.find_person_number(orjson.loads(request.body)["Subscriber"])
        query = " ".join(f"{name}={value}" for name, value in request.query)
        calls = self.record.calls
        now_s, call_number = self.timeline.now_s, len(calls) + 1
        person_text = f" of person {person_number}" if person_number else ""
        self.record.add_line(now_s, f"request {call_number}: {request.operation}{person_text} {query}")
        call = Call(call_number, run_number, request.operation, person_number, query, now_s, self.record.add_line)
        call.has_intent = (
            request.operation != "create" or self._durable_state_by_person.get(person_number) is State.SENDING
        )
        calls.append(call)
        return call

    def _record_commit(self, commit_number: int) -> None:
        """Record the entries that this commit has changed, with the persons of the entries."""
        now_s = self.timeline.now_s
        self.record.add_line(now_s, f"ledger: commit {commit_number}")
        for state_change in self._ledger_database.pop_state_changes():
            person_number = self._number_by_identity.get(state_change.identity, 0)
            self._state_changes.append((person_number, state_change))
            self._durable_state_by_person[person_number] = state_change.later_state
            if person_number:
                self.record.add_line(
                    now_s,
                    f"ledger: person {person_number} {state_change.earlier_state.name} -> "
                    f"{state_change.later_state.name}",
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
        now_s = self.timeline.now_s
        state_changes, self._state_changes = self._state_changes, []
        entries_after = self._read_ledger()
        self.run_results.append(
            RunResult(
                run_number,
                job_run,
                started_at,
                now_s,
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
            now_s,
            f"--- run {run_number} ends after {process_state.step_count} steps, {process_state.commit_count} commits: "
            f"{description}",
        )

    def _read_ledger(self) -> dict[int, EntryValues]:
        """Return the entry of each person. `_STATE_PRIORITY` chooses between two entries of a person."""
        entry_by_person_number: dict[int, EntryValues] = {}
        for identity, state, subscriber_id, fingerprint, attempt_count in self._ledger_database.read_entries():
            person_number = self._number_by_identity.get(identity)
            if person_number is None:
                continue
            entry = EntryValues(State(state), subscriber_id, fingerprint, attempt_count)
            other_entry = entry_by_person_number.get(person_number)
            if other_entry is None or _STATE_PRIORITY.index(entry.state) > _STATE_PRIORITY.index(other_entry.state):
                entry_by_person_number[person_number] = entry
        return entry_by_person_number

    def _create_rng(self, purpose: str, run_number: int) -> Random:
        """Return the random generator of a purpose and a run. So the random numbers of one purpose do not change the
        random numbers of another purpose."""
        return Random(f"{self.scenario.seed} {purpose} {run_number}")
