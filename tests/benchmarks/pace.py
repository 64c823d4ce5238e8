"""The pace of `connector import` under rate limits that the import does not know.

`python -m tests.benchmarks.pace [--seconds N] [--search N] [--rounds N]` imports into sandboxes that allow 200 requests
a second, with 20 ms latency. There is a sandbox for each kind of limiter, with and without Retry-After. A handwritten
script also loads into the first sandbox. The script uses urllib3, which obeys Retry-After. The benchmark prints a table
and a line of JSON.

The measured time of a run begins `--search` seconds (120) after the first create, and lasts `--seconds` (180). The
measured time has about six pauses of a second, so one pause more or less changes the result by half a percent. The
first two promises are about the measured time, and the third promise is about the whole run. The project promises:

- at least 95 % of the allowed rate;
- at most 2 % refused requests;
- a connection that has received a Retry-After sends no request before the end of the pause. Requests on other
  connections may have been under way when the sandbox asked for the pause.

`--chance` imports into sandboxes that have no limit and refuse a random share of the creates. A script loads the same
file: the script sends one create after another and obeys Retry-After. The project promises that the import takes at
most 1.3 times as long as the script. A create that is answered 503 without Retry-After may have taken effect. The
import waits for two quiet periods before it sends such a create again, and the script sends it again at once.

If the machine stalled for more than 1 % of the measured time, the run is repeated, at most twice. The process of the
benchmark only sleeps during a run. If this process wakes up late, the machine has stalled.
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
from tests.benchmarks.tables import (
    format_number,
    print_json,
    print_promises,
    print_table,
    promise_at_least,
    promise_at_most,
)

ALLOWED_RATE = 200  # requests/s
LATENCY_MS = 20

_EXTRA_ROWS_S = 10.0  # the file has rows for this many additional seconds, so that no load ends early
_POLL_S = 0.05
_START_TIMEOUT_S = 120.0
_USUAL_WAKE_UP_DELAY_S = 0.02  # a sleep may end this late on a machine that does not stall
_MAX_STALL_SHARE = 0.01  # share of the measured time
_MAX_RUN_COUNT = 3

_PROMISED_GOODPUT = 0.95
_PROMISED_REFUSED_SHARE = 0.02

RATE_LIMITS = tuple(
    (limiter, retry_after)
    for limiter in ("bucket", "fixed_window", "sliding_window")
    for retry_after in ("seconds", "none")
)

OUR_CLIENT = "connector import"


_COLUMN_TITLES = (
    *("limiter", "Retry-After", "creates/s", "of allowed", "refused"),
    *("requests inside a pause", "on the paused connection", "created", "created twice", "machine stalled"),
)

Load = Callable[[SandboxProcess], object]


@dataclass(frozen=True, slots=True)
class RandomRefusals:
    """A sandbox that refuses a random share of the creates, and the number of rows to load."""

    refused_share: float  # share of the creates that are refused
    status: int  # status of the refusals
    retry_after_s: int  # 0: no Retry-After
    latency_ms: int
    row_count: int

    def __str__(self) -> str:
        pause_text = f"Retry-After {self.retry_after_s} s" if self.retry_after_s else "no Retry-After"
        return f"{self.row_count:,} rows, {self.refused_share:.1%} {self.status}, {pause_text}, {self.latency_ms} ms"

    def start(self) -> SandboxProcess:
        """Return a sandbox with these refusals."""
        return SandboxProcess(
            refuse=self.refused_share,
            limit_status=self.status,
            refuse_retry_after_s=self.retry_after_s,
            retry_after="seconds" if self.retry_after_s else "none",
            latency_ms=self.latency_ms,
            fault_operations="create",
        )


RANDOM_REFUSALS = (
    RandomRefusals(0.01, 429, 1, 0, 2_000),
    RandomRefusals(0.01, 429, 1, LATENCY_MS, 2_000),
    RandomRefusals(0.05, 429, 5, LATENCY_MS, 400),
    RandomRefusals(0.001, 503, 0, LATENCY_MS, 2_000),
)


class LoadEndedEarlyError(Exception):
    """A load that ended before the end of the measured time."""


@dataclass(frozen=True, slots=True)
class PaceMeasurement:
    """The measurements of one run. The counts are of the whole run."""

    client: str
    limiter: str
    retry_after: str
    goodput: float  # creates in the measured time, as a share of the allowed requests
    refused_share: float  # refused requests in the measured time, as a share of all requests
    request_count_inside_pause: int  # requests that arrived during a pause that a Retry-After asked for
    disobedient_request_count: int  # requests during a pause, on the connection that received the Retry-After
    created_count: int
    duplicate_count: int
    stalled_s: float  # seconds of the measured time in which the machine stalled


@dataclass(frozen=True, slots=True)
class _SandboxCounts:
    """The counts of the sandbox at the time `counted_at`: successful creates, refused requests and received
    requests."""

    counted_at: float
    created_count: int
    refused_count: int
    received_request_count: int


def measure_pace(
    client: str, load: Load, limiter: str, retry_after: str, search_s: float, measurement_s: float
) -> PaceMeasurement:
    """Load into a new sandbox, and measure the load by the counts of the sandbox. Raise CommandError or
    LoadEndedEarlyError if the load fails."""
    new_sandbox = SandboxProcess(rate=ALLOWED_RATE, latency_ms=LATENCY_MS, limiter=limiter, retry_after=retry_after)
    with new_sandbox as sandbox, ThreadPoolExecutor(1) as pool:
        load_future = pool.submit(load, sandbox)
        counts_before, counts_after, stalled_s = _measure_counts(sandbox, load_future, search_s, measurement_s)
        load_future.result()
        creates, request_counts_inside_pause = read_creates(sandbox), sandbox.stats()["inside_retry_after"]
    received_request_count = counts_after.received_request_count - counts_before.received_request_count
    return PaceMeasurement(
        client,
        limiter,
        retry_after,
        (counts_after.created_count - counts_before.created_count)
        / (counts_after.counted_at - counts_before.counted_at)
        / ALLOWED_RATE,
        (counts_after.refused_count - counts_before.refused_count) / received_request_count
        if received_request_count
        else float("nan"),
        request_counts_inside_pause["all"],
        request_counts_inside_pause["told"],
        len(creates.stored_times),
        creates.duplicate_count,
        stalled_s,
    )


def measure_without_stall(
    client: str, load: Load, limiter: str, retry_after: str, search_s: float, measurement_s: float
) -> PaceMeasurement:
    """Measure up to three runs. Return the first run that stalled for at most `_MAX_STALL_SHARE`, or the last run."""
    for _ in range(_MAX_RUN_COUNT - 1):
        measurement = measure_pace(client, load, limiter, retry_after, search_s, measurement_s)
        if measurement.stalled_s <= _MAX_STALL_SHARE * measurement_s:
            return measurement
        print(
            f"repeat {client}, {limiter}, {retry_after}: {measurement.goodput:.1%}, stall {measurement.stalled_s:.1f} s"
        )
    return measure_pace(client, load, limiter, retry_after, search_s, measurement_s)


def _measure_counts(
    sandbox: SandboxProcess, load_future: Future[object], search_s: float, measurement_s: float
) -> tuple[_SandboxCounts, _SandboxCounts, float]:
    """Return the counts at the start and at the end of the measured time, and for how many seconds the machine
    stalled."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not _read_counts(sandbox).received_request_count:
        if time.monotonic() > deadline:
            raise LoadEndedEarlyError(f"the client sent nothing within {_START_TIMEOUT_S:g} s")
        _sleep_while_loading(load_future, _POLL_S)
    _sleep_while_loading(load_future, search_s)
    counts_before = _read_counts(sandbox)
    stalled_s = _sleep_while_loading(load_future, measurement_s)
    return counts_before, _read_counts(sandbox), stalled_s


