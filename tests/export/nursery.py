"""A process that forks one export at a time and kills the export at its n-th statement, or at its n-th step (a change
of the disk, a request to a store). The process reads one line of JSON for each export and writes the exit status.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import s3fs

from connector.warehouse.database import Interruption, Statement
from connector.warehouse.destination import parse_destination
from connector.warehouse.duckdb import DuckdbDatabase
from connector.warehouse.servers import MysqlDatabase, PostgresDatabase, SqlalchemyDatabase
from connector.warehouse.sqlite import SqliteDatabase
from tests.export.test_modes import Person, person, publish

ROOT = Path(__file__).parents[2]
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.chmod")
"""The names that audit hooks of Python get."""

Export = Callable[..., bool]


@contextmanager
def open_nursery() -> Iterator[Export]:
    """Yield a function that runs an export and returns whether the export was killed."""
    command = [sys.executable, "-m", "tests.export.nursery"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        into, out = process.stdin, process.stdout

        def run(**task: Any) -> bool:
            into.write(json.dumps(task) + "\n")
            into.flush()
            status = int(out.readline())
            assert status in (0, -signal.SIGKILL), f"it ended with {status}"
            return status != 0

        yield run
        into.close()


def main() -> None:
    """Serve until the input ends."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _be_killed(**json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _be_killed(
    url: str,
    options: dict[str, Any],
    people: list[list[Any]],
    number: int,
    statement: int = 0,
    step: int = 0,
    environ: dict[str, str] | None = None,
) -> None:
    os.environ.update(environ or {})
    if statement:
        _die_at(statement)
    if step:
        _die_at_step(step)
    publish(parse_destination(url, **options), [_build_person(*subscriber) for subscriber in people], number)
    os._exit(0)


def _build_person(number: int, name: str, base_id: int | None = None) -> Person:
    more = {} if base_id is None else {"Base": {"Id": base_id, "Name": "News"}}
    return person(number, name) | more


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_at(statement: int) -> None:
    """Die before the n-th statement that changes anything, before or after rows are loaded, or before a commit."""
    numbers = count(1)

    def strike() -> None:
        if next(numbers) == statement:
            _die()

    for database in (PostgresDatabase, MysqlDatabase, SqlalchemyDatabase, SqliteDatabase, DuckdbDatabase):
        _strike_around(database, strike)


def _strike_around(database: type[Any], strike: Callable[[], None]) -> None:
    run, load, commit = database.run, database.load, database.commit

    def run_deadly(self: Any, statement: Statement) -> int:
        strike()
        count: int = run(self, statement)
        return count

    def load_deadly(self: Any, *arguments: Any) -> int:
        strike()
        count: int = load(self, *arguments)
        strike()
        return count

    def commit_deadly(self: Any, interruption: Interruption) -> None:
        strike()
        commit(self, interruption)

    database.run, database.load, database.commit = run_deadly, load_deadly, commit_deadly


def _die_at_step(step: int) -> None:
    """Die before the n-th change of a disk, or before or after a request to a store."""
    numbers = count(1)

    def strike() -> None:
        if next(numbers) == step:
            _die()

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if is_write or event in CHANGES:
            strike()

    ask = s3fs.S3FileSystem._call_s3

    async def ask_deadly(*arguments: Any, **options: Any) -> Any:
        strike()
        answer = await ask(*arguments, **options)
        strike()
        return answer

    setattr(s3fs.S3FileSystem, "_call_s3", ask_deadly)  # noqa: B010 - before any instance is made
    sys.addaudithook(look)


if __name__ == "__main__":
    main()
