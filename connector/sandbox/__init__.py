"""An independent implementation of service-api.md on loopback, with faults, and with switches for all behaviour that
the document does not define.

The sandbox imports no other package of this project. If the sandbox used code of the connector, tests would not find a
mistake in this code.
"""

from connector.sandbox.process import SandboxProcess

__all__ = ["SandboxProcess"]
