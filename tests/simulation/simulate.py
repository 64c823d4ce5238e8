"""Plays one seed and returns its findings, or plays many seeds until one fails."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.simulation.chances import build_scenarios
from tests.simulation.checks import find_faults
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.scenario import Scenario
from tests.simulation.truth import Truth
from tests.simulation.world import World

FAILED = "the_program_ends_in_order"
"""The claim that the program raises nothing but what ends a run, and comes to an end at all."""

_BUILT_TOGETHER = 50


@dataclass(slots=True)
class Result:
    """A scenario that was played, and what speaks against it."""

    world: World
    faults: list[str]

    def describe(self) -> str:
        """The failure, with the one line that plays it again."""
        seed = self.world.scenario.seed
        return "\n".join([f"python -m tests.simulation {seed}", *(f"  {fault}" for fault in self.faults[:8])])


def simulate(scenario: Scenario, ledgers: Ledgers) -> Result:
    """Play it and check every claim; a program that fails is a finding like any other."""
    world = World(scenario, ledgers)
    try:
        world.play()
    except Exception as error:  # noqa: BLE001 - whatever the program fails with is what a seed is to find
        return Result(world, [f"{FAILED}: {type(error).__name__}: {error}"])
    finally:
        world.close()
    return Result(world, find_faults(Truth(world)))


def simulate_seeds(seeds: range, ledgers: Ledgers) -> Iterator[Result]:
    """Each seed's own scenario, played."""
    for start in range(seeds.start, seeds.stop, _BUILT_TOGETHER):
        for scenario in build_scenarios(range(start, min(start + _BUILT_TOGETHER, seeds.stop))):
            yield simulate(scenario, ledgers)
