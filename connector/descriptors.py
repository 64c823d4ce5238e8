"""The limit of open files and connections of this process (`ulimit -n`, 256 on macOS).

A run at the limit can open neither its ledger nor its files. So commands raise the limit as far as possible, and a run
opens only as many connections to the service as the limit allows beside the files.
"""

import resource
from contextlib import suppress
from pathlib import Path

from connector.errors import ConfigurationError

_WANTED = 2048  # 1,000 requests at once, look-ups and files; `select` in some drivers fails with much more
_FILES = 32  # the ledger and its journal, reports, row files, temporary copies, the source, imported modules
_ASSUMED_OPEN = 32  # if the open descriptors cannot be counted


def raise_descriptor_limit() -> None:
    """Raise the soft limit of this process, at most to the hard limit. A limit that cannot be raised stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def bound_connections(wanted: int) -> int:
    """Return the number of connections that may be opened, at most `wanted`. The files of a run stay possible.

    Raises ConfigurationError if not even one connection may be opened.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    room = soft - _count_open() - _FILES
    if room < 1:
        raise ConfigurationError(
            f"this process may have {soft} files and connections open at once (ulimit -n), too few for a run. "
            f"Raise the limit, for example by: ulimit -n {_WANTED}"
        )
    return min(wanted, room)


def _count_open() -> int:
    try:
        return sum(1 for _ in Path("/dev/fd").iterdir()) - 1  # without the descriptor that lists them
    except OSError:
        return _ASSUMED_OPEN
