"""What a command waits for before it works: `--help`, and an import of ten rows into a sandbox of its own.

`python -m tests.benchmarks.start [--rounds N]` runs each in turn with what it is measured by, and prints a table and a
line of JSON. Promised are at most 3 times `import click` for the help, and at most 2.5 times `import pandas, pyarrow`
for the import, in wall clock; the median of the rounds counts. pandera imports hypothesis where it is installed, which
no user of the connector has: it is kept from all of them.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from connector.sandbox import SandboxProcess
from tests.benchmarks.importing import build_environment, import_file
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.people import write_people
from tests.benchmarks.processes import run_process
from tests.benchmarks.tables import at_most, print_json, print_promises, print_table

_HELP_RATIO, _IMPORT_RATIO = 3.0, 2.5
_ROWS = 10


def measure(rounds: int) -> dict[str, float]:
    """The median of the wall clock of each, in seconds, by what it is."""
    found: dict[str, list[float]] = {"import click": [], "--help": [], "import pandas, pyarrow": [], "ten rows": []}
    with SandboxProcess(token="sandbox") as sandbox, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        people, environment = write_people(folder / "people.csv", _ROWS), build_environment(sandbox)
        (folder / "hypothesis.py").write_text("raise ImportError\n", encoding="utf-8")
        os.environ["PYTHONPATH"] = environment["PYTHONPATH"] = str(folder)
        for number in range(rounds + 1):
            sandbox.reset()
            spent = {
                "import click": run_process((sys.executable, "-c", "import click"), environment),
                "--help": run_process((sys.executable, "-m", "pipelines", "--help"), environment),
                "import pandas, pyarrow": run_process((sys.executable, "-c", "import pandas, pyarrow"), environment),
                "ten rows": import_file(sandbox, people, folder / str(number), "--quiet-period", "1ms").spent,
            }
            if number:  # the first round fills the disk's cache
                for what, seconds in spent.items():
                    found[what].append(seconds.wall_s)
    return {what: statistics.median(seconds) for what, seconds in found.items()}


def main() -> None:
    """Measure and say it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    found = measure(parser.parse_args().rounds)
    print_table(("start", "seconds"), ((what, f"{seconds:.3f}") for what, seconds in found.items()))
    promises = [
        at_most("--help / import click", _HELP_RATIO, found["--help"] / found["import click"], "{:.2f}"),
        at_most(
            "ten rows / import pandas, pyarrow",
            _IMPORT_RATIO,
            found["ten rows"] / found["import pandas, pyarrow"],
            "{:.2f}",
        ),
    ]
    print_promises(promises)
    print_json("start", describe_machine(), promises, seconds=found)


if __name__ == "__main__":
    main()
