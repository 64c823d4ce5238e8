"""The service refuses all creates for some time (architecture 4.8). The run ends within two minutes, and no row is
lost."""

from collections import Counter
from dataclasses import replace

import pytest

from connector.load.session import LoadPolicy
from connector.states import State
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.scenario import FaultPeriod, JobRun, RunEnding
from tests.simulation.simulate import SimulationResult, simulate
from tests.simulation.simulation import RunResult
from tests.simulation.small_scenarios import build_plain_scenario

PERSON_COUNT = 400
ALL_CONFIRMED = Counter({State.CONFIRMED: PERSON_COUNT})
FIRST_REFUSED_CREATE_NUMBER = 50  # the number of the first create that the service refuses


def simulate_runs(fault_periods: list[FaultPeriod | None], ending: RunEnding | None = None) -> SimulationResult:
    """Simulate a run for each item of `fault_periods`. `ending` is the ending of the first run."""
    first_run, *later_runs = (JobRun((), 3600.0, fault_period=fault_period) for fault_period in fault_periods)
    job_runs = [replace(first_run, gap_s=1.0, ending=ending or RunEnding()), *later_runs]
    scenario = build_plain_scenario(job_runs, PERSON_COUNT, LoadPolicy(quiet_period_s=10.0), latency_ms=50)
    return simulate(scenario, Ledgers())


def build_blocking_period(status: int, seconds: float = 0.0) -> FaultPeriod:
    return FaultPeriod(
        {"blocked_from": FIRST_REFUSED_CREATE_NUMBER, "blocked_status": status, "blocked_ms": 1000 * seconds}
    )


def count_states(run_result: RunResult) -> Counter[State]:
    return Counter(entry.state for entry in run_result.entries_after.values())


def count_creates(result: SimulationResult, run_result: RunResult) -> int:
    return len(result.simulation.record.list_creates(run_result.number))


@pytest.mark.parametrize("status", [200, 400, 402, 403, 404])
def test_lasting_refusals_end_the_run_within_two_minutes(status: int) -> None:
    result = simulate_runs([build_blocking_period(status), None])
    first_run, second_run = result.simulation.run_results
    assert "run again later" in (first_run.written_report.reason or "")
    assert 60 <= first_run.ended_at - first_run.started_at <= 120
    # The service also gets the creates that are under way when the pause begins, and the probes.
    assert count_creates(result, first_run) < FIRST_REFUSED_CREATE_NUMBER + 110
    assert count_states(first_run)[State.REJECTED] >= 20
    assert (second_run.written_report.reason, count_states(second_run)) == (None, ALL_CONFIRMED)
    assert result.contradictions == []


@pytest.mark.parametrize("status", [200, 402])
def test_refusals_for_half_a_minute_do_not_end_the_run(status: int) -> None:
    result = simulate_runs([build_blocking_period(status, 30.0), None])
    first_run, _ = result.simulation.run_results
    assert (first_run.written_report.reason, count_states(first_run)) == (None, ALL_CONFIRMED)
    assert result.contradictions == []


def test_a_second_run_with_lasting_refusals_sends_at_most_twenty_creates() -> None:
    result = simulate_runs([build_blocking_period(402), FaultPeriod({"blocked_from": 1, "blocked_status": 402}), None])
    _, second_run, third_run = result.simulation.run_results
    assert count_creates(result, second_run) <= 20
    assert (count_states(third_run), result.contradictions) == (ALL_CONFIRMED, [])


@pytest.mark.parametrize(
    "ending", [RunEnding(kill_at_s=20.0), RunEnding(first_signal_at_s=20.0)], ids=["killed", "stopped"]
)
def test_a_kill_or_a_stop_during_refusals_loses_no_row(ending: RunEnding) -> None:
    result = simulate_runs([build_blocking_period(200), None, None], ending)
    first_run, second_run, third_run = result.simulation.run_results
    assert first_run.ended_at - first_run.started_at < 30
    assert second_run.report is not None
    assert (count_states(second_run), result.contradictions) == (ALL_CONFIRMED, [])
    assert count_creates(result, third_run) == 0


def test_a_refused_create_that_took_effect_is_not_sent_again() -> None:
    fault_period = FaultPeriod(
        {"executed_status": 1.0, "executed_statuses": ["400"]}, starts_after_s=1.2, ends_after_s=5.0
    )
    result = simulate_runs([fault_period, None])
    first_run, _ = result.simulation.run_results
    assert first_run.report is not None
    answer_kinds = [subscriber.answer_kind for subscriber in result.simulation.record.stored_subscribers]
    assert answer_kinds.count("answered_as_refused") >= 20
    assert (count_states(first_run), result.contradictions) == (ALL_CONFIRMED, [])
