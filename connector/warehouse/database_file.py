"""A database that is a file: made for its owner only, and waited for while another program has it locked."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from connector.atomic_file import describe_unwritable
from connector.errors import ConfigurationError
from connector.warehouse.interruption import Interruption

T = TypeVar("T")

LOCK_S = 30.0
"""For a lock that another program holds: a reader's lasts moments."""

_PAUSE_S = 0.05


def make_file(path: Path, create: Callable[[Path], None]) -> bool:
    """Make the file by `create`, which raises OSError, unless there is one; whether it was made.

    Raises ConfigurationError for what is no file (a pipe would wait for its reader), for a file that may not be
    written, for a folder that takes none, and for the journal of a database that is gone: a new one would take it for
    its own.
    """
    if path.exists():
        if not path.is_file():
            raise ConfigurationError(f"{path} is no file, and so no database: export elsewhere.")
        if not os.access(path, os.W_OK):
            raise ConfigurationError(f"{path} may not be written to: allow it, or export elsewhere.")
        return False
    strays = [path.with_name(path.name + suffix) for suffix in ("-journal", "-wal", ".wal")]
    found = [stray for stray in strays if stray.exists()]
    if found:
        raise ConfigurationError(
            f"{found[0]} is left of a database that is gone; a new {path.name} beside it would be spoilt: "
            "move it away, or export elsewhere."
        )
    try:
        create(path)
    except FileExistsError:  # another export was quicker
        return False
    except OSError as error:
        raise describe_unwritable(path.parent, error) from None
    return True


def create_empty(path: Path) -> None:
    """Make an empty file, for its owner only. Raises OSError."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def wait_for_lock(
    attempt: Callable[[], T], is_busy: Callable[[Exception], bool], lock_s: float, interruption: Interruption
) -> T:
    """Return what the attempt gives, once no other program holds the lock; its error after `lock_s`."""
    end = time.monotonic() + lock_s
    while True:
        interruption.check()
        try:
            return attempt()
        except Exception as error:
            if not is_busy(error) or time.monotonic() > end:
                raise
        time.sleep(_PAUSE_S)
