"""`connector`, or `python -m pipelines`: what must be right before the command line is imported, and then that."""

import os
import sys

_USAGE, _STOPPED = 2, 130


def main() -> None:
    """Run the command line. A platform that it cannot run on, and a signal while it is imported, end it in one line."""
    if os.name != "posix":
        _end(_USAGE, "it runs on Linux and macOS only; on Windows, run it in WSL (Windows Subsystem for Linux)")
    try:
        from pipelines.cli import main as run

        run()
    except KeyboardInterrupt:
        _end(_STOPPED, "stopped by a signal before it had begun")


def _end(exit_code: int, words: str) -> None:
    sys.stderr.write(f"connector: {words}\n")
    sys.exit(exit_code)


if __name__ == "__main__":
    main()
