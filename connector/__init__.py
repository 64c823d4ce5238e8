"""Moves subscribers into and out of an email-marketing service, and says what it does not know."""

from typing import TYPE_CHECKING

from connector.faces import open_face

if TYPE_CHECKING:
    from connector.library import IncompleteList, read_batches, read_subscribers

__version__ = "0.1.0"

__all__ = ["IncompleteList", "__version__", "read_batches", "read_subscribers"]

__getattr__ = open_face(__name__, {"library": ("IncompleteList", "read_batches", "read_subscribers")})
