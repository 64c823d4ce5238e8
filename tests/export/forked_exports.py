"""Runs each export in a fork of this process, and kills the fork at a chosen statement or step.

A step is a change of the disk, or a request to an object store. The process reads one line of JSON for each export, and
writes the exit code.
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

from connector.warehouse.destination import parse_destination
from tests.export.kill_points import call_at_disk_changes, call_at_statements
from tests.export.test_modes import Person, build_person, publish_people

ROOT = Path(__file__).parents[2]
RunExport = Callable[..., bool]


@contextmanager
def open_killable_exports() -> Iterator[RunExport]:
    """Yield a function that runs an export and returns whether the export was killed."""
    command = [sys.executable, "-m", "tests.export.forked_exports"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def run(**task: Any) -> bool:
            stdin.write(json.dumps(task) + "\n")
            stdin.flush()
            exit_code = int(stdout.readline())
            assert exit_code in (0, -signal.SIGKILL), f"the export exited with {exit_code}"
            return exit_code != 0

        yield run
        stdin.close()


def main() -> None:
    """Run an export for each line of stdin, until stdin ends."""
    for line in sys.stdin:
        child_pid = os.fork()
        if child_pid == 0:
            _run_until_killed(**json.loads(line))
        _, wait_status = os.waitpid(child_pid, 0)
        print(os.waitstatus_to_exitcode(wait_status), flush=True)


def _run_until_killed(
    url: str,
    options: dict[str, Any],
    people: list[list[Any]],
    run_number: int,
    statement_number: int = 0,
    step_number: int = 0,
    environ: dict[str, str] | None = None,
) -> None:
    os.environ.update(environ or {})
    if statement_number:
        _kill_at_statement(statement_number)
    if step_number:
        _kill_at_step(step_number)
    publish_people(parse_destination(url, **options), [_build_person(*person) for person in people], run_number)
    os._exit(0)


def _build_person(subscriber_id: int, name: str, base_id: int | None = None) -> Person:
    base = {} if base_id is None else {"Base": {"Id": base_id, "Name": "News"}}
    return build_person(subscriber_id, name) | base


def _kill_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_at_statement(statement_number: int) -> None:
    """Kill the process at kill point number `statement_number`. Kill points are before each statement and commit, and
    before and after rows are loaded."""
    point_numbers = count(1)

    def kill_at_point() -> None:
        if next(point_numbers) == statement_number:
            _kill_process()

    call_at_statements(kill_at_point)


def _kill_at_step(step_number: int) -> None:
    """Kill the process at kill point number `step_number`. Kill points are before each change of the disk, and before
    and after each request to a store."""
    point_numbers = count(1)

    def kill_at_point() -> None:
        if next(point_numbers) == step_number:
            _kill_process()

    send_request = s3fs.S3FileSystem._call_s3

    async def request_with_kill(*arguments: Any, **options: Any) -> Any:
        kill_at_point()
        answer = await send_request(*arguments, **options)
        kill_at_point()
        return answer

    setattr(s3fs.S3FileSystem, "_call_s3", request_with_kill)  # noqa: B010 - the class is patched before an instance exists
    call_at_disk_changes(kill_at_point)


if __name__ == "__main__":
    main()
