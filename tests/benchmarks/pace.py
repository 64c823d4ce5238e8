"""How well the pace that the service allows is found: `connector import` under rate limits that it is not told of.

`python -m tests.benchmarks.pace [--seconds N] [--search N] [--rounds N]` imports into sandboxes that let 200 requests a
second in, 20 ms away, under each way to count and with Retry-After or without; under the first also by the script by
hand, whose urllib3 obeys Retry-After. It prints a table and a line of JSON. The promise is of the steady state: a run
counts from `--search` seconds (120) after its first create, for `--seconds` (180: about six pauses of a second, so that
one more or less is half a percent); what arrives while a Retry-After runs is counted from the first create to the last.

Promised are 95 % of what is allowed, at most 2 % refused, and nothing sent inside a Retry-After by a
connection that had brought it: whatever else arrives then may have been on its way.

`--chance` imports into sandboxes without a limit that refuse creates by chance, and compares with a script that sends
one create after the other and obeys Retry-After, in the same run. Promised is at most 1.3 times the script's time. A
503 without Retry-After may have taken effect: the import waits for two quiet periods before it sends such a create
again, and the script sends it again at once.

A run during which the machine itself stood still (this process, which only sleeps, woke up late) for more than 1 % of
the window is said to be so and made once more, twice at most.
"""

import argparse
import csv
import http.client
import json
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from connector.sandbox import SandboxProcess
from tests.benchmarks.creates import read_creates
from tests.benchmarks.importing import import_file
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.other_tools import BY_HAND, install
from tests.benchmarks.people import BASE_ID, write_people
from tests.benchmarks.processes import CommandError
from tests.benchmarks.tables import at_least, at_most, print_json, print_promises, print_table, write_number

RATE = 200  # requests/s
LATENCY_MS = 20

_REST_S = 10.0  # what the file is longer than the window: nobody ends within it
_POLL_S = 0.05
_START_WITHIN_S = 120.0
_LATE_S = 0.02  # that a sleep ends so late is nothing
_STILL = 0.01  # of the window
_MOST_RUNS = 3

_PROMISED_GOODPUT = 0.95
_PROMISED_REFUSED = 0.02

LIMITS = tuple(
    (limiter, retry_after)
    for limiter in ("bucket", "fixed_window", "sliding_window")
    for retry_after in ("seconds", "none")
)

OURS = "connector import"


_COLUMNS = (
    *("limiter", "Retry-After", "creates/s", "of allowed", "refused"),
    *("inside a Retry-After", "after it was told", "created", "twice", "machine stood still"),
)

Load = Callable[[SandboxProcess], object]


@dataclass(frozen=True, slots=True)
class Chance:
    """The share of creates that is refused, the status, the Retry-After (s; 0: none), the latency and the rows."""

    share: float
    status: int
    retry_after_s: int
    latency_ms: int
    rows: int

    def __str__(self) -> str:
        pause = f"Retry-After {self.retry_after_s} s" if self.retry_after_s else "no Retry-After"
        return f"{self.rows:,} rows, {self.share:.1%} {self.status}, {pause}, {self.latency_ms} ms"

    def start(self) -> SandboxProcess:
        """Return a sandbox that refuses so."""
        return SandboxProcess(
            refuse=self.share,
            limit_status=self.status,
            refuse_retry_after_s=self.retry_after_s,
            retry_after="seconds" if self.retry_after_s else "none",
            latency_ms=self.latency_ms,
            fault_operations="create",
        )


CHANCES = (
    Chance(0.01, 429, 1, 0, 2_000),
    Chance(0.01, 429, 1, LATENCY_MS, 2_000),
    Chance(0.05, 429, 5, LATENCY_MS, 400),
    Chance(0.001, 503, 0, LATENCY_MS, 2_000),
)


class EndedEarlyError(Exception):
    """A load that ended before it could be measured."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run; shares are of what is allowed and of what was sent, in the window; the rest is of the whole run, but for
    `still_s`: for so many seconds of the window the machine stood still."""

    client: str
    limiter: str
    retry_after: str
    goodput: float
    refused: float
    inside_retry_after: int
    told: int
    created: int
    duplicates: int
    still_s: float


