"""The service of api.md on loopback, independently made, with switches for all that is left unsaid, and with faults.

It imports nothing of the rest of this project, so that no shared encoder can hide a shared mistake.
"""

from connector.sandbox.process import SandboxProcess
from connector.sandbox.server import serve
from connector.sandbox.switches import SWITCHES, Settings, Switch, change_settings, parse_settings

__all__ = ["SWITCHES", "SandboxProcess", "Settings", "Switch", "change_settings", "parse_settings", "serve"]
