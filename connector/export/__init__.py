"""From the service's list to files, databases, DataFrames and Arrow, each with a certificate of how complete it is."""

from connector.export.batches import read_batches
from connector.export.destination import Destination, Format, parse_destination
from connector.export.exporter import Exported, export_subscribers
from connector.export.frame import iter_subscribers, read_subscribers
from connector.export.library import IncompleteList

__all__ = [
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
