"""The service of service-api.md on loopback, independently made, with switches for all that is left unsaid, and with
faults.

It imports nothing of the rest of this project, so that no shared encoder can hide a shared mistake.
"""

from connector.sandbox.process import SandboxProcess

__all__ = ["SandboxProcess"]
