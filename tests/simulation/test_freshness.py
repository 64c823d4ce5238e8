"""A subscriber that appears during a slow run is not created again, because look-ups expire (architecture 4.7).

Each scenario is simulated twice. The first simulation shows which people are created late. In the second simulation,
another program creates these people meanwhile.
"""

from collections.abc import Sequence
from dataclasses import replace

from connector.load.retry import RetrySelection
from connector.load.session import LoadPolicy
from tests.simulation.facts import SimulationFacts
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.network import NetworkFaults
from tests.simulation.scenario import BASE_ID, FaultPeriod, ForeignCreate, JobRun, RunEnding, Scenario
from tests.simulation.simulate import SimulationResult, simulate
from tests.simulation.small_scenarios import build_plain_scenario

MAX_LOOK_UP_AGE_S = 60.0
FOREIGN_CREATES_AT_S = 150.0


def build_scenario(
    person_count: int,
    job_runs: Sequence[JobRun],
    latency_ms: int,
    max_concurrency: int,
    max_lookup_age_s: float = MAX_LOOK_UP_AGE_S,
) -> Scenario:
    policy = LoadPolicy(max_concurrency=max_concurrency, quiet_period_s=10.0, max_lookup_age_s=max_lookup_age_s)
    existing_subscribers = ({"Base": {"Id": BASE_ID}, "Email": "stranger@y.org", "LastName": "S"},)
    return build_plain_scenario(job_runs, person_count, policy, existing_subscribers, latency_ms=latency_ms)


def simulate_with_foreign_creates(
    scenario: Scenario, run_index: int, created_at_s: float = FOREIGN_CREATES_AT_S, waiting_s: float = 100.0
) -> tuple[SimulationResult, int]:
    """Simulate the scenario twice. Return the second result, and the number of people whom another program creates.

    The first simulation shows which people the run `run_index` creates late: more than `waiting_s` seconds after
    `created_at_s`. In the second simulation, another program creates the late people at `created_at_s`, so the run
    must not create them. `created_at_s` is counted from the start of the run.
    """
    first_result = simulate(scenario, Ledgers())
    assert first_result.contradictions == []
    started_at = first_result.simulation.run_results[run_index].started_at
    late_persons = {
        subscriber.person_number
        for subscriber in first_result.simulation.record.stored_subscribers
        if subscriber.call is not None and subscriber.stored_at > started_at + created_at_s + waiting_s
    }
    foreign_creates = tuple(
        ForeignCreate(created_at_s, {"Base": {"Id": BASE_ID}, "Email": f"{person_number}@x.org", "LastName": "Self"})
        for person_number in sorted(late_persons)
    )
    job_runs = list(scenario.job_runs)
    job_runs[run_index] = replace(job_runs[run_index], foreign_creates=foreign_creates)
    return simulate(replace(scenario, job_runs=tuple(job_runs)), Ledgers()), len(foreign_creates)


def find_late_creates(result: SimulationResult, expiry_s: float) -> list[int]:
    """Return the persons that the connector created more than `expiry_s` seconds after another program created them."""
    facts, late_persons = SimulationFacts(result.simulation), []
    for person_number in facts.person_numbers:
        foreign_create_times = [
            subscriber.stored_at
            for subscriber in facts.find_stored_subscribers(person_number)
            if subscriber.call is None
        ]
        late_persons += [
            person_number
            for subscriber in facts.find_created_subscribers(person_number)
            if foreign_create_times and subscriber.stored_at > min(foreign_create_times) + expiry_s
        ]
    return late_persons


def test_a_subscriber_is_looked_up_again_after_a_long_retry_after() -> None:
    fault_period = FaultPeriod({"refuse": 1.0, "refuse_retry_after_s": 400}, starts_after_s=1.2, ends_after_s=60.0)
    scenario = build_scenario(
        60, [JobRun((), 1.0, fault_period=fault_period), JobRun((), 100.0)], latency_ms=60, max_concurrency=4
    )
    result, foreign_create_count = simulate_with_foreign_creates(scenario, 0)
    assert foreign_create_count >= 20
    assert (result.contradictions, find_late_creates(result, MAX_LOOK_UP_AGE_S + 1.0)) == ([], [])