@dataclass(frozen=True, slots=True)
class _Counts:
    """What the sandbox had counted by then: creates that succeeded, and of all requests those received and refused."""

    at: float
    created: int
    refused: int
    received: int


def measure(client: str, load: Load, limiter: str, retry_after: str, search_s: float, seconds: float) -> Measured:
    """Let the client load into a sandbox of its own, and look from outside. Raises CommandError and EndedEarlyError."""
    service = SandboxProcess(rate=RATE, latency_ms=LATENCY_MS, limiter=limiter, retry_after=retry_after)
    with service as sandbox, ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load, sandbox)
        first, last, still_s = _watch(sandbox, loading, search_s, seconds)
        loading.result()
        creates, inside = read_creates(sandbox), sandbox.stats()["inside_retry_after"]
    received = last.received - first.received
    return Measured(
        client,
        limiter,
        retry_after,
        (last.created - first.created) / (last.at - first.at) / RATE,
        (last.refused - first.refused) / received if received else float("nan"),
        inside["all"],
        inside["told"],
        len(creates.times),
        creates.duplicates,
        still_s,
    )


def measure_well(client: str, load: Load, limiter: str, retry_after: str, search_s: float, seconds: float) -> Measured:
    """The first run through which the machine did not stand still, or the last of three."""
    for _ in range(_MOST_RUNS - 1):
        measured = measure(client, load, limiter, retry_after, search_s, seconds)
        if measured.still_s <= _STILL * seconds:
            return measured
        print(
            f"once more: {client}, {limiter}, {retry_after}: {measured.goodput:.1%}, still for {measured.still_s:.1f} s"
        )
    return measure(client, load, limiter, retry_after, search_s, seconds)


def _watch(
    sandbox: SandboxProcess, loading: Future[object], search_s: float, seconds: float
) -> tuple[_Counts, _Counts, float]:
    """The counts at both ends of the window, and for how long the machine stood still in it."""
    deadline = time.monotonic() + _START_WITHIN_S
    while not _count(sandbox).received:
        if time.monotonic() > deadline:
            raise EndedEarlyError(f"nothing was sent within {_START_WITHIN_S:g} s")
        _rest(loading, _POLL_S)
    _rest(loading, search_s)
    first = _count(sandbox)
    still_s = _rest(loading, seconds)
    return first, _count(sandbox), still_s


def _rest(loading: Future[object], seconds: float) -> float:
    """Wait for so long; returns for how long of it this process was not woken up when it should have been."""
    now, still_s = time.monotonic(), 0.0
    deadline = now + seconds
    while (left := deadline - now) > 0:
        if loading.done():
            loading.result()
            raise EndedEarlyError("it ended before it could be measured")
        due_at = now + min(_POLL_S, left)
        time.sleep(due_at - now)
        now = time.monotonic()
        still_s += max(0.0, now - due_at - _LATE_S)
    return still_s


def _count(sandbox: SandboxProcess) -> _Counts:
    stats: dict[str, Any] = sandbox.stats()
    requests = stats["requests"]
    created = requests.get("create", {"answers": {}})["answers"].get("200", 0)
    received = sum(request["received"] for request in requests.values())
    return _Counts(time.monotonic(), created, stats["limited"], received)


def create_by_script(sandbox: SandboxProcess, path: Path) -> float:
    """Create a subscriber for each row, one after the other, and sleep for each Retry-After; return the seconds."""
    began_at = time.monotonic()
    connection = http.client.HTTPConnection(sandbox.base_url.removeprefix("http://"))
    headers = {"Authorization": sandbox.token, "Content-Type": "application/json"}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            email = next(value for value in row.values() if "@" in value)
            body = json.dumps({"Subscriber": {"Base": {"Id": BASE_ID}, "Email": email, "IsActive": True}})
            status = 0
            while status != http.client.OK:
                connection.request("POST", "/api/subscribers/create-subscriber/", body, headers)
                answer = connection.getresponse()
                answer.read()
                status = answer.status
                if status in (http.client.TOO_MANY_REQUESTS, http.client.SERVICE_UNAVAILABLE):
                    time.sleep(float(answer.headers.get("Retry-After", 0)))
                elif status != http.client.OK:
                    raise EndedEarlyError(f"the sandbox answered {status}")
    return time.monotonic() - began_at


