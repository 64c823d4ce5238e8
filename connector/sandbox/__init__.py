"""An independent implementation of service-api.md on loopback, with faults, and with switches for all behaviour that
the document does not show.

It imports no other package of this project, because a mistake in shared code would stay hidden.
"""

from connector.sandbox.process import SandboxProcess

__all__ = ["SandboxProcess"]
