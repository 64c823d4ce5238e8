"""Small scenarios in which a process can be killed at every commit and step. Each scenario has few people and one
difficulty. `build_plain_scenario` returns a scenario without a difficulty, to which a test adds its faults."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from connector.load.retry import RetrySelection
from connector.load.session import LoadPolicy
from tests.simulation.people import People
from tests.simulation.rows import Cells, Source, prepare_runs
from tests.simulation.scenario import BASE_ID, FaultPeriod, JobRun, RunEnding, Scenario


@dataclass(frozen=True, slots=True)
class SmallScenario:
    """A scenario in which the run with the index `killed_run_index` (from 0) is killed. Then two runs without faults
    follow."""

    name: str
    scenario: Scenario
    killed_run_index: int

    def build_killed_scenario(self, ending: RunEnding, *, has_source_after_kill: bool) -> Scenario:
        """Return the scenario in which the killed run ends with `ending`. Without the source, the next run is a retry
        (`connector retry`)."""
        job_runs = list(self.scenario.job_runs)
        job_runs[self.killed_run_index] = replace(job_runs[self.killed_run_index], ending=ending)
        if not has_source_after_kill:
            job_runs[self.killed_run_index + 1] = replace(
                job_runs[self.killed_run_index + 1], prepared_chunks=(), retry=RetrySelection()
            )
        return replace(self.scenario, job_runs=tuple(job_runs))


def build_small_scenarios() -> list[SmallScenario]:
    """Return the scenarios. Their seeds are fixed, so each test run simulates the same events."""
    lost_answers = FaultPeriod({"drop_before": 0.25, "drop_after": 0.25, "late_ms": 8000.0})
    lost_requests = FaultPeriod({"drop_before": 0.5})
    false_refusals = FaultPeriod({"created_422": 0.4, "drop_after": 0.2})
    only_false_refusals = FaultPeriod({"created_422": 1.0})
    return [
        _build_small_scenario("lost answers", 3, (lost_answers,)),
        _build_small_scenario("unknown creates of an earlier run", 4, (lost_answers, None)),
        _build_small_scenario("a base by its name", 5, (lost_answers,), has_base_name=True, has_base=False),
        _build_small_scenario("creates answered with a refusal", 3, (false_refusals,), refused_count=2),
        _build_small_scenario(
            "refused but created, and listed before the next run",
            3,
            (only_false_refusals, None),
            settings={"list_lag_ms": 15_000},
            final_gap_s=40.0,
        ),
        _build_small_scenario("hold", 9, (lost_requests, lost_answers), on_unknown="hold"),
        _build_small_scenario(
            "look-ups by filter",
            8,
            (lost_answers, lost_answers),
            existing_subscriber_count=30,
            settings={"max_limit": 7, "filters": "icase"},
        ),
    ]


def _build_small_scenario(
    name: str,
    seed: int,
    fault_periods: Sequence[FaultPeriod | None],
    *,
    has_base_name: bool = False,
    has_base: bool = True,
    refused_count: int = 0,
    existing_subscriber_count: int = 1,
    on_unknown: Literal["resend", "hold"] = "resend",
    settings: Mapping[str, object] | None = None,
    final_gap_s: float = 1.0,
) -> SmallScenario:
    """Return a scenario with a run for each of `fault_periods`, and then two runs without faults.

    `SmallScenario.build_killed_scenario` kills the last run of `fault_periods`. All runs before this run are killed
    after 0.45 s, while requests are open. The first `refused_count` people have no last name, so the service refuses
    their creates.
    """
    people, rng = People("email"), Random(seed)
    for index in range(1, 8):
        people.add(rng, first_run_number_with_required_fields=99 if index <= refused_count else 0)
    rows = [
        Cells(
            person.number,
            rng.choice(person.spellings),
            "",
            "Ann",
            "" if person.first_run_number_with_required_fields else "Lee",
        )
        for person in people.person_by_number.values()
    ]
    endings = [*[RunEnding(kill_at_s=0.45)] * (len(fault_periods) - 1), *[RunEnding()] * 3]
    gaps_s = [*[1.0] * len(fault_periods), final_gap_s, final_gap_s]
    prepared_runs = prepare_runs([Source([rows[:4], rows[4:]])] * len(endings), "email")
    scenario = Scenario(
        seed=seed,
        settings={"required": ["LastName"] if refused_count else [], "latency_ms": 5, **(settings or {})},
        people=people,
        policy=LoadPolicy(max_concurrency=3, on_unknown=on_unknown, quiet_period_s=10.0),
        job_runs=tuple(
            JobRun(prepared_chunks, gap_s, has_base_name, fault_period, ending)
            for prepared_chunks, fault_period, ending, gap_s in zip(
                prepared_runs, (*fault_periods, None, None), endings, gaps_s, strict=True
            )
        ),
        has_base=has_base,
        existing_subscribers=tuple(
            _build_existing_subscriber(index, has_base_name=has_base_name) for index in range(existing_subscriber_count)
        ),
    )
    return SmallScenario(name, scenario, len(fault_periods) - 1)


def _build_existing_subscriber(subscriber_number: int, *, has_base_name: bool) -> Mapping[str, object]:
    """Return a subscriber that exists before the first run. If the job gives the name of its base instead of the id,
    the subscriber is in another base, so that the job must create its base."""
    letters = "".join(chr(ord("a") + int(digit)) for digit in str(subscriber_number))
    return {"Base": {"Id": 9 if has_base_name else BASE_ID}, "Email": f"{letters}@y.org", "LastName": "Stranger"}


def build_plain_scenario(
    job_runs: Sequence[JobRun],
    person_count: int,
    policy: LoadPolicy,
    existing_subscribers: tuple[Mapping[str, object], ...] = (),
    **settings: object,
) -> Scenario:
    """Return a scenario with these runs. The source of each run, except a retry, has one row for each person, and each
    address has only one spelling. The service stores duplicates."""
    people = People("email")
    for number in range(1, person_count + 1):
        people.person_by_number[number] = replace(people.add(Random(3)), spellings=(f"{number}@x.org",))
    rows = [Cells(number, f"{number}@x.org", "", "Ann", "Lee") for number in people.person_by_number]
    prepared_runs = prepare_runs([Source([rows])] * len(job_runs), "email")
    return Scenario(
        seed=3,
        settings={"duplicates": "accept", **settings},
        people=people,
        policy=policy,
        job_runs=tuple(
            job_run if job_run.retry else replace(job_run, prepared_chunks=prepared_chunks)
            for job_run, prepared_chunks in zip(job_runs, prepared_runs, strict=True)
        ),
        existing_subscribers=existing_subscribers,
    )
