"""The thread that waits for the disk, on virtual time. The process does other work until the disk is ready."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from tests.simulation.process import DiedError, Life
from tests.simulation.timeline import Timeline


class SlowDisk(Executor):
    """An executor of one thread, each of whose works takes `seconds`; the dead do none."""

    def __init__(self, timeline: Timeline, life: Life, seconds: float) -> None:
        self._timeline, self._life, self._seconds = timeline, life, seconds

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Do it in its time, or as soon as somebody asks for what it gives."""
        result = _Result(lambda: work(*args, **kwargs), self._life)
        self._timeline.call_later(self._seconds, result.make)
        return result


class _Result(Future[Any]):
    def __init__(self, work: Callable[[], Any], life: Life) -> None:
        super().__init__()
        self._work, self._life = work, life

    def make(self) -> None:
        """Do the work, unless it is done or nobody is left to do it."""
        if self.done() or self._life.is_over:
            return
        try:
            self.set_result(self._work())
        except BaseException as error:  # noqa: BLE001 - it is for whoever asks for the result
            self.set_exception(error)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What it raises; it is waited for, so that it is done now. The dead wait no more."""
        self.make()
        if not self.done():
            raise DiedError
        return super().exception(timeout)
