"""A process that runs one export at a time in a fork, and kills the fork at its n-th statement or step.

A step is a change of the disk, or a request to a store. The process reads one line of JSON for each export, and writes
the exit status.
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
from tests.export.test_modes import Person, build_person, publish

ROOT = Path(__file__).parents[2]
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.chmod")
"""Events of Python's audit hooks for changes of the disk."""

Export = Callable[..., bool]


@contextmanager
def open_killer() -> Iterator[Export]:
    """Yield a function that runs an export and returns whether the export was killed."""
    command = [sys.executable, "-m", "tests.export.nursery"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def run(**task: Any) -> bool:
            stdin.write(json.dumps(task) + "\n")
            stdin.flush()
            status = int(stdout.readline())
            assert status in (0, -signal.SIGKILL), f"the export exited with {status}"
            return status != 0

        yield run
        stdin.close()


def main() -> None:
    """Run an export for each line of stdin, until stdin ends."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run_until_killed(**json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run_until_killed(
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
        _kill_at_statement(statement)
    if step:
        _kill_at_step(step)
    publish(parse_destination(url, **options), [_build_person(*subscriber) for subscriber in people], number)
    os._exit(0)


def _build_person(number: int, name: str, base_id: int | None = None) -> Person:
    base = {} if base_id is None else {"Base": {"Id": base_id, "Name": "News"}}
    return build_person(number, name) | base


def _kill_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_at_statement(statement: int) -> None:
    """Kill the process at the n-th point: before a statement or a commit, or before or after the loading of rows."""
    numbers = count(1)

    def kill_at_number() -> None:
        if next(numbers) == statement:
            _kill_process()

    for database in (PostgresDatabase, MysqlDatabase, SqlalchemyDatabase, SqliteDatabase, DuckdbDatabase):
        _patch_database(database, kill_at_number)


def _patch_database(database: type[Any], kill_at_number: Callable[[], None]) -> None:
    run, load, commit = database.run, database.load, database.commit

    def run_with_kill(self: Any, statement: Statement) -> int:
        kill_at_number()
        count: int = run(self, statement)
        return count

    def load_with_kill(self: Any, *arguments: Any) -> int:
        kill_at_number()
        count: int = load(self, *arguments)
        kill_at_number()
        return count

    def commit_with_kill(self: Any, interruption: Interruption) -> None:
        kill_at_number()
        commit(self, interruption)

    database.run, database.load, database.commit = run_with_kill, load_with_kill, commit_with_kill


def _kill_at_step(step: int) -> None:
    """Kill the process at the n-th step: before a change of the disk, or before or after a request to a store."""
    numbers = count(1)

    def kill_at_number() -> None:
        if next(numbers) == step:
            _kill_process()

    def watch_event(event: str, arguments: tuple[Any, ...]) -> None:
        is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if is_write or event in CHANGES:
            kill_at_number()

    send_request = s3fs.S3FileSystem._call_s3

    async def request_with_kill(*arguments: Any, **options: Any) -> Any:
        kill_at_number()
        answer = await send_request(*arguments, **options)
        kill_at_number()
        return answer

    setattr(s3fs.S3FileSystem, "_call_s3", request_with_kill)  # noqa: B010 - the class is patched before an instance exists
    sys.addaudithook(watch_event)


if __name__ == "__main__":
    main()
