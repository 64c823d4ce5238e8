"""Runs a command on a terminal of 80 columns."""

import os
import pty
import re
import select
import termios
from collections.abc import Callable
from pathlib import Path

from tests.pipelines.conftest import Connector, wait_for
from tests.pipelines.forked import Forked


def run_on_terminal(
    connector: Connector,
    *arguments: str | Path,
    answer: str = "n",
    before_answer: Callable[[], object] = tuple,
    typed_ahead: str = "",
) -> tuple[int, str]:
    """Run a command whose standard input, output and error are a terminal of 80 columns; return what it shows. If the
    command asks a question, call `before_answer` and give the answer. `typed_ahead` is typed before the command
    begins."""
    ours, theirs = pty.openpty()
    if typed_ahead:
        attributes = termios.tcgetattr(theirs)
        attributes[3] &= ~termios.ECHO  # otherwise the echo would look like output of the command
        termios.tcsetattr(theirs, termios.TCSANOW, attributes)
        os.write(ours, typed_ahead.encode())
    environ = connector.build_environ({"COLUMNS": "80", "TERM": "dumb"})
    process = Forked(list(map(str, arguments)), environ, connector.folder, terminal=os.ttyname(theirs))
    wait_for(lambda: process.poll() is not None or select.select([ours], [], [], 0)[0] != [])
    os.close(theirs)
    shown, is_answered = b"", False
    try:
        while piece := os.read(ours, 65536):
            shown += piece
            if b"[y/N]" in shown and not is_answered:
                before_answer()
                os.write(ours, f"{answer}\n".encode())
                is_answered = True
    except OSError:  # the other side has closed
        pass
    os.close(ours)
    with process:
        process.communicate()
    return process.returncode, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()).replace("\r", "")
