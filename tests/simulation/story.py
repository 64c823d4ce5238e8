"""The story of a seed for a reader: the scenario, and then every event with its time."""

from tests.simulation.scenario import Night, Scenario
from tests.simulation.simulate import Result


def tell_story(result: Result) -> str:
    """Return the story, with one line for each event."""
    world = result.world
    lines = [*_describe_scenario(world.scenario), ""]
    lines += [f"{time:12.3f}  {text}" for time, text in world.record.story_lines]
    lines += ["", *(result.faults or ["every claim holds"])]
    return "\n".join(lines)


def _describe_scenario(scenario: Scenario) -> list[str]:
    stance = ", ".join(f"{name}={value}" for name, value in scenario.settings.items())
    policy = f"policy: {scenario.policy}, a commit takes {scenario.commit_s} s"
    lines = [f"seed {scenario.seed}", f"service: {stance}", policy]
    lines += [
        f"person {person.number}: {person.spellings[0]}, {person.client_user_id}, accepted from night "
        f"{person.accepted_from}"
        for person in scenario.people.persons.values()
    ]
    lines += [f"night {number}: {_describe_night(night)}" for number, night in enumerate(scenario.nights, 1)]
    return lines


def _describe_night(night: Night) -> str:
    rows = " | ".join(" ".join(str(row.person) for row in portion.rows) for portion in night.portions)
    naming = "name" if night.is_by_name else "id"
    parts = (f"gap {night.gap_s:.1f} s", f"by {naming}", night.ending, night.storm, f"people {rows}")
    return f"{', '.join(map(str, parts))}, suppressed {sorted(night.suppressed_persons)}"
