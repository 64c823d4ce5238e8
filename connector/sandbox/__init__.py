"""The service of service-api.md on loopback, independently made, with switches for all that is left unsaid, and with
faults.

It imports nothing of the rest of this project, so that no shared encoder can hide a shared mistake.
"""

from typing import TYPE_CHECKING

from connector.sandbox.people import Person, draw_people
from connector.sandbox.process import SandboxProcess
from connector.sandbox.switches import list_switches

if TYPE_CHECKING:
    from connector.sandbox.server import serve

__all__ = ["Person", "SandboxProcess", "draw_people", "list_switches", "serve"]


def __getattr__(name: str) -> object:
    """Import `serve` where it is used: only a process that serves pays for the server."""
    if name != "serve":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from connector.sandbox.server import serve

    return serve
