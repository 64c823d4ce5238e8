"""The pace of creates with a latency of 20 ms: `connector import`, the bare loop and a handwritten script.

`python -m tests.benchmarks.load_latency [--rows N] [--rounds N] [--fresh]` runs them in turn against one sandbox, and
prints a table and a line of JSON. The project promises three figures:

- With the default settings: 90 % of the bound, which is 64 requests in flight divided by 20 ms.
- With 64 requests in flight: 90 % of the bare loop. On a shared machine, a round trip takes every client more than 20
  ms.
- Twice the pace of the handwritten script.

Each pace is measured with the times of the sandbox's truth log, in creates/s from the first create to the last. So no
pace contains the start of a process. `steady` leaves out the first two seconds, in which an import finds its pace; a
short run has no steady pace. The script's environment is made once and kept in the user's cache. `--fresh` makes a new
environment.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from connector.sandbox import SandboxProcess
from tests.benchmarks.bare_loop import IN_FLIGHT
from tests.benchmarks.contestants import PACE_FOUND_S, Contestant, enter_bare_loop, enter_import, enter_tool
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.other_tools import BY_HAND, remove_environments
from tests.benchmarks.people import write_bodies, write_people
from tests.benchmarks.tables import at_least, print_json, print_promises, print_table, write_number

LATENCY_MS = 20
MAX_CREATES_PER_S = IN_FLIGHT * 1000 / LATENCY_MS  # creates/s

_PROMISED_SHARE_OF_MAX = 0.9
_PROMISED_RATIO_TO_SCRIPT = 2.0

_COLUMNS = ("rows", "creates/s", "steady", "of bound", "x by hand", "whole process", "most in flight", "CPU µs/row")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fresh", action="store_true")
    options = parser.parse_args()
    machine = describe_machine()
    if options.fresh:
        remove_environments()
    with tempfile.TemporaryDirectory() as folder, SandboxProcess(latency_ms=LATENCY_MS) as sandbox:
        contestants = build_contestants(Path(folder), options.rows)
        for _ in range(options.rounds):
            for contestant in contestants:
                contestant.run(sandbox)
    show(contestants, options.rounds, machine)


def build_contestants(folder: Path, rows: int) -> list[Contestant]:
    """Return the contestants in the order that `show` expects: two imports, the bare loop and the script."""
    path = write_people(folder / "people.csv", rows)
    bodies = write_bodies(folder / "bodies.jsonl", rows)
    concurrency_options = ("--max-concurrency", str(IN_FLIGHT))
    return [
        enter_import("connector import", path, rows),
        enter_import(f"connector import, {IN_FLIGHT} in flight", path, rows, *concurrency_options),
        enter_bare_loop(f"bare aiohttp loop, {IN_FLIGHT} in flight", bodies, rows),
        enter_tool(BY_HAND, path, rows),
    ]


def show(contestants: Sequence[Contestant], rounds: int, machine: dict[str, object]) -> None:
    default_import, limited_import, bare_loop, loop_by_hand = contestants
    print_table(
        (f"{LATENCY_MS} ms away, {rounds} rounds", *_COLUMNS),
        [_build_line(contestant, loop_by_hand) for contestant in contestants],
    )
    print(f"\nbound: {IN_FLIGHT} requests in flight, each takes {LATENCY_MS} ms: {MAX_CREATES_PER_S:,.0f} creates/s")
    print(f"steady: without the first {PACE_FOUND_S:g} s. A run that has a steady pace is compared by its steady pace.")
    for contestant in contestants:
        if contestant.exclusion_reason is not None:
            print(f"left out: {contestant.name}: {contestant.exclusion_reason}")
    share_of_max = default_import.median.steady_per_s / MAX_CREATES_PER_S
    ratio_to_loop = limited_import.median.steady_per_s / bare_loop.median.steady_per_s
    promises = [
        at_least("share of the bound, steady, default settings", _PROMISED_SHARE_OF_MAX, share_of_max, "{:.1%}"),
        at_least(
            f"share of the bare loop's pace, steady, {IN_FLIGHT} in flight",
            _PROMISED_SHARE_OF_MAX,
            ratio_to_loop,
            "{:.1%}",
        ),
        at_least(
            "times the pace of the handwritten script, steady",
            _PROMISED_RATIO_TO_SCRIPT,
            _compare(default_import, loop_by_hand),
            "{:.2f} x",
        ),
    ]
    print_promises(promises)
    figures = [
        {
            "name": contestant.name,
            "rows": contestant.rows,
            "left_out": contestant.exclusion_reason,
            "rounds": [asdict(run) for run in contestant.runs],
        }
        for contestant in contestants
    ]
    print_json(
        "load_latency", machine, promises, latency_ms=LATENCY_MS, bound_per_s=MAX_CREATES_PER_S, contestants=figures
    )


def _build_line(contestant: Contestant, loop_by_hand: Contestant) -> tuple[str, ...]:
    median = contestant.median
    return (
        contestant.name,
        f"{contestant.rows:,}",
        write_number("{:,.0f}", median.per_s),
        write_number("{:,.0f}", median.steady_per_s),
        write_number("{:.1%}", median.pace / MAX_CREATES_PER_S),
        write_number("{:.2f}", _compare(contestant, loop_by_hand)),
        write_number("{:,.0f}", median.whole_per_s),
        write_number("{:.0f}", median.peak_in_flight),
        write_number("{:,.0f}", median.cpu_us_per_row),
    )


def _compare(contestant: Contestant, loop_by_hand: Contestant) -> float:
    """Return the median ratio of the contestant's pace to the script's pace in the same round."""
    if contestant.exclusion_reason is not None or loop_by_hand.exclusion_reason is not None:
        return float("nan")
    pairs = zip(contestant.runs, loop_by_hand.runs, strict=True)
    return statistics.median(run.pace / script_run.pace for run, script_run in pairs)


if __name__ == "__main__":
    main()
