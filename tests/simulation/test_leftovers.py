"""Faults that affect only some creates: a run loses creates of a killed run again, or the creates of one base fail."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from connector.load.retry import RetrySelection
from connector.load.session import LoadPolicy
from connector.states import State
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.network import NetworkFaults
from tests.simulation.scenario import BASE_ID, FaultPeriod, JobRun, RunEnding
from tests.simulation.simulate import SimulationResult, simulate
from tests.simulation.small_scenarios import build_plain_scenario

BASE_IDS = (BASE_ID, 9, 11)
MAX_CREATE_COUNT = 5  # a run sends the create of an entry at most five times
PERSON_NUMBERS_WITH_LOST_CREATES = frozenset({2, 5})


def simulate_runs(job_runs: Sequence[JobRun], person_count: int = 12) -> SimulationResult:
    scenario = build_plain_scenario(job_runs, person_count, LoadPolicy(quiet_period_s=10.0), latency_ms=5)
    return simulate(scenario, Ledgers())


def count_creates(result: SimulationResult, run_number: int, person_numbers: frozenset[int]) -> list[int]:
    """Return the number of creates that a run sent for each of these persons."""
    calls = result.simulation.record.list_creates(run_number)
    return [sum(call.person_number == person_number for call in calls) for person_number in sorted(person_numbers)]


@pytest.mark.parametrize("is_retry", [False, True], ids=["with the source", "as a retry"])
def test_an_entry_of_a_killed_run_is_held_after_five_lost_creates(is_retry: bool) -> None:
    fault_period = FaultPeriod(
        network_faults=NetworkFaults(person_numbers_with_lost_creates=PERSON_NUMBERS_WITH_LOST_CREATES)
    )
    killed_run = JobRun((), 1.0, fault_period=fault_period, ending=RunEnding(kill_at_s=5.0))
    second_run = JobRun((), 100.0, fault_period=fault_period, retry=RetrySelection() if is_retry else None)
    result = simulate_runs([killed_run, second_run, JobRun((), 100.0)])
    first_result, second_result, last_result = result.simulation.run_results
    assert first_result.report is None
    assert {first_result.entries_after[person_number].state for person_number in PERSON_NUMBERS_WITH_LOST_CREATES} <= {
        State.UNKNOWN,
        State.SENDING,
    }
    assert count_creates(result, 2, PERSON_NUMBERS_WITH_LOST_CREATES) == [MAX_CREATE_COUNT] * len(
        PERSON_NUMBERS_WITH_LOST_CREATES
    )
    assert {second_result.entries_after[person_number].state for person_number in PERSON_NUMBERS_WITH_LOST_CREATES} == {
        State.HELD
    }
    assert count_creates(result, 3, PERSON_NUMBERS_WITH_LOST_CREATES) == [0] * len(PERSON_NUMBERS_WITH_LOST_CREATES)
    assert (last_result.is_finished, result.contradictions) == (True, [])


def test_later_runs_do_not_send_a_dropped_create_again() -> None:
    fault_period = FaultPeriod(
        network_faults=NetworkFaults(person_numbers_with_lost_creates=PERSON_NUMBERS_WITH_LOST_CREATES)
    )
    retry_selections = RetrySelection(held_decision="drop"), RetrySelection(is_rejected=True), None
    later_runs = [JobRun((), 100.0, retry=retry_selection) for retry_selection in retry_selections]
    result = simulate_runs([JobRun((), 1.0, fault_period=fault_period), *later_runs])
    for run_result in result.simulation.run_results[1:]:
        states = {run_result.entries_after[number].state for number in PERSON_NUMBERS_WITH_LOST_CREATES}
        assert states == {State.DROPPED}
    assert result.contradictions == []


@pytest.mark.parametrize(
    ("switches", "person_count", "expected_count"),
    [({"required": ["Phone"]}, 30, 20), ({"error_before": 1.0}, 6, 3)],
    ids=["refused", "lost"],
)
def test_all_bases_of_a_run_share_the_limit_on_failed_first_creates(
    switches: dict[str, object], person_count: int, expected_count: int
) -> None:
    """No base by itself has enough rows to reach the limit."""
    job_runs = [JobRun((), gap_s, has_base_column=True, base_ids=BASE_IDS) for gap_s in (1.0, 100.0)]
    result = simulate_runs([replace(job_runs[0], fault_period=FaultPeriod(switches)), job_runs[1]], person_count)
    first_result, second_result = result.simulation.run_results
    assert "the run's first" in (first_result.written_report.reason or "")
    assert sum(count_creates(result, 1, frozenset(range(1, person_count + 1)))) == expected_count
    assert second_result.is_finished


def test_lost_creates_of_one_base_do_not_stop_the_creates_of_other_bases() -> None:
    person_numbers_of_base = frozenset(range(3, 13, 3))  # the base of a row is BASE_IDS[person_number % 3]
    fault_period = FaultPeriod(network_faults=NetworkFaults(person_numbers_with_lost_creates=person_numbers_of_base))
    job_runs = [JobRun((), gap_s, has_base_column=True, base_ids=BASE_IDS) for gap_s in (1.0, 100.0)]
    result = simulate_runs([replace(job_runs[0], fault_period=fault_period), job_runs[1]])
    first_result, second_result = result.simulation.run_results
    assert "base 7: the run's first creates got no usable answer" in (first_result.written_report.reason or "")
    assert {
        person_number for person_number, entry in first_result.entries_after.items() if entry.state is State.CONFIRMED
    } == set(range(1, 13)) - person_numbers_of_base
    assert (second_result.is_finished, result.contradictions) == (True, [])
