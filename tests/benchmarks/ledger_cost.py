"""What the ledger costs: the same load with the ledger on disk and with one that keeps nothing, in turn.

`python -m tests.benchmarks.ledger_cost [--rows N] [--rounds N]` prints a table and a line of JSON. The figure is what a
run takes longer for the ledger's sake, as a share of that run, or of one at 5,000 creates/s where that is slower; at
most 10 % are promised. It is the median of many short rounds with both ledgers, since what else goes on in a machine
changes more from one minute to the next than the ledger costs.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import uvloop

from connector.control import Stop
from connector.ledger.commits import Commits, LedgerWriter, open_commits
from connector.ledger.entries import Entry, Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.records import find_or_add_base, start_run
from connector.ledger.store import Base, Store
from connector.listing.access import ListAccess
from connector.load.base_load import Loader
from connector.load.session import LoadPolicy, Session, Tally
from connector.outcomes import Outcome
from connector.sandbox import SandboxProcess
from connector.service.client import open_client
from connector.service.retry import Retrier
from connector.service.settings import Service, Token
from connector.sources.files import open_file
from connector.subscribers.headers import guess_mapping
from connector.subscribers.preparation import prepare_chunks
from connector.subscribers.rules import ValidationRules
from tests.benchmarks.machine import describe_machine
from tests.load.sessions import OwnThread

BASE = Base(1, "benchmark", 7, "Base 7")  # as the sandbox calls it: nothing is to be learnt of it

_PROMISED_PACE = 5000  # creates/s

Opened = tuple[Commits, Base, int]


class EmptyDatabase:
    """A connection to which every question has no rows for an answer."""

    def execute(self, _statement: object, _values: object = None) -> tuple[()]:
        return ()


class ForgetfulLedger:
    """A ledger that keeps nothing: whatever is asked of it is done at once, and nobody is known."""

    connection = EmptyDatabase()
    store = Store(None, "none")  # type: ignore[arg-type] # of no database

    def transaction(self) -> AbstractContextManager[None]:
        return nullcontext()

    def find_different(self, _base: Base, told: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bool]:
        return {identity: False for identity, _ in told}

    def find_entries(self, _base: Base, _identities: Sequence[bytes]) -> dict[bytes, Entry]:
        return {}

    def __getattr__(self, name: str) -> Callable[..., list[Any]]:
        return lambda *_values: []


@contextmanager
def open_forgetful() -> Iterator[Opened]:
    yield Commits(cast("Ledger", ForgetfulLedger()), OwnThread()), BASE, 1


@contextmanager
def open_real() -> Iterator[Opened]:
    with tempfile.TemporaryDirectory() as folder, open_ledger(f"sqlite:///{folder}/ledger.db") as ledger:
        with ledger.transaction() as connection:
            base = find_or_add_base(connection, BASE.account, BASE.service_id, BASE.name)
            run_key = start_run(connection, "run", "job", "import", 0.0)
        with open_commits(ledger) as commits:
            yield commits, base, run_key


async def load(sandbox: SandboxProcess, path: Path, opened: Opened) -> int:
    """Load the file as `connector import` does; returns how many were created."""
    commits, base, run_key = opened
    service = Service(sandbox.base_url, Token(sandbox.token))
    tally = Tally(lambda _problem: None)
    async with open_client(service) as client:
        journal = LedgerWriter(commits, base, run_key)
        control, policy = Stop(), LoadPolicy()
        session = Session(ListAccess(control, client, Retrier(), journal, policy.listing), policy, tally)
        loader = Loader(session)
        with open_file(path) as source:
            mapping, today = guess_mapping(source.columns), datetime.now(UTC).date()
            for prepared in prepare_chunks(source, mapping, ValidationRules(), today=today, limit=None):
                await loader.take(prepared.planned)
        await loader.settle()
        await loader.close()
    return tally.outcomes[Outcome.CREATED]


def measure(
    sandbox: SandboxProcess, path: Path, rows: int, open_one: Callable[[], AbstractContextManager[Opened]]
) -> tuple[float, float]:
    """(wall, processor time of this process) in seconds."""
    sandbox.reset()
    with open_one() as opened:
        wall, processor = time.perf_counter(), time.process_time()
        created = uvloop.run(load(sandbox, path, opened))
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
    assert created == rows == sandbox.stats()["subscribers"]
    return wall, processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    machine = describe_machine()
    with tempfile.TemporaryDirectory() as folder, SandboxProcess() as sandbox:
        path = Path(folder) / "people.csv"
        lines = (f"person{each}@example.com,Ann {each},Lee,true" for each in range(options.rows))
        path.write_text("\n".join(["email,first_name,last_name,is_active", *lines]) + "\n", encoding="utf-8")
        ledgers = {"on disk": open_real, "keeps nothing": open_forgetful}
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in ledgers}
        for number in range(options.rounds):
            for name in sorted(ledgers, reverse=number % 2 == 1):  # each comes first in every other round
                measured[name].append(measure(sandbox, path, options.rows, ledgers[name]))
    show(options.rows, measured, machine)


def show(rows: int, measured: dict[str, list[tuple[float, float]]], machine: dict[str, object]) -> None:
    print(f"{'ledger':<16}{'wall s':>10}{'creates/s':>12}{'CPU µs/row':>12}")
    figures: dict[str, dict[str, float]] = {}
    for name, rounds in measured.items():
        wall, processor = (statistics.median(each) for each in zip(*rounds, strict=True))
        figures[name] = {"wall_s": wall, "creates_per_s": rows / wall, "cpu_us_per_row": processor / rows * 1e6}
        print(f"{name:<16}{wall:>10.2f}{rows / wall:>12,.0f}{processor / rows * 1e6:>12.0f}")
    shares = sorted(
        (disk - bare) / max(disk, rows / _PROMISED_PACE)
        for (disk, _), (bare, _) in zip(measured["on disk"], measured["keeps nothing"], strict=True)
    )
    share = statistics.median(shares)
    low, high = shares[len(shares) // 4], shares[-1 - len(shares) // 4]
    print(
        f"the ledger's share of a run at {_PROMISED_PACE:,} creates/s, or as near as this machine comes to that: "
        f"{share:.1%}, half of the rounds between {low:.1%} and {high:.1%} (promised: at most 10 %)"
    )
    told = {"benchmark": "ledger_cost", "rows": rows, "share": share, "half_of_rounds": [low, high]}
    print(json.dumps({**told, "figures": figures, **machine}))


if __name__ == "__main__":
    main()
