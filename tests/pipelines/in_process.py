"""Runs a command of `connector` in the process of the tests. This takes half the time that a new process takes.

A command needs its own process (`forked.ForkedProcess`) if it gets a signal, if it reads standard input, or if file
permissions must apply to it.
"""

import gc
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from connector.clock import Clock
from pipelines.cli import run


def run_in_process(
    arguments: Sequence[str], environ: Mapping[str, str], folder: Path, clock: Clock | None = None
) -> tuple[int, str, str]:
    """Run the command in this folder, by default with the machine's clock.

    Return its exit code, its standard output and its standard error.
    """
    with tempfile.TemporaryDirectory(prefix="connector-streams-") as streams_folder:
        stdout_path, stderr_path = Path(streams_folder, "stdout"), Path(streams_folder, "stderr")
        with (
            stdout_path.open("w", encoding="utf-8") as stdout,
            stderr_path.open("w", encoding="utf-8") as stderr,
            Path(os.devnull).open(encoding="utf-8") as stdin,
            _replace_process_state(["connector", *arguments], environ),
            chdir(folder),
            redirect_stdout(stdout),
            redirect_stderr(stderr),
        ):
            sys.stdin = stdin
            try:
                run(clock)
                exit_code = 0
            except SystemExit as exit_error:
                exit_code = exit_error.code if isinstance(exit_error.code, int) else int(exit_error.code is not None)
        return exit_code, stdout_path.read_text(encoding="utf-8"), stderr_path.read_text(encoding="utf-8")


@contextmanager
def _replace_process_state(arguments: list[str], environ: Mapping[str, str]) -> Iterator[None]:
    """Set the arguments and the environment of the process, and remove the log handlers of pytest. Afterwards restore
    their old values, and also the settings that a command changes: standard input, logging, the temporary folder and
    the thresholds of the garbage collector."""
    root_logger, gc_thresholds = logging.getLogger(), gc.get_threshold()
    saved_state = dict(os.environ), sys.argv, sys.stdin, logging.lastResort, tempfile.tempdir, root_logger.handlers
    os.environ.clear()
    os.environ.update(environ)
    sys.argv, root_logger.handlers = arguments, []
    tempfile.tempdir = None
    try:
        yield
    finally:
        saved_environ, sys.argv, sys.stdin, logging.lastResort, tempfile.tempdir, root_logger.handlers = saved_state
        os.environ.clear()
        os.environ.update(saved_environ)
        gc.set_threshold(*gc_thresholds)
        for name in ("connector", "pipelines"):
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [], True
            logger.setLevel(logging.NOTSET)
