"""Moves subscribers into and out of an email-marketing service.

Import the public names from this package. A name is loaded when it is first used. So a command that only checks its
arguments does not wait for pandas, pyarrow and aiohttp.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

if os.name != "posix":
    raise ImportError("Windows is not supported. On Windows, use connector in WSL (Windows Subsystem for Linux)")

if TYPE_CHECKING:
    from connector.errors import ConfigurationError, ConnectorError, LedgerError, LockedError, RunAborted, SourceError
    from connector.library.facade import Connector
    from connector.library.lists import IncompleteList, read_batches, read_subscribers
    from connector.listing.pages import ListFailed
    from connector.runs.explanations import ExplainedEntry, ExplainedRun, Explanation
    from connector.runs.report import Report
    from connector.service.settings import Token

__version__ = "0.3.0"

__all__ = [
    "ConfigurationError",
    "Connector",
    "ConnectorError",
    "ExplainedEntry",
    "ExplainedRun",
    "Explanation",
    "IncompleteList",
    "LedgerError",
    "ListFailed",
    "LockedError",
    "Report",
    "RunAborted",
    "SourceError",
    "Token",
    "read_batches",
    "read_subscribers",
]

_MODULE_BY_NAME = {
    "Connector": "connector.library.facade",
    "ExplainedEntry": "connector.runs.explanations",
    "ExplainedRun": "connector.runs.explanations",
    "Explanation": "connector.runs.explanations",
    "IncompleteList": "connector.library.lists",
    "ListFailed": "connector.listing.pages",
    "Report": "connector.runs.report",
    "Token": "connector.service.settings",
    "read_batches": "connector.library.lists",
    "read_subscribers": "connector.library.lists",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module at its first use."""
    if name not in __all__:
        raise AttributeError(f"module 'connector' has no attribute {name!r}")
    public_object: object = getattr(import_module(_MODULE_BY_NAME.get(name, "connector.errors")), name)
    globals()[name] = public_object
    return public_object


def __dir__() -> list[str]:
    """Return the public names, even if they are not loaded."""
    return sorted({*globals(), *__all__})
