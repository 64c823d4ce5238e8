"""Ends, from another thread, what a database is doing; what is being committed is left to end by itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock


class Interrupted(Exception):  # noqa: N818 - an ending that was asked for, not a fault
    """The work was given up before its commit began: nothing of it lasts."""


class Interruption:
    """Shared by the thread that works and the one that may interrupt it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_asked = False
        self._is_committing = False
        self._cancel: Callable[[], None] | None = None

    @property
    def is_committing(self) -> bool:
        """Whether a commit has begun: nothing can be taken back any more."""
        return self._is_committing

    def interrupt(self) -> None:
        """Cancel the statement that runs, and let no commit begin. May block for as long as the database's own cancel
        does; errors of that are not raised, since the work may have ended meanwhile."""
        with self._lock:
            self._is_asked = True
            cancel = None if self._is_committing else self._cancel
        if cancel is not None:
            cancel()

    def check(self) -> None:
        """Raise Interrupted if that was asked for."""
        if self._is_asked:
            raise Interrupted

    def begin_commit(self) -> None:
        """Say that a commit begins; raises Interrupted if an interruption came first."""
        with self._lock:
            self.check()
            self._is_committing = True

    @contextmanager
    def cancel_by(self, cancel: Callable[[], None]) -> Iterator[None]:
        """Call `cancel` on an interruption within the context."""
        with self._lock:
            self.check()
            self._cancel = cancel
        try:
            yield
        finally:
            with self._lock:
                self._cancel = None
