"""`connector`, or `python -m pipelines`: what must be right before the command line is imported, and then that."""

import os
import sys


def main() -> None:
    """Run the command line. A platform that it cannot run on, and a signal while it is imported, end it in one line."""
    if os.name != "posix":
        sys.stderr.write("connector: it runs on Linux and macOS only; on Windows, run it in WSL\n")
        sys.exit(2)
    try:
        from pipelines.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("connector: stopped by a signal before it had begun\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