def _sleep_while_loading(load_future: Future[object], seconds: float) -> float:
    """Sleep for `seconds` while the load runs. Return the seconds in which the machine stalled."""
    now, stalled_s = time.monotonic(), 0.0
    deadline = now + seconds
    while (remaining_s := deadline - now) > 0:
        if load_future.done():
            load_future.result()
            raise LoadEndedEarlyError("the load ended before the measured time was over")
        due_at = now + min(_POLL_S, remaining_s)
        time.sleep(due_at - now)
        now = time.monotonic()
        stalled_s += max(0.0, now - due_at - _USUAL_WAKE_UP_DELAY_S)
    return stalled_s


def _read_counts(sandbox: SandboxProcess) -> _SandboxCounts:
    stats: dict[str, Any] = sandbox.stats()
    counts_by_operation = stats["requests"]
    created_count = counts_by_operation.get("create", {"answers": {}})["answers"].get("200", 0)
    received_request_count = sum(counts["received"] for counts in counts_by_operation.values())
    return _SandboxCounts(time.monotonic(), created_count, stats["limited"], received_request_count)


def measure_script_s(sandbox: SandboxProcess, path: Path) -> float:
    """Create a subscriber for each row, one after another, and obey Retry-After. Return the duration in seconds."""
    started_at = time.monotonic()
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
                    raise LoadEndedEarlyError(f"the sandbox answered {status}")
    return time.monotonic() - started_at


