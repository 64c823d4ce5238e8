"""What an engine of several workers reaches, and what it costs: `connector import --engine dask`.

`python -m tests.benchmarks.engine [--seconds N] [--search N] [--rounds N] [--only pace|latency|cost]` imports into
sandboxes, with a ledger in PostgreSQL, and prints tables and a line of JSON.

- pace: the service lets 600 requests a second in, and three workers find that together. Counted from `--search` seconds
  after the first create, for `--seconds`. Promised are 90 % of what is allowed, at most 3 % refused, and the shares of
  the workers within a factor of two.
- latency: the service is 100 ms away and each worker has 32 requests in flight; three workers and one. Promised is 2.7
  times the pace, without the first ten seconds.
- cost: one worker and no engine, each with the same file and nothing else to wait for. Promised is that the pace, from
  the first create to the last, is at most 15 % less. What the start of the engine takes is in the whole time beside it.
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from connector.sandbox import SandboxProcess
from tests.benchmarks.creates import read_creates
from tests.benchmarks.importing import import_file
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.people import write_people
from tests.benchmarks.tables import Promise, at_least, at_most, print_json, print_promises, print_table
from tests.databases import open_postgres, stop_postgres

RATE = 600  # requests/s
WORKERS = 3
BLOCK = 1_000  # rows of a file that go to one part, before the next part has its turn
IN_FLIGHT = 32
LATENCY_MS = 100

_SKIP_S = 10.0  # in which pace and requests in flight are found
_ENGINE = ("--engine", "dask", "--workers")


@dataclass(frozen=True, slots=True)
class Run:
    """One import: creates/s, perhaps without the beginning, and the time of the whole command."""

    name: str
    per_s: float
    whole_s: float
    created: int
    duplicates: int


def run(name: str, sandbox: SandboxProcess, folder: Path, rows: int, *options: str, skip_s: float = 0.0) -> Run:
    """Import so many rows into an empty service, with a ledger of its own."""
    sandbox.reset()
    path = write_people(folder / f"people-{rows}.csv", rows)
    with open_postgres() as database, tempfile.TemporaryDirectory(dir=folder) as state:
        imported = import_file(sandbox, path, Path(state), *options, ledger=database.url)
    creates = read_creates(sandbox)
    return Run(name, creates.compute_rate(skip_s), imported.spent.wall_s, len(creates.times), creates.duplicates)


def measure_pace(folder: Path, search_s: float, seconds: float) -> tuple[list[Promise], dict[str, object]]:
    """Three workers under one limit."""
    rows = int(RATE * (search_s + seconds) * 1.1)
    with SandboxProcess(rate=RATE, latency_ms=20) as sandbox:
        counted: list[tuple[float, int, int]] = []
        watching = threading.Thread(target=_watch, args=(sandbox, search_s, seconds, counted), daemon=True)
        watching.start()
        whole = run(f"{WORKERS} workers", sandbox, folder, rows, *_ENGINE, str(WORKERS))
        watching.join()
        events = [event for event in sandbox.truth()["events"] if event["kind"] == "created"]
    (began, received, refused), (ended, received_by, refused_by) = counted
    within = [event for event in events if began <= event["at"] < ended]
    parts = Counter(_find_part(event["subscriber"]["Email"]) for event in within)
    shares = [parts[part] / len(within) for part in range(WORKERS)]
    goodput = len(within) / (ended - began) / RATE
    refusals = (refused_by - refused) / max(1, received_by - received)
    print_table(
        ("pace", "creates/s", "of allowed", "refused", "shares"),
        [
            (
                f"{RATE}/s allowed, {WORKERS} workers",
                f"{len(within) / (ended - began):,.0f}",
                f"{goodput:.1%}",
                f"{refusals:.2%}",
                " ".join(f"{share:.1%}" for share in shares),
            )
        ],
    )
    promises = [
        at_least("of the allowed rate", 0.9, goodput, "{:.1%}"),
        at_most("refused", 0.03, refusals, "{:.2%}"),
        at_most("largest share by the smallest", 2.0, max(shares) / max(min(shares), 1e-9), "{:.2f}"),
        at_most("twice", 0, whole.duplicates, "{:.0f}"),
    ]
    return promises, {"goodput": goodput, "refused": refusals, "shares": shares, "run": asdict(whole)}


def _watch(sandbox: SandboxProcess, search_s: float, seconds: float, counted: list[tuple[float, int, int]]) -> None:
    """Count what the service has received and refused, at the window's beginning and end."""
    while not sandbox.stats()["requests"].get("create", {"received": 0})["received"]:
        time.sleep(0.1)
    for wait_s in (search_s, seconds):
        time.sleep(wait_s)
        stats = sandbox.stats()
        received = sum(each["received"] for each in stats["requests"].values())
        counted.append((time.time(), received, stats["limited"]))


