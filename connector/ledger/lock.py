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
    name: str | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Hold the lock at `path`, waiting for it up to `wait_s` seconds, or until `is_stopped`.

    Raises LockedError, naming what is held (`name`; the path when there is none) and its holder, and LedgerError when
    there can be no lock.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LedgerError(f"the ledger's lock {path} cannot be opened: {error.strerror}") from None
    try:
        wait_for_lock(
            name or str(path),
            lambda: _try_lock(path, descriptor),
            lambda: _read_holder(descriptor),
            wait_s,
            monotonic=monotonic,
            sleep=sleep,
            is_stopped=is_stopped,
        )
        _tell_holder(path, descriptor)
        yield
    finally:
        os.close(descriptor)


def wait_for_lock(
    name: str,
    try_lock: Callable[[], bool],
    read_holder: Callable[[], str],
    wait_s: float,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    is_stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Try until `try_lock` succeeds, for `wait_s` seconds or until `is_stopped`. Raises LockedError with the holder."""
    deadline = monotonic() + wait_s
    while not try_lock():
        if monotonic() >= deadline or is_stopped():
            raise LockedError(f"{name} is held by {read_holder()}: wait for that run, or use --wait")
        sleep(_POLL_S)


def describe_holder() -> str:
    """This process, as those who wait for it are told of it."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def _try_lock(path: Path, descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise LedgerError(f"the ledger's lock {path} cannot be taken: {error.strerror}") from None
    if not _is_still_there(path, descriptor):  # its holder took it away, or somebody did: another may hold the new one
        raise LedgerError(f"the ledger's lock {path} was removed or replaced meanwhile: leave it alone, and run again")
    return True


def _is_still_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False


def _tell_holder(path: Path, descriptor: int) -> None:
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, describe_holder().encode(), 0)
    except OSError as error:
        raise LedgerError(f"the ledger's lock {path} cannot be written: {error.strerror}") from None


def _read_holder(descriptor: int) -> str:
    return os.pread(descriptor, 200, 0).decode(errors="replace") or "another run"
