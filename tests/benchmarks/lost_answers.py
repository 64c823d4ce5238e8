"""What becomes of creates whose answer is lost: `connector import`, a script by hand, dlt and drt.

`python -m tests.benchmarks.lost_answers [--rows N] [--other-rows N] [--share S]` runs each against a sandbox that
stores a create and then cuts the connection, for a share of the creates (2 %), and prints a table and a line of JSON.
What was created more than once, and what was not, is counted in the sandbox's truth log. The promise is 0 and 0. dlt
and drt load fewer rows. The import takes at least two quiet periods (30 s each): it looks up each create whose answer
was lost.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from connector.sandbox import SandboxProcess
from tests.benchmarks.creates import read_creates
from tests.benchmarks.importing import import_file
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.other_tools import BY_HAND, Tool, install, list_tools
from tests.benchmarks.people import write_people
from tests.benchmarks.processes import CommandError
from tests.benchmarks.tables import at_most, print_json, print_promises, print_table

OURS = "connector import"


def main() -> None:
    """Load by each, and show what the sandbox stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--other-rows", type=int, default=2_000)
    parser.add_argument("--share", type=float, default=0.02)
    options = parser.parse_args()
    machine = describe_machine()
    with tempfile.TemporaryDirectory() as folder, SandboxProcess(drop_after=options.share) as sandbox:
        path = write_people(Path(folder) / "people.csv", options.rows)
        fewer = write_people(Path(folder) / "fewer.csv", options.other_rows)
        state = Path(folder) / "state"
        figures = [measure(sandbox, OURS, options.rows, lambda: import_file(sandbox, path, state))]
        figures.append(measure_tool(sandbox, BY_HAND, path, options.rows))
        figures += [measure_tool(sandbox, tool, fewer, options.other_rows) for tool in list_tools(options.other_rows)]
    print_table(
        (f"{options.share:.0%} of answers lost", "rows", "duplicates", "not created", "said"),
        [[str(each[key]) for key in ("name", "rows", "duplicates", "missing", "said")] for each in figures],
    )
    promises = [
        at_most(f"subscribers {what}", 0, float(str(figures[0][key])), "{:.0f}")
        for what, key in (("created more than once", "duplicates"), ("not created", "missing"))
    ]
    print_promises(promises)
    print_json("lost_answers", machine, promises, share=options.share, figures=figures)


def measure_tool(sandbox: SandboxProcess, tool: Tool, path: Path, rows: int) -> dict[str, object]:
    """Load by a tool, in its own environment."""
    installed = install(tool)
    return measure(sandbox, installed.name, rows, lambda: installed.load(sandbox, path))


def measure(sandbox: SandboxProcess, name: str, rows: int, load: Callable[[], object]) -> dict[str, object]:
    """Load into the emptied sandbox; a tool that ends with an error has created what it has."""
    sandbox.reset()
    try:
        load()
        said = "success"
    except CommandError as error:
        said = f"failure: {str(error)[-80:]}"
    creates = read_creates(sandbox)
    missing = rows - len(creates.stored)
    return {"name": name, "rows": rows, "duplicates": creates.duplicates, "missing": missing, "said": said}


if __name__ == "__main__":
    main()
