"""Plays one scenario, or the scenarios of many seeds, and returns the faults."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.simulation.chances import build_scenarios
from tests.simulation.checks import find_faults
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.scenario import Scenario
from tests.simulation.truth import Truth
from tests.simulation.world import World

EXCEPTION_CLAIM = "the_program_ends_without_an_exception"
"""The claim that the program ends, and raises no unexpected exception."""

_SCENARIOS_PER_BATCH = 50  # scenarios whose rows are validated together


@dataclass(slots=True)
class Result:
    """A scenario that was played, and the faults that it showed."""

    world: World
    faults: list[str]

    def describe(self) -> str:
        """Return the first faults, after the command that plays the seed again."""
        seed = self.world.scenario.seed
        return "\n".join([f"python -m tests.simulation {seed}", *(f"  {fault}" for fault in self.faults[:8])])


def simulate(scenario: Scenario, ledgers: Ledgers) -> Result:
    """Play the scenario and check every claim. An exception of the program is a fault."""
    world = World(scenario, ledgers)
    try:
        world.play()
    except Exception as error:  # noqa: BLE001 - every exception of the program is a fault that a seed has found
        return Result(world, [f"{EXCEPTION_CLAIM}: {type(error).__name__}: {error}"])
    finally:
        world.close()
    return Result(world, find_faults(Truth(world)))


def simulate_seeds(seeds: range, ledgers: Ledgers) -> Iterator[Result]:
    """Play the scenario of each seed, and yield the results."""
    for start in range(seeds.start, seeds.stop, _SCENARIOS_PER_BATCH):
        for scenario in build_scenarios(range(start, min(start + _SCENARIOS_PER_BATCH, seeds.stop))):
            yield simulate(scenario, ledgers)
