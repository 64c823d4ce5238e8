"""`python -m tests.simulation SEED` tells the story of one seed; `FIRST LAST` plays many and tells which fail, or
with `--stop` the first that does."""

import sys
import time
from collections import Counter

from tests.simulation.memory_ledger import Ledgers
from tests.simulation.simulate import simulate_seeds
from tests.simulation.story import tell_story


def main(arguments: list[str]) -> int:
    """1 if a seed failed."""
    ledgers = Ledgers()
    if len(arguments) == 1:
        seed = int(arguments[0])
        (result,) = simulate_seeds(range(seed, seed + 1), ledgers)
        print(tell_story(result))
        return bool(result.faults)
    began, failed = time.perf_counter(), Counter[str]()
    first, last = map(int, arguments[:2])
    for result in simulate_seeds(range(first, last), ledgers):
        if result.faults:
            print(result.describe())
            failed.update({fault.partition(":")[0] for fault in result.faults})
            if "--stop" in arguments:
                return 1
    print(f"{(time.perf_counter() - began) / (last - first) * 1000:.1f} ms a seed")
    for claim, number in failed.most_common():
        print(f"{number:5} {claim}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