def test_a_rejected_row_is_looked_up_again_before_its_create_in_a_long_retry() -> None:
    fault_period = FaultPeriod({"required": ["Phone"], "latency_ms": 5})
    retry = JobRun((), 100.0, retry=RetrySelection(is_rejected=True))
    scenario = build_scenario(
        180, [JobRun((), 1.0, fault_period=fault_period), retry, JobRun((), 100.0)], latency_ms=2_000, max_concurrency=1
    )
    result, foreign_create_count = simulate_with_foreign_creates(scenario, 1)
    assert foreign_create_count >= 5
    assert (result.contradictions, find_late_creates(result, 120.0)) == ([], [])


def test_an_absent_subscriber_is_looked_up_again_if_sending_takes_long() -> None:
    killed_run = JobRun((), 1.0, ending=RunEnding(kill_at_commit=11, kills_after_commit=True))
    job_runs = [killed_run, JobRun((), 100.0, retry=RetrySelection()), JobRun((), 100.0)]
    scenario = build_scenario(60, job_runs, latency_ms=5000, max_concurrency=1)
    result, foreign_create_count = simulate_with_foreign_creates(scenario, 1)
    assert foreign_create_count >= 10
    assert (result.contradictions, find_late_creates(result, MAX_LOOK_UP_AGE_S + 10.0)) == ([], [])


def test_an_unsent_row_is_looked_up_again_after_an_outage() -> None:
    fault_period = FaultPeriod(network_faults=NetworkFaults(refused_share=1.0), starts_after_s=1.2, ends_after_s=45.0)
    job_runs = [JobRun((), 1.0, fault_period=fault_period), JobRun((), 100.0)]
    scenario = build_scenario(60, job_runs, latency_ms=60, max_concurrency=4, max_lookup_age_s=20.0)
    result, foreign_create_count = simulate_with_foreign_creates(scenario, 0, created_at_s=5.0, waiting_s=35.0)
    assert foreign_create_count >= 20
    assert (result.contradictions, find_late_creates(result, 21.0)) == ([], [])


def build_slow_list_scenario(**settings: object) -> Scenario:
    """Return a scenario in which a page takes ten seconds, and the whole list takes longer than `load.fresh`."""
    scenario = build_scenario(20, [JobRun((), 1.0), JobRun((), 100.0)], latency_ms=10_000, max_concurrency=1)
    existing_subscribers = tuple(
        {"Base": {"Id": BASE_ID}, "Email": f"stranger@y{index}.org", "LastName": "S"} for index in range(120)
    )
    all_settings = {**scenario.settings, "max_limit": 20, **settings}
    return replace(scenario, settings=all_settings, existing_subscribers=existing_subscribers)


def test_a_run_with_a_slow_list_finds_subscribers_that_appear_meanwhile() -> None:
    result, foreign_create_count = simulate_with_foreign_creates(
        build_slow_list_scenario(filters="ignored"), 0, created_at_s=190.0, waiting_s=MAX_LOOK_UP_AGE_S
    )
    assert foreign_create_count >= 10
    assert (result.contradictions, find_late_creates(result, MAX_LOOK_UP_AGE_S + 10.0)) == ([], [])
    assert result.simulation.run_results[-1].is_finished


def test_nothing_is_created_if_every_look_up_takes_too_long() -> None:
    result = simulate(build_slow_list_scenario(filters="ignored", order="email"), Ledgers())
    assert not any(subscriber.call is not None for subscriber in result.simulation.record.stored_subscribers)
    report = result.simulation.run_results[0].written_report
    assert "longer than load.fresh (60 s) allows" in report.describe()