def _find_part(email: str) -> int:
    return int(email.removeprefix("person").partition("@")[0]) // BLOCK % WORKERS


def measure_latency(folder: Path, rounds: int, seconds: float) -> tuple[list[Promise], dict[str, object]]:
    """One worker and three, where only the distance bounds them."""
    limit = ("--max-concurrency", str(IN_FLIGHT))
    each = int(IN_FLIGHT * 1000 / LATENCY_MS * (_SKIP_S + seconds))
    runs: dict[int, list[Run]] = {1: [], WORKERS: []}
    with SandboxProcess(latency_ms=LATENCY_MS) as sandbox:
        for _ in range(rounds):
            for workers, so_far in runs.items():
                name = f"{workers} workers, {IN_FLIGHT} in flight each"
                options = (*limit, *_ENGINE, str(workers))
                so_far.append(run(name, sandbox, folder, each * workers, *options, skip_s=_SKIP_S))
    _show(f"{LATENCY_MS} ms away", [*runs[1], *runs[WORKERS]])
    times = statistics.median(many.per_s / one.per_s for one, many in zip(runs[1], runs[WORKERS], strict=True))
    promises = [at_least(f"times the pace of one worker, by {WORKERS}", 2.7, times, "{:.2f}")]
    return promises, {"times": times, "runs": [asdict(each) for each in (*runs[1], *runs[WORKERS])]}


def measure_cost(folder: Path, rounds: int, rows: int) -> tuple[list[Promise], dict[str, object]]:
    """No engine and one worker, at equal work."""
    alone, engine = list[Run](), list[Run]()
    with SandboxProcess() as sandbox:
        for _ in range(rounds):
            alone.append(run("no engine", sandbox, folder, rows))
            engine.append(run("one worker", sandbox, folder, rows, *_ENGINE, "1"))
    _show("nothing to wait for", [*alone, *engine])
    less = statistics.median(1 - it.per_s / other.per_s for it, other in zip(engine, alone, strict=True))
    start_s = statistics.median(it.whole_s - other.whole_s for it, other in zip(engine, alone, strict=True))
    print(f"\nthe whole command takes {start_s:.1f} s longer with the engine ({rows:,} rows)")
    promises = [at_most("slower by one worker than without an engine", 0.15, less, "{:.1%}")]
    return promises, {"slower": less, "longer_s": start_s, "runs": [asdict(each) for each in (*alone, *engine)]}


def _show(what: str, runs: list[Run]) -> None:
    lines = [(it.name, f"{it.created:,}", f"{it.per_s:,.0f}", f"{it.whole_s:.1f} s", str(it.duplicates)) for it in runs]
    print_table((what, "created", "creates/s", "whole", "twice"), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--search", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=60_000, help="of each run that measures the cost")
    parser.add_argument("--only", choices=("pace", "latency", "cost"))
    options = parser.parse_args()
    machine, promises = describe_machine(), list[Promise]()
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measures: dict[str, Callable[[], tuple[list[Promise], dict[str, object]]]] = {
            "pace": lambda: measure_pace(folder, options.search, options.seconds),
            "latency": lambda: measure_latency(folder, options.rounds, options.seconds),
            "cost": lambda: measure_cost(folder, options.rounds, options.rows),
        }
        for what, measure in measures.items():
            if options.only in (None, what):
                promised, figures[what] = measure()
                promises += promised
                print()
    stop_postgres()
    print_promises(promises)
    print_json("engine", machine, promises, **figures)


if __name__ == "__main__":
    main()