def compare_with_random_refusals(cases: Iterable[RandomRefusals]) -> None:
    """Load the same file with the import and with the script, for each case of random refusals. Print the times."""
    table_rows = []
    with tempfile.TemporaryDirectory() as folder:
        for index, random_refusals in enumerate(cases):
            path = write_people(Path(folder) / "people.csv", random_refusals.row_count)
            with random_refusals.start() as sandbox:
                script_s = measure_script_s(sandbox, path)
            with random_refusals.start() as sandbox:
                started_at = time.monotonic()
                row_counts = import_file(sandbox, path, Path(folder) / f"state-{index}").row_counts
                import_s = time.monotonic() - started_at
                creates, request_counts_inside_pause = read_creates(sandbox), sandbox.stats()["inside_retry_after"]
            time_ratio = f"{import_s / script_s:.2f}"
            count_texts = (
                f"{row_counts['created']:,}",
                str(creates.duplicate_count),
                str(request_counts_inside_pause["told"]),
            )
            table_rows.append(
                (str(random_refusals), f"{script_s:.1f} s", f"{import_s:.1f} s", time_ratio, *count_texts)
            )
    count_headings = ("created", "created twice", "requests inside a pause on the paused connection")
    print_table(("random refusals", "script", OUR_CLIENT, "import / script", *count_headings), table_rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument(
        "--search", type=float, default=120.0, help="seconds from the first create to the measured time"
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--chance", action="store_true", help="measure sandboxes that refuse a random share of the creates"
    )
    options = parser.parse_args()
    if options.chance:
        compare_with_random_refusals(RANDOM_REFUSALS)
        return
    machine_description = describe_machine()
    row_count = int(ALLOWED_RATE * (options.search + options.seconds + _EXTRA_ROWS_S))
    measurements: list[PaceMeasurement] = []
    failure_messages: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path = write_people(Path(folder) / "people.csv", row_count)
        for _ in range(options.rounds):
            for client, load, rate_limit in list_loads(path, failure_messages):
                try:
                    measurements.append(
                        measure_without_stall(client, load, *rate_limit, options.search, options.seconds)
                    )
                except (CommandError, LoadEndedEarlyError) as error:
                    failure_messages.append(f"{client}, {', '.join(rate_limit)}: {error}")
    print_results(measurements, failure_messages, row_count, machine_description)


def list_loads(path: Path, failure_messages: list[str]) -> list[tuple[str, Load, tuple[str, str]]]:
    """Return the loads to measure: the name of a client, a function that loads, and a rate limit of `RATE_LIMITS`. The
    import loads under each limit, and the handwritten script only under the first limit."""

    def load_by_import(sandbox: SandboxProcess) -> object:
        with tempfile.TemporaryDirectory() as state_folder:
            return import_file(sandbox, path, Path(state_folder))

    import_loads: list[tuple[str, Load, tuple[str, str]]] = [
        (OUR_CLIENT, load_by_import, rate_limit) for rate_limit in RATE_LIMITS
    ]
    try:
        script = install(BY_HAND)
    except CommandError as error:
        failure_messages.append(f"{BY_HAND.name}: installation failed: {error}")
        return import_loads
    return [
        import_loads[0],
        (script.name, lambda sandbox: script.load(sandbox, path), RATE_LIMITS[0]),
        *import_loads[1:],
    ]


def print_results(
    measurements: list[PaceMeasurement],
    failure_messages: list[str],
    row_count: int,
    machine_description: dict[str, object],
) -> None:
    print_table(
        (f"{ALLOWED_RATE} requests/s allowed", *_COLUMN_TITLES),
        (_build_table_row(measurement, row_count) for measurement in measurements),
    )
    for failure_message in failure_messages:
        print(f"left out: {failure_message}")
    import_measurements = [measurement for measurement in measurements if measurement.client == OUR_CLIENT]
    is_each_rate_limit_measured = len(
        {(measurement.limiter, measurement.retry_after) for measurement in import_measurements}
    ) == len(RATE_LIMITS)
    worst_goodput, worst_refused_share, worst_disobedient_request_count = (
        choose_worst((getattr(measurement, name) for measurement in import_measurements), default=float("nan"))
        if is_each_rate_limit_measured
        else float("nan")
        for choose_worst, name in ((min, "goodput"), (max, "refused_share"), (max, "disobedient_request_count"))
    )
    promises = [
        promise_at_least("lowest share of the allowed rate", _PROMISED_GOODPUT, worst_goodput, "{:.1%}"),
        promise_at_most("highest share of refused requests", _PROMISED_REFUSED_SHARE, worst_refused_share, "{:.2%}"),
        promise_at_most(
            "largest number of requests inside a pause, on the paused connection",
            0,
            worst_disobedient_request_count,
            "{:.0f}",
        ),
    ]
    print_promises(promises)
    print_json(
        "pace",
        machine_description,
        promises,
        rows=row_count,
        rate=ALLOWED_RATE,
        left_out=failure_messages,
        runs=list(map(asdict, measurements)),
    )


def _build_table_row(measurement: PaceMeasurement, row_count: int) -> tuple[str, ...]:
    return (
        measurement.client,
        measurement.limiter,
        measurement.retry_after,
        f"{measurement.goodput * ALLOWED_RATE:.1f}",
        f"{measurement.goodput:.1%}",
        format_number("{:.2%}", measurement.refused_share),
        f"{measurement.request_count_inside_pause:,}",
        f"{measurement.disobedient_request_count:,}",
        f"{measurement.created_count:,} of {row_count:,}",
        f"{measurement.duplicate_count:,}",
        f"{measurement.stalled_s:.1f} s",
    )


if __name__ == "__main__":
    main()
