"""Runs a command on a terminal, by default of 80 columns."""

import os
import pty
import re
import select
import termios
from collections.abc import Callable
from pathlib import Path

from tests.pipelines.conftest import Connector, wait_for
from tests.pipelines.forked import ForkedProcess


def run_on_terminal(
    connector: Connector,
    *arguments: str | Path,
    answer: str = "n",
    call_before_answer: Callable[[], object] = tuple,
    early_input: str = "",
    columns: int = 80,
    terminal_type: str = "dumb",
) -> tuple[int, str]:
    """Run a command on a terminal, and return the exit code and the output. If the command asks a question, run
    `call_before_answer`, and then send `answer`. `early_input` is typed before the command starts."""
    controller, terminal = pty.openpty()
    if early_input:
        attributes = termios.tcgetattr(terminal)
        attributes[3] &= ~termios.ECHO  # an echo would look like output of the command
        termios.tcsetattr(terminal, termios.TCSANOW, attributes)
        os.write(controller, early_input.encode())
    environ = connector.build_environ({"COLUMNS": str(columns), "TERM": terminal_type})
    process = ForkedProcess(list(map(str, arguments)), environ, connector.folder, terminal_path=os.ttyname(terminal))
    wait_for(lambda: process.poll() is not None or select.select([controller], [], [], 0)[0] != [])
    os.close(terminal)
    output, is_answered = b"", False
    try:
        while output_part := os.read(controller, 65536):
            output += output_part
            if b"[y/N]" in output and not is_answered:
                call_before_answer()
                os.write(controller, f"{answer}\n".encode())
                is_answered = True
    except OSError:  # the command has closed the terminal
        pass
    os.close(controller)
    with process:
        process.communicate()
    return process.returncode, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.decode()).replace("\r", "")
