"""Simulates seeds with changed copies of the program. Each copy runs in a fork of a process that has already imported
the libraries of the program."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

_LIBRARIES = (
    "aiohttp",
    "email_validator",
    "orjson",
    "pandas",
    "pandera.pandas",
    "pyarrow.compute",
    "pyarrow.csv",
    "sqlalchemy.dialects.sqlite",
    "tenacity",
    "yaml",
)


@dataclass(frozen=True)
class CopyResult:
    """The exit code and the output of `python -m tests.simulation` in a copy of the program."""

    returncode: int
    stdout: str
    stderr: str


class ProgramCopySimulator:
    """A process that forks itself for each copy of the program."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def simulate_seeds_in_copy(self, folder: Path, first_seed: int, seed_count: int) -> CopyResult:
        """Simulate up to `seed_count` seeds, from `first_seed` on, with the copy of the program in `folder`. Stop at
        the first seed that fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        arguments = [str(first_seed), str(first_seed + seed_count), "--stop"]
        self._process.stdin.write(json.dumps([str(folder), arguments]) + "\n")
        self._process.stdin.flush()
        returncode = int(self._process.stdout.readline())
        output_paths = (folder / name for name in ("stdout", "stderr"))
        return CopyResult(returncode, *(path.read_text(encoding="utf-8") for path in output_paths))


@contextmanager
def open_copy_simulator() -> Iterator[ProgramCopySimulator]:
    """Start the process that forks itself for each copy, and end this process after use."""
    command = [sys.executable, __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield ProgramCopySimulator(process)
        assert process.stdin is not None
        process.stdin.close()


def _serve_requests() -> None:
    for name in _LIBRARIES:
        import_module(name)
    for line in sys.stdin:
        folder, arguments = json.loads(line)
        child_pid = os.fork()
        if child_pid == 0:
            _run_program(Path(folder), arguments)
        print(os.waitstatus_to_exitcode(os.waitpid(child_pid, 0)[1]), flush=True)


def _run_program(folder: Path, arguments: list[str]) -> None:
    """Run the program in the forked process, and exit."""
    os.chdir(folder)
    sys.path[0] = str(folder)
    returncode = 70  # the exit code after an exception
    output_file, error_file = (folder / "stdout").open("w"), (folder / "stderr").open("w")
    with output_file, error_file, redirect_stdout(output_file), redirect_stderr(error_file):
        try:
            returncode = import_module("tests.simulation.__main__").main(arguments)
        except BaseException as error:  # noqa: BLE001 - the fork must not continue with the code of its parent
            error_file.write(repr(error))
    os._exit(returncode)


if __name__ == "__main__":
    _serve_requests()
