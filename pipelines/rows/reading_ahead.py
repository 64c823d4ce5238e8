"""Chunks of a source one after another, the next one read and prepared in a thread while this one is worked on."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from connector.subscribers import PreparedChunk

_READING_GRACE_S = 2.0  # for a chunk that is being read when the run is stopped; then the process ends without it


class ReadingAhead:
    """Reads `chunks` until they end or `stop` is set: a source may think for an hour. To be closed (aclosing)."""

    def __init__(self, chunks: Iterator[PreparedChunk], stop: asyncio.Event) -> None:
        self._chunks, self._stop = chunks, stop
        self.is_left_behind = False  # a thread that still reads the source, which must not be closed then

    async def read(self) -> AsyncGenerator[PreparedChunk]:
        """The chunks, in their order. Raises what the source raises."""
        loop, reads = asyncio.get_running_loop(), ThreadPoolExecutor(1)
        ahead = loop.run_in_executor(reads, _take_next, self._chunks)
        try:
            while (prepared := await self._wait_for(ahead)) is not None:
                ahead = loop.run_in_executor(reads, _take_next, self._chunks)
                yield prepared
                if self._stop.is_set():
                    return
        finally:
            reads.shutdown(wait=False, cancel_futures=True)
            await asyncio.wait({ahead}, timeout=_READING_GRACE_S)
            self.is_left_behind = not ahead.done()

    async def _wait_for(self, ahead: asyncio.Future[PreparedChunk | None]) -> PreparedChunk | None:
        """The next chunk; None at the end, or when the run is to stop."""
        stopped = asyncio.ensure_future(self._stop.wait())
        either: list[asyncio.Future[Any]] = [ahead, stopped]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        return ahead.result() if ahead.done() else None


def _take_next(chunks: Iterator[PreparedChunk]) -> PreparedChunk | None:
    return next(chunks, None)
