"""Runs the sandbox by `python -m connector.sandbox`, without the command `connector`."""

import argparse
import os
import sys
from pathlib import Path

from connector.sandbox.server import serve

TOKEN_VARIABLE = "CONNECTOR_SANDBOX_TOKEN"  # noqa: S105 - the variable's name


def main() -> int:
    """Serve until stopped. Return 2 if an option cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m connector.sandbox", description="Serves service-api.md on loopback."
    )
    parser.add_argument("--port", type=int, default=0, help="the port; 0 (default) takes a free port")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--token", help=f"the token of this sandbox; it is safer to set {TOKEN_VARIABLE}")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the folder for all data (default: only memory)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="settings")
    parser.add_argument("--stop-with-stdin", action="store_true", help="end when stdin ends")
    options = parser.parse_args()
    token = options.token or os.environ.get(TOKEN_VARIABLE)
    if not token:
        parser.error(f"the sandbox needs a token: give --token, or set {TOKEN_VARIABLE}")
    try:
        serve(
            options.port,
            token,
            options.data,
            options.settings,
            host=options.host,
            stops_at_end_of_stdin=options.stop_with_stdin,
        )
    except (ValueError, OSError, OverflowError) as error:
        sys.stderr.write(f"sandbox: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
