"""The thread that writes to the disk, on virtual time. The process does other work until the disk is ready."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from tests.simulation.process import KilledError, ProcessState
from tests.simulation.timeline import Timeline


class SlowDisk(Executor):
    """An executor of one thread. Each task takes `task_s`. After a kill of the process, no task is executed."""

    def __init__(self, timeline: Timeline, process_state: ProcessState, task_s: float) -> None:
        self._timeline, self._process_state, self._task_s = timeline, process_state, task_s

    def submit(self, task: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Execute the task after `task_s`, or as soon as a caller reads the result."""
        result = _TaskResult(lambda: task(*args, **kwargs), self._process_state)
        self._timeline.call_later(self._task_s, result.run_task)
        return result


class _TaskResult(Future[Any]):
    def __init__(self, task: Callable[[], Any], process_state: ProcessState) -> None:
        super().__init__()
        self._task, self._process_state = task, process_state

    def run_task(self) -> None:
        """Execute the task, unless the task is done or the process was killed."""
        if self.done() or self._process_state.has_ended:
            return
        try:
            self.set_result(self._task())
        except BaseException as error:  # noqa: BLE001 - the caller that asks for the result gets the exception
            self.set_exception(error)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Execute the task if necessary, and return its exception. Raise KilledError if the process was killed."""
        self.run_task()
        if not self.done():
            raise KilledError
        return super().exception(timeout)
