"""How fast people are created at a distance of 20 ms: `connector import` and a script by hand.

`python -m tests.benchmarks.load_latency [--rows N] [--rounds N] [--fresh]` runs them in turn against one sandbox, and
prints a table and a line of JSON. Promised are, with no setting touched, 90 % of what 64 requests in flight allow (64
by 20 ms); with as many in flight 90 % of the bare loop, since on a shared machine a round trip takes longer than 20 ms
for anybody; and twice the pace of the script.

Every pace is the sandbox's, by the times of its truth log: creates/s from the first to the last, so that no start of a
process is in it. `steady` leaves out its first two seconds, in which an import finds its pace; a shorter run has none.
The script's environment is made once and kept in the user's cache; `--fresh` makes it anew.
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
BOUND = IN_FLIGHT * 1000 / LATENCY_MS  # creates/s

_PROMISED_OF_BOUND = 0.9
_PROMISED_OF_BY_HAND = 2.0

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
        contestants = enter_all(Path(folder), options.rows)
        for _ in range(options.rounds):
            for contestant in contestants:
                contestant.run(sandbox)
    show(contestants, options.rounds, machine)


def enter_all(folder: Path, rows: int) -> list[Contestant]:
    """Everyone, in the order of their turns: first the two imports, the bare loop and the script, as `show` has it."""
    path = write_people(folder / "people.csv", rows)
    bodies = write_bodies(folder / "bodies.jsonl", rows)
    limit = ("--max-concurrency", str(IN_FLIGHT))
    return [
        enter_import("connector import", path, rows),
        enter_import(f"connector import, {IN_FLIGHT} in flight", path, rows, *limit),
        enter_bare_loop(f"bare aiohttp loop, {IN_FLIGHT} in flight", bodies, rows),
        enter_tool(BY_HAND, path, rows),
    ]


def show(contestants: Sequence[Contestant], rounds: int, machine: dict[str, object]) -> None:
    ours, limited, bare, by_hand = contestants
    print_table(
        (f"{LATENCY_MS} ms away, {rounds} rounds", *_COLUMNS),
        [_build_line(contestant, by_hand) for contestant in contestants],
    )
    print(f"\nbound: {IN_FLIGHT} in flight, {LATENCY_MS} ms contestant: {BOUND:,.0f}/s")
    print(
        f"steady: without the first {PACE_FOUND_S:g} s; the bound and the script are compared by it, where there is one"
    )
    for entrant in contestants:
        if entrant.left_out is not None:
            print(f"left out: {entrant.name}: {entrant.left_out}")
    of_bound = ours.median.steady_per_s / BOUND
    of_bare = limited.median.steady_per_s / bare.median.steady_per_s
    promises = [
        at_least("of the bound, steady, no setting touched", _PROMISED_OF_BOUND, of_bound, "{:.1%}"),
        at_least(f"of the bare loop, steady, {IN_FLIGHT} in flight", _PROMISED_OF_BOUND, of_bare, "{:.1%}"),
        at_least("times the script by hand, steady", _PROMISED_OF_BY_HAND, _compare(ours, by_hand), "{:.2f} x"),
    ]
    print_promises(promises)
    figures = [
        {"name": it.name, "rows": it.rows, "left_out": it.left_out, "rounds": [asdict(run) for run in it.runs]}
        for it in contestants
    ]
    print_json("load_latency", machine, promises, latency_ms=LATENCY_MS, bound_per_s=BOUND, contestants=figures)


def _build_line(contestant: Contestant, by_hand: Contestant) -> tuple[str, ...]:
    median = contestant.median
    return (
        contestant.name,
        f"{contestant.rows:,}",
        write_number("{:,.0f}", median.per_s),
        write_number("{:,.0f}", median.steady_per_s),
        write_number("{:.1%}", median.pace / BOUND),
        write_number("{:.2f}", _compare(contestant, by_hand)),
        write_number("{:,.0f}", median.whole_per_s),
        write_number("{:.0f}", median.peak_in_flight),
        write_number("{:,.0f}", median.cpu_us_per_row),
    )


def _compare(one: Contestant, by_hand: Contestant) -> float:
    """The median, over the rounds, of one's pace by that of the script in the same round."""
    if one.left_out is not None or by_hand.left_out is not None:
        return float("nan")
    pairs = zip(one.runs, by_hand.runs, strict=True)
    return statistics.median(run.pace / other.pace for run, other in pairs)


if __name__ == "__main__":
    main()
