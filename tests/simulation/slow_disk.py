"""The thread that writes to the disk, on virtual time. The process does other work until the disk is ready."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from tests.simulation.process import DiedError, Life
from tests.simulation.timeline import Timeline


class SlowDisk(Executor):
    """An executor of one thread. Each task takes `seconds`. After the death of the process, no task is done."""

    def __init__(self, timeline: Timeline, life: Life, seconds: float) -> None:
        self._timeline, self._life, self._seconds = timeline, life, seconds

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Do the work after `seconds`, or as soon as the result is asked for."""
        result = _Result(lambda: work(*args, **kwargs), self._life)
        self._timeline.call_later(self._seconds, result.do_work)
        return result


class _Result(Future[Any]):
    def __init__(self, work: Callable[[], Any], life: Life) -> None:
        super().__init__()
        self._work, self._life = work, life

    def do_work(self) -> None:
        """Do the work, unless it is done or the process is dead."""
        if self.done() or self._life.is_over:
            return
        try:
            self.set_result(self._work())
        except BaseException as error:  # noqa: BLE001 - the caller that asks for the result gets the exception
            self.set_exception(error)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception of the work, which is done now if necessary. Raise DiedError if the process is dead."""
        self.do_work()
        if not self.done():
            raise DiedError
        return super().exception(timeout)
