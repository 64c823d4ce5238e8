"""An independent implementation of service-api.md on loopback, with faults, and with switches for all behaviour that
the document does not show.

The sandbox imports no other package of this project. If both used the same code, tests would not find a mistake in it.
"""

from connector.sandbox.process import SandboxProcess

__all__ = ["SandboxProcess"]
