"""From the service's list to files, databases, DataFrames and Arrow, each with a certificate of how complete it is."""

from typing import TYPE_CHECKING

from connector.faces import open_face

if TYPE_CHECKING:
    from connector.export.batches import read_batches
    from connector.export.destination import MAX_SHRINK, Destination, Format, parse_destination
    from connector.export.exporter import Exported, export_subscribers
    from connector.export.frame import iter_subscribers, read_subscribers
    from connector.export.library import IncompleteList

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

__getattr__ = open_face(
    __name__,
    {
        "batches": ("read_batches",),
        "destination": ("MAX_SHRINK", "Destination", "Format", "parse_destination"),
        "exporter": ("Exported", "export_subscribers"),
        "frame": ("iter_subscribers", "read_subscribers"),
        "library": ("IncompleteList",),
    },
)
