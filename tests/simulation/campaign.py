"""Many seeds in a row: what fails, by claim, and what they have met."""

from collections import defaultdict
from dataclasses import dataclass, field

from tests.simulation.coverage import Coverage
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.simulate import simulate_seeds
from tests.simulation.truth import Truth


@dataclass(slots=True)
class Campaign:
    """`failures` by claim: for each seed the line that plays it again, and what speaks against the claim."""

    failures: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    coverage: Coverage = field(default_factory=Coverage)

    def run(self, seeds: range, ledgers: Ledgers) -> None:
        """Play them all."""
        for result in simulate_seeds(seeds, ledgers):
            for fault in result.faults:
                claim, _, words = fault.partition(": ")
                line = f"python -m tests.simulation {result.world.scenario.seed}  # {words}"
                self.failures[claim].append(line)
            self.coverage.add(Truth(result.world))
