"""The program `connector`, also `python -m pipelines`: checks the platform, then imports and runs the command line."""

import os
import sys


def main() -> None:
    """Run the command line. On Windows, or if Ctrl-C arrives while Python imports modules, print one line and exit."""
    if os.name != "posix":
        sys.stderr.write("connector: Windows is not supported. On Windows, run connector in WSL\n")
        sys.exit(2)
    try:
        from pipelines.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("connector: stopped by a signal before the command began\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
