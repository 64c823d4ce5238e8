"""An export by several workers: how the engine has the ranges of the list read, and what a worker does with one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from connector.clock import system_clock
from connector.control import Stop, until_stopped
from connector.export import PartDone, PartOrder, PartReaders, export_part
from connector.listing.reader import LIST_CONNECTIONS
from connector.pace.rate import Found, RateController
from connector.pace.shared import scale
from connector.report import add_requests, count_requests
from connector.service.client import open_client
from connector.service.retry import Retrier
from connector.settings import build_service
from pipelines.flows.engine import Engine, Message, TaskContext
from pipelines.flows.export_plan import ExportRecipe, repeat_plan

if TYPE_CHECKING:
    from connector.listing.reader import ListProgress

T = TypeVar("T")

_SAID_S = 0.5  # between two words of a worker on how far it is
_ENDING_S = 5.0  # for workers to end in order once the run is stopped; then the engine ends them

Requests = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class PartPace:
    """At most how fast is asked (list requests/s), and what is known of the service's limit."""

    max_rate: float = inf
    found: Found | None = None


@dataclass(slots=True)
class PartProgress:
    """How far all `parts` are: the rows of each that has begun, by its index; how many are `done`; the latest
    TotalCount."""

    parts: int
    rows: dict[int, int] = field(default_factory=dict)
    done: int = 0
    total: int | None = None


async def read_part(
    context: TaskContext, recipe: ExportRecipe, order: PartOrder, pace: PartPace
) -> tuple[PartDone | None, Requests]:
    """Read one part as a task of the engine, and return it (None where it was stopped) with the requests sent."""
    plan = repeat_plan(recipe, os.environ)
    clock = system_clock()
    said_at = -inf

    def follow(reading: ListProgress) -> None:
        nonlocal said_at
        if clock.monotonic() - said_at >= _SAID_S:
            said_at = clock.monotonic()
            context.say({"rows": reading.rows, "total": reading.total})

    service = build_service(plan.settings, LIST_CONNECTIONS)
    async with open_client(service, clock=clock, rate=RateController(pace.max_rate, pace.found)) as client:
        ending = await until_stopped(
            export_part(client, Retrier(), plan.query, plan.destination, order, on_progress=follow), context.stop
        )
        if isinstance(ending, asyncio.CancelledError):
            return None, count_requests(client.counts)
        if isinstance(ending, BaseException):
            context.say({"failed": True})
            raise ending
        context.say({"rows": ending.reading.rows, "done": True, "failed": ending.staged is None})
        return ending, count_requests(client.counts)


async def open_readers(
    engine: Engine,
    recipe: ExportRecipe,
    pace: PartPace,
    on_progress: Callable[[PartProgress], None],
    requests: Requests,
) -> PartReaders:
    """Return the engine's workers as readers of an export's parts, each of which reads one part in each of its threads,
    within `pace` all together; what they have sent is added to `requests`.

    Once a part has failed, or proved nothing, the others are stopped: they would be read in vain.
    """
    info = await engine.call(engine.client.scheduler_info)
    readers = sum(each["nthreads"] for each in info["workers"].values())

    async def read(orders: Sequence[PartOrder]) -> Sequence[PartDone]:
        stop, progress = Stop(), PartProgress(len(orders))

        def hear(index: int, worker: str, message: Message) -> None:
            progress.rows[index] = message.get("rows", 0)
            progress.total = message.get("total", progress.total)
            progress.done += message.get("done", False)
            if message.get("failed"):
                stop.end("another part has failed")
            on_progress(progress)

        share = 1 / min(readers, len(orders))
        of_each = PartPace(pace.max_rate * share, None if pace.found is None else scale(pace.found, share))
        arguments = [(recipe, order, of_each) for order in orders]
        ends = await _end_in_order(engine.run(read_part, arguments, stop, hear), stop)
        for end in ends:
            if end.error is not None:
                raise end.error
        done = [end.value for end in ends if end.value is not None]
        for _, counted in done:
            add_requests(requests, counted)
        return [part for part, _ in done if part is not None]

    return PartReaders(readers, read)


async def _end_in_order(running: Coroutine[Any, Any, T], stop: Stop) -> T:
    """See the tasks through; when cancelled stop them first, so that none stages rows after this one has left."""
    task = asyncio.ensure_future(running)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.end("the export was stopped")
        await asyncio.wait((task,), timeout=_ENDING_S)
        task.cancel()
        raise
