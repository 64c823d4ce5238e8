"""An independent implementation of service-api.md on loopback, with faults, and with switches for all that the document
does not show.

It imports no other package of this project, so that no shared encoder can hide a shared mistake.
"""

from connector.sandbox.process import SandboxProcess

__all__ = ["SandboxProcess"]
