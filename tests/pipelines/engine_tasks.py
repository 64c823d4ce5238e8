"""Tasks for the engine's own tests: a worker finds them by their names."""

import asyncio
import os
from pathlib import Path

from connector.errors import LockedError
from pipelines.flows.engine import TaskContext


async def count_up(context: TaskContext, until: str, index: int, most: int) -> list[int]:
    """Count to `most` in steps of 10 ms, or until it is stopped or the file `until` exists, and say each; return the
    index, the number, the signal, and the process."""
    number = 0
    while number < most and not context.stop.event.is_set() and not _is_there(until):
        await asyncio.sleep(0.01)
        number += 1
        context.say({"number": number, "pid": os.getpid()}, has_advanced=True)
    return [index, number, context.stop.signal or 0, os.getpid()]


def _is_there(path: str) -> bool:
    return path != "" and Path(path).exists()


async def be_refused(context: TaskContext, words: str) -> None:
    """Fail as a run does that another one keeps out."""
    raise LockedError(words)


async def fail(context: TaskContext, secret: str) -> None:
    """Fail by a fault of the program, whose words hold what is nobody's business."""
    raise KeyError(secret)


async def die(context: TaskContext) -> None:
    """Take the worker along."""
    await asyncio.sleep(0.5)
    os._exit(1)
