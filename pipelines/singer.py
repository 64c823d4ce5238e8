"""`tap-subscribers` and `target-subscribers`: the Singer programs. Without the extra `singer`, they end with one
message."""

import sys
from importlib.util import find_spec

_MISSING_PACKAGE_MESSAGE = "Singer needs the package singer-sdk: run pip install 'subscriber-connector[singer]'."


def run_tap() -> None:
    """Run `tap-subscribers`."""
    if find_spec("singer_sdk") is None:
        sys.exit(_MISSING_PACKAGE_MESSAGE)
    from connector.singer import TapSubscribers

    TapSubscribers.cli()


def run_target() -> None:
    """Run `target-subscribers`."""
    if find_spec("singer_sdk") is None:
        sys.exit(_MISSING_PACKAGE_MESSAGE)
    from connector.singer import TargetSubscribers

    TargetSubscribers.cli()
