"""Ctrl-C and SIGTERM: the first lets a run end in order, the second ends it at once."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_LAST_WAIT_S = 5.0  # for what is being recorded when a second signal comes: a ledger's server may not answer any more


@dataclass(slots=True)
class Stop:
    """Whether a run is to stop, and the signal that said so."""

    event: asyncio.Event = field(default_factory=asyncio.Event)
    signal: int | None = None
    is_recording: bool = False  # what was done is being recorded: nothing is left that could be ended


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """A Stop that SIGINT and SIGTERM set; a second signal cancels the task that entered this context and, if that does
    not help within five seconds, ends the process."""
    stop, task, loop = Stop(), asyncio.current_task(), asyncio.get_running_loop()

    received: list[int] = []

    def receive(number: int) -> None:
        received.append(number)
        if len(received) == 2:  # a third changes nothing
            loop.call_later(_LAST_WAIT_S, _give_up, number)
            if task is not None and not stop.is_recording:
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


def _give_up(number: int) -> None:
    """End the process as a kill does. That is safe: what was under way is settled by the next run."""
    words = (
        "connector: ended without a report, since the ledger did not answer; what was under way is settled next time\n"
    )
    os.write(2, words.encode())
    os._exit(128 + number)
