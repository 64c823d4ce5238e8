"""From the service's list to files, databases and DataFrames, each with a certificate of how complete it is."""

from connector.export.destination import Destination, Format, parse_destination
from connector.export.exporter import MAX_SHRINK, Exported, export_subscribers
from connector.export.frame import IncompleteList, read_subscribers

__all__ = [
    "MAX_SHRINK",
    "Destination",
    "Exported",
    "Format",
    "IncompleteList",
    "export_subscribers",
    "parse_destination",
    "read_subscribers",
]
