"""Moves subscribers into and out of an email-marketing service, and says what it does not know."""

import os

import lazy_loader

if os.name != "posix":
    raise ImportError("connector runs on Linux and macOS only; on Windows, use it in WSL (Windows Subsystem for Linux)")

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
