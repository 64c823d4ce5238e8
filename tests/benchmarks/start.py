"""The start-up time of two commands: `--help`, and an import of ten rows into a sandbox.

`python -m tests.benchmarks.start [--rounds N]` runs each command and a Python import alternately, compares their times,
and prints a table and a line of JSON. The project promises that the help takes at most 3 times as long as
`import click`, and the import at most 2.5 times as long as `import pandas, pyarrow`. The result is the median wall time
of the rounds.

If the package `hypothesis` is installed, pandera imports `hypothesis`. Users of the connector do not have `hypothesis`,
so the benchmark hides this package."""

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
from tests.benchmarks.tables import print_json, print_promises, print_table, promise_at_most

_MAX_RATIO_OF_HELP_TO_CLICK, _MAX_RATIO_OF_IMPORT_TO_PANDAS = 3.0, 2.5
_ROW_COUNT = 10


def measure_starts(round_count: int) -> dict[str, float]:
    """Return the median wall time in seconds of each command, by its label."""
    seconds_of_rounds_by_label: dict[str, list[float]] = {
        "import click": [],
        "--help": [],
        "import pandas, pyarrow": [],
        "ten rows": [],
    }
    with SandboxProcess(token="sandbox") as sandbox, tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        people_path, environment = write_people(folder / "people.csv", _ROW_COUNT), build_environment(sandbox)
        (folder / "hypothesis.py").write_text("raise ImportError\n", encoding="utf-8")
        os.environ["PYTHONPATH"] = environment["PYTHONPATH"] = str(folder)
        for round_number in range(round_count + 1):
            sandbox.reset()
            usage_by_label = {
                "import click": run_process((sys.executable, "-c", "import click"), environment),
                "--help": run_process((sys.executable, "-m", "pipelines", "--help"), environment),
                "import pandas, pyarrow": run_process((sys.executable, "-c", "import pandas, pyarrow"), environment),
                "ten rows": import_file(
                    sandbox, people_path, folder / str(round_number), "--quiet-period", "1ms"
                ).resource_usage,
            }
            if round_number:  # the first round fills the cache of the disk and is not measured
                for label, resource_usage in usage_by_label.items():
                    seconds_of_rounds_by_label[label].append(resource_usage.wall_s)
    return {
        label: statistics.median(seconds_of_rounds) for label, seconds_of_rounds in seconds_of_rounds_by_label.items()
    }


def main() -> None:
    """Measure the commands, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    seconds_by_label = measure_starts(parser.parse_args().rounds)
    print_table(("start", "seconds"), ((label, f"{seconds:.3f}") for label, seconds in seconds_by_label.items()))
    promises = [
        promise_at_most(
            "time of --help / time of import click",
            _MAX_RATIO_OF_HELP_TO_CLICK,
            seconds_by_label["--help"] / seconds_by_label["import click"],
            "{:.2f}",
        ),
        promise_at_most(
            "time of ten rows / time of import pandas, pyarrow",
            _MAX_RATIO_OF_IMPORT_TO_PANDAS,
            seconds_by_label["ten rows"] / seconds_by_label["import pandas, pyarrow"],
            "{:.2f}",
        ),
    ]
    print_promises(promises)
    print_json("start", describe_machine(), promises, seconds=seconds_by_label)


if __name__ == "__main__":
    main()
