"""`python -m tests.simulation SEED` plays one seed and prints its story. `python -m tests.simulation FIRST LAST` plays
the seeds from FIRST to LAST - 1 and prints the seeds that fail. With `--stop` it ends at the first failure."""

import sys
import time
from collections import Counter

from tests.simulation.memory_ledger import Ledgers
from tests.simulation.simulate import simulate_seeds
from tests.simulation.story import tell_story


def main(arguments: list[str]) -> int:
    """Play the seeds, and return 1 if a seed failed, otherwise 0."""
    ledgers = Ledgers()
    if len(arguments) == 1:
        seed = int(arguments[0])
        (result,) = simulate_seeds(range(seed, seed + 1), ledgers)
        print(tell_story(result))
        return bool(result.faults)
    started_at, failure_counts = time.perf_counter(), Counter[str]()
    first_seed, end_seed = map(int, arguments[:2])
    for result in simulate_seeds(range(first_seed, end_seed), ledgers):
        if result.faults:
            print(result.describe())
            failure_counts.update({fault.partition(":")[0] for fault in result.faults})
            if "--stop" in arguments:
                return 1
    print(f"{(time.perf_counter() - started_at) / (end_seed - first_seed) * 1000:.1f} ms a seed")
    for claim, count in failure_counts.most_common():
        print(f"{count:5} {claim}")
    return bool(failure_counts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
