"""The readable trace of a simulated seed: the scenario, and then every event with its time."""

from tests.simulation.scenario import JobRun, Scenario
from tests.simulation.simulate import SimulationResult


def format_trace(result: SimulationResult) -> str:
    """Return the trace, with one line for each event."""
    simulation = result.simulation
    lines = [*_describe_scenario(simulation.scenario), ""]
    lines += [f"{time_s:12.3f}  {text}" for time_s, text in simulation.record.trace_lines]
    lines += ["", *(result.contradictions or ["every claim holds"])]
    return "\n".join(lines)


def _describe_scenario(scenario: Scenario) -> list[str]:
    settings_text = ", ".join(f"{name}={value}" for name, value in scenario.settings.items())
    policy_text = f"policy: {scenario.policy}, a commit takes {scenario.commit_s} s"
    lines = [f"seed {scenario.seed}", f"service: {settings_text}", policy_text]
    lines += [
        f"person {person.number}: {person.spellings[0]}, {person.client_user_id}, accepted from run number "
        f"{person.first_run_number_with_required_fields}"
        for person in scenario.people.person_by_number.values()
    ]
    lines += [f"run {run_number}: {_describe_run(job_run)}" for run_number, job_run in enumerate(scenario.job_runs, 1)]
    return lines


def _describe_run(job_run: JobRun) -> str:
    rows = " | ".join(
        " ".join(str(row.person_number) for row in prepared_chunk.rows) for prepared_chunk in job_run.prepared_chunks
    )
    base_naming = "name" if job_run.has_base_name else "id"
    description_parts = (
        f"gap {job_run.gap_s:.1f} s",
        f"by {base_naming}",
        job_run.ending,
        job_run.fault_period,
        f"people {rows}",
    )
    return f"{', '.join(map(str, description_parts))}, suppressed {sorted(job_run.suppressed_person_numbers)}"
