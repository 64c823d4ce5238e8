"""Simulates one scenario, or the scenarios of many seeds, and returns the contradictions that the claims find."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.simulation.checks import find_contradictions
from tests.simulation.facts import SimulationFacts
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.random_scenarios import build_scenarios
from tests.simulation.scenario import Scenario
from tests.simulation.simulation import Simulation

EXCEPTION_CLAIM = "the_program_ends_without_an_exception"
"""The claim that the program ends, and raises no unexpected exception."""

_SCENARIOS_PER_BATCH = 10  # scenarios whose rows are validated together


@dataclass(slots=True)
class SimulationResult:
    """A finished simulation, and the contradictions that the claims found."""

    simulation: Simulation
    contradictions: list[str]

    def describe(self) -> str:
        """Return the command that simulates the seed again, and the first contradictions."""
        seed = self.simulation.scenario.seed
        return "\n".join([f"python -m tests.simulation {seed}", *(f"  {text}" for text in self.contradictions[:8])])


def simulate(scenario: Scenario, ledgers: Ledgers) -> SimulationResult:
    """Simulate the scenario and check every claim. An unexpected exception of the program counts as a false claim."""
    simulation = Simulation(scenario, ledgers)
    try:
        simulation.run_scenario()
    except Exception as error:  # noqa: BLE001 - every exception is an error of the program that a seed has found
        return SimulationResult(simulation, [f"{EXCEPTION_CLAIM}: {type(error).__name__}: {error}"])
    finally:
        simulation.close()
    return SimulationResult(simulation, find_contradictions(SimulationFacts(simulation)))


def simulate_seeds(seeds: range, ledgers: Ledgers) -> Iterator[SimulationResult]:
    """Simulate the scenario of each seed, and yield the results."""
    for start in range(seeds.start, seeds.stop, _SCENARIOS_PER_BATCH):
        for scenario in build_scenarios(range(start, min(start + _SCENARIOS_PER_BATCH, seeds.stop))):
            yield simulate(scenario, ledgers)
