"""Outages of the service (architecture 6): the run ends within two minutes, and the next run finishes the work."""

from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest

from connector.load.session import LoadPolicy
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.network import NetworkFaults
from tests.simulation.scenario import FaultPeriod, JobRun
from tests.simulation.simulate import SimulationResult, simulate
from tests.simulation.small_scenarios import build_plain_scenario

PERSON_COUNT = 400
OUTAGE_STARTS_AFTER_S = 2.0
FAULT_PERIOD_BY_OUTAGE = {
    "refuses connections": FaultPeriod(
        network_faults=NetworkFaults(refused_share=1.0), starts_after_s=OUTAGE_STARTS_AFTER_S
    ),
    "fails before it stores": FaultPeriod({"error_before": 1.0}, starts_after_s=OUTAGE_STARTS_AFTER_S),
    "fails after it has stored": FaultPeriod({"error_after": 1.0}, starts_after_s=OUTAGE_STARTS_AFTER_S),
    "hangs": FaultPeriod({"hang_after": 1.0}, starts_after_s=OUTAGE_STARTS_AFTER_S),
    "cuts connections": FaultPeriod({"drop_before": 1.0}, starts_after_s=OUTAGE_STARTS_AFTER_S),
}


def simulate_runs(
    fault_period: FaultPeriod, person_count: int = PERSON_COUNT, max_rate: float = inf
) -> SimulationResult:
    """Simulate a run with these faults, and a run without faults after it."""
    job_runs = (JobRun((), 1.0, fault_period=fault_period), JobRun((), 3600.0))
    policy = LoadPolicy(quiet_period_s=10.0, max_rate=max_rate)
    return simulate(build_plain_scenario(job_runs, person_count, policy, latency_ms=50, rate=50), Ledgers())


@pytest.mark.parametrize("outage", FAULT_PERIOD_BY_OUTAGE)
def test_an_outage_ends_the_run_within_two_minutes(outage: str) -> None:
    result = simulate_runs(FAULT_PERIOD_BY_OUTAGE[outage])
    first_run, second_run = result.simulation.run_results
    assert "run again" in (first_run.written_report.reason or "")
    assert first_run.ended_at - first_run.started_at - OUTAGE_STARTS_AFTER_S <= 120
    stored_times = [subscriber.stored_at for subscriber in result.simulation.record.stored_subscribers]
    assert 0 < sum(stored_at < first_run.ended_at for stored_at in stored_times) < PERSON_COUNT
    assert (second_run.written_report.reason, result.contradictions) == (None, [])


def test_an_outage_of_half_a_minute_does_not_end_the_run() -> None:
    fault_period = replace(FAULT_PERIOD_BY_OUTAGE["refuses connections"], ends_after_s=OUTAGE_STARTS_AFTER_S + 30.0)
    result = simulate_runs(fault_period)
    first_run = result.simulation.run_results[0]
    assert (first_run.written_report.reason, result.contradictions) == (None, [])


def test_only_single_probes_leave_during_an_outage() -> None:
    result = simulate_runs(FAULT_PERIOD_BY_OUTAGE["fails before it stores"])
    first_run = result.simulation.run_results[0]
    probes = [
        call
        for call in result.simulation.record.list_creates(first_run.number)
        if first_run.started_at + OUTAGE_STARTS_AFTER_S + 5 < call.sent_at < first_run.ended_at
    ]
    assert 3 <= len(probes) <= 12
    assert all(next_probe.sent_at - probe.sent_at > 0.9 for probe, next_probe in pairwise(probes))


@pytest.mark.parametrize("outage", FAULT_PERIOD_BY_OUTAGE)
def test_an_outage_ends_a_run_with_a_low_max_rate_within_three_minutes(outage: str) -> None:
    fault_period = replace(FAULT_PERIOD_BY_OUTAGE[outage], starts_after_s=15.0)
    result = simulate_runs(fault_period, 60, max_rate=0.2)
    first_run, second_run = result.simulation.run_results
    assert "run again" in (first_run.written_report.reason or "")
    assert first_run.ended_at - first_run.started_at - 15.0 <= 180
    assert (second_run.written_report.reason, result.contradictions) == (None, [])


@pytest.mark.parametrize("outage", ["refuses connections", "hangs"])
def test_an_outage_from_the_start_ends_the_run_within_two_minutes(outage: str) -> None:
    fault_period = replace(
        FAULT_PERIOD_BY_OUTAGE[outage],
        switches={**FAULT_PERIOD_BY_OUTAGE[outage].switches, "list_error": 1.0},
        starts_after_s=0.0,
    )
    first_run, second_run = simulate_runs(fault_period).simulation.run_results
    assert first_run.written_report.reason is not None
    assert first_run.ended_at - first_run.started_at <= 120
    assert second_run.written_report.reason is None
