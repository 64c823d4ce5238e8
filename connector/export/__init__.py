"""From the service's list to files, databases, DataFrames and Arrow, each with a certificate of how complete it is."""

from importlib import import_module
from typing import TYPE_CHECKING

from connector.export.batches import read_batches
from connector.export.destination import Destination, Format, parse_destination
from connector.export.exporter import MAX_SHRINK, Exported, export_subscribers
from connector.export.library import IncompleteList

if TYPE_CHECKING:
    from connector.export.frame import iter_subscribers, read_subscribers

__all__ = [
    "MAX_SHRINK",
    "Destination",
    "Exported",
    "Format",
    "IncompleteList",
    "export_subscribers",
    "iter_subscribers",
    "parse_destination",
    "read_batches",
    "read_subscribers",
]

_OF_PANDAS = frozenset({"iter_subscribers", "read_subscribers"})


def __getattr__(name: str) -> object:
    """What needs pandas and pandera is imported when it is asked for: an export to a warehouse starts without them."""
    if name in _OF_PANDAS:
        return getattr(import_module("connector.export.frame"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
