"""The yardstick of reading: pandas reads a CSV by pyarrow, and that is all.

`python -m tests.benchmarks.pandas_read FILE` prints one line of JSON: `rows`, and `wall_s` of the reading alone.
"""

import json
import sys
import time

import pandas as pd


def main() -> None:
    wall_s = time.perf_counter()
    frame = pd.read_csv(sys.argv[1], engine="pyarrow")
    print(json.dumps({"rows": len(frame), "wall_s": time.perf_counter() - wall_s}))


if __name__ == "__main__":
    main()
