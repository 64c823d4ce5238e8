"""One run at a time writes a ledger: a lock on a file beside it, which also tells who holds it.

The kernel drops the lock with the process that holds it, however that ends.
"""

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from connector.errors import LedgerError, LockedError

_POLL_S = 0.2


@contextmanager
def hold_lock(
    path: Path,
    wait_s: float = 0.0,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Hold the lock at `path`, waiting for it up to `wait_s` seconds, or until `is_stopped`.

    Raises LockedError, naming the holder, and LedgerError when there can be no lock.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LedgerError(f"the ledger's lock {path} cannot be opened: {error.strerror}") from None
    try:
        deadline = monotonic() + wait_s
        while not _try_lock(descriptor):
            if monotonic() >= deadline or is_stopped():
                raise LockedError(f"{path} is held by {_read_holder(descriptor)}: wait for that run, or use --wait")
            sleep(_POLL_S)
        _tell_holder(path, descriptor)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _tell_holder(path: Path, descriptor: int) -> None:
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
    except OSError as error:
        raise LedgerError(f"the ledger's lock {path} cannot be written: {error.strerror}") from None


def _read_holder(descriptor: int) -> str:
    return os.pread(descriptor, 200, 0).decode(errors="replace") or "another run"
