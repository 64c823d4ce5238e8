"""Words for an error that nobody foresaw: where it is, and not what it says, which may hold a person's data."""

import os
import traceback


def describe_fault(error: Exception) -> str:
    """One line that a person can report; with CONNECTOR_DEBUG set the error is raised instead."""
    if os.environ.get("CONNECTOR_DEBUG"):
        raise error
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"a fault of the program: {type(error).__name__} at {place.filename}:{place.lineno}. What was done is "
        "recorded, and it can be run again. Please report it, with the traceback that CONNECTOR_DEBUG=1 shows"
    )
