"""How many files and connections this process may have open at once (`ulimit -n`, 256 on macOS).

A run that opens more connections than that could open neither its ledger nor its files any more. So commands raise the
limit as far as they may, and a service gets only the connections that are left beside the files of a run.
"""

import resource
from contextlib import suppress
from pathlib import Path

from connector.errors import ConfigurationError

_WANTED = 2048  # 1,000 requests in flight, connections for look-ups, and files; select() of a driver fails far beyond
_FILES = 32  # ledger and its journal, reports, row files, temporary copies, a source's database, imported modules
_ASSUMED_OPEN = 32  # where the open descriptors cannot be counted


def raise_descriptor_limit() -> None:
    """Raise the soft limit of this process towards the hard one; a limit that cannot be raised stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def bound_connections(wanted: int) -> int:
    """Return how many of the `wanted` connections may be opened, so that the files of a run can be opened, too.

    Raises ConfigurationError if there is no room for one connection.
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