def compare_chance(chances: Iterable[Chance]) -> None:
    """Import under refusals by chance beside the script, and print the times."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for index, chance in enumerate(chances):
            path = write_people(Path(folder) / "people.csv", chance.rows)
            with chance.start() as sandbox:
                script_s = create_by_script(sandbox, path)
            with chance.start() as sandbox:
                began_at = time.monotonic()
                rows = import_file(sandbox, path, Path(folder) / f"state-{index}").rows
                ours_s = time.monotonic() - began_at
                creates, inside = read_creates(sandbox), sandbox.stats()["inside_retry_after"]
            share = f"{ours_s / script_s:.2f}"
            counts = f"{rows['created']:,}, {creates.duplicates}, {inside['told']}"
            lines.append((str(chance), f"{script_s:.1f} s", f"{ours_s:.1f} s", share, counts))
    print_table(("refused by chance", "script", OURS, "share", "created, twice, inside a pause"), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--search", type=float, default=120.0, help="seconds before a run counts")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--chance", action="store_true", help="refuse by chance, without a limit")
    options = parser.parse_args()
    if options.chance:
        compare_chance(CHANCES)
        return
    machine = describe_machine()
    rows = int(RATE * (options.search + options.seconds + _REST_S))
    measured: list[Measured] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path = write_people(Path(folder) / "people.csv", rows)
        for _ in range(options.rounds):
            for client, load, limit in list_runs(path, failed):
                try:
                    measured.append(measure_well(client, load, *limit, options.search, options.seconds))
                except (CommandError, EndedEarlyError) as error:
                    failed.append(f"{client}, {', '.join(limit)}: {error}")
    show(measured, failed, rows, machine)


def list_runs(path: Path, failed: list[str]) -> list[tuple[str, Load, tuple[str, str]]]:
    """Who loads, how, and under which limit: the script by hand after ours under the first."""

    def load_ours(sandbox: SandboxProcess) -> object:
        with tempfile.TemporaryDirectory() as state:
            return import_file(sandbox, path, Path(state))

    ours: list[tuple[str, Load, tuple[str, str]]] = [(OURS, load_ours, limit) for limit in LIMITS]
    try:
        by_hand = install(BY_HAND)
    except CommandError as error:
        failed.append(f"{BY_HAND.name}: it could not be installed: {error}")
        return ours
    return [ours[0], (by_hand.name, lambda sandbox: by_hand.load(sandbox, path), LIMITS[0]), *ours[1:]]


def show(measured: list[Measured], failed: list[str], rows: int, machine: dict[str, object]) -> None:
    print_table((f"{RATE} requests/s allowed", *_COLUMNS), (_build_line(result, rows) for result in measured))
    for reason in failed:
        print(f"left out: {reason}")
    ours = [result for result in measured if result.client == OURS]
    is_whole = len({(result.limiter, result.retry_after) for result in ours}) == len(LIMITS)
    goodput, refused, inside = (
        pick((getattr(own, name) for own in ours), default=float("nan")) if is_whole else float("nan")
        for pick, name in ((min, "goodput"), (max, "refused"), (max, "told"))
    )
    promises = [
        at_least("of the allowed rate, in the worst of them", _PROMISED_GOODPUT, goodput, "{:.1%}"),
        at_most("refused, in the worst of them", _PROMISED_REFUSED, refused, "{:.2%}"),
        at_most("sent inside a Retry-After, in the worst of them", 0, inside, "{:.0f}"),
    ]
    print_promises(promises)
    print_json("pace", machine, promises, rows=rows, rate=RATE, left_out=failed, runs=list(map(asdict, measured)))


def _build_line(result: Measured, rows: int) -> tuple[str, ...]:
    return (
        result.client,
        result.limiter,
        result.retry_after,
        f"{result.goodput * RATE:.1f}",
        f"{result.goodput:.1%}",
        write_number("{:.2%}", result.refused),
        f"{result.inside_retry_after:,}",
        f"{result.told:,}",
        f"{result.created:,} of {rows:,}",
        f"{result.duplicates:,}",
        f"{result.still_s:.1f} s",
    )


if __name__ == "__main__":
    main()
