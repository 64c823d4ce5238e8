"""Where an export goes; each kind of destination imports only what it needs."""

from typing import TYPE_CHECKING

from connector.faces import open_face

if TYPE_CHECKING:
    from connector.warehouse.destination import MAX_SHRINK, Destination, Format, Mode, parse_destination
    from connector.warehouse.opening import open_writer
    from connector.warehouse.writer import Changes, Run, Writer

__all__ = [
    "MAX_SHRINK",
    "Changes",
    "Destination",
    "Format",
    "Mode",
    "Run",
    "Writer",
    "open_writer",
    "parse_destination",
]

__getattr__ = open_face(
    __name__,
    {
        "destination": ("MAX_SHRINK", "Destination", "Format", "Mode", "parse_destination"),
        "opening": ("open_writer",),
        "writer": ("Changes", "Run", "Writer"),
    },
)
