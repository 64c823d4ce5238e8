"""The story of a seed for a reader: the scenario, then every request, deed, death and signal with its time."""

from tests.simulation.scenario import Night, Scenario
from tests.simulation.simulate import Result


def tell_story(result: Result) -> str:
    """One line for each thing that happened."""
    world = result.world
    lines = [*_describe_scenario(world.scenario), ""]
    lines += [f"{at:12.3f}  {words}" for at, words in world.record.story]
    lines += ["", *(result.faults or ["every claim holds"])]
    return "\n".join(lines)


def _describe_scenario(scenario: Scenario) -> list[str]:
    stance = ", ".join(f"{name}={value}" for name, value in scenario.settings.items())
    policy = f"policy: {scenario.policy}, a commit takes {scenario.commit_s} s"
    lines = [f"seed {scenario.seed}", f"service: {stance}", policy]
    lines += [
        f"person {who.number}: {who.spellings[0]}, {who.client_user_id}, accepted from night {who.accepted_from} on"
        for who in scenario.people.persons.values()
    ]
    lines += [f"night {number}: {_describe_night(night)}" for number, night in enumerate(scenario.nights, 1)]
    return lines


def _describe_night(night: Night) -> str:
    rows = " | ".join(" ".join(str(told.person) for told in portion.told) for portion in night.portions)
    naming = "name" if night.is_by_name else "id"
    parts = (f"gap {night.gap_s:.1f} s", f"by {naming}", night.ending, night.storm, f"people {rows}")
    return f"{', '.join(map(str, parts))}, suppressed {sorted(night.suppressed)}"
