"""`python -m tests.simulation SEED` simulates one seed and prints its trace. `python -m tests.simulation FIRST LAST`
simulates the seeds from FIRST to LAST - 1 and prints the seeds that fail. `--stop` ends the simulation at the first
failure."""

import sys
import time
from collections import Counter

from tests.simulation.memory_ledger import Ledgers
from tests.simulation.simulate import simulate_seeds
from tests.simulation.trace import format_trace


def main(arguments: list[str]) -> int:
    """Simulate the seeds. Return 1 if a seed failed, otherwise 0."""
    ledgers = Ledgers()
    if len(arguments) == 1:
        seed = int(arguments[0])
        (result,) = simulate_seeds(range(seed, seed + 1), ledgers)
        print(format_trace(result))
        return bool(result.contradictions)
    started_at, failure_counts = time.perf_counter(), Counter[str]()
    first_seed, end_seed = map(int, arguments[:2])
    for result in simulate_seeds(range(first_seed, end_seed), ledgers):
        if result.contradictions:
            print(result.describe())
            failure_counts.update({contradiction.partition(":")[0] for contradiction in result.contradictions})
            if "--stop" in arguments:
                return 1
    print(f"{(time.perf_counter() - started_at) / (end_seed - first_seed) * 1000:.1f} ms for each seed")
    for claim, count in failure_counts.most_common():
        print(f"{count:5} {claim}")
    return bool(failure_counts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
