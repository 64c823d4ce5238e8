"""Ctrl-C and SIGTERM: the first lets a run end in order, the second ends it at once."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stop:
    """Whether a run is to stop, and the signal that said so."""

    event: asyncio.Event = field(default_factory=asyncio.Event)
    signal: int | None = None
    is_recording: bool = False  # what was done is being recorded: nothing is left that could be ended


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """A Stop that SIGINT and SIGTERM set; a second signal cancels the task that entered this context."""
    stop, task, loop = Stop(), asyncio.current_task(), asyncio.get_running_loop()

    received: list[int] = []

    def receive(number: int) -> None:
        received.append(number)
        if len(received) == 2 and task is not None and not stop.is_recording:  # a third changes nothing
            task.cancel()
        stop.signal = stop.signal or number
        stop.event.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, receive, number)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            if received:  # the report is still to be shown, and the exit code says it all
                signal.signal(number, signal.SIG_IGN)
