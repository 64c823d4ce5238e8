"""From the service's list to files and databases, each with a certificate of how complete it is."""

from typing import TYPE_CHECKING

from connector.faces import open_face

if TYPE_CHECKING:
    from connector.export.destination import MAX_SHRINK, Destination, Format, parse_destination
    from connector.export.exporter import Exported, export_subscribers

__all__ = [
    "MAX_SHRINK",
    "Destination",
    "Exported",
    "Format",
    "export_subscribers",
    "parse_destination",
]

__getattr__ = open_face(
    __name__,
    {
        "destination": ("MAX_SHRINK", "Destination", "Format", "parse_destination"),
        "exporter": ("Exported", "export_subscribers"),
    },
)
