"""Outages of the service (architecture 6): the run ends within two minutes, and the next run finishes the work."""

from dataclasses import replace
from itertools import pairwise
from math import inf
from random import Random

import pytest

from connector.load.session import LoadPolicy
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.network import NetworkFaults
from tests.simulation.people import People
from tests.simulation.rows import Cells, Source, prepare_runs
from tests.simulation.scenario import FaultPeriod, JobRun, Scenario
from tests.simulation.simulate import SimulationResult, simulate

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
    people = People("email")
    for _ in range(person_count):
        people.add(Random(3))
    people.person_by_number = {
        person_number: replace(person, spellings=(f"{person_number}@x.org",))
        for person_number, person in people.person_by_number.items()
    }
    rows = [Cells(person.number, person.spellings[0], "", "Ann", "Lee") for person in people.person_by_number.values()]
    prepared_chunks = prepare_runs([Source([rows])] * 2, "email")
    job_runs = (JobRun(prepared_chunks[0], 1.0, fault_period=fault_period), JobRun(prepared_chunks[1], 3600.0))
    scenario = Scenario(
        seed=3,
        settings={"latency_ms": 50, "rate": 50, "duplicates": "accept"},
        people=people,
        policy=LoadPolicy(quiet_period_s=10.0, max_rate=max_rate),
        job_runs=job_runs,
    )
    return simulate(scenario, Ledgers())


@pytest.mark.parametrize("outage", FAULT_PERIOD_BY_OUTAGE)
def test_an_outage_ends_the_run_within_two_minutes(outage: str) -> None:
    result = simulate_runs(FAULT_PERIOD_BY_OUTAGE[outage])
    first_run, second_run = result.simulation.run_results
    assert first_run.report is not None
    assert second_run.report is not None
    assert "run again" in (first_run.report.reason or "")
    assert first_run.ended_at - first_run.started_at - OUTAGE_STARTS_AFTER_S <= 120
    assert (
        0
        < sum(
            1 for subscriber in result.simulation.record.stored_subscribers if subscriber.stored_at < first_run.ended_at
        )
        < PERSON_COUNT
    )
    assert (second_run.report.reason, result.contradictions) == (None, [])


def test_an_outage_of_half_a_minute_does_not_end_the_run() -> None:
    fault_period = replace(FAULT_PERIOD_BY_OUTAGE["refuses connections"], ends_after_s=OUTAGE_STARTS_AFTER_S + 30.0)
    result = simulate_runs(fault_period)
    first_run = result.simulation.run_results[0]
    assert first_run.report is not None
    assert (first_run.report.reason, result.contradictions) == (None, [])


def test_only_single_probes_leave_during_an_outage() -> None:
    result = simulate_runs(FAULT_PERIOD_BY_OUTAGE["fails before it stores"])
    first_run = result.simulation.run_results[0]
    probes = [
        call
        for call in result.simulation.record.calls
        if call.operation == "create"
        and first_run.started_at + OUTAGE_STARTS_AFTER_S + 5 < call.sent_at < first_run.ended_at
    ]
    assert 3 <= len(probes) <= 12
    assert all(next_probe.sent_at - probe.sent_at > 0.9 for probe, next_probe in pairwise(probes))


@pytest.mark.parametrize("outage", FAULT_PERIOD_BY_OUTAGE)
def test_an_outage_ends_a_run_with_a_low_max_rate_within_three_minutes(outage: str) -> None:
    fault_period = replace(FAULT_PERIOD_BY_OUTAGE[outage], starts_after_s=15.0)
    result = simulate_runs(fault_period, 60, max_rate=0.2)
    first_run, second_run = result.simulation.run_results
    assert first_run.report is not None
    assert second_run.report is not None
    assert "run again" in (first_run.report.reason or "")
    assert first_run.ended_at - first_run.started_at - 15.0 <= 180
    assert (second_run.report.reason, result.contradictions) == (None, [])


@pytest.mark.parametrize("outage", ["refuses connections", "hangs"])
def test_an_outage_from_the_start_ends_the_run_within_two_minutes(outage: str) -> None:
    fault_period = replace(
        FAULT_PERIOD_BY_OUTAGE[outage],
        switches={**FAULT_PERIOD_BY_OUTAGE[outage].switches, "list_error": 1.0},
        starts_after_s=0.0,
    )
    first_run, second_run = simulate_runs(fault_period).simulation.run_results
    assert first_run.report is not None
    assert second_run.report is not None
    assert first_run.report.reason is not None
    assert first_run.ended_at - first_run.started_at <= 120
    assert second_run.report.reason is None
