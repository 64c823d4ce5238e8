"""What goes to standard output: all of it, or an error."""

import json
import os
import sys
from itertools import pairwise
from typing import Any

from connector.errors import RunAborted


def write_stdout(text: str) -> None:
    """Write text to standard output. Raises RunAborted where that is closed or full."""
    if sys.stdout is None:
        raise RunAborted("standard output is closed")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python fails again when the process ends
        raise RunAborted(f"standard output cannot be written to: {error.strerror}") from None


def write_json(report: dict[str, Any]) -> str:
    """JSON whose every character can be written: a broken one in a file's name becomes an escape, as JSON has it."""
    text = json.dumps(report, ensure_ascii=False, indent=2)
    return text.encode("utf-8", "backslashreplace").decode()


def is_json_wanted(arguments: list[str]) -> bool:
    """Whether these arguments of a command, which may not be valid, ask for JSON."""
    return "--output=json" in arguments or ("--output", "json") in pairwise(arguments)
