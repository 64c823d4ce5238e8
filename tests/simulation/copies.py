"""Plays seeds in copies of the program, each in a process of its own: a fork of one that has imported what the program
imports from elsewhere, and nothing of the program."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

_IMPORTED_BEFORE = (
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
class Played:
    """How `python -m tests.simulation` ended in a copy."""

    returncode: int
    stdout: str
    stderr: str


class Copies:
    """Asks a process that forks for each copy."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def play(self, folder: Path, first: int, number: int) -> Played:
        """`number` seeds from `first` on by the copy in this folder, until one fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        arguments = [str(first), str(first + number), "--stop"]
        self._process.stdin.write(json.dumps([str(folder), arguments]) + "\n")
        self._process.stdin.flush()
        returncode = int(self._process.stdout.readline())
        written = (folder / name for name in ("stdout", "stderr"))
        return Played(returncode, *(path.read_text(encoding="utf-8") for path in written))


@contextmanager
def open_copies() -> Iterator[Copies]:
    """Starts the process, and ends it."""
    command = [sys.executable, __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Copies(process)
        assert process.stdin is not None
        process.stdin.close()


def _serve() -> None:
    for name in _IMPORTED_BEFORE:
        import_module(name)
    for line in sys.stdin:
        folder, arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            _play(Path(folder), arguments)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _play(folder: Path, arguments: list[str]) -> None:
    """The whole of the forked process."""
    os.chdir(folder)
    sys.path[0] = str(folder)
    returncode = 70  # of a program that ended by an error
    out, err = (folder / "stdout").open("w"), (folder / "stderr").open("w")
    with out, err, redirect_stdout(out), redirect_stderr(err):
        try:
            returncode = import_module("tests.simulation.__main__").main(arguments)
        except BaseException as error:  # noqa: BLE001 - told by its words; the parent's code must not go on here
            err.write(repr(error))
    os._exit(returncode)


if __name__ == "__main__":
    _serve()
